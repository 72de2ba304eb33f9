"""Presets: ridge, bonus width, trigger and replay fraction of S4Q, with the formulas they come from.

Symbols: H levels, d features, p the phase, n the trajectories so far (or `max_episodes`), v_h the value bound and B_h
the radius of level h. delta is split in four (fit, trigger, covariance, replay), over phases by 1/(2 p^2), over
levels by 1/H, over checks of the covariance by 1/(2 n^2) and its two parts by 1/2. All widths scale with the units of
the problem.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil, log, sqrt
from typing import Annotated, Literal, final, get_args

import numpy as np
from numpy.typing import ArrayLike

from s4q.core.blocks import Array
from s4q.core.codec import AnySize, Positive
from s4q.core.least_squares import Moments
from s4q.core.messages import Spec
from s4q.core.optimism import QLevel
from s4q.core.spec import per_level
from s4q.core.validation import (
    require_count,
    require_failure_probability,
    require_flag,
    require_not_negative,
    require_positive,
)
from s4q.learners.shelf import least_bytes
from s4q.learners.widths import (
    PAPER,
    TIGHT,
    Theory,
    data_scale,
    fixed_design_radius,
    practical_ridge,
    risk_radius,
    self_normalised_radius,
    standard_errors,
    with_data_scaled_bonus,
)

PresetName = Literal["paper", "tight", "realisable", "practical"]
Epochs = Literal["single", "doubling"]
BonusFrom = Literal["previous", "own"]
_ROUNDING = 1e-14  # of the number of samples: a smaller ridge is lost in their Gram matrix
MemoryName = Literal["policies", "all", "sketch"]
SKETCH_BYTES = 64 * 2**20  # the default budget: all steps of most small problems


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
    fixed_ridge: Annotated[Array, "H"] | None
    fixed_width: Annotated[Array, "H"] | None
    fixed_trigger: tuple[float, float] | None
    max_episodes: AnySize | None
    memory: MemoryName  # what is remembered of past episodes
    memory_bytes: AnySize | None  # the budget of a sketch; None for the other memories
    episodes_per_phase: Positive  # at least, whatever the trigger says
    pool: bool  # every step is a sample for every level

    @property
    def theory(self) -> Theory | None:
        """The proof constants, where the preset has them."""
        return {"paper": PAPER, "tight": TIGHT}.get(self.preset)

    def samples_a_level(self, n_total: int) -> int:
        """Episodes behind each level's fit when the memory holds n_total trajectories."""
        if n_total == 0:
            return 0
        slots = self.replay_slots(n_total)
        return slots if self.epochs == "single" else 1 << ((slots + 2).bit_length() - 2)

    def replay_slots(self, n_total: int) -> int:
        """Episodes that an S3Q call may use, divided by H; enough for one epoch at least, none for an empty memory."""
        if n_total == 0:
            return 0
        return max(1 if self.epochs == "single" else 2, ceil(self.c_replay * n_total))

    def ridge(self, phase: int, n_total: int) -> Array:
        """lambda_p, (H,): never falls from one phase to the next."""
        if self.fixed_ridge is not None:
            return self.fixed_ridge
        if self.preset == "practical":
            return np.full(self.spec.horizon, practical_ridge(self.spec.well_specified, self.spec.block_dim))
        if self.theory is None:
            return self._balanced_ridge(n_total)
        n = self._n(n_total)
        spread = log(64 * self.spec.dim * self.spec.horizon * phase**2 / self.delta) + 2 * log(n)
        return np.full(self.spec.horizon, self.theory.ridge * spread * self._shortfall())

    def threshold(self, phase: int, replaying: bool = False) -> tuple[float, float]:
        """(a, b): the trigger is a + b log n, n the trajectories of the phase; are there policies to replay?"""
        if self.fixed_trigger is not None:
            return self.fixed_trigger
        if self.theory is None:
            # Where steps are held a new policy costs no episodes; else each one costs a replay of all others.
            eager = self.preset == "practical" and not replaying
            return (max(self.spec.dim / 16, 1.0) if eager else float(self.spec.dim), 0.0)
        first = self.theory.trigger * log(64 * self.spec.horizon * phase**2 / self.delta)
        return (first, 2 * self.theory.trigger)

    def radius(self) -> Array:
        """The balls: one a level for the whole parameter, (H,), or with `realisable` one per block, (H, n_blocks).

        `practical` has none: a ball that is too small would spoil its fits, and no proof of it needs one.
        """
        if self.theory is not None:
            return np.array(self.spec.radius)
        if self.preset == "practical":
            return np.full(self.spec.horizon, np.inf)
        return np.repeat(np.array(self.spec.block_radius)[:, None], self.spec.n_blocks, axis=1)

    def with_bonus(self, fit: QLevel, level: int, phase: int, n_total: int, moments: Moments, ridge: float) -> QLevel:
        """The fit of a level with its bonus, from the sums of its samples; n_total trajectories are in the memory."""
        if self.preset == "practical":
            return with_data_scaled_bonus(
                fit,
                moments,
                ridge=ridge,
                value_bound=self.spec.value_bound[level],
                kappa=float(self.standard_errors()[level]),
                horizon=self.spec.horizon,
                exact=self.spec.well_specified,
            )
        width = self.width(level, phase, n_total, moments.gram, ridge)
        return replace(fit, whitener=moments.factors.whitener(ridge), width=width)  # [Alg2:Bonus]

    def standard_errors(self) -> Array:
        """How many standard errors the bonus of `practical` has, (H,), before it grows with the samples.

        Where the features are not exact, most of what a fit leaves over is lack of fit. More samples do not cure that.
        A large bonus made of it lets all values meet at the bound and hides which action is better.
        """
        if self.fixed_width is not None:
            return self.fixed_width
        scale = data_scale(self.spec.well_specified, self.spec.block_dim)
        return np.full(self.spec.horizon, standard_errors(scale, self.spec.horizon))

    def width(self, level: int, phase: int, n_total: int, gram: Array, ridge: float) -> Array:
        """The bonus is width (n_blocks,) times |phi| in the metric of (gram + ridge I)^-1; not of `practical`."""
        if self.fixed_width is not None:
            return np.full(self.spec.n_blocks, self.fixed_width[level])
        # A fit on fewer samples than the covariance stands for is less sure by a square root.
        short = sqrt(self._shortfall()) if self.bonus_from == "previous" else 1.0
        if self.theory is None:
            radius = self_normalised_radius if self.pool else fixed_design_radius
            return short * radius(
                gram,
                ridge=ridge,
                half_range=self._half_range(level),
                ball=self.spec.block_radius[level],
                log_inverse_delta=log(self.spec.n_blocks / self.delta_fit(phase)),
            )
        unit = self.spec.value_bound[level]  # the risk bound is for numbers of order 1
        alpha = risk_radius(
            self.theory,
            dim=self.spec.dim,
            n=self._n(self.samples_a_level(n_total)),
            ball=self.spec.radius[level] / unit,
            largest_target=self.spec.largest_target(level) / unit,
            ridge=ridge,
            log_inverse_delta=log(1 / self.delta_fit(phase)),
        )
        return np.full(self.spec.n_blocks, short * self.theory.inflation * unit * alpha)

    def check_restored(self) -> None:
        """Constants read from a file go through the checks of all others."""
        names = ("delta", "bonus_from", "max_episodes", "memory", "memory_bytes", "episodes_per_phase", "pool")
        replays = ("c_replay", "epochs") if self.memory == "policies" else ()
        same = {name: getattr(self, name) for name in (*names, *replays)}
        ridge, width, trigger = self.fixed_ridge, self.fixed_width, self.fixed_trigger
        constants(self.spec, self.preset, ridge=ridge, bonus_width=width, trigger=trigger, **same)

    def delta_fit(self, phase: int) -> float:
        """The failure probability of one level's fit in one phase; that of one level's trigger is the same."""
        return self.delta / (8 * self.spec.horizon * phase**2)

    def _half_range(self, level: int) -> float:
        """s_h: half the range of a target. Without a clip at 0 targets may be negative: the range is twice as long."""
        largest = self.spec.largest_target(level)
        return largest / 2 if self.spec.well_specified else largest

    def _balanced_ridge(self, n_total: int) -> Array:
        """(s_h / B_h)^2, (H,): the bias B sqrt(ridge) is then as large as half the range of a target.

        1 where all rewards are the same, so that no target has a range. Blocks that are longer than 1 need enough
        ridge to be factorised in floating point; any ridge keeps the proof.
        """
        halves = np.array([self._half_range(h) for h in range(self.spec.horizon)])
        ridge = np.where(halves > 0, (halves / np.array(self.spec.block_radius)) ** 2, 1.0)
        return ridge if self.spec.block_dim == 1 else np.maximum(ridge, _ROUNDING * self._n(n_total))

    def _n(self, n_total: int) -> int:
        """The number of trajectories the logarithms are made for: those so far, or the user's if more."""
        return max(n_total, 1, self.max_episodes or 1)

    def _shortfall(self) -> float:
        """How many times fewer samples a fit may have than there are trajectories in the memory; at least 1."""
        return max(1.0, (1.0 if self.epochs == "single" else 4.0) / self.c_replay)


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
    memory: MemoryName | None = None,
    memory_bytes: int | None = None,
    episodes_per_phase: int = 1,
    pool: bool | None = None,
) -> Constants:
    """The constants of a preset, any of them replaced by a number of your own. The arguments are those of S4Q."""
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
    if preset == "practical" and bonus_from == "previous":
        raise ValueError('preset "practical" takes its width from the fitted samples: bonus_from must be "own"')
    paper, pool = preset == "paper", _pooling(spec, preset, pool)
    memory = _memory(preset, memory)
    for name, value in (("c_replay", c_replay), ("epochs", epochs)):
        if value is not None and memory != "policies":
            raise ValueError(
                f'{name} says how memory="policies" replays, but memory is "{memory}" here; leave {name} out, or pass '
                f'memory="policies"; got {value!r}'
            )
    return Constants(
        spec=spec,
        preset=preset,
        delta=delta,
        epochs=epochs or ("doubling" if paper else "single"),
        bonus_from=bonus_from or ("previous" if preset in ("paper", "tight") else "own"),
        c_replay=c_replay or (4.0 if paper else 0.25 if preset == "practical" else 1.0),
        fixed_ridge=_per_level("ridge", ridge, spec.horizon, require_positive),
        fixed_width=_per_level("bonus_width", bonus_width, spec.horizon, require_not_negative),
        fixed_trigger=_trigger(trigger),
        max_episodes=max_episodes,
        memory=memory,
        memory_bytes=_memory_bytes(spec, memory, memory_bytes, pool),
        episodes_per_phase=_episodes_per_phase(preset, episodes_per_phase),
        pool=pool,
    )


def _memory(preset: PresetName, memory: MemoryName | None) -> MemoryName:
    if memory not in (None, *get_args(MemoryName)):
        raise ValueError(f"memory must be one of {', '.join(get_args(MemoryName))}; got {memory!r}")
    return memory or ("sketch" if preset == "practical" else "policies")


def _memory_bytes(spec: Spec, memory: MemoryName, given: int | None, pool: bool) -> int | None:
    if memory != "sketch":
        if given is not None:
            raise ValueError(
                f'memory_bytes is the budget of memory="sketch", but memory is "{memory}" here; leave memory_bytes '
                f'out, or pass memory="sketch"; got {given!r}'
            )
        return None
    held, least = SKETCH_BYTES if given is None else given, least_bytes(spec, pool)
    try:
        require_count("memory_bytes", held, "the budget of the sketch, which holds a step a level or more", least)
    except ValueError as error:
        raise ValueError(f"{error}; raise it, leave it out for 64 MiB, or take fewer features") from None
    return int(held)


def _episodes_per_phase(preset: PresetName, given: int) -> int:
    require_count("episodes_per_phase", given, "the number of episodes that a phase has at least")
    if given > 1 and preset != "practical":
        raise ValueError(
            f'episodes_per_phase is for preset "practical"; the phases of "{preset}" must end at its trigger, and '
            f"workers share its replay already; leave episodes_per_phase out; got {given}"
        )
    return int(given)


def _pooling(spec: Spec, preset: PresetName, pool: bool | None) -> bool:
    if pool is not None:
        require_flag("pool", pool, "is every step a sample for every level?")
    if pool is None:
        return spec.stationary and preset not in ("paper", "tight")
    if pool and not spec.stationary:
        raise ValueError(
            "pool=True needs a stationary problem, but dynamics, rewards or features depend on the level here; "
            "use pool=None or pool=False"
        )
    if pool and preset in ("paper", "tight"):
        raise ValueError(
            f'preset "{preset}" has no proof for pooled steps; use "realisable" or "practical", or pool=False'
        )
    return pool


def _per_level(
    name: str, value: ArrayLike | None, horizon: int, require: Callable[[str, float, str], None]
) -> Array | None:
    if value is None:
        return None
    array = per_level(name, value, horizon)
    require(name, float(array.min()), "one number or one per level")
    return array


def _trigger(trigger: float | tuple[float, float] | None) -> tuple[float, float] | None:
    if trigger is None:
        return None
    pair = tuple(trigger) if isinstance(trigger, (tuple, list)) else (trigger, 0.0)
    if len(pair) != 2 or not all(isinstance(x, (int, float)) for x in pair):
        raise ValueError(f"trigger must be a number, or a pair (a, b) of numbers for a + b log n; got {trigger!r}")
    first, slope = pair
    require_positive("trigger", first, "the threshold a + b log n: a number, or the pair (a, b)")
    if not 0 <= slope < float("inf"):
        raise ValueError(f"trigger must not fall with n, so b in (a, b) must be at least 0; got {slope}")
    return (float(first), float(slope))
