"""phi . theta + bonus at one level: the one place of this formula, on any array module.

Learners and collectors call it, LinearQ stacks its levels. The module is an argument (`xp`: numpy, or another that
follows the array API), so that the same lines serve a learner on the CPU and a batch of episodes on another device.
Nothing here knows an environment or an algorithm.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import reduce
from math import inf, isfinite
from typing import Annotated, Any, final

import numpy as np

from s4q.core.blocks import Array, IntArray, Phi
from s4q.core.codec import MaybeInfinite, SavedAs
from s4q.core.tall_products import is_tall, tall_times
from s4q.core.validation import frozen_array, require_finite, require_shape

TIE = 1e-11  # of the best value: closer than this is equal
_WIDE, _MANY = 64, 512  # features, and vectors, from which a triangular product is faster than a full one


@final
@dataclass(frozen=True, eq=False, repr=False, slots=True, weakref_slot=True)
class QLevel:
    """One level of a LinearQ: Q(s, a) = clip(phi . theta + (width + kappa s(phi)) |W phi|).

    The whitener W has W Sigma W^T = I, so |W phi| is the norm of phi in the metric of Sigma^-1. s(phi) is
    sigma(phi) + lower_order |W phi|, with sigma(phi) the standard deviation of the targets seen near phi. Arrays of
    numpy are checked, and read only from then on. Arrays of another module are taken as they are.

    Args:
        theta: Parameter, (n_blocks, k).
        whitener: W, (n_blocks, k, k). None (default) means no bonus; width is then None too.
        width: Width of the bonus, (n_blocks,), or one number for all blocks.
        clip: Lower and upper bound of the value. By default nothing is clipped.
        second: Ridge fit of y^2, (n_blocks, k): phi . second - (phi . theta)^2 is a variance. None means no sigma
            and no lower_order.
        noise: Variance that is added to sigma^2 with the weight of one sample.
        ceiling: Upper bound of the variance that the fits tell.
        ridge: Ridge of these fits.
        kappa: Number of standard deviations sigma in the width.
        lower_order: Added to sigma, times |W phi|: what few samples cannot tell of their own spread.

    >>> level = QLevel(np.array([[1.0], [2.0]]), clip=(0.0, 1.5))  # two blocks of length 1
    >>> phi = Phi(np.ones((1, 2, 1)), np.array([[0, 1]]))
    >>> level.optimistic(phi).tolist(), level.value(phi).tolist(), level.greedy(phi).tolist()
    ([[1.0, 2.0]], [1.5], [1])
    """

    theta: Annotated[Any, SavedAs(Annotated[Array, "n k"])]
    whitener: Annotated[Any, SavedAs(Annotated[Array, "n k k"] | None)] = None
    width: Annotated[Any, SavedAs(Annotated[Array, "n"] | None)] = None
    clip: tuple[MaybeInfinite, MaybeInfinite] = (-inf, inf)
    second: Annotated[Any, SavedAs(Annotated[Array, "n k"] | None)] = None
    noise: float = 0.0
    ceiling: float = 0.0
    ridge: float = 0.0
    kappa: float = 0.0
    lower_order: float = 0.0

    def __post_init__(self) -> None:
        if (self.whitener is None) != (self.width is None):
            raise ValueError("whitener and width make the bonus together: give both, or neither for no bonus")
        if not self.clip[0] <= self.clip[1]:  # NaN fails here too
            raise ValueError(f"clip holds (lower, upper) with lower <= upper; got {self.clip}")
        self._check_numbers()
        if isinstance(self.theta, np.ndarray | list | tuple):
            self._check()

    def _check_numbers(self) -> None:
        numbers = (self.noise, self.ceiling, self.ridge, self.kappa, self.lower_order)
        if min(numbers) >= 0 and isfinite(sum(numbers)):
            return  # as nearly always: a fit makes many levels
        for name, value in zip(("noise", "ceiling", "ridge", "kappa", "lower_order"), numbers, strict=True):
            if not (isfinite(value) and value >= 0):
                raise ValueError(f"{name} must be finite and not negative; got {value}")

    def _check(self) -> None:
        theta = _frozen("theta", self.theta, (None, None), "(n_blocks, k)")
        n_blocks, k = theta.shape
        object.__setattr__(self, "theta", theta)
        if self.whitener is not None:
            whitener = _frozen("whitener", self.whitener, (n_blocks, k, k), "(n_blocks, k, k)")
            object.__setattr__(self, "whitener", whitener)
        self._check_bonus()

    def _check_bonus(self) -> None:
        """The width, and the fit of squares: theta and whitener have been checked."""
        n_blocks, k = self.theta.shape
        if self.whitener is not None:
            given = self.width
            if isinstance(given, float) and isfinite(given):
                width, least = np.full(n_blocks, given), given
                width.setflags(write=False)
            else:
                given = np.full(n_blocks, float(given)) if np.ndim(given) == 0 else given
                width = _frozen("width", given, (n_blocks,), "(n_blocks,)")
                least = width.min()
            if least < 0:
                raise ValueError(f"width multiplies the bonus, so it must not be negative; got {least}")
            object.__setattr__(self, "width", width)
        if self.second is not None:
            object.__setattr__(self, "second", _frozen("second", self.second, (n_blocks, k), "(n_blocks, k)"))

    def with_bonus(
        self, whitener: Array, width: Array | float, *, second: Array | None = None, spread: "Spread | None" = None
    ) -> "QLevel":
        """The same level with a bonus, as `dataclasses.replace` would make it, but a fit makes many levels.

        So what this level holds is not checked again, nor is the whitener, which levels share.

        Args:
            whitener: As `factors.whitener` makes it: read only, and finite.
            width: Width of the bonus, (n_blocks,), or one number for all blocks.
            second: As in QLevel.
            spread: The numbers that go with it.
        """
        require_shape("whitener", whitener, (*self.theta.shape, self.theta.shape[1]), "(n_blocks, k, k)")
        made = self.unchecked(self.theta, self.clip, whitener, width, second, spread)
        made._check_numbers()
        made._check_bonus()
        return made

    @classmethod
    def one_hot(
        cls,
        thetas: Array,
        whitener: Array,
        widths: Array,
        bounds: Sequence[float],
        seconds: Array,
        spreads: "Sequence[Spread]",
    ) -> "list[QLevel]":
        """All levels of a fit of one-hot features, checked in one go; each with values in [0, bound].

        Args:
            thetas: Parameters of all levels, (H, n_blocks, 1), read only.
            whitener: As `factors.whitener` makes it: read only, and finite; all levels share it.
            widths: Width of the bonus of each level, (H,).
            bounds: Upper bound of the value of each level.
            seconds: `second` of all levels, (H, n_blocks, 1), read only.
            spreads: The numbers of each level.
        """
        require_finite("theta", thetas)
        require_finite("second", seconds)
        made = []
        widths.setflags(write=False)
        everywhere = np.broadcast_to(widths[:, None], thetas.shape[:2])  # holds one number a level
        for theta, width, bound, second, spread in zip(thetas, everywhere, bounds, seconds, spreads, strict=True):
            made.append(cls.unchecked(theta, (0.0, bound), whitener, width, second, spread))
            made[-1]._check_numbers()
        return made

    @classmethod
    def unchecked(
        cls,
        theta: Array,
        clip: tuple[float, float],
        whitener: Array | None = None,
        width: Any = None,
        second: Array | None = None,
        spread: "Spread | None" = None,
    ) -> "QLevel":
        """A level of arrays that are known to be good, and read only. The arguments are those of `with_bonus`."""
        made = object.__new__(cls)
        numbers = (0.0,) * 5 if spread is None else spread.numbers
        for name, value in zip(_FIELDS, (theta, whitener, width, clip, second, *numbers), strict=True):
            object.__setattr__(made, name, value)
        return made

    def __repr__(self) -> str:
        n_blocks, k = self.theta.shape
        bonus = "" if self.whitener is None else ", with bonus"
        return f"QLevel({n_blocks} block{'s' * (n_blocks > 1)} of {k}{bonus})"

    @property
    def arrays(self) -> tuple[Any, ...]:
        """The arrays that are there."""
        return tuple(a for a in (self.theta, self.whitener, self.width, self.second) if a is not None)

    @property
    def numbers(self) -> tuple[float, ...]:
        """All other parameters."""
        return (*self.clip, self.noise, self.ceiling, self.ridge, self.kappa, self.lower_order)

    def optimistic(self, phi: Phi, known: "Known | None" = None) -> Array:
        """phi . theta + bonus, unclipped, (n, n_actions).

        Args:
            phi: Features of n states.
            known: What its metric says of them, where that is known already.
        """
        return np.asarray(optimistic(np, self, phi.vectors, phi.blocks, known))

    def clipped(self, values: Array) -> Array:
        """The same values, clipped as this level clips."""
        return between(np, values, *self.clip) if self.clip != (-inf, inf) else values

    def value(self, phi: Phi, known: "Known | None" = None) -> Array:
        """max over actions of the clipped value, (n,). The arguments are those of `optimistic`."""
        return self.clipped(highest(self.optimistic(phi, known)))

    def value_of_units(self, blocks: IntArray, known: "Known") -> Array:
        """`value` of states whose vectors are all the number 1, (n,): every block is evaluated once.

        Args:
            blocks: The block of each action, (n, n_actions); blocks have length 1.
            known: What its metric says of the number 1 in every block, (n_blocks,).
        """
        squares = [] if self.second is None else [self.second[:, 0]]
        of_block = with_width(np, self, self.theta[:, 0], squares, self.width, known)
        return self.clipped(highest(of_block[blocks]))

    def greedy(self, phi: Phi) -> IntArray:
        """Best action per state, (n,), by the unclipped value, since clipping makes ties; ties go to the lowest."""
        return np.asarray(best_actions(np, self.optimistic(phi))[0])  # [Alg2:GreedyPolicy]


_FIELDS = tuple(one.name for one in fields(QLevel))


def levels_without_bonus(thetas: Array, clips: Sequence[tuple[float, float]]) -> list[QLevel]:
    """A level without a bonus for each parameter, as QLevel would make it, but unchecked: many learners make many.

    Args:
        thetas: Parameters (H, n_blocks, k), known to be finite, that nobody can write to.
        clips: Lower and upper bound of the value of each level, lower <= upper.
    """
    return [QLevel.unchecked(theta, clip) for theta, clip in zip(thetas, clips, strict=True)]


def highest(values: Array) -> Array:
    """max of each row, (n,), of values (n, n_actions)."""
    if values.shape[1] > 16:
        return np.asarray(values.max(axis=1))
    return reduce(np.maximum, values.T)  # twenty times faster than max over a short axis


def _frozen(name: str, value: Any, shape: tuple[int | None, ...], meaning: str) -> Array:
    """A checked array that nobody can write to; levels may share one."""
    array = frozen_array(value)
    require_shape(name, array, shape, meaning)
    require_finite(name, array)
    return array


@final
@dataclass(frozen=True, eq=False, slots=True)
class Known:
    """What the metric of a level says of vectors, whatever its parameters: levels that share a metric share it."""

    length: Any  # |W phi|, (n, n_actions)
    share: Any  # n / max(n, 1), with n the number of times this direction was seen; None where no sigma is needed
    rest: Any  # 1 / max(n, 1)

    @classmethod
    def of(cls, xp: Any, level: QLevel, norm_sq: Any) -> "Known":
        """From the squared norms |W phi|^2, (n, n_actions), in the metric of the level."""
        if level.second is None:
            return cls(xp.sqrt(norm_sq), None, None)
        return cls.with_samples(xp, norm_sq, level.ridge)

    @classmethod
    def with_samples(cls, xp: Any, norm_sq: Any, ridge: float) -> "Known":
        """The same where sigma is needed; ridge is that of the fits."""
        length = xp.sqrt(norm_sq)
        samples = xp.clip(1.0 / xp.clip(norm_sq, 1e-300, None) - ridge, 0.0, None)
        rest = 1.0 / xp.clip(samples, 1.0, None)
        return cls(length, samples * rest, rest)


@final
@dataclass(frozen=True, eq=False, slots=True)
class Spread:
    """The numbers of a QLevel that make a width of the spread of its targets."""

    noise: float
    ceiling: float
    ridge: float
    kappa: float
    lower_order: float

    @property
    def numbers(self) -> tuple[float, ...]:
        """In the order of the fields of a QLevel."""
        return (self.noise, self.ceiling, self.ridge, self.kappa, self.lower_order)


def same_metric(a: QLevel, b: QLevel) -> bool:
    """Does `Known` of one level hold for the other?"""
    return a.whitener is b.whitener and a.ridge == b.ridge and (a.second is None) == (b.second is None)


def optimistic(xp: Any, level: QLevel, vectors: Any, blocks: Any, known: Known | None = None) -> Any:
    """phi . theta + bonus, unclipped, (n, n_actions).

    Args:
        xp: The array module.
        level: Parameters, as arrays of that module.
        vectors: Features (n, n_actions, k), or (n, 1, k) where all actions have the same vector.
        blocks: The block of each action, (n, n_actions).
        known: What its metric says of the vectors, where that is known already.

    >>> level = QLevel(np.array([[1.0, 1.0]]), np.eye(2)[None], np.array([2.0]))
    >>> optimistic(np, level, np.array([[[3.0, 4.0]]]), np.array([[0]])).tolist()
    [[17.0]]
    """
    parameters = [level.theta] if level.second is None else [level.theta, level.second]
    linear, *squares = _dots(xp, parameters, vectors, blocks)
    if level.whitener is None:
        return linear
    if known is None:
        known = Known.of(xp, level, norms_sq(xp, level.whitener, vectors, blocks))
    return with_width(xp, level, linear, squares, _entries(xp, level.width, blocks), known)


def with_width(xp: Any, level: "QLevel | Spread", linear: Any, squares: list[Any], width: Any, known: Known) -> Any:
    """phi . theta + width |W phi|; squares holds phi . second, where the level has one."""
    if squares:
        width = width + spread_width(xp, level, linear, squares[0], known)
    return linear + width * known.length  # [eqn:Bonus]


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


def spread_width(xp: Any, level: "QLevel | Spread", linear: Any, squares: Any, known: Known) -> Any:
    """kappa (sigma(phi) + lower_order |W phi|): the part of the width that comes from the spread of the targets.

    Args:
        xp: The array module.
        level: Its noise, ceiling, kappa and lower_order are used.
        linear: phi . theta, (n, n_actions).
        squares: phi . second, (n, n_actions).
        known: What its metric says of the same vectors.
    """
    variance = between(xp, squares - linear**2, 0.0, level.ceiling)
    spread = xp.sqrt(known.share * variance + known.rest * level.noise)  # sigma
    if level.lower_order:  # 0 where nothing is random: a product less
        spread = spread + level.lower_order * known.length
    return level.kappa * spread


def norms_sq(xp: Any, whitener: Any, vectors: Any, blocks: Any, lower: bool = False) -> Any:
    """Squared norm of phi in the metric of Sigma^-1, (n, n_actions).

    Args:
        xp: The array module.
        whitener: W with W Sigma W^T = I, (n_blocks, k, k).
        vectors: Features (n, n_actions, k), or (n, 1, k) where all actions have the same vector.
        blocks: The block of each action, (n, n_actions).
        lower: True where the whitener is known to be one that `is_lower`.

    >>> norms_sq(np, np.array([[[0.5]], [[2.0]]]), np.ones((1, 2, 1)), np.array([[0, 1]])).tolist()
    [[0.25, 4.0]]
    """
    n, n_vectors, k = vectors.shape
    if k == 1:  # one-hot features: no product to form
        return (vectors[..., 0] * _entries(xp, whitener[:, 0, 0], blocks)) ** 2
    if lower and k >= _WIDE and n * n_vectors >= _MANY and len(whitener) == 1 and n_vectors == blocks.shape[1]:
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
    from scipy.linalg.blas import dtrmm  # as in `factors.whitener`

    n, n_actions, k = vectors.shape
    # BLAS counts columns first, so it sees both transposed.
    product = dtrmm(1.0, matrix.T, vectors.reshape(n * n_actions, k).T, trans_a=1)
    return product.T.reshape(n, n_actions, k)


def times_blocks(xp: Any, matrices: Any, vectors: Any, blocks: Any) -> Any:
    """matrices[block] @ vector for every action, (n, n_actions, m).

    Everything is a matrix product: one for dense features, one per action where action a always stands in the same
    block, else one per block that occurs.

    Args:
        xp: The array module.
        matrices: One matrix per block, (n_blocks, m, k).
        vectors: Features (n, n_actions, k), or (n, 1, k) where all actions have the same vector.
        blocks: The block of each action, (n, n_actions).
    """
    n, n_vectors, k = vectors.shape
    n_actions, m = blocks.shape[1], matrices.shape[1]
    in_place = n > 0 and matrices.shape[0] > 1 and (_repeated(xp, blocks) or bool(xp.all(blocks == blocks[:1, :])))
    if n_vectors < n_actions and in_place:  # one wide product
        of_action = xp.take(matrices, blocks[0, :], axis=0)
        return xp.reshape(_times_rows(xp, vectors[:, 0, :], xp.reshape(of_action, (-1, k))), (n, n_actions, m))
    if n_vectors < n_actions:
        vectors = xp.broadcast_to(vectors, (n, n_actions, k))
    if matrices.shape[0] == 1:
        return xp.reshape(_times_rows(xp, xp.reshape(vectors, (n * n_actions, k)), matrices[0]), (n, n_actions, m))
    if in_place:
        of_action = xp.take(matrices, blocks[0, :], axis=0)
        product = xp.matmul(xp.permute_dims(vectors, (1, 0, 2)), xp.permute_dims(of_action, (0, 2, 1)))
        return xp.permute_dims(product, (1, 0, 2))
    product = xp.zeros((n, n_actions, m), dtype=vectors.dtype)
    for block in xp.unique_values(blocks).tolist():
        here = blocks == block
        product[here] = vectors[here] @ matrices[block].T
    return product


def _times_rows(xp: Any, matrix: Any, rows: Any) -> Any:
    """matrix (n, k) times each of m rows (m, k), (n, m)."""
    if xp is np and is_tall(matrix.shape[0], matrix.shape[1], len(rows)):
        return tall_times(matrix, rows).T
    return matrix @ rows.T


def _dots(xp: Any, parameters: list[Any], vectors: Any, blocks: Any) -> list[Any]:
    """phi . parameter, (n, n_actions), for each parameter (n_blocks, k)."""
    if vectors.shape[-1] == 1:
        return [vectors[..., 0] * _entries(xp, parameter[:, 0], blocks) for parameter in parameters]
    products = times_blocks(xp, xp.stack(parameters, axis=1), vectors, blocks)
    return [products[..., i] for i in range(len(parameters))]


def _entries(xp: Any, values: Any, blocks: Any) -> Any:
    """values[blocks], to be broadcast: one number where there is one block, one row where all states have the same."""
    if values.shape[0] == 1:
        return values[0]
    if _repeated(xp, blocks):
        blocks = blocks[:1, :]  # one row stands for all
    if xp is np:
        return values[blocks]
    return xp.reshape(xp.take(values, xp.reshape(blocks, (-1,)), axis=0), blocks.shape)


def between(xp: Any, values: Any, lower: float, upper: float) -> Any:
    """The values, clipped."""
    if xp is np:
        return np.minimum(np.maximum(values, lower), upper)  # three times faster than a clip of a small array
    return xp.clip(values, lower, upper)


def _repeated(xp: Any, blocks: Any) -> bool:
    """Do all states have the same blocks, because one row was broadcast? False says nothing."""
    return xp is np and blocks.strides[0] == 0 and blocks.shape[0] > 0
