"""Ctrl-C, SIGTERM and SIGHUP wait until an update of the learner, or the writing of a file, is whole.

An update that is interrupted would leave half of it in the learner. The loop and Stream put their updates into
`interruption_held_back` and call `deliver` afterwards. By default SIGTERM and SIGHUP end a process at once, before a
checkpoint can be written; within `ended_by_exception` they raise Terminated instead.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Any, final

Handler = Callable[[int, FrameType | None], object]
_TERMINATING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))
_ENDING = (signal.SIGINT, *_TERMINATING)


@final
class Terminated(SystemExit):
    """SIGTERM or SIGHUP came while a run was writing checkpoints. The exit code is that of a shell: 128 + the signal.

    Args:
        number: The number of the signal.
    """

    code: int

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)


@final
class Interruption:
    """A signal that may have come during an update."""

    def __init__(self) -> None:
        self._came: tuple[Handler, int] | None = None

    @property
    def came(self) -> bool:
        """True if a signal came during the update."""
        return self._came is not None

    def keep(self, handler: Handler, number: int) -> None:
        """Remember the handler to call after the update. Of several signals the first counts."""
        self._came = self._came or (handler, number)

    def deliver(self) -> None:
        """Call the handler if a signal came; as a rule it raises KeyboardInterrupt or Terminated."""
        if self._came is not None:
            (handler, number), self._came = self._came, None
            handler(number, None)


@contextmanager
def interruption_held_back() -> Iterator[Interruption]:
    """Hold signals back until the block is left; call `deliver` then. Python sends them to the main thread only.

    >>> with interruption_held_back() as interruption:
    ...     signal.raise_signal(signal.SIGINT)
    ...     done = True
    >>> done, interruption.came
    (True, True)
    """
    held = Interruption()
    with ExitStack() as restored:
        if threading.current_thread() is threading.main_thread():
            for number in _ENDING:
                handler = signal.getsignal(number)
                if callable(handler):
                    signal.signal(number, _keeping(held, handler))
                    restored.callback(signal.signal, number, handler)
        yield held


@contextmanager
def ended_by_exception() -> Iterator[None]:
    """Let SIGTERM and SIGHUP raise Terminated, where they would end the process at once.

    Handlers of the user's own stay, and a signal that is ignored (as SIGHUP is under nohup) stays ignored.

    >>> with ended_by_exception():
    ...     signal.raise_signal(signal.SIGTERM)
    Traceback (most recent call last):
    s4q.running.interruption.Terminated: 143
    """
    with ExitStack() as restored:
        if threading.current_thread() is threading.main_thread():
            for number in _TERMINATING:
                if signal.getsignal(number) is signal.SIG_DFL:
                    signal.signal(number, _terminate)
                    restored.callback(signal.signal, number, signal.SIG_DFL)
        yield


def _keeping(held: Interruption, handler: Any) -> Handler:
    return lambda number, _: held.keep(handler, number)


def _terminate(number: int, frame: FrameType | None) -> None:
    del frame
    raise Terminated(number)
