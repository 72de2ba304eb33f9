"""Observations scaled to the unit cube by bounds that are declared, never by data."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike

from s4q.core.blocks import Array, States
from s4q.core.validation import finite_array
from s4q.features.spaces import bounds_of

MOST_FEATURES = 10_000  # of one block: its Gram matrix would take 800 MB a level
AS_GOOD_AS_INFINITE = 1e30  # some environments write the largest float32 where they mean infinity
_FEW = 16  # numbers that are cheaper to compare one by one
ROUNDING = 1e-6  # of the range: float32 observations of a float64 bound


@final
@dataclass(frozen=True, eq=False)
class Ranges:
    """low and high of each of d dimensions; `unit` maps observations to [0, 1]^d.

    An observation outside its range is an error, or is moved to the nearest end with `clip`.

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
        if not isinstance(self.clip, (bool, np.bool_)):
            raise ValueError(f"clip must be True or False; got {self.clip!r}")

    @classmethod
    def of(
        cls, space: Any = None, *, low: ArrayLike | None = None, high: ArrayLike | None = None, clip: bool = False
    ) -> "Ranges":
        """The bounds of a Gymnasium Box, or those declared."""
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
        """low and width as rows: numpy takes half the time for a single row when nothing must be broadcast."""
        return self.low[None], self.width[None]

    def unit(self, states: States) -> Array:
        """Observations (n, d), or (n, ...) of d numbers each, in [0, 1]^d: (n, d)."""
        rows = self.rows(states)
        low, width = self._rows
        unit = rows - low
        unit /= width
        # NaN, infinity and both ends fail one comparison: what is not <= 0.5 is looked at more closely.
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
    """Declared bounds; infinity is refused later, with its dimension."""
    if value is None:
        raise ValueError(f"{name} is needed: pass a Gymnasium Box, or low=[...] and high=[...]")
    array = np.array(value, dtype=np.float64)
    return array if np.isinf(array).any() else finite_array(name, value)


def require_moderate(name: str, n_features: int, cure: str) -> None:
    """Grids grow like a power of the dimension: refuse one that no Gram matrix could hold."""
    if n_features > MOST_FEATURES:
        raise ValueError(f"{name} would have {n_features} features, more than {MOST_FEATURES}; {cure}")
