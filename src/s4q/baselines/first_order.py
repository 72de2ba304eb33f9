"""FirstOrderLearner: what Q-learning, SARSA(lambda), replay Q-learning and Q-Rex share: a parameter changed by steps.

It plays one episode at a time, epsilon-greedily, and gives the algorithm its steps in their order. A
learner has one parameter a level. With `shared=True` it has one for all levels, as in discounted problems without a
horizon; Q is then in the user's rewards, discounted, and bootstraps at the time limit.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from s4q.baselines.episode_learner import EpisodeLearner
from s4q.baselines.epsilon_greedy import EpsilonGreedy, require_epsilon
from s4q.baselines.tabular import GreedyActions
from s4q.core.blocks import Array, IntArray
from s4q.core.linear_q import LinearQ
from s4q.core.messages import Policy, Spec, Transitions
from s4q.core.spec import HasSpec, spec_of
from s4q.core.validation import require_flag, require_positive, require_share


@final
@dataclass(frozen=True, eq=False, slots=True)
class Step:
    """One step of an episode."""

    row: int  # of the parameter: the level, or 0 with shared weights
    block: int
    phi: Array  # (k,), of the action taken
    reward: float
    next_row: int | None  # None where nothing is left to bootstrap on
    next_blocks: IntArray  # (n_actions,)
    next_phi: Array  # (n_actions, k)
    ended_value: float  # what is known to follow where next_row is None


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class StepSize:
    """size / n^decay for the n-th step in a block of a level (for one-hot features: the n-th visit of a pair).

    Args:
        size: The first step size.
        decay: 0 for a constant step size, 1 for the classical 1/n.
    """

    size: float = 0.1
    decay: float = 0.0

    def __post_init__(self) -> None:
        require_positive("step_size", self.size, "the first step size")
        require_share("decay", self.decay, "the power of n that divides the step size")

    def at(self, n: float) -> float:
        """The step size of the n-th step."""
        return float(self.size / n**self.decay)


class FirstOrderLearner(EpisodeLearner):
    """Changes one linear parameter step by step.

    Args:
        problem: A Spec, or anything with `.spec`, such as a FiniteMDP.
        epsilon: Probability of a uniform action.
        step_size: The first step size.
        decay: The n-th step in a block has step_size / n^decay.
        optimistic: True starts every entry of the parameter at the value bound, else at 0. With features of norm 1 and
            no negative entry every value then starts at the bound or above it.
        shared: True for one parameter for all levels.
        discount: Factor of the next value. Below 1 only with shared weights.
    """

    _counts_visits: ClassVar[bool] = True  # False: the step size is always the same

    def __init__(
        self,
        problem: Spec | HasSpec,
        epsilon: float = 0.1,
        *,
        step_size: float = 0.1,
        decay: float = 0.0,
        optimistic: bool = False,
        shared: bool = False,
        discount: float = 1.0,
    ) -> None:
        spec = spec_of(problem)
        require_epsilon(epsilon)
        require_flag("optimistic", optimistic, "do values start at their bound?")
        require_flag("shared", shared, "is there one parameter for all levels?")
        require_share("discount", discount, "the factor of the next value", zero=False)
        if discount < 1 and not shared:
            raise ValueError(f"discount must be 1 unless shared=True; got {discount}")
        self.epsilon, self.shared, self.discount = float(epsilon), shared, float(discount)
        self.step_size = StepSize(size=step_size, decay=decay)
        self.theta: Array = np.zeros((1 if shared else spec.horizon, *spec.theta_shape[1:]))
        if optimistic:
            best = spec.value_bound[0] + spec.horizon * spec.reward_min if shared else np.array(spec.value_bound)
            self.theta += np.reshape(best, (-1, 1, 1))
        self.visits: Array = np.zeros(self.theta.shape[:2] if self._counts_visits else 0)  # of each block of each level
        self._greedy = GreedyActions(problem, spec.n_actions)
        super().__init__(spec)

    def _choose(self) -> tuple[LinearQ, Policy, int]:
        self._require_finite(self.theta)
        q = LinearQ.from_arrays(self.theta)
        if self.shared:
            q = LinearQ([*q.levels] * self.spec.horizon)
        return q, self._played_policy if self._greedy.same_as_before(self.theta) else EpsilonGreedy(q, self.epsilon), 1

    def _in_order(self, steps: Transitions) -> Iterator[Step]:
        """The steps of one episode, by level."""
        vectors, blocks, next_vectors, next_blocks = steps.vectors, steps.blocks, steps.next_vectors, steps.next_blocks
        rewards = steps.rewards + self.spec.reward_min if self.shared else steps.rewards
        last = self.spec.horizon - 1
        for i in np.argsort(steps.levels, kind="stable").tolist():
            h, next_row, ended_value = int(steps.levels[i]), None, 0.0
            if steps.ended[i]:
                ended_value = 0.0 if self.shared else self.spec.ended_value(h)
            elif self.shared or h < last:
                next_row = 0 if self.shared else h + 1
            row = 0 if self.shared else h
            reward = float(rewards[i])
            yield Step(row, int(blocks[i]), vectors[i], reward, next_row, next_blocks[i], next_vectors[i], ended_value)

    def _next_rate(self, step: Step) -> float:
        """Count the step in its block, and tell its step size."""
        self.visits[step.row, step.block] += 1
        return self.step_size.at(self.visits[step.row, step.block])

    @property
    def nbytes(self) -> int:
        """Bytes held by the learner's arrays."""
        return self.theta.nbytes + self.visits.nbytes + self._greedy.nbytes + self._base_nbytes


def next_values(theta: Array, step: Step) -> Array:
    """Q of every action in the next state, (n_actions,), for a parameter (H or 1, n_blocks, k)."""
    return np.asarray(np.vecdot(theta[step.next_row, step.next_blocks], step.next_phi))


def best_next(theta: Array, step: Step) -> float:
    """max_a' Q(s', a'); the known value where nothing is left to bootstrap on."""
    return step.ended_value if step.next_row is None else float(next_values(theta, step).max())
