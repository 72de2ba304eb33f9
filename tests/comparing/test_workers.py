"""Runs in worker processes: lost workers, failed runs, the CPU time of a learner, and what is shown meanwhile."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from comparisons import SMALL, plain

import s4q
from s4q.baselines import PSRL
from s4q.comparing.cells import Cell, Outcome, TimedLearner, play


def test_processes_change_nothing() -> None:
    arguments: dict[str, Any] = {"seeds": 2, "episodes": 30}
    names = ["s4q", "q_learning", "psrl", "rlsvi", "replay_q"]  # the last three draw numbers of their own
    alone = s4q.compare([SMALL], names, processes=1, **arguments)
    together = s4q.compare([SMALL], names, processes=2, **arguments)
    assert plain(alone) == plain(together)


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="no terminals here")
def test_the_progress_bar_shows_names_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = StringIO()
    terminal.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stderr", terminal)
    learner = {"learner": "psrl", "name": "x [/y] [red]"}
    s4q.compare([SMALL], [learner], seeds=1, episodes=5, processes=1, progress_bar=True)
    assert "x [/y] [red] on chain" in terminal.getvalue()


def test_a_script_without_a_guard_is_told_of_it(tmp_path: Path) -> None:
    script = tmp_path / "plain.py"
    script.write_text(f"import s4q\ns4q.compare(['{SMALL}'], ['s4q'], seeds=2, episodes=5, processes=2)\n")
    ran = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert ran.stderr.splitlines()[-1].startswith("RuntimeError: worker processes end as they begin; in a script")


KILLER = """
import multiprocessing, os, signal
from pathlib import Path
import gymnasium as gym

class Killer(gym.Env):
    observation_space, action_space = gym.spaces.Discrete(2), gym.spaces.Discrete(2)

    def __init__(self, deaths):
        self.deaths, self.place = deaths, Path(__file__).parent / "deaths"

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if multiprocessing.parent_process() is not None:
            dead = len(self.place.read_text()) if self.place.exists() else 0
            if dead < self.deaths:
                self.place.write_text("x" * (dead + 1))
                os.kill(os.getpid(), signal.SIGKILL)
        return 0, {}

    def step(self, action):
        return 1, float(action), True, False, {}

gym.register(f"{__name__}-v0", Killer)
"""


@pytest.mark.parametrize("deaths", [1, 3])
def test_a_run_whose_worker_is_killed_is_played_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deaths: int
) -> None:
    module = f"killer_{deaths}"
    (tmp_path / f"{module}.py").write_text(KILLER)
    monkeypatch.syspath_prepend(tmp_path)
    text = f"{module}:{module}-v0:horizon=1,reward_range=[0,1],env_kwargs={{deaths={deaths}}}"
    if deaths == 3:
        with (
            pytest.warns(UserWarning, match="a worker process was lost"),
            pytest.raises(RuntimeError, match="3 times in a row a worker process ended before a run did"),
        ):
            s4q.compare([text], ["q_learning"], seeds=2, episodes=3, processes=2)
        return
    with pytest.warns(UserWarning, match="a worker process was lost; the runs that were not finished are played again"):
        found = s4q.compare([text], ["q_learning", "s4q"], seeds=1, episodes=3, processes=2)
    assert len((tmp_path / "deaths").read_text()) == 1
    alone = s4q.compare([text], ["q_learning", "s4q"], seeds=1, episodes=3, processes=1)
    assert plain(found) == plain(alone)


def test_lost_workers_are_counted_from_the_last_finished_run_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five runs and four deaths, but never three in a row."""

    def one_then_dead(cells: list[Cell], processes: int) -> Iterator[tuple[Cell, Outcome]]:
        yield cells[0], play(cells[0])
        if len(cells) > 1:
            raise BrokenProcessPool

    monkeypatch.setattr("s4q.comparing.comparison._played_by_processes", one_then_dead)
    with pytest.warns(UserWarning, match="a worker process was lost"):
        found = s4q.compare([SMALL], ["psrl"], seeds=5, episodes=3, processes=2)
    assert plain(found) == plain(s4q.compare([SMALL], ["psrl"], seeds=5, episodes=3, processes=1))


class Burning:
    """A learner that takes CPU time to ask, or to tell."""

    def __init__(self, **seconds: float) -> None:
        self._seconds = seconds

    def ask(self, max_episodes: int) -> None:
        burn(self._seconds.get("ask", 0.0))

    def tell(self, request: object, answer: object) -> None:
        burn(self._seconds.get("tell", 0.0))


def burn(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def test_the_time_of_a_learner_is_that_of_both_its_calls() -> None:
    for name in ("ask", "tell"):
        timed = TimedLearner(Burning(**{name: 0.02}))  # type: ignore[arg-type]
        timed.ask(1)
        timed.tell(None, None)  # type: ignore[arg-type, type-var]
        assert timed.seconds >= 0.02


def test_a_run_that_fails_in_any_way_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise MemoryError("no room for counts")

    monkeypatch.setattr(PSRL, "_take", full)
    found = s4q.compare([SMALL], ["psrl", "ucbvi"], seeds=1, episodes=3, processes=1)
    assert [row["error"] for row in found] == ["MemoryError: no room for counts", ""]
    assert found.notes(SMALL)[1] == "psrl: 1 of 1 runs failed; seed 0: MemoryError: no room for counts."


def test_without_a_terminal_there_are_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments: Any = {"seeds": 3, "episodes": 5, "processes": 1, "progress_bar": True}
    s4q.compare([SMALL], ["psrl"], **arguments)
    assert capsys.readouterr().err == ""  # it was over at once
    times = iter(range(0, 1000, 12))
    monkeypatch.setattr("s4q.comparing.comparison.monotonic", lambda: float(next(times)))
    s4q.compare([SMALL], ["psrl"], **arguments)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [f"{n} of 3 runs, the last one psrl on {SMALL}" for n in (1, 2, 3)]
    s4q.compare([SMALL], ["psrl"], **{**arguments, "progress_bar": False})
    assert capsys.readouterr().err == ""
