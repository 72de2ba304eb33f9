"""The oracle for the sketch: long vectors, plain loops, every step that ever came; and what was logged of a memory.

Nothing here knows the library. A run is told as a list of events: steps that came, thinnings with their number of rows
and their offset, and fits with the value of the next state before and after. The oracle computes the sums of each fit.
"""

from dataclasses import dataclass, field

import numpy as np


@dataclass
class Row:
    """A step that is held: where it came from and what it stands for."""

    phi: np.ndarray  # (d,), long
    block: int
    key: tuple
    reward: float
    ended: bool
    after: tuple  # the next state, as a key
    weight: float
    new: float  # the part of the weight that is not in the sums yet


@dataclass
class LiteralShelf:
    """All that is known of the steps of one shelf."""

    dim: int
    rows: list[Row] = field(default_factory=list)
    gram: np.ndarray = field(init=False)
    n: int = 0
    thinned: bool = False
    sums: dict[int, np.ndarray] = field(default_factory=dict)  # level to (2, d)

    def __post_init__(self) -> None:
        self.gram = np.zeros((self.dim, self.dim))

    def add(
        self, phi: np.ndarray, block: int, key: tuple, reward: float, ended: bool, after: tuple, count: int
    ) -> None:
        self.gram += count * np.outer(phi, phi)
        self.n += count
        for row in self.rows:
            if row.key == key:
                row.weight += count
                row.new += count
                return
        self.rows.append(Row(phi, block, key, reward, ended, after, float(count), float(count)))

    def settle(self, level: int, old: list[float]) -> None:
        """Add what is new to the sums of a level; old (n,): the targets of the rows with the value of the day."""
        sums = self.sums.get(level, np.zeros((2, self.dim)))
        for row, y in zip(self.rows, old, strict=True):
            sums = sums + row.new * np.stack([row.phi * y, row.phi * y * y])
        self.sums[level] = sums

    def thin(self, n_kept: int, offset: float) -> None:
        """Keep about n_kept rows; what was new must be settled before."""
        order = sorted(range(len(self.rows)), key=lambda i: self.rows[i].block)  # stable: by block, then arrival
        inverse = np.linalg.inv(self.gram + small(self.gram) * np.eye(self.dim))
        leverage = [row.weight * float(row.phi @ inverse @ row.phi) for row in self.rows]
        total = sum(row.weight for row in self.rows)
        share = [one / sum(leverage) + 0.25 * row.weight / total for one, row in zip(leverage, self.rows, strict=True)]
        low, high = 0.0, n_kept / min(share)
        for _ in range(200):  # the c with sum of min(1, c share) = n_kept
            c = (low + high) / 2
            low, high = (c, high) if sum(min(1.0, c * one) for one in share) < n_kept else (low, c)
        kept, passed = [], offset
        for i in order:
            chance = c * share[i]
            if chance > 1.0 - 1e-9:
                kept.append(i)
            else:
                if int(passed + chance) > int(passed):
                    self.rows[i].weight /= chance
                    kept.append(i)
                passed += chance
        self.rows = [self.rows[i] for i in sorted(kept)]
        self.thinned = True

    def fit(self, level: int, new: list[float], old: list[float]) -> tuple[np.ndarray, float]:
        """Sums of phi y and phi y^2, (2, d), and of y^2, with the new targets of the rows; old: those of the sums."""
        direct, change = np.zeros((2, self.dim)), np.zeros((2, self.dim))
        sampled, squares, moment = np.zeros((self.dim, self.dim)), 0.0, np.zeros(self.dim)
        for row, y, z in zip(self.rows, new, old, strict=True):
            for i in range(2):
                direct[i] += row.phi * (row.weight * y ** (i + 1) - (row.weight - row.new) * z ** (i + 1))
                change[i] += row.phi * row.weight * (y ** (i + 1) - z ** (i + 1))
            sampled += row.weight * np.outer(row.phi, row.phi)
            squares += row.weight * y * y
            moment += row.weight * y * row.phi
        if not self.thinned:
            return direct, squares
        regression = np.linalg.solve(sampled + small(sampled) * np.eye(self.dim), change.T)
        sums = self.sums[level] + direct + ((self.gram - sampled) @ regression).T
        self.sums[level] = sums
        theta = np.linalg.solve(self.gram + small(self.gram) * np.eye(self.dim), sums[0])
        left = squares - 2 * theta @ moment + theta @ sampled @ theta  # of the sample
        scale = self.n / sum(row.weight for row in self.rows)
        return sums, max(left, 0.0) * scale + 2 * theta @ sums[0] - theta @ self.gram @ theta


def small(gram: np.ndarray) -> float:
    return max(1e-6, 1e-12 * float(np.trace(gram)))
