"""The statements of the paper about a recorded run: each with its place, its conditions and its inequality."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, final

import numpy as np

from s4q.blocks import Array, BoolArray, dense
from s4q.theory import bounds, lemmas
from s4q.theory.effective_dim import cap
from s4q.theory.evidence import Evidence, PhaseEvidence
from s4q.theory.lemmas import Claim, between, claim
from s4q.theory.population_fit import population_fit

Needs = Literal["nothing", "width", "optimism", "theorem 1"]  # what a preset must prove for a statement to be claimed


@final
@dataclass(frozen=True, slots=True)
class Statement:
    """One line of the audit. `always`: it holds for every seed, else for all but a share delta of them."""

    name: str
    where: str  # label in the paper's source
    needs: Needs
    always: bool
    test: Callable[[Evidence], Claim]  # a Claim without entries: nothing to check in this run
    note: str = ""
    trivial: Callable[[Evidence], float] | None = None  # what is true anyway: a bound beyond it says nothing


def _regret(e: Evidence) -> Claim:
    episodes = e.run.episodes
    bound = bounds.theorem1_regret(e.constants, episodes, e.gains, e.terr)
    return claim((e.run.regret or 0.0) / episodes, bound / episodes)


def _memory(e: Evidence) -> Claim:
    c = e.constants
    proved = c.theory is not None and c.fixed_trigger is None and c.fixed_ridge is None  # the number of phases
    phases = bounds.phases_bound(e.constants, e.gains) if proved else len(e.phases)
    return claim(e.run.bytes / 8, bounds.theorem1_floats(e.constants, phases))


def _work(e: Evidence) -> Claim:
    q, n_actions = e.run.q, e.mdp.n_actions
    k = q.theta.shape[-1]
    products = n_actions * (k + k**2 + k + 1) + 2 * k**2  # phi . theta, W phi, its square, the width; Gram and trigger
    return claim(products, bounds.theorem1_work(e.constants))


def _value_bound(e: Evidence) -> float:
    return e.mdp.spec.value_bound[0]


def _s3q(e: Evidence) -> Claim:
    del e
    return claim([], [])


def _sandwich(e: Evidence) -> Claim:
    def test(*arrays: Array) -> Claim:
        scale = arrays[2] + arrays[3]  # U + b: 0 only where phi is 0, and with it everything else
        return lemmas.sandwich(*(x[scale > 0] / scale[scale > 0] for x in arrays))

    return _pointwise(e.phases, e, lambda p: (p.errors, p.comparators, p.uncertainties, p.bonuses), test)


def _promise(e: Evidence) -> Claim:
    high = [bounds.theorem3_values(p.occupancy, p.uncertainties, p.bonuses, e.terr) for p in e.phases]
    return claim([p.promised - p.value for p in e.phases], high)


def _least_squares(e: Evidence) -> Claim:
    last, spec = e.phases[-1], e.mdp.spec
    if spec.dim > 500:  # the recursion costs d^2 a pair
        return claim([], [])
    found = []
    for h in range(spec.horizon):
        here = e.reachable[h].ravel()
        vectors = dense(e.mdp.features.vectors[h], e.mdp.features.blocks[h], spec.n_blocks).reshape(-1, spec.dim)
        found.append(lemmas.least_squares(vectors[here], last.backup[h].ravel()[here], 1.0, spec.radius[h]))
    return _joined(found)


def _sample_count(e: Evidence) -> Claim:
    calls = list(zip(e.fitted, _replayed(e), strict=False))  # a last call may have been cut by the end of the run
    return lemmas.sample_count([p.n_level for p, _ in calls], [played for _, played in calls], e.mdp.horizon)


def _fit(e: Evidence) -> Claim:
    def test(off: Array, u: Array) -> Claim:
        return lemmas.fit_error(off[u > 0] / u[u > 0], np.ones(int((u > 0).sum())))

    return _pointwise(e.fitted, e, lambda p: (p.linear - p.best_linear, p.uncertainties), test)


def _bonus(e: Evidence) -> Claim:
    ratio = 1.0 if e.constants.theory is None else bounds.bonus_over_uncertainty(e.constants)

    def test(b: Array, u: Array) -> Claim:
        return lemmas.bonus_sandwich(b[u > 0], u[u > 0], ratio)

    return _pointwise(e.phases, e, lambda p: (p.bonuses, p.uncertainties), test)


def _optimism(e: Evidence) -> Claim:
    found = []
    for p in e.phases:
        to_go = lemmas.errors_to_go(e.mdp, p.comparators)
        known = (e.mdp.q_values(p.record.q), e.mdp.q_star, to_go)
        found.append(lemmas.near_optimism(*(x[e.reachable] for x in known)))
    return _joined(found)


def _optimism_at_start(e: Evidence) -> Claim:
    return lemmas.near_optimism([p.promised for p in e.phases], e.mdp.v_star, e.terr)


def _error_identity(e: Evidence) -> Claim:
    scale = e.mdp.spec.value_bound[0]
    return _joined([lemmas.error_identity(p.promised, p.value, p.occupancy, p.errors, scale) for p in e.phases])


def _potential(e: Evidence) -> Claim:
    phase, longest = e.phases[-1].record.phase, max(p.record.n_trajectories for p in e.phases)
    spent = [
        sum(p.record.n_trajectories * lemmas.trace_ratio(p.ridged(p.expected, h), p.grams[h]) for p in e.phases)
        for h in range(e.mdp.horizon)
    ]
    return claim(spent, [bounds.potential_bound(e.constants, phase, longest, float(g)) for g in e.gains])


def _phases(e: Evidence) -> Claim:
    return claim(len(e.phases), bounds.phases_bound(e.constants, e.gains))


def _trigger(e: Evidence) -> Claim:
    need = [bounds.trigger_at(e.constants, p.record.phase, p.record.n_trajectories) for p in e.finished]
    over = [1.0 / float(p.record.ridge.min()) for p in e.finished]  # one feature of norm 1
    return between(need, [max(p.progress) for p in e.finished], np.add(need, over))


def _information_gain(e: Evidence) -> Claim:
    found = []
    for p in e.finished:
        for h in range(e.mdp.horizon):
            sigma, n = p.ridged(p.expected, h), p.record.n_trajectories
            found.append(lemmas.information_gain(sigma, p.grams[h], n, np.inf))
    return _joined(found)


def _information_cap(e: Evidence) -> Claim:
    caps = [cap(e.mdp.dim, e.run.episodes / float(lam)) for lam in e.phases[0].record.ridge]
    return lemmas.information_cap(e.realised, [dim.lower for dim in e.dims], e.gains, caps)


def _proportional(e: Evidence) -> Claim:
    found = []
    for p in e.finished:
        need = bounds.trigger_at(e.constants, p.record.phase, p.record.n_trajectories)
        for h, progress in enumerate(p.progress):
            expected = p.record.n_trajectories * lemmas.trace_ratio(p.ridged(p.record.cov_ref, h), p.grams[h])
            if progress >= need * (1 - 1e-12):
                found.append(lemmas.proportional(progress, expected))
            else:  # a level that did not trigger: only from above, and against the trigger
                found.append(claim(expected / need, 1.5))
    return _joined(found)


def _matrix(e: Evidence) -> Claim:
    steps = bounds.proof_steps(e.constants)
    ratios = []
    for p in e.phases:
        for estimate in (p.record.cov_ref, p.covariance):  # of Sigma_ref and of the bonus: both estimate Sbar
            for h, ridge in enumerate(p.record.ridge.tolist()):
                ratios.append(lemmas.matrix_ratio(estimate[h], p.expected[h], ridge))
    return lemmas.matrix_concentration(steps.covariance_low, ratios, steps.covariance_high)


def _log_det(e: Evidence) -> Claim:
    found = []
    for p in e.finished:
        n, delta = p.record.n_trajectories, e.constants.delta_fit(p.record.phase)
        for h in range(e.mdp.horizon):
            sigma = p.ridged(p.record.cov_ref, h)
            seen, expected = (lemmas.log_det_ratio(sigma, g) for g in (p.record.increment[h], n * p.grams[h]))
            found.append(lemmas.log_det(seen, expected, n, delta))
    return _joined(found)


def _excess_loss(e: Evidence) -> Claim:
    return _joined([lemmas.excess_loss(gram, moment, theta) for gram, moment, theta, _, _ in _regressions(e)])


def _excess_risk(e: Evidence) -> Claim:
    return _joined([lemmas.excess_risk(*regression) for regression in _regressions(e)])


def _replays(e: Evidence) -> Claim:
    """Every S3Q call: the regret between two points of the curve, less that of the main loop."""
    regrets, expected, luck = [], [], []
    gaps = [e.mdp.v_star - p.value for p in e.phases]
    counts = [p.record.n_trajectories for p in e.phases]
    points = e.run.curve
    for i, played in enumerate(_replayed(e), start=1):
        total = sum(counts[:i])
        mean = float(np.dot(np.array(counts[:i]) / total, gaps[:i]))
        main = counts[i] * gaps[i] if i < len(counts) else 0.0
        regrets.append((points[i].regret or 0.0) - (points[i - 1].regret or 0.0) - main)
        expected.append(played * mean)
        luck.append(bounds.replay_luck(e.constants, i + 1))
    return lemmas.replayed_regret(regrets, expected, luck)


def _replayed(e: Evidence) -> list[int]:
    """Episodes of the S3Q calls before phases 2, 3, ...: between the ends of two phases all others are main loop."""
    return [after.replay_episodes - before.replay_episodes for before, after in pairwise(e.run.curve)]


def _pointwise(
    phases: tuple[PhaseEvidence, ...],
    e: Evidence,
    arrays: Callable[[PhaseEvidence], tuple[Array, ...]],
    test: Callable[..., Claim],
) -> Claim:
    """A claim at every reachable pair of the phases, except where the clip hides the best fit."""
    found = []
    for p in phases:
        here = e.reachable & ~clipped_away(e, p)
        found.append(test(*(x[here] for x in arrays(p))))
    return _joined(found)


def clipped_away(e: Evidence, p: PhaseEvidence) -> BoolArray:
    """(H, S, A): where phi . theta_pi lies outside of what Q can say, so that the clip hides the fit."""
    low = 0.0 if e.mdp.spec.well_specified else -np.inf
    high = np.array(e.mdp.spec.value_bound)[:, None, None]
    return np.asarray((p.best_linear > high * (1 + 1e-9)) | (p.best_linear < low - 1e-9 * high))


def _regressions(e: Evidence) -> list[tuple[Array, Array, Array, Array, float]]:
    """Per level of the newest fit: E xx^T, E xy, the fit, the best fit in the ball, ridge over samples."""
    if not e.fitted:
        return []
    p, spec = e.fitted[-1], e.mdp.spec
    found = []
    for h in range(spec.horizon):
        fit = population_fit(e.mdp, p.controller, h)
        best = fit.solve(p.backup[h].ravel(), e.constants.radius()[h])
        moment = np.zeros(spec.gram_shape[:2])
        weighted = (p.controller[h] * p.backup[h])[..., None] * e.mdp.features.vectors[h]
        np.add.at(moment, e.mdp.features.blocks[h].ravel(), weighted.reshape(-1, spec.block_dim))
        gram = p.expected[h] / p.n_before
        found.append((gram, moment, p.record.q.theta[h], best, float(p.record.ridge[h]) / p.n_level))
    return found


def _joined(claims: list[Claim]) -> Claim:
    if not claims:
        return claim([], [])
    return Claim(*(np.concatenate([np.ravel(x) for x in parts]) for parts in zip(*claims, strict=True)))


STATEMENTS = (
    Statement("Theorem 1 (a): average regret", "thm:Sequoia", "theorem 1", False, _regret, trivial=_value_bound),
    Statement("Theorem 1 (b): floats held", "thm:Sequoia", "nothing", False, _memory),
    Statement("Theorem 1 (b): products a step", "thm:Sequoia", "nothing", True, _work, "counted, not timed"),
    Statement(
        "Theorem 2: S3Q without bonus", "thm:Q-learning", "nothing", True, _s3q,
        "S4Q calls S3Q with a bonus: see Theorem 3",
    ),
    Statement("Theorem 3 (a): (err + Delta)/(U + b)", "thm:Q-learningExp", "width", False, _sandwich),
    Statement("Theorem 3 (b): E(V - V^pi)", "thm:Q-learningExp", "width", False, _promise, trivial=_value_bound),
    Statement("fit: |phi.(theta - theta_pi)|/U", "lem:Convergence2PopulationMinimizer", "width", False, _fit),
    Statement("bonus b/U", "lem:BonusBound", "width", False, _bonus),
    Statement("near-optimism: Q - Q* + errors to go", "lem:Optimism", "optimism", False, _optimism),
    Statement("near-optimism at the start", "lem:Optimism", "optimism", False, _optimism_at_start),
    Statement("replayed regret of an S3Q call", "lem:PhasedRegret", "nothing", False, _replays),
    Statement("elliptic potential", "lem:EllipticPotential", "theorem 1", False, _potential),
    Statement("phases", "lem:NumberOfPhases", "theorem 1", False, _phases),
    Statement("expected over seen progress", "lem:ProportionalEstimate", "theorem 1", False, _proportional),
    Statement("covariance over its mean", "prop:ConcentrationRegularizedCovariance", "theorem 1", False, _matrix),
    Statement("log determinants", "lem:LogDet", "theorem 1", False, _log_det),
    Statement("progress at the trigger", "line:NewPolicyTrigger", "nothing", True, _trigger),
    Statement("information gain of a phase", "LemInfoGain", "nothing", True, _information_gain),
    Statement("information gathered, and its cap", "Bound on Information Gain", "nothing", True, _information_cap),
    Statement("error identity", "proof of thm:Q-learning", "nothing", True, _error_identity),
    Statement("recursion = least squares", "lem:EquivalenceWithLeastSquares", "nothing", True, _least_squares),
    Statement("samples of a level", "lem:OrderOfUpdates", "nothing", True, _sample_count),
    Statement("excess loss identity", "lem:ExcessLoss", "nothing", True, _excess_loss),
    Statement("excess risk of the fit", "lem:Sigma2ERM", "nothing", True, _excess_risk),
)  # fmt: skip
