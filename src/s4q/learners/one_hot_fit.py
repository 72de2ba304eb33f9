"""The fits of all levels in one go, where features are one-hot and steps are pooled.

S3Q on held samples does the same level by level, for any features; a test compares the two. It spends most of its time
on calls, since the numbers of such a level are few. Here everything that levels share is made once, and only blocks of
which something was seen are computed: all others have one value.
"""

from dataclasses import dataclass
from typing import final

import numpy as np

from s4q.core.blocks import Array, IntArray
from s4q.core.factors import Factors
from s4q.core.messages import Spec
from s4q.core.optimism import Known, QLevel, Spread, between, highest, with_width
from s4q.core.transitions import regression_targets
from s4q.learners.sorted_rows import SortedRows
from s4q.learners.widths import data_spread, unseen_width, variance_left


@final
@dataclass(frozen=True, eq=False, slots=True)
class OneHotFits:
    """The fits of all levels, and the residual variance of each, (H,)."""

    levels: list[QLevel]
    residuals: Array


def one_hot_fits(
    spec: Spec, rows: SortedRows, gram: Array, n_samples: int, *, ridge: float, kappa: Array
) -> OneHotFits:
    """Fit all levels to pooled steps, from the last to the first, with the bonus of exact features.

    Args:
        spec: The problem; its features are declared exact.
        rows: All steps; `rows.one_hot` is true.
        gram: Their exact Gram matrix, (n_blocks, 1, 1).
        n_samples: Their number.
        ridge: Ridge of every level.
        kappa: Standard errors in the bonus of each level, (H,), before they grow.
    """
    factors, n_blocks = Factors(gram), spec.n_blocks
    freedom, samples = n_samples - factors.all_directions_seen(ridge), n_samples / n_blocks
    whitener = factors.whitener(ridge)
    seen, place = np.unique(rows.blocks, return_inverse=True)
    n_seen, distinct = len(seen), len(seen) == len(place)
    # The last entry stands for all blocks never seen.
    counts = np.append(gram[seen, 0, 0], 0.0)
    regularised = counts + ridge
    known = Known.with_samples(np, np.append(whitener[seen, 0, 0], 1.0 / np.sqrt(ridge)) ** 2, ridge)
    blocks_of = _places(rows.next_blocks, seen, n_blocks)
    fits = np.zeros((2, spec.horizon, n_blocks, 1))  # theta and second; pages of one array are used again by the next
    thetas, seconds = fits[:, :, :, 0]
    moment, moment_sq = np.zeros(n_seen + 1), np.zeros(n_seen + 1)
    residuals, widths, spreads = np.zeros(spec.horizon), list[float](), list[Spread]()
    after = np.zeros(len(place))
    for h in reversed(range(spec.horizon)):
        y = regression_targets(spec, h, rows.rewards, rows.ended, after)
        weighted = rows.weights * y
        for sums, scale in ((moment, weighted), (moment_sq, weighted * y)):
            sums[:-1] = scale if distinct else np.bincount(place, scale, minlength=n_seen)
        theta, second = moment / regularised, moment_sq / regularised
        thetas[h][seen], seconds[h][seen] = theta[:-1], second[:-1]
        fitted = 2 * float(theta @ moment) - float(theta @ (counts * theta))
        residuals[h] = residual = variance_left(float(weighted @ y), fitted, freedom)
        bound = spec.value_bound[h]
        spread = data_spread(
            residual, samples, ridge=ridge, value_bound=bound, kappa=float(kappa[h]), horizon=spec.horizon
        )
        width = unseen_width(bound, ridge)
        spreads.insert(0, spread)
        widths.insert(0, width)
        if h:
            of_block = with_width(np, spread, theta, [second], width, known)
            after = between(np, highest(of_block.take(blocks_of).T), 0.0, bound).take(rows.following)
    fits.setflags(write=False)
    return OneHotFits(QLevel.one_hot(fits[0], whitener, widths, spec.value_bound, fits[1], spreads), residuals)


def _places(blocks: IntArray, seen: IntArray, n_blocks: int) -> IntArray:
    """Where each of the blocks (n, n_actions) stands among those seen, (n_actions, n); len(seen) where it does not."""
    places = np.full(n_blocks, len(seen))
    places[seen] = np.arange(len(seen))
    return places[np.ascontiguousarray(blocks.T)]
