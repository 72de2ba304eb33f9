"""Processes: shards played by worker processes of this machine, one BLAS thread each.

Which shards are played and which answers are used is decided in `playing_ahead`. Here are the processes: they are
started when they are first needed, replaced when they die, and end with the driver, however that ends.
"""

import os
import pickle
import socket
import subprocess
import sys
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, final

from s4q.core.messages import Collector
from s4q.core.validation import require_count
from s4q.running.executors.executor import SerialSession, Session
from s4q.running.executors.packing import pack
from s4q.running.executors.playing_ahead import AheadSession, Outcome, Payload, Task

if TYPE_CHECKING:  # `import s4q` stays light
    from multiprocessing.connection import Connection

_AT_HAND = 2  # tasks of a worker: the one it plays and the next, so that it never waits for the driver
_THREADS = ("OPENBLAS_NUM", "OMP_NUM", "MKL_NUM", "BLIS_NUM", "VECLIB_MAXIMUM")
# Freed arrays of up to 32 MB stay with the worker, up to 128 MB in all. glibc would give them back to the system after
# each product, and the system clears every page anew. Other C libraries ignore these.
_MALLOC = {"MALLOC_MMAP_THRESHOLD_": str(2**25), "MALLOC_TRIM_THRESHOLD_": str(2**27)}
_START = "from s4q.running.executors.worker_process import start_workers; start_workers({})"


@final
class Processes:
    """Plays shards in worker processes of this machine. The result has the bits of a run without them.

    Workers are started when they are first needed and then kept for later runs. They end with `close`, at the end of a
    `with` block, or with this program, also if it is killed. A worker that dies is replaced, and its shard is played
    again. Requests that are too short for more than one worker are played in this process.

    Args:
        workers: Number of processes. None (default): one for each core that this process may use.
        make_env: Importable function without arguments that makes the environment on a worker. None (default): the
            environment is copied, or made from its id where it cannot be copied.
        tries: A shard whose worker died so many times stops the run. 10 by default.

    >>> import s4q
    >>> mdp = s4q.problems.river_swim(6, horizon=12)
    >>> def learned(executor):
    ...     learner, collector = s4q.S4Q(mdp, "realisable"), s4q.collectors.EpisodeCollector(mdp, seed=0)
    ...     return s4q.run(learner, collector, episodes=3_000, executor=executor)
    >>> with Processes(2) as executor:
    ...     learned(executor).q.same_as(learned(None).q)
    True
    """

    def __init__(
        self, workers: int | None = None, *, make_env: Callable[[], Any] | None = None, tries: int = 10
    ) -> None:
        self.workers = cores() if workers is None else workers
        require_count("workers", self.workers, "the number of worker processes")
        require_count("tries", tries, "the number of workers that may die over one shard")
        require_factory(make_env)
        if not hasattr(os, "fork"):
            raise ValueError("Processes need a system with fork (Linux, macOS); leave the executor out on this one")
        self._make_env, self._tries = make_env, tries
        self._pool: _Pool | None = None

    def __repr__(self) -> str:
        return f"Processes({self.workers})"

    def __reduce__(self) -> Any:  # processes do not travel; new ones are started where it arrives
        return partial(Processes, self.workers, make_env=self._make_env, tries=self._tries), ()

    def __enter__(self) -> "Processes":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def session(self, collector: Collector) -> Iterator[Session]:
        """Prepare to play the requests of one run.

        Args:
            collector: The collector of the run.
        """
        if not getattr(collector, "worth_workers", True):
            yield SerialSession(collector)
            return
        packed = pack(collector, self._make_env)
        if self._pool is None:
            self._pool = _Pool(self.workers, self._tries)
            weakref.finalize(self, self._pool.close)
        self._pool.begin(packed)
        session = AheadSession(collector, self._pool, self._tries)
        try:
            yield session
        except BaseException:
            # A message may have been read in part, so these workers cannot be talked to any more. New ones start fast.
            self.close()
            raise
        else:
            session.end()
            self._pool.busy = False

    def close(self) -> None:
        """End the workers. A later run starts new ones."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None


def worker_environment() -> dict[str, str]:
    """Environment variables of a worker: it finds the modules that this process finds, and has one BLAS thread.

    What the user has set for the memory of the C library stays as it is.
    """
    path = os.pathsep.join(os.path.abspath(place) for place in sys.path)
    malloc = {} if any(name in os.environ for name in _MALLOC) else _MALLOC
    return {"PYTHONPATH": path, **{f"{name}_THREADS": "1" for name in _THREADS}, **malloc}


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def require_factory(make_env: object) -> None:
    """Refuse what is not a function."""
    if not (make_env is None or callable(make_env)):
        raise ValueError(f"make_env must be a function that makes an environment, or None; got {make_env!r}")


@final
class _Worker:
    """The driver's end of one worker."""

    def __init__(self, connection: "Connection") -> None:
        self.connection = connection
        self.pid: int | None = None  # known when it is ready
        self.tasks: deque[int] = deque()  # handed out and not answered, in the order in which it plays them
        self.payloads: set[int] = set()
        self.collector = 0  # number of the collector that it has

    def send(self, kind: str, content: Any) -> None:
        # A worker that died is noticed by `wait`, which reads the end of its stream.
        with suppress(OSError):
            self.connection.send_bytes(pickle.dumps((kind, content), protocol=pickle.HIGHEST_PROTOCOL))


@final
class _Pool:
    """The processes. Implements `Workers`."""

    def __init__(self, n_workers: int, tries: int) -> None:
        self.n_workers = n_workers
        self.busy = False  # with a run
        self._tries = tries
        self._starter: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._workers: list[_Worker] = []
        self._packed_collector, self._collector = b"", 0
        self._packed: dict[int, bytes] = {}  # requests by number
        self._first = 0  # numbers of payloads and tasks of a session begin after this
        self._highest = 0
        self._lost_before_ready = 0
        self._driver = os.getpid()

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers that are ready."""
        return [worker.pid for worker in self._workers if worker.pid is not None]

    def begin(self, packed_collector: bytes) -> None:
        """A run begins: its collector is sent to each worker with its first task."""
        if self.busy:
            raise ValueError("these Processes are busy with another run; make others for a run beside it")
        self.busy = True
        self._first = self._highest
        if packed_collector != self._packed_collector:
            self._packed_collector = packed_collector
            self._collector += 1

    def has_room(self) -> bool:
        """True if a task may be handed out now."""
        while len(self._workers) < self.n_workers:
            self._workers.append(self._started())
        return any(len(worker.tasks) < _AT_HAND for worker in self._workers)

    def hand_out(self, task: Task) -> None:
        """Send a task to the worker with the fewest."""
        worker = min(self._workers, key=lambda one: len(one.tasks))
        payload = self._first + task.payload.number
        number = self._first + task.number
        self._highest = max(self._highest, payload, number)
        if worker.collector != self._collector:
            worker.send("collector", self._packed_collector)
            worker.collector = self._collector
        if payload not in worker.payloads:
            if payload not in self._packed:
                self._packed[payload] = pickle.dumps(task.payload.request, protocol=pickle.HIGHEST_PROTOCOL)
            worker.send("request", (payload, self._packed[payload]))
            worker.payloads.add(payload)
        worker.send("play", (number, payload, task.shard, task.start))
        worker.tasks.append(number)

    def wait(self) -> list[Outcome]:
        """Outcomes since the last call; waits for one if there are none."""
        from multiprocessing.connection import wait

        outcomes: list[Outcome] = []
        while not outcomes:
            ready = wait([worker.connection for worker in self._workers])
            for worker in [one for one in self._workers if one.connection in ready]:
                try:
                    outcomes += self._heard(worker, *pickle.loads(worker.connection.recv_bytes()))
                except (EOFError, OSError):
                    outcomes += self._lost(worker)
        return outcomes

    def _heard(self, worker: _Worker, kind: str, content: Any) -> list[Outcome]:
        if kind == "ready":
            worker.pid = content
            self._lost_before_ready = 0
            return []
        number = content if kind == "skipped" else content[0]
        with suppress(ValueError):
            worker.tasks.remove(number)
        if number <= self._first:  # of an earlier run
            return []
        task = number - self._first
        if kind == "answer":
            return [Outcome(task, answer=content[1], cpu_seconds=content[2])]
        return [Outcome(task, error=content[1]) if kind == "failed" else Outcome(task)]

    def _lost(self, worker: _Worker) -> list[Outcome]:
        """Replace a worker that died. It had begun the first of its tasks; the others are merely asked for again."""
        worker.connection.close()
        if worker.pid is None:
            self._lost_before_ready += 1
            if self._lost_before_ready >= self._tries:
                raise RuntimeError(
                    f"{self._lost_before_ready} worker processes ended before they were ready; their output says why"
                )
        self._workers[self._workers.index(worker)] = self._started()
        ended = f"worker process {worker.pid} ended (killed, out of memory, or a crash in compiled code)"
        tasks = [number - self._first for number in worker.tasks if number > self._first]
        began = worker.pid is not None and bool(tasks) and worker.tasks[0] - self._first == tasks[0]
        return [Outcome(task, lost=ended if i == 0 and began else None) for i, task in enumerate(tasks)]

    def forget(self, payload: Payload) -> None:
        """No task of this payload is wanted any more."""
        number = self._first + payload.number
        self._packed.pop(number, None)
        for worker in self._workers:
            if number in worker.payloads:
                worker.payloads.discard(number)
                worker.send("forget", number)

    def _started(self) -> _Worker:
        """A new worker, which says that it is ready as soon as it can."""
        from multiprocessing.connection import Connection

        for _ in range(self._tries):
            control = self._control or self._start_starter()
            ours, theirs = socket.socketpair()
            try:
                socket.send_fds(control, [b"w"], [theirs.fileno()])
                return _Worker(Connection(ours.detach()))
            except OSError:  # somebody killed the starter
                ours.close()
                self._end_starter()
            finally:
                theirs.close()
        raise RuntimeError(f"worker processes could not be started in {self._tries} tries; their output says why")

    def _start_starter(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        with theirs:
            self._starter = subprocess.Popen(
                [sys.executable, "-c", _START.format(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env={**os.environ, **worker_environment()},
                stdin=subprocess.DEVNULL,
                process_group=0,  # only the driver ends at Ctrl-C
            )
        self._control = ours
        return ours

    def _end_starter(self) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._starter is not None and os.getpid() == self._driver:
            self._starter.kill()
            self._starter.wait()
            self._starter = None

    def close(self) -> None:
        """Close all streams. Workers end when they see that, in the middle of a shard too."""
        for worker in self._workers:
            worker.connection.close()
        self._workers.clear()
        self._end_starter()
