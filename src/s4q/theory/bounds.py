"""The bounds of the paper as expressions: one function each, with explicit constants.

Symbols as in `presets`: H levels, d features, p the phase, n trajectories, K episodes in all, v_h the value bound. Sbar
is the expected covariance of the trajectories so far, alpha_u the radius of a fit. Widths, ridge and trigger come from
`prescribed`, not from the learner; here stands only what the proofs make of them. All in rewards shifted to start at 0.
"""

from dataclasses import dataclass
from math import floor, log, sqrt
from typing import final

import numpy as np
from scipy.linalg import block_diag

from s4q.core.blocks import Array, Phi
from s4q.core.factors import whitener
from s4q.core.least_squares import elliptical_norm_sq
from s4q.core.spec import Spec
from s4q.core.validation import require_failure_probability
from s4q.learners.presets import Constants
from s4q.learners.widths import Theory
from s4q.theory.information_gain import effective_dim_cap
from s4q.theory.prescribed import Prescribed, excess_risk_radius, noise_radius


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class ProofSteps:
    """What the lemmas behind Theorem 1 guarantee, as printed or with the best constant of each step."""

    covariance_low: float  # Sigma >= low Sbar
    covariance_high: float  # Sigma <= high Sbar
    potential: float  # n E|phi|^2 in the metric of Sbar^-1 is at most this times (L + 1) in each phase
    progress: float  # and at least this times L at the level that triggered
    refined: bool  # log(1 + x) >= x log(1 + a)/a for x <= a, instead of x/a


_STEPS = {
    "paper": ProofSteps(covariance_low=2 / 3, covariance_high=2.0, potential=8.0, progress=1 / 8, refined=False),
    "tight": ProofSteps(covariance_low=2 / 3, covariance_high=4 / 3, potential=2.0, progress=1 / 3, refined=True),
}


def proof_steps(constants: Constants) -> ProofSteps:
    """The steps of a preset that has Theorem 1."""
    if constants.preset not in _STEPS:
        raise ValueError(f'only presets "paper" and "tight" have Theorem 1; this run has "{constants.preset}"')
    return _STEPS[constants.preset]


def inflation(constants: Constants) -> float:
    """alpha_b / alpha_u: how much wider the bonus is than the fit is uncertain."""
    return Prescribed(constants).inflation


def bonus_over_uncertainty(constants: Constants) -> float:
    """c_o, the largest b/U (lem:BonusBound).

    >>> import s4q
    >>> round(bonus_over_uncertainty(s4q.S4Q(s4q.problems.low_rank(), "paper").constants) ** 2, 12)
    3.0
    """
    return inflation(constants) / sqrt(proof_steps(constants).covariance_low)


def fit_radius(constants: Constants, level: int, phase: int, n_total: int, gram: Array, ridge: float) -> Array:
    """alpha_u of a level, (n_blocks,): how far a fit lies from the best on-policy predictor, in the metric of Sigma."""
    return Prescribed(constants).fit_radius(level, phase, n_total, gram, ridge)


def uncertainty(phi: Phi, gram: Array, ridge: float, radius: Array) -> Array:
    """U_h(s, a) = alpha_u |phi|, in the metric of (gram + ridge I)^-1; (n, n_actions). radius (n_blocks,).

    >>> uncertainty(Phi(np.ones((1, 1, 1)), np.zeros((1, 1), int)), np.array([[[3.0]]]), 1.0, np.array([5.0])).item()
    2.5
    """
    norm_sq = elliptical_norm_sq(phi.vectors, phi.blocks, whitener(gram, ridge))
    return np.asarray(radius[phi.blocks] * np.sqrt(norm_sq))  # [eqn:Uncertainty]


def s3q_radius(
    spec: Spec, level: int, *, n: int, epoch: int, delta: float, ridge: float, theory: Theory, gram: Array | None = None
) -> float:
    """alpha_u of Theorem 2: a fit of S3Q without bonus at the end of an epoch, jointly for all epochs.

    delta is split over levels by 1/H and over epochs by 1/(2 e^2). With the level's own Gram matrix (n_blocks, k, k)
    it is the radius for exact features, to be used with that matrix; else the excess-risk radius, with n times the
    expected one. There is no clip: a target may be as large as the ball of the next level allows.
    """
    require_failure_probability("delta", delta)
    share = delta / (2 * spec.horizon * epoch**2)
    after = spec.radius[level + 1] if level + 1 < spec.horizon else 0.0
    rewards = spec.reward_max - spec.reward_min
    if gram is not None:
        whole = block_diag(*gram)[None]  # one ball for the whole parameter, so one block
        noise = noise_radius(whole, ridge, half_range=rewards / 2 + after, log_inverse_delta=log(1 / share))
        return noise.item() + spec.radius[level] * sqrt(ridge)
    unit = spec.value_bound[level]
    return unit * excess_risk_radius(  # [Thm:S3QRadius]
        theory.risk,
        dim=spec.dim,
        n=n,
        ball=spec.radius[level] / unit,
        largest_target=(rewards + after) / unit,
        ridge=ridge,
        delta=share,
    )


def expected_sum(occupancy: Array, values: Array) -> float:
    """E sum_h f_h(s_h, a_h) under the occupancy (H, S, A) of a policy; values (H, S, A)."""
    return float((occupancy * values).sum())


def theorem2_values(best: Array, greedy: Array, uncertainties: Array, terr: float) -> tuple[float, float]:
    """Theorem 2 (b): where E(Vbest - V*) lies, for S3Q without bonus.

    best, greedy: occupancies (H, S, A) of an optimal policy and of the greedy one; uncertainties U (H, S, A).
    """
    low = -expected_sum(best, uncertainties) - terr
    return low, expected_sum(greedy, uncertainties) + terr  # [Thm:S3QValues]


def theorem2_gap(best: Array, greedy: Array, uncertainties: Array, terr: float) -> float:
    """What Theorem 2 says of the greedy policy: V* - V^greedy is at most so much. Not stated in the paper.

    Two ways lead from Q to a value: upwards along the best policy, downwards along the greedy one.
    """
    return expected_sum(best, uncertainties) + expected_sum(greedy, uncertainties) + 2 * terr


def theorem3_values(greedy: Array, uncertainties: Array, bonuses: Array, terr: float) -> float:
    """Theorem 3 (b): E(Vbest - V^greedy) is at most so much, for S3Q with a bonus; all arrays (H, S, A)."""
    return expected_sum(greedy, uncertainties + bonuses) + terr  # [Thm:S3QBonusValues]


def trigger_at(constants: Constants, phase: int, n: int) -> float:
    """L(p, n): the progress that ends a phase after n of its trajectories; without a cache.

    >>> import s4q
    >>> mdp = s4q.problems.low_rank()
    >>> [trigger_at(s4q.S4Q(mdp, cache_episodes=0).constants, phase, n=100) for phase in (1, 2)]
    [1.25, 5.0]
    """
    return Prescribed(constants).trigger(phase, n)


def phases_bound(constants: Constants, gains: Array) -> int:
    """p_tot, the running phase included, from the effective dimensions (H,) of all levels (lem:NumberOfPhases).

    A finished phase multiplies det Sbar of the level that triggered by at least 1 + progress L; the least L is that of
    the first phase.
    """
    least = proof_steps(constants).progress * trigger_at(constants, 1, 1)
    return floor(1 + float(np.sum(gains)) / log(1 + least))  # [Lemma:NumberOfPhases]


def potential_bound(constants: Constants, phase: int, n: int, gain: float) -> float:
    """sum_j n_j E|phi|^2 in the metrics of Sbar_j^-1, j <= phase and n_j <= n, at a level of effective dim `gain`."""
    steps = proof_steps(constants)
    largest = steps.potential * (trigger_at(constants, phase, n) + 1)
    return gain * largest / (log(1 + largest) if steps.refined else 1.0)  # [Lemma:EllipticPotential]


def replay_multiple(constants: Constants) -> int:
    """c: an S3Q call of m trajectories plays at most c H m episodes."""
    return Prescribed(constants).call_episodes(1)


def theorem1_regret(constants: Constants, episodes: int, gains: Array, terr: float = 0.0) -> float:
    """Theorem 1 (a) with its constants: the regret of `episodes` episodes, replay included, is at most so much.

    gains (H,): upper bounds on the effective dimensions at n = episodes and the ridge of phase 1. By Cauchy-Schwarz
    the regret is at most sqrt(K sum of squared gaps); replaying policy j doubles its expected share at worst; a gap is
    at most (1 + c_o) E sum U, plus 2 terr.
    """
    spec, phases = constants.spec, phases_bound(constants, gains)
    ridge = Prescribed(constants).ridge(phases, episodes)
    nothing = np.zeros(spec.gram_shape)
    squares = 0.0
    for h in range(spec.horizon):
        alpha = float(fit_radius(constants, h, phases, episodes, nothing, float(ridge[h])).max())
        squares += alpha**2 * potential_bound(constants, phases, episodes, float(gains[h]))
    split = 1.0 if terr == 0 else 2.0
    squares *= split * (1 + bonus_over_uncertainty(constants)) ** 2 * spec.horizon
    replays = 2 * replay_multiple(constants) * spec.horizon * phases + 1
    luck = replay_luck(constants, phases) * phases * spec.value_bound[0]
    return sqrt(episodes * (replays * squares + luck)) + 4 * episodes * terr  # [Thm:Regret]


def replay_luck(constants: Constants, phase: int) -> float:
    """3 v log(8 p^2/delta): what bad luck in drawing policies may add to twice the expected regret of a replay."""
    return 3 * constants.spec.value_bound[0] * log(8 * phase**2 / constants.delta)  # [Lemma:PhasedRegret]


def theorem1_floats(constants: Constants, phases: int) -> int:
    """Theorem 1 (b): floats held by an S4Q whose memory holds the policies of at most `phases` phases.

    A policy is theta, whitener, width and clip: H (d^2 + d + 3), with `practical` d + 4 more a level for the spread.
    Beside the memory there are four of them (running, last, and S3Q's two) and nine matrices a level.
    """
    spec = constants.spec
    d, horizon = spec.dim, spec.horizon
    policy = d**2 + d + 3 + (d + 4 if constants.preset == "practical" else 0)
    return (phases + 4) * horizon * policy + 9 * horizon * d**2 + 4 * horizon * d + 2 * d  # [Thm:Memory]


def theorem1_work(constants: Constants) -> int:
    """Theorem 1 (b): multiplications of a step, phi . theta and |W phi| of every action and the update of Sigma."""
    spec = constants.spec
    return spec.n_actions * (spec.dim + 1) ** 2 + 2 * spec.dim**2  # [Thm:Work]


def worst_gains(constants: Constants, episodes: int) -> Array:
    """d log(1 + K/(d lambda)) of every level, (H,): the effective dimension of no problem with d features is larger."""
    return np.array(
        [effective_dim_cap(constants.spec.dim, episodes / lam) for lam in Prescribed(constants).ridge(1, 0).tolist()]
    )


def worst_regret(constants: Constants, episodes: int) -> float:
    """Theorem 1 (a) for exact features, whatever the problem: of order H^2 d^1.5 sqrt(K), logarithms left aside.

    That order is for values up to 1 and a ball of radius 1 at every level; other units scale it.
    """
    return theorem1_regret(constants, episodes, worst_gains(constants, episodes))  # [Thm:WorstRegret]


def worst_floats(constants: Constants, episodes: int) -> int:
    """Theorem 1 (b), whatever the problem: floats held after so many episodes, of order L d^3 H^2 with L a logarithm.

    >>> import s4q
    >>> constants = s4q.S4Q(s4q.problems.low_rank(), "tight").constants
    >>> worst_floats(constants, 10**9), worst_floats(constants, 10**18)
    (6289, 14407)
    """
    phases = phases_bound(constants, worst_gains(constants, episodes))
    return theorem1_floats(constants, phases)  # [Thm:WorstMemory]


def theorem2_floats(spec: Spec, ball_per_block: bool = False) -> int:
    """Theorem 2: floats held by S3Q without a bonus, of order d^2 + d H; the paper states d^2 H.

    One Gram matrix and two moment vectors of the level in work, two value functions (the target and the best), a ridge
    and a ball a level. The paper updates all levels at once and so keeps H matrices.
    """
    d, horizon = spec.dim, spec.horizon
    balls = spec.n_blocks if ball_per_block else 1
    return d * spec.block_dim + 2 * d + 2 * d * horizon + (1 + balls) * horizon  # [Thm:S3QMemory]


def theorem2_work(spec: Spec) -> int:
    """Theorem 2: multiplications of a step of S3Q, of order d^2 + |A| d.

    phi . theta of every action at the next state, phi phi^T, the square of the target, and phi times both.
    """
    d = spec.block_dim  # phi is 0 outside of its block
    return d**2 + 2 * d + 1 + spec.n_actions * d  # [Thm:S3QWork]
