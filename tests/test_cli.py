"""The command line."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

import s4q
from s4q.cli import app


def test_demo_prints_a_table_of_regret_per_problem() -> None:
    result = CliRunner().invoke(app, ["demo", "--episodes", "10000"], env={"COLUMNS": "140"})
    assert result.exit_code == 0, result.output
    assert "river_swim(6, horizon=12)" in result.output
    assert "low_rank()" in result.output
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in result.output.splitlines() if line[:1] == "│"]
    ends = [row for row in rows if row[0] == "10,000"]
    assert len(ends) == 2
    for row in ends:
        regret, ratio = float(row[2]), float(row[3])
        assert 0 < regret < 10**4
        assert ratio == pytest.approx(regret / 10**2, rel=0.01)


def test_demo_refuses_nonsense() -> None:
    for arguments in (["--episodes", "0"], ["--seed", "-1"]):
        result = CliRunner().invoke(app, ["demo", *arguments])
        assert result.exit_code == 2
        assert "must be a" in result.output.replace("\n", " ")


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


def test_whole_numbers_are_understood_everywhere() -> None:
    short = CliRunner().invoke(app, ["demo", "--episodes", "1e4"], env={"COLUMNS": "140"})
    assert short.exit_code == 0, short.output
    assert "10,000" in short.output
    wrong = CliRunner(env={"COLUMNS": "1000"}).invoke(app, ["demo", "--episodes", "many"])
    assert wrong.exit_code == 2
    assert "a whole number is needed" in wrong.output
