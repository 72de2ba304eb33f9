"""Bonus rules: where the bonus of a level comes from, and the fit of no samples that it begins with."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Protocol, final

import numpy as np

from s4q.core.blocks import Array
from s4q.core.codec import Positive
from s4q.core.least_squares import Moments
from s4q.core.linear_q import LevelBonus, LinearQ
from s4q.core.messages import Spec
from s4q.core.validation import finite_array, require_shape
from s4q.learners.presets import Constants


class BonusRule(Protocol):
    """The bonus of a level. May look at the level's own sums."""

    def __call__(self, level: int, moments: Moments) -> LevelBonus: ...


@final
@dataclass(frozen=True, eq=False)
class FixedBonus:
    """A bonus given from outside, as in the paper: width_h |W_h phi|.

    >>> FixedBonus(whitener=np.ones((1, 2, 1, 1)), width=[0.5])(0, Moments.zeros(2, 1)).width.tolist()
    [0.5, 0.5]
    """

    whitener: Annotated[Array, "H B K K"]  # W Sigma W^T = I
    width: Annotated[Array, "H B"]  # (H,) is accepted: the same for every block

    def __post_init__(self) -> None:
        white, width = finite_array("whitener", self.whitener), finite_array("width", self.width)
        require_shape("whitener", white, (None, None, None, None), "(H, n_blocks, k, k)")
        checked = LinearQ(np.zeros(white.shape[:3]), white, width)  # one place knows the shapes of a bonus
        object.__setattr__(self, "whitener", checked.whitener)
        object.__setattr__(self, "width", checked.width)

    def __call__(self, level: int, moments: Moments) -> LevelBonus:
        del moments
        return LevelBonus(self.whitener[level], self.width[level])


@final
@dataclass(frozen=True, eq=False, slots=True)
class OwnGramBonus:
    """The bonus of a phase, from the very samples a level is fitted to."""

    constants: Constants
    phase: Positive
    n_total: int
    ridge: Annotated[Array, "H"]

    def __call__(self, level: int, moments: Moments) -> LevelBonus:
        return self.constants.bonus(level, self.phase, self.n_total, moments, float(self.ridge[level]))


def zero_fit(spec: Spec, bonuses: Sequence[LevelBonus], share_whitener: bool = False) -> LinearQ:
    """The fit of no samples: theta = 0, and the bonus alone if there is one."""
    theta = np.zeros((spec.horizon, spec.n_blocks, spec.block_dim))
    if not bonuses:
        return LinearQ(theta)
    lower = 0.0 if spec.well_specified else -np.inf  # below 0 a clip is safe only when the features are exact
    clip = np.array([(lower, bound) for bound in spec.value_bound])
    return LinearQ.of_levels(theta, bonuses, clip, share_whitener)


def zero_bonuses(spec: Spec, bonus: BonusRule | None) -> list[LevelBonus]:
    """The bonus of every level before any sample."""
    if bonus is None:
        return []
    if isinstance(bonus, FixedBonus) and bonus.whitener.shape != (spec.horizon, *spec.gram_shape):
        want = (spec.horizon, *spec.gram_shape)
        raise ValueError(f"bonus.whitener must have shape (H, n_blocks, k, k) = {want}; got {bonus.whitener.shape}")
    nothing = Moments.zeros(spec.n_blocks, spec.block_dim)
    return [bonus(h, nothing) for h in range(spec.horizon)]
