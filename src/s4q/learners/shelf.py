"""Shelf: the steps that a memory holds for one level, each once, with a weight.

Only the memory of steps calls it. A step is two rows of the table of states, an action, a reward and an end. A shelf
counts and stores. It knows no targets and fits nothing.
"""

from dataclasses import dataclass, field
from typing import Annotated, Any, final

import numpy as np

from s4q.core.blocks import Array, BoolArray, IntArray
from s4q.core.codec import NotSaved
from s4q.core.messages import Spec
from s4q.learners.distinct_rows import BYTES_PER_ROW, Bits, DistinctRows, bits_of
from s4q.learners.state_table import bytes_per_state

Columns = tuple[IntArray, IntArray, IntArray, Array, BoolArray]  # states, actions, next states, rewards, ends
BYTES_PER_STEP = 5 * 8 + 1 + 8 + BYTES_PER_ROW  # five numbers, a flag, the settled weight, the index


@final
@dataclass(eq=False, repr=False)
class Shelf:
    """The steps that are samples of one level; of every level, with pooled steps."""

    states: Annotated[IntArray, "n"]  # rows of the table of states
    actions: Annotated[IntArray, "n"]
    next_states: Annotated[IntArray, "n"]  # the state itself where the episode ended
    rewards: Annotated[Array, "n"]
    ended: Annotated[BoolArray, "n"]
    weights: Annotated[Array, "n"]  # how many steps a row stands for; whole numbers until the shelf is thinned
    gram: Annotated[Array, "B K K"]  # sum of phi phi^T of all steps that ever came
    n_samples: int = 0  # their number
    settled: Annotated[Array, "n"] | None = None  # the part of each weight that is in the sums; None: never thinned
    _known_rows: NotSaved[DistinctRows | None] = field(default=None)  # made when it is needed

    @classmethod
    def empty(cls, spec: Spec) -> "Shelf":
        """No steps yet."""
        none, numbers = np.zeros(0, dtype=np.int64), np.zeros(0)
        return cls(none, none, none, numbers, np.zeros(0, dtype=np.bool_), numbers, np.zeros(spec.gram_shape))

    def __len__(self) -> int:
        return len(self.states)

    @property
    def nbytes(self) -> int:
        """Bytes held by the steps, the index of equal ones included, the Gram matrix left out."""
        return len(self) * (BYTES_PER_STEP - (8 if self.settled is None else 0))

    def add(self, columns: Columns, counts: IntArray) -> None:
        """Count the steps that are here already, append the others.

        columns: states, actions, next states, rewards and ends of steps (n,); counts (n,): how often each was seen.
        """
        places, new = self.rows_known().locate(_step_bits(*columns))
        self._replace([np.concatenate([old, one[new]]) for old, one in zip(self._columns, columns, strict=True)])
        self.weights = np.concatenate([self.weights, np.zeros(len(new))])
        np.add.at(self.weights, places, counts.astype(np.float64))
        if self.settled is not None:
            self.settled = np.concatenate([self.settled, np.zeros(len(new))])

    def keep(self, which: BoolArray, weights: Array) -> None:
        """Keep these rows (n,) with other weights (n,), which are settled."""
        self._replace([column[which] for column in self._columns])
        self.weights = self.settled = weights[which]
        self._known_rows = None

    def renumber(self, rows: IntArray) -> None:
        """The state of every old row of the table stands in another row now, (m,)."""
        self.states, self.next_states, self._known_rows = rows[self.states], rows[self.next_states], None

    @property
    def _columns(self) -> Columns:
        return self.states, self.actions, self.next_states, self.rewards, self.ended

    def _replace(self, columns: list[Any]) -> None:
        self.states, self.actions, self.next_states, self.rewards, self.ended = columns

    def rows_known(self) -> DistinctRows:
        if self._known_rows is None:
            self._known_rows = DistinctRows(self._bits, len(self))
        return self._known_rows

    def _bits(self, which: IntArray) -> Bits:
        columns: list[Any] = [column[which] for column in self._columns]
        return _step_bits(*columns)


def _step_bits(states: IntArray, actions: IntArray, following: IntArray, rewards: Array, ended: BoolArray) -> Bits:
    return bits_of(states, actions, following, rewards, ended.astype(np.int64))


def least_bytes(spec: Spec, pool: bool) -> int:
    """Bytes that a step a level takes at most: no budget may be smaller."""
    return (1 if pool else spec.horizon) * (BYTES_PER_STEP + 2 * bytes_per_state(spec))
