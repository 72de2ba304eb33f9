"""Widths of the bonus: how far a fit may lie from what it estimates, one formula a function."""

from dataclasses import dataclass
from math import inf, log, sqrt
from typing import final

import numpy as np

from s4q.core.blocks import Array
from s4q.core.factors import Factors
from s4q.core.least_squares import Moments
from s4q.core.optimism import QLevel, Spread


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class Theory:
    """The numbers in which `paper` and `tight` differ: the same proofs, with the printed and with the best steps."""

    ridge: float  # times log(64 d H p^2 n^2 / delta)
    trigger: float  # times log(64 H p^2 n^2 / delta)
    risk: float  # times M^2 [d log(32 B n M) + log(1/delta_fit)]
    inflation: float  # width of the bonus over radius of the fit: the empirical covariance may be too large


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class DataScale:
    """How the bonus of `practical` follows from the spread of the targets."""

    errors: float  # standard errors in the bonus with many levels, before they grow
    one_level: float  # the same with one level; with more it is divided by the root of their number, down to `errors`
    growth: float  # of their square, per logarithm of the samples a feature
    floor: float  # least standard deviation of a target, as a share of the value bound, up to 10 levels


# The bonus of tables is narrow at first, because a wide one costs more than it gains in short runs, and it widens with
# the samples. A narrow bonus needs a higher floor: after a few equal samples the floor is most of it.
TABLE = DataScale(errors=0.25, one_level=0.5, growth=0.3, floor=0.06)
EXACT = DataScale(errors=0.5, one_level=0.5, growth=0.05, floor=0.03)
INEXACT = DataScale(errors=0.2, one_level=0.2, growth=0.05, floor=0.03)
_LOWER_ORDER = 2.5  # times the geometric mean of the value bound and the residual's standard deviation
_ROUNDING = 1e-11  # of the sum of squares: what a fit leaves over below it is rounding, and what a tiny ridge adds
PAPER = Theory(ridge=4 / log(36 / 35), trigger=32 * 2 + 8 * 7 / 3, risk=64.0, inflation=sqrt(2))
TIGHT = Theory(ridge=2 / (4 / 3 * log(4 / 3) - 1 / 3), trigger=16.2, risk=32.0, inflation=sqrt(4 / 3))


def risk_radius(
    theory: Theory, *, dim: int, n: int, ball: float, largest_target: float, ridge: float, log_inverse_delta: float
) -> float:
    """alpha_u: radius of a fit around the best on-policy predictor, from an excess-risk bound; numbers of order 1.

    >>> round(risk_radius(PAPER, dim=10, n=10**6, ball=1, largest_target=2, ridge=6533, log_inverse_delta=7.56))
    369
    """
    largest = ball + largest_target  # M: the largest residual
    cover = dim * max(log(32 * ball * n * largest), 0.0) + log_inverse_delta
    return sqrt(theory.risk * largest**2 * cover + 2 + 4 * ball**2 * ridge)  # [Thm:FitRadius]


def fixed_design_radius(
    gram: Array, *, ridge: float, half_range: float, ball: float, log_inverse_delta: float
) -> Array:
    """Radius per block, (n_blocks,), when the features are exact and the samples of a level independent given them.

    >>> fixed_design_radius(np.zeros((1, 1, 1)), ridge=4.0, half_range=0.5, ball=1.0, log_inverse_delta=8.0).tolist()
    [4.0]
    """
    seen, t = Factors(gram).directions_seen(ridge), log_inverse_delta
    noise = half_range * np.sqrt(seen + 2 * np.sqrt(seen * t) + 2 * t)
    return np.asarray(noise + ball * sqrt(ridge))  # [Thm:RealisableRadius]


def self_normalised_radius(
    gram: Array, *, ridge: float, half_range: float, ball: float, log_inverse_delta: float
) -> Array:
    """Radius per block, (n_blocks,), when the features are exact and samples depend on each other through time.

    >>> self_normalised_radius(np.zeros((1, 1, 1)), ridge=4.0, half_range=0.5, ball=1.0, log_inverse_delta=8.0).tolist()
    [4.0]
    """
    k = gram.shape[-1]
    gain = np.linalg.slogdet(gram / ridge + np.eye(k))[1]
    noise = half_range * np.sqrt(2 * log_inverse_delta + np.maximum(gain, 0.0))
    return np.asarray(noise + ball * sqrt(ridge))  # [Thm:PooledRadius]


def with_data_scaled_bonus(
    fit: QLevel, moments: Moments, *, ridge: float, value_bound: float, kappa: float, horizon: int, exact: bool
) -> QLevel:
    """The ridge fit of a level with a bonus whose width is the spread of the targets; no guarantee.

    The value bound, or a share of it, for a direction never seen, and next to nothing of it after some visits; then
    kappa standard errors. kappa grows slowly with the number of samples, so that nothing is given up for good.

    With exact features the variance near phi comes from a fit of the squared targets. It is shrunk, with the weight of
    one sample, to the residual of the whole fit plus a floor: one lucky sample must not look like certainty. A few
    equal samples still do, and would end the search for ever. So a term that falls like 1 / n is added, as in
    Bernstein's inequality. It has the residual in it, so it is 0 where nothing is random.

    With other features a fit of squares is off by more than the variance. There the residual stands for all directions.
    Those that are one-hot stand for groups of states; see `group_deviation`.

    Args:
        fit: The fit, without a bonus.
        moments: The sums that were fitted.
        ridge: Ridge of the fit.
        value_bound: Of the level.
        kappa: Standard errors in the bonus, before they grow.
        horizon: Number of levels.
        exact: Are the features declared exact?
    """
    residual = residual_variance(moments, fit.theta, ridge)
    samples = moments.n / fit.theta.size
    scale = data_scale(exact, fit.theta.shape[1])
    spread = data_spread(
        residual, samples, ridge=ridge, value_bound=value_bound, kappa=kappa, horizon=horizon, scale=scale
    )
    unseen = unseen_width(value_bound, ridge, kappa)
    whitener = moments.factors.whitener(ridge)
    if not exact:
        # A block of which nothing was seen, such as an action never tried, is worth the whole bound.
        share = np.where(moments.factors.blocks_seen(), unseen_share(fit.theta.shape[1]), 1.0)
        deviation: Array | float = sqrt(spread.noise)
        if fit.theta.shape[1] == 1:
            deviation = deviation + group_deviation(moments.gram[:, 0, 0], value_bound)
        return fit.with_bonus(whitener, share * unseen + spread.kappa * deviation)
    second = moments.factors.solve(moments.moment_sq, ridge)
    second.setflags(write=False)
    return fit.with_bonus(whitener, unseen, second=second, spread=spread)


def data_spread(
    residual: float, samples: float, *, ridge: float, value_bound: float, kappa: float, horizon: int, scale: DataScale
) -> Spread:
    """The numbers of the bonus of `with_data_scaled_bonus`.

    Args:
        residual: Residual variance of the whole fit.
        samples: Samples a feature.
        ridge: Ridge of the fit.
        value_bound: Of the level.
        kappa: Standard errors in the bonus, before they grow.
        horizon: Number of levels.
        scale: That of the features.
    """
    floor = scale.floor * root_of_levels(horizon) * value_bound
    return Spread(
        noise=residual + floor**2,
        ceiling=value_bound**2 / 4,
        ridge=ridge,
        kappa=kappa * sqrt(1 + scale.growth * log(max(samples, 1.0))),
        lower_order=_LOWER_ORDER * sqrt(value_bound * sqrt(residual)),
    )


def unseen_width(value_bound: float, ridge: float, kappa: float) -> float:
    """The width that makes the bonus of a direction never seen the value bound; 0 where there is to be no bonus.

    >>> unseen_width(2.0, ridge=0.25, kappa=0.1), unseen_width(2.0, ridge=0.25, kappa=0)
    (1.0, 0.0)
    """
    return value_bound * sqrt(ridge) if kappa else 0.0


def practical_ridge(exact: bool, block_dim: int) -> float:
    """The ridge of `practical`.

    Features that are exact, or one-hot, need next to none. Others are also asked about states unlike those seen, and
    there a fit without a ridge can be wrong by any amount. With theirs a parameter as large as the value bound costs
    as much as noise of three hundredths of that bound.

    >>> practical_ridge(exact=False, block_dim=9), practical_ridge(exact=False, block_dim=1)
    (0.001, 1e-06)
    """
    return 1e-6 if exact or block_dim == 1 else 1e-3


def unseen_share(block_dim: int) -> float:
    """How much of the value bound a direction never seen is worth to `practical`, where features are not exact.

    This is for blocks of which something was seen.

    Among smooth features no state is a wholly new direction. With all of the bound and their large ridge they explore
    for too long, with a tenth of it they stay where it is comfortable.

    >>> unseen_share(9), unseen_share(1)
    (0.3, 1.0)
    """
    return 1.0 if block_dim == 1 else 0.3


def group_deviation(visits: Array, value_bound: float) -> Array:
    """What is added to the deviation of targets where a one-hot feature stands for unlike states, (n_blocks,).

    n visits to a group tell nothing of those of its states that were not among them. By the rule of succession the
    next visit is to such a state about once in n times, and its target may be anything up to the value bound. A bonus
    of the bound over n needs a deviation of the bound over sqrt(n).

    Args:
        visits: Visits to each group, or sums of phi^2 where features are not 1, (n_blocks,).
        value_bound: Of the level.

    >>> group_deviation(np.array([0.0, 1.0, 4.0]), value_bound=2.0).tolist()
    [2.0, 2.0, 1.0]
    """
    return np.asarray(value_bound / np.sqrt(np.maximum(visits, 1.0)))


def data_scale(exact: bool, block_dim: int) -> DataScale:
    """The scale of a kind of features.

    Args:
        exact: Are the features declared exact?
        block_dim: Length of a block; 1 for one-hot features.

    >>> data_scale(exact=True, block_dim=1).errors, data_scale(exact=True, block_dim=9).errors
    (0.25, 0.5)
    """
    if not exact:
        return INEXACT
    return TABLE if block_dim == 1 else EXACT


def standard_errors(scale: DataScale, horizon: int) -> float:
    """How many standard errors the bonus has, before they grow with the samples.

    The bonuses of an episode add up over its levels like their number, and independent errors only like its root. So a
    level of a table needs less of a bonus the more levels there are, and a bandit, which has one, needs the most.

    Args:
        scale: That of the features.
        horizon: Number of levels.

    >>> [round(standard_errors(TABLE, horizon), 2) for horizon in (1, 2, 3, 4, 100)], standard_errors(EXACT, 1)
    ([0.5, 0.35, 0.29, 0.25, 0.25], 0.5)
    """
    return max(scale.errors, scale.one_level / sqrt(horizon))


def root_of_levels(horizon: int) -> float:
    """By how much the floor of a deviation is less with many levels, whose bonuses add up.

    >>> root_of_levels(5), root_of_levels(40)
    (1.0, 0.5)
    """
    return min(1.0, sqrt(10 / horizon))


def residual_variance(moments: Moments, theta: Array, ridge: float) -> float:
    """Residual sum of squares of a fit over its degrees of freedom.

    >>> seen = Moments.of(np.ones((4, 1)), np.zeros(4, int), np.array([0.0, 1.0, 0.0, 1.0]), n_blocks=1)
    >>> round(residual_variance(seen, np.array([[0.5]]), ridge=1e-9), 6)
    0.333333
    """
    return moments.remembered(theta, ridge, lambda: _residual_variance(moments, theta, ridge))


def _residual_variance(moments: Moments, theta: Array, ridge: float) -> float:
    one = moments.gram.shape[-1] == 1  # one-hot features: no product to form
    image = moments.gram[:, :, 0] * theta if one else (moments.gram @ theta[:, :, None])[:, :, 0]
    fitted = 2 * float(np.vdot(theta, moments.moment)) - float(np.vdot(theta, image))
    return variance_left(moments.sum_y2, fitted, moments.n - moments.factors.all_directions_seen(ridge))


def variance_left(sum_y2: float, fitted: float, freedom: float) -> float:
    """What a fit leaves of the sum of squares, over its degrees of freedom. Rounding is not taken for noise.

    The bonus has its fourth root in it, which makes much of little: where nothing is random, the last bits of the sums
    would decide how long to explore.

    >>> variance_left(5.0, 3.0, freedom=4.0), variance_left(5.0, 5.0 - 1e-14, freedom=4.0)
    (0.5, 0.0)
    """
    left = sum_y2 - fitted
    return 0.0 if left <= _ROUNDING * sum_y2 < inf else left / max(freedom, 1.0)
