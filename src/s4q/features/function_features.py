"""Features by a function of the user's, with declared sizes, checked at every call.

It is the most general map: any blocks, and features that depend on the level. A file cannot hold the function, so it
must be passed again on load.
"""

from collections.abc import Callable as Function
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np

from s4q.core.blocks import Phi, States
from s4q.core.validation import require_count, require_shape
from s4q.features.batches import require_blocks, require_unit_norms


@final
@dataclass(frozen=True, eq=False, init=False, repr=False)
class FunctionFeatures:
    """phi_h(s, a) by your function; a feature map.

    Sizes, finiteness, blocks and norm <= 1 are checked at every call. Constants are linear in the features only if you
    put one in.

    Args:
        function: Called with (h, states (n, ...)). It returns Phi, or (vectors (n, A, k), blocks (n, A)), or vectors
            alone where there is one block. It must be deterministic and treat each state of a batch by itself.
        n_actions: Number A of actions.
        block_dim: Length k of a feature vector within its block.
        n_blocks: Number of blocks, 1 by default.
        stationary: True if the function ignores h. False by default.

    >>> def circle(h, s):
    ...     return np.stack([np.cos(s), np.sin(s)], axis=-1)[:, None]
    >>> features = FunctionFeatures(circle, n_actions=1, block_dim=2)
    >>> features(0, np.array([0.0])).vectors.tolist()
    [[[1.0, 0.0]]]
    """

    function: Function[[int, States], Any]
    n_actions: int
    n_blocks: int
    block_dim: int
    stationary: bool

    custom: ClassVar[bool] = True
    validates_output: ClassVar[bool] = True  # norms and blocks are checked before they are returned

    def __init__(
        self,
        function: Function[[int, States], Any],
        *,
        n_actions: int,
        block_dim: int,
        n_blocks: int = 1,
        stationary: bool = False,
    ) -> None:
        if not callable(function):
            raise ValueError(f"function must be callable as function(h, states); got {type(function).__name__}")
        require_count("n_actions", n_actions, "the number of actions")
        require_count("n_blocks", n_blocks, "the number of feature blocks")
        require_count("block_dim", block_dim, "the length of a feature block")
        vars(self).update(function=function, n_actions=int(n_actions), n_blocks=int(n_blocks))
        vars(self).update(block_dim=int(block_dim), stationary=bool(stationary))

    def __repr__(self) -> str:
        name = getattr(self.function, "__name__", type(self.function).__name__)
        return f"FunctionFeatures({name}, n_actions={self.n_actions}, n_blocks={self.n_blocks}, dim={self.block_dim})"

    def __call__(self, h: int, states: States) -> Phi:
        """vectors (n, A, k) and blocks (n, A), checked."""
        made = self.function(h, states)
        if isinstance(made, Phi):
            vectors, blocks = made.vectors, made.blocks
        elif isinstance(made, tuple) and len(made) == 2:
            vectors, blocks = made
        elif self.n_blocks == 1:
            vectors, blocks = made, np.zeros((len(states), self.n_actions), dtype=np.int64)
        else:
            raise ValueError(f"function must return (vectors, blocks) where there are {self.n_blocks} blocks")
        vectors, blocks = np.array(vectors, dtype=np.float64), np.array(blocks)  # copies: it may use its buffers again
        require_shape("vectors", vectors, (len(states), self.n_actions, self.block_dim), "(n, A, k)")
        require_shape("blocks", blocks, (len(states), self.n_actions), "(n, A)")
        require_blocks(blocks, self.n_blocks)
        require_unit_norms(vectors, "divide the features by a bound on their norm")
        return Phi(vectors, blocks.astype(np.int64, copy=False))
