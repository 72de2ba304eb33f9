"""The formulas of the sketch: how a weighted sample of steps stands for all of them.

`StepMemory` calls them once steps have been dropped. Symbols, of one level: G = sum of phi phi^T over all steps that
ever came, exact; G_s and S_w(f) = sum of w phi phi^T and of w phi f over the steps that are held, with weights w.
docs/memory.md says what is proved of them and what is not. Nothing here is random but one offset a caller passes in.
"""

import numpy as np

from s4q.core.blocks import Array, BoolArray
from s4q.core.factors import Factors

THINNED_TO = 0.9  # of the budget: fewer rows are dropped at a time, and the error of a fit is smaller than with a half
_UNIFORM = 0.25  # of the sampling weights, beside the leverage: leverage alone drops what features see badly
_RIDGE = 1e-6  # mu: where the sample shows nothing, nothing is extrapolated
_ROUNDING = 1e-12  # of the trace: a smaller mu is lost in the Gram matrix


def extrapolated(gram: Array, sampled_gram: Array, change: Array, known: Factors | None = None) -> Array:
    """(G - G_s) (G_s + mu)^-1 S_w(f), (m, n_blocks, k): what steps that were dropped add to a change of their targets.

    The change f is regressed on phi over the steps that are held. The regression stands for those that are not. It is
    0 if nothing was dropped.

    Args:
        gram: G, (n_blocks, k, k).
        sampled_gram: G_s, (n_blocks, k, k).
        change: S_w(f) for each of m functions f, (m, n_blocks, k).
        known: Factors of G_s, where there are some.

    >>> extrapolated(np.array([[[8.0]]]), np.array([[[2.0]]]), np.array([[[3.0]]])).round(4).tolist()  # 6/2 times 3
    [[[9.0]]]
    """
    missing = gram - sampled_gram
    mu = tiny_ridge(sampled_gram)
    if gram.shape[-1] == 1:
        return np.asarray(change * (missing / (sampled_gram + mu))[None, :, :, 0])
    white = (known or Factors(sampled_gram)).whitener(mu)
    slope = white.transpose(0, 2, 1) @ (white @ change.transpose(1, 2, 0))  # (n_blocks, k, m)
    return np.asarray((missing @ slope).transpose(2, 0, 1))


def sum_of_squares(
    gram: Array,
    moment: Array,
    sampled_gram: Array,
    sampled_moment: Array,
    squares: float,
    known: Factors | None = None,
) -> float:
    """sum of y^2 over all steps, such that the residual of their fit is that of the sample: it is never negative.

    Args:
        gram: G, (n_blocks, k, k).
        moment: The estimate of the sum of phi y over all steps, (n_blocks, k).
        sampled_gram: G_s, times the number of all steps over the sum of the weights.
        sampled_moment: S_w(y), times the same.
        squares: The sum of w y^2, times the same.
        known: Factors of G, where there are some.
    """
    if gram.shape[-1] == 1:
        theta = moment / (gram[:, :, 0] + tiny_ridge(gram))
    else:
        white = (known or Factors(gram)).whitener(tiny_ridge(gram))
        theta = (white.transpose(0, 2, 1) @ (white @ moment[:, :, None]))[:, :, 0]
    explained, in_sample = (_explained(theta, *one) for one in ((gram, moment), (sampled_gram, sampled_moment)))
    return explained + max(squares - in_sample, 0.0)


def _explained(theta: Array, gram: Array, moment: Array) -> float:
    """2 theta . m - theta . G theta: what a fit takes away from the sum of squares."""
    return 2 * float((theta * moment).sum()) - float((theta * (gram @ theta[:, :, None])[:, :, 0]).sum())


def tiny_ridge(gram: Array) -> float:
    """mu, in the units of a Gram matrix (n_blocks, k, k)."""
    return max(_RIDGE, _ROUNDING * float(np.trace(gram, axis1=-2, axis2=-1).max(initial=0.0)))


def inclusion_probabilities(weights: Array, leverages: Array, n_kept: int) -> Array:
    """p, (n,): the chance of each row to be kept, min(1, c (w l / sum w l + w / (4 sum w))), with sum n_kept.

    Args:
        weights: w, (n,), all positive.
        leverages: l = phi . G^-1 phi, (n,).
        n_kept: How many rows are to be kept, fewer than n.

    >>> inclusion_probabilities(np.array([1.0, 1.0, 2.0]), np.array([0.5, 0.5, 0.5]), 2).tolist()
    [0.5, 0.5, 1.0]
    """
    by_leverage, evenly = weights * leverages, weights / weights.sum()
    share = by_leverage / max(float(by_leverage.sum()), 1e-300) + _UNIFORM * evenly
    order = np.argsort(-share, kind="stable")
    falling = share[order]
    rest = np.cumsum(falling[::-1])[::-1]  # of this row and all after it
    # The first j rows are kept for sure; the others share n_kept - j. The least j for which no chance exceeds 1:
    sure = np.arange(len(share))
    fits = falling * (n_kept - sure) <= rest
    j = int(np.argmax(fits))
    return np.asarray(np.minimum(1.0, share * ((n_kept - j) / rest[j])))


def systematic_sample(probabilities: Array, offset: float) -> BoolArray:
    """Which rows are kept, (n,): each with its probability, and evenly along the order of the rows.

    Args:
        probabilities: p, (n,), in [0, 1].
        offset: A number drawn uniformly from [0, 1).

    >>> systematic_sample(np.array([0.5, 0.5, 1.0, 0.5, 0.5]), 0.2).tolist()
    [False, True, True, False, True]
    """
    sure = probabilities >= 1.0
    steps = np.floor(np.cumsum(np.where(sure, 0.0, probabilities)) + offset)
    return sure | (np.diff(steps, prepend=0.0) > 0)


def allowances(sizes: list[int], total: int) -> list[int]:
    """How many rows each shelf may keep of `total`: the largest cap that is the same for all of them, and 1 at least.

    >>> allowances([10, 2, 7], 12)
    [5, 2, 5]
    """
    total = max(total, sum(size > 0 for size in sizes))
    kept, left = [0] * len(sizes), total
    for rank, i in enumerate(sorted(range(len(sizes)), key=lambda i: sizes[i])):
        kept[i] = min(sizes[i], left // (len(sizes) - rank))
        left -= kept[i]
    return kept
