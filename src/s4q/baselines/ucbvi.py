"""UCBVI: upper confidence bounds by value iteration, for tabular problems.

Azar, Osband, Munos (2017): Minimax regret bounds for reinforcement learning, Algorithm 1.

    repeat:
        P, r = empirical transitions and mean rewards
        V_H = 0
        for h = H-1, ..., 0:
            bonus = c (SE + v_h / n),   SE = sqrt((variance of V_{h+1}(s') under P + R^2 / 4) / n)
            Q_h = min(v_h, r + P V_{h+1} + bonus),   v_h where n = 0
            V_h = max over actions of Q_h
        play the greedy policy of Q and count

n is the number of visits of (s, a), R the length of the reward range, v_h the value bound of the problem.

What differs from the paper. Its bonus has constants and logarithms that prove the regret bound. This one has two of its
terms, a standard error and a term of order 1/n, times one constant c. The third, a sum over next states of how unsure
their own values are, is left out. Nothing is proved: with c = 0.3 the plan is not always optimistic. The paper knows
the rewards; here they are estimated, and their variance is bounded by R^2 / 4. The paper plans before every episode and
never lets Q grow; here a plan is kept for 1 % of the episodes so far, and Q follows the counts. A stationary problem
has one table of counts for all levels. Ties go to the lowest action.
"""

from typing import final

import numpy as np

from s4q.baselines.tabular import TabularLearner
from s4q.core.blocks import Array
from s4q.core.messages import Spec
from s4q.core.spec import HasSpec
from s4q.core.validation import require_positive


@final
class UCBVI(TabularLearner):
    """Optimistic value iteration on counts; ask and tell.

    Args:
        problem: A Spec, or anything with `.spec`, such as a FiniteMDP. Its features must be one-hot.
        c: Multiplies the bonus. 0.3 (default) does well on random tables; 0.1 is tuned: greedier, and stuck
            more often.

    >>> import s4q
    >>> mdp = s4q.problems.chain()
    >>> run = s4q.run(UCBVI(mdp), s4q.collectors.CountCollector(mdp, seed=0), episodes=1000)
    >>> run.phases, f"{run.gap:.3f} of {mdp.v_star:.3f}"
    (383, '0.000 of 0.636')
    """

    def __init__(self, problem: Spec | HasSpec, c: float = 0.3) -> None:
        require_positive("c", c, "the factor of the bonus")
        self.c = float(c)
        super().__init__(problem)

    def _planned_q(self) -> Array:
        spec, n_tables = self.spec, len(self.counts)
        visits = self.n_visits
        seen, n = visits > 0, np.maximum(visits, 1)
        transitions = self.counts / n[..., None]
        rewards = self.reward_sums / n
        reward_variance = (spec.reward_max - spec.reward_min) ** 2 / 4  # no reward in the range varies more
        q = np.empty((spec.horizon, *visits.shape[1:]))
        values = np.zeros(len(visits[0]))  # V_{h+1}, (S,)
        for h in range(spec.horizon - 1, -1, -1):
            t, bound = h % n_tables, spec.value_bound[h]
            after = np.append(values, spec.ended_value(h))
            mean = transitions[t] @ after
            variance = np.maximum(transitions[t] @ after**2 - mean**2, 0.0)
            standard_error = np.sqrt((variance + reward_variance) / n[t])
            bonus = self.c * (standard_error + bound / n[t])
            q[h] = np.where(seen[t], np.minimum(rewards[t] + mean + bonus, bound), bound)
            values = q[h].max(axis=-1)
        return q
