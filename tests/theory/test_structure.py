"""Backups, best on-policy fits and structure checks against literal computations and brute force."""

from itertools import product

import numpy as np
import pytest
from asking import regress_request
from hypothesis import given, settings
from hypothesis import strategies as st
from small_problems import blocked_mdp, cliff, long_features, random_mdp, random_policy, random_q

import s4q
from s4q import FiniteMDP, LinearQ, problems
from s4q.theory.definitions import (
    bellman_backup,
    bellman_errors,
    best_on_policy_fit,
    check_structure,
    comparator_errors,
)


@pytest.mark.parametrize("mdp", [cliff(), random_mdp(4, 2, 2, 3, seed=0, terminal=True, low=-2.0), problems.chain()])
def test_the_optimal_value_is_its_own_backup(mdp: FiniteMDP) -> None:
    for h in range(mdp.horizon):
        after = np.zeros(mdp.n_states)
        if h + 1 < mdp.horizon:
            after = mdp.q_star[h + 1].max(axis=1) - (mdp.horizon - h - 1) * mdp.spec.reward_min
        after[mdp.terminal] = 99.0  # not read
        backup = mdp.spec.to_user_units(h, bellman_backup(mdp, h, after))
        np.testing.assert_allclose(backup, mdp.q_star[h], atol=1e-12)


def test_a_backup_is_the_mean_of_the_learners_targets() -> None:
    mdp = cliff()  # no noise: the mean is every target
    q = random_q(mdp, 0)
    controller = s4q.Mixture([s4q.UniformPolicy(4)], [1.0])
    collector = s4q.collectors.CountCollector(mdp, seed=0)
    for level in range(mdp.horizon):
        moments = collector.collect(regress_request(level, level, controller, q, 10**6)).moments
        seen = moments.gram[:, 0, 0] > 0
        after = q.value(level + 1, mdp.features.level(min(level + 1, mdp.horizon - 1)))
        backup = bellman_backup(mdp, level, after).ravel()
        np.testing.assert_allclose(moments.moment[seen, 0] / moments.gram[seen, 0, 0], backup[seen], rtol=1e-9)


MIXED = [
    random_mdp(5, 3, 2, 3, seed=3),
    random_mdp(5, 3, 3, 2, seed=4, terminal=True, low=-1.0),
    blocked_mdp(horizon=2),
]


@pytest.mark.parametrize("mdp", MIXED)
def test_fit_of_a_controller_that_visits_everything(mdp: FiniteMDP) -> None:
    policy = random_policy(mdp, 1)
    for h in range(mdp.horizon):
        after = np.random.default_rng(h).normal(size=mdp.n_states)
        roots = np.sqrt(mdp.occupancies(policy)[h].ravel())
        target = bellman_backup(mdp, h, after).ravel()
        literal = np.linalg.lstsq(roots[:, None] * long_features(mdp, h), roots * target, rcond=None)[0]
        found = best_on_policy_fit(mdp, policy, h, after, radius=np.inf)
        np.testing.assert_allclose(found.ravel(), literal, atol=1e-10)


@pytest.mark.parametrize("seed", range(5))
def test_ties_are_broken_as_by_mixing_in_a_little_of_everything(seed: int) -> None:
    mdp = random_mdp(3, 3, 5, 2, seed=seed)
    policy = random_policy(mdp, seed, deterministic=True)  # visits 3 pairs, 5 directions
    after = np.random.default_rng(seed).normal(size=3)
    for h in range(2):
        weights = mdp.occupancies(policy)[h].ravel()
        roots = np.sqrt(weights + 1e-9 / len(weights))
        target = bellman_backup(mdp, h, after).ravel()
        literal = np.linalg.lstsq(roots[:, None] * long_features(mdp, h), roots * target, rcond=None)[0]
        found = best_on_policy_fit(mdp, policy, h, after, radius=np.inf)
        np.testing.assert_allclose(found.ravel(), literal, atol=1e-5 * max(1.0, np.abs(literal).max()))


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), share=st.floats(0.05, 1.5), deterministic=st.booleans(), per_block=st.booleans())
def test_no_point_of_the_ball_fits_better(seed: int, share: float, deterministic: bool, per_block: bool) -> None:
    """Neither on the controller's pairs nor, among equals there, on all pairs."""
    mdp = blocked_mdp(seed % 50, horizon=2) if per_block else random_mdp(3, 2, 4, 2, seed=seed)
    policy, rng = random_policy(mdp, seed, deterministic=deterministic), np.random.default_rng(seed)
    after = rng.normal(size=mdp.n_states)
    free = best_on_policy_fit(mdp, policy, 0, after, radius=np.inf)
    radius = share * (np.linalg.norm(free, axis=1) + 0.1 if per_block else np.linalg.norm(free) + 0.1)
    found = best_on_policy_fit(mdp, policy, 0, after, radius=radius)
    axis = 1 if per_block else None
    assert np.all(np.linalg.norm(found, axis=axis) <= radius * (1 + 1e-9))
    features, target = long_features(mdp, 0), bellman_backup(mdp, 0, after).ravel()
    weights = mdp.occupancies(policy)[0].ravel()

    def losses(theta: np.ndarray) -> tuple[float, float]:
        error = (features @ theta.ravel() - target) ** 2
        return float(weights @ error), float(error.mean())

    on, everywhere = losses(found)
    _, sizes, axes = np.linalg.svd(np.sqrt(weights)[:, None] * features)
    unvisited = axes[int((sizes > 1e-9).sum()) :]
    assert deterministic or per_block or not len(unvisited)
    for step in (1e-3, 1e-2, 0.1, 1.0):
        for _ in range(20):
            noise = step * rng.normal(size=found.shape)
            other = found + noise
            size = np.linalg.norm(other, axis=axis, keepdims=True)
            assert losses(other * np.minimum(1.0, np.reshape(radius, size.shape) / size))[0] >= on - 1e-9
            other = found + (unvisited.T @ (unvisited @ noise.ravel())).reshape(found.shape)
            if np.all(np.linalg.norm(other, axis=axis) <= radius):
                assert losses(other)[1] >= everywhere - 1e-9


def test_comparator_errors_vanish_where_backups_are_linear() -> None:
    for mdp in (problems.low_rank(), problems.bellman_closed()):
        for seed in range(3):
            policy = random_policy(mdp, seed, deterministic=True)
            errors = comparator_errors(mdp, policy, random_q(mdp, seed), radius=np.inf)
            assert np.abs(errors[mdp.reachable]).max() < 1e-8
    off = comparator_errors(MIXED[0], random_policy(MIXED[0], 0), random_q(MIXED[0], 0))
    assert np.abs(off).max() > 0.1


def test_a_bad_radius_is_refused() -> None:
    mdp, policy = problems.low_rank(), s4q.UniformPolicy(4)
    with pytest.raises(ValueError, match="one per level"):
        comparator_errors(mdp, policy, random_q(mdp, 0), radius=[1.0, 2.0])
    with pytest.raises(ValueError, match="must be positive"):
        comparator_errors(mdp, policy, random_q(mdp, 0), radius=0.0)


@pytest.mark.parametrize("clip", [False, True])
@pytest.mark.parametrize("mdp", [*MIXED, cliff()])
def test_errors_add_up_to_the_gap_of_value(mdp: FiniteMDP, clip: bool) -> None:
    """E(V_0 - V^pi_0) = sum_h E_pi err_h for pi greedy in Q, exactly."""
    for seed in range(5):
        q = random_q(mdp, seed, clip=clip)
        promised = mdp.start @ mdp.spec.to_user_units(0, q.value(0, mdp.features.level(0)))
        summed = float((mdp.occupancies(q) * bellman_errors(mdp, q)).sum())
        assert promised - mdp.value(q) == pytest.approx(summed, abs=1e-10)


def test_structure_of_known_problems() -> None:
    exact = check_structure(problems.low_rank())
    assert (exact.low_rank, exact.bellman_closed, exact.radius_fits) == (True, True, True)
    np.testing.assert_allclose(exact.radius_lower, problems.low_rank().spec.radius)
    np.testing.assert_allclose(exact.radius_upper, problems.low_rank().spec.radius)
    tabular = check_structure(cliff())
    assert (tabular.low_rank, tabular.bellman_closed) == (True, True)
    closed = check_structure(problems.bellman_closed())
    assert (closed.low_rank, closed.bellman_closed) == (False, True)
    assert closed.low_rank_residual.max() > 0.01
    assert closed.closure_residual.max() < 1e-9
    neither = check_structure(random_mdp(5, 3, 2, 3, seed=3))
    assert (neither.low_rank, neither.bellman_closed) == (False, False)
    small = problems.low_rank(5, 2, 2, 2)
    tight = FiniteMDP(
        small.transitions, small.rewards, small.start, small.features.vectors, reward_range=(0.0, 0.5), radius=0.1
    )
    assert check_structure(tight).radius_fits is False


def test_structure_residual_and_radius_against_all_corners() -> None:
    mdp = random_mdp(4, 2, 3, 2, seed=8)
    found, features, bound = check_structure(mdp), long_features(mdp, 0), mdp.spec.value_bound[1]
    residual = size = 0.0
    for corner in product([0.0, bound], repeat=4):
        target = bellman_backup(mdp, 0, corner).ravel()
        theta = np.linalg.lstsq(features, target, rcond=None)[0]
        residual = max(residual, float(np.abs(features @ theta - target).max()))
        size = max(size, float(np.linalg.norm(theta)))
    assert found.low_rank_residual[0] == pytest.approx(residual, rel=1e-9)
    assert found.radius_lower[0] - 1e-9 <= size <= found.radius_upper[0] + 1e-9


def test_the_search_for_a_linear_q_that_breaks_closure_beats_random_ones() -> None:
    mdp = random_mdp(5, 3, 2, 2, seed=3)
    features, rng, best = long_features(mdp, 0), np.random.default_rng(0), 0.0
    for _ in range(300):
        theta = rng.normal(size=(1, 2))
        theta *= mdp.spec.radius[1] / np.linalg.norm(theta)
        q = LinearQ.from_arrays(np.stack([theta, theta]))
        target = bellman_backup(mdp, 0, q.value(1, mdp.features.level(1))).ravel()
        fit = features @ np.linalg.lstsq(features, target, rcond=None)[0]
        best = max(best, float(np.abs(fit - target).max()))
    assert check_structure(mdp).closure_residual[0] >= 0.999 * best


def test_levels_that_no_episode_reaches_are_exact() -> None:
    mdp = FiniteMDP(
        [[[0.0, 1.0]], [[0.0, 1.0]]], [[0.5], [0.0]], [1.0, 0.0], horizon=3, terminal=[False, True]
    )  # fmt: skip
    found = check_structure(mdp)
    assert (found.low_rank, found.bellman_closed, found.radius_fits) == (True, True, True)
    np.testing.assert_allclose(found.radius_upper, [0.5, 0.0, 0.0])
    policy = s4q.UniformPolicy(1)
    assert not best_on_policy_fit(mdp, policy, 1, [1.0, 1.0]).any()
    assert s4q.theory.transfer_error_upper(mdp, policy) == pytest.approx(0.0, abs=1e-12)
    assert [bracket.upper for bracket in s4q.theory.effective_dims(mdp, 10.0)][1:] == [0.0, 0.0]
