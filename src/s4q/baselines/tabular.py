"""TabularLearner: what UCBVI and PSRL share. Count transitions, plan, play the plan for a while, plan again.

A tabular learner needs one-hot features, because it reads states and actions from the blocks of the features. It keeps
one table of counts for all levels where the problem is stationary, else one table a level. Nothing here knows how a
plan is made.
"""

from abc import abstractmethod
from typing import final

import numpy as np

from s4q.baselines.episode_learner import EpisodeLearner, one_percent
from s4q.core.blocks import Array, IntArray
from s4q.core.linear_q import LinearQ
from s4q.core.messages import Policy, Spec, Transitions, Visits
from s4q.core.optimism import best_actions
from s4q.core.spec import HasSpec, spec_of
from s4q.problems import FiniteMDP


@final
class NotOneHot(ValueError):
    """A tabular learner does not suit the problem, whose features are not one-hot."""


class TabularLearner(EpisodeLearner):
    """Counts every transition and plans anew after every episode, from 200 episodes on after each 1 % more.

    Args:
        problem: A Spec, or anything with `.spec`, such as a FiniteMDP. Its features must be one-hot.
    """

    def __init__(self, problem: Spec | HasSpec) -> None:
        spec = one_hot_spec(problem)
        n_states, n_actions = spec.n_blocks // spec.n_actions, spec.n_actions
        n_tables = 1 if spec.stationary else spec.horizon
        # The last column of the next states counts the steps that ended an episode.
        self.counts: IntArray = np.zeros((n_tables, n_states, n_actions, n_states + 1), dtype=np.int64)
        self.reward_sums: Array = np.zeros((n_tables, n_states, n_actions))  # of rewards shifted to start at 0
        super().__init__(spec, pool=spec.stationary)

    @abstractmethod
    def _planned_q(self) -> Array:
        """Q of the plan for the counts so far, (H, S, A), in shifted units."""

    def _choose(self) -> tuple[LinearQ, Policy, int]:
        q = LinearQ.from_arrays(self._planned_q().reshape(self.spec.theta_shape))
        return q, q, one_percent(self.n_episodes)

    @property
    def n_visits(self) -> IntArray:
        """How often each pair was taken, (H, S, A), or (1, S, A) where the problem is stationary."""
        return np.asarray(self.counts.sum(axis=-1))

    @property
    def nbytes(self) -> int:
        """Bytes held by the learner's arrays."""
        return self.counts.nbytes + self.reward_sums.nbytes + self._base_nbytes

    def _take(self, steps: Transitions, answer: Visits) -> None:
        del answer
        states, actions, arrived = states_of(steps, self.spec.n_actions)
        arrived = np.where(steps.ended, self.counts.shape[1], arrived)
        tables = np.zeros_like(states) if self.spec.stationary else steps.levels
        np.add.at(self.counts, (tables, states, actions, arrived), steps.weights)
        np.add.at(self.reward_sums, (tables, states, actions), steps.weights * steps.rewards)


def states_of(steps: Transitions, n_actions: int) -> tuple[IntArray, IntArray, IntArray]:
    """States, actions and next states (n,) of steps with one-hot features; of an ended episode the last has no meaning.

    Args:
        steps: The steps. Other features are refused.
        n_actions: Number of actions.
    """
    states, actions = np.divmod(steps.blocks, n_actions)
    arrived = steps.next_blocks[:, 0] // n_actions
    one_hot = arrived[:, None] * n_actions + np.arange(n_actions)
    if np.any(steps.vectors != 1) or np.any((steps.next_blocks != one_hot)[~steps.ended]):
        raise ValueError("the features of these transitions are not one-hot: block s * n_actions + a, vector 1")
    return states, actions, arrived


def has_one_hot_table(problem: Spec | HasSpec) -> bool:
    """True for a FiniteMDP whose pair (s, a) has block s * n_actions + a and vector 1; False if that is not known."""
    if not isinstance(problem, FiniteMDP) or problem.spec.block_dim > 1:
        return False
    vectors, blocks = problem.features.vectors[:, ~problem.terminal], problem.features.blocks
    pairs = np.arange(problem.n_states * problem.n_actions).reshape(problem.n_states, problem.n_actions)
    return bool(np.all(vectors == 1) and np.all(blocks == pairs))


@final
class GreedyActions:
    """The greedy actions of the policy that plays: while they stay the same, the policy can stay too.

    A learner that changes its Q a little after every episode mostly plays on as before. Collectors remember what they
    made of a policy, so passing the old one again saves most of their time.

    Args:
        problem: The problem of the learner. Unless its features are a one-hot table, actions are never the same.
        n_actions: Number of actions.
    """

    def __init__(self, problem: Spec | HasSpec, n_actions: int) -> None:
        self._n_actions = n_actions
        self._known = has_one_hot_table(problem)
        self._last: IntArray | None = None

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return 0 if self._last is None else self._last.nbytes

    def same_as_before(self, table: Array) -> bool:
        """True if the greedy actions of this table are those of the last call. Remembers them for the next call.

        Args:
            table: Q of one-hot features, (H, S * n_actions, 1) or (H, S, n_actions).
        """
        if not self._known:
            return False
        before, self._last = self._last, np.asarray(best_actions(np, table.reshape(-1, self._n_actions))[0])
        return before is not None and np.array_equal(before, self._last)


def one_hot_spec(problem: Spec | HasSpec) -> Spec:
    """The Spec of a problem with one-hot features; any other is refused with NotOneHot."""
    spec = spec_of(problem)
    one_hot = spec.block_dim == 1 and spec.n_blocks % spec.n_actions == 0
    if one_hot and isinstance(problem, FiniteMDP):
        one_hot = has_one_hot_table(problem)
    if not one_hot:
        raise NotOneHot(
            "problem must have one-hot features, a block of length 1 for every pair (s, a): a tabular learner counts "
            f"states; got {spec.n_blocks} blocks of length {spec.block_dim} for {spec.n_actions} actions; use S4Q"
        )
    return spec
