"""VarianceReducedS3Q: S3Q with variance-reduced first-order steps, which need d numbers instead of d^2. An ablation.

Johnson, Zhang (2013): Accelerating stochastic gradient descent using predictive variance reduction; for a stream of
samples Frostig, Ge, Kakade, Sidford (2015): Competing with the empirical risk minimizer in a single pass.

    anchor = 0 at the start of a level
    for stages of 2, 4, 8, ... samples:
        with the first half of the stage:   slope = mean of (y - phi . anchor) phi;   theta = anchor
        with each sample of the other half: theta += step_size (slope - phi (phi . (theta - anchor)))
        anchor = theta

Everything else is S3Q. The paper leaves open whether such a step recovers the efficiency of the second-order one. The
noise of y enters only through the mean over half a stage, so the excess loss falls like 1 / n here too.
"""

from typing import final

import numpy as np

from s4q.baselines.level_by_level import LevelByLevel
from s4q.core.blocks import Array, IntArray
from s4q.core.messages import Policy, Spec
from s4q.core.spec import HasSpec
from s4q.core.validation import require_positive


@final
class VarianceReducedS3Q(LevelByLevel):
    """S3Q that fits by variance-reduced gradient steps; ask and tell.

    Args:
        problem: A Spec, or anything with `.spec`, such as a FiniteMDP.
        controller: The policy that plays.
        step_size: Constant step size. 0.1 by default; larger ones multiply the noise of the stage before.
        seed: Seed of the order in which counted samples are read. 0 by default.

    >>> import s4q
    >>> mdp = s4q.problems.low_rank()
    >>> learner = VarianceReducedS3Q(mdp, s4q.UniformPolicy(mdp.n_actions))
    >>> run = s4q.run(learner, s4q.collectors.CountCollector(mdp, seed=0), episodes=1000)
    >>> run.phases, bool(abs(mdp.q_values(run.q) - mdp.q_star).max() < 0.5)
    (7, True)
    """

    def __init__(self, problem: Spec | HasSpec, controller: Policy, *, step_size: float = 0.1, seed: int = 0) -> None:
        require_positive("step_size", step_size, "the constant step size")
        self.step_size = float(step_size)
        super().__init__(problem, controller, seed=seed)

    def _start_fit(self) -> None:
        self.anchor: Array = np.zeros(self.spec.theta_shape[1:])
        self.theta: Array = self.anchor.copy()
        self._stage = 2
        self._start_stage()

    def _start_stage(self) -> None:
        self._slope, self._n = np.zeros_like(self.anchor), 0

    def _add(self, vectors: Array, blocks: IntArray, targets: Array) -> None:
        for phi, block, y in zip(vectors, blocks.tolist(), targets.tolist(), strict=True):
            self._n += 1
            half = self._stage // 2
            if self._n <= half:
                self._slope[block] += (y - float(phi @ self.anchor[block])) * phi / half
                continue
            away = float(phi @ (self.theta[block] - self.anchor[block]))
            self.theta += self.step_size * self._slope
            self.theta[block] -= self.step_size * away * phi
            if self._n == self._stage:
                self.anchor = self.theta.copy()
                self._stage *= 2
                self._start_stage()

    def _fitted(self) -> Array:
        return self.anchor.copy()

    @property
    def _fit_nbytes(self) -> int:
        return self.anchor.nbytes + self.theta.nbytes + self._slope.nbytes
