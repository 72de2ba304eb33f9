"""The other end of Processes: the process that starts workers, and the workers.

The driver starts one process that runs `start_workers`. It imports s4q once and forks a worker whenever the driver asks
for one. A worker can thus be replaced in milliseconds, and it never runs the user's script. Each worker has a socket of
its own to the driver. When the driver is gone, the sockets close, and all of them end at once.
"""

import os
import pickle
import signal
import socket
import threading
import time
import traceback
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from threadpoolctl import threadpool_limits

from s4q.core.messages import Collector
from s4q.running.executors.packing import unpack

if TYPE_CHECKING:  # `import s4q` stays light
    from multiprocessing.connection import Connection


def start_workers(fileno: int) -> None:
    """Fork a worker for each socket that comes along, until the driver is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # only the driver ends at Ctrl-C
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system removes ended workers
    from multiprocessing.connection import Connection

    import scipy.linalg  # noqa: F401  here, so that no worker has to

    control = socket.socket(fileno=fileno)
    while True:
        message, filenos, _, _ = socket.recv_fds(control, 1, 1)
        if not message:
            return
        if os.fork() == 0:
            status = 1
            try:
                control.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # environments may start processes
                work(Connection(filenos[0]))
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        os.close(filenos[0])


def work(connection: "Connection") -> None:
    """Play what the driver asks for, one shard after the other."""
    messages: SimpleQueue[tuple[str, Any]] = SimpleQueue()
    forgotten: set[int] = set()

    def read() -> None:
        """Take messages also while a shard is being played: the driver never waits, and its end is noticed."""
        try:
            while True:
                kind, content = pickle.loads(connection.recv_bytes())
                if kind == "forget":
                    forgotten.add(content)
                messages.put((kind, content))
        except (EOFError, OSError):
            os._exit(0)

    import scipy.linalg  # noqa: F401  it has a BLAS of its own, and only what is loaded can be limited

    _send(connection, ("ready", os.getpid()))
    threading.Thread(target=read, daemon=True).start()
    requests: dict[int, Callable[[], Any]] = {}
    collector: Callable[[], Collector] | None = None
    with threadpool_limits(limits=1):  # bits depend on the number of BLAS threads
        while True:
            kind, content = messages.get()
            if kind == "collector":
                collector = _once(partial(unpack, content))
            elif kind == "request":
                number, packed = content
                requests[number] = _once(partial(pickle.loads, packed))
            elif kind == "forget":
                requests.pop(content, None)
                forgotten.discard(content)
            else:
                task, number, shard, start = content
                if number in forgotten or number not in requests or collector is None:
                    _send(connection, ("skipped", task))
                    continue
                _send(connection, _played(task, collector, requests[number], shard, start))


def _played(task: int, collector: Callable[[], Collector], request: Callable[[], Any], shard: Any, start: Any) -> Any:
    begin = time.process_time()
    try:
        answer = collector().play(request(), shard, start)
    except Exception as error:
        return "failed", (task, portable(error, f"in worker process {os.getpid()}"))
    return "answer", (task, answer, time.process_time() - begin)


def _once(make: Callable[[], Any]) -> Callable[[], Any]:
    """A function that makes its result when it is first called. What cannot be made fails where it is needed."""
    made: list[Any] = []

    def get() -> Any:
        if not made:
            made.append(make())
        return made[0]

    return get


def portable(error: Exception, where: str) -> Exception:
    """The error with its traceback as a note, as an exception that can be pickled."""
    told = f"{where}:\n{''.join(traceback.format_exception(error))}"
    copy: Exception
    try:
        copy = pickle.loads(pickle.dumps(error))
        if type(copy) is not type(error) or str(copy) != str(error):
            raise ValueError("its copy says something else")
    except Exception:
        copy = RuntimeError(f"{type(error).__name__}: {error}")
    copy.add_note(told)
    return copy


def _send(connection: "Connection", message: Any) -> None:
    try:
        connection.send_bytes(pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL))
    except OSError:  # the driver is gone
        os._exit(0)
