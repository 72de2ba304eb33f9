"""One-hot features: a block of length 1 for every pair (s, a).

It is the default for observations that are whole numbers. Nothing is shared between states, so every function of
(s, a) is linear in these features and they are always exact.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar, final

import numpy as np

from s4q.core.blocks import IntArray, Phi, States
from s4q.core.validation import require_count
from s4q.features.batches import ones, whole_numbers
from s4q.features.spaces import sizes_of

MOST_BLOCKS = 10_000_000


@final
@dataclass(frozen=True, eq=False, init=False, repr=False)
class OneHot:
    """S |A| blocks of length 1, for observations that are whole numbers; a feature map.

    The norm is exactly 1. Every function of (s, a), so every constant, is linear in these features.

    Args:
        space: A Gymnasium Discrete, MultiDiscrete or MultiBinary; or the number S of states; or the number of values
            of each entry of an observation.
        n_actions: Number of actions.
        start: First value, or the first value of each entry. None (default): that of the space, else 0.

    >>> OneHot(3, n_actions=2, start=1)(0, np.array([1, 3])).blocks.tolist()
    [[0, 1], [4, 5]]
    >>> OneHot([2, 3], n_actions=1)(0, np.array([[1, 2]])).blocks.tolist()
    [[5]]
    """

    sizes: tuple[int, ...]
    n_actions: int
    start: tuple[int, ...]
    _sizes: IntArray  # (m,)
    _start: IntArray  # (1, m)
    _strides: IntArray  # (m,): what one step of an entry adds to the block
    _actions: IntArray  # (A,)

    stationary: ClassVar[bool] = True
    custom: ClassVar[bool] = False
    exact: ClassVar[bool] = True  # every function of (s, a) is linear in these features
    block_dim: ClassVar[int] = 1
    validates_output: ClassVar[bool] = True  # norms and blocks are checked before they are returned

    def __init__(self, space: Any, n_actions: int, *, start: int | Sequence[int] | None = None) -> None:
        require_count("n_actions", n_actions, "the number of actions")
        sizes, first = _sizes_and_start(space, start)
        n_blocks = prod(sizes) * int(n_actions)
        if n_blocks > MOST_BLOCKS:
            raise ValueError(
                f"one-hot features of {prod(sizes)} states and {n_actions} actions would need {n_blocks} blocks, more "
                f"than {MOST_BLOCKS}; group states, or share between them with features.Dense"
            )
        strides = [prod(sizes[j + 1 :]) * int(n_actions) for j in range(len(sizes))]
        vars(self).update(  # the class is frozen: no attribute can be set one by one
            sizes=sizes,
            n_actions=int(n_actions),
            start=first,
            _sizes=np.array(sizes, dtype=np.int64),
            _start=np.array([first], dtype=np.int64),
            _strides=np.array(strides, dtype=np.int64),
            _actions=np.arange(n_actions),
        )

    def __repr__(self) -> str:
        start = f", start={self.start}" if any(self.start) else ""
        return f"OneHot(sizes={self.sizes}, n_actions={self.n_actions}{start})"

    @property
    def n_blocks(self) -> int:
        return prod(self.sizes) * self.n_actions

    def __call__(self, h: int, states: States) -> Phi:  # noqa: ARG002 - the same at every level
        """vectors (n, A, 1) of ones and blocks (n, A); states (n,), or (n, m) when an observation has m entries."""
        entries = self._entries(states)
        first = entries[:, 0] * self._strides[0] if len(self.sizes) == 1 else entries @ self._strides
        blocks = first[:, None] + self._actions
        return Phi(ones((*blocks.shape, 1)), blocks)

    def config(self) -> dict[str, Any]:
        """The parameters, in a form that JSON can hold."""
        return {"space": list(self.sizes), "n_actions": self.n_actions, "start": list(self.start)}

    def _entries(self, states: States) -> IntArray:
        """Entries counted from 0, (n, m)."""
        m = len(self.sizes)
        entries = whole_numbers(states, "as a discrete space gives them")
        if entries.ndim != 2:
            entries = entries[:, None] if entries.ndim == 1 else entries.reshape(len(entries), -1)
        if entries.shape[1] != m:
            raise ValueError(
                f"states must be a batch of observations of {m} whole numbers; got shape {np.shape(states)}; "
                "a single observation needs a first axis of length 1"
            )
        entries = entries - self._start
        # Read as unsigned, a negative number is huge: one reduction finds both ends.
        worst = np.maximum.reduce(entries.view(np.uint64), axis=0, initial=0).tolist()
        if any(largest >= size for largest, size in zip(worst, self.sizes, strict=True)):
            bad = (entries < 0) | (entries >= self._sizes)
            i, j = (int(index) for index in np.argwhere(bad)[0])
            low, size = self.start[j], self.sizes[j]
            raise ValueError(
                f"state {i} of the batch has {int(entries[i, j]) + low} in entry {j}, outside {low}..{low + size - 1}; "
                "give OneHot the environment's own observation space"
            )
        return np.asarray(entries)


def _sizes_and_start(space: Any, start: int | Sequence[int] | None) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if isinstance(space, (int, np.integer, list, tuple, np.ndarray)):
        sizes = tuple(np.atleast_1d(np.asarray(space, dtype=object)).ravel().tolist())
        given = tuple(np.atleast_1d(np.asarray(0 if start is None else start, dtype=object)).ravel().tolist())
        first = given * len(sizes) if len(given) == 1 else given
    else:
        if start is not None:
            raise ValueError(f"start is read from the space, {space}; got start={start} too")
        sizes, first = (tuple(array.tolist()) for array in sizes_of(space))
    if not sizes or len(first) != len(sizes):
        raise ValueError(f"start must be one number, or one for each of {len(sizes)} sizes; got {start}")
    for size, value in zip(sizes, first, strict=True):
        require_count("sizes", size, "the number of values of an entry")
        require_count("start", value, "the first value of an entry", at_least=-(2**62))
    return tuple(int(size) for size in sizes), tuple(int(value) for value in first)
