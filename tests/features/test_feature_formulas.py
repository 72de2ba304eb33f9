"""Feature formulas against literal loops, closed forms and their norm bounds on any range."""

import math
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.kernel_approximation import RBFSampler
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, PolynomialFeatures, SplineTransformer

from s4q.features import RBF, Fourier, RandomFourier, Sklearn, Tiles
from s4q.features.spaces import Ranges


def literal_fourier(x: list[float], order: int) -> list[float]:
    """cos(pi c.x) / sqrt(k), one term after the other."""
    terms = [sum(c * value for c, value in zip(cs, x, strict=True)) for cs in product(range(order + 1), repeat=len(x))]
    return [math.cos(math.pi * term) / math.sqrt(len(terms)) for term in terms]


@pytest.mark.parametrize(("dim", "order"), [(1, 0), (1, 7), (2, 3), (3, 2), (4, 1)])
def test_fourier_is_the_literal_sum(dim: int, order: int) -> None:
    rng = np.random.default_rng(dim)
    low, high = -rng.random(dim) - 1, rng.random(dim) + 3
    unit = rng.random((20, dim))
    psi = Fourier(low=low, high=high, order=order)(low + unit * (high - low))
    np.testing.assert_allclose(psi, [literal_fourier(x, order) for x in unit.tolist()], atol=1e-13)


def test_fourier_terms_are_orthogonal_on_the_cube() -> None:
    """Integral of psi psi^T over [0, 1]: 1/k for the constant, 1/(2k) for others, 0 off the diagonal."""
    grid = (np.arange(4000) + 0.5) / 4000
    psi = Fourier(low=[0], high=[1], order=4)(grid[:, None])
    np.testing.assert_allclose(psi.T @ psi / 4000, np.diag([1, 0.5, 0.5, 0.5, 0.5]) / 5, atol=1e-12)


def literal_tiles(x: list[Fraction], n_tilings: int, counts: list[int]) -> list[int]:
    """0 or 1 for every tile of every tiling, in rational numbers: is x inside?"""
    steps = [c for c in range(1, 999, 2) if math.gcd(c, n_tilings) == 1][: len(x)]
    flags = []
    for t in range(n_tilings):
        shifts = [Fraction(c * t % n_tilings, n_tilings) for c in steps]
        sides = [n + (1 if shift else 0) for n, shift in zip(counts, shifts, strict=True)]
        for tile in product(*map(range, sides)):
            inside = True
            for j, i in enumerate(tile):
                left, right = (i - shifts[j]) / counts[j], (i + 1 - shifts[j]) / counts[j]
                inside &= left <= x[j] < right or (x[j] == right == 1)
            flags.append(int(inside))
    return flags


@pytest.mark.parametrize(
    ("n_tilings", "counts"), [(1, [4]), (2, [3]), (8, [4]), (1, [2, 3]), (3, [2, 2]), (4, [2, 3]), (6, [1, 2, 2])]
)
def test_tiles_are_the_literal_grids(n_tilings: int, counts: list[int]) -> None:
    """At points where float64 and rational numbers agree on the side: sixteenths, edges among them, and the ends."""
    tiles = Tiles(low=[0] * len(counts), high=[1] * len(counts), n_tilings=n_tilings, tiles_per_dim=counts)
    rng = np.random.default_rng(n_tilings)
    whole = rng.integers(0, 1025, (60, len(counts)))
    whole[0], whole[1] = 0, 1024
    if n_tilings in (3, 6) or 3 in counts:  # thirds are no floats: stay off the edges
        whole[2:] = whole[2:] // 2 * 2 + 1
        whole = np.minimum(whole, 1024)
    expected = [literal_tiles([Fraction(int(v), 1024) for v in row], n_tilings, counts) for row in whole]
    psi = tiles(whole / 1024)
    assert tiles.dim == len(expected[0])
    np.testing.assert_array_equal(psi > 0, np.array(expected, dtype=bool))
    np.testing.assert_allclose(psi[psi > 0], 1 / math.sqrt(n_tilings))
    assert ((psi > 0).sum(axis=1) == n_tilings).all()


@pytest.mark.parametrize(("n_tilings", "counts"), [(1, [5]), (4, [3, 2]), (8, [2, 2, 1])])
def test_every_tile_is_reached(n_tilings: int, counts: list[int]) -> None:
    """No feature stands idle: each would cost width and memory for nothing."""
    tiles = Tiles(low=[0] * len(counts), high=[1] * len(counts), n_tilings=n_tilings, tiles_per_dim=counts)
    points = np.array(list(product(np.linspace(0, 1, 65), repeat=len(counts)))) if len(counts) < 3 else None
    if points is None:
        points = np.array(list(product(np.linspace(0, 1, 33), repeat=3)))
    assert (tiles(points) > 0).any(axis=0).all()


def test_tilings_differ_in_every_dimension() -> None:
    for n_tilings in (2, 3, 5, 6, 8, 15):
        tiles = Tiles(low=[0] * 3, high=[1] * 3, n_tilings=n_tilings, tiles_per_dim=1)
        assert all(len(set(column)) == n_tilings for column in tiles._shifts.T.tolist())


def test_tiles_generalise_to_neighbours() -> None:
    """psi(x).psi(y) is the share of tilings that put x and y into one tile: it falls with the distance."""
    tiles = Tiles(low=[0], high=[1], n_tilings=8, tiles_per_dim=4)
    shares = tiles(np.array([[0.5]])) @ tiles(0.5 + np.array([[0.0], [0.1], [0.2], [0.3]])).T
    assert shares.ravel().round(12).tolist() == [1.0, 0.625, 0.25, 0.0]


def test_rbf_is_the_literal_share() -> None:
    rng = np.random.default_rng(0)
    centres, points = rng.uniform(0, 10, (6, 2)), rng.uniform(0, 10, (15, 2))
    psi = RBF(low=[0, 0], high=[10, 20], centres=centres, width=0.2)(points)
    for i, x in enumerate(points):
        bumps = [math.exp(-(((x - c) / [10, 20]) ** 2).sum() / (2 * 0.2**2)) for c in centres]
        np.testing.assert_allclose(psi[i], np.array(bumps) / sum(bumps), rtol=1e-10)


def test_rbf_far_from_all_centres_belongs_to_the_nearest() -> None:
    psi = RBF(low=[0], high=[1], centres=[[0.0], [0.1]], width=1e-3)(np.array([[1.0]]))
    assert psi.tolist() == [[0.0, 1.0]]


def test_rbf_grid_has_its_ends() -> None:
    rbf = RBF(low=[0, -1], high=[4, 1], centres=3, width=0.5)
    assert sorted(rbf.centres.tolist()) == [[float(a), float(b)] for a in (0, 2, 4) for b in (-1, 0, 1)]


def kernel_error(width: float) -> float:
    """Largest difference between psi(x).psi(y) and the Gaussian kernel of width 0.5."""
    points = np.random.default_rng(1).random((30, 2))
    psi = RandomFourier(low=[0, 0], high=[1, 1], dim=8000, width=width, seed=3)(points)
    distances = np.square(points[:, None] - points).sum(axis=-1)
    return float(np.abs(psi @ psi.T - np.exp(-distances / (2 * 0.5**2))).max())


def test_random_fourier_approximates_its_kernel() -> None:
    assert kernel_error(0.5) < 0.06  # 4000 frequencies: standard error 0.016, 435 pairs
    assert kernel_error(0.6) > 0.1  # a wrong width, planted, is seen


def test_random_fourier_is_made_of_its_seed() -> None:
    points = np.random.default_rng(0).random((5, 2))

    def psi(**changes: Any) -> np.ndarray:
        arguments: dict[str, Any] = {"low": [0, 0], "high": [1, 1], "dim": 9, "width": 0.5, "seed": 0} | changes
        return RandomFourier(**arguments)(points)

    assert np.array_equal(psi(), psi())
    assert not np.allclose(psi(), psi(seed=1))
    np.testing.assert_allclose(psi(width=[0.5, 0.5]), psi(), rtol=1e-15)
    assert psi()[:, -1].tolist() == [1 / math.sqrt(5)] * 5
    # The same frequencies, literally.
    frequencies = np.random.default_rng(np.random.SeedSequence(0)).standard_normal((2, 4)) / 0.5
    np.testing.assert_allclose(psi()[:, :4], np.cos(points @ frequencies) / math.sqrt(5), atol=1e-14)
    np.testing.assert_allclose(psi()[:, 4:8], np.sin(points @ frequencies) / math.sqrt(5), atol=1e-14)


ranges = st.lists(
    st.tuples(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6)).map(lambda pair: (pair[0], pair[0] + pair[1])),
    min_size=1,
    max_size=3,
)


@given(ranges, st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=3, max_size=3), st.data())
def test_norms_hold_for_any_range_and_any_observation(
    bounds: list[tuple[float, float]], where: list[float], data: st.DataObject
) -> None:
    """With clip every finite observation is taken; the bound is a proof, so no range may break it."""
    low, high = [b[0] for b in bounds], [b[1] for b in bounds]
    box: dict[str, Any] = {"low": low, "high": high, "clip": True}
    width = data.draw(st.floats(1e-3, 1e3))
    maps = [
        Fourier(**box, order=data.draw(st.integers(0, 4))),
        Tiles(**box, n_tilings=data.draw(st.integers(1, 9)), tiles_per_dim=data.draw(st.integers(1, 4))),
        RBF(**box, centres=data.draw(st.integers(2, 4)), width=width),
        RandomFourier(**box, dim=data.draw(st.integers(2, 40)), width=width),
    ]
    inside = [a + (b - a) * data.draw(st.floats(0, 1)) for a, b in bounds]
    points = np.array([low, high, where[: len(bounds)], inside])
    for psi in maps:
        vectors = psi(points)
        assert vectors.shape == (4, psi.dim)
        norms = np.linalg.norm(vectors, axis=1)
        assert (norms <= 1 + 1e-14).all()
        if not isinstance(psi, RBF | Fourier):
            np.testing.assert_allclose(norms, 1.0, rtol=1e-14)


@given(ranges, st.data())
def test_scaling_is_exact_at_the_ends_and_keeps_the_order(
    bounds: list[tuple[float, float]], data: st.DataObject
) -> None:
    low, high = np.array([b[0] for b in bounds]), np.array([b[1] for b in bounds])
    declared = Ranges.of(low=low, high=high)
    assert declared.unit(low[None]).tolist() == [[0.0] * len(low)]
    assert declared.unit(high[None]).tolist() == [[1.0] * len(low)]
    share = sorted(data.draw(st.lists(st.floats(0, 1), min_size=2, max_size=5)))
    points = np.clip(low + np.array(share)[:, None] * (high - low), low, high)
    unit = declared.unit(points)
    assert (np.diff(unit, axis=0) >= 0).all()
    assert unit.min() >= 0
    assert unit.max() <= 1


def test_float32_observations_at_a_float64_bound_are_inside() -> None:
    """4.8 as a float32 lies above 4.8: rounding of the environment's own, not an observation out of range."""
    declared = Ranges.of(low=[-4.8], high=[4.8])
    assert declared.unit(np.array([[4.8]], dtype=np.float32)).tolist() == [[1.0]]
    assert declared.unit(np.array([[-4.8]], dtype=np.float32)).tolist() == [[0.0]]


def test_observations_of_any_shape_are_rows() -> None:
    psi = Fourier(low=[0] * 6, high=[1] * 6, order=1)
    points = np.random.default_rng(0).random((5, 6))
    np.testing.assert_array_equal(psi(points.reshape(5, 2, 3)), psi(points))
    one = Fourier(low=0, high=1, order=3)
    np.testing.assert_array_equal(one(points[:, 0]), one(points[:, :1]))


@pytest.mark.parametrize(
    ("transformer", "bound"),
    [
        (RBFSampler(n_components=30, random_state=0), math.sqrt(2)),
        (PolynomialFeatures(2), math.sqrt(6)),
        (SplineTransformer(n_knots=4), math.sqrt(2)),
        (make_pipeline(PolynomialFeatures(2), RBFSampler(n_components=10, random_state=0)), math.sqrt(2)),
        (OneHotEncoder(handle_unknown="ignore"), math.sqrt(2)),  # sparse
    ],
)
def test_sklearn_transformers_are_scaled_by_their_bound(transformer: Any, bound: float) -> None:
    points = np.random.default_rng(0).random((50, 2))
    fitted = transformer.fit(points.round(1) if isinstance(transformer, OneHotEncoder) else points)
    psi = Sklearn(fitted, norm_bound=bound, low=[0, 0], high=[2, 2])
    expected = fitted.transform(points)
    expected = expected.toarray() if hasattr(expected, "toarray") else expected
    np.testing.assert_allclose(psi(points * 2), expected / bound, atol=1e-14)
    assert psi.dim == expected.shape[1]


def test_sklearn_transformer_is_frozen() -> None:
    """The user's object may be fitted again; the features stay what they were."""
    points = np.random.default_rng(0).random((50, 2))
    transformer = SplineTransformer(n_knots=4).fit(points)
    psi = Sklearn(transformer, norm_bound=2.0)
    before = psi(points)
    transformer.fit(points * 0.3)
    np.testing.assert_array_equal(psi(points), before)
