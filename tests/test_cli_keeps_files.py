"""No command writes over, or removes, a file that it did not make; and what it says about files is so."""

import json
import shutil
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import s4q
from s4q.cli import app
from s4q.cli.run_folder import RunFolder
from s4q.cli.train_options import TrainOptions, config_text, read_config
from s4q.running.file_locks import locked

CHAIN = ["train", "chain", "--seed", "3"]


def invoke(*arguments: object, code: int = 0, quiet: bool = True) -> Any:
    words = [str(one) for one in arguments]
    result = CliRunner(env={"COLUMNS": "300"}).invoke(app, [*words, "--quiet"] if quiet else words)
    assert result.exit_code == code, result.output
    return result


def contents(folder: Path) -> dict[str, bytes]:
    """All files of a folder, byte by byte."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of 60 episodes; tests work on copies."""
    folder = tmp_path_factory.mktemp("made") / "chain"
    options = ["--preset", "realisable", "--evaluation-share", "0.1"]
    invoke(*CHAIN, *options, "--episodes", "60", "--out", folder)
    return folder


@pytest.fixture
def run(chain: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(chain, tmp_path / "run"))


@pytest.mark.parametrize("name", ["config.toml", "best.policy", "report.html", "checkpoint.s4q.previous"])
def test_a_new_run_never_writes_over_a_file(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine")
    said = invoke(*CHAIN, "--episodes", "5", "--out", tmp_path, code=2).stderr
    assert f"{name} is there already" in said
    assert "move it away, or choose another place" in said
    assert contents(tmp_path) == {name: b"mine"}


def test_the_config_that_is_used_may_lie_in_the_folder(tmp_path: Path) -> None:
    """It is left as it is where the run is refused."""
    config, mine = tmp_path / "config.toml", '# mine\nproblem = "chain"\nseed = 3\n'
    config.write_text(mine)
    for wrong in (["--episodes", "0"], ["--stop-gap", "0.1"]):
        invoke("train", "--config", config, "--out", tmp_path, *wrong, code=2)
        assert contents(tmp_path) == {"config.toml": mine.encode()}
    invoke("train", "--config", config, "--out", tmp_path, "--episodes", "5")
    assert read_config(config).options.episodes == s4q.load(tmp_path / "checkpoint.s4q").progress.episodes == 5


def test_a_refused_resume_changes_nothing(run: Path) -> None:
    (run / "config.toml").write_text((run / "config.toml").read_text() + "# mine\n")
    before = contents(run)
    assert "60 have been played" in invoke("train", "--out", run, "--resume", "--episodes", "50", code=2).stderr
    assert contents(run) == before
    with locked([run / "checkpoint.s4q"]):
        said = invoke("train", "--out", run, "--resume", "--episodes", "90", code=2).stderr
    assert "is being written by another run" in said
    assert contents(run) == before
    invoke("train", "--out", run, "--resume", "--episodes", "90")
    assert read_config(run / "config.toml").budgets == (60, 90)


@pytest.mark.parametrize("problem", [[], ["chain"]])
def test_without_its_config_a_run_goes_on_as_the_checkpoint_says(run: Path, chain: Path, problem: list[str]) -> None:
    (run / "config.toml").unlink()
    invoke("train", *problem, "--out", run, "--resume")
    assert (run / "config.toml").read_text() == (chain / "config.toml").read_text()
    found = read_config(run / "config.toml").options
    assert (found.preset, found.evaluation_share, found.seed) == ("realisable", 0.1, 3)


def test_a_folder_is_left_only_by_a_run_that_began(tmp_path: Path) -> None:
    for error in (ValueError, ImportError, KeyboardInterrupt):
        with pytest.raises(error), RunFolder(tmp_path / "a" / "b").made():
            raise error
        assert list(tmp_path.iterdir()) == []
    with pytest.raises(AttributeError), RunFolder(tmp_path / "a" / "b").made():
        (tmp_path / "a" / "b" / "checkpoint.s4q").write_text("begun").no_such_thing()  # type: ignore[attr-defined]
    assert contents(tmp_path) == {"a/b/checkpoint.s4q": b"begun"}


def test_ctrl_c_before_the_first_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is nothing to go on from, and the line does not say so."""

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(s4q, "run", interrupted)
    for place in (["--out", tmp_path / "run"], ["--checkpoint", tmp_path / "run.s4q"]):
        said = invoke(*CHAIN, "--episodes", "5", *place, code=130).stderr
        assert said == "interrupted: nothing was saved yet; begin again with the same line\n"
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_leaves_the_policy_so_far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is that of the checkpoint. Of a built-in problem and of an environment."""

    def on_phase(self: s4q.JsonLines, run: s4q.Run) -> None:
        if run.phases >= 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(s4q.JsonLines, "on_phase", on_phase)
    lake = ["train", "FrozenLake-v1", "--horizon", "9", "--seed", "0", "--value-bound", "1"]
    for name, line in (("chain", CHAIN), ("lake", lake)):
        said = invoke(*line, "--episodes", "200", "--out", tmp_path / name, code=130).stderr
        assert f"go on with: s4q train --out {tmp_path / name} --resume" in said
        found = s4q.load(tmp_path / name / "checkpoint.s4q")
        assert found.progress.episodes < 200
        policy = s4q.Policy.load(tmp_path / name / "best.policy")
        mine, theirs = (np.array([level.theta for level in q.levels]) for q in (policy.q, found.learner.best))
        assert np.array_equal(mine, theirs)


def test_an_older_report_is_no_output(run: Path) -> None:
    (run / "report.html").write_text("old")
    said = invoke("train", "--out", run, "--resume").stdout
    assert "(config.toml, metrics.jsonl, checkpoint.s4q, best.policy; report.html is older)" in said
    said = json.loads(invoke("train", "--out", run, "--resume", "--json").stdout)
    assert set(said["files"]) == {"config", "metrics", "checkpoint", "policy"}


def test_the_demo_writes_over_demos_only(tmp_path: Path, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("s4q.cli.demo_command.find_spec", lambda name: None)  # one problem, no report
    line = ["demo", "--episodes", "100", "--out", tmp_path / "demo"]
    mine = tmp_path / "demo" / "river_swim"
    mine.parent.mkdir()
    run.rename(mine)
    before = contents(mine)
    said = invoke(*line, code=2).stderr
    assert f"{mine / 'config.toml'} was not made by s4q demo" in said
    assert contents(mine) == before
    shutil.rmtree(mine)
    invoke(*line)
    invoke(*line)  # a demo before it
    invoke("train", "--out", mine, "--resume", "--episodes", "200")  # now it is the user's
    assert "was not made by s4q demo" in invoke(*line, code=2).stderr
    assert s4q.load(mine / "checkpoint.s4q").progress.episodes == 200


def test_a_page_never_replaces_results_or_a_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("s4q.cli.compare_command.compare_plan", lambda *_, **__: pytest.fail("it was played"))
    plan = tmp_path / "plan.toml"
    plan.write_text('problems = ["chain"]\nlearners = ["s4q"]\nseeds = 1\nepisodes = 9\n')
    results = tmp_path / "r.sqlite"
    results.write_text("results")
    for more, message in (
        (["--results", tmp_path / "x.html"], "the page beside it has the same name; end the file in .sqlite"),
        (["--results", results, "--report", results], "is the file of --results, which the page would replace"),
        (["--report", plan], "is the file of the plan, which the page would replace"),
    ):
        assert message in invoke("compare", plan, *more, code=2).stderr
    assert sorted(contents(tmp_path)) == ["plan.toml", "r.sqlite"]


def test_every_text_survives_the_config() -> None:
    text = 'é \U0001f600 \x7f \x00 \u2028 "'
    assert tomllib.loads(config_text(TrainOptions(ray=text), [5]))["ray"] == text
    with pytest.raises(ValueError, match="no UTF-8"):
        config_text(TrainOptions(ray="\udcff"), [5])


@pytest.mark.parametrize("history", ["budgets = [true, -3]", "budgets = [0]", "budgets = 5", 'budgets = ["5"]'])
def test_a_history_that_cannot_be_is_refused(tmp_path: Path, history: str) -> None:
    (tmp_path / "config.toml").write_text(f'problem = "chain"\n[history]\n{history}\n')
    said = invoke("train", "--config", tmp_path / "config.toml", code=2).stderr
    assert "budgets of [history] must be a list of whole numbers, at least 1; got" in said


def test_a_run_that_is_not_kept_says_so_when_it_begins(tmp_path: Path) -> None:
    note = "note: nothing of this run is kept; add --out FOLDER to keep it"
    line = [*CHAIN, "--episodes", "5"]
    assert invoke(*line, quiet=False).stderr.splitlines()[0] == note
    for more in (["--quiet"], ["--json"], ["--out", tmp_path / "run"], ["--checkpoint", tmp_path / "a.s4q"]):
        assert note not in invoke(*line, *more, quiet=False).stderr
    assert note not in invoke(*CHAIN, "--episodes", "0", quiet=False, code=2).stderr


def test_episodes_that_were_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of an environment are stepped, so there are fewer."""
    asked = []

    def learn(self: s4q.Agent, episodes: int, **_: object) -> None:
        asked.append(episodes)
        raise ValueError("enough")

    monkeypatch.setattr(s4q.Agent, "learn", learn)
    monkeypatch.setattr(s4q, "run", lambda learner, collector, n, **_: learn(learner, n))
    for problem in ("chain", "FrozenLake-v1"):
        invoke("train", problem, "--seed", "0", code=2)
    assert asked == [10**6, 1000]


def test_a_wrong_problem_is_said_as_it_was_typed() -> None:
    said = invoke("train", "river_swim:horizon=5", code=2).stderr
    assert "got 'river_swim:horizon=5', did you mean river_swim?" in said
    assert "--horizon" not in said
    assert "got 'chian', did you mean chain?" in invoke("problems", "chian", code=2, quiet=False).stderr
    assert "did you mean" not in invoke("problems", "zzz", code=2, quiet=False).stderr
