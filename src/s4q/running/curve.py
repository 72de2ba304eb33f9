"""The learning curve: its points, and the returns of what was played between two of them.

The accounting of a run makes them, logs write them, checkpoints keep them.
"""

from dataclasses import dataclass
from typing import final

from s4q.core.codec import Reader
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
    mean_length: float | None = None  # in steps, of the same
    evaluation_episodes: int = 0  # of evaluations (Evaluate), from which nothing is learned


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Point(Totals):
    """One row of the learning curve: the totals of a run when a phase (for S3Q an epoch) was finished."""

    @classmethod
    def from_state(cls, row: Reader) -> "Point":
        """From a checkpoint."""
        return cls(
            episodes=row.integer("episodes"),
            main_episodes=row.integer("main_episodes"),
            replay_episodes=row.integer("replay_episodes"),
            steps=row.integer("steps"),
            phases=row.integer("phases"),
            regret=row.number("regret") if row.has("regret") else None,
            gap=row.number("gap") if row.has("gap") else None,
            optimistic_value=row.number("optimistic_value") if row.has("optimistic_value") else None,
            nbytes=row.integer("nbytes"),
            cpu_seconds=row.number("cpu_seconds"),
            mean_return=row.number("mean_return") if row.has("mean_return") else None,
            mean_length=row.number("mean_length") if row.has("mean_length") else None,
            evaluation_episodes=row.integer("evaluation_episodes"),
        )


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
    return_sum: float = 0.0  # in shifted rewards

    @classmethod
    def from_state(cls, row: Reader) -> "Played":
        """From a checkpoint."""
        return cls(row.integer("episodes"), row.integer("steps"), row.number("return_sum"))

    def with_answer(self, answer: Visits) -> "Played":
        """The totals with the episodes of `answer` added."""
        return Played(
            self.episodes + answer.n_episodes, self.steps + answer.n_steps, self.return_sum + answer.return_sum
        )

    def mean_return(self, spec: Spec) -> float | None:
        """In the user's units; None without episodes."""
        return self.return_sum / self.episodes + spec.horizon * spec.reward_min if self.episodes else None

    @property
    def mean_length(self) -> float | None:
        """In steps; None without episodes."""
        return self.steps / self.episodes if self.episodes else None
