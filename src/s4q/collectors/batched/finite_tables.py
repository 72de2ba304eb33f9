"""FiniteBatch: a FiniteMDP as an array simulator, for BatchCollector.

It draws from the generator it is given and keeps no state between steps.
"""

from typing import Any, final

import numpy as np

from s4q.collectors.finite.alias import AliasTable
from s4q.core.blocks import Array, BoolArray, IntArray
from s4q.core.validation import require_kind
from s4q.problems import FiniteMDP


@final
class FiniteBatch:
    """Steps many episodes of a FiniteMDP at once; its law is that of EpisodeCollector.

    Args:
        mdp: The problem.

    >>> from s4q import problems
    >>> batch, rng = FiniteBatch(problems.chain()), np.random.default_rng(0)
    >>> rewards, states, ended = batch.step(0, batch.start(5, rng), np.ones(5, dtype=int), rng)
    >>> states.shape, ended.any().item()
    ((5,), False)
    """

    def __init__(self, mdp: FiniteMDP) -> None:
        require_kind("mdp", mdp, FiniteMDP)
        self.mdp = mdp
        self.n_states = mdp.n_states
        n_pairs = mdp.n_states * mdp.n_actions
        self._stationary = mdp.same_dynamics
        levels = mdp.transitions[:1] if self._stationary else mdp.transitions
        self._next = AliasTable.of(levels.reshape(-1, mdp.n_states))
        self._start = AliasTable.of(mdp.start[None])
        self._n_pairs = n_pairs
        self._means = np.ascontiguousarray(mdp.rewards.reshape(mdp.horizon, n_pairs))
        self._ends = bool(mdp.terminal.any())

    def start(self, n: int, rng: np.random.Generator) -> IntArray:
        """n start states."""
        return self._start.draw(np.zeros(n, dtype=np.int64), rng.random(n))

    def step(
        self, h: int, states: IntArray, actions: IntArray, rng: np.random.Generator
    ) -> tuple[Array, IntArray, BoolArray]:
        """Rewards, next states, and which episodes ended."""
        mdp, n = self.mdp, len(states)
        pairs = states * mdp.n_actions + actions
        rows = pairs if self._stationary else pairs + h * self._n_pairs
        after = self._next.draw(rows, rng.random(n))
        ended = mdp.terminal[after] if self._ends else np.zeros(n, dtype=np.bool_)
        return self._rewards(h, states, actions, pairs, after, rng), after, ended

    def _rewards(
        self, h: int, states: Any, actions: Any, pairs: IntArray, after: IntArray, rng: np.random.Generator
    ) -> Array:
        mdp, spec = self.mdp, self.mdp.spec
        if mdp.arrival_rewards is not None:
            return np.asarray(mdp.arrival_rewards[h, states, actions, after])
        means: Array = np.take(self._means[h], pairs)
        if mdp.reward_noise == "none":
            return means
        spread = spec.reward_max - spec.reward_min
        pays = rng.random(len(pairs)) * spread < means - spec.reward_min
        return np.asarray(spec.reward_min + spread * pays)
