"""Storms for the tests of executors: processes that are killed one after the other, and killed drivers."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from executor_runs import RIVER, attempts, marked_processes, slow_run
from states import bits

import s4q
from s4q.running.executors import collect

HELPERS = Path(__file__).parent


@contextmanager
def killing(choose: Callable[[int], int | None], every: float, most: int = 25) -> Iterator[list[int]]:
    """SIGKILL to one process after the other, until the block is left or there were `most` of them."""
    killed: list[int] = []
    over = threading.Event()

    def storm() -> None:
        while not over.wait(every) and len(killed) < most:
            pid = choose(len(killed))
            if pid is not None and pid not in killed:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
                killed.append(pid)

    thread = threading.Thread(target=storm)
    thread.start()
    try:
        yield killed
    finally:
        over.set()
        thread.join()


def played(collector: Any, executor: Any, shards: int) -> Any:
    """The answer to a request of so many shards, and what it cost."""
    learner = s4q.S3Q(RIVER, s4q.UniformPolicy(2), epoch_size=64 * shards)
    request = learner.ask(10**9)
    assert request is not None
    with executor.session(collector) as session:
        return collect(session, request), session.cost


def same(a: s4q.Regression, b: s4q.Regression) -> bool:
    return bits(a.moments) == bits(b.moments) and a.n_steps == b.n_steps


def kill_the_driver(tmp_path: Path, kind: str) -> None:
    """Kill a driver in the middle of its run; its processes must end, and the run must go on to the same bits."""
    mark = f"storm-{os.getpid()}-{time.time_ns()}"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HELPERS), *sys.path]), "S4Q_TEST_MARK": mark}
    folder = tmp_path / "killed"
    folder.mkdir()
    command = [sys.executable, str(HELPERS / "executor_runs.py"), str(folder), kind]
    driver = subprocess.Popen(command, env=environment)
    try:
        end = time.monotonic() + 900
        while len(attempts(folder / "notes")) < 30 and time.monotonic() < end:
            assert driver.poll() is None
            time.sleep(0.05)
        assert len(marked_processes(mark)) >= 3  # the driver and its workers
    finally:
        driver.kill()
        driver.wait()
    end = time.monotonic() + 30
    while marked_processes(mark) and time.monotonic() < end:
        time.sleep(0.1)
    assert marked_processes(mark) == []
    begun = s4q.load(folder / "run.s4q")
    assert 0 < begun.progress.episodes < 6_000
    with s4q.Processes(2) as executor:
        assert slow_run(folder, executor, seconds=0.0).resumed
    whole = tmp_path / "whole"
    whole.mkdir()
    slow_run(whole, None, seconds=0.0)
    assert bits(s4q.load(folder / "run.s4q")) == bits(s4q.load(whole / "run.s4q"))
