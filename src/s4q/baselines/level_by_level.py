"""LevelByLevel: the loops of S3Q around another fit of a level. The ablations of its second-order step use it.

    for epoch e = 1, 2, ...:
        for level l = H, ..., 1:
            forget the samples of the level before
            for 2^e episodes of the controller:
                hand the sample  (phi_l(s, a), r + max_a' Qtar_{l+1}(s', a'))  to the fit
            Qtar_l = phi . theta of the fit
        Qbest = Qtar

Controller, targets and epochs are those of S3Q; only the fit differs, and it sees one sample after the other. The
samples of an answer are read in a random order, because a collector that counts returns them sorted. Those of one level
are independent, so a random order has the law of episodes that were played one by one.
"""

from abc import abstractmethod

import numpy as np

from s4q.baselines.episode_learner import EpisodeLearner
from s4q.baselines.random_numbers import learner_rng
from s4q.core.blocks import Array, IntArray, Phi
from s4q.core.linear_q import LinearQ
from s4q.core.messages import Policy, Spec, Transitions, Visits
from s4q.core.optimism import QLevel
from s4q.core.policies import require_policy
from s4q.core.spec import HasSpec, spec_of
from s4q.core.transitions import regression_targets
from s4q.core.validation import require_count


class LevelByLevel(EpisodeLearner):
    """Learns Q* from a fixed controller, level by level.

    Args:
        problem: A Spec, or anything with `.spec`, such as a FiniteMDP.
        controller: The policy that plays.
        seed: Seed of the order in which counted samples are read.
    """

    def __init__(self, problem: Spec | HasSpec, controller: Policy, *, seed: int = 0) -> None:
        spec = spec_of(problem)
        require_policy("controller", controller)
        require_count("seed", seed, "the seed of the order of samples", at_least=0)
        self.controller, self.seed = controller, int(seed)
        self.epoch, self.level = 1, spec.horizon - 1
        self._targets: list[QLevel] = []  # of the levels that are fitted: level + 1, ..., H - 1
        self._best = LinearQ.from_arrays(np.zeros(spec.theta_shape))
        self._begun = False
        super().__init__(spec)

    @abstractmethod
    def _start_fit(self) -> None:
        """Forget all samples."""

    @abstractmethod
    def _add(self, vectors: Array, blocks: IntArray, targets: Array) -> None:
        """Take samples, one after the other.

        Args:
            vectors: Features, (n, k).
            blocks: The block each of them stands in, (n,).
            targets: y, (n,).
        """

    @abstractmethod
    def _fitted(self) -> Array:
        """The parameter (n_blocks, k) for the samples so far."""

    def _choose(self) -> tuple[LinearQ, Policy, int]:
        if self._begun:
            self._finish_level()
        self._begun = True
        self._start_fit()
        return self._best, self.controller, 2**self.epoch

    def _finish_level(self) -> None:
        theta = self._fitted()
        self._require_finite(theta)
        self._targets.insert(0, QLevel(theta))
        self.level -= 1
        if self.level < 0:
            self._best, self._targets = LinearQ(self._targets), []
            self.level = self.spec.horizon - 1
            self.epoch += 1
            self.phases += 1

    def _take(self, steps: Transitions, answer: Visits) -> None:
        del answer
        here = np.flatnonzero(steps.levels == self.level)
        steps = steps.rows(here)
        after = np.zeros(len(here))
        if self._targets and len(here):
            after = self._targets[0].value(Phi(steps.next_vectors, steps.next_blocks))
        targets = regression_targets(self.spec, self.level, steps.rewards, steps.ended, after)
        # Counted samples come sorted, and a first-order fit depends on their order.
        order = learner_rng(self.seed, self.n_episodes).permutation(np.repeat(np.arange(len(here)), steps.weights))
        self._add(steps.vectors[order], steps.blocks[order], targets[order])

    @property
    def nbytes(self) -> int:
        """Bytes held by the learner's arrays."""
        targets = LinearQ(self._targets).nbytes if self._targets else 0
        return self._best.nbytes + targets + self._metric.nbytes + self._fit_nbytes

    @property
    @abstractmethod
    def _fit_nbytes(self) -> int:
        """Bytes held by the fit in progress."""
