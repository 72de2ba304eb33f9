"""Tile coding: several grids over the observations, each shifted a little against the others.

It suits boxes of few dimensions with sharp edges in their values. Features are 0 outside the tiles that hold the
observation.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import ArrayLike

from s4q.core.blocks import Array, IntArray, States
from s4q.core.validation import require_count
from s4q.features.spaces import Ranges, require_moderate


@final
@dataclass(frozen=True, eq=False, init=False, repr=False)
class Tiles:
    """psi_i(s) = 1 / sqrt(n_tilings) if the observation lies in tile i, else 0.

    Tiling t is shifted by (c_j t mod T) / T tiles in dimension j, where T = n_tilings and c_j is the j-th odd number
    that has no factor in common with T. So the T grids are spread evenly, and no two agree in any dimension. Tiling 0
    is not shifted; the others need one more tile per dimension.

    Norm: each tiling is a partition, so exactly T entries are 1/sqrt(T), and the norm is exactly 1. The constant v is
    linear in them, with the parameter v / sqrt(T) everywhere. PerAction makes a feature map of them.

    Args:
        space: A Gymnasium Box with finite bounds. None (default): declare `low` and `high`.
        n_tilings: Number T of grids.
        tiles_per_dim: Number of tiles that fit into the range, one number or one per dimension.
        low: Lower ends of the range of each dimension, in place of a space.
        high: Upper ends, in place of a space.
        clip: True moves an observation outside the range to its nearest end. False (default) refuses it.

    >>> psi = Tiles(low=[0.0], high=[1.0], n_tilings=2, tiles_per_dim=2)
    >>> psi.dim, psi(np.array([[0.3]])).round(3).tolist()
    (5, [[0.707, 0.0, 0.0, 0.707, 0.0]])
    """

    ranges: Ranges
    n_tilings: int
    tiles_per_dim: tuple[int, ...]
    dim: int
    _shifts: Array  # (T, d): in tiles
    _last: IntArray  # (T, d): the last tile of each dimension
    _strides: IntArray  # (T, d)
    _first: IntArray  # (T,): the first feature of each tiling

    proven: ClassVar[bool] = True
    custom: ClassVar[bool] = False

    def __init__(
        self,
        space: Any = None,
        *,
        n_tilings: int,
        tiles_per_dim: int | Sequence[int],
        low: ArrayLike | None = None,
        high: ArrayLike | None = None,
        clip: bool = False,
    ) -> None:
        ranges = Ranges.of(space, low=low, high=high, clip=clip)
        require_count("n_tilings", n_tilings, "the number of grids")
        given = list(tiles_per_dim) if isinstance(tiles_per_dim, Sequence) else [tiles_per_dim] * ranges.dim
        if len(given) != ranges.dim:
            raise ValueError(
                f"tiles_per_dim must be one number or one per dimension, {ranges.dim}; got {tiles_per_dim}"
            )
        for count in given:
            require_count("tiles_per_dim", count, "the number of tiles that fit into the range")
        counts = [int(count) for count in given]
        dim = math.prod(counts) + (int(n_tilings) - 1) * math.prod(count + 1 for count in counts)
        require_moderate("Tiles", dim, "take fewer tiles or tilings, or features.RandomFourier")
        shifts = _shifts(int(n_tilings), ranges.dim)
        sizes = np.array(counts) + (shifts > 0)
        strides = np.array(
            [[math.prod(row[j + 1 :]) for j in range(len(row))] for row in sizes.tolist()], dtype=np.int64
        )
        first = np.concatenate([[0], np.cumsum(sizes.prod(axis=1))[:-1]])
        vars(self).update(ranges=ranges, n_tilings=int(n_tilings), tiles_per_dim=tuple(counts), dim=dim)
        vars(self).update(_shifts=shifts, _last=sizes - 1, _strides=strides, _first=first)

    def __repr__(self) -> str:
        sizes = f"n_tilings={self.n_tilings}, tiles_per_dim={self.tiles_per_dim}, dim={self.dim}"
        return f"Tiles({self.ranges.dim} inputs, {sizes})"

    def __call__(self, states: States) -> Array:
        """(n, dim) of observations (n, d)."""
        active = self.active(states)
        psi = np.zeros((len(active), self.dim))
        psi[np.arange(len(active))[:, None], active] = 1 / math.sqrt(self.n_tilings)
        return psi

    def active(self, states: States) -> IntArray:
        """The tile of each tiling that holds the observation, (n, n_tilings).

        Args:
            states: Observations (n, d).
        """
        places = self.ranges.unit(states)[:, None, :] * np.array(self.tiles_per_dim) + self._shifts
        # Only x = 1 exactly reaches one tile too far: it belongs to the last.
        tiles = np.minimum(places.astype(np.int64), self._last)
        return np.asarray((tiles * self._strides).sum(axis=-1) + self._first)

    def config(self) -> dict[str, Any]:
        """The parameters, in a form that JSON can hold."""
        return {"n_tilings": self.n_tilings, "tiles_per_dim": list(self.tiles_per_dim)} | self.ranges.config()


def _shifts(n_tilings: int, dim: int) -> Array:
    """Shifts (T, d), in tiles. With a common factor of step and T, two tilings would agree in a dimension."""
    steps: list[int] = []
    candidate = 1
    while len(steps) < dim:
        if math.gcd(candidate, n_tilings) == 1:
            steps.append(candidate)
        candidate += 2
    return np.outer(np.arange(n_tilings), steps) % n_tilings / n_tilings
