"""What the paper states and assumes about a recorded run of S4Q, as inequalities by phase and level.

Each function turns evidence into the parts of one row; `ASSUMPTIONS` and `IN_THE_PAPER` list the rows in their order.
`auditing` runs them and decides what is claimed. Without an assumption the statements that need it are not claimed.
Formulas stand in `bounds` and `lemmas`; here they only meet the numbers of a run.
"""

from collections.abc import Callable, Iterable
from itertools import pairwise
from math import log

import numpy as np

from s4q.core.blocks import Array, BoolArray, dense
from s4q.theory import bounds, lemmas
from s4q.theory.definitions import check_structure
from s4q.theory.evidence import Evidence, PhaseEvidence, Statement, by_level, by_phase, lowest_value
from s4q.theory.information_gain import effective_dim_cap
from s4q.theory.lemmas import Claim, Part, between, claim
from s4q.theory.population_fits import population_fit

SAME = 1e-6  # two ways to compute one number agree to this
EXACT = 1e-7  # errors and lengths below this share of the value bound are rounding


def features_exact(e: Evidence) -> list[Part]:
    """The largest error of the best fit of a backup T_h V', over v_h; V' any value in [0, v_{h+1}] of the features.

    Only where exact features are declared, or needed by the preset.
    """
    if not (e.constants.spec.well_specified or e.constants.preset == "realisable"):
        return []
    residuals = check_structure(e.mdp, restarts=1).merged_residual
    shares = residuals / np.array(e.constants.spec.value_bound)
    return [Part(claim(share, EXACT), None, h) for h, share in enumerate(shares.tolist())]


def radius_fits(e: Evidence) -> list[Part]:
    """The norm of the true parameter of every target of the run, over the radius of its ball."""
    if not e.constants.spec.well_specified or e.constants.preset == "practical":
        return []
    balls = e.prescribed.ball()

    def test(p: PhaseEvidence, h: int) -> Claim:
        size = _needed_norms(e, p, h)
        ratio = size / balls[h] if balls.ndim == 2 else np.sqrt((size**2).sum()) / balls[h]
        return claim(ratio, 1 + EXACT)

    return by_level(e.phases, test)


def _needed_norms(e: Evidence, p: PhaseEvidence, h: int) -> Array:
    """The norm of the true parameter in each block, (n_blocks,).

    In blocks of length 1 a parameter need not be longer than what makes Q reach its clip.
    """
    spec, size = e.mdp.spec, np.linalg.norm(p.best[h], axis=1)
    if spec.block_dim == 1:
        shortest = np.full(spec.n_blocks, np.inf)
        lengths = np.abs(e.mdp.features.vectors[h][..., 0])
        np.minimum.at(shortest, e.mdp.features.blocks[h][lengths > 0], lengths[lengths > 0])
        size = np.minimum(size, spec.value_bound[h] / shortest)
    return np.asarray(size)


def value_bound_holds(e: Evidence) -> list[Part]:
    """Q* at reachable pairs over the value bound, in shifted rewards."""
    spec, parts = e.constants.spec, []
    for h, bound in enumerate(spec.value_bound):
        here = e.mdp.reachable[h]
        if here.any():
            shifted = e.mdp.q_star[h][here] - (spec.horizon - h) * spec.reward_min
            parts.append(Part(claim(float(shifted.max()) / bound, 1 + EXACT), None, h))
    return parts


def features_bounded(e: Evidence) -> list[Part]:
    """The longest feature vector. EqnBoundedFeatures."""
    lengths = np.linalg.norm(e.mdp.features.vectors, axis=-1).max(axis=(1, 2))
    return [Part(claim(float(length), 1 + EXACT), None, h) for h, length in enumerate(lengths)]


def regret(e: Evidence) -> list[Part]:
    """Theorem 1 (a), divided by the number of episodes."""
    episodes = e.run.episodes
    bound = bounds.theorem1_regret(e.constants, episodes, e.gains, e.terr)
    found = claim((e.run.regret or 0.0) / episodes, bound / episodes)
    return [Part(found, high=e.mdp.v_star - lowest_value(e.mdp))]


def memory(e: Evidence) -> list[Part]:
    """Theorem 1 (b), with the number of phases that is proved, else with that of the run."""
    c = e.constants
    proved = e.prescribed.proved and c.fixed_trigger is None and c.fixed_ridge is None  # the number of phases
    phases = bounds.phases_bound(c, e.gains) if proved else len(e.phases)
    return [Part(claim(e.run.nbytes / 8, bounds.theorem1_floats(c, phases)))]


def work(e: Evidence) -> list[Part]:
    """The multiplications of a step that this implementation makes."""
    k = e.mdp.spec.block_dim
    products = (
        e.mdp.n_actions * (k + k**2 + k + 1) + 2 * k**2
    )  # phi . theta, W phi, its square, the width; Gram and trigger
    return [Part(claim(products, bounds.theorem1_work(e.constants)))]


def sandwich(e: Evidence) -> list[Part]:
    """Theorem 3 (a), divided by U + b: that is 0 only where phi is 0, and with it everything else."""

    def test(*arrays: Array) -> Claim:
        scale = arrays[2] + arrays[3]
        return lemmas.sandwich(*(x[scale > 0] / scale[scale > 0] for x in arrays))

    return _pointwise(e, e.phases, lambda p: (p.errors, p.comparators, p.uncertainties, p.bonuses), test)


def promise(e: Evidence) -> list[Part]:
    """Theorem 3 (b)."""

    def test(p: PhaseEvidence) -> Claim:
        return claim(p.promised - p.value, bounds.theorem3_values(p.occupancy, p.uncertainties, p.bonuses, e.terr))

    most = float(e.mdp.spec.to_user_units(0, np.array(e.mdp.spec.value_bound[0]))) - lowest_value(e.mdp)
    return by_phase(e.phases, test, high=most)


def fit(e: Evidence) -> list[Part]:
    """The distance of a fit from the best on-policy one, over U."""

    def test(off: Array, u: Array) -> Claim:
        return lemmas.fit_error(off[u > 0] / u[u > 0], np.ones(int((u > 0).sum())))

    return _pointwise(e, e.fitted, lambda p: (p.linear - p.best_linear, p.uncertainties), test)


def bonus(e: Evidence) -> list[Part]:
    """b/U; with `realisable` both are the same number, computed in two ways."""

    def test(b: Array, u: Array) -> Claim:
        if e.prescribed.proved:
            return lemmas.bonus_sandwich(b[u > 0], u[u > 0], bounds.bonus_over_uncertainty(e.constants))
        return between(1 - SAME, b[u > 0] / u[u > 0], 1 + SAME)

    return _pointwise(e, e.phases, lambda p: (p.bonuses, p.uncertainties), test)


def optimism(e: Evidence) -> list[Part]:
    """Near-optimism at every reachable pair, clipped fits included."""

    def arrays(p: PhaseEvidence) -> tuple[Array, ...]:
        return e.mdp.q_values(p.record.q), e.mdp.q_star, lemmas.errors_to_go(e.mdp, p.comparators)

    return _pointwise(e, e.phases, arrays, lemmas.near_optimism, clipped=True)


def optimism_at_start(e: Evidence) -> list[Part]:
    """Near-optimism in the mean over start states."""
    return by_phase(e.phases, lambda p: lemmas.near_optimism(p.promised, e.mdp.v_star, e.terr))


def replays(e: Evidence) -> list[Part]:
    """Every S3Q call: the regret between two points of the curve, less that of the main loop."""
    gaps, counts = [e.mdp.v_star - p.value for p in e.phases], [p.n_played for p in e.phases]
    parts = []
    for i, (before, after) in enumerate(pairwise(e.run.curve), start=1):
        played = after.replay_episodes - before.replay_episodes
        mean = float(np.dot(np.array(counts[:i]) / sum(counts[:i]), gaps[:i]))
        main = counts[i] * gaps[i] if i < len(counts) else 0.0
        regret = (after.regret or 0.0) - (before.regret or 0.0) - main
        parts.append(Part(lemmas.replayed_regret(regret, played * mean, bounds.replay_luck(e.constants, i + 1)), i + 1))
    return parts


def potential(e: Evidence) -> list[Part]:
    """The elliptic potential of each level over the whole run."""
    phase, longest = e.phases[-1].number, max(p.n_played for p in e.phases)
    parts = []
    for h, gain in enumerate(e.gains.tolist()):
        spent = sum(p.n_played * lemmas.trace_ratio(p.ridged(p.expected, h), p.grams[h]) for p in e.phases)
        parts.append(Part(claim(spent, bounds.potential_bound(e.constants, phase, longest, gain)), None, h))
    return parts


def number_of_phases(e: Evidence) -> list[Part]:
    """The running phase counts too."""
    return [Part(claim(len(e.phases), bounds.phases_bound(e.constants, e.gains)))]


def proportional(e: Evidence) -> list[Part]:
    """The expected progress of a main loop over the one seen."""

    def test(p: PhaseEvidence, h: int) -> Claim:
        need, progress = e.prescribed.trigger(p.number, p.n_played), p.progress(h)
        expected = p.n_played * lemmas.trace_ratio(p.ridged(p.record.cov_ref, h), p.grams[h])
        if progress >= need - 2e-9 * min(need, 1.0):  # as the trigger, rounding left aside
            return lemmas.proportional(progress, expected)
        return claim(expected / need, 1.5)  # a level that did not trigger: only from above, and against the trigger

    return by_level(e.finished, test)


def matrix(e: Evidence) -> list[Part]:
    """Sigma_ref, and the covariance of the bonus, against Sbar, which both estimate."""
    steps = bounds.proof_steps(e.constants)

    def test(p: PhaseEvidence, h: int) -> Claim:
        estimates = (p.record.cov_ref[h], p.covariance[h])
        ratios = [lemmas.matrix_ratio(estimate, p.expected[h], float(p.ridge[h])) for estimate in estimates]
        return lemmas.matrix_concentration(steps.covariance_low, ratios, steps.covariance_high)

    return by_level(e.phases, test)


def log_det(e: Evidence) -> list[Part]:
    """The information that a main loop has gathered against the expected one."""
    parts = []
    for p in e.finished:
        n, delta = p.n_played, e.prescribed.delta_fit(p.number)
        for h in range(e.mdp.horizon):
            sigma = p.ridged(p.record.cov_ref, h)
            seen, expected = (lemmas.log_det_ratio(sigma, g) for g in (p.record.increment[h], n * p.grams[h]))
            most = e.mdp.dim * log(1 + n / (e.mdp.dim * float(p.ridge[h])))  # n features of norm at most 1
            parts.append(Part(lemmas.log_det(seen, expected, n, delta), p.number, h, low=0.0, high=most))
    return parts


def information_gain(e: Evidence) -> list[Part]:
    """The expected information of a main loop between logarithm and trace."""
    return by_level(
        e.finished, lambda p, h: lemmas.information_gain(p.ridged(p.expected, h), p.grams[h], p.n_played, np.inf)
    )


def information_cap(e: Evidence) -> list[Part]:
    """Information gathered, effective dimension and its cap."""
    caps = [effective_dim_cap(e.mdp.dim, e.run.episodes / float(lam)) for lam in e.phases[0].ridge]
    rows = zip(e.realised, [dim.lower for dim in e.dims], e.gains, caps, strict=True)
    return [Part(lemmas.information_cap(*([x] for x in row)), None, h) for h, row in enumerate(rows)]


def error_identity(e: Evidence) -> list[Part]:
    """What Q promises too much is the sum of its Bellman errors."""
    scale = e.mdp.spec.value_bound[0]
    return by_phase(e.phases, lambda p: lemmas.error_identity(p.promised, p.value, p.occupancy, p.errors, scale))


def least_squares(e: Evidence) -> list[Part]:
    """The recursion of Algorithm 3 on the newest backups; it costs d^2 a pair, so not for many features."""
    last, spec = e.phases[-1], e.mdp.spec

    def test(p: PhaseEvidence, h: int) -> Claim:
        here = e.reachable[h].ravel()
        vectors = dense(e.mdp.features.vectors[h], e.mdp.features.blocks[h], spec.n_blocks).reshape(-1, spec.dim)
        return lemmas.least_squares(vectors[here], p.backup[h].ravel()[here], 1.0, spec.radius[h])

    return [] if spec.dim > 500 else by_level([last], test)


def sample_count(e: Evidence) -> list[Part]:
    """Samples behind a fit against the trajectories of its S3Q call."""

    def test(p: PhaseEvidence) -> Claim:
        return lemmas.sample_count([p.n_level], [sum(fit.n_episodes for fit in p.call)], e.mdp.horizon)

    return by_phase(e.fitted, test)


def excess_loss(e: Evidence) -> list[Part]:
    """Of the newest fit."""
    return by_level(e.fitted[-1:], lambda p, h: lemmas.excess_loss(*_regression(e, p, h)[:3]))


def excess_risk(e: Evidence) -> list[Part]:
    """Of the newest fit."""
    return by_level(e.fitted[-1:], lambda p, h: lemmas.excess_risk(*_regression(e, p, h)))


def _regression(e: Evidence, p: PhaseEvidence, h: int) -> tuple[Array, Array, Array, Array, float]:
    """E xx^T, E xy, the fit, the best fit in the ball, ridge over samples; of one level."""
    best = population_fit(e.mdp, p.controller, h).solve(p.backup[h].ravel(), e.prescribed.ball()[h])
    moment = np.zeros(e.mdp.spec.gram_shape[:2])
    weighted = (p.controller[h] * p.backup[h])[..., None] * e.mdp.features.vectors[h]
    np.add.at(moment, e.mdp.features.blocks[h].ravel(), weighted.reshape(-1, e.mdp.spec.block_dim))
    return p.expected[h] / p.n_before, moment, p.record.q.theta[h], best, float(p.ridge[h]) / p.n_level


def _pointwise(
    e: Evidence,
    phases: Iterable[PhaseEvidence],
    arrays: Callable[[PhaseEvidence], tuple[Array, ...]],
    test: Callable[..., Claim],
    clipped: bool = False,
) -> list[Part]:
    """A claim at every reachable pair of the phases; unless `clipped`, not where the clip hides the best fit."""
    parts = []
    for p in phases:
        shown = e.reachable if clipped else e.reachable & ~clipped_away(e, p)
        known = arrays(p)
        parts += [Part(test(*(x[h][here] for x in known)), p.number, h) for h, here in enumerate(shown)]
    return parts


def clipped_away(e: Evidence, p: PhaseEvidence) -> BoolArray:
    """(H, S, A): where phi . theta_pi lies outside of what Q can say, so that the clip hides the fit."""
    low = 0.0 if e.mdp.spec.well_specified else -np.inf
    high = np.array(e.mdp.spec.value_bound)[:, None, None]
    return np.asarray((p.best_linear > high * (1 + 1e-9)) | (p.best_linear < low - 1e-9 * high))


ASSUMPTIONS = (
    Statement("assumed: features are exact", "asm:LowRank", "always", features_exact),
    Statement("assumed: the radius fits", "class Q^lin", "always", radius_fits),
    Statement("assumed: the value bound holds", "class Q^all", "always", value_bound_holds),
    Statement("assumed: features of norm 1", "EqnBoundedFeatures", "always", features_bounded),
)

_COUNTED = "counted, not timed"
_BY_S3Q = "S4Q calls S3Q with a bonus: see Theorem 3, or --algorithm s3q"
_CONCENTRATION = "prop:ConcentrationRegularizedCovariance"

IN_THE_PAPER = (
    Statement("Theorem 1 (a): average regret", "thm:Sequoia", "delta", regret, "theorem 1"),
    Statement("Theorem 1 (b): floats held", "thm:Sequoia", "delta", memory),
    Statement("Theorem 1 (b): products a step", "thm:Sequoia", "identity", work, note=_COUNTED),
    Statement("Theorem 2: S3Q without bonus", "thm:Q-learning", "always", lambda _: [], note=_BY_S3Q),
    Statement("Theorem 3 (a): (err + Delta)/(U + b)", "thm:Q-learningExp", "delta", sandwich, "width"),
    Statement("Theorem 3 (b): E(V - V^pi)", "thm:Q-learningExp", "delta", promise, "width"),
    Statement("fit: |phi.(theta - theta_pi)|/U", "lem:Convergence2PopulationMinimizer", "delta", fit, "width"),
    Statement("bonus b/U", "lem:BonusBound", "delta", bonus, "width"),
    Statement("near-optimism: Q - Q* + errors to go", "lem:Optimism", "delta", optimism, "optimism"),
    Statement("near-optimism at the start", "lem:Optimism", "delta", optimism_at_start, "optimism"),
    Statement("replayed regret of an S3Q call", "lem:PhasedRegret", "delta", replays),
    Statement("elliptic potential", "lem:EllipticPotential", "delta", potential, "theorem 1"),
    Statement("phases", "lem:NumberOfPhases", "delta", number_of_phases, "theorem 1"),
    Statement("expected over seen progress", "lem:ProportionalEstimate", "delta", proportional, "theorem 1"),
    Statement("covariance over its mean", _CONCENTRATION, "delta", matrix, "theorem 1"),
    Statement("log determinants", "lem:LogDet", "delta", log_det, "theorem 1"),
    Statement("information gain of a phase", "LemInfoGain", "identity", information_gain),
    Statement("information gathered, and its cap", "Bound on Information Gain", "always", information_cap),
    Statement("error identity", "proof of thm:Q-learning", "identity", error_identity),
    Statement("recursion = least squares", "lem:EquivalenceWithLeastSquares", "identity", least_squares),
    Statement("samples of a level", "lem:OrderOfUpdates", "always", sample_count),
    Statement("excess loss identity", "lem:ExcessLoss", "identity", excess_loss),
    Statement("excess risk of the fit", "lem:Sigma2ERM", "identity", excess_risk),
)
