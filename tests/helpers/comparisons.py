"""What the tests of comparisons share: a small problem, rows, and the command."""

import sqlite3
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from s4q.cli import app

SMALL = "chain:n_states=3,horizon=3"
MEASURED = ("cpu_seconds", "learner_seconds", "curve")
PLAN = """
problems = ["chain", {name = "DeepSea 4", problem = "deep_sea", size = 4}]
learners = ["s4q", {learner = "lsvi_ucb", beta = 0.3}]
seeds = 3
episodes = 70
"""


def plain(rows: Any) -> list[dict[str, Any]]:
    """Rows without what depends on the speed of the machine."""
    return [{key: value for key, value in row.items() if key not in MEASURED} for row in rows]


def finished(path: Path) -> int:
    """The number of runs in a results file; 0 where it is not there yet."""
    if not path.exists():
        return 0
    try:
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as database:
            return int(database.execute("SELECT COUNT(*) FROM cells").fetchone()[0])
    except sqlite3.Error:
        return 0


def shown(table: Any) -> list[list[str]]:
    """The cells of a table, the columns of CPU time left out."""
    return [[str(cell) for cell in column.cells] for column in table.columns if "CPU" not in str(column.header)]


def row(learner: str, seed: int, regret: float) -> dict[str, Any]:
    """A run of ten episodes with returns near 0.5."""
    numbers = {"regret": regret, "mean_return": 0.5, "gap": 0.1, "phases": 3, "nbytes": 8}
    costs = {"steps": 1, "cpu_seconds": 1.0, "learner_seconds": 0.5, "curve": [], "error": ""}
    return {"problem": "p", "learner": learner, "seed": seed, "episodes": 10, **numbers, **costs}


def invoked(*arguments: str) -> Any:
    """What `s4q compare` with these arguments ends with, in a window of 1,000 columns."""
    return CliRunner(env={"COLUMNS": "1000"}).invoke(app, ["compare", *arguments])
