"""ActionNumbers: the environment's own action for each number 0..n_actions-1 of s4q.

Collectors and Agent use it. A Discrete action is its first number plus i. The combinations of a MultiDiscrete or
MultiBinary space are numbered in the order of counting, so that one argmax chooses among all of them.
"""

from dataclasses import dataclass
from math import prod
from typing import Any, final

import numpy as np

from s4q.core.blocks import IntArray
from s4q.features.spaces import gymnasium_spaces, n_actions_of, sizes_of


@final
@dataclass(frozen=True, slots=True)
class ActionNumbers:
    """The actions of an environment, by number.

    Args:
        sizes: Number of values of each entry of an action; one for a Discrete space.
        start: First value of each entry.
        shape: Shape of an action; None for a Discrete space.
        dtype: Name of the dtype of an action that is an array.

    >>> from gymnasium.spaces import MultiDiscrete
    >>> ActionNumbers.of(MultiDiscrete([2, 3]))(4).tolist()
    [1, 1]
    """

    sizes: tuple[int, ...]
    start: tuple[int, ...]
    shape: tuple[int, ...] | None
    dtype: str

    @classmethod
    def of(cls, space: Any) -> "ActionNumbers":
        """The actions of a Discrete, MultiDiscrete or MultiBinary space; others are refused."""
        n_actions_of(space)  # refuses
        sizes, start = (tuple(array.tolist()) for array in sizes_of(space))
        shape = None if isinstance(space, gymnasium_spaces().Discrete) else tuple(space.shape)
        return cls(sizes, start, shape, str(space.dtype))

    def __len__(self) -> int:
        return prod(self.sizes)

    def __call__(self, number: int) -> Any:
        """The environment's action of this number."""
        if self.shape is None:
            return self.start[0] + number
        return self.many(np.array([number]))[0]

    def many(self, numbers: IntArray) -> Any:
        """The environment's actions of these numbers, with a first axis for them."""
        if self.shape is None:
            return numbers + self.start[0]
        entries = np.stack(np.unravel_index(numbers, self.sizes), axis=-1) + np.array(self.start)
        return entries.reshape(len(numbers), *self.shape).astype(self.dtype)
