"""EpisodeCollector: a FiniteMDP played one episode at a time. Slow and plain: the reference for all others."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from s4q.collectors.draws import cumulative
from s4q.collectors.sharding import ShardedCollector, fixed_shards, generator
from s4q.core.blocks import Array, BoolArray, IntArray
from s4q.core.identity_cache import Memo
from s4q.core.least_squares import gram_of
from s4q.core.linear_q import LinearQ
from s4q.core.messages import (
    Evaluate,
    Explore,
    Policy,
    Regress,
    Regression,
    Request,
    Returns,
    Shard,
    Transitions,
    Visits,
)
from s4q.core.validation import require_count
from s4q.problems import FiniteMDP

SHARD_SIZE = 1024  # episodes; part of what a seed means, so changing it changes every result


@final
class EpisodeCollector(ShardedCollector):
    """Answers requests about a FiniteMDP by playing it, one episode after the other.

    >>> from s4q import problems
    >>> from s4q.core.messages import Mixture, UniformPolicy
    >>> mdp = problems.chain()
    >>> request = Regress(0, 9, Mixture([UniformPolicy(2)], [1.0]), None, n_episodes=5)
    >>> EpisodeCollector(mdp, seed=0).collect(request).moments.n
    5
    """

    def __init__(self, mdp: FiniteMDP, seed: int = 0) -> None:
        if not isinstance(mdp, FiniteMDP):
            raise ValueError(f"mdp must be a FiniteMDP; got {type(mdp).__name__}")
        require_count("seed", seed, "an address in SeedSequence", at_least=0)
        self.mdp, self.spec, self.seed = mdp, mdp.spec, seed
        self._start: list[float] = cumulative(mdp.start).tolist()
        self._terminal: list[bool] = mdp.terminal.tolist()
        self._next: dict[tuple[int, int, int], list[float]] = {}  # filled as pairs are visited
        self._actions: Memo[Policy, list[Any]] = Memo(self._action_lists, size=256)

    def shards(self, request: Request) -> Iterator[Shard]:
        """Fixed pieces, a pure function of the request."""
        return fixed_shards(request, SHARD_SIZE)

    def _regress(self, request: Regress, shard: Shard) -> Regression:
        rng = generator(self.seed, request, shard)
        mixture = request.mixture
        which = rng.choice(len(mixture.policies), size=shard.n_episodes, p=mixture.weights)
        # Levels after the fitted one are not needed, so an episode is left there.
        last = self.mdp.horizon if request.pool else request.level + 1
        dice = self._dice(rng, shard)
        played = [self._play(mixture.policies[j], rolls, last) for j, rolls in zip(which.tolist(), dice, strict=True)]
        episodes = self._episodes(played, dice)
        steps = self._transitions(episodes, range(last) if request.pool else (request.level,))
        return Regression(
            moments=steps.moments(self.mdp.spec, request.level, request.target),
            episodes_per_policy=np.bincount(which, minlength=len(mixture.policies)),
            n_steps=episodes.n_steps,
        )

    def _explore(self, request: Explore, shard: Shard, start: Array) -> Visits:
        rng = generator(self.seed, request, shard)
        norms = self.mdp.features.norms_sq(request.whitener)
        progress = np.zeros_like(start)
        dice = self._dice(rng, shard)
        played = []
        for rolls in dice:
            played.append(self._play(request.policy, rolls, self.mdp.horizon))
            for h, (state, action) in enumerate(zip(played[-1].states, played[-1].actions, strict=False)):
                progress[0 if request.pool else h] += norms[h, state, action]  # [Alg2:AccomulatorIncrement]
            if request.crossed(start + progress, shard.index + len(played)):
                break
        episodes = self._episodes(played, dice)
        returns, grams = self._returns(episodes), self._grams(episodes)
        keep = min(len(played), request.done + request.keep - shard.index)
        return Visits(
            grams=grams.sum(axis=0, keepdims=True) if request.pool else grams,
            progress=progress,
            n_episodes=len(played),
            return_sum=float(returns.sum()),
            return_sum_sq=float(returns @ returns),
            start_value_sum=self._start_values(request.policy, episodes),
            n_steps=episodes.n_steps,
            kept=self._transitions(episodes.first(keep), range(self.mdp.horizon)) if keep > 0 else None,
        )

    def _evaluate(self, request: Evaluate, shard: Shard) -> Returns:
        dice = self._dice(generator(self.seed, request, shard), shard)
        played = [self._play(request.policy, rolls, self.mdp.horizon) for rolls in dice]
        episodes = self._episodes(played, dice)
        returns = self._returns(episodes)
        return Returns(
            n_episodes=len(played),
            return_sum=float(returns.sum()),
            return_sum_sq=float(returns @ returns),
            start_value_sum=self._start_values(request.policy, episodes),
            n_steps=episodes.n_steps,
        )

    def _dice(self, rng: np.random.Generator, shard: Shard) -> Array:
        """Uniform numbers of each episode: the start; then action, reward and next state at each level."""
        return rng.random((shard.n_episodes, 1 + 3 * self.mdp.horizon))

    def _play(self, policy: Policy, rolls: Array, last: int) -> "_Episode":
        """One episode, up to `last` steps."""
        table = self._actions(policy)
        numbers = rolls.tolist()
        states, actions = [bisect_right(self._start, numbers[0])], []
        for h in range(last):
            actions.append(bisect_right(table[h][states[h]], numbers[1 + 3 * h]))
            states.append(bisect_right(self._next_list(h, states[h], actions[h]), numbers[3 + 3 * h]))
            if self._terminal[states[-1]]:
                break
        return _Episode(states, actions)

    def _next_list(self, h: int, state: int, action: int) -> list[float]:
        """Cumulative probabilities of the next state."""
        pair = (h, state, action)
        if pair not in self._next:
            self._next[pair] = cumulative(self.mdp.transitions[pair]).tolist()
        return self._next[pair]

    def _action_lists(self, policy: Policy) -> list[Any]:
        """Cumulative probabilities of the actions at every level and state."""
        return list(cumulative(self.mdp.policy_table(policy)).tolist())

    def _episodes(self, played: list["_Episode"], dice: Array) -> "_Episodes":
        """Lists to arrays; rewards are drawn here, since no later step depends on them."""
        mdp, spec, n = self.mdp, self.mdp.spec, len(played)
        states = np.zeros((n, mdp.horizon + 1), dtype=np.int64)
        actions = np.zeros((n, mdp.horizon), dtype=np.int64)
        for i, one in enumerate(played):
            states[i, : len(one.states)] = one.states
            actions[i, : len(one.actions)] = one.actions
        levels = np.arange(mdp.horizon)
        if mdp.arrival_rewards is None:
            rewards = mdp.rewards[levels, states[:, :-1], actions] - spec.reward_min
        else:
            rewards = mdp.arrival_rewards[levels, states[:, :-1], actions, states[:, 1:]] - spec.reward_min
        if mdp.reward_noise == "bernoulli":
            spread = spec.reward_max - spec.reward_min
            rewards = np.where(dice[:n, 2::3] * spread < rewards, spread, 0.0)
        lengths = np.array([len(one.actions) for one in played])
        return _Episodes(states, actions, rewards, lengths, mdp.terminal[states[np.arange(n), lengths]])

    def _transitions(self, episodes: "_Episodes", levels: Iterable[int]) -> Transitions:
        """The steps taken at these levels, as features."""
        mdp, pieces = self.mdp, []
        for h in levels:
            rows = np.flatnonzero(episodes.lengths > h)
            vectors, blocks = mdp.features(h, episodes.states[rows, h]).chosen(episodes.actions[rows, h])
            after = mdp.features(min(h + 1, mdp.horizon - 1), episodes.states[rows, h + 1])
            ended = episodes.ended[rows] & (episodes.lengths[rows] == h + 1)
            level, once = np.full(len(rows), h), np.ones(len(rows), dtype=np.int64)
            rewards = episodes.rewards[rows, h]
            pieces.append(
                Transitions(level, vectors, blocks, rewards, after.vectors, after.blocks, ended, weights=once)
            )
        return Transitions.concatenate(pieces)

    def _grams(self, episodes: "_Episodes") -> Array:
        """sum of phi phi^T at each level, (H, n_blocks, k, k)."""
        mdp, grams = self.mdp, []
        for h in range(mdp.horizon):
            rows = np.flatnonzero(episodes.lengths > h)
            vectors, blocks = mdp.features(h, episodes.states[rows, h]).chosen(episodes.actions[rows, h])
            grams.append(gram_of(vectors, blocks, mdp.spec.n_blocks))
        return np.stack(grams)

    def _returns(self, episodes: "_Episodes") -> Array:
        """Shifted returns, (n,): 0 a step after the end is -reward_min a step in shifted units."""
        horizon = self.mdp.horizon
        taken = np.arange(horizon) < episodes.lengths[:, None]
        after = (horizon - episodes.lengths) * -self.mdp.spec.reward_min
        return np.asarray((episodes.rewards * taken).sum(axis=1) + after)

    def _start_values(self, policy: Policy, episodes: "_Episodes") -> float | None:
        if not isinstance(policy, LinearQ):
            return None
        return float(policy.value(0, self.mdp.features(0, episodes.states[:, 0])).sum())


@final
@dataclass(frozen=True, slots=True)
class _Episode:
    states: list[int]  # one more than actions
    actions: list[int]


@final
@dataclass(frozen=True, eq=False, slots=True)
class _Episodes:
    """Episodes of one shard; cells after the last step mean nothing."""

    states: IntArray  # (n, H + 1)
    actions: IntArray  # (n, H)
    rewards: Array  # (n, H), shifted to start at 0
    lengths: IntArray  # (n,): steps taken
    ended: BoolArray  # (n,): the last step entered a terminal state

    @property
    def n_steps(self) -> int:
        return int(self.lengths.sum())

    def first(self, n: int) -> "_Episodes":
        return _Episodes(self.states[:n], self.actions[:n], self.rewards[:n], self.lengths[:n], self.ended[:n])
