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
from s4q.learners.widths import TABLE, data_spread, unseen_width, variance_left


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
    counts = gram[seen, 0, 0]
    regularised = counts + ridge
    # What is computed of blocks has one entry more, which stands for all blocks never seen.
    known = Known.with_samples(np, np.append(whitener[seen, 0, 0], 1.0 / np.sqrt(ridge)) ** 2, ridge)
    places = _places(seen, n_blocks)
    next_places = places[np.ascontiguousarray(rows.next_blocks.T)]  # (n_actions, n)
    thetas, seconds = fits = np.zeros((2, spec.horizon, n_seen + 1))
    residuals, widths, spreads = np.zeros(spec.horizon), np.zeros(spec.horizon), list[Spread]()
    after = np.zeros(len(place))
    for h in reversed(range(spec.horizon)):
        y = regression_targets(spec, h, rows.rewards, rows.ended, after)
        weighted = rows.weights * y
        moment, moment_sq = (
            scale if distinct else np.bincount(place, scale, minlength=n_seen) for scale in (weighted, weighted * y)
        )
        theta = np.divide(moment, regularised, out=thetas[h, :-1])
        np.divide(moment_sq, regularised, out=seconds[h, :-1])
        fitted = 2 * float(theta @ moment) - float(theta @ (counts * theta))
        residuals[h] = residual = variance_left(float(weighted @ y), fitted, freedom)
        bound = spec.value_bound[h]
        spread = data_spread(
            residual,
            samples,
            ridge=ridge,
            value_bound=bound,
            kappa=float(kappa[h]),
            horizon=spec.horizon,
            scale=TABLE,
        )
        widths[h] = width = unseen_width(bound, ridge, float(kappa[h]))
        spreads.insert(0, spread)
        if h:
            of_block = with_width(np, spread, thetas[h], [seconds[h]], width, known)
            after = between(np, highest(of_block.take(next_places).T), 0.0, bound).take(rows.following)
    whole = fits.take(places, axis=2)  # one array: its pages are used again by the next fit
    whole.setflags(write=False)
    theta, second = whole[..., None]
    return OneHotFits(QLevel.one_hot(theta, whitener, widths, spec.value_bound, second, spreads), residuals)


def _places(seen: IntArray, n_blocks: int) -> IntArray:
    """Where each block stands among those seen, (n_blocks,); len(seen) where it does not."""
    places = np.full(n_blocks, len(seen))
    places[seen] = np.arange(len(seen))
    return places
