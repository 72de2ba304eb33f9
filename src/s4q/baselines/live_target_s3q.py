"""LiveTargetS3Q: S3Q without a target network. An ablation.

    for every episode of the controller, at every level h = 0, ..., H-1:
        y = r + max_a' phi(s', a') . theta_{h+1}           # of the live parameter, which changes all the time
        theta_h, Sigma_h = the second-order update of Algorithm 3 with (phi, y)

All levels learn from every episode, and no sample is ever looked at again. What a target got wrong early stays in the
sums. With one parameter a level this cannot diverge, since level h looks only at level h + 1; the early error of one
level is passed on to the next, so the bias at the first level grows with the horizon.
"""

from typing import final

import numpy as np

from s4q.baselines.episode_learner import EpisodeLearner
from s4q.core.blocks import Array
from s4q.core.least_squares import StreamingLeastSquares
from s4q.core.linear_q import LinearQ
from s4q.core.messages import Policy, Spec, Transitions, Visits
from s4q.core.policies import require_policy
from s4q.core.spec import HasSpec, spec_of
from s4q.core.validation import require_positive


@final
class LiveTargetS3Q(EpisodeLearner):
    """S3Q that bootstraps on its live parameters; ask and tell.

    Args:
        problem: A Spec, or anything with `.spec`, such as a FiniteMDP.
        controller: The policy that plays.
        ridge: The initial covariance is ridge times I. 1 by default, as of S3Q.

    >>> import s4q
    >>> mdp = s4q.problems.low_rank()
    >>> learner = LiveTargetS3Q(mdp, s4q.UniformPolicy(mdp.n_actions))
    >>> run = s4q.run(learner, s4q.collectors.CountCollector(mdp, seed=0), episodes=300)
    >>> run.phases, bool(abs(mdp.q_values(run.q) - mdp.q_star).max() < 0.5)
    (300, True)
    """

    def __init__(self, problem: Spec | HasSpec, controller: Policy, *, ridge: float = 1.0) -> None:
        spec = spec_of(problem)
        require_policy("controller", controller)
        require_positive("ridge", ridge, "the initial covariance times I")
        self.controller = controller
        self.fits = [
            [StreamingLeastSquares(spec.block_dim, ridge) for _ in range(spec.n_blocks)] for _ in range(spec.horizon)
        ]
        super().__init__(spec)

    @property
    def theta(self) -> Array:
        """The live parameters, (H, n_blocks, k)."""
        return np.array([[fit.theta for fit in fits] for fits in self.fits])

    def _choose(self) -> tuple[LinearQ, Policy, int]:
        self.phases = self.n_episodes
        return LinearQ.from_arrays(self.theta), self.controller, 1

    def _take(self, steps: Transitions, answer: Visits) -> None:
        del answer
        vectors, blocks, next_vectors, next_blocks = steps.vectors, steps.blocks, steps.next_vectors, steps.next_blocks
        for i in np.argsort(steps.levels, kind="stable").tolist():
            h, after = int(steps.levels[i]), 0.0
            if steps.ended[i]:
                after = self.spec.ended_value(h)
            elif h + 1 < self.spec.horizon:
                live = np.array([self.fits[h + 1][block].theta for block in next_blocks[i]])
                after = float(np.vecdot(live, next_vectors[i]).max())
            self.fits[h][int(blocks[i])].update(vectors[i], float(steps.rewards[i]) + after)

    @property
    def nbytes(self) -> int:
        """Bytes held by the learner's arrays."""
        parts = [array for fits in self.fits for fit in fits for array in (fit.theta, fit.gram, fit.cov_inv)]
        return sum(array.nbytes for array in parts) + self._base_nbytes
