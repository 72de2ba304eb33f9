"""Transfer error: 0 where the features are exact, bracketed by brute force elsewhere, and exact for what is fixed."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_problems import TablePolicy, all_policies, blocked_mdp, long_features, random_mdp, random_policy, random_q

import s4q
from s4q import FiniteMDP, problems
from s4q.core.policies import Mixture, Policy
from s4q.problems import planning
from s4q.theory.definitions import bellman_backup, comparator_errors, next_values
from s4q.theory.population_fits import linear_errors
from s4q.theory.transfer_errors import (
    phase_transfers,
    transfer_error,
    transfer_error_realised,
    transfer_error_runs,
    transfer_error_search,
    transfer_error_upper,
    worst_values,
)


def literal_errors(mdp: FiniteMDP, controller: Policy | Mixture, after: np.ndarray) -> np.ndarray:
    """phi . theta - T V' with a weighted fit that has a little of every pair in it, (H, S, A)."""
    errors = np.zeros(mdp.rewards.shape)
    for h in range(mdp.horizon):
        weights = mdp.occupancies(controller)[h].ravel()
        roots = np.sqrt(weights + 1e-10)
        roots[np.repeat(mdp.terminal, mdp.n_actions)] = 0.0
        features, target = long_features(mdp, h), bellman_backup(mdp, h, after[h]).ravel()
        theta = np.linalg.lstsq(roots[:, None] * features, roots * target, rcond=None)[0]
        errors[h] = (features @ theta - target).reshape(errors[h].shape)
    errors[:, mdp.terminal] = 0.0
    return errors


def terr_brute(mdp: FiniteMDP, controller: Policy | Mixture) -> float:
    """Definition 2 for one controller: every corner of the box of values, every deterministic policy."""
    meets = [planning.occupancies(mdp.transitions, mdp.start, table) for table in all_policies(mdp)]
    weights = np.array([occupancy.ravel() for occupancy in meets])
    bounds = np.array(mdp.spec.value_bound[1:])
    worst = 0.0
    for signs in product([-1.0, 1.0], repeat=(mdp.horizon - 1) * mdp.n_states):
        after = np.zeros((mdp.horizon, mdp.n_states))
        after[:-1] = bounds[:, None] * np.array(signs).reshape(-1, mdp.n_states)
        worst = max(worst, float(np.abs(weights @ literal_errors(mdp, controller, after).ravel()).max()))
    return worst


TINY = [(3, 2, 2, 2, s, False) for s in range(6)] + [(2, 2, 1, 3, s, False) for s in range(3)]
TINY += [(3, 2, 2, 2, s, True) for s in range(6, 9)]


@pytest.mark.parametrize(("n_states", "n_actions", "dim", "horizon", "seed", "terminal"), TINY)
def test_the_bracket_contains_brute_force(
    n_states: int, n_actions: int, dim: int, horizon: int, seed: int, terminal: bool
) -> None:
    mdp = random_mdp(n_states, n_actions, dim, horizon, seed=seed, terminal=terminal, low=-0.5 if terminal else 0.0)
    for controller in (random_policy(mdp, seed), random_policy(mdp, seed, deterministic=True)):
        brute = terr_brute(mdp, controller)
        lower = transfer_error_search(mdp, controller, radius=np.inf)
        upper = transfer_error_upper(mdp, controller, radius=np.inf)
        assert brute > 0.01
        assert lower <= brute + 1e-5
        assert brute <= upper + 1e-5
        assert lower >= 0.99 * brute  # not part of the promise, but the search is good on problems this small


@pytest.mark.parametrize(("low", "high"), [(-1.0, 1.0), (0.0, 2.0), (-3.0, -1.0)])
def test_errors_over_a_box_against_all_its_corners(low: float, high: float) -> None:
    mdp = random_mdp(4, 2, 3, 2, seed=1, terminal=True, low=-1.0)
    policy = random_policy(mdp, 0)
    level = linear_errors(mdp, mdp.occupancies(policy), 0)
    corners = [np.array(corner) for corner in product([low, high], repeat=4)]
    errors = np.array([literal_errors(mdp, policy, np.stack([corner, np.zeros(4)]))[0] for corner in corners])
    np.testing.assert_allclose([level.at(corner) for corner in corners], errors, atol=1e-6)
    np.testing.assert_allclose(level.extremes(low, high)[1], errors.max(axis=0), atol=1e-6)
    np.testing.assert_allclose(level.extremes(low, high)[0], errors.min(axis=0), atol=1e-6)
    sizes = [np.linalg.norm(level.theta_base + level.theta_slope @ corner) for corner in corners]
    below, above = level.largest_norm(low, high)
    assert below - 1e-9 <= max(sizes) <= above + 1e-9
    assert below in (pytest.approx(size) for size in sizes)


def test_bracket_on_a_mixture_and_on_blocks() -> None:
    mdp = random_mdp(3, 2, 2, 2, seed=11)
    mixture = Mixture([random_policy(mdp, 0), random_policy(mdp, 1, deterministic=True)], [0.5, 0.5])
    brute = terr_brute(mdp, mixture)
    assert transfer_error_search(mdp, mixture, radius=np.inf) == pytest.approx(brute, abs=1e-5)
    blocked = blocked_mdp(horizon=2)
    policy = random_policy(blocked, 0)
    lower, upper = (
        transfer_error_search(blocked, policy, radius=np.inf),
        transfer_error_upper(blocked, policy, radius=np.inf),
    )
    assert 0.01 < lower <= upper
    per_block = np.full((2, blocked.spec.n_blocks), 0.3)
    assert transfer_error_search(blocked, policy, radius=per_block) <= transfer_error_upper(
        blocked, policy, radius=per_block
    )


@pytest.mark.parametrize("ball", [0.2, 1.0, None])
def test_bounds_are_valid_where_the_ball_binds(ball: float | None) -> None:
    """Fits are then not linear in V': no brute force over corners, but no value of V' may exceed the upper bound."""
    mdp, rng = random_mdp(3, 2, 2, 2, seed=2), np.random.default_rng(0)
    policy = random_policy(mdp, 0)
    upper = transfer_error_upper(mdp, policy, ball)
    assert transfer_error_search(mdp, policy, radius=ball) <= upper
    for _ in range(200):
        after = np.zeros((2, 3))
        after[0] = rng.uniform(-1, 1, size=3) * mdp.spec.value_bound[1]
        assert transfer_error(mdp, policy, after, ball) <= upper + 1e-12


def test_sup_over_policies_is_exact() -> None:
    mdp = random_mdp(3, 2, 2, 2, seed=5)
    for seed in range(5):
        controller, after = random_policy(mdp, seed), np.zeros((2, 3))
        after[0] = np.random.default_rng(seed).normal(size=3)
        errors = literal_errors(mdp, controller, after)
        sums = [
            abs((planning.occupancies(mdp.transitions, mdp.start, table) * errors).sum()) for table in all_policies(mdp)
        ]
        assert transfer_error(mdp, controller, after, np.inf) == pytest.approx(max(sums), abs=1e-6)
    q = random_q(mdp, 0)
    by_values = transfer_error(mdp, random_policy(mdp, 0), next_values(mdp, q))
    assert transfer_error(mdp, random_policy(mdp, 0), q) == by_values


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), deterministic=st.booleans())
def test_zero_on_low_rank_problems_whatever_the_controller(seed: int, deterministic: bool) -> None:
    """Also when the controller leaves directions unvisited: one action a state, few states."""
    mdp = problems.low_rank(n_states=6, n_actions=3, dim=5, horizon=3, seed=seed % 100)
    controller = random_policy(mdp, seed, deterministic=deterministic)
    assert transfer_error_upper(mdp, controller) < 1e-8
    assert transfer_error_search(mdp, controller, restarts=2) < 1e-8
    assert transfer_error(mdp, controller, random_q(mdp, seed), np.inf) < 1e-8


def test_zero_where_a_start_leaves_most_directions_unvisited() -> None:
    """One start state and one action: a single feature is seen at the first level, four directions are not."""
    base = problems.low_rank()
    mdp = FiniteMDP(
        base.transitions,
        base.rewards,
        np.eye(20)[3],
        base.features.vectors,
        reward_range=(0.0, 1 / 3),
        radius=base.spec.radius,
    )
    controller = TablePolicy(np.broadcast_to(np.eye(4)[0], (3, 20, 4)))
    assert np.linalg.matrix_rank(s4q.theory.expected_grams(mdp, controller)[0, 0]) == 1
    assert transfer_error_upper(mdp, controller) < 1e-8
    shortest = np.linalg.pinv(mdp.features.vectors[0, 3, :1]) @ bellman_backup(mdp, 0, np.zeros(20))[3, :1]
    naive = mdp.features.vectors[0, 3] @ shortest - bellman_backup(mdp, 0, np.zeros(20))[3]
    assert np.abs(naive).max() > 0.01  # the shortest fit would have an error here


def test_zero_for_linear_targets_on_a_bellman_closed_problem() -> None:
    mdp = problems.bellman_closed()
    controller = random_policy(mdp, 0, deterministic=True)
    assert transfer_error(mdp, controller, random_q(mdp, 0), np.inf) < 1e-8  # Definition 1
    assert transfer_error_search(mdp, controller, radius=np.inf) > 0.01  # Definition 2


def test_the_error_moves_with_the_known_amount() -> None:
    amounts = [0.0, 0.01, 0.02, 0.1, 0.3, 1.0]
    found = []
    for amount in amounts:
        mdp = problems.perturbed_low_rank(amount=amount)
        controller = s4q.UniformPolicy(4)
        lower, upper = (
            transfer_error_search(mdp, controller, radius=np.inf),
            transfer_error_upper(mdp, controller, radius=np.inf),
        )
        assert lower <= upper
        found.append(lower)
    assert found[0] < 1e-8
    assert np.all(np.diff(found) > 0)
    assert found[2] / found[1] == pytest.approx(2.0, rel=0.05)
    assert found[3] / found[1] == pytest.approx(10.0, rel=0.2)


def test_the_error_is_proportional_to_the_amount_where_occupancies_are_fixed() -> None:
    """One level: the start alone decides where the controller is."""
    errors = []
    for amount in (0.1, 0.2, 0.8):
        mdp = problems.perturbed_low_rank(horizon=1, amount=amount)
        errors.append(transfer_error(mdp, random_policy(mdp, 0), np.zeros((1, 20)), np.inf))
    np.testing.assert_allclose(errors, np.array([1, 2, 8]) * errors[0], rtol=1e-9)


def recorded(mdp: FiniteMDP, episodes: int = 10**5) -> s4q.Run:
    return s4q.run(s4q.S4Q(mdp, "realisable"), s4q.collectors.CountCollector(mdp, seed=0), episodes, record=True)


def test_errors_of_a_run_are_those_of_its_controllers_and_targets() -> None:
    mdp = problems.perturbed_low_rank(n_states=6, n_actions=2, dim=3, amount=0.3)
    record = recorded(mdp).record
    assert record is not None
    phases = [*record.phases, *([record.unfinished] if record.unfinished else [])]
    best = TablePolicy(np.eye(2)[mdp.q_star.argmax(axis=-1)])
    transfers = phase_transfers(mdp, record)
    assert len(transfers) == len(phases) - 1 > 3
    for p, transfer in enumerate(transfers, start=1):
        counts = np.array([q.n_episodes for q in phases[:p]], dtype=float)
        controller, target = Mixture([q.q for q in phases[:p]], counts / counts.sum()), phases[p].q
        errors = -comparator_errors(mdp, controller, target, record.constants.radius())
        assert transfer.phase == phases[p].phase
        assert transfer.optimal == pytest.approx(abs((mdp.occupancies(best) * errors).sum()), abs=1e-9)
        assert transfer.own == pytest.approx(abs((mdp.occupancies(target) * errors).sum()), abs=1e-9)
        worst = transfer_error(mdp, controller, target, record.constants.radius())
        assert transfer.worst == pytest.approx(worst, abs=1e-9)
        assert transfer.realised <= transfer.worst + 1e-12
    assert transfer_error_realised(mdp, record) == max(t.realised for t in transfers) > 1e-3
    assert transfer_error_runs(mdp, record) == max(t.worst for t in transfers)


def test_exact_features_have_no_error_in_any_run() -> None:
    for mdp in (problems.low_rank(), problems.padded_features(padding=5), problems.bellman_closed()):
        record = recorded(mdp).record
        assert record is not None
        assert transfer_error_runs(mdp, record) < 1e-8


def test_harmless_errors_are_large_and_cost_nothing() -> None:
    for kind in ("unvisited", "cancelling"):
        mdp = problems.harmless_error(kind=kind, n_states=10)  # type: ignore[arg-type]
        record = recorded(mdp).record
        assert record is not None
        assert s4q.theory.check_structure(mdp).closure_residual.max() > 0.04
        assert transfer_error_realised(mdp, record) < 1e-8
        if kind == "cancelling":
            assert transfer_error_runs(mdp, record) < 1e-8
        else:  # some policy would visit the pairs
            assert transfer_error_runs(mdp, record) > 0.1


def test_a_target_that_outlives_the_episode_is_refused() -> None:
    mdp = problems.low_rank()
    with pytest.raises(ValueError, match="last row"):
        transfer_error(mdp, s4q.UniformPolicy(4), np.ones((3, 20)))
    assert len(worst_values(mdp, s4q.UniformPolicy(4), restarts=3)) == 6
