"""Algorithm 3: the recursion, the merged sums and a brute-force solver give one answer."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from literal_s3q import ridge_in_ball
from scipy.optimize import minimize

from s4q import Moments, StreamingLeastSquares, project_to_ball
from s4q.core.blocks import dense
from s4q.core.factors import whitener
from s4q.core.least_squares import constrained_fit, elliptical_norm_sq, gram_of, ridge_fit

SUMS = ("gram", "moment", "moment_sq", "sum_y2", "n")


def samples(n: int, dim: int, scale: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Features of norm at most `scale` in directions of unequal weight, and bounded targets."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, dim)) * np.logspace(0, -2, dim)
    x *= scale / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)
    y = np.clip(x @ rng.normal(size=dim) / scale + rng.normal(size=n), -3, 3)
    return x, y


def sigma_distance(a: np.ndarray, b: np.ndarray, gram: np.ndarray, ridge: float) -> float:
    """Distance in the Sigma norm relative to the larger of the two norms."""
    sigma = gram + ridge * np.eye(len(a))

    def norm(v: np.ndarray) -> float:
        return float(np.sqrt(v @ sigma @ v))

    return norm(a - b) / max(norm(a), norm(b), 1e-300)


@pytest.mark.parametrize("n", [1, 10, 1000, 10_000])
@pytest.mark.parametrize("dim", [1, 2, 8, 64])
@pytest.mark.parametrize("ridge", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("scale", [1e-3, 1.0])
def test_recursion_sums_and_brute_force_agree(n: int, dim: int, ridge: float, scale: float) -> None:
    x, y = samples(n, dim, scale, seed=n + dim)
    moments = sum(
        (Moments.of(x[i::3], np.zeros(len(x[i::3]), dtype=np.int64), y[i::3], n_blocks=1) for i in range(3)),
        Moments.zeros(1, dim),
    )
    stream = StreamingLeastSquares(dim, ridge)
    for a, b in zip(x, y, strict=True):
        stream.update(a, b)
    free = float(np.linalg.norm(ridge_fit(moments, ridge)))
    for radius in (0.3 * free, 2 * free):
        literal = ridge_in_ball(x.T @ x, x.T @ y, ridge, radius)
        merged = constrained_fit(moments, ridge, radius)[0]
        assert sigma_distance(merged, literal, x.T @ x, ridge) < 1e-8
        assert sigma_distance(stream.solve(radius), literal, x.T @ x, ridge) < 1e-8


def test_two_samples_by_hand() -> None:
    """x1 = (1, 0), y1 = 1; x2 = (1, 1), y2 = 2; ridge 1: Sigma = [[3, 1], [1, 2]], moment (3, 2), theta (4, 3)/5."""
    fit = StreamingLeastSquares(dim=2, ridge=1.0)
    fit.update([1.0, 0.0], 1.0)
    np.testing.assert_allclose(fit.theta, [0.5, 0.0])
    np.testing.assert_allclose(fit.cov_inv, [[0.5, 0.0], [0.0, 1.0]])
    fit.update([1.0, 1.0], 2.0)
    np.testing.assert_allclose(fit.solve(), [0.8, 0.6])
    np.testing.assert_allclose(fit.cov_inv, np.array([[2.0, -1.0], [-1.0, 3.0]]) / 5)


def test_projection_against_a_generic_solver() -> None:
    rng = np.random.default_rng(3)
    for _ in range(20):
        dim = int(rng.integers(2, 6))
        x, y = samples(30, dim, 1.0, seed=int(rng.integers(1000)))
        sigma, theta = x.T @ x + 0.1 * np.eye(dim), np.linalg.solve(x.T @ x + 0.1 * np.eye(dim), x.T @ y)
        radius = 0.4 * float(np.linalg.norm(theta))
        best = minimize(
            lambda v: (v - theta) @ sigma @ (v - theta),
            x0=theta * 0.3,
            jac=lambda v: 2 * sigma @ (v - theta),
            constraints=[{"type": "ineq", "fun": lambda v: radius**2 - v @ v, "jac": lambda v: -2 * v}],
            options={"ftol": 1e-14, "maxiter": 500},
        ).x
        ours = project_to_ball(theta, x.T @ x, 0.1, radius)
        np.testing.assert_allclose(ours, best, atol=1e-5)
        rescaled = theta * radius / np.linalg.norm(theta)
        loss, loss_rescaled = ((v - theta) @ sigma @ (v - theta) for v in (ours, rescaled))
        assert loss <= loss_rescaled  # Euclidean rescaling is another point


@given(
    log_condition=st.floats(0, 12),
    dim=st.integers(2, 40),
    n_blocks=st.integers(1, 3),
    shrink=st.floats(1e-3, 0.999),
    seed=st.integers(0, 10**6),
)
def test_projection_satisfies_its_optimality_conditions(
    log_condition: float, dim: int, n_blocks: int, shrink: float, seed: int
) -> None:
    """Sigma (theta - x) is a non-negative multiple of x, and |x| = radius, to 1e-10 up to condition 1e12."""
    rng = np.random.default_rng(seed)
    ridge = 1e-3
    grams, thetas = [], []
    for _ in range(n_blocks):
        basis = np.linalg.qr(rng.normal(size=(dim, dim)))[0]
        spectrum = ridge * (np.logspace(0, log_condition, dim) - 1)
        gram = (basis * spectrum) @ basis.T
        grams.append((gram + gram.T) / 2)
        thetas.append(rng.normal(size=dim))
    gram, theta = np.array(grams), np.array(thetas)
    radius = shrink * float(np.linalg.norm(theta))
    x = project_to_ball(theta, gram, ridge, radius)
    assert abs(np.linalg.norm(x) / radius - 1) < 1e-10
    pull = np.einsum("bij,bj->bi", gram, theta - x) + ridge * (theta - x)
    multiplier = float((pull * x).sum() / (x * x).sum())
    assert multiplier >= 0
    scale = np.linalg.norm(np.einsum("bij,bj->bi", gram, theta) + ridge * theta)
    assert np.linalg.norm(pull - multiplier * x) <= 1e-10 * scale
    again = project_to_ball(x, gram, ridge, radius * (1 + 1e-12))
    np.testing.assert_array_equal(again, x)


@given(n_blocks=st.integers(1, 5), k=st.integers(1, 4), n=st.integers(0, 40), seed=st.integers(0, 10**6))
def test_blocks_equal_the_same_features_written_densely(n_blocks: int, k: int, n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(n, k)) / 3
    blocks = rng.integers(n_blocks, size=n)
    y, weights = rng.normal(size=n), rng.integers(1, 4, size=n)
    ridge = 10 ** rng.uniform(-3, 3)
    short = Moments.of(vectors, blocks, y, n_blocks, weights)
    long = Moments.of(dense(vectors, blocks, n_blocks), np.zeros(n, dtype=np.int64), y, 1, weights)
    dim = n_blocks * k
    theta = ridge_fit(long, ridge)
    np.testing.assert_allclose(ridge_fit(short, ridge).ravel(), theta.ravel(), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(short.moment_sq.ravel(), long.moment_sq.ravel(), atol=1e-12)
    assert short.n == long.n == weights.sum()
    radius = 0.5 * float(np.linalg.norm(theta)) + 1e-6
    np.testing.assert_allclose(
        constrained_fit(short, ridge, radius).ravel(),
        constrained_fit(long, ridge, radius).ravel(),
        rtol=1e-8,
        atol=1e-10,
    )
    norms = elliptical_norm_sq(vectors, blocks, whitener(short.gram, ridge))
    sigma_inv = np.linalg.inv(long.gram[0] + ridge * np.eye(dim))
    phi = dense(vectors, blocks, n_blocks)
    np.testing.assert_allclose(norms, np.einsum("ni,ij,nj->n", phi, sigma_inv, phi), rtol=1e-8, atol=1e-12)


@given(n_blocks=st.integers(1, 4), k=st.integers(1, 3), seed=st.integers(0, 10**6))
def test_one_ball_per_block_is_a_projection_block_by_block(n_blocks: int, k: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(20, k))
    gram = np.stack([x.T @ x * rng.random() for _ in range(n_blocks)])
    theta, radius = rng.normal(size=(n_blocks, k)), rng.uniform(0.1, 2, size=n_blocks)
    got = project_to_ball(theta, gram, 0.5, radius)
    for b in range(n_blocks):
        np.testing.assert_array_equal(got[b], project_to_ball(theta[b], gram[b], 0.5, radius[b]))


@given(k=st.integers(1, 8), seed=st.integers(0, 10**6))
def test_whitener_is_the_inverse_square_root_and_the_bonus_falls_with_data(k: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(10, k))
    gram = gram_of(x, np.zeros(10, dtype=np.int64), 1)
    white = whitener(gram, 0.7)[0]
    np.testing.assert_allclose(white @ (gram[0] + 0.7 * np.eye(k)) @ white.T, np.eye(k), atol=1e-10)
    more = whitener(gram + np.outer(x[0], x[0]), 0.7)
    where = np.zeros(10, dtype=np.int64)
    assert np.all(elliptical_norm_sq(x, where, more) <= elliptical_norm_sq(x, where, white[None]) + 1e-12)


def test_a_remembered_residual_is_that_of_its_own_sums() -> None:
    own = Moments.of(np.ones((3, 1)), np.zeros(3, int), np.array([1.0, 2.0, 3.0]), n_blocks=1)
    theta = ridge_fit(own, 1.0)
    assert own.remembered(theta, 1.0, lambda: 5.0) == 5.0
    assert own.remembered(theta, 1.0, lambda: 6.0) == 5.0  # computed once
    other = replace(own, sum_y2=100.0)
    assert other.remembered(theta, 1.0, lambda: 7.0) == 7.0
    assert replace(own).remembered(theta, 1.0, lambda: 8.0) == 8.0


def test_factors_are_made_once_and_shared() -> None:
    rng = np.random.default_rng(0)
    vectors, blocks, y = rng.normal(size=(30, 3)), rng.integers(2, size=30), rng.normal(size=30)
    own = Moments.of(vectors, blocks, y, 2)
    shared = Moments.of(vectors, blocks, 2 * y, 2, gram=own.gram, factors=own.factors)
    assert shared.factors.whitener(0.5) is own.factors.whitener(0.5)
    assert np.array_equal(own.factors.whitener(0.1), whitener(own.gram, 0.1))  # another ridge, another whitener
    assert np.array_equal(own.factors.whitener(0.5), whitener(own.gram, 0.5))
    np.testing.assert_allclose(ridge_fit(shared, 0.5), 2 * ridge_fit(own, 0.5))
    assert (own + shared).factors is not own.factors  # another Gram matrix
    other = replace(own, gram=5 * own.gram)  # factors of another Gram matrix do not come along
    np.testing.assert_allclose(ridge_fit(other, 0.5), ridge_fit(Moments(*(getattr(other, f) for f in SUMS)), 0.5))
    values, vectors = own.factors.spectrum(1)
    np.testing.assert_allclose(vectors * values @ vectors.T, own.gram[1], atol=1e-12)


@pytest.mark.parametrize("ridge", [np.finfo(np.float64).tiny, 1e-12, 1.0, 1e12])
@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_projection_at_the_ends_of_floating_point(ridge: float, scale: float) -> None:
    """Singular Gram matrices, ridges of no size and thetas of any: on the sphere, and nearest in the norm of Sigma."""
    rng = np.random.default_rng(1)
    for rank, blocks in ((0, 1), (1, 2), (3, 1), (5, 3)):
        factor = rng.normal(size=(blocks, rank, 5)) * 10.0 ** rng.uniform(-5, 3, size=5)
        gram, theta = np.swapaxes(factor, 1, 2) @ factor, scale * rng.normal(size=(blocks, 5))
        radius = float(np.linalg.norm(theta)) * 0.3
        x = project_to_ball(theta, gram, ridge, radius)
        assert np.linalg.norm(x) == pytest.approx(radius, rel=1e-12)
        force = np.einsum("bij,bj->bi", gram + ridge * np.eye(5), theta - x)  # = mu x with mu >= 0
        size = np.linalg.norm(np.einsum("bij,bj->bi", gram + ridge * np.eye(5), theta)) + np.finfo(np.float64).tiny
        along = float((force * x).sum()) / radius**2
        assert along >= 0
        assert np.linalg.norm(force - along * x) <= 1e-10 * size


def test_one_hot_features_count() -> None:
    """With one-hot features Sigma^-1 is 1/(N + ridge) and theta a shrunken mean."""
    blocks = np.array([0, 0, 0, 2])
    moments = Moments.of(np.ones((4, 1)), blocks, np.array([1.0, 2.0, 3.0, 5.0]), n_blocks=3)
    np.testing.assert_allclose(whitener(moments.gram, 2.0).ravel() ** 2, [1 / 5, 1 / 2, 1 / 3])
    np.testing.assert_allclose(ridge_fit(moments, 2.0).ravel(), [6 / 5, 0.0, 5 / 3])


def test_gram_matrices_are_exactly_symmetric() -> None:
    x, y = samples(100, 7, 1.0, seed=0)
    blocks = np.arange(100) % 3
    for weights in (None, np.arange(100)):
        gram = Moments.of(x, blocks, y, 3, weights).gram
        np.testing.assert_array_equal(gram, gram.transpose(0, 2, 1))


def test_a_refused_sample_changes_nothing() -> None:
    fit = StreamingLeastSquares(2)
    fit.update([0.5, 0.5], 1.0)
    before = (fit.theta.copy(), fit.cov_inv.copy(), fit.gram.copy())
    for x, y in (([np.nan, 0.0], 1.0), ([1.0], 1.0), ([1.0, 0.0], np.inf)):
        with pytest.raises(ValueError, match=r"x|y"):
            fit.update(x, y)
    for old, new in zip(before, (fit.theta, fit.cov_inv, fit.gram), strict=True):
        np.testing.assert_array_equal(old, new)
    assert fit.n == 1


@pytest.mark.parametrize("block", [-1, 3])
def test_a_block_that_is_not_there_is_refused(block: int) -> None:
    with pytest.raises(ValueError, match=rf"blocks must lie in 0\.\.2; got .*{block}"):
        Moments.of(np.ones((2, 1)), np.array([1, block]), np.ones(2), n_blocks=3)
