"""The commands that read: problems, report, explain, evaluate; and `python -m s4q`."""

import json
import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest
from saved_runs import lake_checkpoint
from typer.testing import CliRunner

import s4q
from s4q.cli import app
from s4q.cli.arguments import BUILDERS
from s4q.comparing import report_page
from s4q.report import page as pages


def invoke(*arguments: object, code: int = 0) -> str:
    result = CliRunner(env={"COLUMNS": "300"}).invoke(app, [str(one) for one in arguments])
    assert result.exit_code == code, result.output
    return result.stdout if code == 0 else result.output


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def river(folder: Path) -> Path:
    """A certified run on a built-in problem, with a log."""
    path, options = folder / "river.s4q", ["--preset", "realisable", "--seed", "7", "--evaluation-share", "0.1"]
    invoke("train", "river_swim", "--episodes", "3000", *options, "--checkpoint", path, "--log", folder / "river.jsonl")
    return path


@pytest.fixture(scope="module")
def lake(folder: Path) -> Path:
    return lake_checkpoint(folder)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plots are drawn, but not written as SVG, which takes most of the time."""
    for module in (pages, report_page):
        monkeypatch.setattr(module, "inline_svg", lambda *_: "<svg></svg>")


def test_problems_lists_all_with_exact_numbers() -> None:
    rows = json.loads(invoke("problems", "--json"))
    assert [row["problem"] for row in rows] == list(BUILDERS)
    sea = next(row for row in rows if row["problem"] == "deep_sea")
    assert sea["best_return"] == pytest.approx(0.99)
    assert sea["chance"] == pytest.approx(2.0**-10)
    assert (sea["horizon"], sea["states"], sea["actions"], sea["features"]) == (10, 10, 2, 20)
    table = invoke("problems")
    assert all(name in table for name in BUILDERS)


def test_one_problem_is_described() -> None:
    said = invoke("problems", "chain")
    assert said.startswith("chain: Walk right along a line")
    assert ">>>" not in said
    assert "river_swim" not in said


@pytest.mark.usefixtures("quick")
def test_report_beside_the_run(river: Path) -> None:
    said = invoke("report", river)
    place = river.with_name("report.html")
    assert f"report: {place}" in said
    text = place.read_text(encoding="utf-8")
    assert said.splitlines()[0].startswith("After 3,000 episodes S4Q (preset realisable) has a policy for river_swim")
    assert "s4q train river_swim --episodes 3000 --seed 7 --preset realisable --evaluation-share 0.1" in text


@pytest.mark.usefixtures("quick")
def test_report_of_an_environment_and_json(lake: Path, tmp_path: Path) -> None:
    said = json.loads(invoke("report", lake, "--out", tmp_path / "page.html", "--json"))
    assert said["report"] == str(tmp_path / "page.html")
    assert said["bytes"] == (tmp_path / "page.html").stat().st_size
    assert "for FrozenLake-v1 that is worth" in said["headline"]
    assert [one.name for one in s4q.load(lake).learner.diagnose()] == said["findings"]


@pytest.mark.usefixtures("quick")
def test_report_of_a_learner_saved_alone_takes_the_curve_of_the_log(folder: Path, river: Path, tmp_path: Path) -> None:
    found, alone = s4q.load(river), tmp_path / "alone.s4q"
    s4q.save(alone, found.learner, seed=7)
    invoke("report", alone, "--problem", "river_swim")
    without = (tmp_path / "report.html").read_text(encoding="utf-8")
    invoke("report", tmp_path, "--problem", "river_swim", "--log", folder / "river.jsonl")  # a folder with one run
    with_log = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert 'id="plot-promise"' in with_log
    assert 'id="plot-promise"' not in without
    points = [line for line in s4q.JsonLines(folder / "river.jsonl").lines() if line["event"] == "phase"]
    assert f'<td class="number">{points[-1]["episodes"]:,}</td>' in with_log


def test_explain_says_it_in_words(river: Path) -> None:
    said = invoke("explain", river)
    learner = s4q.load(river).learner
    assert learner.explain() in said
    assert "proved: optimism, when the features are exact" in said
    assert "certificate: " in said
    for finding in learner.diagnose():
        assert str(finding) in said
    assert said.rstrip().endswith("--preset realisable --evaluation-share 0.1")


def test_explain_json(river: Path) -> None:
    said, run = json.loads(invoke("explain", river, "--json")), s4q.load(river).progress
    assert said["run"]["episodes"] == run.episodes == 3000
    assert said["run"]["regret"] == run.regret
    assert said["run"]["evaluation_episodes"] == 300
    assert said["certificate"]["delta"] == 0.05
    assert said["configuration"]["seed"] == "7"
    assert said["in_progress"] is False


def test_evaluate_a_problem_with_exact_values(river: Path) -> None:
    scored = json.loads(invoke("evaluate", river, "--episodes", "1e6", "--json"))
    mdp = s4q.problems.river_swim()
    assert scored["n_episodes"] == 10**6
    assert scored["n_steps"] == 12 * 10**6
    assert scored["exact_value"] == mdp.value(s4q.load(river).learner.best)
    assert scored["best_value"] == mdp.v_star
    # A return lies within [0, 12], so its mean over 10^6 episodes is within 6 standard errors of at most 6/1000.
    assert abs(scored["mean"] - scored["exact_value"]) < 6 * 6e-3
    assert scored["low"] is None  # counts do not know the spread
    assert "interval" not in invoke("evaluate", river, "--episodes", "10")


def test_evaluate_an_environment(lake: Path) -> None:
    scored = json.loads(invoke("evaluate", lake, "--episodes", "400", "--json"))
    agent = s4q.Agent.load(lake, __import__("gymnasium").make("FrozenLake-v1"))
    again = agent.evaluate(400)
    assert (scored["mean"], scored["low"], scored["high"]) == (again.mean, again.low, again.high)
    spread = np.sqrt(scored["exact_value"] * (1 - scored["exact_value"]) / 400)
    assert abs(scored["mean"] - scored["exact_value"]) < 5 * max(spread, 0.01)
    other = json.loads(invoke("evaluate", lake, "--episodes", "400", "--seed", "1", "--json"))
    assert other["mean"] != scored["mean"]
    newest = json.loads(invoke("evaluate", lake, "--episodes", "1", "--policy", "newest", "--json"))
    mdp = s4q.problems.from_gymnasium("FrozenLake-v1", horizon=20)
    learned = s4q.load(lake).learner
    assert newest["exact_value"] == mdp.value(learned.policy)
    plain = json.loads(invoke("evaluate", lake, "--episodes", "1", "--policy", "no_bonus", "--json"))
    assert plain["exact_value"] == mdp.value(s4q.LinearQ.from_arrays(learned.policy.theta))
    assert "mean return" in invoke("evaluate", lake, "--episodes", "3")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["problems", "nope"], "error: problem must be one of low_rank, "),
        (["report", "nowhere.s4q"], "error: there is no run at nowhere.s4q; pass a folder"),
        (["explain", "nowhere.s4q"], "error: there is no run at nowhere.s4q; pass a folder"),
        (["evaluate", "nowhere.s4q"], "error: there is no run at nowhere.s4q; pass a folder"),
        (["report", "FOLDER"], "holds 2 checkpoints (lake.s4q, river.s4q); pass one file"),
        (["report", "RIVER", "--problem", "chain"], "holds a run on river_swim, not on chain; leave --problem out"),
        (["report", "RIVER", "--out", "FOLDER"], "cannot be written"),
        (["report", "RIVER", "--out", "FOLDER/no/page.html"], "cannot be written"),
        (["report", "RIVER", "--log", "FOLDER/no.jsonl"], "error: --log: there is no file"),
        (["report", "RIVER", "--log", "RIVER"], "holds no finished phase"),
        (["evaluate", "RIVER", "--episodes", "0"], "error: --episodes is the number of episodes to play"),
        (["evaluate", "RIVER", "--episodes", "many"], "a whole number is needed"),
        (["evaluate", "RIVER", "--seed", "-1"], "error: --seed is the seed"),
        (["explain", "BROKEN"], "is not a checkpoint that can be read"),
        (["explain", "ALONE", "--problem", "chain"], "is no run on chain: horizon is 12 there, and 10 in chain"),
        (
            ["evaluate", "ALONE"],
            "is of an unnamed problem, which cannot be made from the file alone; pass it as --problem",
        ),
        (["evaluate", "ALONE", "--problem", "Nope-v0"], "or the id of a Gymnasium environment; got 'Nope-v0'"),
    ],
)
def test_bad_input_is_refused_in_one_line_with_a_hint(
    folder: Path, river: Path, lake: Path, tmp_path: Path, arguments: list[str], message: str
) -> None:
    del lake
    s4q.save(tmp_path / "alone.s4q", s4q.load(river).learner, seed=7)
    (tmp_path / "broken.s4q").write_text("no zip")
    names = {"RIVER": river, "BROKEN": tmp_path / "broken.s4q", "ALONE": tmp_path / "alone.s4q", "FOLDER": folder}
    given = arguments
    for name, place in names.items():
        given = [one.replace(name, str(place)) for one in given]
    error, hint = invoke(*given, code=2).strip().splitlines()
    assert error.startswith("error: ")
    assert message in error
    assert hint == "hint: add --help to see what the command takes"


@pytest.mark.usefixtures("quick")
def test_a_name_in_a_file_imports_no_module(river: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gymnasium imports the module of an id such as "module:Name"; only an id that the user types may do that."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "evil_module.py").write_text("from pathlib import Path\nPath(__file__).with_name('ran').touch()\n")
    path = tmp_path / "evil.s4q"
    s4q.save(path, s4q.load(river).learner, seed=7, extra={"problem": {"env": "evil_module:Env-v0"}, "train": 5})
    for command in ("explain", "report"):
        invoke(command, path)
    assert "pass it as --problem" in invoke("evaluate", path, code=2)
    assert not (tmp_path / "ran").exists()
    invoke("evaluate", path, "--problem", "evil_module:Env-v0", code=2)  # there is no such env in the module
    assert (tmp_path / "ran").exists()


def test_without_the_extra_report_says_what_to_install(river: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert 'pip install "s4q[report]"' in invoke("report", river, code=2)


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_commands_of_the_page_in_docs_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every `s4q ...` line of docs/report.md, in order, in one folder."""
    monkeypatch.chdir(tmp_path)
    text = (Path(__file__).parent.parent / "docs" / "report.md").read_text(encoding="utf-8")
    commands = [shlex.split(line) for line in re.findall(r"^    s4q (.*)$", text, re.M)]
    assert [command[0] for command in commands] == ["train", "report", "explain", "evaluate", "problems", "compare"]
    for command in commands:
        assert invoke(*command).strip()
    assert {path.name for path in tmp_path.iterdir()} == {"river", "chain.sqlite", "chain.html"}
    assert (tmp_path / "river" / "report.html").is_file()
