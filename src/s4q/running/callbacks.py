"""Callbacks: who is told what a run is doing, and when.

The loop calls them. A callback only listens: it must not change the learner, and it cannot end the run (`stop` can).
"""

from collections.abc import Callable, Iterable
from typing import Protocol, final, runtime_checkable

from s4q.running.accounting import Answered, Run
from s4q.running.progress import Progress as RunProgress


@runtime_checkable
class Listener(Protocol):
    """An object that is told of every event of a run. JsonLines and TensorBoard are listeners."""

    def on_start(self, run: Run) -> None:
        """Called before the first request.

        Args:
            run: The run so far; a resumed run has episodes already.
        """
        ...

    def on_request(self, answered: Answered) -> None:
        """Called when a request has been answered in full.

        Args:
            answered: The request, and the episodes it took.
        """
        ...

    def on_phase(self, run: Run) -> None:
        """Called when a phase (for S3Q an epoch) is finished.

        Args:
            run: The run so far; `run.curve[-2]` is the point of the phase.
        """
        ...

    def on_end(self, run: Run) -> None:
        """Called when the run is over.

        Args:
            run: The whole run.
        """
        ...


@runtime_checkable
class HearsInterruptions(Protocol):
    """A listener that is also told when a run ends by an exception: Ctrl-C, SIGTERM, or an environment that fails."""

    def on_interrupted(self, run: Run, progress: RunProgress) -> None:
        """Called when the learner is whole again, before the exception leaves `run`.

        Args:
            run: The run so far.
            progress: The same for a checkpoint, from which the run can go on.
        """
        ...


Callback = Callable[[Run], None] | Listener


@final
class AfterEachPhase:
    """A listener that calls a function after each phase."""

    def __init__(self, function: Callable[[Run], None]) -> None:
        self._function = function

    def on_start(self, run: Run) -> None:
        del run

    def on_request(self, answered: Answered) -> None:
        del answered

    def on_phase(self, run: Run) -> None:
        """Call the function."""
        self._function(run)

    def on_end(self, run: Run) -> None:
        del run


def listeners(callback: Callback | Iterable[Callback] | None) -> tuple[Listener, ...]:
    """The listeners that a `callback` argument stands for.

    Args:
        callback: A function of a Run, a Listener, several of them, or None.

    >>> len(listeners([print, print])), listeners(None)
    (2, ())
    """
    if callback is None:
        return ()
    if isinstance(callback, Listener):
        return (callback,)
    if callable(callback):
        return (AfterEachPhase(callback),)
    if isinstance(callback, Iterable) and not isinstance(callback, (str, bytes)):
        return tuple(one for each in callback for one in listeners(each))
    lacks = [name for name in ("on_start", "on_request", "on_phase", "on_end") if not hasattr(callback, name)]
    if 0 < len(lacks) < 4:
        raise ValueError(f"a Listener has four methods, and {type(callback).__name__} lacks {', '.join(lacks)}")
    raise ValueError(f"callback must be a function of a Run, a Listener, or a list of them; got {callback!r}")
