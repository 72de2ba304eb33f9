"""Transitions: steps of episodes as a learner may keep them.

Collectors make them, for the sums of a `Regress` and as the kept steps of an `Explore`; memories of learners hold them.
They are features and rewards, never states of an environment. The features of a state stand once in a table, and a step
points to the rows of the two states it joins.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, final

import numpy as np
from numpy.typing import NDArray

from s4q.core.blocks import Array, BoolArray, IntArray, Phi
from s4q.core.least_squares import Moments
from s4q.core.optimism import QLevel
from s4q.core.spec import Spec
from s4q.core.validation import require_finite, require_shape

_TABLE = ("state_vectors", "state_blocks")


@final
@dataclass(frozen=True, eq=False, slots=True)
class Transitions:
    """Steps between states that are known by their features. Rewards are shifted to start at 0."""

    state_vectors: Annotated[Array, "m v K"]  # of every action; v = 1 where the actions of a state share one vector
    state_blocks: Annotated[IntArray, "m A"]  # the block of every action
    levels: Annotated[IntArray, "n"]
    states: Annotated[IntArray, "n"]  # rows of the table
    actions: Annotated[IntArray, "n"]
    rewards: Annotated[Array, "n"]
    next_states: Annotated[IntArray, "n"]  # rows of the table; of no meaning where the episode ended
    ended: Annotated[BoolArray, "n"]  # the episode ended with this step
    weights: Annotated[IntArray, "n"]  # how often this very step was seen

    @classmethod
    def concatenate(cls, pieces: Sequence["Transitions"]) -> "Transitions":
        """All steps of the pieces, in their order."""
        if len(pieces) == 1:
            return pieces[0]
        columns: dict[str, NDArray[Any]] = {
            f.name: np.concatenate([getattr(piece, f.name) for piece in pieces])
            for f in fields(cls)
            if f.name != "state_vectors"
        }
        sizes = [len(piece.state_blocks) for piece in pieces]
        shift = np.repeat(np.cumsum([0, *sizes[:-1]]), [len(piece.levels) for piece in pieces])
        columns["states"], columns["next_states"] = columns["states"] + shift, columns["next_states"] + shift
        wide = max(piece.state_vectors.shape[1] for piece in pieces)
        tables = [widened(piece.state_vectors, wide) for piece in pieces]
        return cls(state_vectors=np.concatenate(tables), **columns)

    @classmethod
    def none(cls, spec: Spec) -> "Transitions":
        """No steps at all.

        Args:
            spec: The problem.
        """
        numbers, flags = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.bool_)
        table = np.zeros((0, 1, spec.block_dim)), np.zeros((0, spec.n_actions), dtype=np.int64)
        return cls(*table, numbers, numbers, numbers, np.zeros(0), numbers, flags, numbers)

    def rows(self, which: Any) -> "Transitions":
        """Some of the steps, chosen by an index of numpy. The table of states stays whole."""
        return replace(self, **{f.name: getattr(self, f.name)[which] for f in fields(self) if f.name not in _TABLE})

    @property
    def vectors(self) -> Array:
        """phi of the action taken, (n, k)."""
        shared = self.state_vectors.shape[1] == 1
        return np.asarray(self.state_vectors[self.states, 0 if shared else self.actions])

    @property
    def blocks(self) -> IntArray:
        """The block of the action taken, (n,)."""
        return self.state_blocks[self.states, self.actions]

    @property
    def next_vectors(self) -> Array:
        """phi of every action in the next state, (n, n_actions, k)."""
        return widened(self.state_vectors, self.state_blocks.shape[1])[self.next_states]

    @property
    def next_blocks(self) -> IntArray:
        """The blocks of every action in the next state, (n, n_actions)."""
        return self.state_blocks[self.next_states]

    def require_fit(self, spec: Spec) -> None:
        """Steps that come from outside must have the sizes of the problem, and be finite."""
        m, n, k = len(self.state_blocks), len(self.levels), spec.block_dim
        vectors_of_a_state = 1 if self.state_vectors.shape[1:2] == (1,) else spec.n_actions
        shapes = {"state_vectors": (m, vectors_of_a_state, k), "state_blocks": (m, spec.n_actions)}
        for one in fields(self):
            require_shape(f"kept.{one.name}", getattr(self, one.name), shapes.get(one.name, (n,)), "of the problem")
        for name in ("state_vectors", "rewards"):
            require_finite(f"kept.{name}", getattr(self, name))
        ends = {"levels": spec.horizon, "actions": spec.n_actions, "states": m, "next_states": m}
        for name, end in (ends | {"state_blocks": spec.n_blocks}).items():
            found = getattr(self, name)
            if found.size and not 0 <= found.min() <= found.max() < end:
                raise ValueError(f"kept.{name} must lie in 0..{end - 1}; got {found.min()}..{found.max()}")
        if n and self.weights.min() < 1:
            raise ValueError(f"kept.weights must be at least 1, since they count steps; got {self.weights.min()}")

    def moments(self, spec: Spec, level: int, target: QLevel | None) -> Moments:
        """The sums a fit of `level` needs, over all these steps whatever their level.

        Args:
            spec: The problem.
            level: The level that is fitted.
            target: Qtar of the level after it; None after the last level.
        """
        after: Array = np.zeros(len(self.levels))
        if target is not None and not self.ended.all():
            going = ~self.ended
            reached, where = np.unique(self.next_states[going], return_inverse=True)  # each state is evaluated once
            # Written out for every action, so that bits do not depend on what a feature map says of itself.
            phi = Phi(widened(self.state_vectors[reached], spec.n_actions), self.state_blocks[reached])
            after[going] = target.value(phi)[where]
        targets = regression_targets(spec, level, self.rewards, self.ended, after)
        return Moments.of(self.vectors, self.blocks, targets, spec.n_blocks, self.weights)


def regression_targets(spec: Spec, level: int, rewards: Array, ended: BoolArray, after: Array) -> Array:
    """y = r + max_a' Qtar(s', a'), (n,), for a fit of `level`. An ended episode is worth a known constant.

    Args:
        spec: The problem.
        level: The level that is fitted.
        rewards: Shifted to start at 0, (n,).
        ended: True where the episode ended with the step, (n,).
        after: max_a' Qtar(s', a') of the next state, (n,); 0 after the last level.
    """
    return rewards + np.where(ended, spec.ended_value(level), after)  # [Alg1:TDError]


def widened(vectors: Array, n_vectors: int) -> Array:
    """The same vectors (m, v, k) with v = n_vectors; a shared one is repeated."""
    return np.repeat(vectors, n_vectors, axis=1) if vectors.shape[1] < n_vectors else vectors


def one_where_shared(vectors: Array) -> Array:
    """One vector a state, (m, 1, k), where an axis that was only repeated says that its actions share it."""
    return vectors[:, :1] if vectors.strides[1] == 0 else vectors
