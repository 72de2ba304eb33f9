"""StepBuffer: transitions in arrays that grow by doubling; the oldest are overwritten once a capacity is reached.

Replay Q-learning draws from it. It is the memory that policy replay avoids: its size grows with the episodes.
"""

from typing import final

import numpy as np

from s4q.core.blocks import Array, BoolArray, IntArray
from s4q.core.messages import Spec, Transitions


@final
class StepBuffer:
    """Steps with the features of both their states.

    Args:
        spec: The problem.
        capacity: The most steps that are held. None: all.
    """

    def __init__(self, spec: Spec, capacity: int | None) -> None:
        self.capacity = capacity
        self.n_added = 0
        n, k, n_actions = 16, spec.block_dim, spec.n_actions
        self.levels: IntArray = np.zeros(n, dtype=np.int64)
        self.blocks: IntArray = np.zeros(n, dtype=np.int64)
        self.vectors: Array = np.zeros((n, k))
        self.rewards: Array = np.zeros(n)
        self.ended: BoolArray = np.zeros(n, dtype=np.bool_)
        self.next_blocks: IntArray = np.zeros((n, n_actions), dtype=np.int64)
        self.next_vectors: Array = np.zeros((n, n_actions, k))

    _COLUMNS = ("levels", "blocks", "vectors", "rewards", "ended", "next_blocks", "next_vectors")

    def __len__(self) -> int:
        return self.n_added if self.capacity is None else min(self.n_added, self.capacity)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays, their room for more steps included."""
        return sum(getattr(self, name).nbytes for name in self._COLUMNS)

    def add(self, steps: Transitions) -> None:
        """Append steps that were seen once each."""
        rows = self.n_added + np.arange(len(steps.levels))
        if self.capacity is not None:
            rows %= self.capacity
        while len(self.levels) <= rows.max(initial=0):
            for name in self._COLUMNS:
                old = getattr(self, name)
                setattr(self, name, np.concatenate([old, np.zeros_like(old)]))
        for name in self._COLUMNS:
            getattr(self, name)[rows] = getattr(steps, name)
        self.n_added += len(rows)
