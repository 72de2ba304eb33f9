"""Locks on the files of a run, so that two runs never write one checkpoint or one log.

The lock is the operating system's and belongs to the process: it ends when the process ends, however it ends, and a
child process does not inherit it. The loop takes it for as long as a run lasts. Reading never needs a lock.
"""

import errno
import os
import sys
import threading
import warnings
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from s4q.running.archive import CheckpointError

if sys.platform == "win32":
    import msvcrt

    def _lock(handle: int) -> None:
        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _lock(handle: int) -> None:
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


_BUSY = (errno.EACCES, errno.EAGAIN, errno.EDEADLK)
# The system does not refuse a second lock to the process that has the first one, so those are written down here: the
# files that are locked, and by which process (a forked child has a copy of this table, and none of the locks).
_HELD: dict[Path, int] = {}
_TABLE = threading.Lock()


@contextmanager
def locked(paths: Iterable[Path]) -> Iterator[None]:
    """Hold the locks of these files, or raise a CheckpointError that names the process that has one of them.

    The lock of `run.s4q` is held on `run.s4q.lock`, which is removed at the end.

    Args:
        paths: The files. They need not exist.
    """
    with ExitStack() as stack:
        for path in sorted({Path(os.path.realpath(path)) for path in paths}):
            stack.enter_context(_one_lock(path))
        yield


@contextmanager
def _one_lock(path: Path) -> Iterator[None]:
    with _TABLE:
        if _HELD.get(path) == os.getpid():
            raise _refusal(path, "this process")
        _HELD[path] = os.getpid()
    try:
        beside = path.with_name(f"{path.name}.lock")
        handle = _open_locked(path, beside)
        try:
            yield
        finally:
            with suppress(OSError):
                os.unlink(beside)  # before the lock ends, or it could be another one's
            os.close(handle)
    finally:
        with _TABLE:
            _HELD.pop(path, None)


def _open_locked(path: Path, beside: Path) -> int:
    """The open lock file, locked. One that its last owner has just removed is not taken."""
    while True:
        try:
            handle = os.open(beside, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise CheckpointError(f"{path} cannot be locked: {error}; choose another place") from error
        try:
            _lock(handle)
        except OSError as error:
            if error.errno in _BUSY:
                owner = os.read(handle, 20).decode("ascii", "replace").strip()
                os.close(handle)
                raise _refusal(path, f"process {owner or 'unknown'}") from None
            warnings.warn(f"{path} cannot be locked ({error}): make sure that no other run writes it", stacklevel=2)
        if _is_open_file(handle, beside):
            os.truncate(handle, 0)
            os.write(handle, f"{os.getpid()}\n".encode())
            return handle
        os.close(handle)


def _is_open_file(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False


def _refusal(path: Path, owner: str) -> CheckpointError:
    return CheckpointError(
        f"{path} is being written by another run, in {owner}; wait until that run is over, or choose another file"
    )
