"""compare: play all cells of a plan, in parallel processes or on a Ray cluster, and go on where one was killed.

A worker has one BLAS thread, plays whole runs and ends with its parent. Only this process writes the results file.
"""

import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context, parent_process
from os import PathLike
from threading import Thread
from time import monotonic
from typing import Any, final

from threadpoolctl import threadpool_limits

from s4q.baselines.tabular import NotOneHot
from s4q.comparing.cells import Cell, Outcome, as_row, built, play, problem_of
from s4q.comparing.plan import Plan, plan_of
from s4q.comparing.results import Comparison
from s4q.comparing.results_file import PLAYING_CODE, ResultsFile
from s4q.core.validation import require_count, require_flag
from s4q.running.executors import Ray

_MOST_LOST = 3  # workers, one after the other, before a run is finished
_BETWEEN_LINES = 10.0  # seconds


def compare(
    problems: Iterable[str | Mapping[str, Any]],
    learners: Iterable[str | Mapping[str, Any]],
    *,
    seeds: int = 5,
    episodes: int = 5000,
    first_seed: int = 0,
    processes: int = 2,
    ray: Ray | None = None,
    results: str | PathLike[str] | None = None,
    retry_failed: bool = False,
    progress_bar: bool = False,
) -> Comparison:
    """Play every learner on every problem with every seed.

    A learner that does not suit a problem, such as a tabular one with dense features, is left out there, and
    `Comparison.refused` says why. Problems and learners are names, or names with settings: "deep_sea:size=20", or
    {"name": "DeepSea 20", "problem": "deep_sea", "size": 20}. `s4q.baselines.LEARNERS` holds the learners.

    Args:
        problems: Built-in problems or ids of Gymnasium environments.
        learners: Learners by name.
        seeds: Number of seeds.
        episodes: Episodes of a run.
        first_seed: The first seed; the others follow it. 0 by default. Choose settings on other seeds than those that
            judge them.
        processes: Runs at a time. 1 plays them in this process. More are worker processes, which import the script
            that calls: put the call under `if __name__ == "__main__":` there.
        ray: A Ray cluster that plays the runs, each as one task; `processes` is not used then. The rows are the same,
            CPU times aside. None (default): processes of this machine.
        results: SQLite file of finished runs. Runs that it holds are not played again, and a comparison that was killed
            goes on with the same arguments. Runs that other code of s4q played are played again, with a warning. None
            (default): nothing is written.
        retry_failed: True plays failed runs of `results` again. False by default: they are kept like others.
        progress_bar: True shows on standard error how far it has come: a bar on a terminal, elsewhere a line now and
            then.

    >>> found = compare(["chain:n_states=3,horizon=3"], ["s4q", "psrl"], seeds=1, episodes=50, processes=1)
    >>> [(row["learner"], row["regret"] < 50) for row in found]
    [('s4q', True), ('psrl', True)]
    """
    plan = plan_of(problems, learners, seeds, episodes, first_seed)
    return compare_plan(
        plan, processes=processes, ray=ray, results=results, retry_failed=retry_failed, progress_bar=progress_bar
    )


def compare_plan(
    plan: Plan,
    *,
    processes: int = 2,
    ray: Ray | None = None,
    results: str | PathLike[str] | None = None,
    retry_failed: bool = False,
    progress_bar: bool = False,
) -> Comparison:
    """Play all cells of a plan; see `compare`, which makes the plan of its arguments."""
    require_flag("retry_failed", retry_failed, "are failed runs played again?")
    require_count("processes", processes, "the number of runs at a time")
    if not isinstance(ray, Ray | None):
        raise ValueError(f"ray must be s4q.Ray(), or None for processes of this machine; got {ray!r}")
    refused = _refusals(plan)
    cells = [
        Cell(problem, learner, seed, plan.episodes)
        for problem in plan.problems
        for seed in range(plan.first_seed, plan.first_seed + plan.seeds)
        for learner in plan.learners
        if (problem.name, learner.name) not in refused
    ]
    _warn_of_misfits(plan, refused)
    kept = ResultsFile(results)
    try:
        found = {cell_key(cell): outcome for cell in cells if (outcome := kept.find(cell)) is not None}
        missing = [cell for cell in cells if _is_missing(found.get(cell_key(cell)), retry_failed)]
        _warn_of_other_code(kept, missing)
        with _bar(len(cells), len(cells) - len(missing), progress_bar) as advance:
            for cell, outcome in _played(missing, min(processes, max(len(missing), 1)), ray):
                kept.keep(cell, outcome)
                found[cell_key(cell)] = outcome
                advance(f"{cell.learner.name} on {cell.problem.name}")
    finally:
        kept.close()
    order = sorted(cells, key=lambda cell: (plan.problems.index(cell.problem), plan.learners.index(cell.learner)))
    rows = [as_row(cell, found[cell_key(cell)]) for cell in order]
    return Comparison(rows, refused)


def _is_missing(outcome: Outcome | None, retry_failed: bool) -> bool:
    return outcome is None or (retry_failed and bool(outcome.error))


def _warn_of_other_code(kept: ResultsFile, missing: list[Cell]) -> None:
    """Say that runs are played again because s4q has changed since."""
    others = [code for code in map(kept.of_other_code, missing) if code]
    if others:
        warnings.warn(
            f"{kept.path} holds {len(others)} of these runs as another version of s4q, NumPy, SciPy or Gymnasium "
            f"played them ({others[0]}; this is {PLAYING_CODE}); they are played again, and the old ones stay in it",
            stacklevel=4,
        )


def _warn_of_misfits(plan: Plan, refused: Mapping[tuple[str, str], str]) -> None:
    """Say which problems are left out because no learner suits them."""
    for problem in plan.problems:
        reasons = [f"{learner}: {why}" for (where, learner), why in refused.items() if where == problem.name]
        if len(reasons) == len(plan.learners):
            warnings.warn(f"{problem.name} is not played, because no learner suits it: {reasons[0]}", stacklevel=4)


def cell_key(cell: Cell) -> tuple[str, str, int]:
    """A cell of one plan."""
    return cell.problem.name, cell.learner.name, cell.seed


def _refusals(plan: Plan) -> dict[tuple[str, str], str]:
    """Build every learner on every problem once. An unknown problem or setting is an error, a misfit is not."""
    refused: dict[tuple[str, str], str] = {}
    for problem in plan.problems:
        problem_of(problem)  # what is wrong with it is no learner's fault
        for learner in plan.learners:
            try:
                built(Cell(problem, learner, 0, plan.episodes))
            except NotOneHot as error:
                refused[problem.name, learner.name] = str(error)
            except ValueError as error:
                raise ValueError(f"{learner.name} on {problem.name}: {error}") from None
    if len(refused) == len(plan.problems) * len(plan.learners):
        raise ValueError(f"no learner suits any problem: {next(iter(refused.values()))}")
    return refused


def _played(cells: list[Cell], processes: int, ray: Ray | None) -> Iterator[tuple[Cell, Outcome]]:
    """The outcomes, as they come."""
    if ray is not None:
        for cell, signed in ray.each(_played_elsewhere, cells):
            yield cell, _checked(signed)
        return
    if processes == 1:
        with threadpool_limits(limits=1):
            for cell in cells:
                yield cell, play(cell)
        return
    left, lost = {cell_key(cell): cell for cell in cells}, 0  # lost: workers since the last run was finished
    while left:
        try:
            for cell, outcome in _played_by_processes(list(left.values()), processes):
                del left[cell_key(cell)]
                lost = 0
                yield cell, outcome
        except BrokenProcessPool:
            lost += 1
            if lost == _MOST_LOST:
                raise RuntimeError(
                    f"{lost} times in a row a worker process ended before a run did; where memory ran out, pass fewer "
                    "processes; finished runs are kept if `results` names a file"
                ) from None
            warnings.warn("a worker process was lost; the runs that were not finished are played again", stacklevel=4)


def _played_by_processes(cells: list[Cell], processes: int) -> Iterator[tuple[Cell, Outcome]]:
    pool = ProcessPoolExecutor(processes, mp_context=get_context("spawn"), initializer=_start_worker)
    try:
        _require_start(pool)
        cell_of: dict[Future[tuple[Outcome, str]], Cell] = {
            pool.submit(_played_elsewhere, cell): cell for cell in cells
        }
        waiting = set(cell_of)
        while waiting:
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for one in done:
                yield cell_of[one], _checked(one.result())
    finally:
        pool.shutdown(cancel_futures=True)


def _played_elsewhere(cell: Cell) -> tuple[Outcome, str]:
    """A run in another process, and the code that played it there."""
    return play(cell), PLAYING_CODE


def _checked(signed: tuple[Outcome, str]) -> Outcome:
    """The outcome, if the code of this process played it: two versions must not stand in one table."""
    outcome, code = signed
    if code != PLAYING_CODE:
        raise RuntimeError(
            f"a worker plays with other code ({code}) than this process ({PLAYING_CODE}), because s4q was changed "
            "meanwhile or its machine has other versions; install the same everywhere and start again; finished runs "
            "are kept if `results` names a file"
        )
    return outcome


def _require_start(pool: ProcessPoolExecutor) -> None:
    """A script without a guard runs again in each worker, which ends before it has begun."""
    try:
        pool.submit(os.getpid).result()
    except BrokenProcessPool:
        raise RuntimeError(
            "worker processes end as they begin; in a script, put the call of compare under "
            'if __name__ == "__main__":, because workers import the script, or pass processes=1'
        ) from None


def _start_worker() -> None:
    threadpool_limits(limits=1)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A killed parent cannot stop its workers, so each of them waits for its end."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _ignore(note: str) -> None:
    del note


@final
class _Lines:
    """Lines about finished runs on standard error: one in ten seconds at most, and in a tenth of the time so far."""

    def __init__(self, total: int, done: int) -> None:
        self._total, self._done = total, done
        self._begun = self._last = monotonic()

    def advance(self, note: str) -> None:
        """Count a run; `note` says which it was."""
        self._done += 1
        now = monotonic()
        if now - self._last >= max(_BETWEEN_LINES, 0.1 * (now - self._begun)):
            self._last = now
            print(f"{self._done:,} of {self._total:,} runs, the last one {note}", file=sys.stderr, flush=True)


@contextmanager
def _bar(total: int, done: int, wanted: bool) -> Iterator[Callable[[str], None]]:
    """A progress bar on a terminal; elsewhere a line now and then."""
    if not wanted:
        yield _ignore
        return
    if not sys.stderr.isatty():
        yield _Lines(total, done).advance
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("comparing", total=total, completed=done)
        yield lambda note: progress.update(task, advance=1, description=note)
