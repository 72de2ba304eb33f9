"""Lines about a run on standard output, for `Agent(verbose=...)`.

A listener like a log: it only prints, and a run without it is the same run.
"""

import time
from typing import final

from s4q.running.accounting import Answered, Run

_SECONDS = 1.0  # between two lines of verbose=1


@final
class PrintedPhases:
    """Prints a line for finished phases and one for the end.

    Args:
        verbose: 1 prints at most one line a second, 2 every phase.
    """

    def __init__(self, verbose: int) -> None:
        self._pause = _SECONDS if verbose == 1 else 0.0
        self._last = time.monotonic()

    def on_start(self, run: Run) -> None:
        del run

    def on_request(self, answered: Answered) -> None:
        del answered

    def on_phase(self, run: Run) -> None:
        """Print the phase, unless another line was printed just before."""
        if time.monotonic() - self._last >= self._pause:
            point = run.curve[-2]
            print(_line(f"phase {point.phases:,}", point.episodes, point.steps, point.mean_return, point.mean_length))
            self._last = time.monotonic()

    def on_end(self, run: Run) -> None:
        """Print the whole run."""
        print(_line(f"end, {run.phases:,} phases", run.episodes, run.steps, run.mean_return, run.mean_length))


def _line(what: str, episodes: int, steps: int, mean_return: float | None, mean_length: float | None) -> str:
    """One line; the means are those of the phase, or at the end those of the run."""
    means = "" if mean_return is None else f", mean return {mean_return:.6g}, mean length {mean_length:.6g}"
    return f"{what}: {episodes:,} episodes, {steps:,} steps{means}"
