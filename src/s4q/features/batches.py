"""Array steps and checks that feature maps share.

Each row of a batch gets the same bits as the same row alone, because collectors compare runs bit by bit.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from s4q.core.blocks import Array, IntArray

_ONE = np.ones(1)
_FEW = 16  # numbers that are cheaper to compare one by one
UNIT = 1.0 + 1e-9  # norm 1, and rounding


def products(rows: Array, weights: Array) -> Array:
    """rows (n, d) times weights (d, k), one vector-matrix product per row.

    A product of matrices would round a row differently in batches of other sizes.

    >>> products(np.array([[1.0, 2.0]]), np.array([[3.0], [4.0]])).tolist()
    [[11.0]]
    """
    if len(rows) == 1:  # the same product at a third of the cost of a stack of one
        return np.asarray(rows[0].dot(weights)[None])
    return np.asarray(np.matmul(rows[:, None], weights)[:, 0])


def ones(shape: tuple[int, ...]) -> Array:
    """An array of ones that takes no memory: a read-only view of a single number."""
    view: Array = np.ndarray(shape, np.float64, _ONE, 0, (0,) * len(shape))
    view.flags.writeable = False
    return view


def for_every_action(vectors: Array, n_actions: int) -> Array:
    """vectors (n, k) as a read-only view (n, A, k), at a quarter of the cost of np.broadcast_to."""
    packed = vectors if vectors.flags.c_contiguous else np.ascontiguousarray(vectors)
    n, k = packed.shape
    view: Array = np.ndarray((n, n_actions, k), np.float64, packed, 0, (8 * k, 0, 8))
    view.flags.writeable = False
    return view


def for_every_state(blocks: IntArray, n: int) -> IntArray:
    """blocks (A,) as a read-only view (n, A)."""
    view: IntArray = np.ndarray((n, len(blocks)), np.int64, blocks, 0, (0, blocks.itemsize))
    view.flags.writeable = False
    return view


def require_unit_norms(vectors: Array, cure: str) -> None:
    """Refuse vectors (n, ..., k) that are not finite or have norm above 1; the error names the state of the batch."""
    norms_sq = np.vecdot(vectors, vectors)
    if len(vectors) == 1 and norms_sq.size <= _FEW:  # plain floats: a reduction of a few numbers costs more
        inside = all(norm_sq <= UNIT * UNIT for norm_sq in norms_sq.ravel().tolist())
    else:
        inside = np.maximum.reduce(norms_sq, axis=None, initial=0.0) <= UNIT * UNIT
    if not inside:  # NaN fails too
        bad = np.argwhere(~(norms_sq <= UNIT * UNIT))[0].tolist()
        norm = float(np.sqrt(norms_sq[tuple(bad)]))
        action = f", action {bad[1]}" if len(bad) > 1 else ""
        raise ValueError(
            f"features must be finite and have norm at most 1, but at state {bad[0]} of the batch{action} "
            f"the norm is {norm:.6g}; {cure if np.isfinite(norm) else 'remove NaN and infinity'}"
        )


def require_blocks(blocks: NDArray[Any], n_blocks: int) -> None:
    """Refuse blocks that are not whole numbers in 0..n_blocks-1."""
    if blocks.dtype.kind not in "iu" and blocks.size:
        raise ValueError(f"blocks must be whole numbers; got dtype {blocks.dtype}")
    if blocks.size and not 0 <= blocks.min() <= blocks.max() < n_blocks:
        raise ValueError(f"blocks must lie in 0..{n_blocks - 1}; got {blocks.min()}..{blocks.max()}")


def whole_numbers(states: Any, what: str) -> NDArray[np.int64]:
    """States as int64. Floats are refused, because a rounded number would be another state."""
    array = np.asarray(states)
    if array.dtype.kind not in "iu" and array.size:
        raise ValueError(f"states must be whole numbers, {what}; got dtype {array.dtype}")
    return array.astype(np.int64, copy=False)
