"""Effective dimension: brackets against closed forms, brute force over mixtures, caps and recorded runs."""

from math import log, log1p

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from small_problems import all_policies, blocked_mdp, cliff, random_mdp, random_policy

import s4q
from s4q import FiniteMDP, problems
from s4q.problems import planning
from s4q.theory.definitions import expected_grams, gram_of_pairs
from s4q.theory.information_gain import effective_dim, effective_dim_cap, effective_dims, realised_gain


def information(mdp: FiniteMDP, h: int, occupancy: np.ndarray, ratio: float) -> float:
    """log det(I + ratio G) of an occupancy (S, A)."""
    gram = gram_of_pairs(mdp, h, occupancy)
    return float(np.linalg.slogdet(np.eye(gram.shape[1]) + ratio * gram)[1].sum())


@pytest.mark.parametrize("ratio", [0.1, 10.0, 1e4, 1e8])
def test_one_action_leaves_no_choice(ratio: float) -> None:
    for mdp in (problems.low_rank(n_actions=1), random_mdp(5, 1, 3, 3, seed=0, terminal=True)):
        grams = expected_grams(mdp, s4q.UniformPolicy(1))
        for h, bracket in enumerate(effective_dims(mdp, ratio)):
            closed = np.linalg.slogdet(np.eye(grams.shape[-1]) + ratio * grams[h])[1].sum()
            assert bracket.lower == pytest.approx(closed, rel=1e-9)
            assert bracket.width < 1e-6 * max(1.0, closed)


def test_one_hot_pairs_of_one_state_share_evenly() -> None:
    """One state: the best policy plays all actions alike; A log(1 + n / (A ridge)) is also the cap."""
    mdp = FiniteMDP(np.ones((1, 3, 1)), [[0.1, 0.2, 0.3]], [1.0], horizon=2)
    for bracket in effective_dims(mdp, 1000.0):
        assert bracket.lower <= 3 * log1p(1000 / 3) <= bracket.upper
        assert bracket.upper <= effective_dim_cap(3, 1000.0) + 1e-2
        np.testing.assert_allclose(bracket.occupancy, 1 / 3, atol=0.02)


def vertices(mdp: FiniteMDP, h: int) -> np.ndarray:
    """The occupancies of level h of all deterministic policies, (m, S, A)."""
    return np.unique([planning.occupancies(mdp.transitions, mdp.start, t)[h] for t in all_policies(mdp)], axis=0)


def brute(mdp: FiniteMDP, h: int, ratio: float) -> float:
    """The best mixture of all deterministic policies, by multiplicative updates until no policy promises 1e-3 more."""
    grams = np.array([gram_of_pairs(mdp, h, occupancy) for occupancy in vertices(mdp, h)])[:, 0]
    weights = np.full(len(grams), 1 / len(grams))
    for _ in range(10**5):
        matrix = np.eye(grams.shape[-1]) + ratio * np.tensordot(weights, grams, axes=1)
        slopes = ratio * np.einsum("mij,ji->m", grams, np.linalg.inv(matrix))
        if slopes.max() - weights @ slopes < 1e-3:
            return float(np.linalg.slogdet(matrix)[1])
        weights *= slopes / (weights @ slopes)
    raise AssertionError("the oracle did not converge")


@pytest.mark.parametrize("ratio", [5.0, 300.0])
@pytest.mark.parametrize("seed", range(3))
def test_the_bracket_contains_brute_force(seed: int, ratio: float) -> None:
    mdp = random_mdp(3, 2, 3, 2, seed=seed)
    for h in range(2):
        bracket, best = effective_dim(mdp, h, ratio, tolerance=1e-3), brute(mdp, h, ratio)
        assert bracket.width <= 1e-3
        assert bracket.lower - 1e-3 <= best <= bracket.upper + 1e-9
        assert information(mdp, h, bracket.occupancy, ratio) >= bracket.lower - 1e-9


CASES = [
    problems.low_rank(),
    blocked_mdp(),
    cliff(),
    problems.river_swim(4, 5),
    random_mdp(6, 3, 4, 3, 0, terminal=True),
]


@pytest.mark.parametrize("mdp", CASES)
def test_brackets_are_narrow_capped_and_grow_with_n(mdp: FiniteMDP) -> None:
    before = np.zeros(mdp.horizon)
    for ratio in (1.0, 30.0, 1e3, 1e5):
        brackets = effective_dims(mdp, ratio)
        for h, bracket in enumerate(brackets):
            assert bracket.width <= 1e-2
            assert bracket.lower <= effective_dim_cap(mdp.dim, ratio) + 1e-9
            assert bracket.upper >= before[h] - 1e-9
            assert bracket.occupancy.sum() == pytest.approx(1.0)
            for seed in range(3):  # no policy beats the upper end
                policy = random_policy(mdp, seed, deterministic=seed > 0)
                assert information(mdp, h, mdp.occupancies(policy)[h], ratio) <= bracket.upper + 1e-9
        before = np.array([bracket.lower for bracket in brackets])


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10**6), exponent=st.floats(-1, 6))
def test_the_occupancy_is_one_that_a_policy_has(seed: int, exponent: float) -> None:
    """It is a convex combination of the occupancies of deterministic policies, and attains the lower end."""
    mdp = random_mdp(3, 2, 3, 2, seed=seed)
    bracket = effective_dim(mdp, 1, 10.0**exponent)
    corners = vertices(mdp, 1).reshape(-1, 6)
    sums = np.vstack([corners.T, np.ones(len(corners))])
    assert linprog(np.zeros(len(corners)), A_eq=sums, b_eq=np.append(bracket.occupancy.ravel(), 1.0)).status == 0
    assert information(mdp, 1, bracket.occupancy, 10.0**exponent) == pytest.approx(bracket.lower, abs=1e-7)


def test_many_features_and_a_small_effective_dimension() -> None:
    mdp, ratio = problems.padded_features(), 1e4
    assert mdp.dim == 60
    plain = problems.low_rank(dim=3)
    for padded, bare in zip(effective_dims(mdp, ratio), effective_dims(plain, ratio), strict=True):
        assert padded.width <= 1e-2
        assert padded.upper < 0.5 * mdp.dim
        assert padded.upper < 0.1 * effective_dim_cap(mdp.dim, ratio)
        assert padded.upper <= bare.upper + 57 * log1p(1e-6 * ratio / 57) + 1e-2
        assert padded.lower >= bare.lower - 0.02


def test_huge_ratios_do_not_see_rounding() -> None:
    """Features that span 2 of 4 directions, turned at random: the other two must stay silent at n / ridge = 1e14."""
    rng = np.random.default_rng(0)
    turn = np.linalg.qr(rng.normal(size=(4, 4)))[0]
    base = problems.low_rank(n_states=8, n_actions=2, dim=2, horizon=2)
    flat = FiniteMDP(base.transitions, base.rewards, base.start, base.features.vectors, reward_range=(0.0, 0.5))
    turned = base.features.vectors @ turn[:2]
    spread = FiniteMDP(base.transitions, base.rewards, base.start, turned, reward_range=(0.0, 0.5))
    for h in range(2):
        two, four = effective_dim(flat, h, 1e14), effective_dim(spread, h, 1e14)
        assert two.width <= 1e-2
        assert four.width <= 1e-2
        assert abs(two.lower - four.lower) <= 1e-2


@pytest.mark.parametrize("preset", ["realisable", "tight"])
def test_a_run_gains_no_more_than_the_effective_dimension(preset: str) -> None:
    mdp = problems.low_rank()
    learner = s4q.S4Q(mdp, preset)  # type: ignore[arg-type]
    run = s4q.run(learner, s4q.collectors.CountCollector(mdp, seed=0), 10**7, record=True)
    assert run.record is not None
    first = run.record.phases[0] if run.record.phases else run.record.unfinished
    assert first is not None
    gains = realised_gain(mdp, run.record)
    for h, (gain, bracket) in enumerate(zip(gains, effective_dims(mdp, run.main_episodes / first.ridge), strict=True)):
        assert 0 < gain <= bracket.upper
        assert gain <= effective_dim_cap(mdp.dim, run.main_episodes / first.ridge[h])


def test_bad_arguments_are_refused() -> None:
    mdp = problems.low_rank()
    for name, call in {
        "n_over_ridge": lambda: effective_dim(mdp, 0, -1.0),
        "tolerance": lambda: effective_dim(mdp, 0, 1.0, tolerance=0.0),
        "h must": lambda: effective_dim(mdp, 3, 1.0),
    }.items():
        with pytest.raises(ValueError, match=name):
            call()
    assert effective_dim(mdp, 0, 1e4, max_steps=1).width > 1e-2
    assert effective_dim_cap(4, 8.0) == pytest.approx(4 * log(3))
