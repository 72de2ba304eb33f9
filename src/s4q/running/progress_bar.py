"""A progress bar for long work; silent when nobody is looking."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def episode_bar(total: int, wanted: bool) -> Iterator[Callable[[int, str], None]]:
    """Yields a function to call with the number of episodes so far and a word on how it goes.

    Off unless wanted and standard error is a terminal.
    """
    if not (wanted and sys.stderr.isatty()):
        yield lambda _, __: None
        return
    # Imported here, so that `import s4q` stays light.
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(file=sys.stderr)
    says = TextColumn("{task.fields[note]}")
    columns = (TextColumn("episodes"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), says)
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("episodes", total=total, note="")
        yield lambda done, note: bar.update(task, completed=done, note=note)
