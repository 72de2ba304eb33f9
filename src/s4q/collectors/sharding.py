"""Shards: how a request is cut into pieces, and the skeleton of everything that plays them.

Every collector is a `ShardedCollector`: it says how a request is cut and how a shard of each kind is answered. The
skeleton checks the request, calls the right one, and adds the answers in shard order. It knows no algorithm.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, cast

import numpy as np

from s4q.core.blocks import Array
from s4q.core.messages import (
    A,
    Asks,
    Evaluate,
    Explore,
    Regress,
    Regression,
    Request,
    Returns,
    Shard,
    Spec,
    Visits,
)
from s4q.core.validation import require_shape

_EVALUATION = 2**32 - 1  # the first word of the address of every Evaluate; no learner asks that often


class ShardedCollector(ABC):
    """Plays the shards of a request and adds their answers."""

    spec: Spec
    seed: int
    worth_workers = True  # False where a shard costs less than sending it to another process

    @abstractmethod
    def shards(self, request: Request) -> Iterator[Shard]:
        """The pieces of a request, in order: a pure function of the request."""

    @abstractmethod
    def _regress(self, request: Regress, shard: Shard) -> Regression: ...

    @abstractmethod
    def _explore(self, request: Explore, shard: Shard, start: Array) -> Visits: ...

    @abstractmethod
    def _evaluate(self, request: Evaluate, shard: Shard) -> Returns: ...

    def play(self, request: Asks[A], shard: Shard, start: Array | None = None) -> A:
        """The answer of one shard.

        Args:
            request: A Regress, an Explore or an Evaluate.
            shard: One of its shards.
            start: Progress of an Explore before this shard; None (default) means that of the request.
        """
        answer: Regression | Visits | Returns
        self._check(request)
        if isinstance(request, Regress):
            answer = self._regress(request, shard)
        elif isinstance(request, Explore):
            answer = self._explore(request, shard, request.start() if start is None else start)
        else:
            answer = self._evaluate(cast(Evaluate, request), shard)
        return cast(A, answer)

    def collect(self, request: Asks[A]) -> A:
        """The whole answer: shards played one after the other, added in their order.

        Args:
            request: A Regress, an Explore or an Evaluate. An Explore ends with the first episode that crosses.
        """
        self._check(request)
        total: Any = None
        progress = request.start() if isinstance(request, Explore) else None
        for shard in self.shards(cast(Request, request)):
            answer: Any = self.play(request, shard, progress)
            total = answer if total is None else total + answer
            if isinstance(request, Explore):
                progress = progress + answer.progress
                if request.crossed(progress, shard.index + answer.n_episodes):
                    break
        return cast(A, total)

    def _check(self, request: object) -> None:
        """A request must be of one of three kinds, and fit the problem: levels, targets, shapes."""
        last = self.spec.horizon - 1
        if isinstance(request, Explore):
            want = (1 if request.pool else self.spec.horizon, *self.spec.gram_shape)
            require_shape("whitener", request.whitener, want, "(H, n_blocks, k, k), or (1, n_blocks, k, k) with pool,")
        if not isinstance(request, Regress):
            if not isinstance(request, Explore | Evaluate):
                got = type(request).__name__
                raise ValueError(f"request must be a Regress, an Explore or an Evaluate; got {got}")
            return
        if request.level > last:
            raise ValueError(f"level must lie in 0..{last}; got {request.level}")
        if (request.target is None) != (request.level == last):
            wanted = "None at the last level" if request.level == last else "a QLevel before the last level"
            raise ValueError(f"target must be {wanted}; level is {request.level} of 0..{last}")


def fixed_shards(request: Request, size: int) -> Iterator[Shard]:
    """Pieces of `size` episodes, the last one shorter.

    A shard is numbered by its first episode within the request's id, so a request answered in parts never uses a number
    twice, and parts that end between shards give the same bits as the whole.
    """
    end = request.done + request.n_episodes
    for first in range(request.done, end, size):
        yield Shard(first, min(size, end - first))


def address(request: Request) -> int:
    """The first part of the spawn key of a request's random draws.

    SeedSequence reads a number as words of 32 bits. Those of an Evaluate are always four: its mark, two words of the
    id, 1. So it shares no draws with any other request, whatever their ids and shards.
    """
    return 2**96 + (request.id << 32) + _EVALUATION if isinstance(request, Evaluate) else request.id


def generator(seed: int, request: Request, shard: Shard) -> np.random.Generator:
    """The generator of one shard: addressed, never carried from one shard to the next."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(address(request), shard.index)))
