"""Definitions 1 and 2 of the transfer error: brackets against brute force on tiny problems.

The brute force shares no code with the library: occupancies by loops, fits in a ball by bisection, grids of parameters,
values and controllers, all deterministic policies.
"""

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from small_problems import TablePolicy, blocked_mdp, long_features, random_mdp, random_policy

import s4q
from s4q import FiniteMDP, problems
from s4q.theory import TransferBracket, transfer_error_definition1, transfer_error_definition2


def visits(mdp: FiniteMDP, table: np.ndarray) -> np.ndarray:
    """Probabilities of pairs under a policy, (H, S, A), one pair at a time."""
    found = np.zeros(mdp.rewards.shape)
    states = np.array(mdp.start)
    for h in range(mdp.horizon):
        after = np.zeros(mdp.n_states)
        for s, a in product(range(mdp.n_states), range(mdp.n_actions)):
            found[h, s, a] = states[s] * table[h, s, a]
            after += found[h, s, a] * mdp.transitions[h, s, a]
        states = after
    return found


def fit_in_ball(features: np.ndarray, weights: np.ndarray, targets: np.ndarray, ball: float) -> np.ndarray:
    """Weighted least squares in a ball for many targets (n, m): (d, m). A little of every pair breaks ties."""
    weights = weights + 1e-10
    gram, moment = features.T @ (weights[:, None] * features), features.T @ (weights[:, None] * targets)
    sizes, axes = np.linalg.eigh(gram)
    rotated = axes.T @ moment

    def fit(multiplier: np.ndarray) -> np.ndarray:
        return rotated / (sizes[:, None] + multiplier)

    low, high = np.full(targets.shape[1], -16.0), np.full(targets.shape[1], 4.0)  # powers of 10 of the multiplier
    for _ in range(45):
        middle = (low + high) / 2
        outside = np.linalg.norm(fit(10**middle), axis=0) > ball
        low, high = np.where(outside, middle, low), np.where(outside, high, middle)
    free = np.linalg.norm(fit(np.zeros(1)), axis=0) <= ball
    return np.asarray(axes @ fit(np.where(free, 0.0, 10**high)))


def errors(mdp: FiniteMDP, visited: np.ndarray, h: int, many: np.ndarray, ball: float) -> np.ndarray:
    """phi . theta - T V' for many V' (m, S): (m, S A)."""
    features = long_features(mdp, h)
    moves = mdp.transitions[h].reshape(-1, mdp.n_states)
    targets = (mdp.rewards[h] - mdp.spec.reward_min).reshape(-1, 1) + moves @ many.T
    return np.asarray((features @ fit_in_ball(features, visited[h].ravel(), targets, ball) - targets).T)


def comparators(mdp: FiniteMDP) -> np.ndarray:
    """Occupancies of all deterministic policies, (n, H, S A)."""
    cells = mdp.horizon * mdp.n_states
    tables = [np.eye(mdp.n_actions)[list(c)] for c in product(range(mdp.n_actions), repeat=cells)]
    return np.array([visits(mdp, t.reshape(mdp.rewards.shape)).reshape(mdp.horizon, -1) for t in tables])


Candidates = Callable[[int], np.ndarray]  # of a level: many V', (m, S)


def brute(mdp: FiniteMDP, table: np.ndarray, candidates: Candidates, ball: float, meets: np.ndarray) -> float:
    """The largest |sum E error|: levels are free of each other once the policy is fixed."""
    visited, found = visits(mdp, table), np.zeros((2, len(meets)))
    for h in range(mdp.horizon):
        many = candidates(h) if h + 1 < mdp.horizon else np.zeros((1, mdp.n_states))
        expected = errors(mdp, visited, h, many, ball) @ meets[:, h].T
        found += np.array([expected.max(axis=0), (-expected).max(axis=0)])
    return float(found.max())


def dense_ball(dim: int, radius: float) -> np.ndarray:
    """Many points of a ball, its sphere among them, (m, d)."""
    per_axis = {1: 401, 2: 41, 3: 19}[dim]
    axis = np.linspace(-1, 1, per_axis)
    cube = np.stack(np.meshgrid(*[axis] * dim), axis=-1).reshape(-1, dim)
    norms = np.linalg.norm(cube, axis=1)
    sphere = cube[norms > 0.5] / norms[norms > 0.5, None]
    return np.asarray(radius * np.concatenate([cube[norms <= 1], sphere]))


def linear_candidates(mdp: FiniteMDP, ball: float, bounded: bool = True) -> Candidates:
    def values(h: int) -> np.ndarray:
        thetas = dense_ball(mdp.dim, ball)
        q = thetas @ long_features(mdp, h + 1).T
        if bounded:
            q /= np.maximum(1.0, np.abs(q).max(axis=1, keepdims=True) / mdp.spec.value_bound[h + 1])
        return np.asarray(q.reshape(len(q), mdp.n_states, mdp.n_actions).max(axis=2))

    return values


def box_candidates(mdp: FiniteMDP, low: float, points: int) -> Candidates:
    """Points of the box [low v, v]^S."""

    def values(h: int) -> np.ndarray:
        axis = np.linspace(low, 1.0, points) * mdp.spec.value_bound[h + 1]
        return np.array(list(product(axis, repeat=mdp.n_states)))

    return values


def attained(mdp: FiniteMDP, found: TransferBracket, table: np.ndarray, ball: float) -> float:
    """The error of the witness, by the code of this file."""
    witness = found.witness
    assert witness is not None
    meets = visits(mdp, witness.comparator).reshape(mdp.horizon, -1)
    visited = visits(mdp, table)
    terms = [errors(mdp, visited, h, witness.values[h][None], ball)[0] @ meets[h] for h in range(mdp.horizon)]
    return abs(float(np.sum(terms)))


# states, d, H, seed, radius (in units of 1; None for no ball in the fits)
TINY = [
    (2, 1, 1, 0, None), (2, 1, 2, 1, None), (3, 2, 2, 2, None), (2, 2, 3, 3, None), (3, 1, 2, 4, 0.5),
    (3, 2, 2, 5, 1.0), (2, 3, 2, 6, None), (2, 2, 3, 7, 2.0), (2, 3, 2, 8, 1.0), (3, 2, 2, 9, 0.3),
]  # fmt: skip


@pytest.mark.parametrize(("n_states", "dim", "horizon", "seed", "ball"), TINY)
def test_definition_1_against_brute_force(n_states: int, dim: int, horizon: int, seed: int, ball: float | None) -> None:
    mdp = random_mdp(n_states, 2, dim, horizon, seed=seed)
    meets = comparators(mdp)
    fits, targets = (np.inf, 1.5) if ball is None else (ball, ball)
    for deterministic in (False, True) if ball is None else (seed % 2 == 0,):
        controller = random_policy(mdp, seed, deterministic=deterministic)
        found = transfer_error_definition1(mdp, controller, radius=fits, target_radius=targets, restarts=6, seed=seed)
        best = brute(mdp, controller.table, linear_candidates(mdp, targets), fits, meets)
        assert found.lower_from == "search"
        assert best <= found.upper + 1e-4
        assert found.lower == pytest.approx(best, rel=0.01, abs=1e-4)  # a grid is no supremum either
        assert attained(mdp, found, controller.table, fits) == pytest.approx(found.lower, rel=2e-4, abs=1e-5)
        assert found.witness is not None
        assert found.witness.theta is not None
        assert found.witness.controller is None
        theta = found.witness.theta.reshape(horizon, -1)
        for h in range(1, horizon):
            assert np.linalg.norm(theta[h]) <= targets * (1 + 1e-9)
            q = (long_features(mdp, h) @ theta[h]).reshape(n_states, 2)
            assert np.abs(q).max() <= mdp.spec.value_bound[h] * (1 + 1e-9)
            np.testing.assert_allclose(found.witness.values[h - 1], q.max(axis=1), atol=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_definition_1_without_the_value_bound(seed: int) -> None:
    """A ball far larger than the values: the printed class is then larger than the bounded one."""
    mdp = random_mdp(2, 2, 2, 2, seed=seed)
    controller = random_policy(mdp, seed)
    wide, narrow = (
        transfer_error_definition1(mdp, controller, radius=np.inf, target_radius=20.0, bounded=bounded)
        for bounded in (False, True)
    )
    best = brute(mdp, controller.table, linear_candidates(mdp, 20.0, bounded=False), np.inf, comparators(mdp))
    assert wide.lower == pytest.approx(best, rel=0.01)
    assert wide.lower > 2 * narrow.lower
    assert best <= wide.upper


def grid_controllers(mdp: FiniteMDP, shares: tuple[float, ...]) -> list[np.ndarray]:
    cells = mdp.horizon * mdp.n_states
    return [np.stack([p, 1 - np.array(p)], axis=-1).reshape(mdp.rewards.shape) for p in product(shares, repeat=cells)]


@pytest.mark.parametrize(
    ("dim", "horizon", "seed", "ball"),
    [
        (1, 1, 0, None),
        (1, 2, 1, None),
        (2, 2, 2, None),
        (2, 2, 3, 0.5),
        (1, 2, 4, 1.0),
        (3, 2, 5, None),
        (2, 1, 6, 0.7),
    ],
)
@pytest.mark.parametrize("values", ["printed", pytest.param("shifted", marks=pytest.mark.slow)])
def test_definition_2_against_brute_force(dim: int, horizon: int, seed: int, ball: float | None, values: str) -> None:
    """Every controller of a grid, near-deterministic ones among them, all corners (with a ball also points inside)."""
    mdp = random_mdp(2, 2, dim, horizon, seed=seed)
    fits, meets = np.inf if ball is None else ball, comparators(mdp)
    candidates = box_candidates(mdp, -1.0 if values == "printed" else 0.0, 2 if ball is None else 7)
    tables = grid_controllers(mdp, (0.0, 0.1, 0.6, 1.0) if ball is None else (0.0, 0.3, 1.0))
    best = max(brute(mdp, table, candidates, fits, meets) for table in tables)
    found = transfer_error_definition2(mdp, radius=fits, restarts=6, seed=seed, values=values)  # type: ignore[arg-type]
    assert found.witness is not None
    assert found.witness.controller is not None
    assert found.upper_from == ("none" if ball is None else "trivial")
    assert found.lower >= 0.98 * best  # the search may find more than the grid
    assert best <= found.upper + 1e-4
    assert attained(mdp, found, found.witness.controller, fits) == pytest.approx(found.lower, rel=1e-3, abs=1e-4)
    np.testing.assert_allclose(found.witness.controller.sum(axis=-1), 1.0)
    top = np.array([*mdp.spec.value_bound[1:], 0.0])[:, None]
    assert np.all(found.witness.values <= top)
    assert np.all(found.witness.values >= (-top if values == "printed" else 0.0))


def exact_mdp(seed: int, n_states: int = 3, dim: int = 2, horizon: int = 3, radius: float | None = None) -> FiniteMDP:
    """Low rank by construction: features on the simplex, one law of the next state and one reward for each of them."""
    rng = np.random.default_rng(seed)
    features = rng.dirichlet(np.ones(dim), size=(horizon, n_states, 2))
    transitions = features @ rng.dirichlet(np.ones(n_states), size=dim)
    rewards = features @ rng.random(dim)
    return FiniteMDP(transitions, rewards, rng.dirichlet(np.ones(n_states)), features, radius=radius)


@pytest.mark.parametrize("seed", range(5))
def test_exact_features_have_error_0_by_both_definitions(seed: int) -> None:
    mdp = exact_mdp(seed, radius=20.0)
    controller = random_policy(mdp, seed, deterministic=True)
    for found in (transfer_error_definition1(mdp, controller), transfer_error_definition2(mdp)):
        assert (found.lower, found.upper) == (0.0, 0.0)
        assert found.upper_from == found.lower_from == "exact features"
        assert found.witness is None
    tables = (controller.table, random_policy(mdp, seed + 1, deterministic=True).table, random_policy(mdp, seed).table)
    for table in tables:
        assert brute(mdp, table, box_candidates(mdp, -1.0, 2), 20.0, comparators(mdp)[::7]) < 1e-4


def test_exact_features_in_too_small_a_ball_are_not_exact() -> None:
    """The best fit in the ball is then not the backup: the bracket must not say 0."""
    mdp = exact_mdp(0, n_states=2, horizon=2, radius=0.5)
    controller = random_policy(mdp, 0)
    for found, table in (
        (transfer_error_definition1(mdp, controller), controller.table),
        (transfer_error_definition2(mdp), None),
    ):
        assert found.upper_from != "exact features"
        assert found.lower > 0.05
        assert found.witness is not None
        used = found.witness.controller if table is None else table
        assert used is not None
        assert attained(mdp, found, used, 0.5) == pytest.approx(found.lower, rel=1e-3)


def test_a_shortest_fit_would_not_be_0() -> None:
    """The rule for unvisited directions matters: the fit of least norm has an error where the features are exact."""
    mdp = exact_mdp(1, radius=20.0)
    table = random_policy(mdp, 1, deterministic=True).table
    worst = 0.0
    for h in range(mdp.horizon):
        features, weights = long_features(mdp, h), visits(mdp, table)[h].ravel()
        weights[weights < weights.max()] = 0.0  # one pair only: a direction is never seen
        target = mdp.rewards[h].ravel()
        roots = np.sqrt(weights)
        theta = np.linalg.lstsq(roots[:, None] * features, roots * target, rcond=1e-9)[0]
        worst = max(worst, float(np.abs(features @ theta - target).max()))
    assert worst > 0.01


def test_closed_problems_have_error_0_by_definition_1_only() -> None:
    mdp = problems.bellman_closed()
    uniform = s4q.UniformPolicy(mdp.n_actions)
    assert transfer_error_definition1(mdp, uniform, radius=np.inf).upper == 0.0
    found = transfer_error_definition2(mdp, radius=np.inf, restarts=1, sweeps=0)
    assert found.lower > 0.01


def test_definition_1_lies_below_the_bounded_targets_and_definition_2_above_all_controllers() -> None:
    mdp = problems.perturbed_low_rank(n_states=5, n_actions=2, dim=3, horizon=2, amount=0.3)
    uniform = s4q.UniformPolicy(2)
    first, second = transfer_error_definition1(mdp, uniform), transfer_error_definition2(mdp, restarts=2, sweeps=2)
    assert 0 < first.lower <= first.upper <= s4q.theory.transfer_error_upper(mdp, uniform) + 1e-12
    assert second.lower >= s4q.theory.transfer_error_search(mdp, uniform) * (1 - 1e-9)
    assert first.upper_from == "every pair at its worst"
    assert second.witness is not None
    assert second.witness.controller is not None
    again = s4q.theory.transfer_error(mdp, TablePolicy(second.witness.controller), second.witness.values)
    assert again == pytest.approx(second.lower, rel=1e-9)


def test_blocks_terminal_states_and_costs() -> None:
    blocked = blocked_mdp(horizon=2)
    found = transfer_error_definition1(blocked, random_policy(blocked, 0), radius=np.full((2, 3), 0.4), restarts=2)
    assert 0.01 < found.lower <= found.upper
    ending = random_mdp(3, 2, 2, 2, seed=6, terminal=True, low=-0.5)
    policy = random_policy(ending, 0)
    for bracket in (
        transfer_error_definition1(ending, policy, restarts=2),
        transfer_error_definition2(ending, restarts=2),
    ):
        witness = bracket.witness
        assert witness is not None
        controller = policy if witness.controller is None else TablePolicy(witness.controller)
        assert s4q.theory.transfer_error(ending, controller, witness.values) == pytest.approx(bracket.lower, rel=1e-9)
        assert bracket.lower <= bracket.upper


def test_the_search_is_deterministic_and_refuses_nonsense() -> None:
    mdp = random_mdp(2, 2, 2, 2, seed=0)
    uniform = s4q.UniformPolicy(2)
    one, two = (transfer_error_definition2(mdp, restarts=3, seed=5).lower for _ in range(2))
    assert one == two
    with pytest.raises(ValueError, match="restarts"):
        transfer_error_definition1(mdp, uniform, restarts=0)
    with pytest.raises(ValueError, match="target_radius"):
        transfer_error_definition1(mdp, uniform, target_radius=np.inf)
    with pytest.raises(ValueError, match='"printed" or "shifted"'):
        transfer_error_definition2(mdp, values="any")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="sweeps"):
        transfer_error_definition2(mdp, sweeps=-1)
