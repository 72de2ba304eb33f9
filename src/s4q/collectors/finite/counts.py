"""CountCollector: a FiniteMDP answered by drawing counts instead of playing episodes, at a cost of order log n.

Episodes of one policy are exchangeable and their steps Markov, so the number that goes through each (level, state,
action, next state, reward) is a chain of multinomials. Sums over episodes are sums over counts. The law of every
answer is that of playing, which `EpisodeCollector` does and tests compare with.
"""

from collections.abc import Iterator
from math import ceil, inf
from typing import final

import numpy as np

from s4q.collectors.draws import Outcomes
from s4q.collectors.finite.state_counts import CountModel, EpisodeCounts
from s4q.collectors.sharding import ShardedCollector, generator
from s4q.core.blocks import Array, IntArray
from s4q.core.identity_cache import IdentityCache
from s4q.core.least_squares import gram_of
from s4q.core.linear_q import LinearQ
from s4q.core.messages import (
    MOST_STEPS,
    Evaluate,
    Explore,
    Mixture,
    Policy,
    Regress,
    Regression,
    Request,
    Returns,
    Shard,
    Visits,
)
from s4q.core.validation import drawn_seed, require_kind
from s4q.problems import FiniteMDP


@final
class CountCollector(ShardedCollector):
    """Answers requests about a FiniteMDP by drawing counts: exact in law, at a cost of order log n at most.

    Args:
        mdp: The problem.
        seed: The same seed gives the same answers. 0 by default; None draws one and keeps it in `seed`.

    >>> from s4q import problems
    >>> from s4q.core.messages import UniformPolicy
    >>> mdp = problems.chain()
    >>> request = Regress(0, 9, Mixture([UniformPolicy(2)], [1.0]), None, n_episodes=10**15)
    >>> CountCollector(mdp, seed=0).collect(request).moments.n
    1000000000000000
    """

    worth_workers = False  # its cost hardly depends on the number of episodes

    def __init__(self, mdp: FiniteMDP, seed: int | None = 0) -> None:
        require_kind("mdp", mdp, FiniteMDP)
        self.mdp, self.spec, self.seed = mdp, mdp.spec, drawn_seed(seed)
        self._model = CountModel(mdp)
        self._norms: IdentityCache[Array, Array] = IdentityCache(mdp.features.norms_sq, size=2)

    def shards(self, request: Request) -> Iterator[Shard]:
        """One shard; for Explore what cannot cross yet, then doubling chunks, the kept episodes apart."""
        if isinstance(request, Regress | Evaluate):
            yield Shard(request.done, request.n_episodes)
            return
        self._check(request)
        n, end = request.done, request.done + request.n_episodes
        kept = request.done + request.keep
        # Sizes depend on n alone, so that a request asked again from n on is cut in the same places.
        size = n or max(self._surely_below(request), min(request.at_least - 1, request.n_episodes))
        while n < end:
            size = min(max(size, 1), (kept if n < kept else end) - n)
            yield Shard(n, size)
            n += size
            size = n

    def _generator(self, request: Request, shard: Shard) -> np.random.Generator:
        """Of the shard, whose episodes must be few enough to be counted."""
        most = MOST_STEPS // self.mdp.horizon
        if shard.n_episodes > most:
            raise ValueError(
                f"episodes are counted in 64 bits: at most {most:.2e} of {self.mdp.horizon} steps in one request; "
                f"got {shard.n_episodes:.2e}"
            )
        return generator(self.seed, request, shard)

    def _regress(self, request: Regress, shard: Shard) -> Regression:
        rng = self._generator(request, shard)
        mixture = request.mixture
        weights = Outcomes.of(mixture.weights[None])
        per_policy = np.zeros(len(mixture.policies), dtype=np.int64)
        per_policy[weights.index[0]] = weights.draw(rng, np.zeros(1, dtype=np.int64), np.array([shard.n_episodes]))[0]
        tables, n = self._distinct(mixture, per_policy)
        sampled = range(self.mdp.horizon) if request.pool else range(request.level, request.level + 1)
        outcomes, n_steps = self._outcomes(rng, tables, n, sampled)
        steps = self._model.transitions(sampled.start, outcomes)
        moments = steps.moments(self.mdp.spec, request.level, request.target)
        return Regression(moments, per_policy, n_steps)

    def _distinct(self, mixture: Mixture, per_policy: IntArray) -> tuple[Array, IntArray]:
        """The different tables (J, H, S, A) among the policies drawn, and the episodes (J,) of each.

        Policies that act alike everywhere have the same law, so their episodes can be drawn together.
        """
        groups: dict[bytes, int] = {}
        tables: list[Array] = []
        n: list[int] = []
        for policy, count in zip(mixture.policies, per_policy.tolist(), strict=True):
            if count:
                table = self.mdp.policy_table(policy)
                group = groups.setdefault(table.tobytes(), len(tables))
                if group == len(tables):
                    tables.append(table)
                    n.append(0)
                n[group] += count
        return np.stack(tables), np.array(n)

    def _outcomes(
        self, rng: np.random.Generator, tables: Array, n: IntArray, sampled: range
    ) -> tuple[list[IntArray], int]:
        """Outcome counts (S * A, O) at the sampled levels, over policies (J, H, S, A) with n (J,) episodes; and steps.

        Where a level is sampled, the very outcomes that are counted lead on to the next level.
        """
        model, (n_policies, _, n_states, n_actions) = self._model, tables.shape
        counted: list[IntArray] = []
        n_steps = 0
        arriving = model.starts(rng, n)
        for h in range(sampled.stop):
            acts = Outcomes.of(tables[:, h].reshape(-1, n_actions))
            here = np.flatnonzero(arriving)
            counts = acts.draw(rng, here, arriving.ravel()[here])
            row, column = np.nonzero(counts)
            pairs = (here[row] % n_states) * n_actions + acts.index[here[row], column]
            n_steps += int(counts.sum())
            law = model.outcomes if h in sampled else model.moves
            drawn = law.draw(rng, model.row(h, pairs), counts[row, column])
            if h in sampled:
                counted.append(np.zeros((model.n_pairs, model.n_outcomes), dtype=np.int64))
                np.add.at(counted[-1], pairs, drawn)
            arriving = np.zeros((n_policies, n_states), dtype=np.int64)
            arrived = law.index[model.row(h, pairs)] % n_states
            np.add.at(arriving, ((here[row] // n_states)[:, None], arrived), drawn)
            arriving[:, self.mdp.terminal] = 0
        return counted, n_steps

    def _explore(self, request: Explore, shard: Shard, start: Array) -> Visits:
        rng, model = self._generator(request, shard), self._model
        norms = self._norms(request.whitener)
        drawn = model.draw(rng, self.mdp.policy_table(request.policy), shard.n_episodes)
        done = self._until_crossing(rng, request, drawn, norms, start, shard.index)
        grams = [
            gram_of(vectors.reshape(model.n_pairs, -1), blocks.ravel(), self.mdp.spec.n_blocks, taken.ravel())
            for vectors, blocks, taken in zip(
                self.mdp.features.vectors, self.mdp.features.blocks, done.taken, strict=True
            )
        ]
        keeps = shard.index < request.done + request.keep
        return Visits(
            grams=np.stack(grams).sum(axis=0, keepdims=True) if request.pool else np.stack(grams),
            progress=_progress(done, norms, request.pool),
            n_episodes=done.n_episodes,
            return_sum=model.return_sum(done),
            return_sum_sq=None,  # counts do not know which steps belong to one episode
            start_value_sum=self._start_values(request.policy, done),
            n_steps=int(done.taken.sum()),
            kept=model.transitions(0, list(done.outcomes)) if keeps else None,
        )

    def _evaluate(self, request: Evaluate, shard: Shard) -> Returns:
        rng, model = self._generator(request, shard), self._model
        drawn = model.draw(rng, self.mdp.policy_table(request.policy), shard.n_episodes)
        return Returns(
            n_episodes=drawn.n_episodes,
            return_sum=model.return_sum(drawn),
            return_sum_sq=None,  # counts do not know which steps belong to one episode
            start_value_sum=self._start_values(request.policy, drawn),
            n_steps=int(drawn.taken.sum()),
        )

    def _until_crossing(
        self, rng: np.random.Generator, request: Explore, drawn: EpisodeCounts, norms: Array, start: Array, n: int
    ) -> EpisodeCounts:
        """The drawn episodes up to and including the first crossing one; all of them if none crosses.

        A piece that stays below the threshold as a whole is taken whole. Any other is cut in two. n episodes came
        before, with progress `start`.
        """
        taken = drawn - drawn
        stack = [drawn]
        while stack:
            piece = stack.pop()
            progress = start + _progress(taken + piece, norms, request.pool)
            before = n + taken.n_episodes
            if piece.n_episodes == 1 or not request.may_cross(progress, before + 1, before + piece.n_episodes):
                taken = taken + piece
                if request.crossed(progress, n + taken.n_episodes):
                    return taken
            else:
                first, rest = self._model.split(rng, piece, piece.n_episodes // 2)
                stack += [rest, first]
        return taken

    def _surely_below(self, request: Explore) -> int:
        """Episodes that cannot reach the threshold even if each took the longest features of every level."""
        longest = self._norms(request.whitener).max(axis=(1, 2))
        fastest = longest.sum(keepdims=True) if request.pool else longest
        room = request.threshold_at(1)
        with np.errstate(divide="ignore", invalid="ignore"):
            episodes = np.where(fastest > 0, room / fastest, inf).min()
        return request.n_episodes if episodes >= request.n_episodes else max(0, ceil(episodes) - 1)

    def _start_values(self, policy: Policy, drawn: EpisodeCounts) -> float | None:
        if not isinstance(policy, LinearQ):
            return None
        return float(drawn.starts @ policy.value(0, self.mdp.features.level(0)))


def _progress(drawn: EpisodeCounts, norms: Array, pool: bool) -> Array:
    """Sums of |phi|^2 over the drawn episodes: (H,), or (1,) with pool."""
    sums = (drawn.taken * norms).sum(axis=(1, 2))
    return np.asarray(sums.sum(keepdims=True) if pool else sums)
