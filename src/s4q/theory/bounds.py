"""The bounds of the paper as expressions, with explicit constants, and what the presets prescribe.

`Prescribed` has ridge, trigger, width, ball and replay length, written again from the paper's proofs. It takes from
`Constants` only what the user chose: a mistake in the learner's formulas must not hide in the audit. So here, and only
here, formulas stand twice on purpose. Symbols as in `presets`; Sbar is the expected covariance of the trajectories so
far, alpha_u the radius of a fit, p the phase, K all episodes. All in rewards shifted to start at 0.
"""

from math import ceil, floor, log, sqrt
from typing import Literal, NamedTuple, final

import numpy as np

from s4q.core.blocks import Array, Phi
from s4q.core.factors import whitener
from s4q.core.least_squares import elliptical_norm_sq
from s4q.core.spec import Spec
from s4q.core.validation import require_failure_probability
from s4q.learners.presets import Constants
from s4q.theory.definitions import expected_sum
from s4q.theory.information_gain import effective_dim_cap

TheoryName = Literal["paper", "tight"]  # the proofs as printed, or with the best constant in each step


class ProofSteps(NamedTuple):
    """What the proofs of Theorem 1 make of their steps, as printed or with the best constant of each."""

    ridge: float  # lambda over its logarithm
    trigger: float  # L over its logarithm
    risk: float  # alpha_u^2 over M^2 [d log(32 B n M) + log(1/delta_fit)]
    inflation: float  # alpha_b over alpha_u
    covariance_low: float  # Sigma >= low Sbar
    covariance_high: float  # Sigma <= high Sbar
    potential: float  # n E|phi|^2 in the metric of Sbar^-1 is at most this times (L + 1) in each phase
    progress: float  # and at least this times L at the level that triggered
    refined: bool  # log(1 + x) >= x log(1 + a)/a for x <= a, instead of x/a


_STEPS = {
    "paper": ProofSteps(4 / log(36 / 35), 64 + 56 / 3, 64.0, sqrt(2.0), 2 / 3, 2.0, 8.0, 1 / 8, refined=False),
    "tight": ProofSteps(
        2 / (4 / 3 * log(4 / 3) - 1 / 3), 16.2, 32.0, sqrt(4 / 3), 2 / 3, 4 / 3, 2.0, 1 / 3, refined=True
    ),
}


def proof_steps(constants: Constants) -> ProofSteps:
    """The steps of a preset that has Theorem 1."""
    if constants.preset not in _STEPS:
        raise ValueError(f'only presets "paper" and "tight" have Theorem 1; this run has "{constants.preset}"')
    return _STEPS[constants.preset]


@final
class Prescribed:
    """The numbers that a run with these settings should have used."""

    def __init__(self, settings: Constants) -> None:
        self.settings = settings
        self.spec: Spec = settings.spec
        self._steps = _STEPS.get(settings.preset)
        self.proved = self._steps is not None  # does the preset have Theorem 1?
        # alpha_b / alpha_u: how much wider the bonus is than the fit is uncertain.
        self.inflation = 1.0 if self._steps is None else self._steps.inflation

    @property
    def shortfall(self) -> float:
        """Trajectories in the memory over samples behind a fit, at most; at least 1."""
        return max(1.0, (4.0 if self.settings.epochs == "doubling" else 1.0) / self.settings.c_replay)

    def delta_fit(self, phase: int) -> float:
        """A quarter of delta for fits; 1/(2 p^2) of it for phase p; 1/H for a level."""
        return self.settings.delta / 4 / (2 * phase**2) / self.spec.horizon

    def half_range(self, level: int) -> float:
        """Half the range of a target; targets may be negative unless Q is clipped at 0."""
        largest = self.largest_target(level)
        return largest / 2 if self.spec.well_specified else largest

    def largest_target(self, level: int) -> float:
        """The largest |r + Q'|, r in its range and Q' below its value bound and, without a clip at 0, in its ball."""
        spec, after = self.spec, 0.0
        if level + 1 < spec.horizon:
            after = spec.value_bound[level + 1]
            if not spec.well_specified:
                after = max(after, spec.radius[level + 1])
        return spec.reward_max - spec.reward_min + after

    def ridge(self, phase: int, n_total: int) -> Array:
        """lambda, (H,), of a phase that begins after n_total trajectories."""
        spec, settings = self.spec, self.settings
        if settings.fixed_ridge is not None:
            return settings.fixed_ridge
        if settings.preset == "practical":
            smooth = spec.block_dim > 1 and not spec.well_specified
            return np.full(spec.horizon, 1e-3 if smooth else 1e-6)
        if self._steps is None:
            halves = [self.half_range(h) for h in range(spec.horizon)]
            wanted = [(half / ball) ** 2 if half else 1.0 for half, ball in zip(halves, spec.block_radius, strict=True)]
            least = 1e-14 * max(n_total, settings.max_episodes or 1, 1) if spec.block_dim > 1 else 0.0
            return np.array([max(one, least) for one in wanted])
        n = max(n_total, settings.max_episodes or 1, 1)
        delta_cov = settings.delta / (32 * spec.horizon * phase**2) / n / n
        value = self._steps.ridge * log(2 * spec.dim / delta_cov) * self.shortfall
        return np.full(spec.horizon, value)

    def trigger(self, phase: int, n: int) -> float:
        """L(p, n): the progress at which a phase ends, after n of its trajectories, with memory="policies"."""
        if self.settings.fixed_trigger is not None:
            constant, slope = self.settings.fixed_trigger
            return constant + slope * log(max(n, 1))
        if self.settings.preset == "practical":
            return max(self.spec.dim / 16, 1.0) if phase == 1 else float(self.spec.dim)
        if self._steps is None:
            return float(self.spec.dim)
        return self._steps.trigger * (log(8 / self.delta_fit(phase)) + 2 * log(max(n, 1)))

    def inexact_width(
        self, level: int, residual: float, ridge: float, most_samples: float, gram: Array
    ) -> tuple[Array, Array]:
        """Least and most width of `practical` where the features are not exact, (n_blocks,) each.

        Args:
            level: The level.
            residual: Residual variance of its fit.
            ridge: Ridge of its fit.
            most_samples: The fit has at most so many samples.
            gram: Of the samples, (n_blocks, k, k).
        """
        spec, bound = self.spec, self.spec.value_bound[level]
        errors = 0.2 if self.settings.fixed_width is None else float(self.settings.fixed_width[level])
        deviation = np.full(len(gram), sqrt(residual + 9e-4 * bound**2 * min(1.0, 10 / spec.horizon)))
        if spec.block_dim == 1:  # groups of states that may differ: the bound over the root of the visits
            deviation += bound * np.clip(gram[:, 0, 0], 1.0, None) ** -0.5
        growth = sqrt(1 + log(max(most_samples / spec.dim, 1.0)) / 20)
        share = 0.3 if spec.block_dim > 1 else 1.0  # of the bound, in a block of which something was seen
        unseen = np.where(np.abs(gram).max(axis=(1, 2)) > 0, share, 1.0) * bound * sqrt(ridge)
        if errors == 0:  # the bonus is switched off
            unseen = np.zeros(len(gram))
        return unseen + errors * deviation, unseen + growth * errors * deviation

    def ball(self) -> Array:
        """The radii of the balls that fits are projected on: (H,), or (H, n_blocks) for a ball per block."""
        if self.proved:
            return np.array(self.spec.radius)
        if self.settings.preset == "practical":
            return np.full(self.spec.horizon, np.inf)
        return np.tile(np.array(self.spec.block_radius)[:, None], (1, self.spec.n_blocks))

    def call_episodes(self, n_total: int) -> int:
        """Episodes a level that an S3Q call may use when the memory holds n_total trajectories."""
        least = 2 if self.settings.epochs == "doubling" else 1
        return max(least, ceil(self.settings.c_replay * n_total)) if n_total else 0

    def level_episodes(self, n_total: int) -> int:
        """Episodes behind the fit of a level: all of a single epoch, or the last of epochs 2, 4, ... that fits in."""
        room = self.call_episodes(n_total)
        if self.settings.epochs == "single" or room == 0:
            return room
        size = 2
        while 2 * size + (2 * size - 2) <= room:  # epochs 2 + 4 + ... + size add up to 2 size - 2
            size *= 2
        return size

    def fit_radius(self, level: int, phase: int, n_total: int, gram: Array, ridge: float) -> Array:
        """alpha_u, (n_blocks,): how far a fit may lie from the best on-policy predictor, in the metric of Sigma.

        gram (n_blocks, k, k): of the samples behind the bonus. Not of `practical`, which proves nothing.
        """
        spec, settings = self.spec, self.settings
        if settings.fixed_width is not None:
            return np.full(spec.n_blocks, float(settings.fixed_width[level]) / self.inflation)
        short = sqrt(self.shortfall) if settings.bonus_from == "previous" else 1.0
        if self._steps is None:
            return short * self._exact_radius(level, phase, gram, ridge)
        n = max(self.level_episodes(n_total), settings.max_episodes or 1, 1)
        largest, share = self.largest_target(level), self.delta_fit(phase)
        alpha = _excess_risk_radius(spec, level, self._steps.risk, n, largest, ridge, share)
        return np.full(spec.n_blocks, short * spec.value_bound[level] * alpha)

    def _exact_radius(self, level: int, phase: int, gram: Array, ridge: float) -> Array:
        """For exact features: s sqrt(k_e + 2 sqrt(k_e t) + 2 t) + B sqrt(lambda) in every block."""
        t = log(self.spec.n_blocks / self.delta_fit(phase))
        bias = self.spec.block_radius[level] * sqrt(ridge)
        return noise_radius(gram, ridge, self.half_range(level), t) + bias

    def width(self, level: int, phase: int, n_total: int, gram: Array, ridge: float) -> Array:
        """alpha_b, (n_blocks,): the width of the bonus."""
        return self.inflation * self.fit_radius(level, phase, n_total, gram, ridge)


def _excess_risk_radius(
    spec: Spec, level: int, risk: float, n: int, largest_target: float, ridge: float, delta: float
) -> float:
    """alpha_u over the value bound, from the excess risk of a constrained fit on n samples; risk 64 or 32."""
    unit = spec.value_bound[level]  # the bound on the risk is for numbers of order 1
    ball = spec.radius[level] / unit
    most = ball + largest_target / unit
    cover = spec.dim * max(log(32 * ball * most) + log(n), 0.0) - log(delta)
    return sqrt(2 + 4 * ridge * ball * ball + risk * most * most * cover)


def noise_radius(gram: Array, ridge: float, half_range: float, log_inverse_delta: float) -> Array:
    """s sqrt(k_e + 2 sqrt(k_e t) + 2 t), (n_blocks,), k_e = tr G (G + ridge I)^-1, by the eigenvalues of each block.

    >>> noise_radius(np.zeros((1, 1, 1)), ridge=4.0, half_range=0.5, log_inverse_delta=8.0).tolist()
    [2.0]
    """
    values = gram[:, :, 0] if gram.shape[-1] == 1 else np.maximum(np.linalg.eigvalsh(gram), 0.0)
    seen, t = (values / (values + ridge)).sum(axis=1), log_inverse_delta
    return np.asarray(half_range * np.sqrt(seen + 2 * np.sqrt(seen * t) + 2 * t))


def bonus_over_uncertainty(constants: Constants) -> float:
    """c_o, the largest b/U (lem:BonusBound).

    >>> import s4q
    >>> round(bonus_over_uncertainty(s4q.S4Q(s4q.problems.low_rank(), "paper").constants) ** 2, 12)
    3.0
    """
    steps = proof_steps(constants)
    return steps.inflation / sqrt(steps.covariance_low)


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
    spec: Spec,
    level: int,
    *,
    n: int,
    epoch: int,
    delta: float,
    ridge: float,
    theory: TheoryName,
    gram: Array | None = None,
) -> float:
    """alpha_u of Theorem 2: a fit of S3Q without bonus at the end of an epoch, jointly for all epochs.

    delta is split over levels by 1/H and over epochs by 1/(2 e^2). With the level's own Gram matrix (n_blocks, k, k)
    it is the radius for exact features, to be used with that matrix; else the excess-risk radius, with n times the
    expected one. There is no clip: a target may be as large as the ball of the next level allows.
    """
    require_failure_probability("delta", delta)
    if theory not in _STEPS:
        raise ValueError(f'theory must be "paper" or "tight"; got {theory!r}')
    share = delta / (2 * spec.horizon * epoch**2)
    after = spec.radius[level + 1] if level + 1 < spec.horizon else 0.0
    rewards = spec.reward_max - spec.reward_min
    if gram is not None:
        from scipy.linalg import block_diag  # late, so that `import s4q` stays light

        whole = block_diag(*gram)[None]  # one ball for the whole parameter, so one block
        noise = noise_radius(whole, ridge, half_range=rewards / 2 + after, log_inverse_delta=log(1 / share))
        return noise.item() + spec.radius[level] * sqrt(ridge)
    alpha = _excess_risk_radius(spec, level, _STEPS[theory].risk, n, rewards + after, ridge, share)
    return spec.value_bound[level] * alpha  # [Thm:S3QRadius]


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
    """L(p, n): the progress that ends a phase after n of its trajectories, with memory="policies".

    >>> import s4q
    >>> mdp = s4q.problems.low_rank()
    >>> [trigger_at(s4q.S4Q(mdp, memory="policies").constants, phase, n=100) for phase in (1, 2)]
    [1.0, 5.0]
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

    A policy is theta, whitener, width and clip: H (d^2 + d + 3), with `practical` d + 5 more a level for the spread.
    Beside the memory there are four of them (running, last, and S3Q's two) and nine matrices a level.
    """
    spec = constants.spec
    d, horizon = spec.dim, spec.horizon
    policy = d**2 + d + 3 + (d + 5 if constants.preset == "practical" else 0)
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
