"""Bounds on a mean that hold at every n at once: exact coverage on small cases, and what breaks without the union."""

from collections.abc import Callable
from math import exp, log, log1p, pi, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import betaln, rel_entr

from s4q.certificates import confidence_sequences
from s4q.certificates.confidence_sequences import kl, mean_at_least, mean_at_least_by_variance, mean_at_most

DELTA = 0.2


def chance_of_missing(values: list[float], chances: list[float], longest: int, fails: Callable[..., bool]) -> float:
    """P(some n <= longest fails), exactly: X takes the values with the chances; `fails(S, sum of squares, n)`."""
    alive = {(0.0, 0.0): 1.0}
    missed = 0.0
    for n in range(1, longest + 1):
        after: dict[tuple[float, float], float] = {}
        for (total, total_sq), mass in alive.items():
            for x, p in zip(values, chances, strict=True):
                state = (total + x, total_sq + x * x)
                after[state] = after.get(state, 0.0) + mass * p
        lost = {state for state in after if fails(*state, n)}
        missed += sum(after[state] for state in lost)
        alive = {state: mass for state, mass in after.items() if state not in lost}
    return missed


@pytest.mark.parametrize("mu", [0.03, 0.3, 0.5, 0.9])
def test_the_entropy_bounds_cover_a_coin_at_every_n(mu: float) -> None:
    above = chance_of_missing([0, 1], [1 - mu, mu], 80, lambda s, _, n: mean_at_most(s, n, DELTA) < mu)
    below = chance_of_missing([0, 1], [1 - mu, mu], 80, lambda s, _, n: mean_at_least(s, n, DELTA) > mu)
    assert above + below <= DELTA  # one mixture serves both sides


@pytest.mark.parametrize("chances", [[0.8, 0.1, 0.1], [0.3, 0.4, 0.3], [0.02, 0.0, 0.98]])
def test_the_variance_bound_covers_at_every_n(chances: list[float]) -> None:
    values = [0.0, 0.5, 1.0]
    mu = float(np.dot(values, chances))
    fails = lambda s, sq, n: mean_at_least_by_variance(s, sq, n, DELTA) > mu  # noqa: E731
    assert chance_of_missing(values, chances, 22, fails) <= DELTA


def test_a_bound_for_one_n_does_not_cover_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confidence_sequences, "_level", lambda n, delta: log(1 / delta) / n)  # Chernoff, n fixed

    def fails(total: float, _: float, n: int) -> bool:
        return mean_at_most(total, n, DELTA) < 0.5 or mean_at_least(total, n, DELTA) > 0.5

    assert chance_of_missing([0, 1], [0.5, 0.5], 80, fails) > DELTA


def test_bets_without_weights_do_not_cover(monkeypatch: pytest.MonkeyPatch) -> None:
    weighted = confidence_sequences._bets
    monkeypatch.setattr(confidence_sequences, "_bets", lambda n: [(b, 0.0) for b, _ in weighted(n)])
    fails = lambda s, sq, n: mean_at_least_by_variance(s, sq, n, DELTA) > 0.5  # noqa: E731
    assert chance_of_missing([0, 1], [0.5, 0.5], 60, fails) > DELTA


def stopped_at_the_worst(rng: np.random.Generator, draw: Callable[..., np.ndarray], mu: float, longest: int) -> bool:
    """Does the variance bound hold where somebody who knows mu would stop the stream?"""
    x = draw(rng, longest)
    n = np.arange(1, longest + 1)
    total, total_sq = np.cumsum(x), np.cumsum(x**2)
    spread = np.sqrt(np.maximum(total_sq / n - (total / n) ** 2, 1e-3))
    surprise = (total - n * mu) / np.sqrt(n) / spread
    worst = {int(surprise[first:].argmax()) + first for first in (0, 10, 100, 1000)}
    bounds = [mean_at_least_by_variance(float(total[i]), float(total_sq[i]), i + 1, DELTA) for i in worst]
    entropy = [mean_at_least(float(total[i]), i + 1, DELTA) for i in worst]
    return max(bounds) <= mu and max(entropy) <= mu


STREAMS: dict[str, tuple[Callable[..., np.ndarray], float]] = {
    "uniform": (lambda rng, n: rng.random(n), 0.5),
    "beta": (lambda rng, n: rng.beta(0.2, 2.0, n), 0.2 / 2.2),
    "rare": (lambda rng, n: (rng.random(n) < 0.01).astype(float), 0.01),
    "nearly constant": (lambda rng, n: 0.5 + 0.01 * rng.random(n), 0.505),
}


@pytest.mark.parametrize("stream", STREAMS)
def test_stopping_at_the_worst_moment_does_not_help(stream: str) -> None:
    draw, mu = STREAMS[stream]
    rng = np.random.default_rng(7)
    held = [stopped_at_the_worst(rng, draw, mu, 5000) for _ in range(100)]
    assert np.mean(held) >= 1 - 2 * DELTA  # two bounds


@pytest.mark.parametrize("n", [1, 2, 5, 100, 10**6])
def test_the_mixture_is_within_2_sqrt_n_of_the_best_coin(n: int) -> None:
    """The step behind mean_at_most, also for sums that are not whole: log of Beta(1/2, 1/2)'s mixture."""
    total = np.linspace(0, n, 501)
    best = -(rel_entr(total / n, 1.0) + rel_entr(1 - total / n, 1.0)) * n  # n times the entropy of the coin S/n
    redundancy = -best - betaln(total + 0.5, n - total + 0.5) + log(pi)
    assert np.all(redundancy <= log(2 * sqrt(n)) + 1e-8)
    assert redundancy.max() > log(2 * sqrt(n)) - 0.13  # and not much better is possible


def test_the_inequality_behind_the_variance_bound() -> None:
    for b in np.linspace(0.001, 0.58, 50):
        psi = -b - log1p(-b)
        assert b >= 2 * psi  # so the surprise grows with the deviation, up to 1
        for x in np.linspace(-1, 1, 81):
            assert exp(b * x - psi * x * x) <= 1 + b * x + 1e-12


@given(st.floats(0, 1), st.integers(1, 10**9), st.floats(1e-6, 0.5), st.floats(0, 1))
def test_bounds_surround_the_mean(mean: float, n: int, delta: float, share: float) -> None:
    total = mean * n
    total_sq = total * (share + (1 - share) * mean)  # between constant and all or nothing
    assert 0 <= mean_at_least(total, n, delta) <= mean + 1e-12
    assert mean - 1e-12 <= mean_at_most(total, n, delta) <= 1
    assert 0 <= mean_at_least_by_variance(total, total_sq, n, delta) <= mean + 1e-12
    assert mean_at_most(total, n, delta) <= mean_at_most(total, n, delta / 2) + 1e-12


@pytest.mark.parametrize("n", [10**6, 10**12, 10**17])
def test_large_n_is_no_problem(n: int) -> None:
    normal = sqrt(2 * 0.3 * 0.7 * log(2 * sqrt(n) / 0.01) / n)
    assert mean_at_most(0.3 * n, n, 0.01) - 0.3 == pytest.approx(normal, rel=0.01)
    assert 0.3 - mean_at_least(0.3 * n, n, 0.01) == pytest.approx(normal, rel=0.01)
    same, calm = (0.3 - mean_at_least_by_variance(0.3 * n, sq * n, n, 0.01) for sq in (0.3, 0.091))
    assert same < normal  # a coin's variance, known
    assert calm < normal / 10  # a hundredth and a half of it


def test_kl_by_another_way() -> None:
    rng = np.random.default_rng(0)
    for p, q in rng.random((200, 2)):
        assert kl(p, q) == pytest.approx(float(rel_entr(p, q) + rel_entr(1 - p, 1 - q)), abs=1e-12)
    assert kl(0.3, 0.3 + 1e-9) == pytest.approx(1e-18 / (2 * 0.21), rel=1e-5)
    assert kl(0.0, 0.5) == pytest.approx(log(2))
    assert kl(1.0, 0.5) == pytest.approx(log(2))
