"""Ctrl-C in the midst of an update would leave half of it in the learner: it waits until the update is whole."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import final


@final
class Interruption:
    """A Ctrl-C that may have come meanwhile."""

    def __init__(self) -> None:
        self._handler: Callable[[int, FrameType | None], object] | None = None

    @property
    def came(self) -> bool:
        return self._handler is not None

    def keep(self, handler: Callable[[int, FrameType | None], object]) -> None:
        """It came: this is who would have been called."""
        self._handler = handler

    def deliver(self) -> None:
        """Do what Ctrl-C does, if it came: as a rule, raise KeyboardInterrupt."""
        if self._handler is not None:
            handler, self._handler = self._handler, None
            handler(signal.SIGINT, None)


@contextmanager
def interruption_held_back() -> Iterator[Interruption]:
    """Ctrl-C is put aside until the block is left; then call `deliver`. Other threads never see one.

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
