"""Drawing counts: how many of n episodes take each outcome, and how many of those belong to the first m of them.

Few draws are made one at a time, since that is cheaper than a binomial for every outcome; many are drawn as counts.
Exact in law for any n that fits in 64 bits (above 2^53 numpy's binomials fall on a grid of float64 resolution).
"""

from dataclasses import dataclass
from typing import final

import numpy as np

from s4q.core.blocks import Array, IntArray

_NUMPY_LIMIT = 10**9  # numpy's hypergeometric refuses larger populations
_ONE_BY_ONE = 4  # so few draws from an urn of any size are made one after the other


@final
@dataclass(frozen=True, eq=False, slots=True)
class Outcomes:
    """Rows of probabilities, ready for drawing counts: impossible outcomes left out, the likeliest last.

    >>> table = Outcomes.of(np.array([[0.0, 1.0, 0.0], [0.5, 0.0, 0.5]]))
    >>> table.index.tolist()
    [[2, 1], [0, 2]]
    >>> table.draw(np.random.default_rng(0), np.array([0]), np.array([10**17])).tolist()
    [[0, 100000000000000000]]
    """

    chance: Array  # (rows, O): probability of this outcome given that none of the earlier ones came up
    index: IntArray  # (rows, O): which outcome it is; columns of chance 0 mean nothing
    below: Array  # (rows, O): probability of this outcome or an earlier one

    @classmethod
    def of(cls, probabilities: Array) -> "Outcomes":
        """From probabilities (rows, n_outcomes)."""
        width = max(1, int((probabilities > 0).sum(axis=1).max(initial=1)))
        order = np.argsort(probabilities, axis=1, kind="stable")[:, -width:]
        ascending = np.take_along_axis(probabilities, order, axis=1)
        tail = np.cumsum(ascending[:, ::-1], axis=1)[:, ::-1]
        chance = np.divide(ascending, tail, out=np.zeros_like(ascending), where=ascending > 0)
        return cls(np.minimum(chance, 1.0), order, cumulative(ascending))

    def draw(self, rng: np.random.Generator, rows: IntArray, n: IntArray) -> IntArray:
        """Counts (len(rows), O) of n (len(rows),) independent draws from each of these rows."""
        n_columns = self.chance.shape[1]
        if n_columns > 1 and _few_draws(n, n_columns):
            return self._draw_each(rng, rows, n)
        counts = np.zeros((len(rows), n_columns), dtype=np.int64)
        left = np.array(n, dtype=np.int64)
        for column in range(n_columns - 1):
            counts[:, column] = rng.binomial(left, self.chance[rows, column])
            left -= counts[:, column]
        counts[:, -1] = left
        return counts

    def _draw_each(self, rng: np.random.Generator, rows: IntArray, n: IntArray) -> IntArray:
        """The same, with a number from [0, 1) for every draw."""
        of_row = np.repeat(np.arange(len(rows)), n)
        column = (self.below[rows[of_row]] <= rng.random(len(of_row))[:, None]).sum(axis=1)
        n_columns = self.chance.shape[1]
        return np.bincount(of_row * n_columns + column, minlength=len(rows) * n_columns).reshape(-1, n_columns)


def choose(rng: np.random.Generator, counts: IntArray, take: IntArray) -> IntArray:
    """Colours (rows, O) of `take` (rows,) balls drawn without replacement from urns with `counts` (rows, O) balls.

    >>> choose(np.random.default_rng(0), np.array([[3, 0, 2]]), np.array([5])).tolist()
    [[3, 0, 2]]
    """
    total = counts.sum(axis=1)
    few = np.minimum(take, total - take)  # draw the smaller side and, if need be, take the rest
    part = np.zeros_like(counts)
    small = (total < _NUMPY_LIMIT) & (few > 0)
    large = (total >= _NUMPY_LIMIT) & (few > 0)
    if small.any():
        part[small] = _choose_small(rng, counts[small], few[small])
    if large.any():
        part[large] = _choose_large(rng, counts[large], few[large])
    return np.where((take > total - take)[:, None], counts - part, part)


def _choose_small(rng: np.random.Generator, counts: IntArray, take: IntArray) -> IntArray:
    """Shuffle the balls if they are few. Else loop over rows; over outcomes when rows outnumber them."""
    part = np.zeros_like(counts)
    if _few_balls(counts):
        return _choose_by_shuffling(rng, counts, take)
    if len(counts) <= counts.shape[1]:
        for row, (urn, m) in enumerate(zip(counts, take.tolist(), strict=True)):
            part[row] = rng.multivariate_hypergeometric(urn, m, method="marginals")
        return part
    rest, left = counts.sum(axis=1), take.copy()
    for colour in range(counts.shape[1] - 1):
        here = counts[:, colour]
        rest = rest - here
        part[:, colour] = rng.hypergeometric(here, rest, left)
        left = left - part[:, colour]
    part[:, -1] = left
    return part


def _few_draws(n: IntArray, n_outcomes: int) -> bool:
    """Are n (rows,) draws cheaper one at a time? A binomial is needed for every row and all outcomes but one.

    Measured: a draw costs 0.04 us, a binomial 0.07 us, and the call for all rows of one outcome 9 us.
    """
    most = 150 * (n_outcomes - 2) + len(n) * (n_outcomes - 1)
    return bool(n.max(initial=0) <= most and n.sum() <= most)  # the sum of huge numbers may overflow


def _few_balls(counts: IntArray) -> bool:
    """Are the balls in these urns (rows, O) so few that shuffling them is cheaper? Measured in the same way."""
    rows, n_outcomes = counts.shape
    most = (30 + rows) * n_outcomes
    return bool(counts.max(initial=0) <= most and counts.sum() <= most)


def _choose_by_shuffling(rng: np.random.Generator, counts: IntArray, take: IntArray) -> IntArray:
    """Lay the balls of every urn in random order, and take those in front."""
    n_rows, n_colours = counts.shape
    ball = np.repeat(np.arange(n_rows * n_colours), counts.ravel())  # urn and colour of every ball
    urn = ball // n_colours
    shuffled = ball[np.lexsort((rng.random(len(ball)), urn))]  # an urn's balls stay where its balls were
    first = np.cumsum(np.bincount(urn, minlength=n_rows)) - np.bincount(urn, minlength=n_rows)
    in_front = np.arange(len(ball)) - first[urn] < take[urn]
    return np.bincount(shuffled[in_front], minlength=n_rows * n_colours).reshape(n_rows, n_colours)


def _choose_large(rng: np.random.Generator, counts: IntArray, take: IntArray) -> IntArray:
    """Keep each ball with probability take/total, then correct the number kept: it is off by about sqrt(take) only."""
    part = np.zeros_like(counts)
    few = take <= _ONE_BY_ONE
    part[few] = _choose_one_by_one(rng, counts[few], take[few])
    many = ~few
    if many.any():
        urn, want = counts[many], take[many]
        kept = rng.binomial(urn, (want / urn.sum(axis=1))[:, None])
        surplus = kept.sum(axis=1) - want
        over = (surplus > 0)[:, None]
        correction = choose(rng, np.where(over, kept, urn - kept), np.abs(surplus))
        part[many] = kept + np.where(over, -correction, correction)
    return part


def _choose_one_by_one(rng: np.random.Generator, counts: IntArray, take: IntArray) -> IntArray:
    urn = counts.copy()
    for drawn in range(int(take.max(initial=0))):
        rows = np.flatnonzero(take > drawn)
        below = np.cumsum(urn[rows], axis=1)
        ball = rng.integers(0, below[:, -1])
        urn[rows, (below <= ball[:, None]).sum(axis=1)] -= 1
    return counts - urn


def cumulative(probabilities: Array) -> Array:
    """Cumulative sums along the last axis, exactly 1 from the last possible outcome on: u < 1 always finds one."""
    total = np.cumsum(probabilities, axis=-1)
    later = np.cumsum(probabilities[..., ::-1], axis=-1)[..., ::-1]
    rest = np.concatenate([later[..., 1:], np.zeros_like(later[..., :1])], axis=-1)
    return np.where(rest > 0, np.minimum(total, 1.0), 1.0)
