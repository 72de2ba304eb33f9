"""FiniteMDP and its planning against brute force, and each problem against its description."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_problems import all_policies, cliff, random_mdp

import s4q
from s4q import problems
from s4q.problems import FiniteMDP, planning


def enumerated_value(mdp: FiniteMDP, table: np.ndarray) -> float:
    """Expected return by walking every path."""

    def walk(h: int, s: int) -> float:
        if h == mdp.horizon:
            return 0.0
        total = 0.0
        for a in range(mdp.n_actions):
            after = sum(mdp.transitions[h, s, a, t] * walk(h + 1, t) for t in range(mdp.n_states))
            total += table[h, s, a] * (mdp.rewards[h, s, a] + after)
        return total

    return sum(mdp.start[s] * walk(0, s) for s in range(mdp.n_states))


@pytest.mark.parametrize("terminal", [False, True])
def test_planning_against_enumeration(terminal: bool) -> None:
    mdp = random_mdp(2, 2, 2, 3, seed=9, terminal=terminal)
    values = [enumerated_value(mdp, table) for table in all_policies(mdp)]
    assert max(values) == pytest.approx(mdp.v_star, abs=1e-12)
    for table, value in list(zip(all_policies(mdp), values, strict=True))[::7]:
        q = planning.policy_values(mdp.transitions, mdp.rewards, table)
        assert mdp.start @ (table[0] * q[0]).sum(axis=1) == pytest.approx(value, abs=1e-12)


@given(seed=st.integers(0, 10**6), horizon=st.integers(1, 5), n_actions=st.integers(1, 3))
def test_value_is_reward_summed_over_occupancies(seed: int, horizon: int, n_actions: int) -> None:
    mdp = random_mdp(4, n_actions, 2, horizon, seed=seed)
    policy = s4q.UniformPolicy(n_actions)
    occupancy = mdp.occupancies(policy)
    np.testing.assert_allclose(occupancy.sum(axis=(1, 2)), 1.0)
    assert (occupancy * mdp.rewards).sum() == pytest.approx(mdp.value(policy), abs=1e-12)
    assert mdp.value(policy) <= mdp.v_star + 1e-12


def test_value_of_a_mixture_is_the_mean_of_values() -> None:
    mdp = problems.chain()
    best, uniform = s4q.LinearQ.from_arrays(mdp.q_star.reshape(10, 20, 1)), s4q.UniformPolicy(2)
    mixed = s4q.Mixture([best, uniform], [0.25, 0.75])
    assert mdp.value(mixed) == pytest.approx(0.25 * mdp.value(best) + 0.75 * mdp.value(uniform))


def test_chain_is_the_one_others_are_measured_on() -> None:
    mdp = problems.chain()
    assert (mdp.n_states, mdp.n_actions, mdp.horizon, mdp.dim) == (10, 2, 10, 20)
    assert mdp.v_star == pytest.approx(0.6361, abs=5e-5)
    assert mdp.transitions[3, 4, 1, 5] == 0.95
    assert mdp.transitions[3, 4, 1, 4] == pytest.approx(0.05)
    assert mdp.transitions[3, 4, 0, 3] == 1.0
    assert (mdp.rewards[0, 0, 0], mdp.rewards[0, 9, 1], mdp.rewards.sum()) == (0.005, 1.0, pytest.approx(10.05))
    assert mdp.spec.value_bound == (1.0,) * 10
    assert mdp.spec.stationary


def test_river_swim() -> None:
    mdp = problems.river_swim(6, horizon=12)
    np.testing.assert_allclose(mdp.transitions[0, 2, 1], [0, 0.05, 0.6, 0.35, 0, 0])
    np.testing.assert_allclose(mdp.transitions[0, 0, 1], [0.4, 0.6, 0, 0, 0, 0])
    np.testing.assert_allclose(mdp.transitions[0, 5, 1], [0, 0, 0, 0, 0.4, 0.6])
    np.testing.assert_allclose(mdp.transitions[0, 3, 0], [0, 0, 1, 0, 0, 0])
    np.testing.assert_allclose(mdp.rewards[0, [0, 5], [0, 1]], [0.005 / 12, 1 / 12])
    assert mdp.spec.value_bound[0] == 1.0


@pytest.mark.parametrize("size", [2, 5, 10])
def test_deep_sea(size: int) -> None:
    mdp = problems.deep_sea(size)
    assert mdp.dim == 2 * size
    assert mdp.v_star == pytest.approx(0.99)
    assert mdp.facts().chance == pytest.approx(2.0**-size)
    assert not mdp.spec.stationary
    other = problems.deep_sea(size, seed=1)
    assert other.v_star == pytest.approx(0.99)
    assert size == 2 or not np.array_equal(mdp.transitions, other.transitions)
    slippery = problems.deep_sea(size, stochastic=True)
    # Going right all the way works with probability (1 - 1/N)^(N-1): the last move pays wherever it leads.
    assert slippery.v_star == pytest.approx((1 - 1 / size) ** (size - 1) - 0.01, abs=0.01)


def test_combination_lock() -> None:
    mdp = problems.combination_lock(4, 5)
    facts = mdp.facts()
    assert (facts.v_star, facts.v_uniform, facts.chance) == (1.0, pytest.approx(4.0**-5), pytest.approx(4.0**-5))
    assert mdp.dim == 8


def residual(features: np.ndarray, values: np.ndarray) -> float:
    """Largest least-squares residual of values (SA, m) on features (SA, d)."""
    fit = np.linalg.lstsq(features, values, rcond=None)[0]
    return float(np.abs(features @ fit - values).max())


@pytest.mark.parametrize("build", [problems.low_rank, problems.bellman_closed])
def test_linear_problems_have_the_structure_they_claim(build: object) -> None:
    mdp = build()  # type: ignore[operator]
    rng = np.random.default_rng(0)
    low_rank = []
    for h in range(mdp.horizon):
        phi = mdp.features.vectors[h].reshape(-1, mdp.dim)
        assert np.linalg.norm(phi, axis=1).max() <= 1
        low_rank.append(residual(phi, mdp.transitions[h].reshape(len(phi), -1)))
        assert residual(phi, mdp.rewards[h].reshape(-1, 1)) < 1e-12
        if h + 1 < mdp.horizon:  # Bellman closed: the backup of any linear Q is linear
            theta = rng.normal(size=(mdp.dim, 50))
            after = np.einsum("sad,dm->sam", mdp.features.vectors[h + 1], theta).max(axis=1)
            backup = np.einsum("sat,tm->sam", mdp.transitions[h], after).reshape(len(phi), -1)
            assert residual(phi, backup) < 1e-12
    assert max(low_rank) < 1e-12 if build is problems.low_rank else min(low_rank) > 0.01


@pytest.mark.parametrize("build", [problems.low_rank, problems.bellman_closed])
def test_the_radius_of_linear_problems_is_exact(build: object) -> None:
    """Backups of values in [0, v_{h+1}] need at most the declared radius, and the constant v_{h+1} needs all of it."""
    mdp = build()  # type: ignore[operator]
    for h in range(mdp.horizon):
        phi = mdp.features.vectors[h].reshape(-1, mdp.dim)
        after = mdp.spec.value_bound[h + 1] if h + 1 < mdp.horizon else 0.0
        backup = (mdp.rewards[h] + mdp.transitions[h] @ np.full(mdp.n_states, after)).ravel()
        theta = np.linalg.lstsq(phi, backup, rcond=None)[0]
        longest = np.linalg.norm(phi, axis=1).max()
        least = (1 / mdp.horizon + after) / longest  # the largest target, whatever is really paid
        assert max(np.linalg.norm(theta), least) == pytest.approx(mdp.spec.radius[h], rel=1e-9)


def test_perturbed_low_rank_is_as_far_from_linear_as_it_says() -> None:
    exact, perturbed = problems.low_rank(seed=3), problems.perturbed_low_rank(amount=0.0, seed=3)
    np.testing.assert_allclose(perturbed.transitions, exact.transitions, atol=1e-15)
    np.testing.assert_allclose(perturbed.rewards, exact.rewards, atol=1e-15)
    np.testing.assert_array_equal(perturbed.start, exact.start)
    assert perturbed.spec.well_specified
    for amount in (0.1, 0.5):
        mdp = problems.perturbed_low_rank(amount=amount, seed=3)
        assert not mdp.spec.well_specified
        moved = np.abs(mdp.transitions - exact.transitions).sum(axis=-1)  # twice the total variation
        assert 0.5 * amount < moved.max() <= 2 * amount
        assert np.abs(mdp.rewards - exact.rewards).max() <= amount / 3
    with pytest.raises(ValueError, match="amount"):
        problems.perturbed_low_rank(amount=1.5)


def test_harmless_error_hides_its_error_where_it_says() -> None:
    twin = problems.harmless_error(kind="unvisited", amount=0.2)
    np.testing.assert_array_equal(twin.features.vectors[:, :, -1], twin.features.vectors[:, :, 0])
    np.testing.assert_array_equal(twin.transitions[:, :, -1], twin.transitions[:, :, 0])
    np.testing.assert_allclose(twin.rewards[:, :, 0] - twin.rewards[:, :, -1], 0.2 / 4)
    coin = problems.harmless_error(kind="cancelling", amount=0.2)
    heads, tails = coin.rewards[:, :20], coin.rewards[:, 20:]
    np.testing.assert_allclose(heads - tails, np.broadcast_to(np.reshape([0.1, -0.1] * 2, (4, 1, 1)), heads.shape))
    assert coin.transitions[:, :20, :, 20:].max() == coin.transitions[:, 20:, :, :20].max() == 0
    assert twin.v_star == pytest.approx(coin.v_star, abs=1e-12)
    assert coin.v_star == pytest.approx(problems.harmless_error(amount=0.0).v_star, abs=1e-12)
    for bad in ({"amount": 0.3}, {"kind": "other"}, {"horizon": 3}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            problems.harmless_error(**bad)  # type: ignore[arg-type]


def test_padding_changes_nothing_but_the_features() -> None:
    plain, padded = problems.low_rank(dim=3), problems.padded_features(padding=7, size=0.01)
    np.testing.assert_allclose(padded.transitions, plain.transitions)
    np.testing.assert_array_equal(padded.rewards, plain.rewards)
    np.testing.assert_allclose(np.linalg.norm(padded.features.vectors[..., 3:], axis=-1), 0.01)
    assert padded.dim == 10
    for h in range(3):
        assert residual(padded.features.vectors[h].reshape(-1, 10), padded.rewards[h].reshape(-1, 1)) < 1e-12
    with pytest.raises(ValueError, match="size"):
        problems.padded_features(size=1.0)


@pytest.mark.parametrize(
    "mdp",
    [
        problems.chain(),
        problems.chain(5, 20),
        problems.river_swim(),
        problems.deep_sea(),
        problems.deep_sea(stochastic=True),
        problems.combination_lock(),
        problems.low_rank(),
        problems.bellman_closed(),
        problems.perturbed_low_rank(),
        problems.harmless_error(),
        problems.harmless_error(kind="unvisited"),
        problems.padded_features(),
        cliff(),
    ],
)
def test_declared_bounds_hold_and_facts_are_consistent(mdp: FiniteMDP) -> None:
    for h in range(mdp.horizon):
        shifted = mdp.q_star[h] - (mdp.horizon - h) * mdp.spec.reward_min
        assert shifted[mdp.reachable[h]].max(initial=0) <= mdp.spec.value_bound[h] + 1e-9
    facts = mdp.facts()
    assert facts.v_uniform <= facts.v_star
    assert 0 < facts.chance <= 1


def test_stationarity_is_seen_in_the_arrays() -> None:
    base = problems.chain(4, 3)
    assert base.spec.stationary
    written = FiniteMDP(np.array(base.transitions), np.array(base.rewards), base.start)
    assert written.spec.stationary
    rewards = np.array(base.rewards)
    rewards[1, 0, 0] = 0.5
    assert not FiniteMDP(base.transitions, rewards, base.start).spec.stationary
    transitions = np.array(base.transitions)
    transitions[2, 0, 0] = [0.5, 0.5, 0.0, 0.0]
    assert not FiniteMDP(transitions, base.rewards, base.start).spec.stationary
    features = np.full((3, 4, 2, 2), 0.5)
    assert FiniteMDP(base.transitions, base.rewards, base.start, features).spec.stationary
    features[2] = 0.4
    assert not FiniteMDP(base.transitions, base.rewards, base.start, features).spec.stationary


def test_default_and_declared_value_bounds() -> None:
    stay = np.ones((1, 2, 1))
    rewards = [[-1.0, 0.5]]
    default = FiniteMDP(stay, rewards, [1.0], horizon=3, reward_range=(-1.0, 0.5))
    assert default.spec.value_bound == (4.5, 3.0, 1.5)
    declared = FiniteMDP(stay, rewards, [1.0], horizon=3, reward_range=(-1.0, 0.5), value_bound=1.5)
    assert declared.spec.value_bound == (4.5, 3.0, 1.5)  # min(1.5 + shift, range)
    with pytest.raises(ValueError, match=r"value_bound is 0.7 at level 0, but Q\* reaches 1.5"):
        FiniteMDP(stay, rewards, [1.0], horizon=3, reward_range=(-1.0, 0.5), value_bound=0.7)


def test_bounds_of_a_problem_with_only_costs_that_may_end() -> None:
    """All rewards are negative, yet an ended episode earns 0: the bound of later levels must leave room for it."""
    spec = s4q.Spec.of(cliff().features, horizon=3, reward_range=(-10.0, -1.0))
    assert spec.value_bound == (29.0, 20.0, 10.0)
    for h in range(2):
        assert spec.value_bound[h + 1] >= spec.ended_value(h)
    # y lies in [0, largest reward + v_{h+1}], whatever v_h is.
    assert [spec.half_range(h) for h in range(3)] == [14.5, 9.5, 4.5]
    declared = s4q.Spec.of(cliff().features, horizon=3, reward_range=(0.0, 1.0), value_bound=1.5)
    assert declared.value_bound == (1.5, 1.5, 1.0)
    assert [declared.half_range(h) for h in range(3)] == [1.25, 1.0, 0.5]
