"""Was the run made as the paper prescribes? The learner against `Prescribed`, the collector against the exact law.

Rows about the learner are deterministic. Rows of sampling compare sums with their exact means: each deviation is
divided by the largest one that is allowed, so it must stay below 1, and an honest run fails with a chance of at most
`lemmas.RARE`. `AS_PRESCRIBED` lists the rows; the audit of S3Q uses the same checks. No formula of a learner is used.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from s4q.core.blocks import Array
from s4q.core.least_squares import gram_of
from s4q.learners.fit_record import FitRecord
from s4q.problems import FiniteMDP
from s4q.theory import lemmas
from s4q.theory.definitions import next_values, visited_pairs
from s4q.theory.evidence import Evidence, PhaseEvidence, Statement, by_level, by_phase
from s4q.theory.lemmas import FAILS, RARE, Claim, Part, between, claim, phase_share
from s4q.theory.statements import SAME

_ROUNDING = 1e-11  # of sums of up to 10^18 terms, relative to their size


def relative_error(ratio: Array | float, tolerance: float = SAME) -> Claim:
    """|ratio - 1| of a number over the prescribed one."""
    return claim(np.abs(np.asarray(ratio) - 1), tolerance)


def ridge(e: Evidence) -> list[Part]:
    """The ridge that the learner used against the prescribed one."""
    return by_level(e.phases, lambda p, h: relative_error(float(p.record.ridge[h]) / float(p.ridge[h])))


def width(e: Evidence) -> list[Part]:
    """The width of the bonus against the prescribed one."""

    def test(p: PhaseEvidence, h: int) -> Claim:
        used, lam = p.record.q.levels[h].width, float(p.ridge[h])
        if used is None:
            return relative_error(0.0)
        if e.constants.preset == "practical" and e.constants.spec.well_specified:
            # The part that does not come from the spread of the targets.
            return relative_error(used / (e.mdp.spec.value_bound[h] * np.sqrt(lam)))
        if e.constants.preset == "practical":
            samples = p.fits[h].n_episodes if p.fits else 0  # an audited run does not pool
            residual = float(p.record.residuals[h])
            allowed = e.prescribed.inexact_width(h, residual, lam, samples, p.covariance[h])
            return relative_error(used / np.clip(used, *allowed))
        return relative_error(used / e.prescribed.width(h, p.number, p.n_before, p.covariance[h], lam))

    return by_level(e.phases, test)


def ball(e: Evidence) -> list[Part]:
    """The radius of the learner's balls against the prescribed one."""
    used, meant = e.constants.radius(), e.prescribed.ball()
    if used.shape != meant.shape:
        return [Part(relative_error(0.0))]
    both = np.isinf(used) & np.isinf(meant)
    ratio = np.where(both, 1.0, used / np.where(both, 1.0, meant))
    return [Part(relative_error(np.ravel(ratio[h])), None, h) for h in range(len(ratio))]


def bonus_matrix(e: Evidence) -> list[Part]:
    """|phi|^2 in the metric of the learner's bonus against that of (Gram + prescribed ridge)^-1, at reachable pairs."""

    def test(p: PhaseEvidence, h: int) -> Claim:
        white = p.record.q.levels[h].whitener
        if white is None:
            return claim([], [])
        vectors, blocks, _ = visited_pairs(e.mdp, h, e.reachable[h])
        seen = np.einsum("nij,nj->ni", white[blocks], vectors)
        values, axes = np.linalg.eigh(p.covariance[h])
        turned = np.einsum("nji,nj->ni", axes[blocks], vectors)
        meant = (turned**2 / (np.maximum(values, 0.0) + float(p.ridge[h]))[blocks]).sum(axis=1)
        some = meant > 0
        ratio = (seen**2).sum(axis=1)[some] / meant[some]
        return relative_error(ratio, 1e-3)  # ill-conditioned at 10^18 episodes

    return by_level(e.phases, test)


def trigger(e: Evidence) -> list[Part]:
    """The progress at which a phase ended: between the prescribed trigger and one feature more."""
    parts = []
    for p in e.finished:
        need, over = e.prescribed.trigger(p.number, p.n_played), 1.0 / float(p.ridge.min())
        progress = [p.progress(h) for h in range(e.mdp.horizon)]
        level = int(np.argmax(progress))
        parts.append(Part(between(need, progress[level], need + over), p.number, level))
    return parts


def sigma_ref(e: Evidence) -> list[Part]:
    """Sigma_ref less the fit's Gram matrix scaled to m_tot trajectories, relative to its largest entry."""

    def test(p: PhaseEvidence, h: int) -> Claim:
        used = p.record.cov_ref[h]
        meant = p.fits[h].gram * (p.n_before / p.n_level) if p.fits else np.zeros_like(used)
        return claim(np.abs(used - meant).max() / (float(np.abs(meant).max()) or 1.0), SAME)

    return by_level(e.phases, test)


def fits(e: Evidence) -> list[Part]:
    """theta less the constrained least squares of the collector's sums, in the norm of Sigma and relative to it.

    lem:EquivalenceWithLeastSquares on the run itself, with a solver of the audit's own.
    """
    balls = e.prescribed.ball()

    def test(p: PhaseEvidence, h: int) -> Claim:
        theta, bound = p.record.q.theta[h], e.mdp.spec.value_bound[h]
        if not p.fits:  # the fit of no samples is 0
            return claim(np.abs(theta).max(), SAME * bound)
        return refit_error(theta, p.fits[h], float(p.ridge[h]), balls[h], bound)

    return by_level(e.phases, test)


def refit_error(theta: Array, fit: FitRecord, lam: float, radius: Array, value_bound: float) -> Claim:
    """|theta - constrained least squares| in the norm of Sigma, relative to its size or to that of small values."""
    meant, sigma = constrained(fit.gram, fit.moment, lam, radius), fit.gram + lam * np.eye(theta.shape[-1])
    scale = _length(meant, sigma) + 1e-3 * value_bound * np.sqrt(np.einsum("bii->", sigma))
    return claim(_length(theta - meant, sigma) / scale, SAME)


def constrained(gram: Array, moment: Array, lam: float, radius: Array | float) -> Array:
    """argmin of theta (gram + lam I) theta - 2 moment . theta over a ball, or (n_blocks,) over a ball per block.

    It is the ridge fit with a larger ridge; that is found by bisection.

    >>> constrained(np.ones((1, 1, 1)), np.full((1, 1), 4.0), 1.0, 0.5).tolist()
    [[0.5]]
    """
    balls = np.asarray(radius, dtype=np.float64)
    values, axes = np.linalg.eigh(gram)
    along = np.einsum("bji,bj->bi", axes, moment)

    def at(more: Array) -> Array:
        return np.asarray(along / (np.maximum(values, 0.0) + lam + more))

    def length(x: Array) -> Array:
        return np.asarray(np.sqrt((x**2).sum(axis=None if balls.ndim == 0 else 1, keepdims=True)))

    limit = balls.reshape((1, 1) if balls.ndim == 0 else (-1, 1))
    low = np.zeros_like(limit)
    outside = length(at(low)) > limit
    if outside.any():
        high = np.where(outside, length(along) / limit, 0.0)  # |moment| / more is below the radius there
        for _ in range(2000):
            middle = (low + high) / 2
            long = length(at(middle)) > limit
            low, high = np.where(long, middle, low), np.where(long, high, middle)
            if np.all(high - low <= 1e-15 * (high + lam)):
                break
        low = np.where(outside, high, 0.0)
    return np.asarray(np.einsum("bij,bj->bi", axes, at(low)))


def _length(x: Array, sigma: Array) -> float:
    return float(np.sqrt(max(np.einsum("bi,bij,bj->", x, sigma, x), 0.0)))


def trajectories(e: Evidence) -> list[Part]:
    """The trajectories that the learner counts against the episodes that the collector played in its main loop."""
    return by_phase(e.phases, lambda p: claim(abs(p.record.n_episodes - p.n_played) / max(p.n_played, 1), _ROUNDING))


def replay_lengths(e: Evidence) -> list[Part]:
    """Episodes that the collector played for a level, and for a whole S3Q call, against what m_tot prescribes."""

    def of_call(p: PhaseEvidence) -> Claim:
        played = sum(fit.n_episodes for fit in p.call)
        return relative_error(played / (e.mdp.horizon * e.prescribed.call_episodes(p.n_before)), _ROUNDING)

    def of_level(p: PhaseEvidence, h: int) -> Claim:
        played = p.fits[h].n_episodes if p.fits else 0
        return relative_error(played / e.prescribed.level_episodes(p.n_before), _ROUNDING)

    later = [p for p in e.phases if p.n_before]
    return [part for p in later for part in (Part(of_call(p), p.number), *by_level([p], of_level))]


def replay_weights(e: Evidence) -> list[Part]:
    """Share of each policy in the replay against n_j / m_tot: every policy's count is binomial."""
    parts = []
    for i, p in enumerate(e.phases):
        if p.call:
            counts = np.sum([fit.per_policy for fit in p.call], axis=0)
            expected = _weights(e.phases[:i], len(counts))
            n = int(counts.sum())
            allowed = lemmas.bernstein(n * expected * (1 - expected), 1.0, phase_share(p.number, len(counts)))
            ratio = np.abs(counts - n * expected) / allowed
            impossible = (expected == 0) & (counts > 0)  # a policy that no phase has played
            parts.append(Part(claim(np.where(impossible, FAILS, ratio), 1.0), p.number))
    return parts


def _weights(phases: Iterable[PhaseEvidence], size: int) -> Array:
    """n_j / m_tot by phase; phases with equal policies count as the first of them. (size,), the last for none."""
    weights, first = np.zeros(size), list[PhaseEvidence]()
    for p in phases:
        same = (j for j, other in enumerate(first) if other.record.q.same_as(p.record.q))
        weights[min(next(same, len(first)), size - 1)] += p.n_played
        first.append(p)
    return np.asarray(weights / max(weights.sum(), 1.0))


class Samples(NamedTuple):
    """The sums of one fit, and the law that they were drawn from."""

    phase: int  # with S3Q: the epoch
    fit: FitRecord
    controller: Array  # occupancies (H, S, A)
    best: Array  # (n_blocks, k): the best on-policy parameter, without a ball
    after: Array  # (S,): the value of the next level


def _samples(e: Evidence) -> Iterable[Samples]:
    for p in e.phases:
        after = next_values(e.mdp, p.record.q)
        for fit in p.fits:
            yield Samples(p.number, fit, p.controller, p.best[fit.level], after[fit.level])


def replayed_grams(mdp: FiniteMDP, samples: Iterable[Samples]) -> list[Part]:
    """Gram matrix and trace of each fit's samples against n E phi phi^T of the prescribed controller."""
    parts = []
    for phase, fit, controller, _, _ in samples:
        mean, variance, largest = _products(mdp, fit.level, controller[fit.level])
        n, seen = fit.n_episodes, _entries(fit.gram)
        allowed = lemmas.bernstein(n * variance, largest, phase_share(phase, len(seen) * mdp.horizon))
        ratio = _ratio(seen - n * mean, allowed + _ROUNDING * n * largest)
        parts.append(Part(claim(ratio, 1.0), phase, fit.level))
    return parts


def main_loop_grams(e: Evidence) -> list[Part]:
    """The same for all main loops up to each phase: a martingale, as a phase ends when its progress says so."""
    horizon = e.mdp.horizon
    parts = []
    for h in range(horizon):
        off = spread = np.zeros(1 + e.phases[0].record.increment[h].size)
        most, total = 0.0, 0
        for p in e.phases:
            mean, variance, largest = _products(e.mdp, h, p.occupancy[h])
            off = off + _entries(p.record.increment[h]) - p.n_played * mean
            spread, most, total = spread + p.n_played * variance, max(most, largest), total + p.n_played
            allowed = lemmas.freedman(spread, most, RARE / (horizon * len(off))) + _ROUNDING * total * most
            parts.append(Part(claim(_ratio(off, allowed), 1.0), p.number, h))
    return parts


def targets(mdp: FiniteMDP, episodes: int, samples: Iterable[Samples]) -> list[Part]:
    """sum of phi y of each fit against what the exact backup of the next level's Q gives.

    What is compared is the sum of phi (y - phi . theta), theta the best on-policy parameter: its mean is 0 where the
    features are exact, and its spread does not contain that of phi. Half of RARE is for every fit, along each
    coordinate. The other half is for all fits of the run together, in the direction that sees a common factor of all
    targets best.
    """
    parts = []
    all_off = all_spread = all_largest = all_rounding = 0.0
    for phase, fit, controller, best, after in samples:
        law, n = _residual(mdp, controller[fit.level], best, fit.level, after), fit.n_episodes
        off = fit.moment - np.einsum("bij,bj->bi", fit.gram, best) - n * law.mean
        delta = phase_share(phase, off.size * mdp.horizon) / 2
        allowed = lemmas.bernstein(n * law.second, law.largest, delta) + _ROUNDING * n * law.scale
        parts.append(Part(claim(_ratio(off, allowed), 1.0), phase, fit.level))
        all_off += float((law.along * off).sum())
        all_spread += n * law.second_along
        all_largest = max(all_largest, law.largest_along)
        all_rounding += _ROUNDING * n * law.scale * float(np.abs(law.along).sum())
    if all_largest:
        limit = lemmas.freedman_about(all_spread, float(episodes), all_largest, RARE / 2)
        parts.append(Part(claim(abs(all_off) / (limit + all_rounding), 1.0)))
    return parts


def _entries(gram: Array) -> Array:
    """All entries of a Gram matrix (n_blocks, k, k), and its trace as the last."""
    return np.append(gram.ravel(), np.einsum("bii->", gram))


def _ratio(off: Array, allowed: Array) -> Array:
    """|off| / allowed; 0 where nothing can deviate and nothing does."""
    size = np.abs(off)
    return np.asarray(np.where(allowed > 0, size / np.where(allowed > 0, allowed, 1.0), np.where(size > 0, FAILS, 0)))


def _products(mdp: FiniteMDP, h: int, occupancy: Array) -> tuple[Array, Array, float]:
    """Mean and variance of all entries of phi phi^T, and of |phi|^2 as the last; the largest |phi|^2."""
    vectors, blocks, weights = visited_pairs(mdp, h, occupancy)
    root, length = np.sqrt(weights)[:, None], (vectors**2).sum(axis=1)
    mean = gram_of(vectors * root, blocks, mdp.spec.n_blocks).ravel()
    second = gram_of(vectors**2 * root, blocks, mdp.spec.n_blocks).ravel()
    mean, second = np.append(mean, weights @ length), np.append(second, weights @ length**2)
    return mean, np.maximum(second - mean**2, 0.0), float(length.max(initial=0.0))


class _Residual(NamedTuple):
    """Mean, second moment and largest size of phi (y - phi . theta) for one episode."""

    mean: Array  # (n_blocks, k)
    second: Array
    largest: Array
    scale: float  # the size of the numbers that are subtracted
    along: Array  # the direction in which a common factor of all targets shows best
    second_along: float
    largest_along: float


def _residual(mdp: FiniteMDP, occupancy: Array, best: Array, h: int, after: Array) -> _Residual:
    vectors, blocks, weights = visited_pairs(mdp, h, occupancy)
    chosen = np.flatnonzero(occupancy.ravel())
    low, mean, high, variance = (x.ravel()[chosen] for x in _target_law(mdp, h, after))
    predicted = np.einsum("nk,nk->n", vectors, best[blocks])
    room = np.maximum(np.abs(high - predicted), np.abs(low - predicted))
    shape = (mdp.spec.n_blocks, mdp.spec.block_dim)
    means, pull, most = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    np.add.at(means, blocks, vectors * (weights * (mean - predicted))[:, None])
    np.add.at(pull, blocks, vectors * (weights * mean)[:, None])
    np.maximum.at(most, blocks, np.abs(vectors) * room[:, None])
    scale = float(np.abs([low, high, predicted]).max(initial=0.0))
    second = (mean - predicted) ** 2 + variance + (1e-3 * scale) ** 2  # a little more, so that nothing is free of noise
    squares = gram_of(vectors * np.sqrt(weights * second)[:, None], blocks, mdp.spec.n_blocks)
    along = np.einsum("bij,bj->bi", np.linalg.pinv(squares, rcond=1e-9, hermitian=True), pull)  # pull over its noise
    reach = np.abs(np.einsum("nk,nk->n", vectors, along[blocks])) * room
    diagonal, second_along = np.einsum("bii->bi", squares), np.einsum("bi,bij,bj->", along, squares, along)
    return _Residual(means, diagonal, most, scale, along, float(second_along), float(reach.max(initial=0.0)))


def _target_law(mdp: FiniteMDP, h: int, after: Array) -> tuple[Array, Array, Array, Array]:
    """Lowest, mean and highest target r + V'(s') of each pair and its variance, (S, A); shifted rewards."""
    spec, moves = mdp.spec, mdp.transitions[h]
    value = np.where(mdp.terminal, spec.ended_value(h), after)
    possible = moves > 0
    if mdp.arrival_rewards is not None:
        paid = mdp.arrival_rewards[h] - spec.reward_min + value
        low, high = np.where(possible, paid, np.inf).min(axis=-1), np.where(possible, paid, -np.inf).max(axis=-1)
        mean = (moves * paid).sum(axis=-1)
        return low, mean, high, (moves * (paid - mean[..., None]) ** 2).sum(axis=-1)
    reward, span = mdp.rewards[h] - spec.reward_min, spec.reward_max - spec.reward_min
    noisy = mdp.reward_noise == "bernoulli"
    ahead = moves @ value
    variance = moves @ value**2 - ahead**2 + (reward * (span - reward) if noisy else 0.0)
    low = np.where(possible, value, np.inf).min(axis=-1) + (0.0 if noisy else reward)
    high = np.where(possible, value, -np.inf).max(axis=-1) + (span if noisy else reward)
    return low, reward + ahead, high, np.maximum(variance, 0.0)


AS_PRESCRIBED = (
    Statement("prescribed ridge: relative error", "alg:Sequoia", "always", ridge),
    Statement("prescribed width: relative error", "eqn:Bonus", "always", width),
    Statement("prescribed ball: relative error", "alg:ShermanMorrisonUpdate", "always", ball),
    Statement("bonus in Gram + prescribed ridge", "eqn:Bonus", "always", bonus_matrix),
    Statement("progress at the trigger", "line:NewPolicyTrigger", "always", trigger),
    Statement("Sigma_ref = Gram of the replay", "alg:Sequoia", "always", sigma_ref),
    Statement("fit = least squares of its samples", "lem:EquivalenceWithLeastSquares", "always", fits),
    Statement("trajectories counted and played", "alg:Sequoia", "always", trajectories),
    Statement("replay length and c m_tot", "alg:Sequoia", "always", replay_lengths),
    Statement("replay weights and n_j/m_tot", "alg:Sequoia", "rarely", replay_weights),
    Statement("Gram of a fit and its mean", "sampling", "rarely", lambda e: replayed_grams(e.mdp, _samples(e))),
    Statement(
        "targets of a fit and their mean", "sampling", "rarely", lambda e: targets(e.mdp, e.run.episodes, _samples(e))
    ),
    Statement("Gram of main loops and its mean", "sampling", "rarely", main_loop_grams),
)
