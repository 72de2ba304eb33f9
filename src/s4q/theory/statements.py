"""The statements of the paper about a recorded run, as inequalities by phase and level; `rows` lists them."""

from collections.abc import Callable
from itertools import pairwise
from math import log

import numpy as np

from s4q.core.blocks import Array, BoolArray, dense
from s4q.theory import bounds, lemmas
from s4q.theory.as_prescribed import SAME
from s4q.theory.evidence import Evidence, PhaseEvidence
from s4q.theory.information_gain import effective_dim_cap
from s4q.theory.lemmas import Claim, between, claim
from s4q.theory.parts import Part
from s4q.theory.population_fits import population_fit


def regret(e: Evidence) -> list[Part]:
    episodes = e.run.episodes
    bound = bounds.theorem1_regret(e.constants, episodes, e.gains, e.terr)
    found = claim((e.run.regret or 0.0) / episodes, bound / episodes)
    return [Part(found, high=e.mdp.v_star - e.worst_value)]


def memory(e: Evidence) -> list[Part]:
    c = e.constants
    proved = e.prescribed.proved and c.fixed_trigger is None and c.fixed_ridge is None  # the number of phases
    phases = bounds.phases_bound(e.constants, e.gains) if proved else len(e.phases)
    return [Part(claim(e.run.nbytes / 8, bounds.theorem1_floats(e.constants, phases)))]


def work(e: Evidence) -> list[Part]:
    q, n_actions = e.run.q, e.mdp.n_actions
    k = q.theta.shape[-1]
    products = n_actions * (k + k**2 + k + 1) + 2 * k**2  # phi . theta, W phi, its square, the width; Gram and trigger
    return [Part(claim(products, bounds.theorem1_work(e.constants)))]


def sandwich(e: Evidence) -> list[Part]:
    def test(*arrays: Array) -> Claim:
        scale = arrays[2] + arrays[3]  # U + b: 0 only where phi is 0, and with it everything else
        return lemmas.sandwich(*(x[scale > 0] / scale[scale > 0] for x in arrays))

    return _pointwise(e.phases, e, lambda p: (p.errors, p.comparators, p.uncertainties, p.bonuses), test)


def promise(e: Evidence) -> list[Part]:
    most = float(e.mdp.spec.to_user_units(0, np.array(e.mdp.spec.value_bound[0]))) - e.worst_value
    parts = []
    for p in e.phases:
        high = bounds.theorem3_values(p.occupancy, p.uncertainties, p.bonuses, e.terr)
        parts.append(Part(claim(p.promised - p.value, high), p.record.phase, high=most))
    return parts


def least_squares(e: Evidence) -> list[Part]:
    last, spec = e.phases[-1], e.mdp.spec
    if spec.dim > 500:  # the recursion costs d^2 a pair
        return []
    parts = []
    for h in range(spec.horizon):
        here = e.reachable[h].ravel()
        vectors = dense(e.mdp.features.vectors[h], e.mdp.features.blocks[h], spec.n_blocks).reshape(-1, spec.dim)
        found = lemmas.least_squares(vectors[here], last.backup[h].ravel()[here], 1.0, spec.radius[h])
        parts.append(Part(found, last.record.phase, h))
    return parts


def sample_count(e: Evidence) -> list[Part]:
    parts = []
    for p in e.fitted:
        played = sum(fit.n_episodes for fit in p.call)
        parts.append(Part(lemmas.sample_count([p.n_level], [played], e.mdp.horizon), p.record.phase))
    return parts


def fit(e: Evidence) -> list[Part]:
    def test(off: Array, u: Array) -> Claim:
        return lemmas.fit_error(off[u > 0] / u[u > 0], np.ones(int((u > 0).sum())))

    return _pointwise(e.fitted, e, lambda p: (p.linear - p.best_linear, p.uncertainties), test)


def bonus(e: Evidence) -> list[Part]:
    def test(b: Array, u: Array) -> Claim:
        if e.prescribed.proved:
            return lemmas.bonus_sandwich(b[u > 0], u[u > 0], bounds.bonus_over_uncertainty(e.constants))
        return between(1 - SAME, b[u > 0] / u[u > 0], 1 + SAME)  # the same number, computed in two ways

    return _pointwise(e.phases, e, lambda p: (p.bonuses, p.uncertainties), test)


def optimism(e: Evidence) -> list[Part]:
    parts = []
    for p in e.phases:
        to_go = lemmas.errors_to_go(e.mdp, p.comparators)
        known = (e.mdp.q_values(p.record.q), e.mdp.q_star, to_go)
        for h, here in enumerate(e.reachable):
            parts.append(Part(lemmas.near_optimism(*(x[h][here] for x in known)), p.record.phase, h))
    return parts


def optimism_at_start(e: Evidence) -> list[Part]:
    return [Part(lemmas.near_optimism(p.promised, e.mdp.v_star, e.terr), p.record.phase) for p in e.phases]


def error_identity(e: Evidence) -> list[Part]:
    scale = e.mdp.spec.value_bound[0]
    return [
        Part(lemmas.error_identity(p.promised, p.value, p.occupancy, p.errors, scale), p.record.phase) for p in e.phases
    ]


def potential(e: Evidence) -> list[Part]:
    phase, longest = e.phases[-1].record.phase, max(p.n_played for p in e.phases)
    parts = []
    for h, gain in enumerate(e.gains.tolist()):
        spent = sum(p.n_played * lemmas.trace_ratio(p.ridged(p.expected, h), p.grams[h]) for p in e.phases)
        parts.append(Part(claim(spent, bounds.potential_bound(e.constants, phase, longest, gain)), None, h))
    return parts


def number_of_phases(e: Evidence) -> list[Part]:
    return [Part(claim(len(e.phases), bounds.phases_bound(e.constants, e.gains)))]


def trigger(e: Evidence) -> list[Part]:
    parts = []
    for p in e.finished:
        need, over = e.prescribed.trigger(p.record.phase, p.n_played), 1.0 / float(p.ridge.min())  # one feature more
        level = int(np.argmax(p.progress))
        parts.append(Part(between(need, p.progress[level], need + over), p.record.phase, level))
    return parts


def information_gain(e: Evidence) -> list[Part]:
    parts = []
    for p in e.finished:
        for h in range(e.mdp.horizon):
            found = lemmas.information_gain(p.ridged(p.expected, h), p.grams[h], p.n_played, np.inf)
            parts.append(Part(found, p.record.phase, h))
    return parts


def information_cap(e: Evidence) -> list[Part]:
    caps = [effective_dim_cap(e.mdp.dim, e.run.episodes / float(lam)) for lam in e.phases[0].ridge]
    rows = zip(e.realised, [dim.lower for dim in e.dims], e.gains, caps, strict=True)
    return [Part(lemmas.information_cap(*([x] for x in row)), None, h) for h, row in enumerate(rows)]


def proportional(e: Evidence) -> list[Part]:
    parts = []
    for p in e.finished:
        need = e.prescribed.trigger(p.record.phase, p.n_played)
        for h, progress in enumerate(p.progress):
            expected = p.n_played * lemmas.trace_ratio(p.ridged(p.record.cov_ref, h), p.grams[h])
            if progress >= need - 2e-9 * min(need, 1.0):  # as the trigger, rounding left aside
                found = lemmas.proportional(progress, expected)
            else:  # a level that did not trigger: only from above, and against the trigger
                found = claim(expected / need, 1.5)
            parts.append(Part(found, p.record.phase, h))
    return parts


def matrix(e: Evidence) -> list[Part]:
    steps, parts = bounds.proof_steps(e.constants), []
    for p in e.phases:
        for estimate in (p.record.cov_ref, p.covariance):  # of Sigma_ref and of the bonus: both estimate Sbar
            for h, ridge in enumerate(p.ridge.tolist()):
                ratio = lemmas.matrix_ratio(estimate[h], p.expected[h], ridge)
                found = lemmas.matrix_concentration(steps.covariance_low, [ratio], steps.covariance_high)
                parts.append(Part(found, p.record.phase, h))
    return parts


def log_det(e: Evidence) -> list[Part]:
    parts = []
    for p in e.finished:
        n, delta = p.n_played, e.prescribed.delta_fit(p.record.phase)
        for h in range(e.mdp.horizon):
            sigma = p.ridged(p.record.cov_ref, h)
            seen, expected = (lemmas.log_det_ratio(sigma, g) for g in (p.record.increment[h], n * p.grams[h]))
            most = e.mdp.dim * log(1 + n / (e.mdp.dim * float(p.ridge[h])))  # n features of norm at most 1
            found = lemmas.log_det(seen, expected, n, delta)
            parts.append(Part(found, p.record.phase, h, low=0.0, high=most))
    return parts


def excess_loss(e: Evidence) -> list[Part]:
    return [
        Part(lemmas.excess_loss(gram, moment, theta), e.fitted[-1].record.phase, h)
        for h, (gram, moment, theta, _, _) in enumerate(_regressions(e))
    ]


def excess_risk(e: Evidence) -> list[Part]:
    rows = enumerate(_regressions(e))
    return [Part(lemmas.excess_risk(*regression), e.fitted[-1].record.phase, h) for h, regression in rows]


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


def _pointwise(
    phases: tuple[PhaseEvidence, ...],
    e: Evidence,
    arrays: Callable[[PhaseEvidence], tuple[Array, ...]],
    test: Callable[..., Claim],
) -> list[Part]:
    """A claim at every reachable pair of the phases, except where the clip hides the best fit."""
    parts = []
    for p in phases:
        shown = e.reachable & ~clipped_away(e, p)
        for h, here in enumerate(shown):
            parts.append(Part(test(*(x[h][here] for x in arrays(p))), p.record.phase, h))
    return parts


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
        best = fit.solve(p.backup[h].ravel(), e.prescribed.ball()[h])
        moment = np.zeros(spec.gram_shape[:2])
        weighted = (p.controller[h] * p.backup[h])[..., None] * e.mdp.features.vectors[h]
        np.add.at(moment, e.mdp.features.blocks[h].ravel(), weighted.reshape(-1, spec.block_dim))
        gram = p.expected[h] / p.n_before
        found.append((gram, moment, p.record.q.theta[h], best, float(p.ridge[h]) / p.n_level))
    return found
