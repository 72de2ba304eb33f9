"""Per-action features e_a (x) psi(s): one block per action, with the same features of the state in each.

It turns the features of a state (Fourier, Tiles, RBF, RandomFourier, Sklearn, your own) into a feature map. Actions
share nothing.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, final

import numpy as np

from s4q.core.blocks import Array, IntArray, Phi, States
from s4q.core.validation import require_count, require_shape
from s4q.features.batches import for_every_action, for_every_state, require_unit_norms
from s4q.features.registry import from_config, is_custom, to_config


class StateFeatures(Protocol):
    """Features psi(s) of a batch of states, (n, dim); each row has norm at most 1."""

    @property
    def dim(self) -> int: ...
    def __call__(self, states: States) -> Array: ...


@final
@dataclass(frozen=True, eq=False, init=False, repr=False)
class PerAction:
    """|A| blocks of length k = state_features.dim; a feature map.

    The norm is that of psi(s): at most 1 by proof for the state features of this package, checked at every call for
    others.

    Args:
        state_features: Fourier, Tiles, RBF, RandomFourier or Sklearn; or your own object with `dim` and
            `__call__(states) -> (n, dim)`.
        n_actions: Number of actions.

    >>> from s4q.features import Fourier
    >>> features = PerAction(Fourier(low=[0, 0], high=[1, 1], order=1), n_actions=3)
    >>> features.n_blocks, features.block_dim, features(0, np.zeros((5, 2))).vectors.shape
    (3, 4, (5, 3, 4))
    """

    state_features: StateFeatures
    n_actions: int
    _blocks: IntArray  # (A,)
    _blocks_of_one: IntArray  # (1, A), read-only
    _proven: bool

    stationary: ClassVar[bool] = True
    same_for_all_actions: ClassVar[bool] = True  # the vectors of a state do not depend on the action
    validates_output: ClassVar[bool] = True  # norms and blocks are checked before they are returned

    def __init__(self, state_features: StateFeatures, n_actions: int) -> None:
        require_count("n_actions", n_actions, "the number of actions")
        dim = getattr(state_features, "dim", None)
        if not callable(state_features) or dim is None:
            raise ValueError(
                "state_features must be callable on states and have a `dim`, as features.Fourier does; got "
                f"{type(state_features).__name__}; a plain function goes into features.FunctionFeatures"
            )
        require_count("state_features.dim", dim, "the number of features of a state")
        proven = bool(getattr(state_features, "proven", False))
        blocks = np.arange(n_actions)
        vars(self).update(state_features=state_features, n_actions=int(n_actions), _proven=proven)
        vars(self).update(_blocks=blocks, _blocks_of_one=for_every_state(blocks, 1))

    @classmethod
    def from_config(cls, state_features: dict[str, Any], n_actions: int) -> "PerAction":
        """The map that `config` described.

        Args:
            state_features: What the registry wrote of the features of a state.
            n_actions: Number of actions.
        """
        return cls(from_config(state_features), n_actions)

    def __repr__(self) -> str:
        return f"PerAction({self.state_features!r}, n_actions={self.n_actions})"

    @property
    def n_blocks(self) -> int:
        return self.n_actions

    @property
    def block_dim(self) -> int:
        return int(self.state_features.dim)

    @property
    def proven(self) -> bool:
        """True if the norm is at most 1 by proof, so that no call checks it."""
        return self._proven

    @property
    def custom(self) -> bool:
        """True if it holds code of the user's, which no file can carry."""
        return is_custom(self.state_features)

    def __call__(self, h: int, states: States) -> Phi:  # noqa: ARG002 - the same at every level
        """vectors (n, A, k), a read-only view of psi (n, k), and blocks (n, A)."""
        psi = self.state_features(states)
        if not self._proven:
            psi = np.asarray(psi, dtype=np.float64)
            require_shape("state features", psi, (len(states), self.block_dim), "(n, dim)")
            require_unit_norms(psi, "divide state_features by a bound on their norm")
        n = len(psi)
        blocks = self._blocks_of_one if n == 1 else for_every_state(self._blocks, n)
        return Phi(for_every_action(psi, self.n_actions), blocks)

    def config(self) -> dict[str, Any]:
        """The parameters, in a form that JSON can hold."""
        return {"state_features": to_config(self.state_features), "n_actions": self.n_actions}
