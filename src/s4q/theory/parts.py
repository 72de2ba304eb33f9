"""Parts: a claim split by phase and level, so that a row of the audit can name the place nearest to failing."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from s4q.theory.lemmas import Claim, Worst, claim

FAILS = np.inf  # measured where something happened that cannot happen


class Part(NamedTuple):
    """The entries of a claim that belong to one phase (with S3Q: one epoch) and level."""

    claim: Claim
    phase: int | None = None  # None: about the run as a whole
    level: int | None = None
    low: float = -np.inf  # what is measured lies between these two whatever happens:
    high: float = np.inf  # a bound beyond them says nothing

    @property
    def place(self) -> str:
        """For example "phase 3, level 0"; empty for the whole run."""
        named = (("phase", self.phase), ("level", self.level))
        return ", ".join(f"{word} {number}" for word, number in named if number is not None)

    def says_nothing(self, worst: Worst) -> bool:
        """Is this bound weaker than what is true anyway?"""
        return worst.bound <= self.low if worst.above else worst.bound >= self.high


def joined(parts: Sequence[Part]) -> Claim:
    """All entries in one claim."""
    if not parts:
        return claim([], [])
    columns = zip(*(part.claim for part in parts), strict=True)
    return Claim(*(np.concatenate([np.ravel(x) for x in column]) for column in columns))


def home(parts: Sequence[Part], worst: Worst) -> Part:
    """The part that holds the worst entry of all."""
    for part in parts:
        end = part.claim.low if worst.above else part.claim.high
        same = np.asarray(part.claim.measured) == worst.measured
        if np.isnan(worst.measured):
            same = np.isnan(part.claim.measured)
        if np.any(same & (np.asarray(end) == worst.bound)):
            return part
    raise ValueError(f"no part holds {worst}")
