"""Bounds on a mean that hold at every sample size at once, so also at a random one that depends on the samples.

X_1, X_2, ... are independent with the same mean mu and lie in [0, 1]; S = X_1 + ... + X_n. Each bound fails at *any* n
with probability at most delta. The proofs are short: a product that is 1 on average or less, step after step (a
supermartingale), exceeds 1/delta at any time with probability at most delta (Ville's inequality); a weighted mean of
such products is one of them (Robbins 1970).
"""

from collections.abc import Callable
from math import exp, inf, log, log1p, sqrt

# The largest bet b with b >= 2 psi(b), rounded down: what it wins grows with a deviation of up to 1.
_LARGEST_BET = 0.58


def kl(p: float, q: float) -> float:
    """Relative entropy of a coin p to a coin q, accurate also when they are close.

    >>> round(kl(0.5, 0.25), 6), kl(0.0, 0.0), kl(0.5, 1.0)
    (0.143841, 0.0, inf)
    """
    if p == q:
        return 0.0
    if q in (0.0, 1.0):
        return inf
    heads = -p * log1p((q - p) / p) if p > 0 else 0.0
    tails = -(1 - p) * log1p((p - q) / (1 - p)) if p < 1 else 0.0
    return max(heads + tails, 0.0)


def mean_at_most(total: float, n: int, delta: float) -> float:
    """An upper bound on mu from S and n alone: the largest q with n kl(S/n, q) <= log(2 sqrt(n) / delta).

    Bets: prod (q/mu)^X ((1-q)/(1-mu))^(1-X) is 1 on average or less for each q, as the factor is convex in X; mixed
    over q ~ Beta(1/2, 1/2) it is at least exp(n kl(S/n, mu)) / (2 sqrt(n)) (Krichevsky and Trofimov 1981; the
    beta-binomial boundary of Howard et al. 2021, in closed form).

    >>> round(mean_at_most(50.0, 100, delta=0.05), 4), round(mean_at_most(0.0, 100, delta=0.05), 4)
    (0.668, 0.0582)
    """
    p, level = _mean(total, n), _level(n, delta)
    return _largest(p, 1.0, lambda q: kl(p, q) <= level)


def mean_at_least(total: float, n: int, delta: float) -> float:
    """The same from below.

    >>> round(mean_at_least(50.0, 100, delta=0.05), 4), mean_at_least(0.0, 100, delta=0.05)
    (0.332, 0.0)
    """
    return 1.0 - mean_at_most(n - min(total, n), n, delta)


def mean_at_least_by_variance(total: float, total_sq: float, n: int, delta: float) -> float:
    """A lower bound on mu that also knows the sum of squares: an empirical Bernstein bound.

    For a bet b in [0, 1), exp(b (X - mu) - psi(b) (X - mu)^2) <= 1 + b (X - mu) with psi(b) = -b - log(1 - b) (Fan,
    Grama and Liu 2015), which is 1 on average. Bets b_k = b_0 2^-k are mixed with weights 1/((k+1)(k+2)).

    >>> round(mean_at_least_by_variance(50.0, 25.0, 100, delta=0.05), 4)  # every sample was 1/2
    0.4356
    >>> round(mean_at_least_by_variance(50.0, 50.0, 100, delta=0.05), 4)  # half of them 0, half of them 1
    0.3078
    """
    mean = _mean(total, n)
    spread = max(total_sq / n - mean**2, 0.0)
    bets = _bets(n)

    def surprise(deviation: float) -> float:
        """log of the mixture if the mean were so much below the average seen; it grows with the deviation."""
        wins = [n * (b * deviation + (b + log1p(-b)) * (spread + deviation**2)) + log_weight for b, log_weight in bets]
        best = max(wins)
        return best + log(sum(exp(win - best) for win in wins))

    if surprise(mean) <= log(1 / delta):
        return 0.0
    return mean - _largest(0.0, mean, lambda deviation: surprise(deviation) <= log(1 / delta))


def _largest(low: float, high: float, holds: Callable[[float], bool]) -> float:
    """The largest number between low and high for which `holds` is true, rounded up; by 60 bisections."""
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return high


def _level(n: int, delta: float) -> float:
    return log(2 * sqrt(n) / delta) / n


def _bets(n: int) -> list[tuple[float, float]]:
    """Bets and the logarithms of their weights. Those far below 1/sqrt(n) win nothing; leaving them out is safe."""
    return [(_LARGEST_BET * 0.5**k, -log((k + 1) * (k + 2))) for k in range(2 + int(n).bit_length() // 2)]


def _mean(total: float, n: int) -> float:
    """S/n; rounding may have left it a hair outside [0, 1]."""
    return min(max(total / n, 0.0), 1.0)
