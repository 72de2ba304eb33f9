"""`make notebooks`: run docs/notebooks/*.py as notebooks and write them, with their outputs, as .ipynb files.

A source has cells that begin with `# %%`, or `# %% [markdown]` for text. Nothing in a notebook depends on when or where
it was made, but for what the code prints.
"""

import re
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SOURCES = [path for path in sorted(HERE.glob("*.py")) if path.name != Path(__file__).name]
_CELL = re.compile(r"^# %%(?P<text> \[markdown\])?\n", re.M)


def cells(source: str) -> list[tuple[str, str]]:
    """The cells of a source: ("markdown" or "code", what is in it).

    >>> cells("# %% [markdown]\\n# A title\\n\\n# %%\\nx = 1\\n")
    [('markdown', 'A title'), ('code', 'x = 1')]
    """
    starts = list(_CELL.finditer(source))
    ends = [start.start() for start in starts[1:]] + [len(source)]
    found = []
    for start, end in zip(starts, ends, strict=True):
        body = source[start.end() : end].strip("\n")
        if start["text"]:
            found.append(("markdown", re.sub(r"^# ?", "", body, flags=re.M)))
        else:
            found.append(("code", body))
    return found


def built(source: str) -> Any:
    """The notebook of a source, executed."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.v4.new_notebook()
    for number, (kind, body) in enumerate(cells(source)):
        make = nbformat.v4.new_markdown_cell if kind == "markdown" else nbformat.v4.new_code_cell
        cell = make(body)
        cell["id"] = f"cell-{number}"  # nbformat draws one
        notebook.cells.append(cell)
    NotebookClient(notebook, timeout=600, kernel_name="python3", coalesce_streams=True).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # when it ran
    notebook.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    nbformat.validate(notebook)
    return notebook


def main() -> None:
    import nbformat

    for path in SOURCES:
        nbformat.write(built(path.read_text()), path.with_suffix(".ipynb"))
        print(path.with_suffix(".ipynb"))


if __name__ == "__main__":
    main()
