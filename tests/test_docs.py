"""The pages of docs/ are true: their code runs and prints what they show, and what they link to exists."""

import contextlib
import doctest
import io
import re
import shlex
from pathlib import Path
from types import ModuleType, UnionType

import pytest
from shown_output import blocks, differences
from typer.testing import CliRunner

import s4q
from s4q.cli import app

ROOT = Path(__file__).parent.parent
PAGES = sorted((ROOT / "docs").glob("*.md"))
WITH_CODE = [page for page in PAGES if "\n```python\n" in page.read_text()]
COMMAND = re.compile(r"^    s4q (.*)$", re.M)
WITH_COMMANDS = [page for page in PAGES if COMMAND.search(page.read_text()) and page.name != "report.md"]
SLOW = {"audit.md", "checkpoints.md"}  # 10^18 episodes with the constants of the paper, and 10^6 that are learned from


def run_blocks(text: str, name: str) -> int:
    """Run the python blocks of a page one after another, as a reader would; how many examples there were.

    A block of plain code must run, and print what is shown below the block, if anything is; in one with prompts every
    line must print what stands below it.
    """
    known: dict[str, object] = {"__name__": "__main__"}
    report: list[str] = []
    examples = 0
    for i, (block, shown) in enumerate(blocks(text)):
        where = f"{name}, block {i + 1}"
        if ">>> " not in block:
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile(block, where, "exec"), known)
            report += differences(shown, printed.getvalue()) if shown else []
            examples += 1
            continue
        runner = doctest.DocTestRunner(optionflags=doctest.REPORT_NDIFF)
        test = doctest.DocTestParser().get_doctest(block, known, where, name, 0)
        examples += runner.run(test, out=report.append, clear_globs=False).attempted
        known = test.globs
    assert not report, "".join(report)
    return examples


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.name)
@pytest.mark.slow
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


def test_shown_output_is_compared() -> None:
    code = "```python\nprint('return', 100.0, 'after 8 steps')\n```\n"
    assert run_blocks(f"{code}\n    return 103 after 8 steps\n", "right") == 1
    for wrong in ("return 203 after 8 steps", "return 103 before 8 steps", "return 103 after 8 steps\n    more"):
        with pytest.raises(AssertionError, match=r"shown 203|other words"):
            run_blocks(f"{code}\n    {wrong}\n", "wrong")
    assert list(blocks("```python\nx = 1\n```\n\n    s4q problems\n")) == [("x = 1\n", "")]  # a command, no output


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=pytest.mark.slow if page.name in SLOW else ()) for page in WITH_COMMANDS],
    ids=lambda page: page.name,
)
def test_shell_commands_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every `s4q ...` line of a page, in order, in one folder. tests/test_cli_reports.py has those of report.md."""
    monkeypatch.chdir(tmp_path)
    for command in COMMAND.findall(page.read_text()):
        done = CliRunner().invoke(app, shlex.split(command))
        assert done.exit_code == 0, (command, done.output)
        assert done.output.strip(), command


def test_every_page_is_in_the_table_of_contents() -> None:
    text = (ROOT / "docs" / "index.md").read_text()
    lists = [toc.split("\n\n")[1] for toc in re.findall(r"```{toctree}\n(.*?)```", text, re.S)]
    listed = [re.sub(r".*<(.*)>", r"\1", line) for toc in lists for line in toc.strip().split("\n")]
    assert sorted(listed) == sorted({*listed})
    pages = {page.stem for page in PAGES} - {"index"}
    notebooks = {f"notebooks/{path.stem}" for path in (ROOT / "docs" / "notebooks").glob("*.ipynb")}
    assert pages | notebooks == {*listed}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_and_commands_exist(page: Path) -> None:
    text = page.read_text()
    for link in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        assert link.startswith("https://") or (page.parent / link).exists(), link
    for module in re.findall(r"python -m (benchmarks\.\w+)", text):
        assert (ROOT / f"{module.replace('.', '/')}.py").exists(), module


def test_every_public_name_is_in_the_reference() -> None:
    text = "\n".join(page.read_text() for page in sorted((ROOT / "docs" / "api").glob("*.md")))
    shown = set(re.findall(r"^\.\. auto(?:class|function|exception):: (\w+)$", text, re.M))
    modules = [s4q, s4q.baselines, s4q.collectors, s4q.features, s4q.problems, s4q.report, s4q.theory]
    public = {name for module in modules for name in module.__all__}
    kinds = (ModuleType, UnionType, dict)
    objects = {name for name in public if not any(isinstance(getattr(one, name, None), kinds) for one in modules)}
    assert shown == objects
    for name in sorted(public - objects):  # modules, unions and tables are named in words
        assert f"s4q.{name}" in text or f".{name}`" in text or f"currentmodule:: s4q.{name}" in text, name
