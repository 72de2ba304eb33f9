"""Counts of episodes: how many go through each (level, state, action, outcome), without playing any of them.

CountCollector draws them, and cuts them in two where an Explore has to stop. Nothing here knows a request.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from operator import add, sub
from typing import Any, final

import numpy as np

from s4q.collectors.draws import Outcomes, choose
from s4q.core.blocks import Array, IntArray
from s4q.core.messages import Transitions
from s4q.problems import FiniteMDP


@final
@dataclass(frozen=True, eq=False, slots=True)
class EpisodeCounts:
    """Counts of a number of episodes; `+` and `-` add and take away episodes."""

    n_episodes: int
    starts: IntArray  # (S,)
    taken: IntArray  # (H, S, A)
    outcomes: IntArray  # (H, S, A, O)

    def __add__(self, other: "EpisodeCounts") -> "EpisodeCounts":
        return self._combined(other, add)

    def __sub__(self, other: "EpisodeCounts") -> "EpisodeCounts":
        return self._combined(other, sub)

    def _combined(self, other: "EpisodeCounts", combine: Callable[[Any, Any], Any]) -> "EpisodeCounts":
        return EpisodeCounts(*(combine(getattr(self, f.name), getattr(other, f.name)) for f in fields(self)))


@final
class CountModel:
    """The laws of a FiniteMDP as outcome tables. An outcome of (h, s, a) is a next state and a reward."""

    def __init__(self, mdp: FiniteMDP) -> None:
        self.mdp = mdp
        horizon, n_states, n_actions = mdp.rewards.shape
        self.n_pairs = n_states * n_actions
        self._same_features = mdp.features.stationary
        self._table_of_level = [0] * horizon if mdp.same_dynamics and mdp.same_rewards else list(range(horizon))
        levels = sorted(set(self._table_of_level))
        moves = np.concatenate([mdp.transitions[h].reshape(self.n_pairs, n_states) for h in levels])
        paid, unpaid, chance = self._rewards(levels)
        self.moves = Outcomes.of(moves)
        self.outcomes = Outcomes.of(np.concatenate([moves * chance[:, None], moves * (1 - chance)[:, None]], axis=1))
        self.n_outcomes = self.outcomes.index.shape[1]
        self.next_state = self.outcomes.index % n_states  # (rows, O)
        self.reward = np.where(self.outcomes.index < n_states, paid[:, None], unpaid[:, None])  # shifted
        if mdp.arrival_rewards is not None:
            arrivals = np.concatenate([mdp.arrival_rewards[h].reshape(self.n_pairs, n_states) for h in levels])
            self.reward = np.take_along_axis(arrivals, self.next_state, axis=1) - mdp.spec.reward_min
        self._start = Outcomes.of(mdp.start[None])

    def row(self, h: int, pairs: IntArray) -> IntArray:
        """Rows of the tables for pairs s * A + a at level h."""
        return np.asarray(pairs + self._table_of_level[h] * self.n_pairs)

    def starts(self, rng: np.random.Generator, n: IntArray) -> IntArray:
        """Start states (len(n), S) of n (len(n),) episodes."""
        counts = self._start.draw(rng, np.zeros(len(n), dtype=np.int64), n)
        states = np.zeros((len(n), self.mdp.n_states), dtype=np.int64)
        states[:, self._start.index[0]] = counts
        return states

    def draw(self, rng: np.random.Generator, policy: Array, n: int) -> EpisodeCounts:
        """Counts of n episodes of a policy (H, S, A)."""
        horizon, n_states, n_actions = policy.shape
        acts = Outcomes.of(policy.reshape(-1, n_actions))
        starts = self.starts(rng, np.array([n]))[0]
        taken = np.zeros((horizon, self.n_pairs), dtype=np.int64)
        outcomes = np.zeros((horizon, self.n_pairs, self.n_outcomes), dtype=np.int64)
        arriving = starts
        for h in range(horizon):
            here = np.flatnonzero(arriving)
            counts = acts.draw(rng, h * n_states + here, arriving[here])
            np.add.at(taken[h], here[:, None] * n_actions + acts.index[h * n_states + here], counts)
            pairs = np.flatnonzero(taken[h])
            outcomes[h, pairs] = self.outcomes.draw(rng, self.row(h, pairs), taken[h, pairs])
            arriving = self._arriving(h, pairs, outcomes[h, pairs])
        shape = (horizon, n_states, n_actions)
        return EpisodeCounts(n, starts, taken.reshape(shape), outcomes.reshape(*shape, self.n_outcomes))

    def split(self, rng: np.random.Generator, drawn: EpisodeCounts, first: int) -> tuple[EpisodeCounts, EpisodeCounts]:
        """Counts of the first `first` episodes, and those of the rest.

        Given how many episodes are at (h, s), their outgoing draws are independent and alike, so those of the first
        part are a draw without replacement from those of the whole.
        """
        horizon, n_outcomes = drawn.outcomes.shape[0], drawn.outcomes.shape[3]
        starts = choose(rng, drawn.starts[None], np.array([first]))[0]
        taken = np.zeros_like(drawn.taken)
        outcomes = np.zeros((horizon, self.n_pairs, n_outcomes), dtype=np.int64)
        arriving = starts
        for h in range(horizon):
            here = np.flatnonzero(arriving)
            taken[h, here] = choose(rng, drawn.taken[h, here], arriving[here])
            pairs = np.flatnonzero(taken[h])
            whole = drawn.outcomes[h].reshape(self.n_pairs, n_outcomes)[pairs]
            outcomes[h, pairs] = choose(rng, whole, taken[h].ravel()[pairs])
            arriving = self._arriving(h, pairs, outcomes[h, pairs])
        part = EpisodeCounts(first, starts, taken, outcomes.reshape(drawn.outcomes.shape))
        return part, drawn - part

    def transitions(self, first: int, outcomes: Sequence[IntArray]) -> Transitions:
        """Steps at levels first, first + 1, ... as weighted features; outcomes (S, A, O) or (S * A, O) are counts."""
        features, n_states, last = self.mdp.features, self.mdp.n_states, self.mdp.horizon - 1
        counts = np.stack([one.reshape(self.n_pairs, self.n_outcomes) for one in outcomes])
        at, pairs, which = np.nonzero(counts)
        states, actions = np.divmod(pairs, self.mdp.n_actions)
        rows = pairs + np.array(self._table_of_level)[first + at] * self.n_pairs
        arrived = self.next_state[rows, which]
        # The features of state s at level h are row h * S + s of those of all levels; of these the ones that occur.
        step = 0 if self._same_features else n_states
        here, there = (first + at) * step + states, np.minimum(first + at + 1, last) * step + arrived
        occur, where = np.unique(np.concatenate([here, there]), return_inverse=True)
        level_of, state_of = np.divmod(occur, n_states)
        return Transitions(
            state_vectors=features.vectors[level_of, state_of],
            state_blocks=features.blocks[level_of, state_of],
            levels=first + at,
            states=where[: len(pairs)],
            actions=actions,
            rewards=self.reward[rows, which],
            next_states=where[len(pairs) :],
            ended=self.mdp.terminal[arrived],
            weights=counts[at, pairs, which],
        )

    def return_sum(self, drawn: EpisodeCounts) -> float:
        """The sum of the shifted returns of all drawn episodes."""
        spec, total = self.mdp.spec, 0.0
        for h in range(spec.horizon):
            rows = self.row(h, np.arange(self.n_pairs))
            counts = drawn.outcomes[h].reshape(self.n_pairs, self.n_outcomes)
            worth = self.reward[rows] + np.where(self.mdp.terminal[self.next_state[rows]], spec.ended_value(h), 0.0)
            total += float((counts * worth).sum())
        return total

    def _arriving(self, h: int, pairs: IntArray, outcomes: IntArray) -> IntArray:
        """Where the episodes of these pairs are at the next level, (S,); those that ended are nowhere."""
        states = np.zeros(self.mdp.n_states, dtype=np.int64)
        np.add.at(states, self.next_state[self.row(h, pairs)], outcomes)
        states[self.mdp.terminal] = 0
        return states

    def _rewards(self, levels: list[int]) -> tuple[Array, Array, Array]:
        """Of each row: the reward if paid and if not, shifted, and the chance of being paid."""
        spec = self.mdp.spec
        means = np.concatenate([self.mdp.rewards[h].ravel() for h in levels]) - spec.reward_min
        spread = spec.reward_max - spec.reward_min
        if self.mdp.reward_noise == "none" or spread == 0:
            return means, means, np.ones(len(means))
        return np.full(len(means), spread), np.zeros(len(means)), np.clip(means / spread, 0.0, 1.0)
