"""The command line."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

import s4q
from s4q.cli import app


def test_demo_learns_writes_reports_and_says_what_they_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small: the real one is `make demo`. What it says is what its runs hold."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("s4q.report.page.inline_svg", lambda *_: "<svg></svg>")  # it takes most of the time
    short = ["demo", "--episodes", "1e4", "--cartpole", "3"]
    result = CliRunner(env={"COLUMNS": "140"}).invoke(app, short)
    assert result.exit_code == 0, result.output
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in result.stdout.splitlines() if line[:1] == "│"]
    [end] = [row for row in rows if row[0] == "10,000"]
    found, mdp = s4q.load("s4q-demo/river_swim/checkpoint.s4q"), s4q.problems.river_swim()
    regret, gap = found.progress.regret, mdp.v_star - mdp.value(found.learner.policy)
    assert float(end[2]) == pytest.approx(regret, rel=0.01)
    assert float(end[3]) == pytest.approx(regret / 10**2, rel=0.01)
    *_, cartpole, river, memory = result.stdout.splitlines()
    assert cartpole.startswith("After 3 episodes the policy for CartPole-v1 gets ")
    assert " in 100 fresh episodes, of at most 500; " in cartpole
    assert river == (
        f"After 10,000 episodes of river_swim exploration has cost {regret:,.0f} in all, {regret / 1e4:.2g} an episode"
        f", and the newest policy is {gap:.2g} short of the best."
    )
    assert memory.startswith(f"The learner holds {found.learner.nbytes / 1000:.1f} kB; ")
    for problem in ("CartPole-v1", "river_swim"):
        page = f"s4q-demo/{problem}/report.html"
        assert f"report: {page}\n" in result.stdout
        assert problem in Path(page).read_text()
    again = CliRunner().invoke(app, [*short[:3], "--cartpole", "0", "--quiet", "--json"])
    said = json.loads(again.stdout)  # the same again, over the first
    assert said["runs"][0]["run"]["regret"] == regret
    assert [len(said["runs"]), len(said["sentences"]), len(said["reports"])] == [1, 2, 1]
    assert again.stderr == ""


def test_demo_refuses_nonsense(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for arguments in (["--episodes", "0"], ["--seed", "-1"], ["--cartpole", "-1"], ["--episodes", "many"]):
        result = CliRunner().invoke(app, ["demo", *arguments])
        assert result.exit_code == 2
        assert len(result.stderr.splitlines()) == 2
    assert list(tmp_path.iterdir()) == []


def test_demo_without_extras_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("s4q.cli.demo_command.find_spec", lambda name: None)
    result = CliRunner().invoke(app, ["demo", "--episodes", "100", "--out", str(tmp_path / "demo")])
    assert result.exit_code == 0, result.output
    assert 'CartPole-v1 is left out: it needs pip install "s4q[gym]"' in result.stderr
    assert 'report: none; pip install "s4q[report]"' in result.stdout
    assert [path.name for path in (tmp_path / "demo").iterdir()] == ["river_swim"]


def test_version() -> None:
    assert CliRunner().invoke(app, ["--version"]).output.strip() == s4q.__version__


def trained(*arguments: str) -> tuple[list[str], str]:
    result = CliRunner(env={"COLUMNS": "1000"}).invoke(app, ["train", "--quiet", *arguments])
    assert result.exit_code == 0, result.output
    seeds = re.findall(r"^seed (\d+) \(repeat this run with --seed \1\)$", result.output, re.M)
    return seeds, re.sub(r"cpu_seconds=\S+|^seed .*\n", "", result.output)


def test_train_without_a_seed_prints_the_one_it_drew() -> None:
    """The printed seed repeats the run; two runs without a seed have different ones."""
    drawn, first = trained("low_rank", "--episodes", "300")
    again, repeated = trained("low_rank", "--episodes", "300", "--seed", *drawn)
    other, _ = trained("low_rank", "--episodes", "300")
    assert (len(drawn), again, repeated) == (1, [], first)
    assert drawn != other


def test_train_goes_on_with_the_seed_of_the_checkpoint(tmp_path: Path) -> None:
    files = ["--checkpoint", str(tmp_path / "run.s4q")]
    drawn, _ = trained("low_rank", "--episodes", "100", *files)
    none, resumed = trained("low_rank", "--episodes", "300", *files, "--resume")
    assert (len(drawn), none, s4q.load(tmp_path / "run.s4q").seed) == (1, [], int(drawn[0]))
    assert "episodes=300" in resumed


def test_train_compares_what_the_settings_mean_not_how_they_were_typed(tmp_path: Path) -> None:
    """Options left out are those of the file; defaults may be spelled out; the result is that of one long run."""
    path = str(tmp_path / "run.s4q")
    lake = ["FrozenLake-v1", "--checkpoint", path, "--evaluate", "0"]
    trained(*lake, "--episodes", "20", "--seed", "1", "--horizon", "9", "--value-bound", "1000")
    trained("FrozenLake-v1", "--checkpoint", path, "--evaluate", "0", "--resume", "--episodes", "30")
    spelled = ["--preset", "practical", "--memory", "sketch", "--memory-bytes", str(2**26), "--reward-range", "0", "1"]
    trained(*lake, "--resume", "--episodes", "40", *spelled, "--horizon", "9", "--value-bound", "1000")
    trained(*lake, "--resume", "--episodes", "50", "--value-bound", "9", "--evaluation-share", "0")
    _, last = trained(*lake, "--resume")  # as many episodes as the last time
    assert "episodes=50" in last
    other = str(tmp_path / "one.s4q")
    trained(
        "FrozenLake-v1", "--checkpoint", other, "--evaluate", "0", "--episodes", "50", "--seed", "1", "--horizon", "9"
    )
    resumed, whole = s4q.load(path), s4q.load(other)
    assert resumed.n_episodes == whole.n_episodes == 50
