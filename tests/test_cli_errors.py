"""How the command says no: exit code 2, one line and a hint, for every subcommand; tracebacks with --debug only."""

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import s4q
from s4q.cli import app

COMMANDS = [str(one.callback.__name__) for one in app.registered_commands if one.callback is not None]
HINT = "hint: add --help to see what the command takes"


def invoke(*words: object) -> Result:
    return CliRunner(env={"COLUMNS": "60"}).invoke(app, [str(one) for one in words])


def refused(*words: object) -> str:
    """The one line that a refused command says."""
    done = invoke(*words)
    assert (done.exit_code, done.stdout) == (2, ""), done.output
    error, hint = done.stderr.splitlines()
    assert hint == HINT
    assert error.startswith("error: ")
    return error


BAD = {
    "demo": [("--episodes", "many"), ("--episodes", "0"), ("--seed", "x"), ("--cartpole", "-1"), ("extra",)],
    "problems": [("nope",), ("chain", "extra")],
    "train": [("nope",), ("chain", "--episodes", "1.5"), ("chain", "--preset", "best"), ("chain", "--seed", "x"), ()],
    "evaluate": [("nowhere",), (), ("nowhere", "--policy", "worst"), ("nowhere", "--episodes", "x")],
    "compare": [(), ("nowhere.toml",), ("-p", "chain", "-l", "nobody"), ("-p", "nope", "-l", "s4q"), ("--seeds", "x")],
    "audit": [("nope",), ("--episodes", "0"), ("--delta", "2"), ("--algorithm", "dqn"), ("--seeds", "0")],
    "report": [("nowhere",), (), ("nowhere", "--out", "/no/where.html")],
    "explain": [("nowhere",), ()],
}  # fmt: skip


def test_every_command_is_tried() -> None:
    assert set(BAD) == set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_bad_input_is_refused_in_one_line_with_a_hint(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "No such option: --nonsense" in refused(command, "--nonsense")
    for words in BAD[command]:
        refused(command, *words)
    assert list(tmp_path.iterdir()) == []  # nothing is left behind


def test_the_line_names_what_is_wrong() -> None:
    assert "missing argument 'run'" in refused("explain").lower()
    assert "'best' is not one of" in refused("train", "chain", "--preset", "best")
    assert "Did you mean 'train'?" in refused("trian")
    assert "--seed" in refused("train", "chain", "--seed", "x")


@pytest.mark.parametrize("where", [0, 1, 3])
def test_debug_shows_a_traceback_wherever_it_stands(where: int) -> None:
    words = ["train", "chain", "--episodes", "0"]
    done = invoke(*words[:where], "--debug", *words[where:])
    assert done.exit_code == 2
    assert done.stderr.startswith("Traceback (most recent call last):")
    assert done.stderr.splitlines()[-1] == HINT
    assert "require_count" in done.stderr
    assert "Traceback" not in invoke(*words).stderr


def test_a_defect_is_no_bad_input(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> None:
        raise RuntimeError("a defect\nof two lines")

    monkeypatch.setattr("s4q.cli.problems_command.facts_of", broken)
    done = invoke("problems")
    assert done.exit_code == 3
    assert done.stderr.splitlines() == [
        "error: RuntimeError: a defect of two lines",
        "hint: add --debug to see where it happened",
    ]
    assert "in broken" in invoke("problems", "--debug").stderr


def test_without_a_command_the_help_is_shown() -> None:
    done = invoke()
    assert done.exit_code == 0
    assert all(command in done.stdout for command in COMMANDS)


def test_quiet_says_nothing_on_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock on which seconds pass between shards; without --quiet there are lines."""
    ticks = iter(range(10**6))
    monkeypatch.setattr("s4q.running.live_progress.time.monotonic", lambda: 2.0 * next(ticks))
    line = ["train", "chain", "--episodes", "60", "--seed", "0"]
    assert "of 60 episodes" in invoke(*line).stderr
    quiet = invoke(*line, "-q")
    assert quiet.stderr == ""
    assert quiet.stdout.startswith("Run(episodes=60")


def completed(*words: str) -> list[str]:
    """What bash is offered for the last word."""
    env = {"_S4Q_COMPLETE": "complete_bash", "COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
    return CliRunner(env=env).invoke(app, [], prog_name="s4q").stdout.split()


def test_a_shell_completes_commands_and_problems() -> None:
    assert completed("s4q", "ex") == ["explain"]
    assert completed("s4q", "train", "deep") == ["deep_sea"]
    assert "--stop-gap" in completed("s4q", "train", "--stop")


def test_the_module_is_the_command() -> None:
    ran = subprocess.run([sys.executable, "-m", "s4q", "--version"], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == s4q.__version__
