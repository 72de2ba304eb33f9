"""StateTable: the features of the states that steps of a memory lead from and to, each state once.

Only the memory of steps calls it. It knows features, not states of an environment, and nothing of steps: they hold
numbers of its rows.
"""

from dataclasses import dataclass, field
from typing import Annotated, final

import numpy as np

from s4q.core.blocks import Array, BoolArray, IntArray, Phi
from s4q.core.codec import NotSaved
from s4q.core.messages import Spec
from s4q.core.transitions import widened
from s4q.learners.distinct_rows import BYTES_PER_ROW, Bits, DistinctRows, bits_of


@final
@dataclass(eq=False, repr=False)
class StateTable:
    """Features of states, without repetition.

    What all actions of every state share is stored once: `vectors` (m, 1, k) where the actions of a state have one
    vector, `blocks` (1, n_actions) where all states have the same blocks.

    >>> table = StateTable.empty(n_actions=2, block_dim=1)
    >>> table.add(np.ones((3, 1, 1)), np.array([[0, 1], [2, 3], [0, 1]])).tolist(), len(table), table.vectors.shape
    ([0, 1, 0], 2, (2, 1, 1))
    """

    vectors: Annotated[Array, "m v K"]
    blocks: Annotated[IntArray, "b A"]
    _known_rows: NotSaved[DistinctRows | None] = field(default=None)  # made when it is needed

    @classmethod
    def empty(cls, n_actions: int, block_dim: int) -> "StateTable":
        """No states yet.

        Args:
            n_actions: Number of actions.
            block_dim: Length k of the vectors.
        """
        return cls(np.zeros((0, 1, block_dim)), np.zeros((1, n_actions), dtype=np.int64))

    def check_restored(self) -> None:
        """A table read from a file must have vectors and blocks for every state, and no state twice."""
        m, n_vectors = self.vectors.shape[:2]
        if n_vectors not in (1, self.blocks.shape[1]) or len(self.blocks) not in (1, m):
            raise ValueError(f"a table of {m} states cannot have vectors and blocks of these shapes")
        self._rows_known()

    def __len__(self) -> int:
        return len(self.vectors)

    @property
    def nbytes(self) -> int:
        """Bytes held, the index of equal states included."""
        return self.vectors.nbytes + self.blocks.nbytes + BYTES_PER_ROW * len(self)

    def phi(self, which: IntArray | None = None) -> Phi:
        """Features of all states, or of some of them; vectors are (n, 1, k) where actions share them."""
        return Phi(self.vectors if which is None else self.vectors[which], self.blocks_of(which))

    def blocks_of(self, which: IntArray | None = None) -> IntArray:
        """Blocks of every action in all states, or in some of them, (n, n_actions): one row, repeated, if all agree."""
        if len(self.blocks) == 1:
            return np.broadcast_to(self.blocks, (len(self) if which is None else len(which), self.blocks.shape[1]))
        return self.blocks if which is None else self.blocks[which]

    def chosen(self, states: IntArray, actions: IntArray) -> tuple[Array, IntArray]:
        """Vectors (n, k) and blocks (n,) of the actions (n,) in some states (n,)."""
        vectors = self.vectors[states, 0 if self.vectors.shape[1] == 1 else actions]
        return vectors, self.chosen_blocks(states, actions)

    def chosen_blocks(self, states: IntArray, actions: IntArray) -> IntArray:
        """Blocks (n,) of the actions (n,) in some states (n,)."""
        return np.asarray(self.blocks[0 if len(self.blocks) == 1 else states, actions])

    def add(self, vectors: Array, blocks: IntArray) -> IntArray:
        """The rows (n,) of these states, which are appended where they are new.

        Args:
            vectors: Features (n, n_actions, k), or (n, 1, k) where actions share them.
            blocks: Blocks (n, n_actions).
        """
        vectors, blocks = np.asarray(vectors, dtype=np.float64), np.asarray(blocks, dtype=np.int64)
        if vectors.shape[1] > 1 and np.array_equal(vectors, np.broadcast_to(vectors[:, :1], vectors.shape)):
            vectors = vectors[:, :1]
        self._make_room(vectors, blocks)
        vectors = widened(vectors, self.vectors.shape[1])
        places, new = self._rows_known().locate(bits_of(vectors, blocks))
        if len(new):
            if len(self.blocks) > 1 or (self.blocks != blocks[new]).any():
                self.blocks = np.concatenate([self.blocks_of(), blocks[new]])
            self.vectors = np.concatenate([self.vectors, vectors[new]])
        return places

    def keep(self, used: BoolArray) -> IntArray:
        """Drop the states that are not used, (m,); the new row of every old one, (m,), of no meaning for those."""
        self.vectors, self._known_rows = self.vectors[used], None
        self.blocks = self.blocks[used] if len(self.blocks) > 1 else self.blocks
        return np.cumsum(used) - 1

    def _make_room(self, vectors: Array, blocks: IntArray) -> None:
        """Begin with the blocks of the first state; give each action a vector of its own once they differ."""
        if not len(self) and len(blocks):
            self.blocks = blocks[:1].copy()
        if vectors.shape[1] > self.vectors.shape[1]:
            self.vectors, self._known_rows = widened(self.vectors, vectors.shape[1]), None

    def _rows_known(self) -> DistinctRows:
        if self._known_rows is None:
            self._known_rows = DistinctRows(self._bits, len(self))
        return self._known_rows

    def _bits(self, which: IntArray) -> Bits:
        return bits_of(self.vectors[which], self.blocks_of()[which])


def bytes_per_state(spec: Spec) -> int:
    """The most that one state takes."""
    return 8 * spec.n_actions * (spec.block_dim + 1) + BYTES_PER_ROW
