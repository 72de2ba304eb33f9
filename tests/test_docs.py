"""The pages of docs/ are true: their code runs and prints what they show, and what they link to exists."""

import doctest
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted((ROOT / "docs").glob("*.md"))
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.S | re.M)
WITH_CODE = [page for page in PAGES if BLOCK.search(page.read_text())]


def run_blocks(text: str, name: str) -> int:
    """Run the python blocks of a page one after another, as a reader would; how many examples there were.

    A block of plain code must run; in one with prompts every line must print what stands below it.
    """
    known: dict[str, object] = {"__name__": "__main__"}
    report: list[str] = []
    examples = 0
    for i, block in enumerate(BLOCK.findall(text)):
        where = f"{name}, block {i + 1}"
        if ">>> " not in block:
            exec(compile(block, where, "exec"), known)
            examples += 1
            continue
        runner = doctest.DocTestRunner(optionflags=doctest.REPORT_NDIFF)
        test = doctest.DocTestParser().get_doctest(block, known, where, name, 0)
        examples += runner.run(test, out=report.append, clear_globs=False).attempted
        known = test.globs
    assert not report, "".join(report)
    return examples


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.name)
def test_python_blocks(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_blocks(page.read_text(), page.name) > 0


def test_pages_with_code_are_found() -> None:
    assert {"certificates.md", "theory.md"} <= {page.name for page in WITH_CODE}


def test_a_wrong_number_is_noticed() -> None:
    right = "```python\n>>> x = 2\n>>> x\n2\n\n```\nand\n```python\ny = x + 1\nassert y == 3\n```\n"
    assert run_blocks(right, "right") == 3
    with pytest.raises(AssertionError, match="Failed example"):
        run_blocks(right.replace("x\n2", "x\n4"), "wrong")
    with pytest.raises(AssertionError):
        run_blocks(right.replace("y == 3", "y == 4"), "wrong")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_and_commands_exist(page: Path) -> None:
    text = page.read_text()
    for link in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        assert link.startswith("https://") or (page.parent / link).exists(), link
    for module in re.findall(r"python -m (benchmarks\.\w+)", text):
        assert (ROOT / f"{module.replace('.', '/')}.py").exists(), module
