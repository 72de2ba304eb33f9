"""The lemmas behind the theorems, as inequalities between numbers.

Each function returns a `Claim`: what was measured and what it may be at most, entry by entry. Matrices are Gram matrices
(..., k, k), one per block; the determinant and the trace of a level are those of all its blocks together.
"""

from math import log, sqrt
from typing import NamedTuple

import numpy as np
from scipy.linalg import eigh

from s4q.blocks import Array
from s4q.least_squares import Moments, StreamingLeastSquares, constrained_fit
from s4q.problems import FiniteMDP, planning


class Claim(NamedTuple):
    """measured <= bound, entry by entry.

    >>> Claim(np.array([1.0, 2.0]), np.array([4.0, 3.0])).worst()
    (2.0, 3.0)
    """

    measured: Array
    bound: Array

    @property
    def slack(self) -> float:
        """The least distance to the bound; negative where the claim fails."""
        return float(np.min(self.bound - self.measured, initial=np.inf))

    def holds(self, tolerance: float = 1e-9) -> bool:
        """True when no entry exceeds its bound by more than rounding."""
        room = tolerance * np.maximum(np.maximum(np.abs(self.bound), np.abs(self.measured)), 1.0)
        return bool(np.all(self.measured <= self.bound + room))

    def worst(self) -> tuple[float, float]:
        """(measured, bound) where the claim comes nearest to failing: by ratio where bounds are positive, else by gap."""
        if not np.size(self.measured):
            return 0.0, 0.0
        measured, bound = (np.ravel(x) for x in np.broadcast_arrays(*np.atleast_1d(self.measured, self.bound)))
        positive = np.all(bound > 0)
        place = int(np.argmax(measured / bound)) if positive else int(np.argmax(measured - bound))
        return float(measured[place]), float(bound[place])


def claim(measured: object, bound: object) -> Claim:
    """A Claim from numbers or arrays."""
    return Claim(*np.broadcast_arrays(np.asarray(measured, dtype=np.float64), np.asarray(bound, dtype=np.float64)))


def both(low: object, value: object, high: object) -> Claim:
    """low <= value <= high, as one Claim of twice as many entries."""
    lower, upper = claim(low, value), claim(value, high)
    return Claim(*(np.stack(pair) for pair in zip(lower, upper, strict=True)))


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


def sample_count(n_level: object, trajectories: object, horizon: int) -> Claim:
    """T/(4H) <= n: a level's fit has at least so many of the T trajectories of a call. lem:OrderOfUpdates."""
    return claim(np.asarray(trajectories, dtype=np.float64) / (4 * horizon), n_level)  # [Lemma:SampleCount]


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
    return both(low, errors + comparators, uncertainties + bonuses)  # [Lemma:Sandwich]


def bonus_sandwich(bonuses: Array, uncertainties: Array, ratio: float) -> Claim:
    """U <= b <= ratio U, pointwise. lem:BonusBound."""
    return both(uncertainties, bonuses, ratio * uncertainties)  # [Lemma:BonusBound]


def errors_to_go(mdp: FiniteMDP, errors: Array) -> Array:
    """sum_{t >= h} E errors_t along an optimal policy from (s, a) at level h on, (H, S, A)."""
    return planning.policy_values(mdp.transitions, errors, optimal_policy(mdp))


def optimal_policy(mdp: FiniteMDP) -> Array:
    """An optimal policy as probabilities, (H, S, A); ties go to the lowest action."""
    return np.asarray(np.eye(mdp.n_actions)[mdp.q_star.argmax(axis=-1)])


def near_optimism(q: Array, q_star: Array, to_go: Array) -> Claim:
    """Q* - (comparator errors to go) - Q <= 0, pointwise; all (H, S, A) in one unit. lem:Optimism."""
    return claim(q_star - to_go - q, 0.0)  # [Lemma:Optimism]


def error_identity(promised: float, value: float, occupancy: Array, errors: Array, scale: float) -> Claim:
    """E(V - V^pi) = sum_h E_pi err_h for the greedy policy pi, to 1e-9 of the scale of values. Proof of Theorem 2 (b)."""
    off = promised - value - float((occupancy * errors).sum())
    return claim(abs(off), 1e-9 * scale)  # [Lemma:ErrorIdentity]


def trace_ratio(sigma: Array, gram: Array) -> float:
    """tr(Sigma^-1 G) = E|phi|^2 in the metric of Sigma^-1; both (n_blocks, k, k)."""
    return float(np.trace(np.linalg.solve(sigma, gram), axis1=-2, axis2=-1).sum())


def log_det_ratio(sigma: Array, gram: Array) -> float:
    """log det(Sigma + G)/det Sigma, all blocks together; Sigma with its ridge, both (n_blocks, k, k).

    >>> round(log_det_ratio(np.eye(2)[None], np.diag([1.0, 3.0])[None]) / log(2), 12)
    3.0
    """
    values = [eigh(g, s, eigvals_only=True) for g, s in zip(gram, sigma, strict=True)]
    return float(np.log1p(np.maximum(values, 0.0)).sum())


def information_gain(sigma: Array, gram: Array, n: float, cap: float) -> Claim:
    """log(1 + x) <= log det ratio <= x with x = n tr(Sigma^-1 G); and x/cap <= log det ratio if x <= cap, cap >= e - 1.

    LemInfoGain; deterministic. sigma, gram (n_blocks, k, k).
    """
    x, gain = n * trace_ratio(sigma, gram), log_det_ratio(sigma, n * gram)
    linear = x / cap if x <= cap and cap >= np.e - 1 else 0.0
    return claim([log(1 + x), gain, linear], [gain, x, gain])  # [Lemma:InfoGain]


def information_cap(realised: object, effective: object, caps: object) -> Claim:
    """Realised gain <= effective dimension <= d log(1 + K/(d lambda)). Upper bound on information gain, app. C.1."""
    return both(realised, effective, caps)  # [Lemma:InfoCap]


def proportional(progress: object, expected: object) -> Claim:
    """S/2 <= E <= 3 S/2 between a sum S that has reached the trigger and its expectation. lem:ProportionalEstimate."""
    total = np.asarray(progress, dtype=np.float64)
    return both(total / 2, expected, 3 * total / 2)  # [Lemma:Proportional]


def matrix_ratio(covariance: Array, expected: Array, ridge: float) -> tuple[float, float]:
    """(least, largest) eigenvalue of Sbar^-1/2 Sigma Sbar^-1/2, ridge added to both; (n_blocks, k, k)."""
    eye = ridge * np.eye(covariance.shape[-1])
    pairs = zip(covariance, expected, strict=True)
    values = [eigh(one + eye, other + eye, eigvals_only=True) for one, other in pairs]
    return float(np.min(values)), float(np.max(values))


def matrix_concentration(low: float, ratios: object, high: float) -> Claim:
    """low Sbar <= Sigma <= high Sbar, by the (least, largest) ratios. prop:ConcentrationRegularizedCovariance."""
    ends = np.reshape(np.asarray(ratios, dtype=np.float64), (-1, 2))
    return both(low, ends, high)  # [Lemma:Matrix]


def log_det(empirical: object, expected: object, n: object, delta: object) -> Claim:
    """E/4 - (8 sqrt 2 + 4) l <= empirical gain <= 8 E + 8 l, with l = log(8 n^2/delta) and E the gain of n E xx^T.

    lem:LogDet.
    """
    gain = np.asarray(expected, dtype=np.float64)
    luck = np.log(8.0 / np.asarray(delta)) + 2 * np.log(np.asarray(n, dtype=np.float64))
    return both(gain / 4 - (8 * sqrt(2) + 4) * luck, empirical, 8 * gain + 8 * luck)  # [Lemma:LogDet]


def excess_loss(gram: Array, moment: Array, theta: Array) -> Claim:
    """L(theta) - L(best) = |theta - best|^2 in the norm of E xx^T, to 1e-9; L = E(x . theta - y)^2. lem:ExcessLoss.

    gram E xx^T (d, d) positive definite, moment E xy (d,); best is unconstrained.
    """
    best = np.linalg.solve(gram, moment)
    size = float(theta @ gram @ theta) + float(best @ moment)
    gap = _loss(gram, moment, theta) - _loss(gram, moment, best)
    distance = float((theta - best) @ gram @ (theta - best))
    return claim(abs(gap - distance), 1e-9 * size)  # [Lemma:ExcessLoss]


def excess_risk(gram: Array, moment: Array, theta: Array, best: Array, n: float, ridge: float) -> Claim:
    """|w - w*|^2 in the norm of n E xx^T + ridge I is at most 2n (L(w) - L(w*)) + ridge |w - w*|^2. lem:Sigma2ERM.

    best is w*, the minimiser over a ball that holds theta = w. Here 2 L = E(x . w - y)^2.
    """
    off = theta - best
    gap = _loss(gram, moment, theta) - _loss(gram, moment, best)
    slope = n * float(off @ gram @ off)
    return claim(slope + ridge * float(off @ off), n * gap + ridge * float(off @ off))  # [Lemma:ExcessRisk]


def _loss(gram: Array, moment: Array, theta: Array) -> float:
    """E(x . theta - y)^2 - E y^2."""
    return float(theta @ gram @ theta) - 2 * float(theta @ moment)


def replayed_regret(regret: object, expected: object, luck: object) -> Claim:
    """Regret of a replay <= 2 expectation + luck. lem:PhasedRegret, by Bernstein."""
    return claim(regret, 2 * np.asarray(expected, dtype=np.float64) + np.asarray(luck))  # [Lemma:ReplayedRegret]
