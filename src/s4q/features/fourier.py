"""The Fourier basis of order m (Konidaris, Osentoski & Thomas 2011): cosines of the scaled observation."""

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import ArrayLike

from s4q.core.blocks import Array, States
from s4q.core.validation import require_count
from s4q.features.batches import products
from s4q.features.ranges import Ranges, require_moderate


@final
@dataclass(frozen=True, eq=False, init=False)
class Fourier:
    """psi_c(s) = cos(pi c.x) / sqrt(k) for every c in {0..order}^d, x the observation scaled to [0, 1]^d.

    space: a Gymnasium Box with finite bounds; or declare `low` and `high`. k = (order + 1)^d features. Norm: k squares
    of at most 1/k each, so at most 1, whatever x. The constant v is linear in them (c = 0), with a parameter of norm
    sqrt(k) v. Features of a state: PerAction makes a feature map of them.

    >>> Fourier(low=[0.0], high=[2.0], order=1)(np.array([[2.0]])).round(3).tolist()
    [[0.707, -0.707]]
    """

    ranges: Ranges
    order: int
    _frequencies: Array = field(repr=False)  # (d, k): pi c

    _scale: float = field(repr=False)

    proven: ClassVar[bool] = True
    custom: ClassVar[bool] = False

    def __init__(
        self,
        space: Any = None,
        *,
        order: int,
        low: ArrayLike | None = None,
        high: ArrayLike | None = None,
        clip: bool = False,
    ) -> None:
        ranges = Ranges.of(space, low=low, high=high, clip=clip)
        require_count("order", order, "the highest frequency of a dimension", at_least=0)
        n_features = (int(order) + 1) ** ranges.dim
        cure = "take a lower order, or features.RandomFourier, whose number of features you choose"
        require_moderate(f"Fourier of order {order} in {ranges.dim} dimensions", n_features, cure)
        coefficients = np.indices((order + 1,) * ranges.dim).reshape(ranges.dim, -1)
        vars(self).update(
            ranges=ranges, order=int(order), _frequencies=np.pi * coefficients, _scale=1 / math.sqrt(n_features)
        )

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
        """The parameters, as JSON can say them."""
        return {"order": self.order} | self.ranges.config()
