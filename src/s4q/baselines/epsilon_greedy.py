"""EpsilonGreedy: the greedy policy of a Q, mixed with a uniform one at every step."""

from dataclasses import dataclass
from typing import final

import numpy as np

from s4q.core.blocks import Array, IntArray, Phi, States
from s4q.core.linear_q import LinearQ
from s4q.core.validation import require_share


@final
@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class EpsilonGreedy:
    """A uniform action with probability epsilon, else the greedy one.

    Args:
        q: The Q whose greedy action is taken.
        epsilon: Probability of a uniform action.

    >>> q = LinearQ.from_arrays(np.array([[[1.0], [2.0]]]))
    >>> EpsilonGreedy(q, 0.2).probabilities(0, np.zeros(1), Phi(np.ones((1, 2, 1)), np.array([[0, 1]]))).tolist()
    [[0.1, 0.9]]
    """

    q: LinearQ
    epsilon: float

    def probabilities(self, h: int, states: States, phi: Phi) -> Array:
        """Action probabilities, (n, n_actions)."""
        return self._mixed(self.q.probabilities(h, states, phi))

    def probabilities_at_every_level(self, vectors: Array, blocks: IntArray) -> Array:
        """`probabilities` of a table of states at every level, (H, S, n_actions); as `LinearQ` has it."""
        return self._mixed(self.q.probabilities_at_every_level(vectors, blocks))

    def _mixed(self, greedy: Array) -> Array:
        return np.asarray((1.0 - self.epsilon) * greedy + self.epsilon / greedy.shape[-1])


def require_epsilon(epsilon: float) -> None:
    """A probability."""
    require_share("epsilon", epsilon, "the probability of a uniform action")
