"""LinearQ: a linear value with an optional bonus and clip, which is also its own greedy policy."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, final

import numpy as np
from numpy.typing import ArrayLike

from s4q.core.blocks import Array, IntArray, Phi, States
from s4q.core.optimism import QLevel, best_actions, optimistic
from s4q.core.validation import finite_array, require_shape


@final
@dataclass(frozen=True, eq=False, slots=True)
class LevelBonus:
    """The bonus of one level: (width + kappa sigma(phi)) |W phi|; sigma is the spread of the targets seen near phi.

    Without `second` there is no spread. second is the ridge fit of y^2, so phi . second - (phi . theta)^2 is a
    variance; noise is what is added to it with the weight of one sample, and ceiling bounds it.
    """

    whitener: Array  # (n_blocks, k, k)
    width: Array  # (n_blocks,)
    second: Array | None = None  # (n_blocks, k)
    noise: float = 0.0
    ceiling: float = 0.0
    ridge: float = 0.0
    kappa: float = 0.0

    @property
    def scale(self) -> tuple[float, float, float, float]:
        """What the spread needs beside `second`."""
        return (self.noise, self.ceiling, self.ridge, self.kappa)


@final
@dataclass(frozen=True, eq=False, slots=True)
class Spread:
    """The part of the width that comes from the data, for all levels; see LevelBonus."""

    second: Annotated[Array, "h n k"]
    scale: Annotated[Array, "h m"]  # (H, 4): noise, ceiling, ridge, kappa


@final
@dataclass(frozen=True, eq=False)
class LinearQ:
    """Q_h(s, a) = clip(phi . theta_h + width_h |W_h phi|), one parameter per level h = 0..H-1.

    whitener W_h has W Sigma W^T = I, so |W phi| is the norm of phi in the metric of Sigma^-1. Without whitener and
    width there is no bonus; without clip nothing is clipped. spread adds to the width what the data says of the noise.
    The value at h = H is 0.

    >>> q = LinearQ(theta=np.array([[[1.0], [2.0]]]), clip=np.array([[0.0, 1.5]]))   # H = 1, two blocks of length 1
    >>> phi = Phi(np.ones((1, 2, 1)), np.array([[0, 1]]))
    >>> q.optimistic(0, phi).tolist(), q.value(0, phi).tolist(), q.greedy(0, phi).tolist()
    ([[1.0, 2.0]], [1.5], [1])
    """

    theta: Annotated[Array, "h n k"]
    whitener: Annotated[Array, "w n k k"] | None = None  # w = h, or 1 for one that all levels share
    width: Annotated[Array, "h n"] | None = None  # (H,) is accepted: the same for every block
    clip: Annotated[Array, "..."] | None = None  # (H, 2): lower and upper; infinities mean no clip
    spread: Spread | None = None

    def __post_init__(self) -> None:
        theta = finite_array("theta", self.theta)
        require_shape("theta", theta, (None, None, None), "(H, n_blocks, k)")
        horizon, n_blocks, k = theta.shape
        object.__setattr__(self, "theta", _read_only(theta))
        if (self.whitener is None) != (self.width is None):
            raise ValueError("whitener and width make the bonus together: give both, or neither for no bonus")
        if self.whitener is not None and self.width is not None:
            white, width = finite_array("whitener", self.whitener), finite_array("width", self.width)
            shared = white.ndim == 4 and len(white) == 1
            require_shape("whitener", white, (1 if shared else horizon, n_blocks, k, k), "(H, n_blocks, k, k)")
            if width.shape == (horizon,):
                width = np.repeat(width[:, None], n_blocks, axis=1)
            require_shape("width", width, (horizon, n_blocks), "(H, n_blocks)")
            _require_width(width)
            object.__setattr__(self, "whitener", _read_only(white))
            object.__setattr__(self, "width", _read_only(width))
        if self.clip is not None:
            object.__setattr__(self, "clip", _read_only(_checked_clip(self.clip, horizon)))

    @classmethod
    def of_levels(cls, theta: Array, bonuses: Sequence[LevelBonus], clip: Array, share: bool = False) -> "LinearQ":
        """From one bonus per level; with `share` the last level's whitener serves all."""
        whiteners = np.stack([bonus.whitener for bonus in (bonuses[-1:] if share else bonuses)])
        seconds = [bonus.second for bonus in bonuses if bonus.second is not None]
        scale = np.array([bonus.scale for bonus in bonuses])
        spread = Spread(np.stack(seconds), scale) if len(seconds) == len(bonuses) else None
        return cls(theta, whiteners, np.stack([bonus.width for bonus in bonuses]), clip, spread)

    def with_level(self, level: int, theta: Array, bonus: LevelBonus | None) -> "LinearQ":
        """A copy with the parameter (n_blocks, k) of one level replaced, and its bonus if there is one."""
        if bonus is None or self.whitener is None or self.width is None:
            made = LinearQ(self.theta)
        else:
            spread = self.spread and Spread(np.array(self.spread.second), np.array(self.spread.scale))
            made = LinearQ(self.theta, self.whitener, self.width, self.clip, spread)
        made.write_level(level, theta, bonus)
        return made

    def write_level(self, level: int, theta: Array, bonus: LevelBonus | None) -> None:
        """Replace a level in place. Internal: only for who made this Q and has shown it to nobody yet.

        A learner that fits H levels by itself would else make H copies of H levels.
        """
        _write(self.theta, level, finite_array("theta", theta))
        if bonus is None or self.whitener is None or self.width is None:
            return
        width = finite_array("width", bonus.width)
        _require_width(width)
        _write(self.width, level, width)
        if len(self.whitener) > 1:
            _write(self.whitener, level, finite_array("whitener", bonus.whitener))
        elif level == self.horizon - 1:  # the last level's serves all
            _write(self.whitener, 0, finite_array("whitener", bonus.whitener))
        if self.spread is not None and bonus.second is not None:
            self.spread.second[level], self.spread.scale[level] = bonus.second, bonus.scale

    @property
    def horizon(self) -> int:
        return len(self.theta)

    @property
    def nbytes(self) -> int:
        """Bytes held by the arrays."""
        return sum(array.nbytes for array in self._arrays() if array is not None)

    def same_as(self, other: "LinearQ") -> bool:
        """Are all parameters equal, bit for bit?"""
        if len(self._arrays()) != len(other._arrays()):
            return False
        pairs = zip(self._arrays(), other._arrays(), strict=True)
        return all(a is b if a is None or b is None else np.array_equal(a, b) for a, b in pairs)

    def _arrays(self) -> tuple[Array | None, ...]:
        spread = () if self.spread is None else (self.spread.second, self.spread.scale)
        return (self.theta, self.whitener, self.width, self.clip, *spread)

    def level(self, h: int) -> QLevel:
        """The parameters of level h."""
        if self.whitener is None or self.width is None:
            return QLevel(self.theta[h])
        white = self.whitener[h if len(self.whitener) > 1 else 0]
        if self.spread is None:
            return QLevel(self.theta[h], white, self.width[h])
        noise, ceiling, ridge, kappa = self.spread.scale[h].tolist()
        return QLevel(self.theta[h], white, self.width[h], self.spread.second[h], (noise, ceiling, ridge, kappa))

    def optimistic(self, h: int, phi: Phi, norm_sq: Array | None = None) -> Array:
        """phi . theta + bonus, unclipped, (n, n_actions); norm_sq (n, n_actions): the squared norms, if known."""
        return np.asarray(optimistic(np, self.level(h), phi.vectors, phi.blocks, norm_sq))

    def clipped(self, h: int, values: Array) -> Array:
        """Values of level h, clipped where this Q clips."""
        return values if self.clip is None else np.clip(values, self.clip[h, 0], self.clip[h, 1])

    def q_values(self, h: int, phi: Phi) -> Array:
        """The clipped optimistic value of every action, (n, n_actions)."""
        return self.clipped(h, self.optimistic(h, phi))

    def value(self, h: int, phi: Phi, norm_sq: Array | None = None) -> Array:
        """max over actions of the clipped value, (n,); 0 after the last level. norm_sq: as in `optimistic`."""
        if h == self.horizon:
            return np.zeros(len(phi.vectors))
        return self.clipped(h, self.optimistic(h, phi, norm_sq).max(axis=1))

    def greedy(self, h: int, phi: Phi) -> IntArray:
        """Best action per state, (n,), by the unclipped value (clipping makes ties); ties go to the lowest."""
        return np.asarray(best_actions(np, self.optimistic(h, phi))[0])  # [Alg2:GreedyPolicy]

    def probabilities(self, h: int, states: States, phi: Phi) -> Array:
        """The greedy policy as probabilities, (n, n_actions); reads only the features."""
        del states
        return np.eye(phi.vectors.shape[1])[self.greedy(h, phi)]


def _checked_clip(clip: ArrayLike, horizon: int) -> Array:
    bounds = np.array(clip, dtype=np.float64)
    require_shape("clip", bounds, (horizon, 2), "(H, 2)")
    if not np.all(bounds[:, 0] <= bounds[:, 1]):  # NaN fails here too
        raise ValueError(f"clip holds (lower, upper) with lower <= upper at each level; got {bounds.tolist()}")
    return bounds


def _require_width(width: Array) -> None:
    if width.min() < 0:
        raise ValueError(f"width multiplies the bonus, so it must not be negative; got {width.min()}")


def _write(array: Array, row: int, value: Array) -> None:
    array.setflags(write=True)
    try:
        array[row] = value
    finally:
        array.setflags(write=False)


def _read_only(array: Array) -> Array:
    array.setflags(write=False)
    return array
