"""What the presets prescribe: ridge, trigger, width, ball and replay length, written again from the paper's proofs.

An audit compares a run with these numbers. So this module takes from `Constants` only what the user chose (preset,
delta, numbers set by hand) and computes everything else itself: a mistake in the learner's formulas must not hide in
the audit. That is the one place where formulas stand twice on purpose.
"""

from math import ceil, log, sqrt
from typing import final

import numpy as np

from s4q.core.blocks import Array
from s4q.core.spec import Spec
from s4q.learners.presets import Constants

_RIDGE = {"paper": 4 / log(36 / 35), "tight": 2 / (4 / 3 * log(4 / 3) - 1 / 3)}  # lambda over its logarithm
_TRIGGER = {"paper": 64 + 56 / 3, "tight": 16.2}  # L over its logarithm
_RISK = {"paper": 64.0, "tight": 32.0}  # alpha_u^2 over M^2 [d log(32 B n M) + log(1/delta_fit)]
_INFLATION = {"paper": sqrt(2.0), "tight": sqrt(4 / 3)}  # alpha_b over alpha_u


@final
class Prescribed:
    """The numbers that a run with these settings should have used."""

    def __init__(self, settings: Constants) -> None:
        self.settings = settings
        self.spec: Spec = settings.spec
        self.proved = settings.preset in _RIDGE  # does the preset have Theorem 1?

    @property
    def inflation(self) -> float:
        """alpha_b / alpha_u: how much wider the bonus is than the fit is uncertain."""
        return _INFLATION.get(self.settings.preset, 1.0)

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
            return np.full(spec.horizon, 1e-6)
        if not self.proved:
            halves = [self.half_range(h) for h in range(spec.horizon)]
            wanted = [(half / ball) ** 2 if half else 1.0 for half, ball in zip(halves, spec.block_radius, strict=True)]
            least = 1e-14 * max(n_total, settings.max_episodes or 1, 1) if spec.block_dim > 1 else 0.0
            return np.array([max(one, least) for one in wanted])
        n = max(n_total, settings.max_episodes or 1, 1)
        delta_cov = settings.delta / (32 * spec.horizon * phase**2) / n / n
        value = _RIDGE[settings.preset] * log(2 * spec.dim / delta_cov) * self.shortfall
        return np.full(spec.horizon, value)

    def trigger(self, phase: int, n: int) -> float:
        """L(p, n): the progress at which a phase ends, after n of its trajectories; without a cache."""
        if self.settings.fixed_trigger is not None:
            constant, slope = self.settings.fixed_trigger
            return constant + slope * log(max(n, 1))
        if self.settings.preset == "practical":
            return self.spec.dim / (4 if phase == 1 else 1)
        if not self.proved:
            return float(self.spec.dim)
        return _TRIGGER[self.settings.preset] * (log(8 / self.delta_fit(phase)) + 2 * log(max(n, 1)))

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
        if not self.proved:
            return short * self._exact_radius(level, phase, gram, ridge)
        unit = spec.value_bound[level]
        n = max(self.level_episodes(n_total), settings.max_episodes or 1, 1)
        ball = spec.radius[level] / unit
        alpha = excess_risk_radius(
            _RISK[settings.preset],
            dim=spec.dim,
            n=n,
            ball=ball,
            largest_target=self.largest_target(level) / unit,
            ridge=ridge,
            delta=self.delta_fit(phase),
        )
        return np.full(spec.n_blocks, short * unit * alpha)

    def _exact_radius(self, level: int, phase: int, gram: Array, ridge: float) -> Array:
        """For exact features: s sqrt(k_e + 2 sqrt(k_e t) + 2 t) + B sqrt(lambda) in every block."""
        t = log(self.spec.n_blocks / self.delta_fit(phase))
        bias = self.spec.block_radius[level] * sqrt(ridge)
        return noise_radius(gram, ridge, self.half_range(level), t) + bias

    def width(self, level: int, phase: int, n_total: int, gram: Array, ridge: float) -> Array:
        """alpha_b, (n_blocks,): the width of the bonus."""
        return self.inflation * self.fit_radius(level, phase, n_total, gram, ridge)


def excess_risk_radius(
    factor: float, *, dim: int, n: int, ball: float, largest_target: float, ridge: float, delta: float
) -> float:
    """alpha_u from the excess risk of a constrained fit on n samples, numbers of order 1; factor 64 or 32.

    >>> round(excess_risk_radius(64.0, dim=10, n=10**6, ball=1, largest_target=2, ridge=6533, delta=5.2e-4))
    369
    """
    most = ball + largest_target
    cover = dim * max(log(32 * ball * most) + log(n), 0.0) - log(delta)
    return sqrt(2 + 4 * ridge * ball * ball + factor * most * most * cover)


def noise_radius(gram: Array, ridge: float, half_range: float, log_inverse_delta: float) -> Array:
    """s sqrt(k_e + 2 sqrt(k_e t) + 2 t), (n_blocks,), k_e = tr G (G + ridge I)^-1, by the eigenvalues of each block.

    >>> noise_radius(np.zeros((1, 1, 1)), ridge=4.0, half_range=0.5, log_inverse_delta=8.0).tolist()
    [2.0]
    """
    values = gram[:, :, 0] if gram.shape[-1] == 1 else np.maximum(np.linalg.eigvalsh(gram), 0.0)
    seen, t = (values / (values + ridge)).sum(axis=1), log_inverse_delta
    return np.asarray(half_range * np.sqrt(seen + 2 * np.sqrt(seen * t) + 2 * t))
