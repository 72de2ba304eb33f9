"""Spec: the numbers that are all a learner knows of a problem.

Levels are h = 0..H-1 in code (the paper's h minus 1) and the value after level H-1 is 0. Learners see rewards shifted
to start at 0, and every bound here is in those shifted units; `to_user_units` goes back. An episode that ends early
earns 0 a step from then on, which the shift turns into a known constant: `ended_value`.
"""

from dataclasses import dataclass
from typing import Annotated, Literal, Protocol, final, get_args

import numpy as np
from numpy.typing import ArrayLike

from s4q.core.blocks import Array
from s4q.core.validation import (
    finite_array,
    require_count,
    require_finite,
    require_flag,
    require_kind,
    require_positive,
)


class Sized(Protocol):
    """What a Spec needs to know of a feature map."""

    @property
    def n_actions(self) -> int: ...
    @property
    def n_blocks(self) -> int: ...
    @property
    def block_dim(self) -> int: ...


class HasSpec(Protocol):
    @property
    def spec(self) -> "Spec": ...


RadiusFrom = Literal["computed", "declared", "default"]


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class Spec:
    """Sizes, reward range and bounds: all that a learner knows of a problem. Make one with `Spec.of`.

    Args:
        horizon: Steps of an episode, H.
        n_actions: Number of actions.
        n_blocks: Number of feature blocks.
        block_dim: Length of a feature block.
        reward_min: Lowest reward of a step, in the user's units.
        reward_max: Highest reward of a step, in the user's units.
        value_bound: v_h for each level: bounds Q*_h on pairs that can be reached, for rewards shifted to start at 0.
        radius: B_h for each level: radius of the parameter ball.
        block_radius: The same for the part of the parameter that stands in one block.
        radius_from: "computed" from exact tables, "declared" by the user, or the "default" assumption.
        stationary: True if dynamics, rewards and features are the same at every level.
        well_specified: True if the features are exact, so that the transfer error is 0.

    >>> from s4q.features import TableFeatures
    >>> spec = Spec.of(TableFeatures.one_hot(3, 3, 2), horizon=3, reward_range=(0, 1))
    >>> spec.dim, spec.value_bound
    (6, (3.0, 2.0, 1.0))
    """

    horizon: Annotated[int, "H"]
    n_actions: Annotated[int, "A"]
    n_blocks: Annotated[int, "B"]
    block_dim: Annotated[int, "K"]
    reward_min: float
    reward_max: float
    value_bound: tuple[float, ...]
    radius: tuple[float, ...]
    block_radius: tuple[float, ...]
    radius_from: RadiusFrom = "declared"
    stationary: bool
    well_specified: bool

    def __post_init__(self) -> None:
        require_flag("stationary", self.stationary, "is every level the same?")
        require_flag("well_specified", self.well_specified, "are the features exact?")
        require_count("horizon", self.horizon, "the number of steps of an episode")
        require_count("n_actions", self.n_actions, "the number of actions")
        require_count("n_blocks", self.n_blocks, "the number of feature blocks")
        require_count("block_dim", self.block_dim, "the length of a feature block")
        require_finite("reward range", np.array([self.reward_min, self.reward_max]))
        if self.reward_min > self.reward_max:
            raise ValueError(f"reward_min must not exceed reward_max; got {self.reward_min} > {self.reward_max}")
        if self.radius_from not in get_args(RadiusFrom):
            raise ValueError(f"radius_from must be one of {', '.join(get_args(RadiusFrom))}; got {self.radius_from!r}")
        for name, values in (
            ("value_bound", self.value_bound),
            ("radius", self.radius),
            ("block_radius", self.block_radius),
        ):
            if len(values) != self.horizon:
                raise ValueError(f"{name} needs one number per level, {self.horizon}; got {len(values)}")
            for value in values:
                require_positive(name, value, "a bound per level, in rewards shifted to start at 0")

    @classmethod
    def of(
        cls,
        features: Sized,
        *,
        horizon: int,
        reward_range: tuple[float, float],
        value_bound: ArrayLike | None = None,
        radius: ArrayLike | None = None,
        stationary: bool = False,
        well_specified: bool = False,
        may_end: bool = True,
    ) -> "Spec":
        """The Spec of a feature map, a horizon and a declared reward range, which is never guessed from data.

        Args:
            features: The feature map, or anything with n_actions, n_blocks and block_dim.
            horizon: Steps of an episode.
            reward_range: Lowest and highest reward of a step.
            value_bound: Bound on the return from any step on, in the user's units: one number (1 when an episode
                pays once), or one per level. None (default) means the largest reward at every step left.
            radius: Bound on the norm of the true parameter of every regression target. None (default) means sqrt(d)
                times the largest target (sqrt(k) times for a block). This is an assumption: features shorter than 1,
                or nearly collinear, may need more.
            stationary: True if dynamics, rewards and features do not depend on the step.
            well_specified: True if the features are exact.
            may_end: True if episodes may end before the horizon. The reward range must then hold the 0 that follows.
        """
        require_map(features)
        require_count("horizon", horizon, "the number of steps of an episode")
        low, high = checked_range(reward_range, may_end)
        shifted = _shifted_bound(horizon, low, high, value_bound, may_end)
        dim = features.n_blocks * features.block_dim
        if radius is None:
            largest_target = high - low + np.append(shifted[1:], 0.0)
            largest_target = np.where(largest_target > 0, largest_target, shifted)  # one constant reward
            balls, small = np.sqrt(dim) * largest_target, np.sqrt(features.block_dim) * largest_target
        else:
            balls = small = per_level("radius", radius, horizon)  # bounds the whole parameter, so each block too
        return cls(
            horizon=horizon,
            n_actions=features.n_actions,
            n_blocks=features.n_blocks,
            block_dim=features.block_dim,
            reward_min=low,
            reward_max=high,
            value_bound=tuple(shifted.tolist()),
            radius=tuple(balls.tolist()),
            block_radius=tuple(small.tolist()),
            radius_from="default" if radius is None else "declared",
            stationary=stationary,
            well_specified=well_specified,
        )

    @property
    def dim(self) -> int:
        """d, the length of the features written out."""
        return self.n_blocks * self.block_dim

    @property
    def gram_shape(self) -> tuple[int, int, int]:
        """(n_blocks, k, k)"""
        return (self.n_blocks, self.block_dim, self.block_dim)

    @property
    def theta_shape(self) -> tuple[int, int, int]:
        """(H, n_blocks, k)"""
        return (self.horizon, self.n_blocks, self.block_dim)

    @property
    def reward_slack(self) -> float:
        """How far rounding may put a reward outside of the range: rewards in single precision are accepted."""
        return 1e-6 * max(abs(self.reward_min), abs(self.reward_max), 1.0)

    def half_range(self, h: int) -> float:
        """s_h: half the range of a regression target r + V(s') at level h."""
        return (self.reward_max - self.reward_min + self.next_bound(h)) / 2

    def next_bound(self, h: int) -> float:
        """v_{h+1}: bounds the value that targets of level h bootstrap on; 0 after the last level.

        Args:
            h: The level of the target.
        """
        return self.value_bound[h + 1] if h + 1 < self.horizon else 0.0

    def largest_target(self, h: int) -> float:
        """A bound on |r + Q'(s', a')| at level h. Unless features are exact, Q' is only bounded below by its ball.

        Args:
            h: The level of the target.
        """
        after = self.next_bound(h)
        if not self.well_specified and h + 1 < self.horizon:
            after = max(after, self.radius[h + 1])
        return self.reward_max - self.reward_min + after

    def ended_value(self, h: int) -> float:
        """What the steps after level h are worth to an episode that ended there: 0 a step, shifted by -reward_min."""
        return (self.horizon - 1 - h) * -self.reward_min

    def to_user_units(self, h: int, values: Array) -> Array:
        """Undo the shift of values from level h on."""
        return values + (self.horizon - h) * self.reward_min


def require_map(features: object) -> None:
    """Something with the sizes of a feature map; features of states alone are told how to become one."""
    missing = [name for name in ("n_actions", "n_blocks", "block_dim") if not hasattr(features, name)]
    if missing and hasattr(features, "dim") and not isinstance(features, type):
        name = type(features).__name__
        raise ValueError(f"{name} gives features of states; wrap it: features.PerAction({name}(...), n_actions)")
    if missing or not callable(features) or isinstance(features, type):
        shown = features if isinstance(features, type) else type(features)
        lacks = ", ".join(missing) or ("an instance" if isinstance(features, type) else "the call")
        raise ValueError(
            "features must be a feature map, callable with (h, states), with n_actions, n_blocks and block_dim; "
            f"{shown.__name__} lacks {lacks}; see features.FunctionFeatures"
        )


def require_spec(spec: object) -> None:
    """A Spec, and not the problem or the environment it belongs to."""
    require_kind("spec", spec, Spec, " (Spec.of makes one)")


def require_spec_fits(features: object, spec: Spec) -> None:
    """Features and spec must have the same sizes."""
    for name in ("n_actions", "n_blocks", "block_dim"):
        mine, theirs = getattr(spec, name), getattr(features, name, None)
        if mine != theirs:
            raise ValueError(f"features and spec must be made for one problem, but {name} is {theirs} and {mine}")


def checked_range(reward_range: object, may_end: bool) -> tuple[float, float]:
    """The lowest and the highest reward of a step, as two floats."""
    pair = finite_array("reward_range", reward_range)  # type: ignore[arg-type]
    if pair.shape != (2,) or pair[0] > pair[1]:
        raise ValueError(
            f"reward_range must be (lowest, highest) reward of a step, with lowest <= highest; got {reward_range}"
        )
    low, high = pair.tolist()
    if may_end and low > 0:
        raise ValueError(
            "the lowest reward must be at most 0 when episodes may end early, since an ended episode earns 0; pass "
            f"reward_range=(0, {high:g}); got {reward_range}"
        )
    return low, high


def spec_of(problem: Spec | HasSpec) -> Spec:
    """The Spec itself, or the `.spec` of a problem."""
    spec = problem if isinstance(problem, Spec) else getattr(problem, "spec", None)
    if not isinstance(spec, Spec):
        raise ValueError(
            f"problem must be a Spec or have a `.spec` (a FiniteMDP has one; Spec.of makes one); "
            f"got {type(problem).__name__}"
        )
    return spec


def per_level(name: str, value: ArrayLike, horizon: int) -> Array:
    """One number per level, (H,), from one number or one per level."""
    array = finite_array(name, value)
    if array.shape not in ((), (horizon,)):
        raise ValueError(f"{name} must be one number or one per level, ({horizon},); got shape {array.shape}")
    return np.broadcast_to(array, (horizon,)).copy()


def _shifted_bound(horizon: int, low: float, high: float, bound: ArrayLike | None, may_end: bool) -> Array:
    """v_h in shifted units: the declared bound on returns, never above what the reward range allows anyway."""
    left = np.arange(horizon, 0, -1)
    best = high + (left - 1) * (max(high, 0.0) if may_end else high)
    if bound is not None:
        best = np.minimum(per_level("value_bound", bound, horizon), best)
    if may_end:
        best[1:] = np.maximum(best[1:], 0.0)  # an ended episode is worth 0 from there on
    shifted = best - left * low
    if np.any(shifted <= 0):
        if bound is None:  # one constant reward: every policy is optimal, any positive bound will do
            return np.where(shifted > 0, shifted, 1.0)
        raise ValueError(
            f"value_bound must exceed the return of an episode that earns reward_min = {low} at every step; "
            f"got {np.asarray(bound).tolist()}"
        )
    return shifted


def ball_radii(spec: Spec, radius: ArrayLike | None) -> Array:
    """(H,), one ball a level, or (H, n_blocks), one a block; infinite for no ball."""
    array = np.array(spec.radius if radius is None else radius, dtype=np.float64)
    if array.shape not in ((), (spec.horizon,), (spec.horizon, spec.n_blocks)):
        raise ValueError(
            f"radius must be one number, one per level ({spec.horizon},) or one per level and block "
            f"({spec.horizon}, {spec.n_blocks}); got shape {array.shape}"
        )
    if not (array > 0).all():  # NaN fails here too
        raise ValueError(f"radius is the radius of a ball, so it must be positive (infinite for none); got {radius!r}")
    return np.full(spec.horizon, float(array)) if array.ndim == 0 else array
