"""Random Fourier features (Rahimi & Recht 2007): sines and cosines at random frequencies.

They suit boxes of many dimensions, because you choose the number of features. The frequencies are drawn once, from a
seed that belongs to the map.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import ArrayLike

from s4q.core.blocks import Array, States
from s4q.core.validation import finite_array, require_count, require_positive
from s4q.features.batches import products
from s4q.features.spaces import Ranges, require_moderate


@final
@dataclass(frozen=True, eq=False, init=False, repr=False)
class RandomFourier:
    """cos(w.x) and sin(w.x) at m = dim // 2 frequencies w ~ N(0, I / width^2), x the observation in [0, 1]^d.

    An odd `dim` adds a constant feature (m + 1 parts in all), an even one has none. Choose odd when targets may have
    an offset, as values mostly do.

    Norm: each part has cos^2 + sin^2 = 1 (or 1^2), and all are divided by the square root of their number, so it is
    exactly 1, where the usual sqrt(2/D) cos(w.x + b) reaches sqrt 2. PerAction makes a feature map of them.

    Args:
        space: A Gymnasium Box with finite bounds. None (default): declare `low` and `high`.
        dim: Number of features, at least 2.
        width: Width of the Gaussian kernel as a share of the range, one number or one per dimension.
        seed: Seed of the frequencies, 0 by default. It is part of the map: the same parameters make the same map.
        low: Lower ends of the range of each dimension, in place of a space.
        high: Upper ends, in place of a space.
        clip: True moves an observation outside the range to its nearest end. False (default) refuses it.

    >>> psi = RandomFourier(low=[0, 0], high=[1, 1], dim=65, width=0.3, seed=0)
    >>> psi.dim, round(float(np.linalg.norm(psi(np.array([[0.2, 0.9]])))), 12)
    (65, 1.0)
    """

    ranges: Ranges
    dim: int
    width: Array  # (d,)
    seed: int
    _frequencies: Array  # (d, m)
    _scale: float

    proven: ClassVar[bool] = True
    custom: ClassVar[bool] = False

    def __init__(
        self,
        space: Any = None,
        *,
        dim: int,
        width: ArrayLike,
        seed: int = 0,
        low: ArrayLike | None = None,
        high: ArrayLike | None = None,
        clip: bool = False,
    ) -> None:
        ranges = Ranges.of(space, low=low, high=high, clip=clip)
        require_count("dim", dim, "the number of features (a pair for each frequency)", at_least=2)
        require_moderate("RandomFourier", dim, "take fewer")
        require_count("seed", seed, "the seed of the frequencies", at_least=0)
        widths = finite_array("width", width)
        if widths.shape not in ((), (ranges.dim,)):
            raise ValueError(f"width must be one number or one per dimension, ({ranges.dim},); got {widths.shape}")
        for value in widths.ravel().tolist():
            require_positive("width", value, "the width of the kernel as a share of the range")
        rng = np.random.default_rng(np.random.SeedSequence(int(seed)))
        widths = np.broadcast_to(widths, (ranges.dim,)).copy()
        frequencies = rng.standard_normal((ranges.dim, dim // 2)) / widths[:, None]
        scale = 1 / math.sqrt(dim // 2 + dim % 2)
        vars(self).update(ranges=ranges, dim=int(dim), width=widths, seed=int(seed))
        vars(self).update(_frequencies=frequencies, _scale=scale)

    def __repr__(self) -> str:
        return f"RandomFourier({self.ranges.dim} inputs, dim={self.dim}, seed={self.seed})"

    def __call__(self, states: States) -> Array:
        """(n, dim) of observations (n, d): the cosines, the sines and, if dim is odd, the constant."""
        angles = products(self.ranges.unit(states), self._frequencies)
        n, m = angles.shape
        psi = np.empty((n, self.dim))
        np.cos(angles, psi[:, :m])
        np.sin(angles, psi[:, m : 2 * m])
        if self.dim > 2 * m:
            psi[:, -1] = 1.0
        psi *= self._scale
        return psi

    def config(self) -> dict[str, Any]:
        """The parameters, in a form that JSON can hold."""
        return {"dim": self.dim, "width": self.width.tolist(), "seed": self.seed} | self.ranges.config()
