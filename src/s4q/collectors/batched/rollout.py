"""The batch engine: all episodes of a shard, level by level, so that the work is a few large matrix products.

BatchCollector calls it and adds up what it yields. It draws actions and checks rewards; it knows no request.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol, final

import numpy as np

from s4q.collectors.batched.array_backends import Arrays
from s4q.collectors.batched.feature_backends import Best, FeatureBackend
from s4q.collectors.draws import cumulative
from s4q.core.linear_q import LinearQ
from s4q.core.messages import Spec
from s4q.core.policies import Policy
from s4q.core.validation import require_probabilities, require_shape


class BatchedEnv(Protocol):
    """A simulator of many episodes at once, without memory: states go in and come out.

    `rng` is the collector's; all chance must come from it. Rewards are in the user's units. Rows that `ended` are
    over for good. A simulator whose states are whole numbers 0..S-1 may say so with `n_states = S`.
    """

    def start(self, n: int, rng: Any) -> Any:
        """n start states; the first axis is the batch."""
        ...

    def step(self, h: int, states: Any, actions: Any, rng: Any) -> tuple[Any, Any, Any]:
        """Rewards (n,), next states, and ended (n,)."""
        ...


@final
@dataclass(frozen=True, eq=False, slots=True)
class Group:
    """Episodes first..end-1 of a shard, which play one policy."""

    policy: Policy
    first: int
    end: int


@final
@dataclass(frozen=True, eq=False, slots=True)
class LevelStep:
    """One step of all episodes that are still going."""

    h: int
    rows: Any  # (m,): which episodes, ascending
    batch: Any  # the states they are in, as a batch of the back end
    actions: Any  # (m,)
    sample: Any  # features of the actions taken, as the backend has them; None before the first level asked for
    best: Best | None  # what a LinearQ chose, and why; None for any other policy
    rewards: Any  # (m,), the user's units
    ended: Any  # (m,)
    going: Any  # which of the m go on
    after: Any | None  # the states those arrived in, as a batch of the back end


@final
class Rollout:
    """Plays batches of episodes of one simulator."""

    def __init__(self, env: BatchedEnv, backend: FeatureBackend, spec: Spec, arrays: Arrays) -> None:
        self._env, self._backend, self._spec, self._arrays = env, backend, spec, arrays
        self._slack = spec.reward_slack

    def steps(
        self, rng: Any, groups: list[Group], last: int, needs_next: bool, sample_from: int = 0
    ) -> Iterator[LevelStep]:
        """Up to `last` steps of each episode, all episodes side by side.

        Args:
            rng: Generator of the engine's module.
            groups: Which episodes play which policy.
            last: Number of steps after which an episode is left.
            needs_next: True if the states after the last step are needed too.
            sample_from: The first level whose sample is wanted.
        """
        xp, backend = self._arrays.xp, self._backend
        n = groups[-1].end
        rows, states = xp.arange(n), self._env.start(n, rng)
        batch = backend.batch(0, states)
        for h in range(last):
            actions, best = self._act(h, rng, groups, rows, batch, states)
            rewards, states, ended = self._env.step(h, states, actions, rng)
            rewards = self._checked(h, rows, rewards)
            sample = backend.sample(batch, actions) if h >= sample_from else None
            going = xp.nonzero(~ended)[0]
            if going.shape[0] < rows.shape[0]:
                states = xp.take(states, going, axis=0)
            seen = going.shape[0] > 0 and (h + 1 < last or needs_next)
            # Pooled steps are samples for every level, so the last one has an "after" too.
            after = backend.batch(min(h + 1, self._spec.horizon - 1), states) if seen else None
            yield LevelStep(h, rows, batch, actions, sample, best, rewards, ended, going, after)
            batch = after
            if going.shape[0] == 0:
                return
            if going.shape[0] < rows.shape[0]:
                rows = xp.take(rows, going, axis=0)

    def _act(
        self, h: int, rng: Any, groups: list[Group], rows: Any, batch: Any, states: Any
    ) -> tuple[Any, Best | None]:
        """Actions (m,), and of a single LinearQ all it knows of them; each group asks its own policy."""
        xp, backend = self._arrays.xp, self._backend
        m = rows.shape[0]
        if len(groups) == 1:
            edges = [0, m]
        else:
            ends = xp.searchsorted(rows, self._arrays.from_numpy(np.array([group.end for group in groups])))
            edges = [0, *ends.tolist()]
        actions: list[Any] = []
        best: Best | None = None
        for group, first, end in zip(groups, edges, edges[1:], strict=False):
            if first == end:
                continue
            part = slice(first, end)
            here = batch if end - first == m else backend.part(batch, part)
            if isinstance(group.policy, LinearQ):
                best = backend.best(group.policy.levels[h], here, seen_at=h)
                actions.append(best.actions)
            else:
                actions.append(self._draw(h, rng, group.policy, here, states[part]))
        return (actions[0], best) if len(actions) == 1 else (xp.concat(actions), None)

    def _draw(self, h: int, rng: Any, policy: Policy, batch: Any, states: Any) -> Any:
        chances = self._backend.probabilities(h, policy, batch, states)
        name = "policy.probabilities(h, states, phi)"
        require_shape(name, chances, (states.shape[0], self._spec.n_actions), "(n, n_actions)")
        require_probabilities(name, chances)
        draws = self._arrays.to_numpy(self._arrays.uniform(rng, len(chances)))
        return self._arrays.from_numpy((cumulative(chances) <= draws[:, None]).sum(axis=1))

    def _checked(self, h: int, rows: Any, rewards: Any) -> Any:
        """Rewards in the declared range; rounding is forgiven."""
        xp, low, high = self._arrays.xp, self._spec.reward_min, self._spec.reward_max
        if rewards.shape != rows.shape:
            raise ValueError(f"{self._name}: rewards must have shape {tuple(rows.shape)}; got {tuple(rewards.shape)}")
        least, most = float(xp.min(rewards)), float(xp.max(rewards))
        if low <= least and most <= high:
            return rewards
        if low - self._slack <= least and most <= high + self._slack:
            return xp.clip(rewards, low, high)
        seen = np.asarray(self._arrays.to_numpy(rewards), dtype=np.float64)
        i = int(np.flatnonzero(~((seen >= low - self._slack) & (seen <= high + self._slack)))[0])
        cure = "declare a reward_range that holds all rewards" if np.isfinite(seen[i]) else "rewards must be finite"
        raise ValueError(
            f"{self._name}: episode {int(rows[i])} of the shard, step {h}: the reward is {seen[i]}, outside of the "
            f"declared range [{low}, {high}]; {cure}"
        )

    @property
    def _name(self) -> str:
        return type(self._env).__name__
