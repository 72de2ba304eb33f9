"""Episodes in, an answer out: the one place where stepped episodes become sums, whoever stepped them.

SteppingCollector and Stream hand finished episodes to these sums in the order of their numbers, so the answers of one
environment, of a vector of them and of a live system have the same bits. Nothing here steps or draws.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from math import inf
from typing import Generic, final

import numpy as np

from s4q.collectors.draws import cumulative
from s4q.collectors.stepping.episode import Episode
from s4q.core.blocks import Array, IntArray, Phi
from s4q.core.least_squares import Moments, gram_of
from s4q.core.linear_q import LinearQ
from s4q.core.messages import (
    A,
    Evaluate,
    Explore,
    Policy,
    Regress,
    Regression,
    Request,
    Returns,
    Shard,
    Spec,
    Transitions,
    Visits,
)
from s4q.core.optimism import norms_sq


class EpisodeSums(ABC, Generic[A]):
    """The episodes of one shard, added in the order of their numbers until no more are wanted.

    Args:
        request: The request to answer.
        shard: The episodes of the request that are added up.
        spec: Sizes, horizon and reward range of the problem.
        policies: The policies, one of which is played in each episode.
        last: The number of steps that an episode takes unless the environment ends it.
    """

    def __init__(self, request: Request, shard: Shard, spec: Spec, policies: Sequence[Policy], last: int) -> None:
        self.request = request
        self.shard = shard
        self.policies = policies
        self.cumulative_weights = [1.0]  # of the policies: an episode plays the first whose entry exceeds its number
        self.last = last
        self.next_needed_before: float = 0  # episodes of lower number need the features after their last step
        self.n_episodes = 0
        self.complete = False  # no more episodes are wanted
        self._spec = spec
        self._n_steps = 0

    def add(self, episode: Episode) -> None:
        """Take the next episode."""
        self.n_episodes += 1
        self._n_steps += len(episode.actions)
        self.complete = self.n_episodes == self.shard.n_episodes
        self._take(episode)

    @abstractmethod
    def _take(self, episode: Episode) -> None: ...

    @abstractmethod
    def answer(self) -> A:
        """The sums of the episodes added so far."""


@final
class RegressSums(EpisodeSums[Regression]):
    """Adds up a Regress.

    Args:
        request: The request to answer.
        shard: The episodes of the request that are added up.
        spec: Sizes, horizon and reward range of the problem.
        reset_early: True if an episode may be left after the level that is fitted.
    """

    def __init__(self, request: Regress, shard: Shard, spec: Spec, reset_early: bool) -> None:
        self._sampled = range(spec.horizon) if request.pool else range(request.level, request.level + 1)
        last = self._sampled.stop if reset_early else spec.horizon
        super().__init__(request, shard, spec, request.mixture.policies, last)
        if len(self.policies) > 1:
            self.cumulative_weights = cumulative(request.mixture.weights).tolist()
        self._regress = request
        if request.pool or last == request.level + 1 < spec.horizon:
            self.next_needed_before = inf
        self._per_policy: IntArray = np.zeros(len(self.policies), dtype=np.int64)
        self._samples: list[Episode] = []

    def _take(self, episode: Episode) -> None:
        self._per_policy[episode.which] += 1
        if len(episode.actions) > self._sampled.start:
            self._samples.append(episode.part(self._sampled))

    def answer(self) -> Regression:
        """The moments of the samples."""
        spec, request = self._spec, self._regress
        if self._samples:
            moments = transitions(self._samples, spec).moments(spec, request.level, request.target)
        else:  # every episode ended before this level
            moments = Moments.zeros(spec.n_blocks, spec.block_dim)
        return Regression(moments, self._per_policy, self._n_steps)


@final
class ReturnSums(EpisodeSums[Returns]):
    """Adds up an Evaluate, and the returns of an Explore."""

    def __init__(self, request: Explore | Evaluate, shard: Shard, spec: Spec) -> None:
        super().__init__(request, shard, spec, [request.policy], spec.horizon)
        self._policy = request.policy
        self._returns: list[float] = []
        self._starts: list[tuple[Array, IntArray]] = []

    def _take(self, episode: Episode) -> None:
        if episode.truncated:  # nobody knows what it would have returned, so its start says nothing either
            return
        # 0 a step after an early end is -reward_min a step in shifted units, as for the steps taken.
        self._returns.append(sum(episode.rewards) - self._spec.horizon * self._spec.reward_min)
        self._starts.append((episode.vectors[:1].copy(), episode.blocks[:1].copy()))

    def answer(self) -> Returns:
        """The sums of the returns, and of the policy's own value at the starts."""
        returns, start_value_sum = np.array(self._returns), None
        if isinstance(self._policy, LinearQ) and not self._starts:
            start_value_sum = 0.0
        elif isinstance(self._policy, LinearQ):
            vectors, blocks = (np.concatenate(arrays) for arrays in zip(*self._starts, strict=True))
            if vectors.shape[1] == 1:  # shared by all actions
                vectors = np.repeat(vectors, self._spec.n_actions, axis=1)
            start_value_sum = float(self._policy.levels[0].value(Phi(vectors, blocks)).sum())
        return Returns(
            self.n_episodes,
            float(returns.sum()),
            float(returns @ returns),
            start_value_sum,
            self._n_steps,
            self.n_episodes - len(returns),
        )


@final
class VisitSums(EpisodeSums[Visits]):
    """Adds up an Explore, until it has reached its threshold.

    Args:
        request: The request to answer.
        shard: The episodes of the request that are added up.
        spec: Sizes, horizon and reward range of the problem.
        start: Progress of the request before this shard.
    """

    def __init__(self, request: Explore, shard: Shard, spec: Spec, start: Array) -> None:
        super().__init__(request, shard, spec, [request.policy], spec.horizon)
        self._explore = request
        self.next_needed_before = request.done + request.keep
        self._start = start
        self._progress = np.zeros_like(self._start)
        self._returns = ReturnSums(request, shard, spec)
        self._visited: list[tuple[Array, IntArray]] = []  # vectors (T, k) and blocks (T,) of the actions taken
        self._kept: list[Episode] = []

    def _take(self, episode: Episode) -> None:
        request, number = self._explore, self.shard.index + self.n_episodes
        self._returns.add(episode)
        if number <= self.next_needed_before:
            self._kept.append(episode)
        chosen, blocks = episode.chosen()
        self._visited.append((chosen, blocks))
        added = _norms_sq_along(request.whitener, chosen, blocks)
        if request.pool:
            self._progress[0] += added.sum()
        else:
            self._progress[: len(added)] += added  # [Alg2:AccomulatorIncrement]
        if request.crossed(self._start + self._progress, number):
            self.complete = True

    def answer(self) -> Visits:
        """Gram matrices, progress and returns."""
        returns = self._returns.answer()
        return Visits(
            grams=self._grams(),
            progress=self._progress,
            n_episodes=self.n_episodes,
            return_sum=returns.return_sum,
            return_sum_sq=returns.return_sum_sq,
            start_value_sum=returns.start_value_sum,
            n_steps=self._n_steps,
            kept=transitions(self._kept, self._spec) if self._kept else None,
            n_truncated=returns.n_truncated,
        )

    def _grams(self) -> Array:
        """sum of phi phi^T at each level, (H, n_blocks, k, k), or over all levels, (1, n_blocks, k, k)."""
        request, n_blocks = self._explore, self._spec.n_blocks
        vectors, blocks = (np.concatenate(arrays) for arrays in zip(*self._visited, strict=True))
        if request.pool:
            return gram_of(vectors, blocks, n_blocks)[None]
        grams = np.zeros(request.whitener.shape)
        levels = np.concatenate([np.arange(len(taken)) for _, taken in self._visited])
        order = np.argsort(levels, kind="stable")
        vectors, blocks = vectors[order], blocks[order]
        if vectors.shape[1] == 1:
            cells = gram_of(vectors, levels[order] * n_blocks + blocks, len(grams) * n_blocks)
            return cells.reshape(grams.shape)
        ends = np.cumsum(np.bincount(levels))
        for h, (first, end) in enumerate(zip([0, *ends], ends, strict=False)):
            grams[h] = gram_of(vectors[first:end], blocks[first:end], n_blocks)
        return grams


def transitions(episodes: list[Episode], spec: Spec) -> Transitions:
    """The steps of the episodes, in their order. The rows of an episode follow each other in the table of states."""
    actions = np.array([action for episode in episodes for action in episode.actions], dtype=np.int64)
    n, n_steps = len(actions), np.array([len(episode.actions) for episode in episodes])
    spare = np.array([len(episode.blocks) for episode in episodes]) - n_steps  # 1 where the features after are known
    rows = np.arange(n) + np.repeat(np.cumsum(spare) - spare, n_steps)
    last = np.cumsum(n_steps) - 1
    following, ended = rows + 1, np.zeros(n, dtype=np.bool_)
    following[last[spare == 0]] -= 1  # nothing is known after it: the state itself, whose value nobody asks for
    ended[last] = [episode.ended for episode in episodes]
    return Transitions(
        state_vectors=np.concatenate([e.vectors for e in episodes]),
        state_blocks=np.concatenate([e.blocks for e in episodes]),
        levels=np.concatenate([np.arange(e.first, e.first + len(e.actions)) for e in episodes]),
        states=rows,
        actions=actions,
        rewards=np.array([reward for episode in episodes for reward in episode.rewards]) - spec.reward_min,
        next_states=following,
        ended=ended,
        weights=np.ones(n, dtype=np.int64),
    )


def _norms_sq_along(whitener: Array, chosen: Array, blocks: IntArray) -> Array:
    """|phi_h|^2 in the metric of each level of one episode, (T,).

    Args:
        whitener: One per level, (H, n_blocks, k, k), or one for all levels, (1, n_blocks, k, k).
        chosen: The vectors (T, k) of the actions taken.
        blocks: The blocks (T,) of those vectors.
    """
    if len(whitener) == 1:
        return np.asarray(norms_sq(np, whitener[0], chosen[:, None], blocks[:, None])[:, 0])
    n = len(blocks)
    if chosen.shape[1] == 1:
        return np.asarray((chosen[:, 0] * whitener[np.arange(n), blocks, 0, 0]) ** 2)
    along = np.empty(n)
    for first in range(0, n, 64):  # a few levels at a time: the matrices of all would be a copy of the whitener
        part = slice(first, min(first + 64, n))
        matrices = whitener[np.arange(part.start, part.stop), blocks[part]]
        white = np.matmul(matrices, chosen[part, :, None])[:, :, 0]
        along[part] = np.vecdot(white, white)
    return along
