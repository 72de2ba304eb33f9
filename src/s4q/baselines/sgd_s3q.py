"""SgdS3Q: S3Q with a first-order update in place of the second-order one, plain or averaged. An ablation.

Robbins, Monro (1951); averaging: Polyak, Juditsky (1992): Acceleration of stochastic approximation by averaging.

    theta = 0 at the start of a level
    for its t-th sample (phi, y):  theta += (step_size / sqrt(t)) (y - phi . theta) phi
    the fit is the last theta, or the mean of all of them

Everything else is S3Q: controller, target network and epochs. There is no ridge and no ball, which a start at 0 and few
steps replace. The discussion of the paper says what is lost: only statistical efficiency. The excess loss falls like
1 / sqrt(n) where some directions are rare, against 1 / n; nothing gets unstable.
"""

from typing import final

import numpy as np

from s4q.baselines.level_by_level import LevelByLevel
from s4q.core.blocks import Array, IntArray
from s4q.core.messages import Policy, Spec
from s4q.core.spec import HasSpec
from s4q.core.validation import require_flag, require_positive


@final
class SgdS3Q(LevelByLevel):
    """S3Q that fits by stochastic gradient steps; ask and tell.

    Args:
        problem: A Spec, or anything with `.spec`, such as a FiniteMDP.
        controller: The policy that plays.
        average: True returns the mean of all iterates of a level, False (default) the last one.
        step_size: The first step size. 0.5 by default; the t-th is divided by sqrt(t).
        seed: Seed of the order in which counted samples are read. 0 by default.

    >>> import s4q
    >>> mdp = s4q.problems.low_rank()
    >>> learner = SgdS3Q(mdp, s4q.UniformPolicy(mdp.n_actions))
    >>> run = s4q.run(learner, s4q.collectors.CountCollector(mdp, seed=0), episodes=1000)
    >>> run.phases, bool(abs(mdp.q_values(run.q) - mdp.q_star).max() < 0.5)
    (7, True)
    """

    def __init__(
        self,
        problem: Spec | HasSpec,
        controller: Policy,
        *,
        average: bool = False,
        step_size: float = 0.5,
        seed: int = 0,
    ) -> None:
        require_flag("average", average, "is the fit the mean of all iterates?")
        require_positive("step_size", step_size, "the first step size")
        self.average, self.step_size = average, float(step_size)
        super().__init__(problem, controller, seed=seed)

    def _start_fit(self) -> None:
        self.theta: Array = np.zeros(self.spec.theta_shape[1:])
        self._sum, self._n = np.zeros_like(self.theta), 0

    def _add(self, vectors: Array, blocks: IntArray, targets: Array) -> None:
        theta = self.theta
        for phi, block, y in zip(vectors, blocks.tolist(), targets.tolist(), strict=True):
            self._n += 1
            theta[block] += self.step_size / self._n**0.5 * (y - float(phi @ theta[block])) * phi
            if self.average:
                self._sum += theta

    def _fitted(self) -> Array:
        return self._sum / max(self._n, 1) if self.average else self.theta.copy()

    @property
    def _fit_nbytes(self) -> int:
        return self.theta.nbytes + self._sum.nbytes
