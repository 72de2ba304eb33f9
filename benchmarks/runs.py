"""What benchmarks of many runs share: two processes, lines on stderr, the choice of rows, and files of numbers.

`practical`, `tabular_baselines` and `control` use it. Each process has one BLAS thread. A run is written to stderr as
a line of JSON when it ends, so nothing is lost when a benchmark is stopped early.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol, TypeVar

from rich.table import Table
from threadpoolctl import threadpool_limits

CaseT = TypeVar("CaseT")
OutcomeT = TypeVar("OutcomeT")


class Named(Protocol):
    """A row of a benchmark."""

    @property
    def name(self) -> str: ...


RowT = TypeVar("RowT", bound=Named)


def arguments(description: str, what: str) -> argparse.ArgumentParser:
    """The options that all these benchmarks have.

    Args:
        description: The first line of the help.
        what: What `--json` writes of each row.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--rows", nargs="+", default=[""], metavar="NAME_PART", help="only rows whose name holds it")
    parser.add_argument("--seeds", type=int, help="runs of each row, in place of its own number")
    parser.add_argument("--episodes", type=int, help="episodes of a run, in place of the row's own number")
    parser.add_argument("--processes", type=int, default=2, help="runs at a time (default 2)")
    parser.add_argument("--json", type=Path, metavar="FILE", help=f"add {what} of each row to this file")
    return parser


def chosen(rows: Iterable[RowT], parts: Sequence[str]) -> list[RowT]:
    """The rows whose name holds one of the parts. A part that no row holds is refused."""
    rows = list(rows)
    for part in parts:
        if not any(part in row.name for row in rows):
            raise SystemExit(f"no row has {part!r} in its name; the rows are: {'; '.join(row.name for row in rows)}")
    return [row for row in rows if any(part in row.name for part in parts)]


def played(
    play: Callable[[CaseT], OutcomeT], groups: Sequence[Sequence[CaseT]], processes: int = 2
) -> Iterator[list[OutcomeT]]:
    """The outcomes of each group of cases, in their order, as soon as a group is complete.

    Args:
        play: Function of a module, so that another process can find it.
        groups: Dataclasses of plain values, for the same reason. Later groups begin while the last runs of one go on.
        processes: Runs at a time. One: they are played in this process.
    """
    if processes == 1:
        for cases in groups:
            outcomes = []
            for case in cases:
                with threadpool_limits(limits=1):
                    outcomes.append(play(case))
                _show(case, outcomes[-1])
            yield outcomes
        return
    pool = ProcessPoolExecutor(processes, initializer=threadpool_limits, initargs=(1,))
    try:
        futures = [[_submitted(pool, play, case) for case in cases] for cases in groups]
        for group in futures:
            yield [future.result() for future in group]
    finally:
        pool.shutdown(cancel_futures=True)


def _submitted(pool: ProcessPoolExecutor, play: Callable[[CaseT], OutcomeT], case: CaseT) -> "Future[OutcomeT]":
    def show(done: "Future[OutcomeT]") -> None:
        if not done.cancelled() and done.exception() is None:
            _show(case, done.result())

    future = pool.submit(play, case)
    future.add_done_callback(show)
    return future


def _show(case: Any, outcome: Any) -> None:
    print(json.dumps({**asdict(case), **asdict(outcome)}), file=sys.stderr, flush=True)


def add_to_file(path: Path | None, name: str, value: Any) -> None:
    """Write a row's numbers to a JSON file; other rows of the file stay."""
    if path is not None:
        before = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps({**before, name: value}, indent=1) + "\n")


def empty_table(title: str, headers: Sequence[str]) -> Table:
    """A table whose first column is text and whose other columns are numbers."""
    result = Table(title=title)
    for header in headers:
        result.add_column(header, justify="right" if result.columns else "left")
    return result


def yes(met: bool) -> str:
    """How a table says that a target is met."""
    return "yes" if met else "NO"
