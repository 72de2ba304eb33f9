"""Ray: shards played as stateless tasks of a Ray cluster, on this machine or on many.

Which shards are played and which answers are used is decided in `playing_ahead`, also after a worker or a whole node
was lost. A task may run anywhere, so it brings what it needs; workers only remember what they have made of it.
"""

import os
import time
import uuid
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar, final

from threadpoolctl import threadpool_limits

from s4q.core.blocks import Array
from s4q.core.messages import Collector, Shard
from s4q.core.validation import require_count
from s4q.running.executors.executor import SerialSession, Session
from s4q.running.executors.packing import pack, unpack
from s4q.running.executors.playing_ahead import AheadSession, Outcome, Payload, Task
from s4q.running.executors.processes import cores, require_factory, worker_environment
from s4q.running.executors.worker_process import portable

_Argument = TypeVar("_Argument")
_Result = TypeVar("_Result")

_AT_HAND = 2  # tasks per worker: the one it plays and the next
_REMEMBERED = 4  # collectors and requests that a worker process keeps

# What this worker process has made of its last tasks. It saves time and changes no answer: a task that finds nothing
# here makes it anew.
_made: OrderedDict[tuple[str, int], Any] = OrderedDict()


@final
class Ray:
    """Plays shards as tasks of a Ray cluster. The result has the bits of a run without it.

    Needs `pip install "s4q[ray]"`, with the same versions of s4q and numpy on every node. A task whose worker or node
    is lost is played again.

    Args:
        address: Address of a cluster, "auto" for the one this machine belongs to. None (default): the cluster that this
            program is connected to, else a new one on this machine, which ends with this program or with `close`.
        workers: Number of tasks that are played side by side. None (default): the cores of the cluster.
        make_env: Importable function without arguments that makes the environment on a worker. None (default): the
            environment is copied, or made from its id where it cannot be copied.
        tries: A shard whose worker was lost so many times stops the run. 10 by default.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        workers: int | None = None,
        make_env: Callable[[], Any] | None = None,
        tries: int = 10,
    ) -> None:
        if workers is not None:
            require_count("workers", workers, "the number of tasks that are played side by side")
        require_count("tries", tries, "the number of workers that may be lost over one shard")
        require_factory(make_env)
        self._ray = _imported()
        self._address, self._workers, self._make_env, self._tries = address, workers, make_env, tries
        self._started = False

    def __repr__(self) -> str:
        return f"Ray({'' if self._address is None else repr(self._address)})"

    def __reduce__(self) -> Any:
        make = partial(Ray, self._address, workers=self._workers, make_env=self._make_env, tries=self._tries)
        return make, ()

    def __enter__(self) -> "Ray":
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
        self._connect()
        session = AheadSession(collector, _Tasks(self._ray, packed, self._workers), self._tries)
        try:
            yield session
        finally:
            session.end()

    def each(
        self, function: Callable[[_Argument], _Result], arguments: Iterable[_Argument]
    ) -> Iterator[tuple[_Argument, _Result]]:
        """Call a function with each argument. Each call is a task with one BLAS thread; results come as they are done.

        A call whose worker or node is lost is made again. An exception of a call ends all of them.

        Args:
            function: An importable function.
            arguments: What it is called with, one at a time.
        """
        waiting = deque((argument, 1) for argument in arguments)
        if not waiting:
            return
        self._connect()
        ray = self._ray
        most = self._workers or _cores_of(ray)
        call = ray.remote(num_cpus=1, max_retries=0)(_called)
        running: dict[Any, tuple[_Argument, int]] = {}
        try:
            while waiting or running:
                while waiting and len(running) < most:
                    argument, tries = waiting.popleft()
                    running[call.remote(function, argument)] = argument, tries
                [reference], _ = ray.wait(list(running), num_returns=1)
                argument, tries = running.pop(reference)
                try:
                    result = ray.get(reference)
                except ray.exceptions.RayTaskError as failed:
                    raise RuntimeError(f"a Ray task failed: {failed}") from None
                except ray.exceptions.RayError as lost:
                    if tries >= self._tries:
                        raise RuntimeError(
                            f"{tries} workers died over {argument}; the last one: {type(lost).__name__}: {lost}"
                        ) from None
                    waiting.append((argument, tries + 1))
                    continue
                yield argument, result
        finally:
            for reference in running:  # nobody waits for them any more
                ray.cancel(reference, force=True)

    def close(self) -> None:
        """End the cluster if this executor has started it, or leave it."""
        if self._started and self._ray.is_initialized():
            self._ray.shutdown()
        self._started = False

    def _connect(self) -> None:
        if self._ray.is_initialized():
            return
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray reads it at its start, and nothing else
        if self._address is None:
            n = self._workers or cores()
            # The cluster inherits these variables. Ray's own way of passing them starts two processes for each worker.
            with _environment(worker_environment()):
                self._ray.init(num_cpus=n, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        else:
            self._ray.init(address=self._address, log_to_driver=False, logging_level="ERROR")
        self._started = True


@contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    """Environment variables of this process, until the block is left."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _imported() -> Any:
    try:
        import ray
    except ImportError:
        raise ValueError('Ray needs pip install "s4q[ray]"') from None
    return ray


@final
class _Tasks:
    """The tasks of one run. Implements `Workers`."""

    def __init__(self, ray: Any, packed_collector: bytes, workers: int | None) -> None:
        n_cores = _cores_of(ray)
        self.n_workers = workers or n_cores
        # Where cores are left, a task that is submitted is a task that runs.
        self._most = self.n_workers if self.n_workers < n_cores else _AT_HAND * self.n_workers
        self._ray = ray
        self._run = uuid.uuid4().hex  # tells the payloads of this run from those of all others, on any worker
        self._collector = ray.put(packed_collector)
        self._requests: dict[int, Any] = {}
        self._running: dict[Any, int] = {}
        # Lost tasks are asked for again by `playing_ahead`, which counts them.
        self._play = ray.remote(num_cpus=1, max_retries=0)(_play_shard)

    def has_room(self) -> bool:
        """True if a task may be handed out now."""
        return len(self._running) < self._most

    def hand_out(self, task: Task) -> None:
        """Submit a task."""
        number = task.payload.number
        if number not in self._requests:
            self._requests[number] = self._ray.put(task.payload.request)
        # In a list, Ray passes the reference itself: the worker fetches it only if it does not have it yet.
        parts = [self._collector, self._requests[number]]
        self._running[self._play.remote(self._run, number, parts, task.shard, task.start)] = task.number

    def wait(self) -> list[Outcome]:
        """Outcomes since the last call; waits for one if there are none."""
        done, _ = self._ray.wait(list(self._running), num_returns=1)
        return [self._outcome(reference, self._running.pop(reference)) for reference in done]

    def _outcome(self, reference: Any, number: int) -> Outcome:
        try:
            answer, error, cpu_seconds = self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as failed:  # it failed outside of `play`: a module is missing there
            return Outcome(number, error=RuntimeError(f"a Ray task failed: {failed}"))
        except self._ray.exceptions.RayError as lost:
            return Outcome(number, lost=f"{type(lost).__name__}: {lost}")
        return Outcome(number, answer=answer, error=error, cpu_seconds=cpu_seconds)

    def forget(self, payload: Payload) -> None:
        """No task of this payload is wanted any more. Those under way are played to their end, and nobody waits."""
        self._requests.pop(payload.number, None)


def _cores_of(ray: Any) -> int:
    """Cores of the cluster."""
    return max(1, int(ray.cluster_resources().get("CPU", 1)))


def _called(function: Callable[[Any], Any], argument: Any) -> Any:
    """The task of `Ray.each`."""
    import scipy.linalg  # noqa: F401  it has a BLAS of its own, and only what is loaded can be limited

    with threadpool_limits(limits=1):  # bits depend on the number of BLAS threads
        return function(argument)


def _play_shard(
    run: str, number: int, parts: list[Any], shard: Shard, start: Array | None
) -> tuple[Any, Exception | None, float]:
    """The task: the answer, or the error, and CPU seconds."""
    import ray
    import scipy.linalg  # noqa: F401  it has a BLAS of its own, and only what is loaded can be limited

    begin = time.process_time()
    with threadpool_limits(limits=1):  # bits depend on the number of BLAS threads
        try:
            collector = _remembered((run, 0), lambda: unpack(ray.get(parts[0])))
            request = _remembered((run, number), lambda: ray.get(parts[1]))
            return collector.play(request, shard, start), None, time.process_time() - begin
        except Exception as error:
            return None, portable(error, f"in Ray worker process {os.getpid()}"), time.process_time() - begin


def _remembered(key: tuple[str, int], make: Callable[[], Any]) -> Any:
    if key not in _made:
        _made[key] = make()
    _made.move_to_end(key)
    while len(_made) > _REMEMBERED:
        _made.popitem(last=False)
    return _made[key]
