"""Features of mixtures: one block for each action and each combination of whole numbers, smooth features within.

They are the default for Dict and Tuple observations. Without real numbers in an observation they are one-hot features,
which are exact.
"""

from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar, final

import numpy as np

from s4q.core.blocks import IntArray, Phi, States
from s4q.core.validation import require_count
from s4q.features.batches import for_every_action, ones, require_unit_norms
from s4q.features.layout import Layout
from s4q.features.one_hot import OneHot
from s4q.features.per_action import StateFeatures
from s4q.features.registry import from_config, is_custom, to_config


@final
@dataclass(frozen=True, eq=False, init=False, repr=False)
class Mixed:
    """e_a (x) e_w (x) psi(x) of an observation with whole numbers w and real numbers x; a feature map.

    The norm is that of psi(x), or 1 where there are no real numbers.

    Args:
        space: The observation space: Dict, Tuple, or what stands inside of them. Or a Layout.
        n_actions: Number of actions.
        numbers: Features psi of the real numbers, as Fourier(low=..., high=..., order=1). They take all real numbers of
            an observation as one row, in the order of the space. None (default): the space has none.

    >>> from gymnasium.spaces import Discrete, Tuple
    >>> hands = Mixed(Tuple((Discrete(32), Discrete(11), Discrete(2))), n_actions=2)
    >>> hands.n_blocks, hands(0, [(4, 10, 0)]).blocks.tolist()
    (1408, [[216, 217]])
    """

    layout: Layout
    n_actions: int
    numbers: StateFeatures | None
    _combinations: OneHot | None  # of the whole numbers; its blocks are those of the map

    stationary: ClassVar[bool] = True
    same_for_all_actions: ClassVar[bool] = True
    validates_output: ClassVar[bool] = True

    def __init__(self, space: Any, n_actions: int, numbers: StateFeatures | None = None) -> None:
        require_count("n_actions", n_actions, "the number of actions")
        layout = space if isinstance(space, Layout) else Layout.of(space)
        if (numbers is None) != (layout.dim == 0):
            raise ValueError(
                f"numbers are the features of the {layout.dim} real numbers of an observation, so they must be "
                f"{'left out' if layout.dim == 0 else 'given, as features.Fourier(low=..., high=..., order=1)'}; "
                f"got {numbers!r}"
            )
        combinations = OneHot(layout.sizes, n_actions, start=layout.start) if layout.sizes else None
        vars(self).update(layout=layout, n_actions=int(n_actions), numbers=numbers, _combinations=combinations)

    @classmethod
    def from_config(cls, space: list[dict[str, Any]], n_actions: int, numbers: dict[str, Any] | None) -> "Mixed":
        """The map that `config` described.

        Args:
            space: The layout of an observation.
            n_actions: Number of actions.
            numbers: What the registry wrote of the features of the real numbers.
        """
        return cls(Layout.from_config(space), n_actions, None if numbers is None else from_config(numbers))

    def __repr__(self) -> str:
        return f"Mixed(sizes={self.layout.sizes}, numbers={self.numbers!r}, n_actions={self.n_actions})"

    @property
    def n_blocks(self) -> int:
        return prod(self.layout.sizes) * self.n_actions

    @property
    def block_dim(self) -> int:
        return 1 if self.numbers is None else int(self.numbers.dim)

    @property
    def exact(self) -> bool:
        """True if nothing is shared between observations, so that every function is linear in the features."""
        return self.numbers is None

    @property
    def custom(self) -> bool:
        """True if it holds code of the user's, which no file can carry."""
        return self.numbers is not None and is_custom(self.numbers)

    def __call__(self, h: int, states: States) -> Phi:
        """vectors (n, A, k) and blocks (n, A) of a batch of observations as the environment returns them."""
        whole, real = self.layout.split(states)
        n = len(whole)
        blocks: IntArray = np.broadcast_to(np.arange(self.n_actions), (n, self.n_actions))
        if self._combinations is not None:
            blocks = self._combinations(h, whole).blocks
        if self.numbers is None:
            return Phi(ones((n, self.n_actions, 1)), blocks)
        psi = np.asarray(self.numbers(real), dtype=np.float64)
        if not getattr(self.numbers, "proven", False):
            require_unit_norms(psi, "divide the features of the real numbers by a bound on their norm")
        return Phi(for_every_action(psi, self.n_actions), blocks)

    def config(self) -> dict[str, Any]:
        """The parameters, in a form that JSON can hold."""
        numbers = None if self.numbers is None else to_config(self.numbers)
        return {"space": self.layout.config(), "n_actions": self.n_actions, "numbers": numbers}
