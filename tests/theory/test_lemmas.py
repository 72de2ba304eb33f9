"""The lemmas of the paper: the deterministic ones on thousands of draws, the probabilistic ones over seeds."""

from math import log

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_problems import random_mdp

from s4q.core.blocks import Array
from s4q.core.least_squares import Moments, constrained_fit
from s4q.core.linear_q import LinearQ
from s4q.core.policies import UniformPolicy
from s4q.theory import bellman_errors, lemmas
from s4q.theory.lemmas import Claim

DRAWS = 2000


def random_gram(rng: np.random.Generator, k: int, n_blocks: int = 1) -> Array:
    """A second-moment matrix of vectors of norm at most 1, of any rank and scale."""
    rank = int(rng.integers(1, k + 1))
    factor = rng.normal(size=(n_blocks, k, rank)) * 10 ** rng.uniform(-3, 0, size=rank)
    gram = factor @ factor.transpose(0, 2, 1)
    return np.asarray(gram / max(1.0, np.trace(gram, axis1=1, axis2=2).max()))


def random_case(seed: int) -> tuple[np.random.Generator, int, int]:
    rng = np.random.default_rng(seed)
    return rng, int(rng.integers(1, 6)), int(rng.integers(1, 4))


def test_a_claim_holds_up_to_rounding_and_names_its_worst_entry() -> None:
    assert lemmas.claim([1.0, 2.0], [2.0, 2.0 - 1e-12]).holds()
    assert not lemmas.claim([1.0, 2.0], [2.0, 1.99]).holds()
    assert not lemmas.at_least([0.0, 2.01], 2.0).holds()
    assert not lemmas.claim(np.nan, 1.0).holds()
    assert lemmas.claim([1.0, 9.0], [1.5, 100.0]).worst() == (1.0, 1.5, False)  # by ratio
    assert lemmas.claim([-5.0, -1.0], 0.0).worst() == (-1.0, 0.0, False)  # by distance
    assert lemmas.claim([1.0, 2.0], [2.0, 1.5]).worst().slack == -0.5
    assert lemmas.between(1.0, [1.4, 1.9, 2.8], [2.0, 2.0, 3.0]).worst() == (1.9, 2.0, False)
    assert lemmas.between(1.0, [1.05, 1.9], 2.0).worst() == (1.05, 1.0, True)


def test_information_gain_on_random_draws() -> None:
    loose = 0
    for seed in range(DRAWS):
        rng, k, n_blocks = random_case(seed)
        sigma = random_gram(rng, k, n_blocks) + 10 ** rng.uniform(-2, 2) * np.eye(k)
        gram = random_gram(rng, k, n_blocks)
        n = 10 ** rng.uniform(-2, 6)
        cap = max(np.e - 1, n * lemmas.trace_ratio(sigma, gram) * rng.uniform(0.5, 3))
        got = lemmas.information_gain(sigma, gram, n, cap)
        assert got.holds(), seed
        loose += not Claim(2 * got.measured, got.high, got.low).holds()
    assert loose > DRAWS / 2  # a factor of 2 would be noticed


def test_excess_loss_on_random_draws() -> None:
    for seed in range(DRAWS):
        rng, k, _ = random_case(seed)
        x, y = rng.normal(size=(k + 5, k)), rng.normal(size=k + 5)
        gram, moment, theta = x.T @ x / len(y), x.T @ y / len(y), rng.normal(size=k)
        assert lemmas.excess_loss(gram[None], moment[None], theta[None]).holds(1e-12), seed
        # The loss itself, written out: the function works with moments.
        best = np.linalg.solve(gram, moment)
        written = np.mean((x @ theta - y) ** 2) - np.mean((x @ best - y) ** 2)
        assert written == pytest.approx((theta - best) @ gram @ (theta - best), rel=1e-6, abs=1e-9)


def test_excess_risk_on_random_draws_and_not_outside_the_ball() -> None:
    broken = 0
    for seed in range(DRAWS):
        rng, k, _ = random_case(seed)
        x, y = rng.normal(size=(k + 5, k)), 3 * rng.normal(size=k + 5)
        gram, moment = x.T @ x / len(y), x.T @ y / len(y)
        radius = 10 ** rng.uniform(-1.5, 0.5)
        best = constrained_fit(Moments(gram[None], moment[None], moment[None], 0.0, 1), 1e-12, radius)[0]
        theta = rng.normal(size=k)
        theta *= radius * rng.uniform() / np.linalg.norm(theta)
        ridge = 10 ** rng.uniform(-3, 1)
        law = gram[None], moment[None]
        assert lemmas.excess_risk(*law, theta[None], best[None], ridge).holds(1e-7), seed
        written = np.mean((x @ theta - y) ** 2) - np.mean((x @ best - y) ** 2)  # 2 (L(w) - L(w*)), sample by sample
        off = theta - best
        assert off @ gram @ off <= written + 1e-7
        outside = np.linalg.solve(gram, moment)  # the unconstrained minimiser loses less than the ball's
        broken += not lemmas.excess_risk(*law, outside[None], best[None], ridge).holds(1e-7)
    assert broken > DRAWS / 10


def test_error_identity_on_random_draws_and_not_for_another_policy() -> None:
    """What a greedy Q promises too much is the sum of its Bellman errors: for any Q with bonus and clip."""
    broken = 0
    for seed in range(DRAWS // 40):
        mdp = random_mdp(4, 2, 2, 3, seed, terminal=bool(seed % 2), low=-1.0 if seed % 3 else 0.0)
        uniform = mdp.occupancies(UniformPolicy(2))
        rng = np.random.default_rng(seed)
        for _ in range(40):
            theta, white = rng.normal(size=(3, 1, 2)), np.tril(rng.normal(size=(3, 1, 2, 2)))
            clip = np.sort(rng.normal(size=(3, 2)), axis=1)
            q = LinearQ.from_arrays(theta, white, rng.random(3), clip if rng.random() < 0.7 else None)
            errors, promised = (
                bellman_errors(mdp, q),
                mdp.start @ mdp.spec.to_user_units(0, q.value(0, mdp.features.level(0))),
            )
            known = (float(promised), mdp.value(q))
            assert lemmas.error_identity(*known, mdp.occupancies(q), errors, 1.0).holds(1e-15)
            broken += not lemmas.error_identity(*known, uniform, errors, 1.0).holds(1e-15)
    assert broken > DRAWS / 2


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 10**6), dim=st.integers(1, 5), n=st.integers(1, 30), ridge=st.sampled_from([0.1, 1.0, 10.0]),
    radius=st.sampled_from([0.05, 0.5, 5.0]),
)  # fmt: skip
def test_least_squares(seed: int, dim: int, n: int, ridge: float, radius: float) -> None:
    rng = np.random.default_rng(seed)
    vectors, targets = rng.normal(size=(n, dim)), rng.normal(size=n)
    assert lemmas.least_squares(vectors, targets, ridge, radius).holds()
    theta = constrained_fit(Moments.of(vectors, np.zeros(n, int), targets, 1), ridge, radius)[0]
    gradient = vectors.T @ (vectors @ theta - targets) + ridge * theta  # first-order condition over the ball
    assert gradient @ theta <= -radius * np.linalg.norm(gradient) + 1e-7 * (1 + np.linalg.norm(gradient) * radius) or (
        np.linalg.norm(gradient) < 1e-7 * (n + ridge)
    )


def test_sample_count_of_doubling_epochs() -> None:
    horizon = 3
    for trajectories in range(2 * horizon, 5000):
        epochs, used = 0, 0
        while used + horizon * 2 ** (epochs + 1) <= trajectories:  # played out, epoch after epoch
            epochs += 1
            used += horizon * 2**epochs
        assert lemmas.sample_count(2**epochs, trajectories, horizon).holds()
        assert epochs == int(np.floor(np.log2(trajectories / horizon + 2))) - 1
        assert not lemmas.sample_count(2 ** (epochs - 1) / 4, trajectories, horizon).holds()


def stream(rng: np.random.Generator, size: int, bernoulli: bool) -> tuple[Array, float]:
    """Independent numbers in [0, 1] and their mean."""
    if bernoulli:
        mean = 10 ** rng.uniform(-2, 0)
        return (rng.random(size) < mean).astype(np.float64), mean
    a, b = 10 ** rng.uniform(-1, 1, size=2)
    return rng.beta(a, b, size=size), a / (a + b)


@pytest.mark.parametrize("factor", [82.67, 16.2], ids=["paper", "tight"])
def test_proportional_estimates_of_stopped_streams(factor: float) -> None:
    """Bernoulli and Beta streams stopped at the trigger; a trigger of 2 instead is too early."""
    delta, failures, early, crossings = 0.05, 0, 0, 0
    seeds = range(300)
    for seed in seeds:
        z, mean = stream(np.random.default_rng(seed), 12_000, bernoulli=bool(seed % 2))
        sums, n = np.cumsum(z), np.arange(1, len(z) + 1)
        crossed = np.flatnonzero(sums >= factor * (log(8 / delta) + 2 * np.log(n)))
        crossings += len(crossed) > 0
        if len(crossed):
            failures += not lemmas.proportional(sums[crossed[0]], n[crossed[0]] * mean).holds()
        at = int(np.argmax(sums >= 2))
        early += not lemmas.proportional(sums[at], n[at] * mean).holds()
    assert crossings >= 150
    assert failures <= delta * len(seeds)
    assert early > 0.2 * len(seeds)


def random_features(rng: np.random.Generator, n: int, dim: int) -> tuple[Array, Array]:
    """n features drawn from a few fixed ones, and the second moment of the law they come from."""
    atoms = rng.normal(size=(dim + 2, dim))
    atoms /= np.linalg.norm(atoms, axis=1, keepdims=True)
    chances = rng.dirichlet(np.full(dim + 2, 0.5))
    counts = rng.multinomial(n, chances)
    return (atoms.T * counts) @ atoms, (atoms.T * chances) @ atoms


@pytest.mark.parametrize(("exponent", "high"), [(log(36 / 35) / 2, 2.0), (0.0502, 4 / 3)], ids=["paper", "tight"])
def test_matrix_concentration(exponent: float, high: float) -> None:
    """The regularised covariance is near its expectation; with a ridge of 0.01 it is not."""
    delta, dim, seeds = 0.05, 3, range(300)
    failures, small = 0, 0
    for seed in seeds:
        rng = np.random.default_rng(seed)
        n = int(10 ** rng.uniform(1, 5))
        gram, mean = random_features(rng, n, dim)
        for ridge in (log(2 * dim / delta) / exponent, 0.01):
            ratios = lemmas.matrix_ratio(gram[None], n * mean[None], ridge)
            broken = not lemmas.matrix_concentration(2 / 3, ratios, high).holds()
            failures += broken and ridge > 1
            small += broken and ridge < 1
    assert failures <= delta * len(seeds)
    assert small > delta * len(seeds)


def test_log_determinants_concentrate() -> None:
    delta, dim, seeds = 0.05, 3, range(300)
    failures, planted = 0, 0
    for seed in seeds:
        rng = np.random.default_rng(seed)
        n = int(10 ** rng.uniform(1, 15))
        gram, mean = random_features(rng, n, dim)
        ridge = log(2 * dim * n / delta) / 0.0502
        base = random_gram(rng, dim) * n + ridge * np.eye(dim)
        empirical, expected = (lemmas.log_det_ratio(base, g[None]) for g in (gram, n * mean))
        failures += not lemmas.log_det(empirical, expected, n, delta).holds()
        # Planted: the base is forgotten in the empirical gain, so that it is far too large.
        forgotten = lemmas.log_det_ratio(1e-100 * base, gram[None])
        planted += not lemmas.log_det(forgotten, expected, n, delta).holds()
    assert failures <= delta * len(seeds)
    assert planted > delta * len(seeds)


def test_replayed_regret() -> None:
    """Draws of policies from a memory: twice the expectation plus luck holds, the bare expectation does not."""
    delta, seeds = 0.05, range(400)
    failures, bare = 0, 0
    for seed in seeds:
        rng = np.random.default_rng(seed)
        gaps, weights = rng.random(4) ** 4, rng.dirichlet(np.ones(4))
        n = int(10 ** rng.uniform(0, 6))
        regret = float(rng.multinomial(n, weights) @ gaps)
        expected = n * float(weights @ gaps)
        failures += not lemmas.replayed_regret(regret, expected, 3 * log(1 / delta)).holds()
        bare += not lemmas.replayed_regret(regret, expected / 2, 0.0).holds()
    assert failures <= delta * len(seeds)
    assert bare > delta * len(seeds)


def share_outside(dim: int, epsilon: float, n: int, draws: int, seed: int) -> float:
    """How often a sum of rare projections, of mean I, leaves [(1 - eps) I, (1 + eps) I].

    Each of n matrices is L v v^T with v one of `dim` orthogonal axes, or 0, all with the same probability; in the
    long run this is the worst case of the lemma: L times a Poisson number along each axis.
    """
    rng = np.random.default_rng(seed)
    largest = 25.0 / n  # the mean number of hits of an axis is 1/L = n/25
    hits = rng.binomial(n, 1 / (n * largest), size=(draws, dim))
    values = largest * hits
    return float(((values < 1 - epsilon) | (values > 1 + epsilon)).any(axis=1).mean())


@pytest.mark.parametrize("dim", [1, 3])
@pytest.mark.parametrize("epsilon", [0.15, 0.25, 1 / 3, 0.6])
def test_matrix_chernoff_holds_and_a_sharper_constant_does_not(dim: int, epsilon: float) -> None:
    """eps^2/4 holds; with eps^2 in its place the bound is broken where it says something."""
    n = 2500  # L = 1/100
    seen = share_outside(dim, epsilon, n, draws=200_000, seed=7)
    bound = lemmas.chernoff_failure(dim, epsilon, 0.01)
    assert seen <= bound
    if epsilon in (0.25, 1 / 3):
        planted = 2 * dim * (1 - epsilon**2) ** 100
        assert seen > planted + 5 * (planted / 200_000) ** 0.5


def test_matrix_chernoff_with_real_matrices() -> None:
    """Random directions in R^3, whitened so that the mean is I: eigenvalues, not coordinates."""
    rng = np.random.default_rng(3)
    n, failures, draws, epsilon = 600, 0, 400, 0.3
    for _ in range(draws):
        x = rng.normal(size=(n, 3))
        x /= np.linalg.norm(x, axis=1, keepdims=True)
        total = np.linalg.eigvalsh(3 / n * x.T @ x)  # each 3/n xx^T has eigenvalue 3/n, their sum mean I
        failures += bool(total[0] < 1 - epsilon or total[-1] > 1 + epsilon)
    bound = lemmas.chernoff_failure(3, epsilon, 3 / n)
    assert failures / draws <= bound < 0.1


def test_the_ridge_of_the_paper_makes_covariances_fail_less_than_delta() -> None:
    for delta in (0.1, 1e-3):
        for dim in (1, 10):
            ridge = 2 * log(2 * dim / delta) / log(36 / 35)
            assert lemmas.covariance_failure(dim, 1 / 3, ridge, n=1e6) <= delta
            assert lemmas.covariance_failure(dim, 1 / 3, ridge / 4, n=1e6) > delta
    with pytest.raises(ValueError, match="epsilon"):
        lemmas.chernoff_failure(1, 1.0, 0.1)
    with pytest.raises(ValueError, match="largest"):
        lemmas.chernoff_failure(1, 0.5, 0.0)


def test_first_inequality_of_theorem_3b() -> None:
    mdp = random_mdp(4, 2, 2, 3, seed=0)
    value = mdp.value(UniformPolicy(2))
    assert lemmas.value_order(1.7, mdp.v_star, value).holds()
    assert not lemmas.value_order(1.7, value, mdp.v_star).holds()  # the two swapped
