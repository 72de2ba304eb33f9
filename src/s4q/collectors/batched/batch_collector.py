"""BatchCollector: array simulators, all episodes of a shard at once.

A shard is played level by level by `Rollout`, and its sums are a few matrix products. What was played beyond the
first crossing episode of an Explore is left out.
"""

from collections.abc import Iterator
from math import inf
from typing import Any, final

import numpy as np

from s4q.collectors.batched.array_backends import Arrays, NumpyArrays
from s4q.collectors.batched.feature_backends import FeatureBackend, MapBackend, TableBackend
from s4q.collectors.batched.rollout import BatchedEnv, Group, LevelStep, Rollout
from s4q.collectors.sharding import ShardedCollector, address, fixed_shards
from s4q.core.blocks import Array, IntArray
from s4q.core.least_squares import Moments
from s4q.core.linear_q import LinearQ
from s4q.core.messages import (
    ROUNDING,
    Evaluate,
    Explore,
    FeatureMap,
    Regress,
    Regression,
    Request,
    Returns,
    Shard,
    Spec,
    Transitions,
    Visits,
)
from s4q.core.spec import require_spec, require_spec_fits
from s4q.core.transitions import one_where_shared
from s4q.core.validation import drawn_seed, require_count
from s4q.features import TableFeatures
from s4q.problems import FiniteMDP

BATCH_SIZE = 1024  # episodes; part of what a seed means, so changing it changes every result
_FIRST_SHARD = 64  # of an Explore, whose shards double: few episodes are played beyond the crossing
_BUFFER = 2**23  # numbers held for one shard of an Explore at most: 64 MB
_MOST_CELLS = 2**24  # numbers in a table of features at most


@final
class BatchCollector(ShardedCollector):
    """Answers requests with an array simulator: synchronous levels, matrix products, sums.

    Where the simulator has finitely many states (`n_states`), greedy actions are tabulated once per policy and visits
    are counted. A mixture is drawn as one multinomial per shard: the first episodes play the first policy, and so on,
    which changes no sum's law.

    Args:
        env: A BatchedEnv.
        features: Features of its states.
        spec: The problem: horizon, sizes and the declared reward range.
        seed: The same seed gives the same answers. 0 by default; None draws one and keeps it in `seed`.
        batch_size: Episodes played side by side.
        arrays: The array module; None (default) means numpy.

    >>> from s4q import problems
    >>> from s4q.collectors import FiniteBatch
    >>> from s4q.core.messages import Mixture, UniformPolicy
    >>> mdp = problems.chain()
    >>> collector = BatchCollector(FiniteBatch(mdp), mdp.features, mdp.spec)
    >>> request = Regress(0, 9, Mixture([UniformPolicy(2)], np.ones(1)), None, n_episodes=5)
    >>> collector.collect(request).moments.n
    5
    """

    def __init__(
        self,
        env: BatchedEnv,
        features: FeatureMap,
        spec: Spec,
        seed: int | None = 0,
        *,
        batch_size: int = BATCH_SIZE,
        arrays: Arrays | None = None,
    ) -> None:
        _require_simulator(env)
        require_spec(spec)
        require_spec_fits(features, spec)
        require_count("batch_size", batch_size, "the number of episodes played side by side")
        self.env, self.spec, self.seed = env, spec, drawn_seed(seed)
        self._batch_size = batch_size
        self._arrays = NumpyArrays() if arrays is None else arrays
        self._backend = _backend(env, features, spec, self._arrays)
        self._rollout = Rollout(env, self._backend, spec, self._arrays)

    @property
    def mdp(self) -> FiniteMDP | None:
        """The FiniteMDP behind the simulator, if there is one: regret is then exact."""
        mdp = getattr(self.env, "mdp", None)
        return mdp if isinstance(mdp, FiniteMDP) else None

    def shards(self, request: Request) -> Iterator[Shard]:
        """Batches; for Explore they double from 64 on. A pure function of the request."""
        if isinstance(request, Regress | Evaluate):
            yield from fixed_shards(request, self._batch_size)
            return
        vectors = 2 * self.spec.n_actions if request.keep else 1  # of a step; of all actions before and after it
        most = max(1, min(self._batch_size, _BUFFER // (self.spec.horizon * self.spec.block_dim * vectors)))
        n, end = request.done, request.done + request.n_episodes
        while n < end:
            size = min(most, max(_FIRST_SHARD, n), end - n)
            yield Shard(n, size)
            n += size

    def _seeds(self, request: Request, shard: Shard) -> list[np.random.SeedSequence]:
        """One for the draw of the mixture, one for the simulator."""
        return np.random.SeedSequence(self.seed, spawn_key=(address(request), shard.index)).spawn(2)

    def _regress(self, request: Regress, shard: Shard) -> Regression:
        for_mixture, for_env = self._seeds(request, shard)
        mixture, spec = request.mixture, self.spec
        per_policy = np.random.default_rng(for_mixture).multinomial(shard.n_episodes, mixture.weights)
        ends = np.cumsum(per_policy).tolist()
        groups = [
            Group(policy, end - n, end)
            for policy, n, end in zip(mixture.policies, per_policy.tolist(), ends, strict=True)
            if n
        ]
        last = spec.horizon if request.pool else request.level + 1
        needs_next = request.pool or last < spec.horizon
        moments = Moments.zeros(spec.n_blocks, spec.block_dim)
        n_steps = 0
        first = 0 if request.pool else request.level
        for step in self._rollout.steps(self._arrays.generator(for_env), groups, last, needs_next, first):
            n_steps += step.rows.shape[0]
            if step.h >= first:
                moments = moments + self._backend.moments(step.h, step.sample, self._targets(request, step))
        return Regression(moments, per_policy, n_steps)

    def _targets(self, request: Regress, step: LevelStep) -> Any:
        """y = r + max_a' Qtar(s', a'), (m,)."""
        spec, xp, target = self.spec, self._arrays.xp, request.target
        rewards = step.rewards - spec.reward_min
        if step.after is None or target is None:
            values = xp.zeros_like(step.going, dtype=rewards.dtype)
        else:
            values = self._backend.best(target, step.after, min(step.h + 1, spec.horizon - 1)).values
            if target.clip != (-inf, inf):
                values = xp.clip(values, *target.clip)
        if step.going.shape[0] == step.rows.shape[0]:
            return rewards + values
        spread = xp.full(rewards.shape, spec.ended_value(request.level), dtype=rewards.dtype)
        spread[step.going] = values
        return rewards + spread

    def _explore(self, request: Explore, shard: Shard, start: Array) -> Visits:
        spec, backend, to_numpy, n = self.spec, self._backend, self._arrays.to_numpy, shard.n_episodes
        n_kept = max(0, request.done + request.keep - shard.index)
        rng, groups = self._arrays.generator(self._seeds(request, shard)[1]), [Group(request.policy, 0, n)]
        added, returns = np.zeros((n, spec.horizon)), np.full(n, -spec.horizon * spec.reward_min)
        rows: list[IntArray] = []
        samples: list[Any] = []  # what was visited; all else of a level is let go before the next
        kept: list[Transitions] = []
        promised: Array | None = None
        for step in self._rollout.steps(rng, groups, spec.horizon, needs_next=n_kept > 0):
            here = to_numpy(step.rows)
            known = step.best.norms_sq if step.best is not None and _one_metric(request, step.h) else None
            norms = backend.norms_sq(step.h, request.whitener, step.sample) if known is None else known
            added[here, step.h] = to_numpy(norms)
            returns[here] += to_numpy(step.rewards)
            rows.append(here)
            samples.append(step.sample)
            if n_kept:
                kept.append(self._transitions(step, int(np.searchsorted(here, n_kept))))
            if step.h == 0 and step.best is not None and isinstance(request.policy, LinearQ):
                promised = request.policy.levels[0].clipped(to_numpy(step.best.values))
        progress = np.cumsum(added.sum(axis=1, keepdims=True) if request.pool else added, axis=0)
        cut = _first_crossing(request, shard, start + progress)
        counts = [int(np.searchsorted(here, cut)) for here in rows]
        grams = np.zeros((spec.horizon, *spec.gram_shape))
        for h, (sample, count) in enumerate(zip(samples, counts, strict=True)):
            grams[h] = backend.gram(h, backend.first(sample, count))
        trimmed = [part.rows(slice(count)) for part, count in zip(kept, counts, strict=False)]
        return Visits(
            grams=grams.sum(axis=0, keepdims=True) if request.pool else grams,
            progress=progress[cut - 1],
            n_episodes=cut,
            return_sum=float(returns[:cut].sum()),
            return_sum_sq=float(returns[:cut] @ returns[:cut]),
            start_value_sum=None if promised is None else float(np.sum(promised[:cut])),
            n_steps=sum(counts),
            kept=Transitions.concatenate(trimmed) if trimmed else None,
        )

    def _evaluate(self, request: Evaluate, shard: Shard) -> Returns:
        spec, to_numpy, n = self.spec, self._arrays.to_numpy, shard.n_episodes
        rng, groups = self._arrays.generator(self._seeds(request, shard)[1]), [Group(request.policy, 0, n)]
        # 0 a step after an early end is -reward_min a step in shifted units, as for the steps taken.
        returns = np.full(n, -spec.horizon * spec.reward_min)
        n_steps = 0
        promised: float | None = None
        for step in self._rollout.steps(rng, groups, spec.horizon, needs_next=False, sample_from=spec.horizon):
            returns[to_numpy(step.rows)] += to_numpy(step.rewards)
            n_steps += step.rows.shape[0]
            if step.h == 0 and step.best is not None and isinstance(request.policy, LinearQ):
                promised = float(np.sum(request.policy.levels[0].clipped(to_numpy(step.best.values))))
        return Returns(n, float(returns.sum()), float(returns @ returns), promised, n_steps)

    def _transitions(self, step: LevelStep, n: int) -> Transitions:
        """The first n rows of a step, as features in numpy."""
        spec, to_numpy = self.spec, self._arrays.to_numpy
        here = self._backend.phi(step.h, self._backend.part(step.batch, slice(n)))
        tables, following = [here], np.arange(n)
        going = to_numpy(step.going)
        going = going[: int(np.searchsorted(going, n))]
        if len(going):
            arrived = self._backend.part(step.after, slice(len(going)))
            tables.append(self._backend.phi(min(step.h + 1, spec.horizon - 1), arrived))
            following[going] = n + np.arange(len(going))
        return Transitions(
            state_vectors=np.concatenate([one_where_shared(phi.vectors) for phi in tables]),
            state_blocks=np.concatenate([phi.blocks for phi in tables]),
            levels=np.full(n, step.h),
            states=np.arange(n),
            actions=to_numpy(step.actions)[:n],
            rewards=to_numpy(step.rewards)[:n] - spec.reward_min,
            next_states=following,
            ended=to_numpy(step.ended)[:n],
            weights=np.ones(n, dtype=np.int64),
        )


def _one_metric(request: Explore, h: int) -> bool:
    """True if the bonus at level h measures features as the progress does. Norms need not be computed again then."""
    whitener = request.policy.levels[h].whitener if isinstance(request.policy, LinearQ) else None
    return whitener is not None and np.array_equal(whitener, request.whitener[0 if request.pool else h])


def _first_crossing(request: Explore, shard: Shard, progress: Array) -> int:
    """How many episodes count: up to the first one that crosses. progress (n, H) or (n, 1), after each episode."""
    n = len(progress)
    numbers = shard.index + np.arange(1, n + 1)
    limits = request.threshold[0] + request.threshold[1] * np.log(numbers)
    # `crossed` decides; the vectorised logarithm only says where to look.
    for i in np.flatnonzero(progress.max(axis=1) >= limits * (1 - 1e-12) - 2 * ROUNDING):
        if numbers[i] >= request.at_least and request.crossed(progress[i], int(numbers[i])):
            return int(i) + 1
    return n


def _require_simulator(env: object) -> None:
    for method in ("start", "step"):
        if not callable(getattr(env, method, None)) or isinstance(env, type):
            raise ValueError(f"env must be a BatchedEnv: start(n, rng), step(h, states, actions, rng); got {env!r}")


def _backend(env: BatchedEnv, features: FeatureMap, spec: Spec, arrays: Arrays) -> FeatureBackend:
    n_states = getattr(env, "n_states", None)
    cells = spec.horizon * spec.n_actions * spec.block_dim * (n_states or 0)
    if isinstance(n_states, int) and (isinstance(features, TableFeatures) or cells <= _MOST_CELLS):
        return TableBackend(TableFeatures.tabulated(features, spec.horizon, n_states), arrays)
    return MapBackend(features, spec, arrays)
