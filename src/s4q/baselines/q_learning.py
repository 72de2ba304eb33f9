"""Basic linear Q-learning: first-order temporal differences on live parameters.

Watkins, Dayan (1992): Q-learning; with linear features Melo, Ribeiro (2007): Q-learning with linear function
approximation. It is the update that the paper of S3Q starts from.

    for every step (h, s, a, r, s') of an episode, in order:
        td = r + max_a' phi(s', a') . theta_{h+1} - phi(s, a) . theta_h
        theta_h += rate * td * phi(s, a)
    the next episode plays the greedy policy of theta, with a uniform action with probability epsilon

It has no target network, no second-order step and no replay. With one parameter a level it cannot diverge by feeding on
itself, because level h looks only at level h + 1. With `shared=True` it can: see `problems.baird`.
"""

from typing import final

from s4q.baselines.first_order import FirstOrderLearner, best_next
from s4q.core.messages import Transitions, Visits


@final
class QLearning(FirstOrderLearner):
    """Linear Q-learning; ask and tell.

    Args:
        problem: A Spec, or anything with `.spec`, such as a FiniteMDP.
        epsilon: Probability of a uniform action. 0.1 by default; 0 goes with `optimistic=True`.
        step_size: The first step size. 0.1 by default.
        decay: The n-th step in a block has step_size / n^decay. 0 by default; 1 is the classical 1/n.
        optimistic: True starts every entry of the parameter at the value bound. False by default.
        shared: True for one parameter for all levels. False by default.
        discount: Factor of the next value. 1 by default; less only with shared weights.

    >>> import s4q
    >>> mdp = s4q.problems.chain(4, 4)
    >>> run = s4q.run(QLearning(mdp, optimistic=True), s4q.collectors.EpisodeCollector(mdp, seed=0), episodes=400)
    >>> run.episodes, bool(run.gap < 0.01)
    (400, True)
    """

    def _take(self, steps: Transitions, answer: Visits) -> None:
        del answer
        for step in self._in_order(steps):
            theta = self.theta[step.row, step.block]
            td_error = step.reward + self.discount * best_next(self.theta, step) - theta @ step.phi
            self.theta[step.row, step.block] = theta + self._next_rate(step) * td_error * step.phi
