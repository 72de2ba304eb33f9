"""Normalised radial basis functions: Gaussian bumps around centres, as shares of their sum.

They suit boxes of few dimensions where you know which regions matter: place the centres there.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import ArrayLike

from s4q.core.blocks import Array, States
from s4q.core.validation import finite_array, require_count, require_positive, require_shape
from s4q.features.spaces import Ranges, require_moderate


@final
@dataclass(frozen=True, eq=False, init=False, repr=False)
class RBF:
    """psi_i(s) = g_i / sum_j g_j with g_i = exp(-|x - x_i|^2 / (2 width^2)), x the observation in [0, 1]^d.

    Norm: the entries are shares p_i of 1, and sum p_i^2 <= sum p_i = 1. The constant v is linear in them, with the
    parameter v everywhere. The nearest centre is factored out of the shares, so that nothing underflows far away from
    all centres. PerAction makes a feature map of them.

    Args:
        space: A Gymnasium Box with finite bounds. None (default): declare `low` and `high`.
        centres: Points (k, d) in the units of the observations; or a whole number for a grid with that many per
            dimension, ends included.
        width: Width of a bump as a share of the range; the distance between neighbours is a good start.
        low: Lower ends of the range of each dimension, in place of a space.
        high: Upper ends, in place of a space.
        clip: True moves an observation outside the range to its nearest end. False (default) refuses it.

    >>> RBF(low=[0.0], high=[4.0], centres=[[0.0], [4.0]], width=0.5)(np.array([[2.0]])).tolist()
    [[0.5, 0.5]]
    """

    ranges: Ranges
    centres: Array  # (k, d), in the units of the observations
    width: float
    _unit: Array  # (d, k): centres in the unit cube, divided by sqrt(2) width

    proven: ClassVar[bool] = True
    custom: ClassVar[bool] = False

    def __init__(
        self,
        space: Any = None,
        *,
        centres: int | ArrayLike,
        width: float,
        low: ArrayLike | None = None,
        high: ArrayLike | None = None,
        clip: bool = False,
    ) -> None:
        ranges = Ranges.of(space, low=low, high=high, clip=clip)
        require_positive("width", width, "the width of a bump as a share of the range")
        points = (
            _grid(int(centres), ranges) if isinstance(centres, (int, np.integer)) else finite_array("centres", centres)
        )
        require_shape("centres", points, (None, ranges.dim), "(k, d)")
        if not len(points):
            raise ValueError("centres must hold at least one point; got none")
        require_moderate("RBF", len(points), "take fewer centres")
        unit = (points - ranges.low) / ranges.width
        scaled = np.ascontiguousarray(unit.T) / (np.sqrt(2) * float(width))
        vars(self).update(ranges=ranges, centres=points, width=float(width), _unit=scaled)

    def __repr__(self) -> str:
        return f"RBF({self.ranges.dim} inputs, width={self.width:g}, dim={self.dim})"

    @property
    def dim(self) -> int:
        return len(self.centres)

    def __call__(self, states: States) -> Array:
        """(n, k) of observations (n, d)."""
        scaled = self.ranges.unit(states) / (np.sqrt(2) * self.width)
        distances = np.square(scaled[:, :1] - self._unit[0])
        for j in range(1, self.ranges.dim):  # not |x|^2 - 2 x.c + |c|^2, which cancels
            distances += np.square(scaled[:, j : j + 1] - self._unit[j])
        shares = np.exp(distances.min(axis=1, keepdims=True) - distances)
        shares /= shares.sum(axis=1, keepdims=True)
        return np.asarray(shares)

    def config(self) -> dict[str, Any]:
        """The parameters, in a form that JSON can hold."""
        return {"centres": self.centres.tolist(), "width": self.width} | self.ranges.config()


def _grid(per_dim: int, ranges: Ranges) -> Array:
    require_count("centres", per_dim, "the number of centres per dimension of a grid", at_least=2)
    require_moderate("RBF", int(per_dim) ** ranges.dim, "take fewer centres, or list them")
    axes = [np.linspace(low, high, per_dim) for low, high in zip(ranges.low, ranges.high, strict=True)]
    return np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")], axis=1)
