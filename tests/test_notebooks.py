"""The notebooks of the documentation are what their sources say, and their code prints the same today."""

import contextlib
import importlib.util
import io
import json
from pathlib import Path
from typing import Any

import matplotlib
import pytest
from shown_output import differences

FOLDER = Path(__file__).parent.parent / "docs" / "notebooks"
_spec = importlib.util.spec_from_file_location("build", FOLDER / "build.py")
assert _spec is not None
assert _spec.loader is not None
build = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(build)


def notebook(source: Path) -> Any:
    return json.loads(source.with_suffix(".ipynb").read_text())


def printed_in(cell: Any) -> str:
    """What a cell of a notebook printed."""
    return "".join("".join(one["text"]) for one in cell["outputs"] if one["output_type"] == "stream")


def test_there_are_two() -> None:
    assert len(build.SOURCES) == len(list(FOLDER.glob("*.ipynb"))) == 2


@pytest.mark.parametrize("source", build.SOURCES, ids=lambda path: path.stem)
def test_the_notebook_is_that_of_its_source_and_was_run(source: Path) -> None:
    found = notebook(source)["cells"]
    assert [(cell["cell_type"], "".join(cell["source"])) for cell in found] == build.cells(source.read_text())
    code = [cell for cell in found if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    outputs = [one for cell in code for one in cell["outputs"]]
    assert all(one["output_type"] != "error" and one.get("name") != "stderr" for one in outputs)
    assert sum("image/png" in one.get("data", {}) for one in outputs) >= 2
    assert source.with_suffix(".ipynb").stat().st_size < 300_000


@pytest.mark.slow
@pytest.mark.parametrize("source", build.SOURCES, ids=lambda path: path.stem)
def test_the_notebook_prints_the_same_today(source: Path) -> None:
    """Its cells as plain Python, in order; `make notebooks` runs them in Jupyter."""
    matplotlib.use("Agg")
    known: dict[str, object] = {"__name__": "__main__"}
    code = [cell for cell in notebook(source)["cells"] if cell["cell_type"] == "code"]
    for number, cell in enumerate(code):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile("".join(cell["source"]), f"{source.name}, cell {number}", "exec"), known)
        assert not differences(printed_in(cell), printed.getvalue()), number
    known["plt"].close("all")  # type: ignore[attr-defined]
