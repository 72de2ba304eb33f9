"""A listener for the commands: what is done once a run has begun, and when it is interrupted.

A run that is refused has not begun, so what is written here never replaces a file for nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

from s4q.running.accounting import Run
from s4q.running.progress import Progress


@final
@dataclass(frozen=True, slots=True)
class BeginningAndInterruption:
    """Calls a function when a run begins, and another where it ends by an exception.

    Args:
        begun: Called after the first checkpoint, before the first episode.
        interrupted: Called with the run so far after the last checkpoint.
    """

    begun: Callable[[], None]
    interrupted: Callable[[Run], None]

    def on_start(self, run: Run) -> None:
        """The run was not refused."""
        del run
        self.begun()

    def on_request(self, answered: Any) -> None:
        del answered

    def on_phase(self, run: Run) -> None:
        del run

    on_end = on_phase

    def on_interrupted(self, run: Run, progress: Progress) -> None:
        """The run ended by Ctrl-C, by a signal or by an environment that failed."""
        del progress
        self.interrupted(run)
