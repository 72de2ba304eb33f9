"""Workers that play in this process, in a random order, answer twice, answer late, and lose tasks."""

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from s4q.core.messages import Collector
from s4q.running.executors.playing_ahead import AheadSession, Outcome, Payload, Task


class UnreliableWorkers:
    """Every outcome comes at a random time. Some come again later, and some tasks are lost before they are played."""

    def __init__(self, collector: Collector, n_workers: int, seed: int, lose: float = 0.1, repeat: float = 0.3) -> None:
        self.n_workers, self.lose, self.repeat = n_workers, lose, repeat
        self.collector, self.rng = collector, np.random.default_rng(seed)
        self.open: list[Task] = []
        self.old: list[Outcome] = []
        self.forgotten: set[int] = set()
        self.played: list[Task] = []
        self.lost = 0

    def has_room(self) -> bool:
        return len(self.open) < 2 * self.n_workers

    def hand_out(self, task: Task) -> None:
        assert self.has_room()
        self.open.append(task)

    def wait(self) -> list[Outcome]:
        assert self.open or self.old, "nothing to wait for: this would never end"
        outcomes = []
        if self.old and self.rng.random() < self.repeat:
            outcomes.append(self.old[self.rng.integers(len(self.old))])
        if self.open:
            task = self.open.pop(int(self.rng.integers(len(self.open))))
            if task.payload.number in self.forgotten and self.rng.random() < 0.5:
                outcomes.append(Outcome(task.number))
            elif self.rng.random() < self.lose:
                self.lost += 1
                outcomes.append(Outcome(task.number, lost="lost on purpose"))
            else:
                self.played.append(task)
                answer = self.collector.play(task.payload.request, task.shard, task.start)
                self.old.append(Outcome(task.number, answer=pickle.loads(pickle.dumps(answer)), cpu_seconds=1.0))
                outcomes.append(self.old[-1])
        return outcomes

    def forget(self, payload: Payload) -> None:
        self.forgotten.add(payload.number)


class Unreliable:
    """An executor with UnreliableWorkers."""

    def __init__(self, n_workers: int, seed: int, **settings: float) -> None:
        self.n_workers, self.seed, self.settings = n_workers, seed, settings
        self.workers: UnreliableWorkers | None = None
        self.session_before: AheadSession | None = None

    @contextmanager
    def session(self, collector: Any) -> Iterator[AheadSession]:
        self.workers = UnreliableWorkers(collector, self.n_workers, self.seed, **self.settings)
        self.session_before = AheadSession(collector, self.workers, tries=50)
        try:
            yield self.session_before
        finally:
            self.session_before.end()
