"""PSRL: posterior sampling for reinforcement learning, for tabular problems.

Osband, Russo, Van Roy (2013): (More) efficient reinforcement learning via posterior sampling.

    repeat:
        P, r = one draw of transitions and mean rewards from their posterior
        Q = the optimal values of the problem (P, r)
        play the greedy policy of Q and count

Prior: Dirichlet with weight 1/(S + 1) on each of the S next states and on the end of the episode, 1 in all, so that
one visit outweighs it; and Beta(1, 1), the uniform one, for the mean reward as a share of the reward range. A reward
between the ends of the range counts in part: the share x adds x to the first and 1 - x to the second parameter. For
Bernoulli rewards both posteriors are exact.

What differs from the paper. It draws a problem before every episode; here a draw is kept for 1 % of the episodes so
far. A stationary problem has one posterior for all levels. A draw depends on the seed and the episodes so far alone, so
the learner carries no generator and the same seed gives the same run.
"""

from typing import final

import numpy as np

from s4q.baselines.random_numbers import learner_rng
from s4q.baselines.tabular import TabularLearner
from s4q.core.blocks import Array
from s4q.core.messages import Spec
from s4q.core.spec import HasSpec
from s4q.core.validation import require_count


@final
class PSRL(TabularLearner):
    """Plans for a problem drawn from the posterior; ask and tell.

    Args:
        problem: A Spec, or anything with `.spec`, such as a FiniteMDP. Its features must be one-hot.
        seed: Seed of the draws from the posterior. 0 by default.

    >>> import s4q
    >>> mdp = s4q.problems.chain()
    >>> run = s4q.run(PSRL(mdp), s4q.collectors.CountCollector(mdp, seed=0), episodes=1000)
    >>> run.phases, bool(run.regret < 0.15 * 1000 * mdp.v_star)
    (383, True)
    """

    def __init__(self, problem: Spec | HasSpec, seed: int = 0) -> None:
        require_count("seed", seed, "the seed of the draws from the posterior", at_least=0)
        self.seed = int(seed)
        super().__init__(problem)

    def _planned_q(self) -> Array:
        spec, n_tables = self.spec, len(self.counts)
        transitions, rewards = self._drawn_problem()
        q = np.empty((spec.horizon, *rewards.shape[1:]))
        values = np.zeros(len(rewards[0]))  # V_{h+1}, (S,)
        for h in range(spec.horizon - 1, -1, -1):
            after = np.append(values, spec.ended_value(h))
            q[h] = rewards[h % n_tables] + transitions[h % n_tables] @ after
            values = q[h].max(axis=-1)
        return q

    def _drawn_problem(self) -> tuple[Array, Array]:
        """Transitions (H or 1, S, A, S + 1) and shifted mean rewards (H or 1, S, A) from the posterior."""
        rng = learner_rng(self.seed, self.n_episodes)
        weights = rng.standard_gamma(self.counts + 1.0 / self.counts.shape[-1])  # a Dirichlet, once divided by its sum
        span = self.spec.reward_max - self.spec.reward_min
        paid = self.reward_sums / span if span else self.reward_sums
        shares = rng.beta(1.0 + paid, 1.0 + np.maximum(self.n_visits - paid, 0.0))
        return weights / weights.sum(axis=-1, keepdims=True), span * shares
