"""Transitions: steps of episodes as a learner may keep them."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, final

import numpy as np

from s4q.core.blocks import Array, BoolArray, IntArray, Phi
from s4q.core.factors import Factors
from s4q.core.least_squares import Moments
from s4q.core.optimism import QLevel
from s4q.core.spec import Spec
from s4q.core.validation import require_finite, require_shape


@final
@dataclass(frozen=True, eq=False, slots=True)
class Transitions:
    """Steps as features, not states: what a learner may keep of an episode. Rewards are shifted to start at 0."""

    levels: Annotated[IntArray, "n"]
    vectors: Annotated[Array, "n K"]  # phi of the action taken
    blocks: Annotated[IntArray, "n"]
    rewards: Annotated[Array, "n"]
    next_vectors: Annotated[Array, "n A K"]  # of no meaning where the episode ended
    next_blocks: Annotated[IntArray, "n A"]
    ended: Annotated[BoolArray, "n"]  # the episode ended with this step
    weights: Annotated[IntArray, "n"]  # how often this very step was seen

    @classmethod
    def concatenate(cls, pieces: Sequence["Transitions"]) -> "Transitions":
        """All steps of the pieces, in their order."""
        return cls(*(np.concatenate([getattr(piece, f.name) for piece in pieces]) for f in fields(cls)))

    def rows(self, which: Any) -> "Transitions":
        """Some of the steps, chosen by an index of numpy."""
        return Transitions(*(getattr(self, f.name)[which] for f in fields(self)))

    def require_fit(self, spec: Spec) -> None:
        """Steps that come from outside must have the sizes of the problem, and be finite."""
        n, k = len(self.levels), spec.block_dim
        shapes = {"vectors": (n, k), "next_vectors": (n, spec.n_actions, k), "next_blocks": (n, spec.n_actions)}
        for one in fields(self):
            require_shape(f"kept.{one.name}", getattr(self, one.name), shapes.get(one.name, (n,)), "of the problem")
        for name in ("vectors", "rewards", "next_vectors"):
            require_finite(f"kept.{name}", getattr(self, name))
        for name, end in (("levels", spec.horizon), ("blocks", spec.n_blocks), ("next_blocks", spec.n_blocks)):
            found = getattr(self, name)
            if n and not 0 <= found.min() <= found.max() < end:
                raise ValueError(f"kept.{name} must lie in 0..{end - 1}; got {found.min()}..{found.max()}")

    def targets(self, spec: Spec, level: int, target: QLevel | None, norm_sq: Array | None = None) -> Array:
        """y = r + max_a' Qtar(s', a'), (n,), for a fit of `level`. An ended episode is worth a known constant.

        Args:
            spec: The problem.
            level: The level that is fitted.
            target: Qtar of the level after it; None after the last level, where the value is 0.
            norm_sq: Squared norms of the next features in the metric of the target, (n, n_actions), if known already.
        """
        if target is None:
            return self.rewards + np.where(self.ended, spec.ended_value(level), 0.0)
        after = target.value(Phi(self.next_vectors, self.next_blocks), norm_sq)
        return self.rewards + np.where(self.ended, spec.ended_value(level), after)  # [Alg1:TDError]

    def moments(
        self,
        spec: Spec,
        level: int,
        target: QLevel | None,
        gram: Array | None = None,
        factors: Factors | None = None,
        norm_sq: Array | None = None,
    ) -> Moments:
        """The sums a fit of `level` needs, over all these steps whatever their level.

        Args:
            spec: The problem.
            level: The level that is fitted.
            target: Qtar of the level after it; None after the last level.
            gram: sum of phi phi^T of these steps, if known already.
            factors: Its factors, if known already.
            norm_sq: As in `targets`.
        """
        targets = self.targets(spec, level, target, norm_sq)
        return Moments.of(self.vectors, self.blocks, targets, spec.n_blocks, self.weights, gram, factors)

    @property
    def nbytes(self) -> int:
        """Bytes held by the arrays."""
        return sum(int(getattr(self, f.name).nbytes) for f in fields(self))
