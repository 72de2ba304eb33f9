"""Features of finitely many states, as a table. States are whole numbers 0..S-1.

A FiniteMDP holds its features in this form, and collectors over a FiniteMDP read the arrays directly.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import ArrayLike

from s4q.core.blocks import Array, BoolArray, IntArray, Phi, States
from s4q.core.least_squares import elliptical_norm_sq
from s4q.core.messages import FeatureMap
from s4q.core.validation import finite_array, frozen_array, require_count, require_finite, require_shape
from s4q.features.batches import require_blocks


@final
@dataclass(frozen=True, eq=False, repr=False)
class TableFeatures:
    """phi_h(s, a) looked up in a table; a feature map.

    Args:
        vectors: (H, S, A, k), each of norm at most 1.
        blocks: Whole numbers (H, S, A), the block of each pair.
        n_blocks: Number of blocks.

    >>> table = TableFeatures.one_hot(horizon=1, n_states=2, n_actions=2)
    >>> table(0, np.array([1])).blocks.tolist(), table.n_blocks
    ([[2, 3]], 4)
    """

    vectors: Array  # (H, S, A, k)
    blocks: IntArray  # (H, S, A)
    n_blocks: int

    custom: ClassVar[bool] = False
    validates_output: ClassVar[bool] = True  # norms and blocks are checked before they are returned

    def __post_init__(self) -> None:
        object.__setattr__(self, "vectors", frozen_array(self.vectors))
        require_shape("features", self.vectors, (None, None, None, None), "(H, S, A, k)")
        require_shape("blocks", self.blocks, self.vectors.shape[:3], "(H, S, A)")
        require_blocks(self.blocks, self.n_blocks)
        require_finite("features", self.vectors)
        norms = np.linalg.norm(self.vectors, axis=-1)
        if norms.max() > 1 + 1e-9:
            h, s, a = (int(i) for i in np.unravel_index(int(np.argmax(norms)), norms.shape))
            raise ValueError(
                f"features must have norm at most 1, but at level {h}, state {s}, action {a} the norm is "
                f"{norms[h, s, a]:.6g}; divide all features by {norms.max():.6g}"
            )

    @classmethod
    def one_hot(cls, horizon: int, n_states: int, n_actions: int, terminal: BoolArray | None = None) -> "TableFeatures":
        """One block of length 1 per pair (s, a), the same at every level.

        Args:
            horizon: Number of levels.
            n_states: Number of states.
            n_actions: Number of actions.
            terminal: Mask (S,) of states whose features are 0. None (default): no state.
        """
        vectors = np.ones((n_states, n_actions, 1))
        if terminal is not None:
            vectors[terminal] = 0.0
        blocks = np.arange(n_states * n_actions).reshape(n_states, n_actions)
        every = (horizon, n_states, n_actions)
        return cls(
            np.broadcast_to(frozen_array(vectors), (*every, 1)), np.broadcast_to(blocks, every), n_states * n_actions
        )

    @classmethod
    def dense(cls, table: ArrayLike, horizon: int) -> "TableFeatures":
        """One block for all pairs.

        Args:
            table: (H, S, A, d), or (S, A, d) for the same features at every level.
            horizon: Number of levels.
        """
        array = finite_array("features", table)
        if array.ndim == 3:
            array = np.broadcast_to(frozen_array(array), (horizon, *array.shape))
        require_shape("features", array, (horizon, None, None, None), "(H, S, A, d), or (S, A, d) with `horizon`,")
        return cls(array, np.zeros(array.shape[:3], dtype=np.int64), 1)

    @classmethod
    def tabulated(cls, features: FeatureMap, horizon: int, n_states: int) -> "TableFeatures":
        """Any feature map over states 0..S-1, evaluated once at every level.

        Args:
            features: The feature map.
            horizon: Number of levels.
            n_states: Number of states.
        """
        if isinstance(features, cls):
            return features
        states = np.arange(n_states)
        phis = [features(h, states) for h in range(horizon)]
        for phi in phis:
            if not isinstance(phi, Phi):
                raise ValueError(f"a feature map must return Phi(vectors, blocks); got {type(phi).__name__}")
            require_shape(
                "features", np.asarray(phi.vectors), (n_states, features.n_actions, features.block_dim), "(n, A, k)"
            )
        vectors = finite_array("features", np.stack([phi.vectors for phi in phis]))
        return cls(vectors, np.stack([phi.blocks for phi in phis]), features.n_blocks)

    @classmethod
    def from_lists(cls, vectors: ArrayLike, blocks: ArrayLike, n_blocks: int, horizon: int) -> "TableFeatures":
        """The table that `config` described.

        Args:
            vectors: (H, S, A, k), or (1, S, A, k) where all levels are the same.
            blocks: (H, S, A), or (1, S, A).
            n_blocks: Number of blocks.
            horizon: Number of levels.
        """
        array, whole = finite_array("features", vectors), np.array(blocks, dtype=np.int64)
        require_count("horizon", horizon, "the number of levels")
        if len(array) == 1 < horizon:
            array = np.broadcast_to(frozen_array(array), (horizon, *array.shape[1:]))
            whole = np.broadcast_to(whole, (horizon, *whole.shape[1:]))
        return cls(array, whole, n_blocks)

    def config(self) -> dict[str, Any]:
        """The parameters of `from_lists`, in a form that JSON can hold."""
        levels = slice(1) if self.stationary else slice(None)
        return {
            "vectors": self.vectors[levels].tolist(),
            "blocks": self.blocks[levels].tolist(),
            "n_blocks": int(self.n_blocks),
            "horizon": len(self.vectors),
        }

    def __repr__(self) -> str:
        sizes = "H={}, S={}, A={}, dim={}".format(*self.vectors.shape)
        return f"TableFeatures({sizes}, n_blocks={self.n_blocks})"

    @property
    def n_actions(self) -> int:
        return int(self.vectors.shape[2])

    @property
    def block_dim(self) -> int:
        return int(self.vectors.shape[3])

    @property
    def horizon(self) -> int:
        return len(self.vectors)

    @property
    def stationary(self) -> bool:
        """True if the features are the same at every level."""
        return bool(np.all(self.vectors == self.vectors[:1]) and np.all(self.blocks == self.blocks[:1]))

    def level(self, h: int) -> Phi:
        """The features of all states at a level.

        Args:
            h: The level.
        """
        return Phi(self.vectors[h], self.blocks[h])

    def norms_sq(self, whitener: Array) -> Array:
        """|phi|^2 in the metric of Sigma^-1 at every pair, (H, S, A).

        Args:
            whitener: W with W Sigma W^T = I, (H, n_blocks, k, k), or (1, n_blocks, k, k) for all levels.
        """
        whiteners = np.broadcast_to(whitener, (len(self.vectors), *whitener.shape[1:]))
        levels = zip(self.vectors, self.blocks, whiteners, strict=True)
        return np.stack([elliptical_norm_sq(vectors, blocks, white) for vectors, blocks, white in levels])

    def __call__(self, h: int, states: States) -> Phi:
        """vectors (n, A, k) and blocks (n, A) of states (n,)."""
        return Phi(self.vectors[h, states], self.blocks[h, states])
