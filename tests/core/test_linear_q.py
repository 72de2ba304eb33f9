"""The optimistic value, its clip and its greedy policy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import s4q
from s4q import LinearQ, Phi
from s4q.core.blocks import dense
from s4q.core.factors import whitener
from s4q.core.linear_q import LevelBonus, Spread


@given(n_blocks=st.integers(1, 4), k=st.integers(1, 3), n_actions=st.integers(1, 4), seed=st.integers(0, 10**6))
def test_optimistic_value_against_long_vectors_and_inverses(n_blocks: int, k: int, n_actions: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    horizon, n = 2, 6
    phi = Phi(rng.normal(size=(n, n_actions, k)), rng.integers(n_blocks, size=(n, n_actions)))
    x = rng.normal(size=(horizon, n_blocks, 5, k))
    gram = np.einsum("hbni,hbnj->hbij", x, x)
    theta, width = rng.normal(size=(horizon, n_blocks, k)), rng.random((horizon, n_blocks))
    white = np.stack([whitener(g, 0.4) for g in gram])
    q = LinearQ(theta, white, width, clip=[[0.0, 1.0], [-np.inf, 0.5]])
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
    q = LinearQ([[[2.0], [3.0]]], clip=[[0.0, 1.0]])
    phi = Phi(np.ones((1, 2, 1)), np.array([[0, 1]]))
    assert q.q_values(0, phi).tolist() == [[1.0, 1.0]]
    assert q.greedy(0, phi).tolist() == [1]
    assert q.probabilities(0, np.zeros(1), phi).tolist() == [[0.0, 1.0]]


def test_exact_ties_go_to_the_lowest_action_and_no_features_are_worth_nothing() -> None:
    q = LinearQ(np.zeros((1, 1, 2)), np.ones((1, 1, 2, 2)), [1.0], [[0.0, 1.0]])
    phi = Phi(np.zeros((2, 3, 2)), np.zeros((2, 3), dtype=np.int64))
    assert q.greedy(0, phi).tolist() == [0, 0]
    assert q.value(0, phi).tolist() == [0.0, 0.0]
    assert q.value(1, phi).tolist() == [0.0, 0.0]  # after the last level


def test_arrays_are_copied_and_frozen() -> None:
    theta = np.zeros((1, 1, 1))
    q = LinearQ(theta)
    theta[:] = 7.0
    assert q.theta.item() == 0.0
    assert not q.theta.flags.writeable


@pytest.mark.parametrize("kind", ["plain", "bonus", "shared", "spread"])
def test_levels_written_one_by_one_in_place_or_in_copies(kind: str) -> None:
    """Both ways give one Q; a copy leaves what it was made from alone, whoever holds that."""
    rng, horizon = np.random.default_rng(0), 4
    whiteners = None if kind == "plain" else rng.random((1 if kind in ("shared", "spread") else horizon, 2, 3, 3))
    spread = Spread(rng.random((horizon, 2, 3)), rng.random((horizon, 4))) if kind == "spread" else None
    width = None if whiteners is None else rng.random((horizon, 2))
    made = LinearQ(rng.random((horizon, 2, 3)), whiteners, width, np.array([[0.0, 1.0]] * horizon), spread)
    before = [np.array(array) for array in made._arrays() if array is not None]
    copies = in_place = made
    for level in reversed(range(horizon)):
        theta, second = rng.random((2, 3)), rng.random((2, 3))
        bonus = LevelBonus(rng.random((2, 3, 3)), rng.random(2), second, *rng.random(4).tolist())
        copies = copies.with_level(level, theta, bonus)
        if level == horizon - 1:
            in_place = in_place.with_level(level, theta, bonus)
        else:
            in_place.write_level(level, theta, bonus)
        assert np.array_equal(copies.theta[level], theta)
    assert in_place.same_as(copies)
    assert not in_place.theta.flags.writeable
    after = [array for array in made._arrays() if array is not None]
    assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))
    with pytest.raises(ValueError, match=r"theta\[0, 0\] is nan"):
        in_place.write_level(0, np.full((2, 3), np.nan), None)
    assert in_place.same_as(copies)
    if kind == "bonus":
        with pytest.raises(ValueError, match="must not be negative; got -3"):
            in_place.write_level(0, theta, LevelBonus(bonus.whitener, np.array([1.0, -3.0])))


def test_a_linear_q_is_a_policy() -> None:
    mdp = s4q.problems.chain(4, 3)
    best = LinearQ(mdp.q_star.reshape(3, 8, 1))
    assert mdp.value(best) == mdp.v_star
    np.testing.assert_allclose(mdp.q_values(best), mdp.q_star)
