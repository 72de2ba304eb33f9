"""Gymnasium spaces, and observations scaled to the unit cube by declared ranges.

Feature maps, their defaults and the collectors of environments read spaces here. Gymnasium is imported only when a
space is looked at. A range is never guessed from data.
"""

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike

from s4q.core.blocks import Array, IntArray, States
from s4q.core.validation import finite_array, require_flag

MOST_FEATURES = 10_000  # of one block: its Gram matrix would take 800 MB a level
AS_GOOD_AS_INFINITE = 1e30  # some environments write the largest float32 where they mean infinity
_FEW = 16  # numbers that are cheaper to compare one by one
ROUNDING = 1e-6  # of the range: float32 observations of a float64 bound


def gymnasium_spaces() -> Any:
    """The module gymnasium.spaces."""
    try:
        from gymnasium import spaces
    except ImportError:
        raise ImportError('spaces need gymnasium; install it with: pip install "s4q[gym]"') from None
    return spaces


def cure_of(space: Any) -> str:
    """Advice for an observation space that a feature map cannot take.

    >>> from gymnasium.spaces import Discrete, Tuple
    >>> cure_of(Tuple((Discrete(32), Discrete(2)))).split("wrap the env with ")[1]
    'gymnasium.wrappers.TransformObservation(env, np.array, gymnasium.spaces.MultiDiscrete([32, 2]))'
    """
    spaces = gymnasium_spaces()
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        return "whole numbers take features.OneHot"
    if isinstance(space, spaces.Box):
        return "arrays take features.PerAction of features.Fourier, Tiles, RBF or RandomFourier"
    if isinstance(space, spaces.Tuple) and all(isinstance(part, spaces.Discrete) for part in space.spaces):
        sizes, starts = [int(part.n) for part in space.spaces], [int(part.start) for part in space.spaces]
        start = f", start={starts}" if any(starts) else ""
        whole = f"gymnasium.spaces.MultiDiscrete({sizes}{start})"
        return f"wrap the env with gymnasium.wrappers.TransformObservation(env, np.array, {whole})"
    return "wrap the env with gymnasium.wrappers.FlattenObservation"


def bounds_of(space: Any) -> tuple[Array, Array]:
    """The lower and upper bounds of a Box, (d,) each. Infinite bounds are returned as they are."""
    if not isinstance(space, gymnasium_spaces().Box):
        raise ValueError(f"space must be a Gymnasium Box; got {_name(space)}; {cure_of(space)}")
    return np.asarray(space.low, dtype=np.float64).ravel(), np.asarray(space.high, dtype=np.float64).ravel()


def sizes_of(space: Any) -> tuple[IntArray, IntArray]:
    """The number of values of each entry of an observation, and the first value: (m,) each, (1,) for Discrete."""
    spaces = gymnasium_spaces()
    if isinstance(space, spaces.Discrete):
        return np.array([space.n], dtype=np.int64), np.array([space.start], dtype=np.int64)
    if isinstance(space, spaces.MultiDiscrete):
        return np.asarray(space.nvec, dtype=np.int64).ravel(), np.asarray(space.start, dtype=np.int64).ravel()
    if isinstance(space, spaces.MultiBinary):
        sizes = np.full(int(np.prod(space.shape)), 2, dtype=np.int64)
        return sizes, np.zeros_like(sizes)
    raise ValueError(f"space must be Discrete, MultiDiscrete or MultiBinary; got {_name(space)}; {cure_of(space)}")


def n_actions_of(space: Any) -> int:
    """The number of actions: of a Discrete space, or of all combinations of a MultiDiscrete or MultiBinary one.

    >>> from gymnasium.spaces import Discrete, MultiDiscrete
    >>> n_actions_of(Discrete(3, start=1)), n_actions_of(MultiDiscrete([2, 3]))
    (3, 6)
    """
    spaces = gymnasium_spaces()
    if isinstance(space, (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)):
        sizes, _ = sizes_of(space)
        return prod(sizes.tolist())
    if isinstance(space, spaces.Box):
        cure = "choose finitely many actions: s4q.wrappers.DiscreteActions(env, 5) takes 5 values of each number"
    else:
        cure = "make it one Discrete with a wrapper (gymnasium.ActionWrapper)"
    raise ValueError(
        f"action_space must be finite (Discrete, MultiDiscrete or MultiBinary), since the policy takes an argmax over "
        f"all actions; got {_name(space)}; {cure}"
    )


def _name(space: Any) -> str:
    return str(space) if hasattr(space, "sample") else type(space).__name__


@final
@dataclass(frozen=True, eq=False, repr=False)
class Ranges:
    """The range of each of d dimensions of an observation; `unit` maps observations to [0, 1]^d.

    Args:
        low: Lower ends (d,).
        high: Upper ends (d,).
        clip: True moves an observation outside its range to the nearest end. False refuses it.

    >>> Ranges.of(low=[-1, 0], high=[1, 10]).unit(np.array([[0.0, 10.0]])).tolist()
    [[0.5, 1.0]]
    """

    low: Array  # (d,)
    high: Array  # (d,)
    clip: bool

    def __post_init__(self) -> None:
        if self.low.ndim != 1 or self.low.shape != self.high.shape or not len(self.low):
            raise ValueError(
                f"low and high must have one number per dimension; got shapes {self.low.shape} and {self.high.shape}"
            )
        for j, (low, high) in enumerate(zip(self.low.tolist(), self.high.tolist(), strict=True)):
            if max(abs(low), abs(high)) >= AS_GOOD_AS_INFINITE or not low < high:  # NaN fails here too
                raise ValueError(
                    f"dimension {j} of the observations needs a range of finite low < high; got ({low}, {high}); "
                    "declare one per dimension with low=[...] and high=[...], and pass clip=True if observations "
                    "may leave it"
                )
        require_flag("clip", self.clip, "move observations outside the range to its nearest end")

    def __repr__(self) -> str:
        return f"Ranges(low={self.low.tolist()}, high={self.high.tolist()}, clip={self.clip})"

    @classmethod
    def of(
        cls, space: Any = None, *, low: ArrayLike | None = None, high: ArrayLike | None = None, clip: bool = False
    ) -> "Ranges":
        """The bounds of a Gymnasium Box, or declared ones.

        Args:
            space: A Box with finite bounds. None (default): `low` and `high` are needed.
            low: Lower ends, in place of a space.
            high: Upper ends, in place of a space.
            clip: As of the class.
        """
        if space is None:
            return cls(np.atleast_1d(_numbers("low", low)), np.atleast_1d(_numbers("high", high)), clip)
        if low is not None or high is not None:
            raise ValueError("give a space, or low and high; not both")
        return cls(*bounds_of(space), clip)

    @property
    def dim(self) -> int:
        return len(self.low)

    @cached_property
    def width(self) -> Array:
        """high - low, (d,)."""
        return np.asarray(self.high - self.low)

    @cached_property
    def _rows(self) -> tuple[Array, Array]:
        """low and width, (1, d) each: numpy takes half the time for a single row when nothing must be broadcast."""
        return self.low[None], self.width[None]

    def unit(self, states: States) -> Array:
        """Observations (n, d), or (n, ...) of d numbers each, in [0, 1]^d: (n, d)."""
        rows = self.rows(states)
        low, width = self._rows
        unit = rows - low
        unit /= width
        # One comparison finds NaN, infinity and both ends.
        if len(unit) == 1 and unit.size <= _FEW:  # plain floats: a reduction of a few numbers costs ten times as much
            for number in unit[0].tolist():
                if not -0.5 <= number - 0.5 <= 0.5:
                    break
            else:
                return unit
        if not np.maximum.reduce(np.abs(unit - 0.5), axis=None, initial=0.0) <= 0.5:
            self._require_inside(rows, unit)
            return np.clip(unit, 0.0, 1.0)
        return unit

    def rows(self, states: States) -> Array:
        """Observations as float64 rows, (n, d)."""
        array = np.asarray(states, dtype=np.float64)
        if array.ndim != 2:
            array = array.reshape(len(array), -1) if array.size and array.ndim else array.reshape(-1, self.dim)
        if array.shape[1] != self.dim:
            raise ValueError(
                f"states must be a batch of observations of {self.dim} numbers, (n, {self.dim}); got shape "
                f"{np.shape(states)}; a single observation needs a first axis of length 1"
            )
        return array

    def config(self) -> dict[str, Any]:
        """The parameters, as JSON can say them."""
        return {"low": self.low.tolist(), "high": self.high.tolist(), "clip": bool(self.clip)}

    def _require_inside(self, rows: Array, unit: Array) -> None:
        allowed = np.inf if self.clip else 0.5 + ROUNDING
        bad = np.argwhere(~(np.abs(unit - 0.5) <= allowed) | ~np.isfinite(rows))
        if len(bad):
            i, j = (int(index) for index in bad[0])
            if not np.isfinite(rows[i, j]):
                raise ValueError(
                    f"state {i} of the batch has {rows[i, j]} in dimension {j}; observations must be finite"
                )
            raise ValueError(
                f"state {i} of the batch has {rows[i, j]:.9g} in dimension {j}, outside its range "
                f"[{self.low[j]:.9g}, {self.high[j]:.9g}]; declare a wider range, or pass clip=True"
            )


def _numbers(name: str, value: ArrayLike | None) -> Array:
    """Declared bounds. Infinity is refused later, by an error that names its dimension."""
    if value is None:
        raise ValueError(f"{name} is needed: pass a Gymnasium Box, or low=[...] and high=[...]")
    array = np.array(value, dtype=np.float64)
    return array if np.isinf(array).any() else finite_array(name, value)


def require_moderate(name: str, n_features: int, cure: str) -> None:
    """Refuse a number of features whose Gram matrix would not fit into memory."""
    if n_features > MOST_FEATURES:
        raise ValueError(f"{name} would have {n_features} features, more than {MOST_FEATURES}; {cure}")
