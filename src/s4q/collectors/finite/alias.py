"""Alias tables: one draw from a row of probabilities in constant time, for many rows at once."""

from dataclasses import dataclass
from typing import final

import numpy as np

from s4q.core.blocks import Array, IntArray


@final
@dataclass(frozen=True, eq=False, slots=True)
class AliasTable:
    """Rows of probabilities over their support. A draw falls into column floor(u K), then stays or goes to its alias.

    >>> table = AliasTable.of(np.array([[0.0, 1.0], [0.5, 0.5]]))
    >>> table.draw(np.array([0, 1, 1]), np.array([0.9, 0.1, 0.9])).tolist()
    [1, 0, 1]
    """

    stay: Array  # (rows * K,)
    index: IntArray  # (rows * K, 2): the outcome if it goes, if it stays
    width: int  # K

    @classmethod
    def of(cls, probabilities: Array) -> "AliasTable":
        """From rows that sum to 1, (rows, outcomes)."""
        width = int(np.count_nonzero(probabilities, axis=1).max())
        support = np.argsort(probabilities == 0, axis=1, kind="stable")[:, :width]
        stay, alias = _alias(np.take_along_axis(probabilities, support, axis=1))
        index = np.stack([np.take_along_axis(support, alias, axis=1), support], axis=-1)
        return cls(stay.ravel(), index.reshape(-1, 2), width)

    def draw(self, rows: IntArray, uniform: Array) -> IntArray:
        """An outcome for each row, from a number in [0, 1)."""
        if self.width == 1:
            return np.take(self.index[:, 1], rows)
        scaled = uniform * self.width
        column = scaled.astype(np.int64)
        cell = rows * self.width + column
        stays = (scaled - column) < self.stay[cell]
        return np.asarray(np.take(self.index, 2 * cell + stays))


def _alias(probabilities: Array) -> tuple[Array, IntArray]:
    """Chance to stay and alias of each column, both (rows, K).

    Walker's method, all rows at once: columns below 1/K are topped up by one above it; when that one has fallen
    below, the next one tops it up in turn. The lightest go first, so rounding never leaves an impossible one alone.
    """
    n_rows, width = probabilities.shape
    mass = probabilities * width
    light = mass <= 1.0
    order = np.argsort(np.where(light, mass, np.inf), axis=1, kind="stable")
    rows = np.arange(n_rows)
    stay, alias = np.ones_like(mass), np.tile(np.arange(width), (n_rows, 1))
    n_light = light.sum(axis=1)
    lower, giver = np.zeros(n_rows, dtype=np.int64), n_light.copy()
    left = mass[rows, order[rows, np.minimum(giver, width - 1)]]
    for _ in range(width):
        full = left > 1.0
        tops = rows[(giver < width) & full & (lower < n_light)]
        passes = rows[(giver < width - 1) & ~full]
        column, source = order[tops, lower[tops]], order[tops, giver[tops]]
        stay[tops, column], alias[tops, column] = mass[tops, column], source
        left[tops] += mass[tops, column] - 1.0
        lower[tops] += 1
        column, source = order[passes, giver[passes]], order[passes, giver[passes] + 1]
        stay[passes, column], alias[passes, column] = left[passes], source
        left[passes] += mass[passes, source] - 1.0
        giver[passes] += 1
    return stay, alias
