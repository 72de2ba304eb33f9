"""Killed at random moments and resumed: the same bits, no torn file. And `s4q train`, which does it from the shell."""

import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import gymnasium as gym
import pytest
from gymnasium.envs.registration import EnvSpec
from signalled import TIMES, signalled
from small_envs import Drift
from states import bits, log_lines
from storm import AGENTS, CUT, EVALUATED, FIXED, REPLAYED, SKETCHED, WARM
from typer.testing import CliRunner

import s4q
from s4q.cli import app
from s4q.collectors import CountCollector
from s4q.running.archive import previous_of

TESTS = Path(__file__).parents[1] / "helpers"
ENVIRONMENT = {
    **os.environ,
    "OPENBLAS_NUM_THREADS": "1",
    "PYTHONPATH": f"{TESTS.parents[1] / 'src'}{os.pathsep}{TESTS}",
    "COLUMNS": "200",
}


def weather(tmp_path: Path, kind: str, kills: int) -> None:
    """A storm, and what must hold after it."""
    command = [sys.executable, str(TESTS / "storm.py"), str(tmp_path), kind, str(kills), "0"]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["deaths"] >= kills
    assert report["torn"] == 0
    assert report["inside"] >= 1  # some died with part of the work done
    whole = s4q.load(tmp_path / "whole.s4q")
    for number in range(1, report["rounds"] + 1):
        resumed = s4q.load(tmp_path / f"round{number}.s4q")
        assert bits(resumed) == bits(whole)
        assert list(log_lines(tmp_path / f"round{number}.jsonl")) == list(log_lines(tmp_path / "whole.jsonl"))


def test_killed_and_resumed_has_the_same_bits(tmp_path: Path) -> None:
    weather(tmp_path, SKETCHED, 3)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [SKETCHED, REPLAYED, FIXED, EVALUATED, WARM])
def test_killed_fifty_times(tmp_path: Path, kind: str) -> None:
    weather(tmp_path, kind, 50)


@pytest.mark.slow
@pytest.mark.parametrize("kind", AGENTS)
def test_an_agent_killed_a_hundred_times(tmp_path: Path, kind: str) -> None:
    weather(tmp_path, kind, 100)
    if kind == CUT:  # the storm met what it is about
        found = s4q.load(tmp_path / "whole.s4q")
        assert (found.learner.n_logged, found.progress.played.truncated > 0) == (6, True)


def test_the_comparison_sees_a_difference(tmp_path: Path) -> None:
    mdp = s4q.problems.chain()
    for seed in (0, 1):
        s4q.run(s4q.S4Q(mdp), CountCollector(mdp, seed=seed), 50, checkpoint=tmp_path / f"{seed}.s4q")
    runs = [s4q.load(tmp_path / f"{seed}.s4q") for seed in (0, 1)]
    assert bits(runs[0].learner) != bits(runs[1].learner)


def s4q_train(*arguments: str) -> list[str]:
    return [sys.executable, "-c", "from s4q.cli import app; app()", "train", *arguments]


def written_twice(path: Path) -> bool:
    """Is the file another one than the previous? For a moment in the middle of a write they are the same."""
    try:
        return not path.samefile(previous_of(path))
    except FileNotFoundError:
        return False


@pytest.mark.parametrize(
    "kill",
    [
        signal.SIGKILL,
        *(pytest.param(one, marks=pytest.mark.slow) for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)),
    ],
)
def test_the_command_killed_and_resumed(tmp_path: Path, kill: signal.Signals) -> None:
    """The real process, killed as soon as there is a checkpoint that is not yet the end; or with Ctrl-C."""
    for times in TIMES:
        episodes, path, log = times * 20_000, tmp_path / f"run{times}.s4q", tmp_path / f"run{times}.jsonl"
        plain = ["low_rank", "--preset", "realisable", "--episodes", str(episodes), "--seed", "3"]
        arguments = [*plain, "--checkpoint", str(path), "--log", str(log)]
        ready = partial(written_twice, path)  # the first one holds no episode
        code, said = signalled(s4q_train(*arguments), ready, kill, ENVIRONMENT)
        if s4q.load(path).progress.episodes < episodes:
            break
    else:
        pytest.fail("no run was killed before its end")
    if kill != signal.SIGKILL:
        assert code == 128 + kill
        assert said.endswith("interrupted: go on with the same line and --resume\n")
    else:
        assert code == -kill
    assert s4q.load(path).progress.episodes > 0
    resumed = CliRunner().invoke(app, ["train", *arguments, "--resume"])
    assert resumed.exit_code == 0, resumed.output
    other = ["--checkpoint", str(tmp_path / "whole.s4q"), "--log", str(tmp_path / "whole.jsonl")]
    whole = CliRunner().invoke(app, ["train", *plain, *other])
    assert whole.exit_code == 0, whole.output
    assert bits(s4q.load(path)) == bits(s4q.load(tmp_path / "whole.s4q"))
    assert list(log_lines(log)) == list(log_lines(tmp_path / "whole.jsonl"))
    assert f"episodes={episodes:.6g}" in whole.output


def test_the_command_refuses_cleanly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.s4q"
    runner = CliRunner(env={"COLUMNS": "1000"})
    ready = runner.invoke(app, ["train", "chain", "--episodes", "50", "--seed", "0", "--checkpoint", str(path)])
    assert ready.exit_code == 0
    again = ["train", "chain", "--episodes", "50", "--checkpoint", str(path)]
    lake = ["train", "FrozenLake-v1", "--horizon", "9", "--episodes", "5", "--checkpoint", str(tmp_path / "lake.s4q")]
    assert runner.invoke(app, [*lake, "--seed", "0"]).exit_code == 0
    logged = tmp_path / "old.jsonl"
    logged.write_text('{"event": "start", "episodes": 0}\n')
    alone = runner.invoke(app, ["train", "FrozenLake-v1", "--horizon", "9", "--episodes", "5", "--evaluate", "0"])
    assert (alone.exit_code, "mean return" in alone.output) == (0, False)
    monkeypatch.setitem(gym.registry, "NoRange-v0", EnvSpec("NoRange-v0", Drift, max_episode_steps=5))
    for arguments, says in (
        (["train", "nothing"], "problem must be one of low_rank, "),
        (["train", "chain", "--resume"], "--resume needs --out or --checkpoint"),
        (["train", "chain", "--preset", "best"], "'best' is not one of"),
        (["train", "chain", "--episodes", "0"], "at least 1"),
        (["train", "chain", "--seed", "-1"], "at least 0"),
        (["train", "chain", "--log", str(tmp_path / "no" / "log")], "there is no folder"),
        (again, "is there already: pass --resume"),
        ([*again, "--minutes", "0", "--resume"], "must be positive"),
        (
            [*again, "--preset", "tight", "--resume"],
            "holds a run with preset practical, not tight; leave the option out",
        ),
        ([*again, "--seed", "4", "--resume"], "made with a collector of seed 0; got one of seed 4"),
        ([*lake, "--resume", "--seed", "4"], "made with a collector of seed 0; got one of seed 4"),
        (["train", "chain", "--value-bound", "3"], "--value-bound are for environments; chain has its own"),
        (["train", "chain", "--evaluate", "-1"], "at least 0"),
        (["train", "chain", "--log", str(logged)], "is there already: pass --resume to go on, or choose another place"),
        (
            [*lake, "--resume", "--value-bound", "0.5"],
            "holds a run with --value-bound 1.0, not 0.5; leave the option out",
        ),
        ([*lake, "--resume", "--memory-bytes", "1000"], "holds a run with --memory-bytes 67108864, not 1000"),
        (
            [*lake[:-1], str(tmp_path / "lakes.s4q"), "--resume"],
            "lakes.s4q to go on from: did you mean lake.s4q? leave",
        ),
        (["train", "low_rank", "--checkpoint", str(path), "--resume"], "holds a run of chain, not of low_rank"),
        (["train", "chain", "--memory-bytes", "3"], "--memory-bytes"),
        (["train", "NoRange-v0", "--seed", "0"], "--reward-range must be given, since NoRange-v0 does not say"),
        (["train", "NoRange-v0", "--reward-range", "1", "0"], "--reward-range must be (lowest, highest) reward"),
        (["train", "no_module:Lake-v0"], "or the id of a Gymnasium environment"),
        (["train", "chain", "--log", str(tmp_path)], "is no plain file"),
        (["train", "chain", "--checkpoint", str(tmp_path)], "is no plain file"),
        (["train", "chain", "--episodes", "9", "--checkpoint", str(path), "--resume"], "50 have been played; got 9"),
    ):
        result = runner.invoke(app, arguments)
        assert result.exit_code == 2, result.output
        assert says in result.output
        assert "Traceback" not in result.output
    path.write_bytes(path.read_bytes()[:-9])
    broken = runner.invoke(app, [*again, "--resume"])
    assert broken.exit_code == 2
    assert "the previous good file is" in broken.output
