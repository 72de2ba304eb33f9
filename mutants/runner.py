"""Runs the tests of an area against a mutant: in a copy of the tree, in a process of its own.

The parent has imported what is large and not ours; a child is a fork of it and imports only the library. What a
mutant may use is bounded by CPU time and memory, so that a busy machine does not look like a killed mutant.
"""

import compileall
import contextlib
import os
import py_compile
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from mutants.areas import ROOT, module

CPU_SECONDS = 120
WALL_SECONDS = 1200
MEMORY = 6 * 2**30
_BROKEN = 99  # exit status of a child that never came to run pytest: no verdict on any mutant


class Task(NamedTuple):
    """A file with another text, and what pytest is to run."""

    key: str
    file: str
    text: str
    tests: list[str]


class Outcome(NamedTuple):
    """What became of a mutant: killed (by a failing test, or by never ending) or survived."""

    key: str
    result: str  # "killed", "timeout", "survived"
    seconds: float
    output: str  # the last lines of pytest


def preload() -> None:
    """Import what every child needs and no mutant touches; plugins of pytest must come later, or it complains."""
    for name in ("numpy", "scipy.linalg", "scipy.stats", "scipy.optimize", "pytest", "gymnasium"):
        __import__(name)


def run_all(tasks: Iterable[Task], jobs: int, report: Callable[[Outcome], None]) -> None:
    """Run the tasks on some processes, each with a copy of the tree; report each outcome as it comes."""
    context = get_context("fork")
    todo, done = context.Queue(), context.Queue()
    waiting = list(tasks)
    for task in waiting:
        todo.put(task)
    workers = [context.Process(target=_work, args=(todo, done), daemon=False) for _ in range(min(jobs, len(waiting)))]
    for worker in workers:
        todo.put(None)
        worker.start()
    try:
        for _ in waiting:
            outcome = done.get()
            if isinstance(outcome, str):
                raise RuntimeError(outcome)
            report(outcome)
    except BaseException:
        for worker in workers:
            worker.terminate()
        raise
    finally:
        for worker in workers:
            worker.join()


class _Told(BaseException):
    """The parent wants no more."""


def _stop(*_: object) -> None:
    raise _Told


def _work(todo: Any, done: Any) -> None:
    signal.signal(signal.SIGTERM, _stop)
    with contextlib.suppress(_Told), tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        tree = Path(folder)
        for name in ("src", "tests"):
            shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("pyproject.toml", "README.md", "CHANGELOG.md"):
            shutil.copy(ROOT / name, tree / name)
        # A pyc counts only for the very text it was made of, so no mutant can be mistaken for another.
        hashed = py_compile.PycInvalidationMode.CHECKED_HASH
        compileall.compile_dir(tree / "src", quiet=2, invalidation_mode=hashed)
        while (task := todo.get()) is not None:
            try:
                done.put(_try(task, tree))
            except Exception as error:
                done.put(f"{task.key}: {error!r}")


def _try(task: Task, tree: Path) -> Outcome:
    path = module(task.file, tree)
    original = path.read_text()
    path.write_text(task.text)
    log = tree / "output.txt"
    began = time.monotonic()
    try:
        pid = os.fork()
        if pid == 0:
            _child(task.tests, tree, log)
        code = _wait(pid, began + WALL_SECONDS)
    except _Told:
        os.killpg(pid, signal.SIGKILL)
        raise
    finally:
        path.write_text(original)
    seconds, output = time.monotonic() - began, log.read_text(errors="replace")[-1500:]
    if code in (-signal.SIGXCPU, -signal.SIGKILL):
        return Outcome(task.key, "timeout", seconds, output)
    if code in (0, 1, 2, 3, 5) or code < 0:  # 2 and 3: it broke the collection, or pytest itself; 5: no doctests
        return Outcome(task.key, "survived" if code in (0, 5) else "killed", seconds, output)
    raise RuntimeError(f"pytest could not run {task.tests} (exit status {code}): {output}")


def _wait(pid: int, until: float) -> int:
    """The exit status of a child, killed with all it has started when its time is up."""
    while True:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > until:
            os.killpg(pid, signal.SIGKILL)
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        time.sleep(0.02)


def _child(tests: list[str], tree: Path, log: Path) -> None:
    code = _BROKEN
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.setsid()
        os.nice(10)
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 5))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        with log.open("w") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        os.chdir(tree)
        sys.dont_write_bytecode = True
        sys.path.insert(0, str(tree / "src"))
        os.environ["PYTHONPATH"] = str(tree / "src")
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
        import pytest

        code = int(pytest.main(["-x", "-q", "-m", "not slow", "-p", "no:cacheprovider", "--tb=line", *tests]))
    except BaseException:
        log.write_text(traceback.format_exc())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
