"""The learning curve: its points, and the returns of what was played between two of them.

The accounting of a run makes them, logs write them, checkpoints keep them.
"""

from dataclasses import dataclass
from typing import final

from s4q.core.messages import Spec, Visits


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """The numbers that a Run and each point of its curve have in common."""

    episodes: int
    main_episodes: int  # of main loops (Explore)
    replay_episodes: int  # of regressions (Regress): for S4Q the price of bounded memory
    steps: int
    phases: int
    regret: float | None  # None where the problem is not a FiniteMDP
    gap: float | None  # v_star - value of the phase's policy (at the end: of the newest)
    optimistic_value: float | None  # what the learner's Q promises at the start
    nbytes: int  # held by the learner
    cpu_seconds: float
    mean_return: float | None = None  # of main-loop episodes (a point: those of its phase), in the user's units
    mean_length: float | None = None  # in steps, of the same and of those that were cut
    evaluation_episodes: int = 0  # of evaluations (Evaluate), from which nothing is learned
    discarded_episodes: int = 0  # played ahead by an executor and not used, in none of the numbers above
    warm_up_episodes: int = 0  # that measured the ranges of observations, from which nothing else is learned
    truncated_episodes: int = 0  # of main loops, that were cut before their horizon
    promise: float | None = None  # what the policy promised at the start of these episodes, in the user's units
    share_seen: float | None = None  # of the directions of the features, 0 to 1; of S4Q alone
    best_return: float | None = None  # mean return of the best policy so far, by its own episodes; of S4Q alone


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Point(Totals):
    """One row of the learning curve: the totals of a run when a phase (for S3Q an epoch) was finished."""


@final
@dataclass(frozen=True, slots=True)
class Played:
    """Number, steps and returns of episodes of main loops.

    >>> import s4q
    >>> Played(episodes=4, steps=10, return_sum=2.0).mean_return(s4q.problems.chain().spec)
    0.5
    """

    episodes: int = 0
    steps: int = 0
    return_sum: float = 0.0  # in shifted rewards, of the episodes that were not cut
    truncated: int = 0  # episodes that were cut before their horizon

    def with_answer(self, answer: Visits) -> "Played":
        """The totals with the episodes of `answer` added."""
        return Played(
            self.episodes + answer.n_episodes,
            self.steps + answer.n_steps,
            self.return_sum + answer.return_sum,
            self.truncated + answer.n_truncated,
        )

    def mean_return(self, spec: Spec) -> float | None:
        """In the user's units, of the episodes that were not cut; None without any."""
        known = self.episodes - self.truncated
        return self.return_sum / known + spec.horizon * spec.reward_min if known else None

    @property
    def mean_length(self) -> float | None:
        """In steps, of all episodes, cut ones included; None without any."""
        return self.steps / self.episodes if self.episodes else None
