"""Dense features: one block, any phi(s, a) in R^d, from a function or a table.

Use it where states and actions share features in a way of your own. Norms are checked, so that no sum of a learner
ever holds a vector longer than 1.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import ArrayLike

from s4q.core.blocks import Array, IntArray, Phi, States
from s4q.core.validation import finite_array, require_count, require_shape
from s4q.features.batches import for_every_state, require_unit_norms, whole_numbers

CURE = "divide all features by a bound on their norm"


@final
@dataclass(frozen=True, eq=False, init=False, repr=False)
class Dense:
    """One block of length d, from a function of states or from a table; a feature map.

    The norm is checked: of a table once, of a function at every call. Constants are linear in the features only if
    you put one in, such as an entry that never changes.

    Args:
        source: A function of a batch of states, (n, ...) -> (n, A, d); or a table (S, A, d) of the states 0..S-1.
        n_actions: Number A of actions. Needed for a function; None (default): that of the table.
        dim: Length d of the features. Needed for a function; None (default): that of the table.

    >>> Dense([[[1.0, 0.0]], [[0.6, 0.8]]])(0, np.array([1, 0])).vectors.tolist()
    [[[0.6, 0.8]], [[1.0, 0.0]]]
    """

    source: Callable[[States], Array] | Array
    n_actions: int
    block_dim: int
    _blocks: IntArray  # (A,) of zeros

    stationary: ClassVar[bool] = True
    n_blocks: ClassVar[int] = 1
    validates_output: ClassVar[bool] = True  # norms and blocks are checked before they are returned

    def __init__(
        self, source: Callable[[States], Array] | ArrayLike, n_actions: int | None = None, dim: int | None = None
    ) -> None:
        if callable(source):
            if n_actions is None or dim is None:
                raise ValueError("a function needs its sizes: Dense(function, n_actions=..., dim=...)")
            kept: Any = source
        else:
            kept = finite_array("source", source)
            require_shape("source", kept, (None, n_actions, dim), "(S, A, d)")
            require_unit_norms(kept, CURE)
            n_actions, dim = kept.shape[1:]
        require_count("n_actions", n_actions, "the number of actions")
        require_count("dim", dim, "the number of features")
        blocks = np.zeros(n_actions, dtype=np.int64)
        vars(self).update(source=kept, n_actions=int(n_actions), block_dim=int(dim), _blocks=blocks)

    def __repr__(self) -> str:
        source = "function" if callable(self.source) else f"table of {len(self.source)} states"
        return f"Dense({source}, n_actions={self.n_actions}, dim={self.block_dim})"

    @property
    def custom(self) -> bool:
        """True if it holds code of the user's, which no file can carry."""
        return callable(self.source)

    def __call__(self, h: int, states: States) -> Phi:  # noqa: ARG002 - the same at every level
        """vectors (n, A, d) and blocks (n, A), all 0."""
        n = len(states)
        if callable(self.source):
            vectors = np.array(self.source(states), dtype=np.float64)  # a copy: it may use its buffer again
            require_shape("features", vectors, (n, self.n_actions, self.block_dim), "(n, A, d)")
            require_unit_norms(vectors, CURE)
        else:
            vectors = self.source[self._rows(states)]
        return Phi(vectors, for_every_state(self._blocks, n))

    def config(self) -> dict[str, Any]:
        """The parameters, in a form that JSON can hold."""
        if callable(self.source):
            raise ValueError("a function cannot be written to a file; only a table can")
        return {"source": self.source.tolist(), "n_actions": self.n_actions, "dim": self.block_dim}

    def _rows(self, states: States) -> IntArray:
        rows = whole_numbers(states, "rows of the table")
        if rows.shape[1:] not in ((), (1,)) or not rows.ndim:
            raise ValueError(f"states must be a batch of rows of the table, (n,); got shape {rows.shape}")
        rows = rows.reshape(-1)
        n_states = len(self.source)  # type: ignore[arg-type]
        bad = np.flatnonzero((rows < 0) | (rows >= n_states))
        if len(bad):
            raise ValueError(
                f"state {bad[0]} of the batch is {rows[bad[0]]}, outside the rows 0..{n_states - 1} of the table"
            )
        return rows
