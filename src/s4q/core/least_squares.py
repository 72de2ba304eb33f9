"""Algorithm 3: streaming least squares, as sums that merge and as the paper's rank-one recursion.

Both return the same parameter: the minimiser over a ball of the ridge loss of all samples seen.

    start with x = 0 and Sigma = ridge I
    for each sample (a, b):  x += Sigma^-1 a (b - a.x) / (1 + a.Sigma^-1 a);   Sigma += a a^T
    return the point of the ball nearest to x in the norm of Sigma

Sums are the default: one Cholesky factor per fit instead of one update per sample, and they add up across workers.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf, sqrt
from typing import Annotated, cast, final

import numpy as np
from numpy.typing import ArrayLike

from s4q.core.blocks import Array, BoolArray, IntArray
from s4q.core.codec import NotSaved
from s4q.core.factors import Factors
from s4q.core.optimism import norms_sq
from s4q.core.tall_products import is_tall
from s4q.core.validation import finite_array, require_count, require_finite, require_positive, require_shape

RowsOfBlocks = Iterable[tuple[int, BoolArray | slice]]  # blocks that occur, and the rows of each
_ROUNDING = 1e-15


@final
@dataclass(frozen=True, eq=False, slots=True)
class Moments:
    """Sums over samples (phi, y) of one level; `+` merges two of them.

    >>> ones = np.ones((3, 1))
    >>> a = Moments.of(ones, np.array([0, 1, 1]), np.array([1.0, 2.0, 3.0]), n_blocks=2)
    >>> (a + a).moment.ravel().tolist(), (a + a).n
    ([2.0, 10.0], 6)
    """

    gram: Annotated[Array, "B K K"]  # sum of phi phi^T
    moment: Annotated[Array, "B K"]  # sum of phi y
    moment_sq: Annotated[Array, "B K"]  # sum of phi y^2
    sum_y2: float  # sum of y^2
    n: int  # number of samples
    known: NotSaved[Factors | None] = field(default=None, repr=False)  # cached factors of `gram`
    # See `remembered`. `replace` never carries it over: it would be the residual of other sums.
    _residual: NotSaved[tuple[Array, float, float] | None] = field(default=None, init=False, repr=False)

    @classmethod
    def zeros(cls, n_blocks: int, block_dim: int) -> "Moments":
        """No samples yet."""
        empty = np.zeros((n_blocks, block_dim))
        return cls(np.zeros((n_blocks, block_dim, block_dim)), empty, empty, 0.0, 0)

    @classmethod
    def of(
        cls,
        vectors: Array,
        blocks: IntArray,
        targets: Array,
        n_blocks: int,
        weights: Array | IntArray | None = None,
        gram: Array | None = None,
        factors: Factors | None = None,
    ) -> "Moments":
        """Sums of samples.

        Args:
            vectors: Features, (n, k).
            blocks: The block each of them stands in, (n,).
            targets: y, (n,).
            n_blocks: Number of blocks.
            weights: How often each sample counts, (n,) whole numbers. None (default) means once.
            gram: sum of phi phi^T of these samples, if known already.
            factors: Its factors, if known already.
        """
        if len(blocks) and not 0 <= blocks.min() <= blocks.max() < n_blocks:
            raise ValueError(f"blocks must lie in 0..{n_blocks - 1}; got {blocks.min()}..{blocks.max()}")
        count = np.ones(len(blocks)) if weights is None else weights.astype(np.float64)
        weighted = count * targets
        moments = sums_by_block(vectors, np.stack([weighted, weighted * targets]), blocks, n_blocks)
        return cls(
            gram=gram_of(vectors, blocks, n_blocks, weights) if gram is None else gram,
            moment=moments[0],
            moment_sq=moments[1],
            sum_y2=float(weighted @ targets),
            n=len(blocks) if weights is None else int(weights.sum()),
            known=factors,
        )

    def __add__(self, other: "Moments") -> "Moments":
        if self.gram.shape != other.gram.shape:
            raise ValueError(f"Moments of shapes {self.gram.shape} and {other.gram.shape} do not belong to one problem")
        return Moments(
            self.gram + other.gram,
            self.moment + other.moment,
            self.moment_sq + other.moment_sq,
            self.sum_y2 + other.sum_y2,
            self.n + other.n,
        )

    def __post_init__(self) -> None:
        if self.known is None or self.known.gram is not self.gram:  # `replace` may have put another matrix in its place
            object.__setattr__(self, "known", Factors(self.gram))

    @property
    def factors(self) -> Factors:
        """Factors of the Gram matrix, made when first asked for."""
        return cast(Factors, self.known)

    def remembered(self, theta: Array, ridge: float, residual: Callable[[], float]) -> float:
        """The residual variance of a fit of these sums: computed once for a theta, which S3Q and its bonus both need.

        Args:
            theta: The fit, (n_blocks, k).
            ridge: Its ridge.
            residual: Computes it.
        """
        if self._residual is None or self._residual[0] is not theta or self._residual[1] != ridge:
            object.__setattr__(self, "_residual", (theta, ridge, residual()))
        return cast(tuple[Array, float, float], self._residual)[2]

    @property
    def nbytes(self) -> int:
        """Bytes held by the arrays."""
        return self.gram.nbytes + self.moment.nbytes + self.moment_sq.nbytes

    def require_fit(self, gram_shape: tuple[int, int, int]) -> None:
        """Sums that come from outside must have the shapes of the problem, and be finite."""
        if self.gram.shape != gram_shape:
            raise ValueError(f"answer.moments.gram must have shape {gram_shape}; got {self.gram.shape}")
        for name, array in (("moment", self.moment), ("moment_sq", self.moment_sq)):
            require_shape(f"answer.moments.{name}", array, gram_shape[:2], "(n_blocks, k)")
        for name in ("gram", "moment", "moment_sq", "sum_y2"):
            require_finite(f"answer.moments.{name}", np.asarray(getattr(self, name)))


def gram_of(vectors: Array, blocks: IntArray, n_blocks: int, weights: Array | IntArray | None = None) -> Array:
    """sum of weight phi phi^T per block, (n_blocks, k, k), exactly symmetric. vectors (n, k), blocks (n,).

    >>> gram_of(np.array([[2.0], [1.0], [1.0]]), np.array([0, 1, 1]), n_blocks=2).ravel().tolist()
    [4.0, 2.0]
    """
    k = vectors.shape[1]
    if k == 1:  # one-hot features: no product to form
        scale = vectors[:, 0] if weights is None else vectors[:, 0] * weights
        return sums_by_block(vectors, scale[None], blocks, n_blocks)[0, :, :, None]
    gram = np.zeros((n_blocks, k, k))
    for block, rows in rows_by_block(blocks, n_blocks):
        part = np.ascontiguousarray(vectors[rows])
        if weights is None:
            gram[block] = part.T @ part  # BLAS fills one triangle and mirrors it
        else:
            product = (part * weights[rows][:, None]).T @ part
            gram[block] = (product + product.T) / 2
    return gram


def sums_by_block(
    vectors: Array, scales: Array, blocks: IntArray, n_blocks: int, where: RowsOfBlocks | None = None
) -> Array:
    """sum of scale phi per block for each of m scales (m, n), (m, n_blocks, k). where: `rows_by_block`, if known."""
    if vectors.shape[1] == 1:
        totals = np.empty((len(scales), n_blocks, 1))
        for total, scale in zip(totals, scales * vectors[:, 0], strict=True):
            total[:, 0] = np.bincount(blocks, scale, minlength=n_blocks)
        return totals
    totals = np.zeros((len(scales), n_blocks, vectors.shape[1]))
    for block, rows in rows_by_block(blocks, n_blocks) if where is None else where:
        of_block = vectors[rows]
        if is_tall(len(of_block), of_block.shape[1], len(scales)):
            for total, scale in zip(totals, scales, strict=True):
                total[block] = scale[rows] @ of_block  # faster than all at once, as in `tall_products`
        else:
            totals[:, block] = scales[:, rows] @ of_block
    return totals


def rows_by_block(blocks: IntArray, n_blocks: int) -> RowsOfBlocks:
    """Each block that occurs, and where; a slice, not a mask, if there is only one or the rows are sorted by block."""
    if n_blocks == 1:
        return [(0, slice(None))]
    if np.all(blocks[1:] >= blocks[:-1]):
        edges = [0, *(np.flatnonzero(blocks[1:] != blocks[:-1]) + 1).tolist(), len(blocks)]
        return [(int(blocks[first]), slice(first, end)) for first, end in pairwise(edges) if first < end]
    return ((block, blocks == block) for block in np.unique(blocks).tolist())


def elliptical_norm_sq(vectors: Array, blocks: IntArray, whitener: Array) -> Array:
    """Squared norm of phi in the metric of Sigma^-1. vectors (..., k), blocks (...), whitener (n_blocks, k, k).

    >>> elliptical_norm_sq(np.ones((2, 1)), np.array([0, 1]), np.array([[[0.5]], [[2.0]]])).tolist()
    [0.25, 4.0]
    """
    if blocks.ndim == 2:
        return np.asarray(norms_sq(np, whitener, vectors, blocks))
    rows = norms_sq(np, whitener, vectors.reshape(-1, 1, vectors.shape[-1]), blocks.reshape(-1, 1))
    return np.asarray(rows.reshape(blocks.shape))


def ridge_fit(moments: Moments, ridge: float) -> Array:
    """Ridge regression per block, (n_blocks, k): one Cholesky factor, no rank-one updates (Lemma 1).

    >>> ridge_fit(Moments.of(np.ones((3, 1)), np.zeros(3, int), np.ones(3), n_blocks=1), ridge=1.0).item()
    0.75
    """
    return moments.factors.solve(moments.moment, ridge)


def constrained_fit(moments: Moments, ridge: float, radius: float | Array) -> Array:
    """argmin over the ball of the ridge loss of all samples: what Algorithm 3 returns, (n_blocks, k).

    radius: of one ball, or (n_blocks,) for a ball per block; infinite for none.
    """
    if isinstance(radius, float) and radius == inf:
        return ridge_fit(moments, ridge)
    if not np.min(radius) > 0:
        raise ValueError(f"radius is the radius of a ball, so it must be positive (infinite for none); got {radius}")
    return _projected(ridge_fit(moments, ridge), moments.factors, ridge, np.asarray(radius))


def project_to_ball(theta: ArrayLike, gram: ArrayLike, ridge: float, radius: ArrayLike) -> Array:
    """The point of a ball nearest to theta in the norm of Sigma = gram + ridge I.

    Args:
        theta: The point, (n_blocks, k), or (d,) for one block.
        gram: Sum of phi phi^T, (n_blocks, k, k), or (d, d) for one block.
        ridge: Positive number.
        radius: One number for the whole parameter (blocks then share one multiplier), or (n_blocks,), a ball each.

    >>> project_to_ball([[3.0, 4.0]], [[[0.0, 0.0], [0.0, 0.0]]], ridge=1.0, radius=1.0).round(6).tolist()
    [[0.6, 0.8]]
    """
    point, matrix, ball = finite_array("theta", theta), finite_array("gram", gram), finite_array("radius", radius)
    if point.ndim == 1:
        return np.asarray(project_to_ball(point[None], matrix[None], ridge, ball)[0])
    require_shape("theta", point, (None, None), "(n_blocks, k)")
    require_shape("gram", matrix, (*point.shape, point.shape[1]), "(n_blocks, k, k)")
    require_positive("ridge", ridge, "added to the Gram matrix")
    if ball.ndim and ball.shape != (len(point),):
        raise ValueError(f"radius must be one number or one per block, ({len(point)},); got shape {ball.shape}")
    require_positive("radius", float(ball.min()), "the radius of a ball")
    return _projected(point, Factors(matrix), ridge, ball)


def _projected(point: Array, factors: Factors, ridge: float, ball: Array) -> Array:
    """`project_to_ball` of what has been checked; point is written over."""
    if ball.ndim == 0:
        inside = bool(np.linalg.norm(point) <= ball)
        every = range(len(point))
        return point if inside else _onto_sphere(point, factors, every, ridge, float(ball))
    for block in np.flatnonzero(np.linalg.norm(point, axis=1) > ball).tolist():
        point[block] = _onto_sphere(point[block, None], factors, [block], ridge, float(ball[block]))[0]
    return point


def _onto_sphere(theta: Array, factors: Factors, blocks: Sequence[int], ridge: float, radius: float) -> Array:
    """Solve (Sigma + mu I) x = Sigma theta, |x| = radius, for a theta, of these blocks, outside the ball.

    The nearest point is ridge regression with the larger ridge `ridge + mu`; mu is the root of 1/radius - 1/|x(mu)|,
    which is nearly a straight line in mu, bent so that Newton's steps from below never pass the root. Euclidean
    rescaling would be another, wrong, point.
    """
    if theta.size == 1:
        return np.asarray(np.sign(theta) * radius)
    spectra = [factors.spectrum(block) for block in blocks]
    values, vectors = np.stack([one[0] for one in spectra]) + ridge, np.stack([one[1] for one in spectra])
    coordinates = np.einsum("bji,bj->bi", vectors, theta)
    mu = max(0.0, float((values * (np.abs(coordinates) / radius - 1.0)).max()))  # |x| is no less than one coordinate
    while True:
        shifted = values + mu
        point = values / shifted * coordinates
        least = float(shifted.min())  # in its units nothing overflows
        norm_sq, slope = float(np.vdot(point, point)), float(np.vdot(point, point * (least / shifted)))
        further = mu + (sqrt(norm_sq) / radius - 1.0) * norm_sq / slope * least
        if not further > mu * (1.0 + _ROUNDING):
            return np.asarray(np.einsum("bij,bj->bi", vectors, point))  # [Alg1:Project]
        mu = further


@final
class StreamingLeastSquares:
    """Algorithm 3 as printed: one rank-one update per sample, nothing else kept.

    Args:
        dim: Length of the features.
        ridge: The initial covariance is ridge times I. 1 by default.

    >>> fit = StreamingLeastSquares(dim=1, ridge=1.0)
    >>> for y in (1.0, 1.0, 1.0):
    ...     fit.update([1.0], y)
    >>> fit.solve().round(6).tolist(), fit.solve(radius=0.5).tolist()
    ([0.75], [0.5])
    """

    def __init__(self, dim: int, ridge: float = 1.0) -> None:
        require_count("dim", dim, "the length of the features")
        require_positive("ridge", ridge, "the initial covariance times I")
        self.ridge = ridge
        self.theta: Array = np.zeros(dim)
        self.gram: Array = np.zeros((dim, dim))
        self.cov_inv: Array = np.eye(dim) / ridge
        self.n = 0

    def update(self, x: ArrayLike, y: float) -> None:
        """Add one sample. Nothing changes when it is refused.

        Args:
            x: Features, (dim,).
            y: Target.
        """
        x = finite_array("x", x)
        require_shape("x", x, self.theta.shape, "(dim,)")
        y = float(finite_array("y", y))
        gain = self.cov_inv @ x
        scale = 1.0 + float(x @ gain)
        self.theta = self.theta + gain * ((y - float(x @ self.theta)) / scale)  # [Alg3:x]
        self.cov_inv = self.cov_inv - np.outer(gain, gain) / scale  # [Alg3:Covupdate]
        self.gram = self.gram + np.outer(x, x)
        self.n += 1

    def solve(self, radius: float | None = None) -> Array:
        """The parameter, (dim,).

        Args:
            radius: Projects it on the ball of this radius in the norm of Sigma. None (default) means no ball.
        """
        if radius is None:
            return self.theta.copy()
        return project_to_ball(self.theta, self.gram, self.ridge, radius)  # [Alg3:Return]
