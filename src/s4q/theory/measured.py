"""Rows about what was played: the collector's answers against the law that the problem and the policies give them.

Sums are compared with their exact means. A row of sampling divides each deviation by the largest one that is allowed,
so it must stay below 1; an honest run fails one with a chance of at most `deviations.RARE`.
"""

from collections.abc import Iterable
from typing import NamedTuple, final

import numpy as np

from s4q.core.blocks import Array, IntArray
from s4q.core.least_squares import gram_of
from s4q.learners.fit_record import FitRecord
from s4q.problems import FiniteMDP
from s4q.theory.deviations import RARE, bernstein, freedman, freedman_about, phase_share
from s4q.theory.evidence import Evidence, PhaseEvidence
from s4q.theory.lemmas import claim
from s4q.theory.parts import FAILS, Part
from s4q.theory.structure import next_values

_ROUNDING = 1e-11  # of sums of up to 10^18 terms, relative to their size


def trajectories(e: Evidence) -> list[Part]:
    """The trajectories that the learner counts against the episodes that the collector played in its main loop."""
    return [
        Part(claim(abs(p.record.n_episodes - p.n_played) / max(p.n_played, 1), _ROUNDING), p.record.phase)
        for p in e.phases
    ]


def replay_lengths(e: Evidence) -> list[Part]:
    """Episodes that the collector played for a level, and for a whole S3Q call, against what m_tot prescribes."""
    parts, horizon = [], e.mdp.horizon
    for p in e.phases:
        if not p.n_before:
            continue
        level, call = (f(p.n_before) for f in (e.prescribed.level_episodes, e.prescribed.call_episodes))
        whole = sum(fit.n_episodes for fit in p.call) / (horizon * call)
        played = {fit.level: fit.n_episodes for fit in p.fits}
        parts.append(Part(claim(abs(whole - 1), _ROUNDING), p.record.phase))
        for h in range(horizon):
            found = claim(abs(played.get(h, 0) / level - 1), _ROUNDING)
            parts.append(Part(found, p.record.phase, h))
    return parts


def replay_weights(e: Evidence) -> list[Part]:
    """Share of each policy in the replay against n_j / m_tot: every policy's count is binomial."""
    parts = []
    for i, p in enumerate(e.phases):
        if p.call:
            counts = np.sum([fit.per_policy for fit in p.call], axis=0)
            expected = _weights(e.phases[:i], len(counts))
            n = int(counts.sum())
            allowed = bernstein(n * expected * (1 - expected), 1.0, phase_share(p.record.phase, len(counts)))
            ratio = np.abs(counts - n * expected) / allowed
            impossible = (expected == 0) & (counts > 0)  # a policy that no phase has played
            parts.append(Part(claim(np.where(impossible, FAILS, ratio), 1.0), p.record.phase))
    return parts


def _weights(phases: Iterable[PhaseEvidence], size: int) -> Array:
    """n_j / m_tot by phase; phases with equal policies count as the first of them. (size,), the last for none."""
    weights, first = np.zeros(size), list[PhaseEvidence]()
    for p in phases:
        same = (j for j, other in enumerate(first) if other.record.q.same_as(p.record.q))
        weights[min(next(same, len(first)), size - 1)] += p.n_played
        first.append(p)
    return np.asarray(weights / max(weights.sum(), 1.0))


def replayed_grams(e: Evidence) -> list[Part]:
    """Gram matrix and trace of each fit's samples against n E phi phi^T of the prescribed controller."""
    return [
        Part(claim(gram_deviation(e.mdp, fit, p.controller, p.record.phase), 1.0), p.record.phase, fit.level)
        for p in e.phases
        for fit in p.fits
    ]


def gram_deviation(mdp: FiniteMDP, fit: FitRecord, controller: Array, phase: int) -> Array:
    """The deviations of a fit's Gram matrix and trace over those allowed; controller (H, S, A)."""
    mean, variance, largest = _products(mdp, fit.level, controller[fit.level])
    n, seen = fit.n_episodes, np.append(fit.gram.ravel(), np.einsum("bii->", fit.gram))
    allowed = bernstein(n * variance, largest, phase_share(phase, len(seen) * mdp.horizon))
    return _ratio(seen - n * mean, allowed + _ROUNDING * n * largest)


def main_loop_grams(e: Evidence) -> list[Part]:
    """The same for all main loops up to each phase: a martingale, as a phase ends when its progress says so."""
    horizon = e.mdp.horizon
    parts = []
    for h in range(horizon):
        off = spread = np.zeros(1 + e.phases[0].record.increment[h].size)
        most, total = 0.0, 0
        for p in e.phases:
            mean, variance, largest = _products(e.mdp, h, p.occupancy[h])
            gram = p.record.increment[h]
            off = off + np.append(gram.ravel(), np.einsum("bii->", gram)) - p.n_played * mean
            spread, most, total = spread + p.n_played * variance, max(most, largest), total + p.n_played
            allowed = freedman(spread, most, RARE / (horizon * len(off))) + _ROUNDING * total * most
            parts.append(Part(claim(_ratio(off, allowed), 1.0), p.record.phase, h))
    return parts


def targets(e: Evidence) -> list[Part]:
    """sum of phi y of each fit against what the exact backup of the next level's Q gives.

    What is compared is the sum of phi (y - phi . theta), theta the best on-policy parameter: its mean is 0 where the
    features are exact, and its spread does not contain that of phi. Half of RARE is for every fit, along each
    coordinate. The other half is for all fits of the run together, in the direction that sees a common factor of all
    targets best.
    """
    total, parts = Targets(e.mdp, float(e.run.episodes)), []
    for p in e.phases:
        after = next_values(e.mdp, p.record.q)
        for fit in p.fits:
            found = total.add(fit, p.controller, p.best[fit.level], after[fit.level], p.record.phase)
            parts.append(Part(claim(found, 1.0), p.record.phase, fit.level))
    return [*parts, *total.together()]


@final
class Targets:
    """Compares the targets of fits with their exact law, one by one and all together."""

    def __init__(self, mdp: FiniteMDP, episodes: float) -> None:
        self._mdp, self._episodes = mdp, episodes
        self._off = self._spread = self._largest = self._rounding = 0.0

    def add(self, fit: FitRecord, controller: Array, best: Array, after: Array, phase: int) -> Array:
        """The deviations of one fit over those allowed. best (n_blocks, k), after (S,): the value of the next level."""
        law, n = _residual(self._mdp, controller[fit.level], best, fit.level, after), fit.n_episodes
        off = fit.moment - np.einsum("bij,bj->bi", fit.gram, best) - n * law.mean
        delta = phase_share(phase, off.size * self._mdp.horizon) / 2
        allowed = bernstein(n * law.second, law.largest, delta) + _ROUNDING * n * law.scale
        self._off += float((law.along * off).sum())
        self._spread += n * law.second_along
        self._largest = max(self._largest, law.largest_along)
        self._rounding += _ROUNDING * n * law.scale * float(np.abs(law.along).sum())
        return _ratio(off, allowed)

    def together(self) -> list[Part]:
        """The deviation of all fits added so far."""
        if self._largest == 0:
            return []
        limit = freedman_about(self._spread, self._episodes, self._largest, RARE / 2)
        return [Part(claim(abs(self._off) / (limit + self._rounding), 1.0))]


def _ratio(off: Array, allowed: Array) -> Array:
    """|off| / allowed; 0 where nothing can deviate and nothing does."""
    size = np.abs(off)
    return np.asarray(np.where(allowed > 0, size / np.where(allowed > 0, allowed, 1.0), np.where(size > 0, FAILS, 0)))


def _products(mdp: FiniteMDP, h: int, occupancy: Array) -> tuple[Array, Array, float]:
    """Mean and variance of all entries of phi phi^T, and of |phi|^2 as the last; the largest |phi|^2."""
    vectors, blocks, weights = _visited(mdp, h, occupancy)
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
    vectors, blocks, weights = _visited(mdp, h, occupancy)
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
    return _Residual(
        mean=means,
        second=np.einsum("bii->bi", squares),
        largest=most,
        scale=scale,
        along=along,
        second_along=float(np.einsum("bi,bij,bj->", along, squares, along)),
        largest_along=float(reach.max(initial=0.0)),
    )


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


def _visited(mdp: FiniteMDP, h: int, occupancy: Array) -> tuple[Array, IntArray, Array]:
    """Features, blocks and probabilities of the pairs that are visited at all."""
    here = np.flatnonzero(occupancy.ravel())
    vectors, blocks = mdp.features.vectors[h].reshape(-1, mdp.spec.block_dim), mdp.features.blocks[h].ravel()
    return vectors[here], blocks[here], occupancy.ravel()[here]
