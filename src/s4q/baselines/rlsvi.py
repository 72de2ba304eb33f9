"""RLSVI: least-squares value iteration with randomised values in place of a bonus.

Osband, Van Roy, Wen (2016): Generalization and exploration via randomized value functions, Algorithm 1. The same law as
LSVI-PHE with one perturbation (Ishfaq et al. 2021: Randomized exploration for reinforcement learning with general value
function approximation): normal noise on every target and on the ridge makes the ridge fit normal.

    before every policy:
        for h = H-1, ..., 0:
            Lambda_h = ridge I + sum of phi phi^T            over all steps of level h so far
            mean     = Lambda_h^-1 sum of phi (r + max_a' Q_{h+1}(s', a'))
            theta_h  = one draw from the normal law with this mean and covariance (sigma v_0)^2 Lambda_h^-1
            Q_h      = phi . theta_h, its value clipped at v_h
        play the greedy policy of Q

What differs from the papers. Values are clipped, because v_h is known (below at 0 only where the features are exact). A
draw is kept for 1 % of the episodes so far, or until some det Lambda_h has doubled. LSVI-PHE takes the largest of
several draws; here there is one. The draws of a policy depend on the seed, the episodes so far and the level alone, so
the same seed gives the same run.
"""

from math import inf
from typing import final

import numpy as np

from s4q.baselines.random_numbers import learner_rng
from s4q.baselines.refitting import RefitLearner, Switch
from s4q.core.blocks import Array
from s4q.core.least_squares import Moments
from s4q.core.messages import Spec
from s4q.core.optimism import QLevel
from s4q.core.spec import HasSpec
from s4q.core.validation import require_count, require_positive


@final
class RLSVI(RefitLearner):
    """Plays the greedy policy of a Q that is drawn around the fit; ask and tell.

    Args:
        problem: A Spec, or anything with `.spec`, such as a FiniteMDP.
        sigma: Standard deviation of the noise of a target, as a share of the value bound. 1 (default) covers the
            largest noise there can be; 0.1 is tuned.
        seed: Seed of the draws. 0 by default.
        ridge: Added to the diagonal of every Gram matrix. 1 by default.
        switch: When a new Q is drawn: "one_percent" (default), "every_episode" as in the paper, or "determinant".
        pool: True if every step is a sample for every level. False by default, as in the paper.

    >>> import s4q
    >>> mdp = s4q.problems.low_rank()
    >>> run = s4q.run(RLSVI(mdp, sigma=0.1), s4q.collectors.EpisodeCollector(mdp, seed=0), episodes=300)
    >>> run.phases, bool(run.regret < 0.2 * 300 * mdp.v_star)
    (250, True)
    """

    def __init__(
        self,
        problem: Spec | HasSpec,
        sigma: float = 1.0,
        *,
        seed: int = 0,
        ridge: float = 1.0,
        switch: Switch = "one_percent",
        pool: bool = False,
    ) -> None:
        require_positive("sigma", sigma, "the noise of a target, as a share of the value bound")
        require_count("seed", seed, "the seed of the draws", at_least=0)
        self.sigma, self.seed = float(sigma), int(seed)
        super().__init__(problem, ridge=ridge, switch=switch, pool=pool)

    def _level(self, h: int, theta: Array, moments: Moments) -> QLevel:
        rng = learner_rng(self.seed, self.n_episodes, h)
        whitener = moments.factors.whitener(self.ridge)  # W with W^T W = Lambda^-1, so W^T z has this covariance
        noise = np.einsum("bji,bj->bi", whitener, rng.standard_normal(theta.shape))
        lower = 0.0 if self.spec.well_specified else -inf
        spread = self.sigma * self.spec.value_bound[0]
        return QLevel(theta + spread * noise, clip=(lower, self.spec.value_bound[h]))
