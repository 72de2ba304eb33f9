"""Ctrl-C waits until an update of the learner is whole.

An update that is interrupted would leave half of it in the learner. The loop and Stream put their updates into
`interruption_held_back` and call `deliver` afterwards.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import final


@final
class Interruption:
    """A Ctrl-C that may have come during an update."""

    def __init__(self) -> None:
        self._handler: Callable[[int, FrameType | None], object] | None = None

    @property
    def came(self) -> bool:
        """True if Ctrl-C was pressed during the update."""
        return self._handler is not None

    def keep(self, handler: Callable[[int, FrameType | None], object]) -> None:
        """Remember the handler to call after the update."""
        self._handler = handler

    def deliver(self) -> None:
        """Call the handler if Ctrl-C came; as a rule it raises KeyboardInterrupt."""
        if self._handler is not None:
            handler, self._handler = self._handler, None
            handler(signal.SIGINT, None)


@contextmanager
def interruption_held_back() -> Iterator[Interruption]:
    """Hold Ctrl-C back until the block is left; call `deliver` then. Python sends Ctrl-C to the main thread only.

    >>> with interruption_held_back() as interruption:
    ...     signal.raise_signal(signal.SIGINT)
    ...     done = True
    >>> done, interruption.came
    (True, True)
    """
    held = Interruption()
    handler = signal.getsignal(signal.SIGINT) if threading.current_thread() is threading.main_thread() else None
    if not callable(handler):
        yield held
        return
    signal.signal(signal.SIGINT, lambda *_: held.keep(handler))
    try:
        yield held
    finally:
        signal.signal(signal.SIGINT, handler)
