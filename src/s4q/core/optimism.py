"""phi . theta + bonus at one level: the one place of this formula, on any array module.

The module is an argument (`xp`: numpy, or another that follows the array API), so that the same lines serve a learner
on the CPU and a batch of episodes on another device.
"""

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from scipy.linalg.blas import dtrmm

TIE = 1e-11  # of the best value: closer than this is equal
_WIDE, _MANY = 64, 512  # features, and vectors, from which a triangular product is faster than a full one


@final
@dataclass(frozen=True, eq=False, slots=True)
class QLevel:
    """The parameters of one level of a LinearQ, as arrays of one module. No whitener: no bonus; no second: no spread.

    scale holds noise, ceiling, ridge and kappa of the spread: see `LevelBonus`.
    """

    theta: Any  # (n_blocks, k)
    whitener: Any | None = None  # (n_blocks, k, k): W Sigma W^T = I
    width: Any | None = None  # (n_blocks,)
    second: Any | None = None  # (n_blocks, k)
    scale: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)
    lower: bool = False  # is the whitener known to be one that `is_lower`?


def optimistic(xp: Any, level: QLevel, vectors: Any, blocks: Any, norm_sq: Any | None = None) -> Any:
    """phi . theta + bonus, unclipped, (n, n_actions). vectors (n, n_actions, k), blocks (n, n_actions).

    norm_sq: the squared norms, where they are known already.

    >>> import numpy as np
    >>> level = QLevel(np.array([[1.0, 1.0]]), np.eye(2)[None], np.array([2.0]))
    >>> optimistic(np, level, np.array([[[3.0, 4.0]]]), np.array([[0]])).tolist()
    [[17.0]]
    """
    parameters = [level.theta] if level.second is None else [level.theta, level.second]
    linear, *squares = _dots(xp, parameters, vectors, blocks)
    if level.whitener is None:
        return linear
    if norm_sq is None:
        norm_sq = norms_sq(xp, level.whitener, vectors, blocks, level.lower)
    width = _entries(xp, level.width, blocks)
    if squares:
        width = width + spread_width(xp, level.scale, linear, squares[0], norm_sq)
    return linear + width * xp.sqrt(norm_sq)  # [eqn:Bonus]


def best_actions(xp: Any, values: Any) -> tuple[Any, Any]:
    """The best action of each row and its value, (n,) each. values (n, n_actions). Ties go to the lowest action.

    Values that differ by no more than rounding may change are a tie. Otherwise the last bit of a sum would decide, and
    the same problem with scaled features, or in batches of another size, would be played in another way.

    >>> actions, best = best_actions(np, np.array([[1.0, 3.0, 3.0 + 1e-15], [-2.0, -3.0, -1.0]]))
    >>> actions.tolist(), best.tolist()
    ([1, 2], [3.000000000000001, -1.0])
    """
    n, n_actions = values.shape
    rows = xp.arange(n) * n_actions + xp.argmax(values, axis=1)
    best = xp.take(xp.reshape(values, (-1,)), rows, axis=0)  # six times faster than max over a short axis
    near = values >= (best - TIE * xp.abs(best))[:, None]
    return xp.argmax(xp.astype(near, xp.int8), axis=1), best


def spread_width(xp: Any, scale: tuple[float, float, float, float], linear: Any, squares: Any, norm_sq: Any) -> Any:
    """kappa sigma(phi): the part of the width that comes from the spread of the targets seen near phi."""
    noise, ceiling, ridge, kappa = scale
    samples = xp.clip(1.0 / xp.clip(norm_sq, 1e-300, None) - ridge, 0.0, None)  # how often this direction was seen
    variance = xp.clip(squares - linear**2, 0.0, ceiling)
    sigma_sq = (samples * variance + noise) / (xp.clip(samples - 1.0, 0.0, None) + 1.0)
    return kappa * xp.sqrt(sigma_sq)


def norms_sq(xp: Any, whitener: Any, vectors: Any, blocks: Any, lower: bool = False) -> Any:
    """Squared norm of phi in the metric of Sigma^-1, (n, n_actions). whitener (n_blocks, k, k); lower: `is_lower`.

    >>> import numpy as np
    >>> norms_sq(np, np.array([[[0.5]], [[2.0]]]), np.ones((1, 2, 1)), np.array([[0, 1]])).tolist()
    [[0.25, 4.0]]
    """
    n, n_actions, k = vectors.shape
    if k == 1:  # one-hot features: no product to form
        return (vectors[..., 0] * _entries(xp, whitener[:, 0, 0], blocks)) ** 2
    if lower and k >= _WIDE and n * n_actions >= _MANY and len(whitener) == 1:
        white = _lower_times(whitener[0], vectors)
    else:
        white = times_blocks(xp, whitener, vectors, blocks)
    return xp.vecdot(white, white)


def is_lower(whitener: Any) -> bool:
    """Is it of numpy, and lower triangular in every block? `factors.whitener` makes no other.

    >>> is_lower(np.eye(2)[None]), is_lower(np.ones((1, 2, 2)))
    (True, False)
    """
    return isinstance(whitener, np.ndarray) and not np.triu(whitener, 1).any()


def _lower_times(matrix: Any, vectors: Any) -> Any:
    """matrix @ vector for every vector, for a lower triangular matrix: half the work of a full product."""
    n, n_actions, k = vectors.shape
    # BLAS counts columns first, so it sees both transposed.
    product = dtrmm(1.0, matrix.T, vectors.reshape(n * n_actions, k).T, trans_a=1)
    return product.T.reshape(n, n_actions, k)


def times_blocks(xp: Any, matrices: Any, vectors: Any, blocks: Any) -> Any:
    """matrices[block] @ vector for every vector, (n, n_actions, m). matrices (n_blocks, m, k).

    Matrix products throughout: one for dense features, one per action where action a always stands in the same block,
    else one per block that occurs.
    """
    n, n_actions, k = vectors.shape
    if matrices.shape[0] == 1:
        flat = xp.reshape(vectors, (n * n_actions, k)) @ matrices[0].T
        return xp.reshape(flat, (n, n_actions, matrices.shape[1]))
    if n and bool(xp.all(blocks == blocks[:1, :])):
        of_action = xp.take(matrices, blocks[0, :], axis=0)
        if getattr(vectors, "strides", (1, 1))[1] == 0:  # one vector for all actions: one wide product
            wide = vectors[:, 0, :] @ xp.reshape(of_action, (-1, k)).T
            return xp.reshape(wide, (n, n_actions, matrices.shape[1]))
        product = xp.matmul(xp.permute_dims(vectors, (1, 0, 2)), xp.permute_dims(of_action, (0, 2, 1)))
        return xp.permute_dims(product, (1, 0, 2))
    product = xp.zeros((n, n_actions, matrices.shape[1]), dtype=vectors.dtype)
    for block in xp.unique_values(blocks).tolist():
        here = blocks == block
        product[here] = vectors[here] @ matrices[block].T
    return product


def _dots(xp: Any, parameters: list[Any], vectors: Any, blocks: Any) -> list[Any]:
    """phi . parameter, (n, n_actions), for each parameter (n_blocks, k)."""
    if vectors.shape[-1] == 1:
        return [vectors[..., 0] * _entries(xp, parameter[:, 0], blocks) for parameter in parameters]
    products = times_blocks(xp, xp.stack(parameters, axis=1), vectors, blocks)
    return [products[..., i] for i in range(len(parameters))]


def _entries(xp: Any, values: Any, blocks: Any) -> Any:
    """values[blocks], written as the array API wants it; one number where there is one block."""
    if values.shape[0] == 1:
        return values[0]
    return xp.reshape(xp.take(values, xp.reshape(blocks, (-1,)), axis=0), blocks.shape)
