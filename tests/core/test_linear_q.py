"""The optimistic value, its clip and its greedy policy."""

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import s4q
from s4q import LinearQ, Phi
from s4q.core.blocks import dense
from s4q.core.factors import whitener
from s4q.core.optimism import QLevel


@given(n_blocks=st.integers(1, 4), k=st.integers(1, 3), n_actions=st.integers(1, 4), seed=st.integers(0, 10**6))
def test_optimistic_value_against_long_vectors_and_inverses(n_blocks: int, k: int, n_actions: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    horizon, n = 2, 6
    phi = Phi(rng.normal(size=(n, n_actions, k)), rng.integers(n_blocks, size=(n, n_actions)))
    x = rng.normal(size=(horizon, n_blocks, 5, k))
    gram = np.einsum("hbni,hbnj->hbij", x, x)
    theta, width = rng.normal(size=(horizon, n_blocks, k)), rng.random((horizon, n_blocks))
    white = np.stack([whitener(g, 0.4) for g in gram])
    q = LinearQ.from_arrays(theta, white, width, clip=[[0.0, 1.0], [-np.inf, 0.5]])
    for h in range(horizon):
        expected = np.zeros((n, n_actions))
        for i in range(n):
            for a in range(n_actions):
                long = dense(phi.vectors[i, a], phi.blocks[i, a], n_blocks)
                sigma = np.zeros((n_blocks * k, n_blocks * k))
                for b in range(n_blocks):
                    sigma[b * k : (b + 1) * k, b * k : (b + 1) * k] = gram[h, b] + 0.4 * np.eye(k)
                bonus = width[h, phi.blocks[i, a]] * np.sqrt(long @ np.linalg.solve(sigma, long))
                expected[i, a] = long @ theta[h].ravel() + bonus
        np.testing.assert_allclose(q.optimistic(h, phi), expected, atol=1e-9)
        low, high = ((0.0, 1.0), (-np.inf, 0.5))[h]
        np.testing.assert_allclose(q.q_values(h, phi), np.clip(expected, low, high), atol=1e-9)
        np.testing.assert_allclose(q.value(h, phi), np.clip(expected, low, high).max(axis=1), atol=1e-9)


def test_saturated_values_do_not_hide_the_better_action() -> None:
    """Both actions are clipped to 1; the greedy action is the one with the larger unclipped value."""
    q = LinearQ.from_arrays([[[2.0], [3.0]]], clip=[[0.0, 1.0]])
    phi = Phi(np.ones((1, 2, 1)), np.array([[0, 1]]))
    assert q.q_values(0, phi).tolist() == [[1.0, 1.0]]
    assert q.greedy(0, phi).tolist() == [1]
    assert q.probabilities(0, np.zeros(1), phi).tolist() == [[0.0, 1.0]]


def test_exact_ties_go_to_the_lowest_action_and_no_features_are_worth_nothing() -> None:
    q = LinearQ.from_arrays(np.zeros((1, 1, 2)), np.ones((1, 1, 2, 2)), [1.0], [[0.0, 1.0]])
    phi = Phi(np.zeros((2, 3, 2)), np.zeros((2, 3), dtype=np.int64))
    assert q.greedy(0, phi).tolist() == [0, 0]
    assert q.value(0, phi).tolist() == [0.0, 0.0]
    assert q.value(1, phi).tolist() == [0.0, 0.0]  # after the last level


def test_arrays_are_copied_and_frozen() -> None:
    theta = np.zeros((1, 1, 1))
    q = LinearQ.from_arrays(theta)
    theta[:] = 7.0
    assert q.theta.item() == 0.0
    assert not q.levels[0].theta.flags.writeable


def test_levels_share_what_is_read_only_and_copy_the_rest() -> None:
    rng = np.random.default_rng(0)
    mine, theta = rng.random((2, 3, 3)), rng.random((2, 3))
    first = QLevel(theta, mine, [1.0, 2.0])
    second = QLevel(theta, first.whitener, 1.5)
    mine[:] = 7.0
    assert first.whitener.max() < 1
    assert second.whitener is first.whitener
    assert second.width.tolist() == [1.5, 1.5]
    for array in first.arrays:
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0.0
    apart = QLevel(theta, first.whitener.copy(), 1.5)
    q, other = LinearQ([first, second]), LinearQ([first, apart])
    assert other.nbytes - q.nbytes == first.whitener.nbytes
    assert q.same_as(other)
    for changed in (
        replace(second, kappa=0.1),
        replace(second, lower_order=0.1),
        replace(second, clip=(0.0, 1.0)),
        replace(second, second=theta),
        replace(second, theta=theta + 1e-15),
    ):
        assert not q.same_as(LinearQ([first, changed]))
    assert not q.same_as(LinearQ([first]))
    assert repr(q) == "LinearQ(2 levels, 2 blocks of 3, with bonus)"


BAD_LEVELS: list[tuple[dict[str, Any], str]] = [
    ({"theta": np.full((2, 3), np.nan)}, r"theta\[0, 0\] is nan"),
    ({"theta": np.zeros(3)}, r"theta must have shape \(n_blocks, k\)"),
    ({"width": [1.0, -3.0]}, "width .* must not be negative; got -3"),
    ({"width": None}, "whitener and width make the bonus together"),
    ({"width": [1.0, 1.0, 1.0]}, "width must have shape"),
    ({"whitener": np.eye(3)}, "whitener must have shape"),
    ({"clip": (1.0, 0.0)}, r"clip holds \(lower, upper\) with lower <= upper; got \(1.0, 0.0\)"),
    ({"clip": (np.nan, 0.0)}, "clip holds"),
    ({"second": np.zeros((2, 2))}, "second must have shape"),
]


@pytest.mark.parametrize(("change", "message"), BAD_LEVELS)
def test_a_level_refuses_nonsense(change: dict[str, Any], message: str) -> None:
    good: dict[str, Any] = {"theta": np.zeros((2, 3)), "whitener": np.ones((2, 3, 3)), "width": np.ones(2)}
    with pytest.raises(ValueError, match=message):
        QLevel(**(good | change))


def test_levels_must_be_of_one_shape() -> None:
    with pytest.raises(ValueError, match=r"levels\[1\].theta must have shape"):
        LinearQ([QLevel(np.zeros((2, 3))), QLevel(np.zeros((2, 2)))])
    for nothing in ([], np.zeros((1, 1, 1))):
        with pytest.raises(ValueError, match="levels must hold a QLevel for each level"):
            LinearQ(nothing)  # type: ignore[arg-type]


def test_a_linear_q_is_a_policy() -> None:
    mdp = s4q.problems.chain(4, 3)
    best = LinearQ.from_arrays(mdp.q_star.reshape(3, 8, 1))
    assert mdp.value(best) == mdp.v_star
    np.testing.assert_allclose(mdp.q_values(best), mdp.q_star)


def test_nobody_can_write_to_a_level_from_outside() -> None:
    """A read-only view of an array that its owner can write to is copied; so is a width of no axis."""
    mine, width = np.zeros((2, 3)), np.array(2.0)
    view = mine.view()
    view.setflags(write=False)
    level = QLevel(view, np.ones((2, 3, 3)), width)
    mine[:], width[...] = 7.0, 9.0
    assert level.theta.max() == 0.0
    assert level.width.tolist() == [2.0, 2.0]


@pytest.mark.parametrize("bonus", [False, True])
@pytest.mark.parametrize("k", [1, 2])
def test_all_levels_at_once_have_the_bits_of_each_level(bonus: bool, k: int) -> None:
    """With ties and features other than 1, so that a product in another order would show."""
    rng = np.random.default_rng(3)
    vectors, blocks = rng.choice([0.0, 0.3, 0.7], size=(4, 5, 3, k)), rng.integers(6, size=(4, 5, 3))
    theta = rng.choice([0.1, 0.2, -1 / 3], size=(5, 6, k))  # one level more than the table has
    white = np.tril(rng.standard_normal((5, 6, k, k))) if bonus else None
    q = LinearQ.from_arrays(theta, white, np.full(5, 0.1) if bonus else None)
    expected = [q.probabilities(h, np.arange(5), Phi(vectors[h], blocks[h])) for h in range(4)]
    np.testing.assert_array_equal(q.probabilities_at_every_level(vectors, blocks), expected)
    with pytest.raises(IndexError, match="5 levels"):
        q.probabilities_at_every_level(np.repeat(vectors, 2, axis=0), np.repeat(blocks, 2, axis=0))


def test_levels_without_a_bonus_are_what_qlevel_makes_and_cannot_be_written_to() -> None:
    theta = np.random.default_rng(0).standard_normal((3, 4, 2))
    clip = [(0.0, 1.0), (-np.inf, 2.0), (-np.inf, np.inf)]
    q, slow = LinearQ.from_arrays(theta, clip=clip), LinearQ([QLevel(*one) for one in _arguments(theta, clip)])
    assert q.same_as(slow)
    assert q.nbytes == slow.nbytes
    for fast, one in zip(q.levels, slow.levels, strict=True):
        for name in (field.name for field in fields(QLevel)):
            mine, other = getattr(fast, name), getattr(one, name)
            assert np.array_equal(mine, other) if name == "theta" else mine == other
    theta[:] = 7.0
    assert q.same_as(slow)
    with pytest.raises(ValueError, match="read-only"):
        q.levels[1].theta[0, 0] = 1.0
    with pytest.raises(ValueError, match="lower <= upper"):
        LinearQ.from_arrays(theta, clip=[(1.0, 0.0), *clip[1:]])


def _arguments(theta: np.ndarray, clip: list[tuple[float, float]]) -> list[tuple[Any, ...]]:
    return [(row, None, None, bounds) for row, bounds in zip(theta.copy(), clip, strict=True)]
