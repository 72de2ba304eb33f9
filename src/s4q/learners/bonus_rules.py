"""Bonus rules: where the bonus of a level comes from, and the fit of no samples that a learner begins with.

S3Q calls a rule once per fitted level. A rule sees the fit and the sums behind it, nothing else. `FixedBonus` is the
paper's, given from outside; `OwnGramBonus` is made by a preset from the very samples of the level.
"""

from dataclasses import dataclass, replace
from math import inf
from typing import Annotated, Protocol, final

import numpy as np
from numpy.typing import ArrayLike

from s4q.core.blocks import Array
from s4q.core.codec import Positive
from s4q.core.least_squares import Moments
from s4q.core.linear_q import LinearQ
from s4q.core.messages import Spec
from s4q.core.optimism import QLevel
from s4q.core.validation import finite_array, require_positive, require_shape
from s4q.learners.presets import Constants


class BonusRule(Protocol):
    """Adds the bonus to the fit of a level."""

    def __call__(self, level: int, fit: QLevel, moments: Moments) -> QLevel:
        """The same fit with a whitener and a width.

        Args:
            level: The level, 0..H-1.
            fit: Its parameter and clip, without a bonus; `dataclasses.replace(fit, whitener=..., width=...)`.
            moments: The sums that were fitted.
        """
        ...


@final
class FixedBonus:
    """A bonus given from outside, as in the paper: width_h |W_h phi|.

    Every fit of a level holds the same two arrays, which are never written.

    Args:
        whitener: W with W Sigma W^T = I, (H, n_blocks, k, k).
        width: Its width, (H,) or (H, n_blocks).

    >>> FixedBonus(whitener=np.ones((1, 2, 1, 1)), width=[0.5])(0, QLevel(np.zeros((2, 1))), Moments.zeros(2, 1)).width
    array([0.5, 0.5])
    """

    _bonus: LinearQ  # the bonus alone: theta = 0

    def __init__(self, whitener: ArrayLike, width: ArrayLike) -> None:
        white = finite_array("whitener", whitener)
        require_shape("whitener", white, (None, None, None, None), "(H, n_blocks, k, k)")
        self._bonus = LinearQ.from_arrays(np.zeros(white.shape[:3]), white, width)

    def check_restored(self) -> None:
        """What was read from a file must be a bonus."""
        if any(level.whitener is None for level in self._bonus.levels):
            raise ValueError("a FixedBonus needs a whitener and a width at every level")

    @property
    def whitener(self) -> Array:
        """W of all levels, (H, n_blocks, k, k): a copy."""
        return np.stack([level.whitener for level in self._bonus.levels])

    @property
    def width(self) -> Array:
        """The widths of all levels, (H, n_blocks): a copy."""
        return np.stack([level.width for level in self._bonus.levels])

    def require_fit(self, spec: Spec) -> None:
        """Refuse a bonus of another problem.

        Args:
            spec: The problem.
        """
        want, got = (spec.horizon, *spec.gram_shape), self.whitener.shape
        if got != want:
            raise ValueError(f"bonus.whitener must have shape (H, n_blocks, k, k) = {want}; got {got}")

    def __call__(self, level: int, fit: QLevel, moments: Moments) -> QLevel:
        """The fit with the given bonus. The arguments are those of a BonusRule."""
        del moments
        bonus = self._bonus.levels[level]
        return replace(fit, whitener=bonus.whitener, width=bonus.width)


@final
@dataclass(frozen=True, eq=False, slots=True)
class OwnGramBonus:
    """The bonus of a phase, from the very samples a level is fitted to."""

    constants: Constants
    phase: Positive
    n_total: int
    ridge: Annotated[Array, "H"]

    def __post_init__(self) -> None:
        require_positive("ridge", float(self.ridge.min()), "added to the Gram matrix")

    def __call__(self, level: int, fit: QLevel, moments: Moments) -> QLevel:
        """The fit with the bonus that the preset prescribes. The arguments are those of a BonusRule."""
        return self.constants.with_bonus(fit, level, self.phase, self.n_total, moments, float(self.ridge[level]))


def fitted_level(
    spec: Spec, level: int, theta: Array, moments: Moments, bonus: BonusRule | None, shared: Array | None = None
) -> QLevel:
    """A fit as Qtar of its level: with the bonus and clipped at the value bound, if there is a bonus.

    Args:
        spec: The problem.
        level: The level, 0..H-1.
        theta: The fitted parameter, (n_blocks, k).
        moments: The sums that were fitted.
        bonus: The rule; None for the plain fit.
        shared: A whitener (n_blocks, k, k) to use in place of the rule's own; None for the rule's own.
    """
    if bonus is None:
        return QLevel(theta)
    lower = 0.0 if spec.well_specified else -inf  # below 0 a clip is safe only when the features are exact
    made = bonus(level, QLevel(theta, clip=(lower, spec.value_bound[level])), moments)
    return made if shared is None or made.whitener is shared else replace(made, whitener=shared)


def zero_fit(spec: Spec, bonus: BonusRule | None, share_whitener: bool = False) -> LinearQ:
    """The fit of no samples: theta = 0, and the bonus alone if there is one."""
    if isinstance(bonus, FixedBonus):
        bonus.require_fit(spec)
    nothing, levels = Moments.zeros(spec.n_blocks, spec.block_dim), list[QLevel]()
    for h in reversed(range(spec.horizon)):
        shared = levels[0].whitener if share_whitener and levels else None
        levels.insert(0, fitted_level(spec, h, nothing.moment, nothing, bonus, shared))
    return LinearQ(levels)
