"""Imports point one way: the walls of the design, as a test."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "s4q"

# Each module may import those on lines above its own, and its own line's package.
ORDER = [
    "version",
    "blocks",
    "checks",
    "state",
    "memo",
    "interruption",
    "confidence_sequences",
    "progress_bar",
    "optimism",
    "factors",
    "least_squares",
    "linear_q",
    "policies",
    "spec",
    "transitions",
    "requests",
    "features",
    "problems",
    "collectors",
    "policy_replay",
    "cache",
    "widths",
    "presets",
    "explain",
    "bonus_rules",
    "fit_record",
    "main_loop",
    "evaluation",
    "certificate",
    "diagnostics",
    "s3q",
    "s4q",
    "curve",
    "progress",
    "ledger",
    "archive",
    "checkpoint",
    "callbacks",
    "logs",
    "run",
    "stream",
    "env_facts",
    "agent",
    "theory",
    "__init__",
    "demo",
    "named_problems",
    "train",
    "audit_command",
    "cli",
]
LEARNERS = {"s3q", "s4q"}
NEVER_IMPORT_LEARNERS = {"features", "problems", "collectors", "certificate", "ledger", "run"}
LEARNERS_NEVER_IMPORT = {"features", "problems", "collectors", "certificate"}


def unit(path: Path) -> str:
    """The module or package of a file, as named in ORDER."""
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    """The units a file imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level:
            raise AssertionError(f"{path.name} has a relative import, which this check cannot follow")
        elif isinstance(node, ast.ImportFrom) and node.module:
            deeper = [f"{node.module}.{alias.name}" for alias in node.names]
            names = deeper if node.module == "s4q" else [node.module]
        for name in names:
            parts = name.split(".")
            if parts[0] == "s4q":
                found.add(parts[1] if len(parts) > 1 and (parts[1] in ORDER) else "__init__")
    return found


FILES = sorted(SOURCE.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_one_way(path: Path) -> None:
    assert unit(path) in ORDER, f"{unit(path)} has no place in the import order yet"
    rank = ORDER.index(unit(path))
    for other in imported(path):
        assert ORDER.index(other) < rank or other == unit(path), f"{unit(path)} must not import {other}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_learners_and_environments_do_not_know_each_other(path: Path) -> None:
    if unit(path) in NEVER_IMPORT_LEARNERS:
        assert not imported(path) & LEARNERS
    if unit(path) in LEARNERS:
        assert not imported(path) & LEARNERS_NEVER_IMPORT


def behind(unit_name: str) -> set[str]:
    """The unit, what it imports, and what that imports."""
    found: set[str] = set()
    new = {unit_name}
    while new:
        found |= new
        new = set().union(*(imported(path) for path in FILES if unit(path) in new)) - found
    return found


def test_no_learner_can_see_the_theory() -> None:
    for learner in LEARNERS:
        assert "theory" not in behind(learner)
    assert "theory" not in behind("run")
    assert {"problems", "main_loop", "least_squares"} <= behind("theory")  # the check sees what is there


def test_the_check_sees_imports() -> None:
    assert {"least_squares", "requests", "linear_q"} <= imported(SOURCE / "s3q.py")
    assert "problems" in imported(SOURCE / "ledger.py")


def test_no_file_is_called_utils() -> None:
    for path in FILES:
        assert path.stem not in {"utils", "helpers", "common"}


def test_nothing_touches_global_randomness_or_pickle() -> None:
    for path in FILES:
        text = path.read_text()
        for word in ("np.random.seed", "np.random.rand", "import random", "pickle", "RandomState"):
            assert word not in text.replace("np.random.random_", ""), f"{path.name} uses {word}"
