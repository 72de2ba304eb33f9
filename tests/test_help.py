"""`--help` of every command: what it says is written down in tests/help, and its examples run.

After a change that is meant, write the files again: S4Q_WRITE_HELP=1 pytest tests/test_help.py
"""

import os
import re
import shlex
from importlib.metadata import version
from pathlib import Path

import pytest
from typer import rich_utils
from typer.testing import CliRunner

from s4q.cli import app

FOLDER = Path(__file__).parent / "help"
COMMANDS = [str(one.callback.__name__) for one in app.registered_commands if one.callback is not None]
WIDTH = 100
QUICK = ("train", "evaluate", "explain", "report", "problems")  # examples that take little time, in their order


def help_of(command: str, width: int = WIDTH) -> str:
    """What a user sees, without colours, on a terminal of this width."""
    env = {"COLUMNS": str(width), "TERMINAL_WIDTH": str(width), "NO_COLOR": "1", "TERM": "dumb"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rich_utils, "MAX_WIDTH", width)  # Typer reads TERMINAL_WIDTH only once
        done = CliRunner(env=env).invoke(app, [command, "--help"] if command else ["--help"], prog_name="s4q")
    assert done.exit_code == 0, done.output
    return "\n".join(line.rstrip() for line in done.stdout.splitlines()).strip() + "\n"


def words(text: str) -> list[str]:
    """The words, without the boxes around them."""
    return re.sub(r"[│╭╮╰╯─]", " ", text).split()


def options(text: str) -> list[str]:
    """The options that a help lists, one a line."""
    return re.findall(r"^[│ ]*(--[a-z-]+)", text, re.M)


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_the_help_is_what_is_written_down(command: str) -> None:
    place, shown = FOLDER / f"{command or 's4q'}.txt", help_of(command)
    if os.environ.get("S4Q_WRITE_HELP"):
        FOLDER.mkdir(exist_ok=True)
        place.write_text(shown, encoding="utf-8")
        (FOLDER / "typer_version").write_text(f"{version('typer')}\n")
    known = place.read_text(encoding="utf-8")
    assert options(shown) == options(known)
    assert all(len(line) <= WIDTH for line in shown.splitlines())
    assert "\x1b" not in shown
    # Versions of Typer differ in how they show the kind of an option, so words are compared for one version only.
    if (FOLDER / "typer_version").read_text().strip() == version("typer"):
        assert words(shown) == words(known)


def test_every_command_is_written_down() -> None:
    assert {path.stem for path in FOLDER.glob("*.txt")} == {"s4q", *COMMANDS}


def examples(command: str) -> list[list[str]]:
    """The examples of a help, as words."""
    lines = [line.strip() for line in help_of(command, 300).splitlines()]
    return [shlex.split(line)[1:] for line in lines if line.startswith("s4q ")]


def test_every_command_has_an_example() -> None:
    assert len(COMMANDS) == 8
    for command in COMMANDS:
        found = examples(command)
        assert found
        assert {one[0] for one in found} == {command}


def run_examples(commands: tuple[str, ...]) -> None:
    for command in commands:
        for one in examples(command):
            done = CliRunner(env={"COLUMNS": "150"}).invoke(app, one)
            assert done.exit_code == 0, f"s4q {shlex.join(one)}: {done.output}"
            assert done.stdout.strip()


@pytest.mark.slow
def test_examples_run_in_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of `train` make the runs that the others read."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("s4q.report.page.inline_svg", lambda *_: "<svg></svg>")  # it takes most of the time
    run_examples(QUICK)
    assert {path.name for path in tmp_path.iterdir()} == {"river", "again", "lake", "lake.html", "large"}


@pytest.mark.slow
@pytest.mark.parametrize("command", sorted(set(COMMANDS) - set(QUICK)))
def test_longer_examples_run(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_examples((command,))
