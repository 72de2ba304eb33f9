"""NoReplayS4Q: S4Q that keeps updating on the episodes of its newest policy and replays nothing. An ablation.

    sums = 0
    for phase p = 1, 2, ...:
        theta_h = constrained fit of the sums of level h
        Q_h = min(v_h, phi . theta_h + bonus_h);   pi = greedy policy of Q
        play pi until some direction has enough new data; for each step of level h
            sums_h += sample (phi_h, r + max_a' Q_{h+1}(s', a'))     # with the Q of this phase, never with a later one
        # where steps are pooled, every step is a sample of every level
        sums = keep * sums                                           # old updates are discounted; keep = 1: not at all

Bonus, trigger, ball and clipping are those of S4Q(memory="all"). With one level the two learn the same. One rule of S4Q
is not here: on groups of states (one-hot features that are not exact) it plays its best policy once more after a phase
whose returns refuted what it promised. NoReplayS4Q stores no policies and no steps. With keep = 1 the bonuses of early
phases stay in the weights, because the targets that held them are never made again. With keep < 1 they fade, and so
does everything learned along directions that are no longer played, while their bonus stays small: its covariance and
its variance are those of all samples, whatever their targets were.
"""

from dataclasses import replace
from typing import final

import numpy as np

from s4q.core.least_squares import Moments, constrained_fit
from s4q.core.linear_q import LinearQ
from s4q.core.messages import A, Asks, Explore, Spec, Visits
from s4q.core.optimism import QLevel
from s4q.core.spec import HasSpec, spec_of
from s4q.core.validation import require_count, require_share
from s4q.learners.bonus_rules import OwnGramBonus, fitted_level, zero_fit
from s4q.learners.main_loop import MainLoop
from s4q.learners.presets import PresetName, constants


@final
class NoReplayS4Q:
    """S4Q without policy replay; ask and tell.

    Args:
        problem: A Spec, or anything with `.spec`, such as a FiniteMDP.
        preset: Constants of S4Q. "realisable" by default.
        keep: Share of the sums that is kept from one phase to the next, in (0, 1]. 1 by default: no discounting.
        pool: True if every step is a sample for every level. None (default): as S4Q with this preset.

    >>> import s4q
    >>> mdp = s4q.problems.low_rank()
    >>> run = s4q.run(NoReplayS4Q(mdp), s4q.collectors.CountCollector(mdp, seed=0), episodes=10**4)
    >>> run.replay_episodes, run.phases > 5
    (0, True)
    """

    def __init__(
        self,
        problem: Spec | HasSpec,
        preset: PresetName = "realisable",
        *,
        keep: float = 1.0,
        pool: bool | None = None,
    ) -> None:
        require_share("keep", keep, "the share of the sums that a phase keeps", zero=False)
        self.keep = float(keep)
        self.constants = constants(spec_of(problem), preset, memory="all", pool=pool)
        nothing = Moments.zeros(self.spec.n_blocks, self.spec.block_dim)
        self.sums = [nothing] * self.spec.horizon  # discounted: what is fitted
        # Undiscounted: what the bonus is made of. Without discounting they are the same.
        self._all = self.sums if keep == 1 else [nothing] * self.spec.horizon
        self.n_episodes = self.phases = 0
        self._begin_phase()

    @property
    def spec(self) -> Spec:
        """The numbers of the problem."""
        return self.constants.spec

    @property
    def q(self) -> LinearQ:
        """The optimistic Q of the running phase."""
        return self._loop.q

    @property
    def policy(self) -> LinearQ:
        """The greedy policy of `q`."""
        return self._loop.q

    @property
    def nbytes(self) -> int:
        """Bytes held by the learner's arrays."""
        held = self.sums if self._all is self.sums else [*self.sums, *self._all]
        return sum(one.nbytes for one in held) + self._loop.nbytes

    def __repr__(self) -> str:
        return f"NoReplayS4Q({self.n_episodes} episodes, {self.phases} phases, {self.nbytes} bytes)"

    def ask(self, max_episodes: int) -> Explore:
        """The next request: the main loop of the phase. Changes nothing.

        Args:
            max_episodes: The most episodes it may ask for.
        """
        require_count("max_episodes", max_episodes, "the budget left")
        threshold = self.constants.threshold(self.phases + 1, replaying=False)
        return self._loop.request(self.phases, threshold, max_episodes, keep=True)

    def tell(self, request: Asks[A], answer: A) -> None:
        """Add the samples of a request, or of a part of it, with the targets of this phase.

        Args:
            request: The request that was asked last.
            answer: What a collector answered.
        """
        if not (isinstance(request, Explore) and isinstance(answer, Visits) and answer.kept is not None):
            raise ValueError(f"{type(answer).__name__} does not answer the open request; tell what was asked last")
        answer.kept.require_fit(self.spec)
        triggered = self._loop.add(request, answer)
        self.n_episodes += answer.n_episodes
        for h in range(self.spec.horizon):
            target = self.q.levels[h + 1] if h + 1 < self.spec.horizon else None
            here = answer.kept.levels == h
            samples = answer.kept if self.constants.pool else answer.kept.rows(np.flatnonzero(here))
            added = samples.moments(self.spec, h, target)
            self.sums[h] = self.sums[h] + added
            if self._all is not self.sums:
                self._all[h] = self._all[h] + added
        if triggered:
            self.phases += 1
            if self.keep < 1:
                self.sums = [_scaled(one, self.keep) for one in self.sums]
            self._begin_phase()

    def _begin_phase(self) -> None:
        spec, phase = self.spec, self.phases + 1
        ridge = self.constants.ridge(phase, self.n_episodes)
        bonus = OwnGramBonus(self.constants, phase, self.n_episodes, ridge)
        radius, levels = self.constants.radius(), list[QLevel]()
        for h in reversed(range(spec.horizon)):
            theta = constrained_fit(self.sums[h], float(ridge[h]), radius[h])
            levels.insert(0, fitted_level(spec, h, theta, self._all[h], bonus))
        q = LinearQ(levels) if self.n_episodes else zero_fit(spec, bonus)
        grams = np.stack([one.gram for one in (self._all[:1] if self.constants.pool else self._all)])
        self._loop = MainLoop(phase, q, ridge, grams, np.zeros(spec.horizon))


def _scaled(sums: Moments, share: float) -> Moments:
    """The same sums, each sample counted `share` times."""
    return replace(
        sums,
        gram=share * sums.gram,
        moment=share * sums.moment,
        moment_sq=share * sums.moment_sq,
        sum_y2=share * sums.sum_y2,
        n=round(share * sums.n),
    )
