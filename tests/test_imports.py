"""Imports point one way: the walls of the design, as a test."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import s4q

SOURCE = Path(__file__).parent.parent / "src" / "s4q"

# A folder (or file) may import itself and those on lines below its own; those on one line do not see each other.
LAYERS = [
    {"__main__"},
    {"cli"},
    {"__init__"},
    {"comparing"},
    {"agent", "environment_checks", "stream", "wrappers"},
    {"deployed_policy"},
    {"report"},
    {"theory"},
    {"running"},
    {"certificates", "baselines"},
    {"learners", "collectors"},
    {"problems"},
    {"features"},
    {"core"},
]
FILES = sorted(SOURCE.rglob("*.py"))


def unit(path: Path) -> str:
    """The folder, or the file beside the folders, that a module belongs to."""
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def layer(name: str) -> int:
    return next(i for i, names in enumerate(LAYERS) if name in names)


def nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those inside of methods called `plot`: they alone reach up, to `report`, when they are called."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef) and node.name == "plot":
            assert all("s4q.report" in ast.unparse(one) for one in node.body if isinstance(one, ast.ImportFrom))
            continue
        yield node
        yield from nodes(node)


def imported(path: Path) -> set[str]:
    """The units a file imports."""
    found: set[str] = set()
    for node in nodes(ast.parse(path.read_text())):
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
                known = len(parts) > 1 and any(parts[1] in names for names in LAYERS)
                found.add(parts[1] if known else "__init__")
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_one_way(path: Path) -> None:
    for other in imported(path) - {unit(path)}:
        assert layer(other) > layer(unit(path)), f"{unit(path)} must not import {other}"


def test_the_check_sees_imports() -> None:
    assert imported(SOURCE / "learners" / "s3q.py") == {"core", "learners"}
    assert {"problems", "certificates"} <= imported(SOURCE / "running" / "accounting.py")


def test_no_module_is_named_like_a_function_it_holds() -> None:
    for path in FILES:
        functions = [node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)]
        assert path.stem not in functions, path


def test_no_file_is_called_utils() -> None:
    for path in FILES:
        assert path.stem not in {"utils", "helpers", "common"}


def test_nothing_touches_global_randomness_or_pickle() -> None:
    for path in FILES:
        text = path.read_text()
        words = ["np.random.seed", "np.random.rand", "import random", "RandomState"]
        if path.parent.name != "executors":  # there it goes from a driver to its own workers, and never to a file
            words.append("pickle")
        for word in words:
            assert word not in text.replace("np.random.random_", ""), f"{path.name} uses {word}"


def printed(code: str) -> str:
    """What a fresh interpreter prints."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_the_import_is_light() -> None:
    """`import s4q` takes time in every script and worker, so what only some of it needs comes later."""
    heavy = "('rich', 'typer', 'scipy', 'gymnasium', 'matplotlib', 'sqlite3', 'multiprocessing', 's4q.theory')"
    assert printed(f"import s4q, sys; print([name for name in {heavy} if name in sys.modules])") == "[]"


@pytest.mark.parametrize(
    "code", ["import s4q; f = s4q.compare", "from s4q import compare as f", "from s4q import *; f = compare"]
)
def test_compare_is_imported_when_it_is_used(code: str) -> None:
    assert printed(f"{code}; print(f.__name__)") == "compare"


@pytest.mark.parametrize(
    "code",
    [
        "import s4q; print(s4q.theory.effective_dim.__name__)",
        "from s4q import theory; print(theory.effective_dim.__name__)",
        "from s4q.theory import effective_dim; print(effective_dim.__name__)",
        "from s4q import *; print(theory.effective_dim.__name__)",
    ],
)
def test_theory_is_imported_when_it_is_used(code: str) -> None:
    assert printed(code) == "effective_dim"


def test_theory_is_listed_before_it_is_imported() -> None:
    code = "import s4q, sys; print({*s4q.__all__} <= {*dir(s4q)}, 'theory' in dir(s4q), 's4q.theory' in sys.modules)"
    assert printed(code) == "True True False"


def test_a_wrong_name_is_refused_as_in_any_module() -> None:
    with pytest.raises(AttributeError, match="module 's4q' has no attribute 'theorie'"):
        _ = s4q.theorie  # type: ignore[attr-defined]
