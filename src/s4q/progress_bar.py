"""A progress bar for long work; silent when nobody is looking."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


@contextmanager
def episode_bar(total: int, wanted: bool, label: str = "episodes") -> Iterator[Callable[[int], None]]:
    """Yields a function to call with the number done so far. Off unless wanted and standard error is a terminal."""
    console = Console(file=sys.stderr)
    if not (wanted and console.is_terminal):
        yield lambda _: None
        return
    columns = (TextColumn(label), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(label, total=total)
        yield lambda done: bar.update(task, completed=done)
