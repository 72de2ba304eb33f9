"""The learned value over two numbers of an observation: the hills of MountainCar, and the like.

`Agent.plot_value` and the page call it. It needs a feature map and a range; it plays nothing.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np
from numpy.typing import ArrayLike

from s4q.core.blocks import Array
from s4q.core.linear_q import LinearQ
from s4q.core.messages import FeatureMap, Spec
from s4q.core.validation import finite_array, require_count
from s4q.report.drawing import INK, MUTED, figure_of, label, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WIDEST = 1e30  # bounds of a Box beyond this mean that there are none


@final
@dataclass(frozen=True, eq=False, slots=True)
class Ranges:
    """Lowest and highest observation, (n,) each; infinite where nobody has declared them."""

    low: Array
    high: Array

    @classmethod
    def of_space(cls, space: Any, features: Any = None) -> "Ranges | None":
        """The bounds of a Box of one axis, narrowed to what the features declare; None for any other space.

        Args:
            space: A Gymnasium space.
            features: The feature map. One that declares ranges of its own (`low`, `high`) goes before the space.
        """
        bounds = [np.asarray(getattr(space, name, np.nan), dtype=np.float64) for name in ("low", "high")]
        if any(one.ndim != 1 or np.isnan(one).any() for one in bounds):
            return None
        declared = getattr(getattr(features, "state_features", features), "ranges", None)
        for i, name in enumerate(("low", "high")):
            mine = getattr(declared, name, None)
            if mine is not None and np.shape(mine) == bounds[i].shape:
                bounds[i] = np.asarray(mine, dtype=np.float64)
        low, high = (np.where(np.abs(one) > _WIDEST, np.sign(one) * np.inf, one) for one in bounds)
        return cls(low, high)

    @property
    def middle(self) -> Array:
        """The middle of each range; 0 where it has none."""
        finite = np.isfinite(self.low) & np.isfinite(self.high)
        return np.where(finite, (np.where(finite, self.low, 0.0) + np.where(finite, self.high, 0.0)) / 2, 0.0)


def box_ranges(space: Any, features: Any, low: ArrayLike | None, high: ArrayLike | None) -> Ranges:
    """The ranges of a Box of one axis, or those that are given.

    Args:
        space: A Gymnasium space.
        features: The feature map.
        low: Lowest observation. None: that of the features or of the space.
        high: Highest observation. None: that of the features or of the space.
    """
    found = Ranges.of_space(space, features)
    if found is None:
        raise ValueError(f"only observations that are a Box of one axis have a value that can be drawn; got {space}")
    ends = [end if given is None else finite_array(name, given) for name, given, end in (
        ("low", low, found.low), ("high", high, found.high)
    )]  # fmt: skip
    for name, end in zip(("low", "high"), ends, strict=True):
        if end.shape != found.low.shape:
            raise ValueError(f"{name} must hold {len(found.low)} numbers, one for each of the observation; got {end}")
    return Ranges(ends[0], ends[1])


def plot_value(
    q: LinearQ,
    features: FeatureMap,
    spec: Spec,
    ranges: Ranges,
    dims: tuple[int, int] = (0, 1),
    *,
    level: int = 0,
    at: ArrayLike | None = None,
    ax: "Axes | None" = None,
    cells: int = 60,
) -> "Axes":
    """What a value function promises over two numbers of the observation, the others held still.

    Args:
        q: The value function.
        features: Its feature map.
        spec: Its problem.
        ranges: Where observations lie; finite for the two numbers that are drawn.
        dims: Which two numbers of the observation to draw: across and up.
        level: The level.
        at: The observation whose other numbers are held. None (default): the middle of the ranges.
        ax: The Axes to draw on. None (default): new ones.
        cells: Points of the drawing in each direction.
    """
    n = len(ranges.low)
    if len(dims) != 2 or dims[0] == dims[1] or not all(isinstance(d, int) and 0 <= d < n for d in dims):
        raise ValueError(f"dims must name two different numbers of the observation, from 0 to {n - 1}; got {dims!r}")
    if not (isinstance(level, int) and 0 <= level < spec.horizon):
        raise ValueError(f"level must lie in 0..{spec.horizon - 1}; got {level!r}")
    require_count("cells", cells, "the number of points in each direction", at_least=2)
    for d in dims:
        if not (np.isfinite(ranges.low[d]) and np.isfinite(ranges.high[d]) and ranges.low[d] < ranges.high[d]):
            raise ValueError(
                f"number {d} of the observation has no finite range ({ranges.low[d]} to {ranges.high[d]}); pass low "
                "and high, one number for each of the observation"
            )
    point = ranges.middle if at is None else finite_array("at", at)
    if point.shape != (n,):
        raise ValueError(f"at must hold {n} numbers, one for each of the observation; got shape {point.shape}")
    across, up = (np.linspace(ranges.low[d], ranges.high[d], cells) for d in dims)
    states = np.tile(point, (cells * cells, 1))
    states[:, dims[0]], states[:, dims[1]] = np.tile(across, cells), np.repeat(up, cells)
    promised = spec.to_user_units(level, q.value(level, features(level, states))).reshape(cells, cells)
    # Far from all that was seen a linear value may lie below every return that is possible.
    promised = np.maximum(promised, spec.reward_min * (spec.horizon - level) if spec.reward_min < 0 else 0.0)
    ax = new_axes((4.4, 3.3)) if ax is None else ax
    sides = (float(across[0]), float(across[-1]), float(up[0]), float(up[-1]))
    image = ax.imshow(promised, origin="lower", extent=sides, aspect="auto", cmap="viridis", interpolation="nearest")
    ax.grid(visible=False)
    label(ax, f"observation[{dims[0]}]", f"observation[{dims[1]}]")
    bar = figure_of(ax).colorbar(image, ax=ax, pad=0.02)
    bar.set_label("promised return from here on", color=INK, fontsize=9)
    bar.ax.tick_params(colors=MUTED, labelcolor=INK, labelsize=8)
    bar.outline.set_visible(False)
    return ax
