"""The learning curve: its points, and the returns of what was played between two of them."""

from dataclasses import dataclass
from typing import final

from s4q.core.messages import Spec, Visits


@final
@dataclass(frozen=True, slots=True)
class Point:
    """One row of the learning curve: where a run stood when a phase (for S3Q an epoch) was finished."""

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
    mean_return: float | None = None  # of the phase's main-loop episodes, in the user's units; None: there were none
    mean_length: float | None = None  # in steps, of the same
    evaluation_episodes: int = 0  # of evaluations (Evaluate), from which nothing is learned


@final
@dataclass(frozen=True, slots=True)
class Played:
    """What episodes of main loops came to.

    >>> import s4q
    >>> Played(episodes=4, steps=10, return_sum=2.0).mean_return(s4q.problems.chain().spec)
    0.5
    """

    episodes: int = 0
    steps: int = 0
    return_sum: float = 0.0  # in shifted rewards

    def with_answer(self, answer: Visits) -> "Played":
        """And these episodes."""
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
