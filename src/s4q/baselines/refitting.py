"""RefitLearner: what LSVI-UCB, RLSVI and fitted Q iteration share. Keep every step, and fit all levels anew.

    keep all steps of all episodes
    for h = H-1, ..., 0:
        theta_h = ridge regression of  r + max_a' Q_{h+1}(s', a')  on  phi_h(s, a), over all steps of level h
        Q_h = phi . theta_h, changed as the learner wants (a bonus, a perturbation, or not at all)

Equal steps are held once, with a count, and each next state is evaluated once a fit. On a table the memory and the cost
of a fit therefore stop growing; elsewhere both grow with the number of episodes.
"""

from abc import abstractmethod
from dataclasses import fields
from math import log
from typing import Literal, get_args

import numpy as np

from s4q.baselines.episode_learner import EpisodeLearner, one_percent
from s4q.core.blocks import Array
from s4q.core.least_squares import Moments, ridge_fit
from s4q.core.linear_q import LinearQ
from s4q.core.messages import Policy, Spec, Transitions, Visits
from s4q.core.optimism import QLevel
from s4q.core.spec import HasSpec, spec_of
from s4q.core.validation import require_flag, require_positive
from s4q.learners.step_memory import StepMemory

_MOST_WAITING = 64  # answers whose steps wait to be added to the memory

Switch = Literal["every_episode", "one_percent", "determinant"]


class RefitLearner(EpisodeLearner):
    """Least-squares value iteration on all steps so far.

    Args:
        problem: A Spec, or anything with `.spec`, such as a FiniteMDP.
        ridge: Added to the diagonal of every Gram matrix.
        switch: When a new policy is fitted. "every_episode"; "one_percent": after 1 % more episodes; "determinant":
            when the determinant of some level's Gram matrix has doubled.
        pool: True if every step is a sample for every level. The problem must then be stationary.
    """

    def __init__(self, problem: Spec | HasSpec, *, ridge: float, switch: Switch, pool: bool) -> None:
        spec = spec_of(problem)
        require_positive("ridge", ridge, "added to the Gram matrix")
        require_flag("pool", pool, "is every step a sample for every level?")
        if pool and not spec.stationary:
            raise ValueError("pool=True needs a problem that is the same at every level; pass pool=False")
        if switch not in get_args(Switch):
            raise ValueError(f"switch must be one of {', '.join(get_args(Switch))}; got {switch!r}")
        self.ridge, self.switch = float(ridge), switch
        self.memory = StepMemory(spec, pool, max_bytes=None)
        self._waiting: list[Transitions] = []  # steps that are not in the memory yet: added together, which is cheaper
        self._n_waiting = 0  # their episodes
        self.grams: Array = np.zeros((1 if pool else spec.horizon, *spec.gram_shape))  # of all steps
        self._fitted_log_dets: Array | None = None  # of the Gram matrices of the running policy
        super().__init__(spec, pool=pool)

    @abstractmethod
    def _level(self, h: int, theta: Array, moments: Moments) -> QLevel:
        """Q_h of a fitted parameter (n_blocks, k).

        Args:
            h: The level.
            theta: The ridge fit.
            moments: The sums that were fitted.
        """

    def _behaviour(self, q: LinearQ) -> Policy:
        """The policy that plays a new Q: the greedy one, unless a learner says otherwise."""
        return q

    def _choose(self) -> tuple[LinearQ, Policy, int]:
        before, now = self._fitted_log_dets, self._log_dets() if self.switch == "determinant" else None
        if before is not None and now is not None and (now < before + log(2)).all():
            return self._q, self._played_policy, 1
        self._fitted_log_dets = now
        q = self._fit()
        return q, self._behaviour(q), one_percent(self.n_episodes) if self.switch == "one_percent" else 1

    def _fit(self) -> LinearQ:
        """All levels, from the last to the first."""
        self._store()
        samples = self.memory.source()
        nothing = Moments.zeros(self.spec.n_blocks, self.spec.block_dim)
        levels: list[QLevel] = []
        for h in reversed(range(self.spec.horizon)):
            moments = samples.moments(h, levels[0] if levels else None) if self.memory.n_episodes else nothing
            levels.insert(0, self._level(h, ridge_fit(moments, self.ridge), moments))
        return LinearQ(levels)

    def _log_dets(self) -> Array:
        """log det of gram + ridge I at each level."""
        shifted = self.grams + self.ridge * np.eye(self.spec.block_dim)
        return np.asarray(np.linalg.slogdet(shifted)[1].sum(axis=-1))

    def _take(self, steps: Transitions, answer: Visits) -> None:
        self._waiting.append(steps)
        self._n_waiting += answer.n_episodes
        self.grams = self.grams + answer.grams
        if len(self._waiting) == _MOST_WAITING:
            self._store()

    def _store(self) -> None:
        """Add the steps that wait to the memory."""
        if self._waiting:
            self.memory.add(Transitions.concatenate(self._waiting), self._n_waiting)
            self._waiting, self._n_waiting = [], 0

    @property
    def nbytes(self) -> int:
        """Bytes held by the learner's arrays: all steps, and the newest Q."""
        waiting: int = sum(getattr(part, one.name).nbytes for part in self._waiting for one in fields(part))
        return self.memory.nbytes + waiting + self.grams.nbytes + self._base_nbytes
