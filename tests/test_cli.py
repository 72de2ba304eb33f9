"""The command line."""

import pytest
from typer.testing import CliRunner

import s4q
from s4q.cli.app import app


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
