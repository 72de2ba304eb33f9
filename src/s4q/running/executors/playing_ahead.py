"""AheadSession: which shards are played ahead, and which of their answers may be used.

Processes and Ray differ in how a shard travels; what is asked for, kept, asked for again and discarded is decided here.
Answers may come late, twice or in any order. Each is looked up by the number of its task, and a number is used once.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from math import inf
from typing import Any, Protocol, cast, final

import numpy as np

from s4q.core.blocks import Array
from s4q.core.messages import A, Asks, Collector, Evaluate, Explore, Regress, Request, Shard
from s4q.running.executors.executor import Cost


@final
@dataclass(frozen=True, eq=False, slots=True)
class Payload:
    """A request as it travels: once to each worker, however many of its shards are played there."""

    number: int
    request: Request


@final
@dataclass(frozen=True, eq=False, slots=True)
class Task:
    """A shard to play. Its number is never used again, not even when the same shard is asked for once more."""

    number: int
    payload: Payload
    shard: Shard
    start: Array | None  # progress of an Explore before the shard, as far as it was known


@final
@dataclass(frozen=True, eq=False, slots=True)
class Outcome:
    """What became of a task: an answer, an error, a worker that died (`lost`), or nothing (it was forgotten)."""

    task: int
    answer: Any = None
    error: BaseException | None = None
    lost: str | None = None  # how the worker died
    cpu_seconds: float = 0.0


class Workers(Protocol):
    """Play tasks elsewhere."""

    @property
    def n_workers(self) -> int: ...
    def has_room(self) -> bool:
        """True if a task may be handed out now."""
        ...

    def hand_out(self, task: Task) -> None:
        """Send a task to a worker."""
        ...

    def wait(self) -> list[Outcome]:
        """Outcomes since the last call; waits for one if there are none."""
        ...

    def forget(self, payload: Payload) -> None:
        """No task of this payload is wanted any more."""
        ...


@final
class _Entry:
    """A wanted shard: its newest task, and what is known of it."""

    __slots__ = ("handed_out", "outcome", "task", "tries")

    def __init__(self, task: Task) -> None:
        self.task = task
        self.tries = 0
        self.handed_out = False
        self.outcome: Outcome | None = None


@final
class AheadSession:
    """Plays the shards of a request on workers, some of them before the learner asks for them.

    A Regress or an Evaluate needs all of its shards, so they are played ahead freely. An Explore ends where it crosses
    its threshold, so a shard of it is played ahead only where its progress so far says that it will be needed. Its
    answer is used if it would be the same with the right progress before it; else the shard is played again.

    Args:
        collector: The collector of the run, for shards that are not worth sending.
        workers: Those who play.
        tries: A shard whose worker died so many times is given up, with an error.
    """

    def __init__(self, collector: Collector, workers: Workers, tries: int) -> None:
        self.cost = Cost()
        self._collector, self._workers, self._tries = collector, workers, tries
        self._payloads: dict[bool, Payload] = {}  # the newest of evaluations (True) and of the learner (False)
        self._entries: dict[tuple[int, Shard], _Entry] = {}
        self._by_number: dict[int, _Entry] = {}  # of tasks without an outcome
        self._abandoned: dict[int, int] = {}  # episodes of tasks that were handed out and are not wanted any more
        self._n_payloads = self._n_tasks = 0

    def play(self, request: Asks[A]) -> A:
        """The answer of the first shard of a request."""
        asked = cast(Request, request)
        start = asked.start() if isinstance(asked, Explore) else None
        shards = list(islice(self._worth_playing(asked), 2 * self._workers.n_workers + 2))
        payload = self._payload(asked)
        first = shards[0]
        if len(shards) == 1 and (payload.number, first) not in self._entries:
            self._end_payload(payload)
            return self._collector.play(request, first, start)  # sending it would help nobody
        for shard in shards:
            self._want(payload, shard, start)
        entry = self._entries[payload.number, first]
        while entry.outcome is None:
            self._hand_out()
            self._take(self._workers.wait())
        self._hand_out()  # workers go on while the learner takes the answer
        del self._entries[payload.number, first]
        if entry.outcome.error is not None:
            raise entry.outcome.error
        answer = entry.outcome.answer
        if isinstance(asked, Explore) and not _as_if_started_at(asked, entry.task, answer):
            self.cost.discarded_episodes += answer.n_episodes
            answer = self._collector.play(asked, first, start)
        return cast(A, answer)

    def end(self) -> None:
        """Nothing more is wanted. What workers still play is counted in full."""
        for payload in list(self._payloads.values()):
            self._end_payload(payload)
        self.cost.discarded_episodes += sum(self._abandoned.values())
        self._abandoned.clear()

    def _worth_playing(self, request: Request) -> Iterator[Shard]:
        """The first shard, and those after it that will be needed as far as one can tell."""
        likely_end = inf if not isinstance(request, Explore) else request.done + episodes_to_crossing(request)
        for i, shard in enumerate(self._collector.shards(request)):
            if i and shard.index + shard.n_episodes > likely_end:
                return
            yield shard

    def _payload(self, request: Request) -> Payload:
        """The payload of a request; that of its first part, if it was asked for in parts."""
        evaluates = isinstance(request, Evaluate)
        known = self._payloads.get(evaluates)
        if known is not None and _same_content(known.request, request):
            return known
        if known is not None:
            self._end_payload(known)
        self._n_payloads += 1
        self._payloads[evaluates] = Payload(self._n_payloads, request)
        return self._payloads[evaluates]

    def _end_payload(self, payload: Payload) -> None:
        self._payloads = {kind: known for kind, known in self._payloads.items() if known is not payload}
        handed_out = False
        for key in [key for key in self._entries if key[0] == payload.number]:
            entry = self._entries.pop(key)
            handed_out = handed_out or entry.handed_out
            if entry.outcome is not None:
                done = entry.outcome.answer
                self.cost.discarded_episodes += 0 if done is None else done.n_episodes
            elif entry.handed_out:
                self._abandoned[entry.task.number] = entry.task.shard.n_episodes
            self._by_number.pop(entry.task.number, None)
        self._workers.forget(payload)

    def _want(self, payload: Payload, shard: Shard, start: Array | None) -> None:
        if (payload.number, shard) not in self._entries:
            entry = _Entry(self._task(payload, shard, start))
            self._entries[payload.number, shard] = entry
            self._by_number[entry.task.number] = entry

    def _task(self, payload: Payload, shard: Shard, start: Array | None) -> Task:
        self._n_tasks += 1
        return Task(self._n_tasks, payload, shard, start)

    def _hand_out(self) -> None:
        """Send what is wanted and was not sent, first shards first, as long as a worker has room."""
        waiting = sorted(
            (entry for entry in self._by_number.values() if not entry.handed_out),
            key=lambda entry: (entry.task.payload.number, entry.task.shard.index),
        )
        for entry in waiting:
            if not self._workers.has_room():
                return
            entry.handed_out = True
            self._workers.hand_out(entry.task)

    def _take(self, outcomes: list[Outcome]) -> None:
        for outcome in outcomes:
            self.cost.lost_tries += outcome.lost is not None
            entry = self._by_number.pop(outcome.task, None)
            if entry is None:  # of a task that is not wanted any more, or a second answer
                if self._abandoned.pop(outcome.task, None) is not None and outcome.answer is not None:
                    self.cost.discarded_episodes += outcome.answer.n_episodes
                    self.cost.cpu_seconds += outcome.cpu_seconds
                continue
            self.cost.cpu_seconds += outcome.cpu_seconds
            entry.tries += outcome.lost is not None
            if outcome.answer is not None or outcome.error is not None:
                entry.outcome = outcome
            elif entry.tries >= self._tries:
                entry.outcome = Outcome(outcome.task, error=_gave_up(entry, outcome))
            else:
                task = entry.task
                entry.task, entry.handed_out = self._task(task.payload, task.shard, task.start), False
                self._by_number[entry.task.number] = entry


def _gave_up(entry: _Entry, outcome: Outcome) -> RuntimeError:
    request, shard = entry.task.payload.request, entry.task.shard
    return RuntimeError(
        f"{entry.tries} workers died while they played episodes {shard.index} to {shard.index + shard.n_episodes - 1} "
        f"of request {request.id} ({type(request).__name__}); the last one: {outcome.lost}. Play without an executor "
        "to see where; a checkpoint holds all that was learned before"
    )


def episodes_to_crossing(request: Explore) -> float:
    """Episodes until the threshold is reached, if progress goes on as it did so far; those played in any case at least.

    Before the first episode nothing else is known.
    """
    sure = max(request.at_least - request.done, 0) if request.at_least > 1 else 0
    if request.done == 0:
        return float(sure)
    progress = request.start()
    room = request.threshold_at(request.done) - progress
    with np.errstate(divide="ignore", invalid="ignore"):
        return max(float(np.where(progress > 0, room * request.done / progress, inf).min()), sure)


def _same_content(a: Request, b: Request) -> bool:
    """True if a shard has the same answer under both requests, the progress before it aside."""
    if type(a) is not type(b) or a.id != b.id:
        return False
    if isinstance(a, Regress) and isinstance(b, Regress):
        same = a.mixture is b.mixture and a.target is b.target
        return same and (a.level, a.pool) == (b.level, b.pool)
    if isinstance(a, Explore) and isinstance(b, Explore):
        same = a.policy is b.policy and (a.threshold, a.pool, a.at_least) == (b.threshold, b.pool, b.at_least)
        # The learner may make a copy of the whitener for each part of a request.
        return same and _kept_before(a) == _kept_before(b) and np.array_equal(a.whitener, b.whitener)
    return isinstance(a, Evaluate) and isinstance(b, Evaluate) and a.policy is b.policy


def _kept_before(request: Explore) -> int:
    """Episodes of lower number return their transitions."""
    return request.done + request.keep if request.keep else 0


def _as_if_started_at(request: Explore, task: Task, answer: Any) -> bool:
    """True if the answer is what the shard gives with the progress of `request` before it.

    Sums do not depend on that progress, only the episode does at which they end. The shard must have been played to its
    end, and must not cross with the right progress.
    """
    start = request.start()
    if np.array_equal(start, cast(Array, task.start)):
        return True
    whole = bool(answer.n_episodes == task.shard.n_episodes)
    first, last = task.shard.index + 1, task.shard.index + task.shard.n_episodes
    return whole and not request.may_cross(start + answer.progress, first, last)
