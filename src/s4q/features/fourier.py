"""The Fourier basis of order m (Konidaris, Osentoski & Thomas 2011): cosines of the scaled observation.

It is the default for small boxes. The number of features grows like a power of the dimension; RandomFourier does not.
"""

import math
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import ArrayLike

from s4q.core.blocks import Array, IntArray, States
from s4q.core.validation import require_count
from s4q.features.batches import products
from s4q.features.spaces import Ranges, require_moderate


@final
@dataclass(frozen=True, eq=False, init=False, repr=False)
class Fourier:
    """psi_c(s) = cos(pi c.x) / sqrt(k) for every c in {0..order}^d, where x is the observation scaled to [0, 1]^d.

    There are k = (order + 1)^d features, or fewer with `interactions`. Norm: k squares of at most 1/k each, so at most
    1 for every x. The constant v is linear in them (c = 0), with a parameter of norm sqrt(k) v.
    PerAction makes a feature map of them.

    Args:
        space: A Gymnasium Box with finite bounds. None (default): declare `low` and `high`.
        order: Highest frequency of a dimension.
        interactions: The most dimensions that one feature may depend on: 2 takes single dimensions and pairs. None
            (default): all of them.
        low: Lower ends of the range of each dimension, in place of a space.
        high: Upper ends, in place of a space.
        clip: True moves an observation outside the range to its nearest end. False (default) refuses it.

    >>> Fourier(low=[0.0], high=[2.0], order=1)(np.array([[2.0]])).round(3).tolist()
    [[0.707, -0.707]]
    """

    ranges: Ranges
    order: int
    interactions: int | None
    _frequencies: Array  # (d, k): pi c
    _scale: float

    proven: ClassVar[bool] = True
    custom: ClassVar[bool] = False

    def __init__(
        self,
        space: Any = None,
        *,
        order: int,
        interactions: int | None = None,
        low: ArrayLike | None = None,
        high: ArrayLike | None = None,
        clip: bool = False,
    ) -> None:
        ranges = Ranges.of(space, low=low, high=high, clip=clip)
        require_count("order", order, "the highest frequency of a dimension", at_least=0)
        if interactions is not None:
            require_count("interactions", interactions, "the most dimensions that one feature depends on")
        most = ranges.dim if interactions is None else min(int(interactions), ranges.dim)
        n_features = sum(math.comb(ranges.dim, j) * int(order) ** j for j in range(most + 1))
        cure = (
            "take a lower order or fewer interactions, or features.RandomFourier, whose number of features you choose"
        )
        require_moderate(f"Fourier of order {order} in {ranges.dim} dimensions", n_features, cure)
        coefficients = _coefficients(ranges.dim, int(order), most)
        vars(self).update(ranges=ranges, order=int(order), interactions=None if interactions is None else most)
        vars(self).update(_frequencies=np.pi * coefficients, _scale=1 / math.sqrt(n_features))

    def __repr__(self) -> str:
        some = "" if self.interactions is None else f", interactions={self.interactions}"
        return f"Fourier({self.ranges.dim} inputs, order={self.order}{some}, dim={self.dim})"

    @property
    def dim(self) -> int:
        return int(self._frequencies.shape[1])

    def __call__(self, states: States) -> Array:
        """(n, k) of observations (n, d)."""
        angles = products(self.ranges.unit(states), self._frequencies)
        np.cos(angles, out=angles)
        angles *= self._scale
        return angles

    def config(self) -> dict[str, Any]:
        """The parameters, in a form that JSON can hold."""
        return {"order": self.order, "interactions": self.interactions} | self.ranges.config()


def _coefficients(dim: int, order: int, most: int) -> IntArray:
    """Every c in {0..order}^dim with at most `most` entries above 0, in the order of counting: (dim, k)."""
    if most == dim:
        return np.indices((order + 1,) * dim, dtype=np.int64).reshape(dim, -1)
    found = [(0,) * dim]
    for size in range(1, most + 1):
        for where in combinations(range(dim), size):
            for values in product(range(1, order + 1), repeat=size):
                entries = dict(zip(where, values, strict=True))
                found.append(tuple(entries.get(j, 0) for j in range(dim)))
    return np.array(sorted(found), dtype=np.int64).T
