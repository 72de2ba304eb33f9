"""Memory: what S4Q remembers of its main loops, and what it fits a new policy to.

S4Q tells it of every answer and every finished phase, and asks it for the source of a new fit. There are two:
`PolicyReplayMemory` remembers policies, as the paper does; `StepMemory` remembers steps.
"""

from collections.abc import Sequence
from typing import Protocol

from s4q.core.blocks import Array
from s4q.core.least_squares import Moments
from s4q.core.linear_q import LinearQ
from s4q.core.messages import Mixture, Transitions
from s4q.core.optimism import QLevel
from s4q.learners.one_hot_fit import OneHotFits
from s4q.learners.presets import Constants


class HeldSamples(Protocol):
    """Samples of one new fit that a memory holds itself. Nothing is played."""

    def moments(self, level: int, target: QLevel | None) -> Moments:
        """Their sums for a fit of `level` with this target, the QLevel of level + 1; None after the last level.

        Levels are asked from the last to the first.
        """
        ...

    def all_levels(self, constants: Constants, ridge: Array) -> OneHotFits | None:
        """The fits of all levels in one go, as S3Q would make them of `moments`; None where there is no quick way.

        Args:
            constants: Of the S4Q; they say which bonus.
            ridge: Ridge of each level, (H,).
        """
        ...

    @property
    def grams(self) -> Array:
        """Sums of phi phi^T behind the fits: one a level, or one with pooled steps, (H or 1, n_blocks, k, k)."""
        ...

    def settle(self) -> None:
        """The fit is finished: its targets are those of the memory from now on."""
        ...


class Memory(Protocol):
    """What is remembered of past episodes."""

    @property
    def keeps_steps(self) -> bool:
        """Must a main loop return the steps of its episodes?"""
        ...

    @property
    def n_episodes(self) -> int:
        """Main-loop episodes it stands for."""
        ...

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        ...

    @property
    def policies(self) -> Sequence[LinearQ]:
        """The policies it holds; there may be none."""
        ...

    @property
    def sampled_steps(self) -> float | None:
        """Steps held for a level, on average, once steps were dropped; None if none was."""
        ...

    def require_fit(self, constants: Constants) -> None:
        """Refuse a memory of another problem, or of another kind than the constants say."""
        ...

    def add(self, kept: Transitions | None, n_episodes: int) -> None:
        """Take an answer of the main loop.

        Args:
            kept: The steps of its episodes; None if they were not asked for.
            n_episodes: Their number.
        """
        ...

    def append(self, policy: LinearQ, n_episodes: int) -> None:
        """A phase has ended.

        Args:
            policy: Its policy.
            n_episodes: Episodes of its main loop.
        """
        ...

    def source(self) -> HeldSamples | Mixture:
        """What a new policy is fitted to: samples that are held, or the controller whose replay gives them."""
        ...
