"""TabularLearner: what UCBVI and PSRL share. Count transitions, plan, play the plan for a while, plan again.

A tabular learner needs one-hot features, because it reads states and actions from the blocks of the features. It keeps
one table of counts for all levels where the problem is stationary, else one table a level. Nothing here knows how a
plan is made.
"""

from abc import ABC, abstractmethod
from math import inf

import numpy as np

from s4q.core.blocks import Array, IntArray
from s4q.core.linear_q import LinearQ
from s4q.core.messages import A, Asks, Explore, Spec, Transitions, Visits
from s4q.core.spec import HasSpec, spec_of
from s4q.core.validation import require_count
from s4q.problems import FiniteMDP


class TabularLearner(ABC):
    """Counts every transition and plans anew after every episode, from 200 episodes on after each 1 % more.

    Args:
        problem: A Spec, or anything with `.spec`, such as a FiniteMDP. Its features must be one-hot.
    """

    def __init__(self, problem: Spec | HasSpec) -> None:
        self.spec = one_hot_spec(problem)
        n_states, n_actions = self.spec.n_blocks // self.spec.n_actions, self.spec.n_actions
        n_tables = 1 if self.spec.stationary else self.spec.horizon
        # The last column of the next states counts the steps that ended an episode.
        self.counts: IntArray = np.zeros((n_tables, n_states, n_actions, n_states + 1), dtype=np.int64)
        self.reward_sums: Array = np.zeros((n_tables, n_states, n_actions))  # of rewards shifted to start at 0
        self.n_episodes = 0  # answered so far
        self.phases = 0  # finished plans
        self._metric = np.ones((n_tables, self.spec.n_blocks, 1, 1))  # Explore asks for one; nothing reads it
        self._begin_plan()

    @abstractmethod
    def _planned_q(self) -> Array:
        """Q of the plan for the counts so far, (H, S, A), in shifted units."""

    def _begin_plan(self) -> None:
        self._q = LinearQ.from_arrays(self._planned_q().reshape(self.spec.theta_shape))
        self._played = 0  # episodes of this plan
        self._length = max(1, self.n_episodes // 100)

    @property
    def q(self) -> LinearQ:
        """Q of the running plan."""
        return self._q

    @property
    def policy(self) -> LinearQ:
        """The greedy policy of `q`."""
        return self._q

    @property
    def n_visits(self) -> IntArray:
        """How often each pair was taken, (H, S, A), or (1, S, A) where the problem is stationary."""
        return np.asarray(self.counts.sum(axis=-1))

    @property
    def nbytes(self) -> int:
        """Bytes held by the learner's arrays."""
        return self.counts.nbytes + self.reward_sums.nbytes + self._metric.nbytes + self._q.nbytes

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.n_episodes} episodes, {self.phases} plans, {self.nbytes} bytes)"

    def ask(self, max_episodes: int) -> Explore:
        """The next request: play the plan, and return every transition. Changes nothing.

        Args:
            max_episodes: The most episodes it may ask for.
        """
        require_count("max_episodes", max_episodes, "the budget left")
        n = min(max_episodes, self._length - self._played)
        return Explore(
            id=self.phases,
            policy=self._q,
            whitener=self._metric,
            threshold=(inf, 0.0),  # never stops early
            n_episodes=n,
            keep=n,
            pool=self.spec.stationary,
            done=self._played,
        )

    def tell(self, request: Asks[A], answer: A) -> None:
        """Count the transitions of a request, or of a part of it.

        Args:
            request: The request that was asked last.
            answer: What a collector answered.
        """
        if not (isinstance(request, Explore) and isinstance(answer, Visits) and answer.kept is not None):
            raise ValueError(f"{type(answer).__name__} does not answer the open request; tell what was asked last")
        if request.policy is not self._q or request.done != self._played:
            raise ValueError(f"request {request.id} is not the open one; tell each answer once, right after its ask")
        if not 1 <= answer.n_episodes <= request.n_episodes:
            raise ValueError(f"answer holds {answer.n_episodes} episodes, not 1 to {request.n_episodes} as asked")
        self._count(answer.kept)
        self.n_episodes += answer.n_episodes
        self._played += answer.n_episodes
        if self._played == self._length:
            self.phases += 1
            self._begin_plan()

    def _count(self, steps: Transitions) -> None:
        n_states, n_actions = self.counts.shape[1:3]
        states, actions = np.divmod(steps.blocks, n_actions)
        next_blocks = steps.next_blocks
        arrived = np.where(steps.ended, n_states, next_blocks[:, 0] // n_actions)
        one_hot = arrived[:, None] * n_actions + np.arange(n_actions)
        if np.any(steps.vectors != 1) or np.any((next_blocks != one_hot)[~steps.ended]):
            raise ValueError("the features of these transitions are not one-hot: block s * n_actions + a, vector 1")
        tables = np.zeros_like(states) if self.spec.stationary else steps.levels
        np.add.at(self.counts, (tables, states, actions, arrived), steps.weights)
        np.add.at(self.reward_sums, (tables, states, actions), steps.weights * steps.rewards)


def one_hot_spec(problem: Spec | HasSpec) -> Spec:
    """The Spec of a problem with one-hot features; any other is refused."""
    spec = spec_of(problem)
    one_hot = spec.block_dim == 1 and spec.n_blocks % spec.n_actions == 0
    if one_hot and isinstance(problem, FiniteMDP):
        vectors, blocks = problem.features.vectors[:, ~problem.terminal], problem.features.blocks
        pairs = np.arange(problem.n_states * problem.n_actions).reshape(problem.n_states, problem.n_actions)
        one_hot = bool(np.all(vectors == 1) and np.all(blocks == pairs))
    if not one_hot:
        raise ValueError(
            "problem must have one-hot features, a block of length 1 for every pair (s, a): a tabular learner counts "
            f"states; got {spec.n_blocks} blocks of length {spec.block_dim} for {spec.n_actions} actions; use S4Q"
        )
    return spec
