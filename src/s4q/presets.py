"""Presets: ridge, bonus width, trigger and replay fraction of S4Q, with the formulas they come from.

Symbols: H levels, d features, p the phase, n the trajectories so far (or `max_episodes`), v_h the value bound and B_h
the radius of level h. delta is split in four (fit, trigger, covariance, replay), over phases by 1/(2 p^2), over
levels by 1/H, over checks of the covariance by 1/(2 n^2) and its two parts by 1/2. All widths scale with the units of
the problem.
"""

from dataclasses import dataclass
from math import ceil, floor, log, log2, sqrt
from typing import Literal, final, get_args

import numpy as np
from numpy.typing import ArrayLike

from s4q.blocks import Array
from s4q.checks import require_count, require_failure_probability, require_positive
from s4q.requests import Spec
from s4q.spec import per_level

PresetName = Literal["paper", "tight", "realisable"]
Epochs = Literal["single", "doubling"]
BonusFrom = Literal["previous", "own"]


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class Theory:
    """The numbers in which `paper` and `tight` differ: the same proofs, with the printed and with the best steps."""

    ridge: float  # times log(64 d H p^2 n^2 / delta)
    trigger: float  # times log(64 H p^2 n^2 / delta)
    risk: float  # times M^2 [d log(32 B n M) + log(1/delta_fit)]
    inflation: float  # width of the bonus over radius of the fit: the empirical covariance may be too large


PAPER = Theory(ridge=4 / log(36 / 35), trigger=32 * 2 + 8 * 7 / 3, risk=64.0, inflation=sqrt(2))
TIGHT = Theory(ridge=2 / (4 / 3 * log(4 / 3) - 1 / 3), trigger=16.2, risk=32.0, inflation=sqrt(4 / 3))


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Constants:
    """The constants of one S4Q run; `explain` says where they come from and what they mean."""

    spec: Spec
    preset: PresetName
    delta: float
    epochs: Epochs  # of an S3Q call: one epoch of known size, or doubling
    bonus_from: BonusFrom  # the previous phase's covariance, or the level's own Gram matrix
    c_replay: float  # an S3Q call plays c H m_tot episodes
    fixed_ridge: Array | None  # (H,)
    fixed_width: Array | None  # (H,)
    fixed_trigger: tuple[float, float] | None
    max_episodes: int | None

    @property
    def theory(self) -> Theory | None:
        """The proof constants, where the preset has them."""
        return {"paper": PAPER, "tight": TIGHT}.get(self.preset)

    def samples_a_level(self, n_total: int) -> int:
        """Episodes behind each level's fit when the memory holds n_total trajectories."""
        slots = self.replay_slots(n_total)
        return slots if self.epochs == "single" else 1 << (floor(log2(slots + 2)) - 1)

    def replay_slots(self, n_total: int) -> int:
        """Episodes that an S3Q call may use, divided by H; enough for one epoch at least."""
        return max(1 if self.epochs == "single" else 2, ceil(self.c_replay * n_total))

    def ridge(self, phase: int, n_total: int) -> Array:
        """lambda_p, (H,): never falls from one phase to the next."""
        if self.fixed_ridge is not None:
            return self.fixed_ridge
        if self.theory is None:
            return np.ones(self.spec.horizon)
        n = self._n(n_total)
        spread = log(64 * self.spec.dim * self.spec.horizon * phase**2 / self.delta) + 2 * log(n)
        return np.full(self.spec.horizon, self.theory.ridge * spread * self._shortfall(n_total))

    def threshold(self, phase: int) -> tuple[float, float]:
        """(a, b): the trigger is a + b log n, n the trajectories of the phase."""
        if self.fixed_trigger is not None:
            return self.fixed_trigger
        if self.theory is None:
            return (float(self.spec.dim), 0.0)
        first = self.theory.trigger * log(64 * self.spec.horizon * phase**2 / self.delta)
        return (first, 2 * self.theory.trigger)

    def radius(self) -> Array:
        """The balls: one a level for the whole parameter, (H,), or with `realisable` one per block, (H, n_blocks)."""
        if self.theory is not None:
            return np.array(self.spec.radius)
        per_level = [self._block_radius(h) for h in range(self.spec.horizon)]
        return np.repeat(np.array(per_level)[:, None], self.spec.n_blocks, axis=1)

    def width(self, level: int, phase: int, n_total: int, gram: Array, ridge: float) -> Array:
        """The bonus of a level is width (n_blocks,) times |phi| in the metric of (gram + ridge I)^-1."""
        if self.fixed_width is not None:
            return np.full(self.spec.n_blocks, self.fixed_width[level])
        # A fit on fewer samples than the covariance stands for is less sure by a square root.
        short = sqrt(self._shortfall(n_total)) if self.bonus_from == "previous" else 1.0
        if self.theory is None:
            return short * self._realisable_width(level, phase, gram, ridge)
        alpha = self._risk_width(self.theory, level, phase, n_total, ridge)
        return np.full(self.spec.n_blocks, short * self.theory.inflation * alpha)

    def _risk_width(self, theory: Theory, level: int, phase: int, n_total: int, ridge: float) -> float:
        """alpha_u: the radius of the fit around the best on-policy predictor, from an excess-risk bound."""
        spec = self.spec
        unit = spec.value_bound[level]  # the bound is for numbers of order 1
        ball = spec.radius[level] / unit
        largest = ball + self._largest_target(level) / unit
        n = max(self.samples_a_level(n_total), 1) if self.max_episodes is None else self.max_episodes
        cover = spec.dim * log(32 * ball * n * largest) + log(1 / self._delta_fit(phase))
        return unit * sqrt(theory.risk * largest**2 * cover + 2 + 4 * ball**2 * ridge)  # [Thm:FitRadius]

    def _realisable_width(self, level: int, phase: int, gram: Array, ridge: float) -> Array:
        """Radius per block when the features are exact: sub-Gaussian noise in k_e directions, and the ridge bias."""
        spec = self.spec
        k = spec.block_dim
        seen = k - ridge * np.trace(np.linalg.inv(gram + ridge * np.eye(k)), axis1=1, axis2=2)  # tr G (G + ridge)^-1
        seen = np.clip(seen, 0.0, k)
        t = log(spec.n_blocks / self._delta_fit(phase))
        noise = spec.half_range(level) * np.sqrt(seen + 2 * np.sqrt(seen * t) + 2 * t)
        return np.asarray(noise + self._block_radius(level) * sqrt(ridge))  # [Thm:RealisableRadius]

    def _block_radius(self, level: int) -> float:
        """sqrt(k) v_h; a radius that was declared for the whole parameter bounds each block too."""
        spec = self.spec
        default = sqrt(spec.dim) * spec.value_bound[level]
        declared = abs(spec.radius[level] / default - 1) > 1e-9
        return spec.radius[level] if declared else sqrt(spec.block_dim) * spec.value_bound[level]

    def _largest_target(self, level: int) -> float:
        """A bound on |r + Q'(s', a')|; without a clip at 0 the target may be as low as the ball allows."""
        spec = self.spec
        if spec.well_specified or level + 1 == spec.horizon:
            return 2 * spec.half_range(level)
        return spec.reward_max - spec.reward_min + max(spec.value_bound[level + 1], spec.radius[level + 1])

    def _delta_fit(self, phase: int) -> float:
        return self.delta / (8 * self.spec.horizon * phase**2)

    def _n(self, n_total: int) -> int:
        return max(n_total, 1) if self.max_episodes is None else self.max_episodes

    def _shortfall(self, n_total: int) -> float:
        """How many times fewer samples a fit has than there are trajectories in the memory; 1 if not fewer."""
        return max(1.0, n_total / self.samples_a_level(n_total))


def constants(
    spec: Spec,
    preset: PresetName,
    *,
    delta: float = 0.05,
    ridge: ArrayLike | None = None,
    bonus_width: ArrayLike | None = None,
    trigger: float | tuple[float, float] | None = None,
    c_replay: float | None = None,
    epochs: Epochs | None = None,
    bonus_from: BonusFrom | None = None,
    max_episodes: int | None = None,
) -> Constants:
    """The constants of a preset, any of them replaced by a number of your own."""
    if preset not in get_args(PresetName):
        raise ValueError(f"preset must be one of {', '.join(get_args(PresetName))}; got {preset!r}")
    require_failure_probability("delta", delta)
    if epochs not in (None, *get_args(Epochs)):
        raise ValueError(f'epochs must be "single" or "doubling"; got {epochs!r}')
    if bonus_from not in (None, *get_args(BonusFrom)):
        raise ValueError(f'bonus_from must be "previous" or "own"; got {bonus_from!r}')
    if c_replay is not None:
        require_positive("c_replay", c_replay, "the number of replay episodes a level per trajectory")
    if max_episodes is not None:
        require_count("max_episodes", max_episodes, "the number of episodes the constants are made for")
    paper = preset == "paper"
    return Constants(
        spec=spec,
        preset=preset,
        delta=delta,
        epochs=epochs or ("doubling" if paper else "single"),
        bonus_from=bonus_from or ("own" if preset == "realisable" else "previous"),
        c_replay=c_replay or (4.0 if paper else 1.0),
        fixed_ridge=_per_level("ridge", ridge, spec.horizon),
        fixed_width=_per_level("bonus_width", bonus_width, spec.horizon),
        fixed_trigger=_trigger(trigger),
        max_episodes=max_episodes,
    )


def _per_level(name: str, value: ArrayLike | None, horizon: int) -> Array | None:
    if value is None:
        return None
    array = per_level(name, value, horizon)
    require_positive(name, float(array.min()), "one number or one per level")
    return array


def _trigger(trigger: float | tuple[float, float] | None) -> tuple[float, float] | None:
    if trigger is None:
        return None
    first, slope = trigger if isinstance(trigger, tuple) else (trigger, 0.0)
    require_positive("trigger", first, "the threshold a + b log n: a number, or the pair (a, b)")
    if not 0 <= slope < float("inf"):
        raise ValueError(f"trigger must not fall with n, so b in (a, b) must be at least 0; got {slope}")
    return (float(first), float(slope))
