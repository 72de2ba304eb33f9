"""Callbacks: who is told what a run is doing, and when."""

from collections.abc import Callable, Iterable
from typing import Protocol, final, runtime_checkable

from s4q.running.accounting import Answered, Run


@runtime_checkable
class Listener(Protocol):
    """Is told of everything. To end a run early use `stop`; a listener only listens."""

    def on_start(self, run: Run) -> None:
        """Before the first request; a resumed run has episodes already."""
        ...

    def on_request(self, answered: Answered) -> None:
        """A request has been answered in full."""
        ...

    def on_phase(self, run: Run) -> None:
        """A phase (for S3Q an epoch) is finished; `run.curve[-2]` is its point."""
        ...

    def on_end(self, run: Run) -> None:
        """The run is over."""
        ...


Callback = Callable[[Run], None] | Listener


@final
class AfterEachPhase:
    """A plain function as a listener."""

    def __init__(self, function: Callable[[Run], None]) -> None:
        self._function = function

    def on_start(self, run: Run) -> None:
        del run

    def on_request(self, answered: Answered) -> None:
        del answered

    def on_phase(self, run: Run) -> None:
        """Call it."""
        self._function(run)

    def on_end(self, run: Run) -> None:
        del run


def listeners(callback: Callback | Iterable[Callback] | None) -> tuple[Listener, ...]:
    """From None, one callback or several.

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
