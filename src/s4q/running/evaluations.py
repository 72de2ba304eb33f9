"""Evaluations: the share of a run that plays the newest policy for the certificate and for nothing else.

The run asks for them, not the learner, which is never told of them. After every shard of the learner they are brought
up to their share, so that they have it whenever the run stops.
"""

from fractions import Fraction
from typing import Protocol, final

from s4q.core.messages import Evaluate, Returns
from s4q.core.policies import Policy
from s4q.learners.main_loop import PhaseRecord
from s4q.running.progress import Progress


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
    """The number of episodes that evaluations are to have: never more than their share, and all of it at the end.

    Args:
        share: Share of all episodes, in [0, 1).
        budget: Number of all episodes.

    >>> schedule = Schedule(0.3, budget=10)
    >>> [schedule.due(learned) for learned in range(8)]
    [0, 0, 0, 1, 1, 2, 2, 3]
    """

    def __init__(self, share: float, budget: int) -> None:
        exact = Fraction(str(float(share)))  # in floats 0.29 of 100 would be 28
        self._per_learned = exact / (1 - exact)
        self.total = int(exact * budget)
        self._learned = budget - self.total

    def due(self, learned: int) -> int:
        """Episodes that evaluations are to have after `learned` episodes of the learner."""
        return self.total if learned >= self._learned else min(self.total, int(self._per_learned * learned))


@final
class Evaluations:
    """Asks for the evaluations of one run and keeps their returns by phase: of the newest one, or of all for a record.

    Args:
        learner: The S4Q that learns. Any other learner will do where the share is 0.
        before: How far the run has come; it holds the share and the budget.
    """

    def __init__(self, learner: Evaluated, before: Progress) -> None:
        self._learner, self._schedule = learner, Schedule(before.evaluation_share, before.budget)
        learned = before.episodes - before.evaluation_episodes - before.warm_up_episodes
        # Every run has an id of its own, because it learns something before it evaluates. 0 is left to `Agent`.
        self._id = 1 + getattr(learner, "n_episodes", 0) - learned
        self._keep_all = before.record is not None
        self.n_episodes = before.evaluation_episodes  # so far, in this run
        self.by_phase = dict(before.evaluations)

    @property
    def phase(self) -> int:
        """The phase whose policy is the newest."""
        newest = self._learner.open_phase or self._learner.last_phase
        return 0 if newest is None else newest.phase

    def ask(self, learned: int) -> Evaluate | None:
        """The evaluation that is due after `learned` episodes of the learner in this run, if any."""
        due = self._schedule.due(learned) - self.n_episodes
        return Evaluate(self._id, self._learner.policy, due, done=self.n_episodes) if due > 0 else None

    def reserved(self) -> int:
        """Episodes of the budget that are still left to evaluations."""
        return max(self._schedule.total - self.n_episodes, 0)

    def tell(self, answer: Returns) -> None:
        """Add the answer to an evaluation."""
        phase, so_far = self.phase, self.by_phase.get(self.phase)
        if not self._keep_all:
            self.by_phase.clear()
        self.by_phase[phase] = answer if so_far is None else so_far + answer
        self.n_episodes += answer.n_episodes
