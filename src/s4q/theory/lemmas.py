"""The lemmas behind the theorems, as inequalities between numbers; and what an inequality is here.

A `Claim` is what was measured and the bounds it may not leave, entry by entry. A `Part` is a claim about one phase and
level of a run. The audit calls one function for each lemma, with the numbers of a run; `bernstein` and the two
`freedman` bounds are the classical ones for its rows of sampling. Nothing here knows of runs or learners. Matrices are
(n_blocks, k, k); the determinant and the trace of a level are those of all its blocks together.
"""

from collections.abc import Sequence
from math import log, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from s4q.core.blocks import Array
from s4q.core.least_squares import Moments, StreamingLeastSquares, constrained_fit
from s4q.problems import FiniteMDP, planning
from s4q.theory.definitions import expected_sum

FAILS = np.inf  # measured where something happened that cannot happen
RARE = 1e-4  # the chance that an honest run fails a row of sampling, jointly over its phases, levels and entries


class Claim(NamedTuple):
    """low <= measured <= high, entry by entry.

    >>> claim([1.0, 2.0], [4.0, 3.0]).worst()
    Worst(measured=2.0, bound=3.0, above=False)
    """

    measured: Array
    high: Array
    low: Array

    def holds(self, tolerance: float = 1e-9) -> bool:
        """True when no entry leaves its bounds by more than rounding."""
        size = np.where(np.isfinite(self.measured), np.abs(self.measured), 1.0)  # an infinite number has no rounding
        room = tolerance * np.maximum(size, 1.0)
        return bool(np.all((self.measured <= self.high + room) & (self.measured >= self.low - room)))

    def worst(self) -> "Worst":
        """The entry that comes nearest to failing, relative to its bounds."""
        measured, high, low = (np.ravel(x) for x in self)
        ends = np.where(np.isfinite([high, low]), np.abs([high, low]), 0.0).max(axis=0)
        wide = np.isfinite(high) & np.isfinite(low) & (high > low)
        scale = np.where(wide, high - low, np.where(ends > 0, np.maximum(ends, np.abs(measured)), 1.0))
        with np.errstate(invalid="ignore"):
            room = np.minimum(high - measured, measured - low) / np.where(np.isfinite(scale), scale, 1.0)
        place = int(np.argmin(room))
        above = bool(measured[place] - low[place] < high[place] - measured[place])
        end = low if above else high
        return Worst(float(measured[place]), float(end[place]), above)


class Worst(NamedTuple):
    """The entry of a Claim nearest to failing: it must lie below the bound, or above it."""

    measured: float
    bound: float
    above: bool

    @property
    def slack(self) -> float:
        """The distance to the bound; negative where the claim fails."""
        return self.measured - self.bound if self.above else self.bound - self.measured


def claim(measured: ArrayLike, high: ArrayLike) -> Claim:
    """measured <= high."""
    return between(-np.inf, measured, high)


def at_least(low: ArrayLike, measured: ArrayLike) -> Claim:
    """low <= measured."""
    return between(low, measured, np.inf)


def between(low: ArrayLike, measured: ArrayLike, high: ArrayLike) -> Claim:
    """low <= measured <= high."""
    arrays = (np.asarray(x, dtype=np.float64) for x in (measured, high, low))
    return Claim(*np.broadcast_arrays(*arrays))


class Part(NamedTuple):
    """The entries of a claim that belong to one phase (with S3Q: one epoch) and level."""

    claim: Claim
    phase: int | None = None  # None: about the run as a whole
    level: int | None = None
    low: float = -np.inf  # what is measured lies between these two whatever happens:
    high: float = np.inf  # a bound beyond them says nothing

    @property
    def place(self) -> str:
        """For example "phase 3, level 0"; empty for the whole run."""
        named = (("phase", self.phase), ("level", self.level))
        return ", ".join(f"{word} {number}" for word, number in named if number is not None)

    def says_nothing(self, worst: Worst) -> bool:
        """Is this bound weaker than what is true anyway?"""
        return worst.bound <= self.low if worst.above else worst.bound >= self.high


def joined(parts: Sequence[Part]) -> Claim:
    """All entries in one claim."""
    if not parts:
        return claim([], [])
    columns = zip(*(part.claim for part in parts), strict=True)
    return Claim(*(np.concatenate([np.ravel(x) for x in column]) for column in columns))


def home(parts: Sequence[Part], worst: Worst) -> Part:
    """The part that holds the worst entry of all."""
    for part in parts:
        end = part.claim.low if worst.above else part.claim.high
        same = np.asarray(part.claim.measured) == worst.measured
        if np.isnan(worst.measured):
            same = np.isnan(part.claim.measured)
        if np.any(same & (np.asarray(end) == worst.bound)):
            return part
    raise ValueError(f"no part holds {worst}")


def least_squares(vectors: Array, targets: Array, ridge: float, radius: float) -> Claim:
    """The recursion with its projection is the constrained ridge fit of the whole batch, to 1e-8 of the radius.

    vectors (n, d), targets (n,). lem:EquivalenceWithLeastSquares.
    """
    stream = StreamingLeastSquares(vectors.shape[1], ridge)
    for x, y in zip(vectors, targets.tolist(), strict=True):
        stream.update(x, y)
    moments = Moments.of(vectors, np.zeros(len(targets), dtype=np.int64), targets, n_blocks=1)
    batch = constrained_fit(moments, ridge, np.asarray(radius))[0]
    return claim(np.abs(stream.solve(radius) - batch).max(), 1e-8 * radius)  # [Lemma:LeastSquares]


def sample_count(n_level: ArrayLike, trajectories: ArrayLike, horizon: int) -> Claim:
    """T/(4H) <= n: a level's fit has at least so many of the T trajectories of a call. lem:OrderOfUpdates."""
    return at_least(np.asarray(trajectories, dtype=np.float64) / (4 * horizon), n_level)  # [Lemma:SampleCount]


def fit_error(differences: Array, uncertainties: Array) -> Claim:
    """|phi . (theta - theta_pi)| <= U: the fit lies near the best on-policy predictor.

    differences, uncertainties (..., S, A). lem:Convergence2PopulationMinimizer with Cauchy-Schwarz.
    """
    return claim(np.abs(differences), uncertainties)  # [Lemma:PopulationMinimizer]


def sandwich(errors: Array, comparators: Array, uncertainties: Array, bonuses: Array) -> Claim:
    """min{0, b - U} <= err + Delta <= U + b, pointwise; with b = 0 it is |err + Delta| <= U.

    Theorem 2 (a), Theorem 3 (a), lem:LeastSquareErrorBounds. All arrays (..., S, A).
    """
    low = np.minimum(0.0, bonuses - uncertainties)
    return between(low, errors + comparators, uncertainties + bonuses)  # [Lemma:Sandwich]


def bonus_sandwich(bonuses: Array, uncertainties: Array, ratio: float) -> Claim:
    """U <= b <= ratio U, pointwise and divided by U. lem:BonusBound."""
    return between(1.0, bonuses / uncertainties, ratio)  # [Lemma:BonusBound]


def errors_to_go(mdp: FiniteMDP, errors: Array) -> Array:
    """sum_{t >= h} E errors_t along an optimal policy from (s, a) at level h on, (H, S, A)."""
    return planning.policy_values(mdp.transitions, errors, planning.greedy(mdp.q_star))


def near_optimism(q: ArrayLike, q_star: ArrayLike, to_go: ArrayLike) -> Claim:
    """Q - Q* + (comparator errors to go) >= 0, pointwise; all (H, S, A) in one unit. lem:Optimism."""
    return at_least(0.0, np.asarray(q) - np.asarray(q_star) + np.asarray(to_go))  # [Lemma:Optimism]


def error_identity(promised: float, value: float, occupancy: Array, errors: Array, scale: float) -> Claim:
    """E(V - V^pi) = sum_h E_pi err_h for the greedy policy pi, to 1e-9 of the scale of values. Proof of Thm 2 (b)."""
    off = promised - value - expected_sum(occupancy, errors)
    return claim(abs(off), 1e-9 * scale)  # [Lemma:ErrorIdentity]


def trace_ratio(sigma: Array, gram: Array) -> float:
    """tr(Sigma^-1 G) = E|phi|^2 in the metric of Sigma^-1; both (n_blocks, k, k)."""
    return float(_relative(gram, sigma).sum())


def log_det_ratio(sigma: Array, gram: Array) -> float:
    """log det(Sigma + G)/det Sigma, all blocks together; Sigma with its ridge, both (n_blocks, k, k).

    >>> round(log_det_ratio(np.eye(2)[None], np.diag([1.0, 3.0])[None]) / log(2), 12)
    3.0
    """
    return float(np.log1p(np.maximum(_relative(gram, sigma), 0.0)).sum())


def information_gain(sigma: Array, gram: Array, n: float, cap: float) -> Claim:
    """log(1 + x) <= log det ratio <= x with x = n tr(Sigma^-1 G); and x/cap <= log det ratio if x <= cap, cap >= e - 1.

    LemInfoGain; deterministic. sigma, gram (n_blocks, k, k).
    """
    x, gain = n * trace_ratio(sigma, gram), log_det_ratio(sigma, n * gram)
    linear = x / cap if x <= cap and cap >= np.e - 1 else 0.0
    return between(max(log(1 + x), linear), gain, x)  # [Lemma:InfoGain]


def information_cap(realised: ArrayLike, lower: ArrayLike, upper: ArrayLike, caps: ArrayLike) -> Claim:
    """Realised gain <= effective dimension <= d log(1 + K/(d lambda)). "Upper Bound on Information Gain".

    lower and upper bracket the effective dimension. All (H,), the claim is (2, H).
    """
    return claim(np.stack([realised, lower]), np.stack([upper, caps]))  # [Lemma:InfoCap]


def proportional(progress: ArrayLike, expected: ArrayLike) -> Claim:
    """1/2 <= E/S <= 3/2 between a sum S that has reached the trigger and its expectation. lem:ProportionalEstimate."""
    return between(0.5, np.asarray(expected) / np.asarray(progress), 1.5)  # [Lemma:Proportional]


def matrix_ratio(covariance: Array, expected: Array, ridge: float) -> tuple[float, float]:
    """(least, largest) eigenvalue of Sbar^-1/2 Sigma Sbar^-1/2, ridge added to both; (n_blocks, k, k)."""
    eye = ridge * np.eye(covariance.shape[-1])
    values = _relative(covariance + eye, expected + eye)
    return float(values.min()), float(values.max())


def _relative(gram: Array, sigma: Array) -> Array:
    """Eigenvalues of Sigma^-1/2 G Sigma^-1/2, (n_blocks, k); both (n_blocks, k, k), all blocks at once."""
    if gram.shape[-1] == 1:
        return np.asarray((gram / sigma)[..., 0])
    white = np.linalg.inv(np.linalg.cholesky(sigma))
    return np.asarray(np.linalg.eigvalsh(white @ gram @ np.swapaxes(white, -1, -2)))


def matrix_concentration(low: float, ratios: ArrayLike, high: float) -> Claim:
    """low Sbar <= Sigma <= high Sbar, by the (least, largest) ratios. prop:ConcentrationRegularizedCovariance."""
    ends = np.reshape(np.asarray(ratios, dtype=np.float64), (-1, 2))
    return between(low, ends, high)  # [Lemma:Matrix]


def chernoff_failure(dim: int, epsilon: float, largest: float) -> float:
    """2 d (1 - eps^2/4)^(1/L), or 1 if less: how likely (1 - eps) I <= Y <= (1 + eps) I fails. lem:Tropp.

    Y is a sum of independent PSD matrices (dim, dim) with eigenvalues up to L = largest and mean I in all.

    >>> round(chernoff_failure(dim=1, epsilon=0.5, largest=0.01), 5)
    0.00315
    """
    if not 0 < epsilon < 1:
        raise ValueError(f"epsilon must lie in (0, 1); got {epsilon}")
    if not largest > 0:
        raise ValueError(f"largest must be positive, the largest eigenvalue of one matrix; got {largest}")
    return float(min(1.0, 2 * dim * (1 - epsilon**2 / 4) ** (1 / largest)))  # [Lemma:Tropp]


def covariance_failure(dim: int, epsilon: float, ridge: float, n: float, largest: float = 1.0) -> float:
    """How likely (W + ridge I)/(1 + eps) <= E W + ridge I <= (W + ridge I)/(1 - eps) fails for a sum W of n matrices.

    Eigenvalues of each are at most `largest`: 1 for phi phi^T. The ridge is split evenly over the n matrices.
    eqn:CovarianceConcentration.

    >>> covariance_failure(dim=10, epsilon=1 / 3, ridge=142.0 * 5, n=1e9) < 20 * 0.05
    True
    """
    return chernoff_failure(dim, epsilon, (largest + ridge / n) / ridge)


def value_order(promised: ArrayLike, v_star: ArrayLike, value: ArrayLike) -> Claim:
    """E(V - V*) <= E(V - V^pi): no policy is better than the best. The first inequality of Theorem 3 (b)."""
    ahead = np.asarray(promised, dtype=np.float64)
    return claim(ahead - np.asarray(v_star), ahead - np.asarray(value))  # [Lemma:ValueOrder]


def log_det(empirical: ArrayLike, expected: ArrayLike, n: ArrayLike, delta: ArrayLike) -> Claim:
    """E/4 - (8 sqrt 2 + 4) l <= empirical gain <= 8 E + 8 l, with l = log(8 n^2/delta) and E the gain of n E xx^T.

    lem:LogDet.
    """
    gain = np.asarray(expected, dtype=np.float64)
    luck = np.log(8.0 / np.asarray(delta)) + 2 * np.log(np.asarray(n, dtype=np.float64))
    return between(gain / 4 - (8 * sqrt(2) + 4) * luck, empirical, 8 * gain + 8 * luck)  # [Lemma:LogDet]


def excess_loss(gram: Array, moment: Array, theta: Array) -> Claim:
    """L(theta) - L(best) = |theta - best|^2 in the norm of E xx^T, to 1e-9; L = E(x . theta - y)^2. lem:ExcessLoss.

    gram E xx^T (n_blocks, k, k), moment E xy and theta (n_blocks, k); best is unconstrained.
    """
    best = np.einsum("bij,bj->bi", np.linalg.pinv(gram, rcond=1e-12, hermitian=True), moment)
    size = _square(theta, gram) + _square(best, gram)
    gap = _excess(gram, moment, theta, best)
    return claim(abs(gap - _square(theta - best, gram)), 1e-9 * size)  # [Lemma:ExcessLoss]


def excess_risk(gram: Array, moment: Array, theta: Array, best: Array, ridge: float) -> Claim:
    """|w - w*|^2 in the norm of E xx^T + ridge I is at most L(w) - L(w*) + ridge |w - w*|^2. lem:Sigma2ERM.

    best is w*, the minimiser over a ball that holds theta = w; L = E(x . w - y)^2, twice the lemma's. Divided by the
    lemma's M, so ridge is lambda / M. Shapes as in `excess_loss`.
    """
    off = theta - best
    gap = _excess(gram, moment, theta, best)
    bias = ridge * float((off**2).sum())
    return claim(_square(off, gram) + bias, gap + bias)  # [Lemma:ExcessRisk]


def _square(x: Array, gram: Array) -> float:
    return float(np.einsum("bi,bij,bj->", x, gram, x))


def _excess(gram: Array, moment: Array, theta: Array, best: Array) -> float:
    """L(theta) - L(best), L = E(x . theta - y)^2; as a product: the difference of two losses would be rounding."""
    slope = np.einsum("bij,bj->bi", gram, theta + best) - 2 * moment
    return float(((theta - best) * slope).sum())


def replayed_regret(regret: ArrayLike, expected: ArrayLike, luck: ArrayLike) -> Claim:
    """Regret of a replay <= 2 expectation + luck. lem:PhasedRegret, by Bernstein."""
    return claim(regret, 2 * np.asarray(expected, dtype=np.float64) + np.asarray(luck))  # [Lemma:ReplayedRegret]


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
