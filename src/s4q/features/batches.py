"""Array steps that feature maps share. Each row of a batch gets the same bits as the same row alone."""

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
    """Ones that take no memory: a read-only view of a single one."""
    view: Array = np.ndarray(shape, np.float64, _ONE, 0, (0,) * len(shape))
    view.flags.writeable = False
    return view


def for_every_action(vectors: Array, n_actions: int) -> Array:
    """vectors (n, k) seen as (n, A, k): a read-only view, at a quarter of the cost of np.broadcast_to."""
    packed = vectors if vectors.flags.c_contiguous else np.ascontiguousarray(vectors)
    n, k = packed.shape
    view: Array = np.ndarray((n, n_actions, k), np.float64, packed, 0, (8 * k, 0, 8))
    view.flags.writeable = False
    return view


def for_every_state(blocks: IntArray, n: int) -> IntArray:
    """blocks (A,) seen as (n, A): a read-only view."""
    view: IntArray = np.ndarray((n, len(blocks)), np.int64, blocks, 0, (0, blocks.itemsize))
    view.flags.writeable = False
    return view


def require_unit_norms(vectors: Array, cure: str) -> None:
    """vectors (n, ..., k): finite and of norm at most 1, or an error that names the state of the batch."""
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
            f"the norm is {norm:.6g}; {cure if np.isfinite(norm) else 'look for what is not a finite number'}"
        )


def whole_numbers(states: Any, what: str) -> NDArray[np.int64]:
    """States as int64; floats are refused, since a rounded index would be another state."""
    array = np.asarray(states)
    if array.dtype.kind not in "iu" and array.size:
        raise ValueError(f"states must be whole numbers, {what}; got dtype {array.dtype}")
    return array.astype(np.int64, copy=False)
