"""Features that wait for the ranges of an observation: a space that does not bound its numbers leaves them open.

`default_features` makes them, and the first `Agent.learn` measures the ranges on a few episodes of random actions,
which it counts. From then on the ranges stand still: features that moved would change the meaning of every fit.
"""

from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar, final

import numpy as np

from s4q.core.blocks import Array, Phi, States
from s4q.core.messages import FeatureMap
from s4q.features.fourier import Fourier
from s4q.features.layout import Layout
from s4q.features.mixed import Mixed
from s4q.features.per_action import PerAction

MARGIN = 0.25  # of the measured width, added on each side: a policy that has learned goes where random actions do not


@final
@dataclass(frozen=True, eq=False, repr=False)
class Unmeasured:
    """A Fourier basis per action whose ranges are not known yet. It has sizes, and refuses to be evaluated.

    Args:
        layout: Where the numbers of an observation stand.
        n_actions: Number of actions.
        low: Lower end of each real number, (d,); infinite where it is not known.
        high: Upper end of each real number, (d,); infinite where it is not known.
        order: Order of the basis.
        interactions: As of Fourier.
    """

    layout: Layout
    n_actions: int
    low: Array
    high: Array
    order: int
    interactions: int | None

    stationary: ClassVar[bool] = True
    custom: ClassVar[bool] = False

    def __repr__(self) -> str:
        return f"Unmeasured(dimensions {self.dimensions} of {len(self.low)}, order={self.order})"

    @property
    def dimensions(self) -> list[int]:
        """The real numbers whose ranges are to be measured."""
        return np.flatnonzero(~np.isfinite(self.low) | ~np.isfinite(self.high)).tolist()

    @property
    def n_blocks(self) -> int:
        return prod(self.layout.sizes) * self.n_actions

    @property
    def block_dim(self) -> int:
        return self._basis(np.zeros_like(self.low), np.ones_like(self.high)).dim

    def __call__(self, h: int, states: States) -> Phi:  # noqa: ARG002 - whatever they are
        """Refused: nothing is known of the ranges yet."""
        raise ValueError(
            f"the ranges of dimensions {self.dimensions} of the observations are not known before the first learn, "
            "which measures them; call learn first, or pass features with low=[...] and high=[...]"
        )

    def measured(self, observations: list[Any]) -> tuple[FeatureMap, Array]:
        """The features with ranges that hold these observations and a margin, and those ranges, (d, 2).

        Args:
            observations: As the environment returned them.
        """
        _, seen = self.layout.split(observations)
        if not np.isfinite(seen).all():
            raise ValueError("observations must be finite; the ranges of the features are measured on them")
        least, most = seen.min(axis=0), seen.max(axis=0)
        # A number that is open on both sides and was seen on both sides of 0 gets a range around 0.
        around = np.isinf(self.low) & np.isinf(self.high) & (least < 0) & (most > 0)
        largest = np.maximum(np.abs(least), np.abs(most))
        least, most = np.where(around, -largest, least), np.where(around, largest, most)
        # A number that never changed has no width to go by.
        width = np.where(most > least, most - least, np.maximum(np.abs(most), 1.0))
        low = np.where(np.isfinite(self.low), self.low, np.minimum(least - MARGIN * width, self.high))
        high = np.where(np.isfinite(self.high), self.high, np.maximum(most + MARGIN * width, low))
        basis = self._basis(low, high)
        made: FeatureMap = (
            Mixed(self.layout, self.n_actions, basis)
            if self.layout.has_parts or self.layout.sizes
            else PerAction(basis, self.n_actions)
        )
        return made, np.stack([low, high], axis=1)

    def config(self) -> dict[str, Any]:
        """The parameters, in a form that JSON can hold; None stands for infinity."""
        return {
            "layout": self.layout.config(),
            "n_actions": self.n_actions,
            "low": [value if np.isfinite(value) else None for value in self.low.tolist()],
            "high": [value if np.isfinite(value) else None for value in self.high.tolist()],
            "order": self.order,
            "interactions": self.interactions,
        }

    @classmethod
    def from_config(cls, layout: list[dict[str, Any]], low: list[Any], high: list[Any], **rest: Any) -> "Unmeasured":
        """The map that `config` described.

        Args:
            layout: What `config` wrote of the layout.
            low: Lower ends; None stands for minus infinity.
            high: Upper ends; None stands for infinity.
            rest: The other parameters.
        """
        lows = np.array([-np.inf if value is None else value for value in low], dtype=np.float64)
        highs = np.array([np.inf if value is None else value for value in high], dtype=np.float64)
        return cls(Layout.from_config(layout), low=lows, high=highs, **rest)

    def _basis(self, low: Array, high: Array) -> Fourier:
        return Fourier(low=low, high=high, order=self.order, interactions=self.interactions, clip=True)
