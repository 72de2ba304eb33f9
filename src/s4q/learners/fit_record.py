"""Fit records: what a collector returned for the regressions of a run, for an audit.

`run(record=True)` fills them from the answers of the collector, so they do not depend on what the learner makes of
them. Nothing else reads them.
"""

from dataclasses import dataclass
from typing import Annotated, final

import numpy as np

from s4q.core.blocks import Array, IntArray
from s4q.core.codec import Positive
from s4q.core.linear_q import LinearQ
from s4q.core.messages import Regress, Regression


@final
@dataclass(frozen=True, eq=False, slots=True)
class FitRecord:
    """The answers to one regression request, added up."""

    request: int  # its id
    phase: Positive  # the phase that the fit is for; with S3Q the epoch
    level: int
    n_episodes: int  # played
    per_policy: Annotated[
        IntArray, "n"
    ]  # how many of them by the policy of phase 1, 2, ...; the last entry: by none of these
    gram: Annotated[Array, "B K K"]  # sum of phi phi^T
    moment: Annotated[Array, "B K"]  # sum of phi y

    def __add__(self, other: "FitRecord") -> "FitRecord":
        """Two answers to one request."""
        sums = {name: getattr(self, name) + getattr(other, name) for name in _SUMS}
        return FitRecord(request=self.request, phase=self.phase, level=self.level, **sums)


_SUMS = ("n_episodes", "per_policy", "gram", "moment")


def add_answer(
    fits: list[FitRecord], phase: int, policies: list[LinearQ], request: Regress, answer: Regression
) -> None:
    """Add an answer to the record of its request, which is the last of `fits` or a new one.

    policies: those of phases 1, 2, ..., by which the episodes are counted.
    """
    new = FitRecord(
        request=request.id,
        phase=phase,
        level=request.level,
        n_episodes=answer.n_episodes,
        per_policy=_by_phase(policies, request, answer),
        gram=answer.moments.gram,
        moment=answer.moments.moment,
    )
    if fits and fits[-1].request == request.id:
        fits[-1] = fits[-1] + new
    else:
        fits.append(new)


def _by_phase(policies: list[LinearQ], request: Regress, answer: Regression) -> IntArray:
    """Episodes by the first phase that had the policy."""
    counts = np.zeros(len(policies) + 1, dtype=np.int64)
    for policy, n in zip(request.mixture.policies, answer.episodes_per_policy.tolist(), strict=True):
        if n:
            counts[_first(policies, policy)] += n
    return counts


def _first(policies: list[LinearQ], policy: object) -> int:
    """The first phase with this policy: the object itself or one with equal parameters, as the memory merges those."""
    for j, one in enumerate(policies):
        if one is policy:
            return j
    same = (j for j, one in enumerate(policies) if isinstance(policy, LinearQ) and one.same_as(policy))
    return next(same, len(policies))
