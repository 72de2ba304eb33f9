"""Fitted Q iteration: backward regression on one batch of steps, here a batch that grows.

Ernst, Geurts, Wehenkel (2005): Tree-based batch mode reinforcement learning; Riedmiller (2005): Neural fitted Q
iteration; Munos, Szepesvari (2008): Finite-time bounds for fitted value iteration. With linear features and a finite
horizon one pass over the levels is exact, so there is nothing to iterate:

    repeat:
        for h = H-1, ..., 0:
            theta_h = ridge regression of  r + max_a' Q_{h+1}(s', a')  on  phi_h(s, a), over all steps of level h so far
        play the greedy policy of Q, with a uniform action with probability epsilon

It is S3Q that uses its steps again at every level: a target then depends on the very steps it is fitted to. With
epsilon = 1 the controller is uniform and the batch is that of classical fitted Q iteration. Nothing drives exploration
but epsilon.
"""

from typing import final

from s4q.baselines.epsilon_greedy import EpsilonGreedy, require_epsilon
from s4q.baselines.refitting import RefitLearner, Switch
from s4q.core.blocks import Array
from s4q.core.least_squares import Moments
from s4q.core.linear_q import LinearQ
from s4q.core.messages import Policy, Spec
from s4q.core.optimism import QLevel
from s4q.core.spec import HasSpec


@final
class FittedQ(RefitLearner):
    """Fits Q to all steps so far, and plays epsilon-greedily; ask and tell.

    Args:
        problem: A Spec, or anything with `.spec`, such as a FiniteMDP.
        epsilon: Probability of a uniform action. 0.1 by default; 1 for a uniform controller.
        ridge: Added to the diagonal of every Gram matrix. 0.001 by default.
        switch: When Q is fitted again: "one_percent" (default), "every_episode" or "determinant".
        pool: True if every step is a sample for every level. False by default.

    >>> import s4q
    >>> mdp = s4q.problems.low_rank()
    >>> run = s4q.run(FittedQ(mdp), s4q.collectors.EpisodeCollector(mdp, seed=0), episodes=300)
    >>> run.phases, bool(run.gap < 0.02 * mdp.v_star)
    (250, True)
    """

    def __init__(
        self,
        problem: Spec | HasSpec,
        epsilon: float = 0.1,
        *,
        ridge: float = 0.001,
        switch: Switch = "one_percent",
        pool: bool = False,
    ) -> None:
        require_epsilon(epsilon)
        self.epsilon = float(epsilon)
        super().__init__(problem, ridge=ridge, switch=switch, pool=pool)

    def _level(self, h: int, theta: Array, moments: Moments) -> QLevel:
        del h, moments
        return QLevel(theta)

    def _behaviour(self, q: LinearQ) -> Policy:
        return EpsilonGreedy(q, self.epsilon)
