"""Signs: what a run of S4Q has shown so far, in a few numbers from which `diagnose` tells trouble.

S4Q tells it of every finished phase and of every kept transition. It never asks it: learning does not depend on it.
Its size does not grow with the episodes, and a checkpoint holds it.
"""

from dataclasses import dataclass, replace
from math import sqrt
from typing import final

import numpy as np

from s4q.core.blocks import BoolArray
from s4q.core.codec import Positive
from s4q.core.messages import Spec, Transitions
from s4q.learners.level_sums import LevelSums
from s4q.learners.main_loop import PhaseRecord

SURE = 4.0  # standard errors: one policy of thousands exceeds this by chance


@final
@dataclass(frozen=True, slots=True)
class ProvenReturn:
    """The mean return of a policy, and what it surely is at least; rewards are shifted to start at 0."""

    phase: Positive
    n_episodes: Positive
    mean: float
    lower: float


@final
@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Signs:
    """Numbers over all finished phases and all kept transitions."""

    best: ProvenReturn | None = None  # the phase with the highest lower bound on its mean return
    largest_return: float = 0.0  # some return was at least this
    n_compared: int = 0  # kept steps whose next features were compared over actions
    actions_differ: bool = False  # did the features of two actions ever differ?
    by_level: LevelSums | None = None  # only with pooled steps that are kept

    @classmethod
    def of(cls, spec: Spec, by_level: bool) -> "Signs":
        """Nothing seen yet."""
        return cls(by_level=LevelSums.of(spec) if by_level else None)

    @property
    def nbytes(self) -> int:
        """Bytes held by the arrays."""
        return 0 if self.by_level is None else self.by_level.nbytes

    def with_phase(self, record: PhaseRecord, bound: float) -> "Signs":
        """The same with one phase more, which has played at least one episode to its end. bound: of the returns."""
        mean = record.return_sum / record.n_returns
        new = ProvenReturn(record.phase, record.n_returns, mean, mean - SURE * standard_error(record, bound))
        best = new if self.best is None or new.lower > self.best.lower else self.best
        return replace(self, best=best, largest_return=max(self.largest_return, some_return(record)))

    def with_steps(self, kept: Transitions, horizon: int) -> "Signs":
        """The same with the steps of some episodes more, which still carry their levels; sums by level are written."""
        if self.by_level is not None:
            self.by_level.add(kept, horizon)
        goes_on = ~kept.ended & (kept.levels < horizon - 1)
        differ = self.actions_differ or _actions_differ(kept, goes_on)
        return replace(
            self,
            n_compared=self.n_compared + int(kept.weights[goes_on].sum()),
            actions_differ=differ,
        )


def some_return(record: PhaseRecord) -> float:
    """A number that at least one return of the phase has reached: no return is negative, so E R^2 <= max R E R."""
    mean = record.return_sum / record.n_returns
    if record.return_sum_sq is None or record.return_sum <= 0:
        return mean
    return max(mean, record.return_sum_sq / record.return_sum)


def standard_error(record: PhaseRecord, bound: float) -> float:
    """Of the mean return, for few episodes rather too large; the largest it can be where squares are not known."""
    n, mean = record.n_returns, record.return_sum / record.n_returns
    if record.return_sum_sq is None or n < 2:
        # Returns in [0, bound] with this mean have at most this variance; the mean itself is not known exactly.
        near = mean + np.sign(bound / 2 - mean) * min(abs(bound / 2 - mean), bound / sqrt(n))
        return sqrt(max(near * (bound - near), 0.0) / n) + bound / n
    variance = max(record.return_sum_sq / n - mean**2, 0.0)
    return sqrt(variance / (n - 1)) + bound / n


def _actions_differ(kept: Transitions, rows: BoolArray) -> bool:
    reached = np.unique(kept.next_states[rows])
    vectors, blocks = kept.state_vectors[reached], kept.state_blocks[reached]
    return bool((vectors != vectors[:, :1]).any() or (blocks != blocks[:, :1]).any())
