"""Evaluations: the share of a run that plays the newest policy for the certificate and for nothing else.

The run asks for them, not the learner, which never hears of them. After every shard of the learner they are brought up
to their share, so that they keep it at any moment at which a run may stop.
"""

from collections.abc import Mapping
from fractions import Fraction
from typing import Protocol, final

from s4q.core.messages import Evaluate, Returns
from s4q.core.policies import Policy
from s4q.learners.main_loop import PhaseRecord


class Evaluated(Protocol):
    """What evaluations read of an S4Q."""

    @property
    def policy(self) -> Policy: ...
    @property
    def n_episodes(self) -> int: ...
    @property
    def last_phase(self) -> PhaseRecord | None: ...
    @property
    def open_phase(self) -> PhaseRecord | None: ...


@final
class Schedule:
    """How many episodes are due to evaluations, in whole numbers: never more than their share, at the end all of it.

    >>> schedule = Schedule(0.3, budget=10)
    >>> [schedule.due(learned) for learned in range(8)]
    [0, 0, 0, 1, 1, 2, 2, 3]
    """

    def __init__(self, share: float, budget: int) -> None:
        exact = Fraction(str(float(share)))  # 0.29 of 100 are 29 and not 28
        self._per_learned = exact / (1 - exact)
        self.total = int(exact * budget)
        self._learned = budget - self.total

    def due(self, learned: int) -> int:
        """Episodes of evaluations that belong to so many of the learner."""
        return self.total if learned >= self._learned else min(self.total, int(self._per_learned * learned))


@final
class Evaluations:
    """Asks for the evaluations of one run and keeps what they came to, phase by phase.

    keep_all: of every phase, not only of the newest.
    """

    def __init__(
        self,
        learner: Evaluated,
        schedule: Schedule,
        learned: int,
        n_episodes: int = 0,
        by_phase: Mapping[int, Returns] | None = None,
        *,
        keep_all: bool = False,
    ) -> None:
        self._learner, self._schedule = learner, schedule
        # Every run has an id of its own, as it learns something before it evaluates. 0 is left to others.
        self._id = 1 + learner.n_episodes - learned
        self._keep_all = keep_all
        self.n_episodes = n_episodes  # so far, in this run
        self.by_phase = dict(by_phase or {})

    @property
    def phase(self) -> int:
        """The phase whose policy is the newest."""
        newest = self._learner.open_phase or self._learner.last_phase
        return 0 if newest is None else newest.phase

    def ask(self, learned: int) -> Evaluate | None:
        """What is due after so many episodes of the learner in this run; None when nothing is."""
        due = self._schedule.due(learned) - self.n_episodes
        return Evaluate(self._id, self._learner.policy, due, done=self.n_episodes) if due > 0 else None

    def reserved(self) -> int:
        """Episodes of the budget that are not the learner's."""
        return max(self._schedule.total - self.n_episodes, 0)

    def tell(self, answer: Returns) -> None:
        """Take what an evaluation came to."""
        phase, so_far = self.phase, self.by_phase.get(self.phase)
        if not self._keep_all:
            self.by_phase.clear()
        self.by_phase[phase] = answer if so_far is None else so_far + answer
        self.n_episodes += answer.n_episodes
