"""How far a sum of bounded terms may lie from its mean, with a stated failure probability; both are classical."""

from math import log, sqrt

import numpy as np
from numpy.typing import ArrayLike

from s4q.core.blocks import Array

RARE = 1e-4  # the chance that an honest run fails a row of sampling, jointly over its phases, levels and entries


def phase_share(phase: int, entries: int) -> float:
    """The share of RARE for one of the entries tested in a phase; over all phases they add up to RARE."""
    return RARE / (phase * (phase + 1) * max(entries, 1))


def bernstein(variance: ArrayLike, largest: ArrayLike, delta: float) -> Array:
    """|S - E S| is at most this, but for a chance delta: S a sum of independent terms, variance that of S.

    largest: the most by which one term can leave its mean.

    >>> bernstein(0.0, 1.0, 2 * np.exp(-3)).item()
    2.0
    """
    t = log(2 / delta)
    return np.asarray(np.sqrt(2 * np.asarray(variance) * t) + 2 * np.asarray(largest) * t / 3)


def freedman(variance: Array, largest: float, delta: float) -> Array:
    """|S| is at most this at all times, but for a chance delta: S a martingale with steps of at most `largest`.

    variance: the sum of the conditional variances so far. The inequality is for a variance known beforehand, so it is
    used once for each doubling of it, with a share 1/((j + 1)(j + 2)) of delta for doubling j.
    """
    if largest == 0:
        return np.zeros_like(variance)
    least = largest**2
    doubling = np.ceil(np.log2(np.maximum(np.asarray(variance) / least, 1.0)))
    t = np.log(2 / delta) + np.log((doubling + 1) * (doubling + 2))
    return np.asarray(np.sqrt(2 * least * 2.0**doubling * t) + 2 * largest * t / 3)


def freedman_about(variance: float, guess: float, largest: float, delta: float) -> float:
    """The same, and sharper where the variance comes near a guess that was made beforehand; |S| at one time.

    For each of six slopes around the best one for the guess, exp(slope S - ...) has a mean of at most 1.
    """
    t = log(2 * 6 / delta)
    if largest == 0:
        return 0.0
    slopes = sqrt(2 * t / guess) * 1.6 ** np.arange(-2.5, 3.0)
    steps = np.minimum(slopes * largest, 50.0)
    slopes = steps / largest
    return float(((t + (np.expm1(steps) - steps) * variance / largest**2) / slopes).min())
