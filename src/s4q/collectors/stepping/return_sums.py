"""Scores: stepped episodes in, their returns out. What a Tally is to a Regress or an Explore, for an Evaluate."""

from typing import final

import numpy as np

from s4q.collectors.stepping.one_episode import Player
from s4q.core.blocks import Phi
from s4q.core.linear_q import LinearQ
from s4q.core.messages import Evaluate, Policy, Returns, Shard, Spec


@final
class Scores:
    """The episodes of one shard of an Evaluate, added in their order until the shard is full."""

    def __init__(self, request: Evaluate, shard: Shard, spec: Spec) -> None:
        self.request = request
        self.shard = shard
        self.n_episodes = 0
        self.last = spec.horizon
        self._shift = -spec.horizon * spec.reward_min
        self._returns: list[float] = []
        self._starts: list[Phi] = []
        self._n_steps = 0

    @property
    def complete(self) -> bool:
        """No more episodes wanted?"""
        return self.n_episodes == self.shard.n_episodes

    @property
    def policies(self) -> tuple[list[Policy], list[float]]:
        """What an episode may play, and with which chance."""
        return [self.request.policy], [1.0]

    def looks_after(self, number: int) -> bool:
        """Are the features after the last step of this episode (counted within the shard) needed?"""
        del number
        return False

    def add(self, player: Player) -> None:
        """Take the next episode."""
        player.sights()  # checks the features
        self.n_episodes += 1
        self._n_steps += player.n_steps
        # 0 a step after an early end is -reward_min a step in shifted units, as for the steps taken.
        self._returns.append(sum(player.rewards) + self._shift)
        self._starts.append(player.looks[0].phi())

    def answer(self) -> Returns:
        """What they came to."""
        returns, policy = np.array(self._returns), self.request.policy
        promised = None
        if isinstance(policy, LinearQ):
            vectors = np.concatenate([phi.vectors for phi in self._starts])
            promised = float(policy.value(0, Phi(vectors, np.concatenate([phi.blocks for phi in self._starts]))).sum())
        return Returns(self.n_episodes, float(returns.sum()), float(returns @ returns), promised, self._n_steps)
