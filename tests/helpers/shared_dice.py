"""A collector that answers the library with the very episodes that the oracle of S4Q plays."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from literal_s3q import Script
from literal_s4q import SharedDice

from s4q.collectors.sharding import ShardedCollector, fixed_shards
from s4q.core.least_squares import Moments
from s4q.core.messages import Explore, Regress, Regression, Request, Shard, Transitions, Visits
from s4q.problems import FiniteMDP


class SharedDiceCollector:
    """Answers requests with the same episodes that the oracle plays."""

    def __init__(self, mdp: FiniteMDP, seed: int, piece: int = 5) -> None:
        self.mdp, self.seed, self.piece = mdp, seed, piece
        self.dice = SharedDice(mdp, seed)

    def shards(self, request: Request) -> Iterator[Shard]:
        return fixed_shards(request, self.piece)

    def collect(self, request: Any) -> Any:
        return ShardedCollector.collect(self, request)  # type: ignore[arg-type]

    def play(self, request: Any, shard: Shard, start: np.ndarray | None = None) -> Any:
        return self._regress(request, shard) if isinstance(request, Regress) else self._explore(request, shard, start)

    def _regress(self, request: Regress, shard: Shard) -> Regression:
        spec = self.mdp.spec
        tables = [self.mdp.policy_table(policy) for policy in request.mixture.policies]
        per_policy = np.zeros(len(tables), dtype=np.int64)
        total = Moments.zeros(spec.n_blocks, spec.block_dim)
        for _ in range(shard.n_episodes):
            which, one = self.dice.play(tables, request.mixture.weights)
            per_policy[which] += 1
            steps = self._steps(one)
            if steps and not request.pool:
                steps = [step for step in steps if step.levels[0] == request.level]
            if steps:
                total = total + Transitions.concatenate(steps).moments(spec, request.level, request.target)
        return Regression(total, per_policy, 0)

    def _explore(self, request: Explore, shard: Shard, start: np.ndarray | None) -> Visits:
        mdp, spec = self.mdp, self.mdp.spec
        assert start is not None
        grams, progress, n = np.zeros((spec.horizon, *spec.gram_shape)), np.zeros(len(start)), 0
        table = mdp.policy_table(request.policy)
        kept: list[Transitions] = []
        returns, promised = np.zeros(0), 0.0
        for _ in range(shard.n_episodes):
            _, one = self.dice.play([table], np.ones(1))
            if shard.index + n < request.done + request.keep:
                kept += self._steps(one)
            n += 1
            returns = np.append(returns, sum(reward - spec.reward_min for reward in one.rewards))
            promised += float(request.policy.value(0, mdp.features(0, np.array(one.states[:1])))[0])
            for h, (s, a) in enumerate(zip(one.states, one.actions, strict=False)):
                x, b = mdp.features.vectors[h, s, a], mdp.features.blocks[h, s, a]
                grams[h, b] += np.outer(x, x)
                progress[0 if request.pool else h] += float(
                    np.sum((request.whitener[0 if request.pool else h, b] @ x) ** 2)
                )
            if request.crossed(start + progress, shard.index + n):
                break
        if request.pool:
            grams = grams.sum(axis=0, keepdims=True)
        sums = float(returns.sum()), float(returns @ returns), promised
        return Visits(grams, progress, n, *sums, 0, Transitions.concatenate(kept) if kept else None)

    def _steps(self, one: Script) -> list[Transitions]:
        """An episode as steps."""
        spec, steps = self.mdp.spec, []
        for h, (s, a) in enumerate(zip(one.states, one.actions, strict=False)):
            here = self.mdp.features(h, np.array([s]))
            after = self.mdp.features(min(h + 1, spec.horizon - 1), np.array([one.states[h + 1]]))
            ended = np.array([one.ended and h + 1 == len(one.actions)])
            reward, once = np.array([one.rewards[h] - spec.reward_min]), np.ones(1, dtype=np.int64)
            table = np.concatenate([here.vectors, after.vectors]), np.concatenate([here.blocks, after.blocks])
            numbers = [np.array([number]) for number in (h, 0, a)]
            steps.append(Transitions(*table, *numbers, reward, np.array([1]), ended, once))
        return steps
