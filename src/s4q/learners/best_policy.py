"""The policy to keep: the one whose own returns speak best for it, by a lower confidence bound.

With features that are not exact the newest policy is not always the best: a fit can be spoiled by what it cannot
represent. S4Q tells this module of every finished phase and asks it which policy to deploy. Exploration asks only
whether the returns of that policy refute what a newer one promised.
"""

from dataclasses import dataclass, replace
from math import sqrt
from typing import final

from s4q.core.codec import Positive
from s4q.core.linear_q import LinearQ
from s4q.core.messages import sum_if_known
from s4q.learners.main_loop import PhaseRecord

_TIE = 1e-9  # of the value bound: closer than this is equal, and the newer one is better; else rounding would decide
_STANDARD_ERRORS = 2.0  # below the mean
_LEAST_SHARE = 0.01  # of the variance of all returns: the policies differ by so much at least
_PRIOR_SAMPLES = 30.0  # weight of the variance within all policies in that of one: 14 wins in a row say little of it


@final
@dataclass(frozen=True, eq=False, slots=True)
class Candidate:
    """A policy and the returns of its main loop, for rewards shifted to start at 0."""

    policy: LinearQ
    phase: Positive
    n_episodes: Positive
    return_sum: float
    return_sum_sq: float | None  # None where the collector cannot tell

    @classmethod
    def of(cls, record: PhaseRecord) -> "Candidate":
        """The policy of a phase that has played an episode to its end. Episodes that were cut are left out."""
        return cls(record.q, record.phase, record.n_returns, record.return_sum, record.return_sum_sq)

    def with_more(self, new: "Candidate") -> "Candidate":
        """The same policy with the returns of a later phase added."""
        return replace(
            self,
            phase=new.phase,
            n_episodes=self.n_episodes + new.n_episodes,
            return_sum=self.return_sum + new.return_sum,
            return_sum_sq=sum_if_known(self.return_sum_sq, new.return_sum_sq),
        )

    @property
    def mean(self) -> float:
        """Mean return."""
        return self.return_sum / self.n_episodes

    @property
    def squares(self) -> float:
        """Sum of squared deviations from the mean; 0 where the squares of returns are not known."""
        return 0.0 if self.return_sum_sq is None else max(self.return_sum_sq - self.return_sum * self.mean, 0.0)


@final
@dataclass(frozen=True, eq=False, slots=True)
class BestPolicy:
    """The best candidate so far, and what the returns of all candidates say of their variance.

    Policies differ by B, the variance between them, at least a hundredth of that of all returns. The returns of one
    policy differ by W, the variance within. Both come from the returns of all candidates. The mean of a candidate with
    n episodes is pulled towards the mean m of all:

        e = s^2 / n,   s^2 = ((n - 1) s_own^2 + 30 W) / (n + 29),   k = B / (B + e)
        worth = m + k (mean - m) - 2 sqrt(k e)

    So a single lucky episode wins where returns of one policy hardly vary, and loses where they vary as much as those
    of all. No number of episodes is asked for first. Where a collector cannot tell the squares of returns, a candidate
    is worth its mean less two standard errors of returns as far apart as the value bound allows.

    What it does not promise. The bound holds for one policy looked at once, not for the best of many. Only the best
    candidate is kept, so one that was put aside never comes back. Where a guarantee is wanted, evaluate the policy on
    episodes of their own.
    """

    value_bound: float  # of the returns
    best: Candidate | None = None
    n_candidates: int = 0
    n_episodes: int = 0
    return_sum: float = 0.0
    return_sum_sq: float | None = 0.0
    squares: float = 0.0  # squared deviations of returns from the mean of their own policy, added up

    def with_candidate(self, new: Candidate) -> "BestPolicy":
        """The same with one candidate more, or with more returns of the best one."""
        best = self.best
        seen = replace(
            self,
            n_episodes=self.n_episodes + new.n_episodes,
            return_sum=self.return_sum + new.return_sum,
            return_sum_sq=sum_if_known(self.return_sum_sq, new.return_sum_sq),
        )
        if best is not None and new.policy is best.policy:
            both = best.with_more(new)
            return replace(seen, best=both, squares=max(self.squares + both.squares - best.squares, 0.0))
        seen = replace(seen, n_candidates=self.n_candidates + 1, squares=self.squares + new.squares)
        better = best is None or seen.lower_bound(new) >= seen.lower_bound(best) - _TIE * self.value_bound
        return replace(seen, best=new) if better else seen

    def refutes(self, phase: PhaseRecord) -> bool:
        """True if the best policy returned more than the policy of the phase promised, bonus included.

        With exact features and a bonus that is wide enough the newest policy promises at least what any policy returns
        from the same start states. Where it does not, the fit is wrong and the returns are right. Where start states
        are random, a few bad ones can look the same; that costs one phase of the best policy.

        Args:
            phase: The last finished phase, which this object knows already.
        """
        if self.best is None or self.best.policy is phase.q or phase.start_value_sum is None or not phase.n_returns:
            return False
        return self.lower_bound(self.best) > phase.start_value_sum / phase.n_returns + _TIE * self.value_bound

    def lower_bound(self, one: Candidate) -> float:
        """What a candidate is worth, in shifted rewards."""
        n = one.n_episodes
        if self.return_sum_sq is None:
            return one.mean - _STANDARD_ERRORS * self.value_bound / 2 / sqrt(n)
        center = self.return_sum / self.n_episodes
        spread = max(self.return_sum_sq / self.n_episodes - center**2, 0.0)
        # Policies that have played once say nothing of the variance within: it begins as that of all returns.
        within = min((self.squares + spread) / (self.n_episodes - self.n_candidates + 1), spread)
        error = (one.squares + _PRIOR_SAMPLES * within) / (n - 1 + _PRIOR_SAMPLES) / n
        between = max(spread - within, _LEAST_SHARE * spread)
        trust = between / (between + error) if between > 0 else 0.0
        return center + trust * (one.mean - center) - _STANDARD_ERRORS * sqrt(trust * error)
