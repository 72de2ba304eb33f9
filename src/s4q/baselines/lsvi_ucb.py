"""LSVI-UCB: least-squares value iteration with an upper confidence bonus.

Jin, Yang, Wang, Jordan (2020): Provably efficient reinforcement learning with linear function approximation,
Algorithm 1.

    before every episode:
        for h = H-1, ..., 0:
            Lambda_h = ridge I + sum of phi phi^T            over all steps of level h so far
            theta_h  = Lambda_h^-1 sum of phi (r + max_a' Q_{h+1}(s', a'))
            Q_h      = min(v_h, phi . theta_h + beta v_0 |phi| in the metric of Lambda_h^-1)
        play the greedy policy of Q

With `lower_order` the bonus has one term more, lower_order v_0 |phi|^2: of order 1/n, like that of a Bernstein bound.
v_h is the value bound of the problem; the paper has v_h = H. The paper's own beta is `paper_beta`. With
`switch="determinant"` a policy is kept until some det Lambda_h has doubled (rare switching, Abbasi-Yadkori, Pal,
Szepesvari 2011), which needs fewer fits for nearly the same policies.

What differs from the paper. Values are clipped below at 0 where the features are exact. The greedy action is that of
the unclipped value, because clipping makes ties. `pool=True` shares the steps of all levels of a stationary problem.
"""

from dataclasses import replace
from math import inf, log, sqrt
from typing import final

import numpy as np

from s4q.baselines.refitting import RefitLearner, Switch
from s4q.core.blocks import Array
from s4q.core.least_squares import Moments
from s4q.core.messages import Spec
from s4q.core.optimism import QLevel
from s4q.core.spec import HasSpec
from s4q.core.validation import require_count, require_failure_probability, require_positive


def paper_beta(spec: Spec, episodes: int, delta: float = 0.05) -> float:
    """beta of Theorem 3.1 with its unknown constant set to 1: d sqrt(log(2 d T / delta)), T = H times episodes.

    Args:
        spec: The problem.
        episodes: Episodes of the whole run.
        delta: Probability with which the bound may fail.

    >>> import s4q
    >>> round(paper_beta(s4q.problems.low_rank(dim=5).spec, episodes=1000), 1)
    18.2
    """
    require_count("episodes", episodes, "the number of episodes of the run")
    require_failure_probability("delta", delta)
    return spec.dim * sqrt(log(2 * spec.dim * spec.horizon * episodes / delta))


@final
class LSVIUCB(RefitLearner):
    """LSVI-UCB; ask and tell.

    Args:
        problem: A Spec, or anything with `.spec`, such as a FiniteMDP.
        beta: The bonus is beta times the value bound times |phi| in the metric of Lambda^-1. 1 (default) makes the
            bonus of an unseen direction the value bound; `paper_beta` is what the theorem asks for; 0.1 is tuned.
        ridge: Added to the diagonal of every Gram matrix. 1 by default, as in the paper.
        switch: "every_episode" (default) as in the paper; "determinant" for rare switching; "one_percent".
        pool: True if every step is a sample for every level. False by default, as in the paper.
        lower_order: Adds lower_order times the value bound times |phi|^2 to the bonus. 0 by default, as in the paper.
            rlberry has 1, with a ridge of 0.1.

    >>> import s4q
    >>> mdp = s4q.problems.low_rank()
    >>> run = s4q.run(LSVIUCB(mdp, beta=0.1), s4q.collectors.EpisodeCollector(mdp, seed=0), episodes=300)
    >>> run.phases, bool(run.regret < 0.2 * 300 * mdp.v_star)
    (300, True)
    """

    def __init__(
        self,
        problem: Spec | HasSpec,
        beta: float = 1.0,
        *,
        ridge: float = 1.0,
        switch: Switch = "every_episode",
        pool: bool = False,
        lower_order: float = 0.0,
    ) -> None:
        require_positive("beta", beta, "the factor of the bonus")
        if lower_order != 0:
            require_positive("lower_order", lower_order, "the factor of the second term of the bonus, if not 0")
        self.beta, self.lower_order = float(beta), float(lower_order)
        super().__init__(problem, ridge=ridge, switch=switch, pool=pool)

    def _level(self, h: int, theta: Array, moments: Moments) -> QLevel:
        lower = 0.0 if self.spec.well_specified else -inf
        bound, whitener = self.spec.value_bound, moments.factors.whitener(self.ridge)
        level = QLevel(theta, whitener, self.beta * bound[0], clip=(lower, bound[h]))
        if not self.lower_order:
            return level
        # No variance is estimated (ceiling and noise are 0), so what is added to the width is lower_order v_0 |phi|.
        nothing = np.zeros_like(theta)
        return replace(level, second=nothing, ridge=self.ridge, kappa=1.0, lower_order=self.lower_order * bound[0])
