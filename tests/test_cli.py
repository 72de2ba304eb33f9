"""The command line."""

from typer.testing import CliRunner

import s4q
from s4q.cli import app


def test_demo_prints_a_table_of_errors_that_shrink() -> None:
    result = CliRunner().invoke(app, ["demo", "--episodes", "2000"], env={"COLUMNS": "120"})
    assert result.exit_code == 0, result.output
    assert "low_rank" in result.output
    assert "bellman_closed" in result.output
    rows = [line.split("│") for line in result.output.splitlines() if line.startswith("│")]
    errors = [float(row[3]) for row in rows]
    half = len(errors) // 2
    for table in (errors[:half], errors[half:]):
        assert table[-1] < table[0] / 3


def test_demo_refuses_nonsense() -> None:
    for arguments in (["--episodes", "0"], ["--seed", "-1"]):
        result = CliRunner().invoke(app, ["demo", *arguments])
        assert result.exit_code == 2
        assert "must be a" in result.output.replace("\n", " ")


def test_version() -> None:
    assert CliRunner().invoke(app, ["version"]).output.strip() == s4q.__version__
