"""TransitionCache: the transitions of the first few episodes of exploration, kept for ever within a bound.

Early policies are bad and short-lived: what they saw fits in a small cache, and they need never be replayed. The
learner computes the cached part of each level's sums itself, with the target at hand. Steps that are equal bit for
bit are stored once, with a count.
"""

from dataclasses import fields
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from s4q.blocks import Array
from s4q.least_squares import Moments, gram_of
from s4q.linear_q import LinearQ
from s4q.requests import Spec, Transitions


@final
class TransitionCache:
    """Holds the steps of at most `max_episodes` episodes: per level, or all in one place with `pool`.

    >>> import s4q
    >>> spec = s4q.problems.chain(3, 2).spec
    >>> cache = TransitionCache(spec, max_episodes=10, pool=False)
    >>> cache.room, cache.n_episodes, cache.nbytes
    (10, 0, 0)
    """

    def __init__(self, spec: Spec, max_episodes: int, pool: bool) -> None:
        self.max_episodes = max_episodes
        self.n_episodes = 0
        self._spec = spec
        self._pool = pool
        self._shelves = [_Shelf() for _ in range(1 if pool else spec.horizon)]

    @property
    def room(self) -> int:
        """How many more episodes fit."""
        return self.max_episodes - self.n_episodes

    @property
    def nbytes(self) -> int:
        """Bytes held, the index of equal steps included."""
        return sum(shelf.nbytes for shelf in self._shelves)

    def add(self, kept: Transitions, n_episodes: int) -> None:
        """Keep the steps of n episodes."""
        if n_episodes > self.room:
            raise ValueError(f"the cache has room for {self.room} episodes; got {n_episodes}")
        self.n_episodes += n_episodes
        for h, shelf in enumerate(self._shelves):
            rows = slice(None) if self._pool else kept.levels == h
            steps = Transitions(*(getattr(kept, f.name)[rows] for f in fields(kept)))
            shelf.add(Transitions(np.zeros_like(steps.levels), *_without_level(steps)) if self._pool else steps)

    def moments(self, level: int, value: LinearQ) -> Moments:
        """The sums a fit of `level` needs, with the target at hand."""
        steps = self._shelf(level).steps
        if steps is None:
            return Moments.zeros(self._spec.n_blocks, self._spec.block_dim)
        return steps.moments(self._spec, level, value)

    def gram(self, level: int) -> Array:
        """sum of phi phi^T behind a fit of `level`, (n_blocks, k, k)."""
        steps = self._shelf(level).steps
        if steps is None:
            return np.zeros(self._spec.gram_shape)
        return gram_of(steps.vectors, steps.blocks, self._spec.n_blocks, steps.weights)

    def _shelf(self, level: int) -> "_Shelf":
        return self._shelves[0 if self._pool else level]


def bytes_per_step(spec: Spec) -> int:
    """The most that one cached step takes, its key in the index of equal steps included."""
    floats = spec.block_dim + 1 + spec.n_actions * spec.block_dim
    integers = 1 + 1 + spec.n_actions
    key = 8 * (floats + integers) + 1
    return key + 8 + key + 8  # the row and its count; the key and its number


def _without_level(steps: Transitions) -> list[NDArray[Any]]:
    return [getattr(steps, f.name) for f in fields(steps) if f.name != "levels"]


@final
class _Shelf:
    """Steps without repetition."""

    def __init__(self) -> None:
        self.steps: Transitions | None = None
        self._index: dict[bytes, int] = {}

    @property
    def nbytes(self) -> int:
        keys = sum(len(key) + 8 for key in self._index)
        return keys + (0 if self.steps is None else self.steps.nbytes)

    def add(self, steps: Transitions) -> None:
        """Count the steps that are here already, append the others."""
        names = [f.name for f in fields(steps) if f.name != "weights"]
        flat = [np.ascontiguousarray(getattr(steps, name)) for name in names]
        fresh: list[int] = []
        counts: dict[int, int] = {}
        for i, weight in enumerate(steps.weights.tolist()):
            key = b"".join(column[i].tobytes() for column in flat)
            if key not in self._index:
                self._index[key] = len(self._index)
                fresh.append(i)
            counts[self._index[key]] = counts.get(self._index[key], 0) + weight
        if fresh:
            new = Transitions(*(getattr(steps, f.name)[fresh] for f in fields(steps)))
            new.weights[:] = 0
            self.steps = new if self.steps is None else Transitions.concatenate([self.steps, new])
        if self.steps is not None:
            for row, weight in counts.items():
                self.steps.weights[row] += weight
