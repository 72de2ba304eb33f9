"""TransitionCache: the transitions of the first few episodes of exploration, kept for ever within a bound.

Early policies are bad and short-lived: what they saw fits in a small cache, and they need never be replayed. The
learner computes the cached part of each level's sums itself, with the target at hand. Steps that are equal bit for
bit are stored once, with a count.
"""

from dataclasses import dataclass, field, fields, replace
from hashlib import blake2b
from typing import Any, Protocol, final

import numpy as np
from numpy.typing import NDArray

from s4q.core.blocks import Array, IntArray
from s4q.core.codec import AnySize, NotSaved
from s4q.core.factors import Factors
from s4q.core.least_squares import Moments, elliptical_norm_sq, gram_of
from s4q.core.messages import Spec, Transitions
from s4q.core.optimism import QLevel

_DIGEST = 16  # bytes: no two of 10^12 steps share one, but for a chance of 10^-15
_DTYPES: dict[str, type] = {"vectors": np.float64, "rewards": np.float64, "next_vectors": np.float64, "ended": np.bool_}


class Cached(Protocol):
    """Samples that the learner holds itself."""

    def moments(self, level: int, target: QLevel | None) -> Moments:
        """Their sums for a fit of `level` with this target, the QLevel of level + 1; None after the last level."""
        ...


@final
@dataclass(eq=False, repr=False)
class TransitionCache:
    """Holds the steps of at most `max_episodes` episodes: per level, or all in one place with `pool`.

    >>> import s4q
    >>> spec = s4q.problems.chain(3, 2).spec
    >>> cache = TransitionCache(spec, max_episodes=10, pool=False)
    >>> cache.room, cache.n_episodes, cache.nbytes
    (10, 0, 0)
    """

    spec: Spec
    max_episodes: AnySize
    pool: bool
    n_episodes: int = 0
    _tables: list["_StepTable"] = field(init=False)

    def __post_init__(self) -> None:
        self._tables = [_StepTable() for _ in range(1 if self.pool else self.spec.horizon)]

    def check_restored(self) -> None:
        """Steps read from a file must be of this problem, and fit."""
        if self.room < 0 or len(self._tables) != (1 if self.pool else self.spec.horizon):
            raise ValueError(f"a cache of {self.max_episodes} episodes cannot hold {self.n_episodes} in this form")
        if len({id(table) for table in self._tables}) < len(self._tables):
            raise ValueError("each level of a cache must have its own steps")
        for steps in (table.steps for table in self._tables if table.steps is not None):
            if max(steps.blocks.max(initial=0), steps.next_blocks.max(initial=0)) >= self.spec.n_blocks:
                raise ValueError(f"blocks of cached steps must lie in 0..{self.spec.n_blocks - 1}")

    @property
    def room(self) -> int:
        """How many more episodes fit."""
        return self.max_episodes - self.n_episodes

    @property
    def nbytes(self) -> int:
        """Bytes held by steps, the index of equal ones and room for the norms of their features included."""
        return sum(table.nbytes for table in self._tables)

    @property
    def gram_nbytes(self) -> int:
        """Bytes set aside for Gram matrices and their factors, which do not grow with the steps."""
        each = 3 if self.pool and self.spec.block_dim > 1 else 1  # with whitener and eigenvectors
        return each * len(self._tables) * 8 * int(np.prod(self.spec.gram_shape)) if self.n_episodes else 0

    def add(self, kept: Transitions, n_episodes: int) -> None:
        """Keep the steps of n episodes."""
        if n_episodes > self.room:
            raise ValueError(f"the cache has room for {self.room} episodes; got {n_episodes}")
        self.n_episodes += n_episodes
        for h, table in enumerate(self._tables):
            rows = slice(None) if self.pool else kept.levels == h
            # One dtype a column, so that equal steps have equal bytes whoever made them.
            columns: dict[str, NDArray[Any]] = {
                f.name: np.asarray(getattr(kept, f.name), _DTYPES.get(f.name, np.int64)) for f in fields(kept)
            }
            if self.pool:
                columns["levels"] = np.zeros_like(columns["levels"])
            table.add(Transitions(**{name: column[rows] for name, column in columns.items()}))

    def moments(self, level: int, target: QLevel | None) -> Moments:
        """The sums a fit of `level` needs, with the target at hand."""
        table = self._table(level)
        if table.steps is None:
            return Moments.zeros(self.spec.n_blocks, self.spec.block_dim)
        # With pooled steps and one metric for all levels, none of this changes from level to level.
        metric = None if target is None or not self.pool else target.whitener
        norm_sq = None if metric is None else table.norms_sq(metric)
        gram, factors = table.gram(self.spec), table.factors(self.spec) if self.pool else None
        return table.steps.moments(self.spec, level, target, gram, factors, norm_sq)

    def gram(self, level: int) -> Array:
        """sum of phi phi^T behind a fit of `level`, (n_blocks, k, k)."""
        return self._table(level).gram(self.spec)

    def _table(self, level: int) -> "_StepTable":
        return self._tables[0 if self.pool else level]


def bytes_per_step(spec: Spec) -> int:
    """The most that one cached step takes, its digest in the index of equal steps included."""
    floats = spec.block_dim + 1 + spec.n_actions * spec.block_dim
    integers = 1 + 1 + spec.n_actions
    row = 8 * (floats + integers) + 1
    return row + 8 + _DIGEST + 8 + 8 * spec.n_actions  # the row and its count; its digest and place; norms


@final
@dataclass(eq=False, repr=False)
class _StepTable:
    """Steps without repetition, and what is known of them until more come."""

    steps: Transitions | None = None
    _known_gram: NotSaved[Array | None] = None
    _known_factors: NotSaved[Factors | None] = None
    _known_norms: NotSaved[tuple[Array, Array] | None] = None  # in the metric of this whitener
    _digests: NotSaved[NDArray[np.bytes_]] = field(init=False)  # (n,) of the steps, in order
    _rows: NotSaved[IntArray] = field(init=False)  # (n,): where each of them stands

    def __post_init__(self) -> None:
        digests = np.zeros(0, dtype=f"S{_DIGEST}") if self.steps is None else _digests(self.steps)
        self._digests, self._rows = np.unique(digests, return_index=True)
        if len(self._rows) != len(digests):
            raise ValueError("cached steps must not repeat")

    @property
    def nbytes(self) -> int:
        if self.steps is None:
            return 0
        return self._digests.nbytes + self._rows.nbytes + self.steps.nbytes + 8 * self.steps.next_blocks.size

    def gram(self, spec: Spec) -> Array:
        """sum of phi phi^T, (n_blocks, k, k)."""
        if self._known_gram is None:
            steps = self.steps
            self._known_gram = (
                np.zeros(spec.gram_shape)
                if steps is None
                else gram_of(steps.vectors, steps.blocks, spec.n_blocks, steps.weights)
            )
        return self._known_gram

    def factors(self, spec: Spec) -> Factors:
        """Of the Gram matrix."""
        if self._known_factors is None:
            self._known_factors = Factors(self.gram(spec))
        return self._known_factors

    def norms_sq(self, whitener: Array) -> Array | None:
        """Of the next features, (n, n_actions), in the metric of this whitener (n_blocks, k, k)."""
        if self.steps is None:
            return None
        if self._known_norms is None or self._known_norms[0] is not whitener:
            norms = elliptical_norm_sq(self.steps.next_vectors, self.steps.next_blocks, whitener)
            self._known_norms = (whitener, norms)
        return self._known_norms[1]

    def add(self, steps: Transitions) -> None:
        """Count the steps that are here already, append the others."""
        self._known_gram = self._known_factors = self._known_norms = None
        digests, first, inverse = np.unique(_digests(steps), return_index=True, return_inverse=True)
        counts = np.zeros(len(digests), dtype=np.int64)
        np.add.at(counts, inverse, steps.weights)
        places = np.searchsorted(self._digests, digests)
        new = np.ones(len(digests), dtype=np.bool_)
        inside = np.flatnonzero(places < len(self._digests))
        new[inside] = self._digests[places[inside]] != digests[inside]
        if self.steps is not None:
            weights = self.steps.weights.copy()  # arrays read from a file are read only
            weights[self._rows[places[~new]]] += counts[~new]
            self.steps = replace(self.steps, weights=weights)
        if new.any():
            order = np.argsort(first[new])  # appended in the order of their coming
            fresh = replace(steps.rows(first[new][order]), weights=counts[new][order])
            rows = np.empty(len(order), dtype=np.int64)
            rows[order] = len(self._rows) + np.arange(len(order))
            self._digests = np.insert(self._digests, places[new], digests[new])
            self._rows = np.insert(self._rows, places[new], rows)
            self.steps = fresh if self.steps is None else Transitions.concatenate([self.steps, fresh])


def _digests(steps: Transitions) -> NDArray[np.bytes_]:
    """(n,): a digest of the bytes of each step without its weight.

    numpy cuts trailing zeros off a digest. All digests have one length, so no two of them become equal by that.
    """
    n = len(steps.weights)
    rows: NDArray[np.uint8] = np.zeros((0, 0), dtype=np.uint8)
    if n:
        columns = [getattr(steps, f.name).reshape(n, -1) for f in fields(steps) if f.name != "weights"]
        rows = np.concatenate([np.ascontiguousarray(column).view(np.uint8) for column in columns], axis=1)
    return np.array([blake2b(row, digest_size=_DIGEST).digest() for row in rows], dtype=f"S{_DIGEST}")
