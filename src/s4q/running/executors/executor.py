"""What an executor is, and the reference: Serial.

The loop opens a session and asks it for the first shard of each request; the learner then asks for the rest. A session
may play later shards meanwhile. What it returns must have the bits of `Serial`.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol, cast, final

from s4q.core.messages import A, Asks, Collector, Evaluate, Explore, Regress, Request


@final
@dataclass(slots=True)
class Cost:
    """What a session cost beyond the answers it gave."""

    discarded_episodes: int = 0  # played ahead and not used
    cpu_seconds: float = 0.0  # of other processes
    lost_tries: int = 0  # shards that were begun by a worker that died


class Session(Protocol):
    """Plays the requests of one run. It ends with the run."""

    @property
    def cost(self) -> Cost:
        """What this session cost so far."""
        ...

    def play(self, request: Asks[A]) -> A:
        """The answer of the first shard of a request."""
        ...


class Executor(Protocol):
    """Plays shards. The answers have the bits of `Serial`, in whatever order and wherever shards are played."""

    def session(self, collector: Collector) -> AbstractContextManager[Session]:
        """Prepare to play the requests of one run.

        Args:
            collector: The collector of the run.
        """
        ...


@final
class Serial:
    """Plays every shard in this process, one after the other: the reference for all other executors.

    >>> import s4q
    >>> mdp = s4q.problems.chain()
    >>> with Serial().session(s4q.collectors.EpisodeCollector(mdp)) as session:
    ...     collect(session, Evaluate(0, s4q.UniformPolicy(2), 300)).n_episodes
    300
    """

    def __repr__(self) -> str:
        return "Serial()"

    @contextmanager
    def session(self, collector: Collector) -> Iterator[Session]:
        """Prepare to play the requests of one run.

        Args:
            collector: The collector of the run.
        """
        yield SerialSession(collector)


@final
class SerialSession:
    """Plays where it is called."""

    def __init__(self, collector: Collector) -> None:
        self.cost = Cost()
        self._collector = collector

    def play(self, request: Asks[A]) -> A:
        """The answer of the first shard of a request."""
        shard = next(iter(self._collector.shards(cast(Request, request))))
        return self._collector.play(request, shard, request.start() if isinstance(request, Explore) else None)


def collect(session: Session, request: Asks[A]) -> A:
    """The whole answer to a Regress or an Evaluate, with the bits of `collector.collect`.

    Args:
        session: An open session of an executor.
        request: The request. An Explore is refused, because its learner must add its progress between shards.
    """
    if not isinstance(request, Regress | Evaluate):
        raise ValueError(f"request must be a Regress or an Evaluate; got {type(request).__name__}")
    total: Any = None
    rest: Any = request
    while True:
        answer: Any = session.play(rest)
        total = answer if total is None else total + answer
        if answer.n_episodes >= rest.n_episodes:
            return cast(A, total)
        rest = replace(rest, n_episodes=rest.n_episodes - answer.n_episodes, done=rest.done + answer.n_episodes)


def require_executor(executor: object) -> None:
    """Refuse what has no `session`."""
    if not callable(getattr(executor, "session", None)) or isinstance(executor, type):
        raise ValueError(f"executor must be s4q.Serial(), s4q.Processes(n), s4q.Ray() or None; got {executor!r}")
