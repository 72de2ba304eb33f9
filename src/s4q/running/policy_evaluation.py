"""The mean return of a policy with an interval that is honest for few episodes.

`Agent.evaluate` and EvaluationCallback play the episodes; this file turns their sums into an Evaluation.
"""

from dataclasses import dataclass
from math import inf, isfinite, sqrt
from typing import cast, final

import numpy as np

from s4q.certificates.certifier import largest_return
from s4q.core.messages import Returns, Spec

_MISS = 0.05  # probability that the interval misses the mean
_ROUNDING = 1e-6  # returns that differ by less, relatively, count as equal


@final
@dataclass(frozen=True, slots=True)
class Evaluation:
    """The mean return of a policy, in the user's units. `Agent.evaluate` makes it.

    The interval is Student's, cut off at the returns that are possible; for skewed returns it is a little too short
    (92 % where one episode in ten loses, at 40 episodes). Where all returns are equal they do not show
    how far others may lie. Then the interval holds for whatever law: by the number n of episodes, other returns have
    together a probability of at most 1 - 0.05^(1/(n-1)), and may be as low or as high as an episode can return.

    Attributes:
        mean: Mean return of the episodes.
        low: Lower end of its 95 % interval; -inf where episodes were drawn as counts, whose spread is not known.
        high: Upper end; inf likewise.
        n_episodes: Episodes played to their end. Those that were cut before the horizon have no return.
        n_steps: Steps played.
    """

    mean: float
    low: float
    high: float
    n_episodes: int
    n_steps: int

    @classmethod
    def of(cls, seen: Returns, spec: Spec) -> "Evaluation":
        """The evaluation of episodes that were played. Where they were drawn as counts, there is no interval.

        Args:
            seen: Their sums.
            spec: The problem; it says which returns are possible.
        """
        if not seen.n_returns:
            raise ValueError(
                f"evaluate needs episodes that are played to their end, but all {seen.n_episodes} were cut before the "
                f"horizon {spec.horizon}; raise the env's time limit, or choose a shorter horizon"
            )
        # Counts do not tell the squares of returns, and without them the spread is not known.
        low, high = (-inf, inf) if seen.return_sum_sq is None else interval(seen, possible_return(seen, spec))
        shift = spec.horizon * spec.reward_min
        mean = seen.return_sum / seen.n_returns
        return cls(mean + shift, low + shift, high + shift, seen.n_returns, seen.n_steps)

    def __str__(self) -> str:
        spread = f", 95 % interval [{self.low:.6g}, {self.high:.6g}]" if isfinite(self.low) else ""
        return f"mean return {self.mean:.6g}{spread}, {self.n_episodes:,} episodes, {self.n_steps:,} steps"


def possible_return(seen: Returns, spec: Spec) -> float:
    """The largest return that is possible, in shifted rewards: the value bound, unless a return exceeded it."""
    bound = spec.value_bound[0]
    squares = cast(float, seen.return_sum_sq)
    # Returns within [0, bound] have squares of at most bound times themselves.
    return bound if squares <= bound * seen.return_sum * (1 + _ROUNDING) + 1e-12 else largest_return(spec)


def interval(seen: Returns, most: float) -> tuple[float, float]:
    """A 95 % interval for the mean of returns that lie in [0, most].

    Args:
        seen: Sums of the episodes.
        most: The largest return that is possible.

    >>> interval(Returns(2, 0.0, 0.0, None, 2), 1.0)  # two episodes that earned nothing say little
    (0.0, 0.95)
    """
    from scipy.special import stdtrit  # imported here, so that `import s4q` stays light

    n, mean = seen.n_returns, seen.return_sum / seen.n_returns
    if n == 1:
        return 0.0, max(most, mean)
    spread = max(cast(float, seen.return_sum_sq) / n - mean**2, 0.0)  # known wherever episodes are stepped
    if spread <= (_ROUNDING * mean) ** 2:
        others = 1 - _MISS ** (1 / (n - 1))
        return mean - others * mean, mean + others * max(most - mean, 0.0)
    error = float(stdtrit(n - 1, 1 - _MISS / 2)) * sqrt(spread / (n - 1))
    low, high = np.clip((mean - error, mean + error), 0.0, max(most, mean))
    return float(low), float(high)
