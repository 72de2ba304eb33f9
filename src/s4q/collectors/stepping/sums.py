"""Tally: episodes in, an answer out. The one place where stepped episodes become sums, whoever stepped them.

A single env, a vector env and a live stream hand the same episodes in the same order to the same lines, so their
answers have the same bits.
"""

from typing import Any, NamedTuple, final

import numpy as np

from s4q.collectors.stepping.one_episode import Player
from s4q.collectors.stepping.step_features import Look, Sights
from s4q.core.blocks import Array, IntArray, Phi
from s4q.core.least_squares import gram_of
from s4q.core.linear_q import LinearQ
from s4q.core.messages import Explore, Policy, Regress, Regression, Shard, Spec, Transitions, Visits


@final
class Tally:
    """The episodes of one shard, added in their order until the shard is full or an Explore has crossed.

    reset_early: may a regression episode be left after the level it is fitted to?
    """

    def __init__(self, request: Regress | Explore, shard: Shard, start: Array | None, spec: Spec, reset_early: bool):
        if not isinstance(request, Regress | Explore):
            raise ValueError(f"request must be a Regress, an Explore or an Evaluate; got {type(request).__name__}")
        self.request = request
        self.shard = shard
        self.n_episodes = 0
        self._spec = spec
        self._rows = _Rows(spec)
        self._n_steps = 0
        self._crossed = False
        if isinstance(request, Regress):
            self._sampled = range(spec.horizon) if request.pool else range(request.level, request.level + 1)
            self.last = self._sampled.stop if reset_early else spec.horizon
            self._per_policy: IntArray = np.zeros(len(request.mixture.policies), dtype=np.int64)
        else:
            self.last = spec.horizon
            self._start = request.start() if start is None else start
            self._progress = np.zeros_like(self._start)
            self._n_kept = request.done + request.keep - shard.index
            self._visited: list[tuple[Array, IntArray]] = []  # chosen vectors (T, k) and blocks (T,) of each episode
            self._first_looks: list[Look] = []
            self._returns: list[float] = []

    @property
    def complete(self) -> bool:
        """No more episodes wanted?"""
        return self._crossed or self.n_episodes == self.shard.n_episodes

    @property
    def policies(self) -> tuple[list[Policy], list[float]]:
        """What an episode may play, and with which chance."""
        if isinstance(self.request, Explore):
            return [self.request.policy], [1.0]
        return list(self.request.mixture.policies), self.request.mixture.weights.tolist()

    def looks_after(self, number: int) -> bool:
        """Are the features after the last step of this episode (counted within the shard) needed?"""
        if isinstance(self.request, Explore):
            return number < self._n_kept
        return self.request.pool or self.last == self.request.level + 1 < self._spec.horizon

    def add(self, player: Player) -> None:
        """Take the next episode."""
        sights = player.sights()
        self.n_episodes += 1
        self._n_steps += player.n_steps
        if isinstance(self.request, Regress):
            self._per_policy[player.which] += 1
            self._rows.add(player, sights, self._sampled)
        else:
            self._visit(self.request, player, sights)

    def answer(self) -> Any:
        """Regression or Visits."""
        request = self.request
        if isinstance(request, Regress):
            moments = self._rows.transitions().moments(self._spec, request.level, request.target)
            return Regression(moments, self._per_policy, self._n_steps)
        returns = np.array(self._returns)
        return Visits(
            grams=self._grams().sum(axis=0, keepdims=True) if request.pool else self._grams(),
            progress=self._progress,
            n_episodes=self.n_episodes,
            return_sum=float(returns.sum()),
            return_sum_sq=float(returns @ returns),
            start_value_sum=self._start_values(request.policy),
            n_steps=self._n_steps,
            kept=self._rows.transitions() if self._n_kept > 0 else None,
        )

    def _visit(self, request: Explore, player: Player, sights: Sights) -> None:
        if self.n_episodes <= self._n_kept:
            self._rows.add(player, sights, range(player.n_steps))
        chosen, blocks = sights.chosen(slice(player.n_steps), player.actions)
        norms = _norms_along(request.whitener, chosen, blocks)
        if request.pool:
            self._progress[0] += norms.sum()
        else:
            self._progress[: len(norms)] += norms
        self._visited.append((chosen, blocks))
        self._first_looks.append(player.looks[0])
        # 0 a step after an early end is -reward_min a step in shifted units, as for the steps taken.
        self._returns.append(sum(player.rewards) - self._spec.horizon * self._spec.reward_min)
        self._crossed = request.crossed(self._start + self._progress, self.shard.index + self.n_episodes)

    def _grams(self) -> Array:
        """sum of phi phi^T at each level, (H, n_blocks, k, k)."""
        spec = self._spec
        grams = np.zeros((spec.horizon, *spec.gram_shape))
        levels = np.concatenate([np.arange(len(blocks)) for _, blocks in self._visited])
        order = np.argsort(levels, kind="stable")
        vectors = np.concatenate([vectors for vectors, _ in self._visited])[order]
        blocks = np.concatenate([blocks for _, blocks in self._visited])[order]
        if spec.block_dim == 1:
            cells = gram_of(vectors, levels[order] * spec.n_blocks + blocks, spec.horizon * spec.n_blocks)
            return cells.reshape(grams.shape)
        ends = np.cumsum(np.bincount(levels))
        for h, (first, end) in enumerate(zip([0, *ends], ends, strict=False)):
            grams[h] = gram_of(vectors[first:end], blocks[first:end], spec.n_blocks)
        return grams

    def _start_values(self, policy: Policy) -> float | None:
        if not isinstance(policy, LinearQ):
            return None
        phis = [look.phi() for look in self._first_looks]
        phi = Phi(np.concatenate([p.vectors for p in phis]), np.concatenate([p.blocks for p in phis]))
        return float(policy.value(0, phi).sum())


class _Stretch(NamedTuple):
    """Steps first..stop-1 of one episode, and their sights with the one after the last, where there is one."""

    first: int
    sights: Sights
    actions: list[int]
    rewards: list[float]
    ended: bool  # with the last of them


@final
class _Rows:
    """Steps on their way to Transitions."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._stretches: list[_Stretch] = []

    def add(self, player: Player, sights: Sights, levels: range) -> None:
        """The steps of an episode at these levels, as far as it came."""
        first, stop = levels.start, min(levels.stop, player.n_steps)
        if first >= stop:
            return
        if first > 0 or stop + 1 < len(sights.blocks):  # a copy, to let go of the others
            sights = Sights(sights.vectors[first : stop + 1].copy(), sights.blocks[first : stop + 1].copy())
        ended = player.ended and stop == player.n_steps
        self._stretches.append(_Stretch(first, sights, player.actions[first:stop], player.rewards[first:stop], ended))

    def transitions(self) -> Transitions:
        """The steps added, in their order."""
        spec, n = self._spec, sum(len(stretch.actions) for stretch in self._stretches)
        levels, rewards, ended = np.empty(n, dtype=np.int64), np.empty(n), np.zeros(n, dtype=np.bool_)
        vectors, blocks = np.empty((n, spec.block_dim)), np.empty(n, dtype=np.int64)
        next_vectors = np.zeros((n, spec.n_actions, spec.block_dim))
        next_blocks = np.zeros((n, spec.n_actions), dtype=np.int64)
        end = 0
        for first, sights, actions, paid, last in self._stretches:
            begin, end = end, end + len(actions)
            levels[begin:end] = range(first, first + len(actions))
            vectors[begin:end], blocks[begin:end] = sights.chosen(slice(len(actions)), actions)
            rewards[begin:end] = paid
            after = begin + len(sights.blocks) - 1  # no sight after the last step: it stays 0
            next_vectors[begin:after], next_blocks[begin:after] = sights.vectors[1:], sights.blocks[1:]
            ended[end - 1] = last
        rewards -= spec.reward_min
        return Transitions(levels, vectors, blocks, rewards, next_vectors, next_blocks, ended, np.ones(n, np.int64))


def _norms_along(whitener: Array, chosen: Array, blocks: IntArray) -> Array:
    """|phi_h|^2 in the metric of each level of one episode, (T,). whitener (H, n_blocks, k, k), chosen (T, k)."""
    n = len(blocks)
    if chosen.shape[1] == 1:
        levels = np.arange(n) if len(whitener) > 1 else 0
        return np.asarray((chosen[:, 0] * whitener[levels, blocks, 0, 0]) ** 2)
    norms = np.empty(n)
    if len(whitener) == 1:  # one for all levels: a product for each block
        for block in set(blocks.tolist()):
            rows = np.flatnonzero(blocks == block)
            white = chosen[rows] @ whitener[0, block].T
            norms[rows] = np.vecdot(white, white)
        return norms
    for first in range(0, n, 64):  # a few levels at a time: the matrices of all would be a copy of the whitener
        part = slice(first, min(first + 64, n))
        matrices = whitener[np.arange(part.start, part.stop), blocks[part]]
        white = np.matmul(matrices, chosen[part, :, None])[:, :, 0]
        norms[part] = np.vecdot(white, white)
    return norms
