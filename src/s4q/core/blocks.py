"""Features in block form: a short vector standing in one of `n_blocks` blocks of a long one.

Dense features have one block, per-action features one block per action, one-hot features one block of length 1 per
pair (s, a). Everything downstream (Gram matrices, fits, bonuses) works block by block and never forms the long vector.
"""

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
States = NDArray[Any]  # whatever the environment calls a state; the first axis is the batch


@final
@dataclass(frozen=True, eq=False, slots=True)
class Phi:
    """The features of a batch of states, for every action: paper's phi_h(s, .).

    Args:
        vectors: The short vectors, (n, n_actions, block_dim).
        blocks: The block each of them stands in, (n, n_actions).

    >>> phi = Phi(np.ones((2, 3, 1)), np.arange(6).reshape(2, 3))
    >>> vectors, blocks = phi.chosen(np.array([2, 0]))
    >>> vectors.shape, blocks.tolist()
    ((2, 1), [2, 3])
    """

    vectors: Array
    blocks: IntArray

    def chosen(self, actions: IntArray) -> tuple[Array, IntArray]:
        """The vectors (n, block_dim) and blocks (n,) of one action per state."""
        rows = np.arange(len(actions))
        return self.vectors[rows, actions], self.blocks[rows, actions]


def dense(vectors: Array, blocks: IntArray, n_blocks: int) -> Array:
    """The same features written out as long vectors (..., n_blocks * block_dim).

    >>> dense(np.array([[5.0, 6.0]]), np.array([1]), n_blocks=2).tolist()
    [[0.0, 0.0, 5.0, 6.0]]
    """
    one_hot = np.eye(n_blocks)[blocks]
    long = one_hot[..., :, None] * vectors[..., None, :]
    return long.reshape(*blocks.shape, n_blocks * vectors.shape[-1])
