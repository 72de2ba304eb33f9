"""UCB-Q: tabular Q-learning with an upper confidence bonus (Hoeffding).

Jin, Allen-Zhu, Bubeck, Jordan (2018): Is Q-learning provably efficient? Algorithm 1.

    Q_h = v_h everywhere
    for every step (h, s, a, r, s') of an episode, in order:
        t = number of visits of (h, s, a), this one included
        rate  = (H + 1) / (H + t)
        bonus = c v_0 sqrt(H / t)
        Q_h(s, a) = (1 - rate) Q_h(s, a) + rate (r + V_{h+1}(s') + bonus),   V = min(v, max over actions of Q)
    the next episode plays the greedy policy of Q

v_h is the value bound of the problem. The paper has v_h = H, rewards in [0, 1] and bonus c sqrt(H^3 iota / t), which is
the same with c sqrt(iota) for c; `paper_c` is sqrt(iota). It keeps S A H numbers, whatever the number of episodes.
"""

from math import log, sqrt
from typing import final

import numpy as np

from s4q.baselines.episode_learner import EpisodeLearner
from s4q.baselines.tabular import GreedyActions, one_hot_spec, states_of
from s4q.core.blocks import Array, IntArray
from s4q.core.linear_q import LinearQ
from s4q.core.messages import Policy, Spec, Transitions, Visits
from s4q.core.spec import HasSpec
from s4q.core.validation import require_count, require_failure_probability, require_positive


def paper_c(spec: Spec, episodes: int, delta: float = 0.05) -> float:
    """sqrt(log(S A T / delta)), T = H times episodes: what the theorem asks for, its own constant set to 1.

    Args:
        spec: The problem, with one-hot features.
        episodes: Episodes of the whole run.
        delta: Probability with which the bound may fail.

    >>> import s4q
    >>> round(paper_c(s4q.problems.chain().spec, episodes=5000), 2)
    4.1
    """
    require_count("episodes", episodes, "the number of episodes of the run")
    require_failure_probability("delta", delta)
    return sqrt(log(spec.dim * spec.horizon * episodes / delta))


@final
class UCBQ(EpisodeLearner):
    """Tabular Q-learning with a bonus; ask and tell.

    Args:
        problem: A Spec, or anything with `.spec`, such as a FiniteMDP. Its features must be one-hot.
        c: Multiplies the bonus. 1 by default; `paper_c` is what the theorem asks for; 0.003 is tuned.

    >>> import s4q
    >>> mdp = s4q.problems.chain(4, 4)
    >>> run = s4q.run(UCBQ(mdp, c=0.02), s4q.collectors.EpisodeCollector(mdp, seed=0), episodes=400)
    >>> run.episodes, bool(run.gap < 0.01)
    (400, True)
    """

    def __init__(self, problem: Spec | HasSpec, c: float = 1.0) -> None:
        require_positive("c", c, "the factor of the bonus")
        self.c = float(c)
        spec = one_hot_spec(problem)
        n_states, n_actions = spec.n_blocks // spec.n_actions, spec.n_actions
        self.table: Array = np.broadcast_to(
            np.array(spec.value_bound)[:, None, None], (spec.horizon, n_states, n_actions)
        ).copy()
        self.n_visits: IntArray = np.zeros(self.table.shape, dtype=np.int64)
        self._greedy = GreedyActions(problem, n_actions)
        super().__init__(spec)

    def _choose(self) -> tuple[LinearQ, Policy, int]:
        q = LinearQ.from_arrays(self.table.reshape(self.spec.theta_shape))
        return q, self._played_policy if self._greedy.same_as_before(self.table) else q, 1

    def _take(self, steps: Transitions, answer: Visits) -> None:
        del answer
        spec, horizon = self.spec, self.spec.horizon
        states, actions, arrived = states_of(steps, spec.n_actions)
        for i in np.argsort(steps.levels, kind="stable").tolist():
            h, s, a = int(steps.levels[i]), int(states[i]), int(actions[i])
            self.n_visits[h, s, a] += 1
            t = int(self.n_visits[h, s, a])
            rate = (horizon + 1) / (horizon + t)
            bonus = self.c * spec.value_bound[0] * sqrt(horizon / t)
            after = 0.0
            if steps.ended[i]:
                after = spec.ended_value(h)
            elif h + 1 < horizon:
                after = min(spec.value_bound[h + 1], float(self.table[h + 1, arrived[i]].max()))
            self.table[h, s, a] += rate * (float(steps.rewards[i]) + after + bonus - self.table[h, s, a])

    @property
    def nbytes(self) -> int:
        """Bytes held by the learner's arrays."""
        return self.table.nbytes + self.n_visits.nbytes + self._greedy.nbytes + self._base_nbytes
