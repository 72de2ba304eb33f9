"""EpisodeCollector: a FiniteMDP played one episode at a time, the plain reference for all other collectors.

Tests and users who doubt a faster collector make it; `run` calls it. It looks every draw up in a cumulative table and
leaves shards and sums to SteppingCollector. The draws of an episode must depend on nothing but the seed, the request
and the number of the episode.
"""

from bisect import bisect_right
from typing import Any, final

import numpy as np

from s4q.collectors.draws import cumulative
from s4q.collectors.seeding import episode_numbers
from s4q.collectors.sharding import address
from s4q.collectors.stepping.episode import Episode
from s4q.collectors.stepping.stepping_collector import SteppingCollector
from s4q.collectors.stepping.sums import EpisodeSums
from s4q.core.blocks import Array
from s4q.core.identity_cache import IdentityCache
from s4q.core.messages import Policy
from s4q.core.validation import require_kind
from s4q.problems import FiniteMDP

_AT_ONCE = 64  # episodes that are drawn together; the numbers of an episode do not depend on it


@final
class EpisodeCollector(SteppingCollector):
    """Answers requests about a FiniteMDP by playing it, one episode after the other.

    Args:
        mdp: The problem. Its exact values make regret exact.
        seed: Seed of all random numbers. 0 by default; None draws one and keeps it in `seed`.

    >>> import s4q
    >>> from s4q.core.messages import Mixture, Regress, UniformPolicy
    >>> mdp = s4q.problems.chain()
    >>> request = Regress(0, 9, Mixture([UniformPolicy(2)], [1.0]), None, n_episodes=5)
    >>> EpisodeCollector(mdp, seed=0).collect(request).moments.n
    5
    """

    def __init__(self, mdp: FiniteMDP, seed: int | None = 0) -> None:
        require_kind("mdp", mdp, FiniteMDP)
        super().__init__(mdp.spec, seed, at_once=_AT_ONCE)
        self.mdp = mdp
        self._start: list[float] = cumulative(mdp.start).tolist()
        self._terminal: list[bool] = mdp.terminal.tolist()
        self._pairs: dict[tuple[int, int, int], tuple[list[float], list[float]]] = {}  # filled as pairs are visited
        self._actions: IdentityCache[Policy, Array] = IdentityCache(self._action_table, size=256)

    def _play(self, sums: EpisodeSums[Any], episodes: range) -> list[Episode]:
        """An episode has a number for its policy, one for its start, and three a level: action, reward, next state."""
        horizon, features = self.mdp.horizon, self.mdp.features
        numbers = episode_numbers(self.seed, address(sums.request), episodes, 2 + 3 * horizon).tolist()
        played = [self._episode(sums, row) for row in numbers]
        levels: list[int] = []
        states: list[int] = []
        ends = [0]
        for episode, (visited, actions, *_) in zip(episodes, played, strict=True):
            n = len(actions) + (episode < sums.next_needed_before)
            levels += range(n)
            states += visited[:n]
            ends.append(len(levels))
        at = (np.minimum(levels, horizon - 1), states)
        vectors, blocks = features.vectors[at], features.blocks[at]
        return [
            Episode(0, vectors[begin:end], blocks[begin:end], actions, rewards, ended, which)
            for begin, end, (_, actions, rewards, ended, which) in zip(ends, ends[1:], played, strict=False)
        ]

    def _episode(
        self, sums: EpisodeSums[Any], numbers: list[float]
    ) -> tuple[list[int], list[int], list[float], bool, int]:
        """States, actions and rewards of one episode, whether it ended, and the number of its policy."""
        low, high, noisy = self.spec.reward_min, self.spec.reward_max, self.mdp.reward_noise == "bernoulli"
        which = bisect_right(sums.cumulative_weights, numbers[0])
        table = self._actions(sums.policies[which])
        state, ended = bisect_right(self._start, numbers[1]), False
        states, actions, rewards = [state], [], []
        for h in range(sums.last):
            # A row at a time: a learner with a new policy for every episode needs few of them.
            action = bisect_right(table[h, state].tolist(), numbers[2 + 3 * h])
            arrivals, means = self._pairs.get((h, state, action)) or self._pair(h, state, action)
            state = bisect_right(arrivals, numbers[4 + 3 * h])
            reward = means[state]
            if noisy:
                reward = high if numbers[3 + 3 * h] * (high - low) < reward - low else low
            actions.append(action)
            rewards.append(reward)
            states.append(state)
            if self._terminal[state]:
                ended = True
                break
        return states, actions, rewards, ended, which

    def _pair(self, h: int, state: int, action: int) -> tuple[list[float], list[float]]:
        """Cumulative probabilities of the next state, and the mean reward of arriving in each."""
        mdp, pair = self.mdp, (h, state, action)
        means = np.broadcast_to(mdp.rewards[pair], mdp.n_states)
        if mdp.arrival_rewards is not None:
            means = mdp.arrival_rewards[pair]
        self._pairs[pair] = (cumulative(mdp.transitions[pair]).tolist(), means.tolist())
        return self._pairs[pair]

    def _action_table(self, policy: Policy) -> Array:
        """Cumulative probabilities of the actions at every level and state, (H, S, A)."""
        return cumulative(self.mdp.policy_table(policy))
