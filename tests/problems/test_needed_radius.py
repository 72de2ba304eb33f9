"""The radius that exact features need, against brute force over all corners and closed forms worked by hand."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

import s4q
from s4q import FiniteMDP
from s4q.features import TableFeatures
from s4q.problems.radius import largest_norm, needed_radius


def brute_radius(mdp: FiniteMDP, h: int, block: int | None = None) -> float:
    """The largest norm of a parameter of T_h V' over all V' in {0, v}^S, by plain least squares for each corner.

    Next states with equal features share a value; pairs that no policy reaches do not count.
    """
    bound = mdp.spec.value_bound[h + 1] if h + 1 < mdp.horizon else 0.0
    vectors, blocks = mdp.features.vectors[h], mdp.features.blocks[h]
    n_blocks, k = mdp.features.n_blocks, mdp.features.block_dim
    pairs = [(s, a) for s in range(mdp.n_states) for a in range(mdp.n_actions) if mdp.reachable[h, s]]
    written = np.zeros((len(pairs), n_blocks * k))
    for row, (s, a) in enumerate(pairs):
        written[row, blocks[s, a] * k : (blocks[s, a] + 1) * k] = vectors[s, a]
    next_level = min(h + 1, mdp.horizon - 1)
    names = [str(sorted(map(str, mdp.features.vectors[next_level, s]))) for s in range(mdp.n_states)]
    kinds = sorted(set(names)) if mdp.features.n_blocks == 1 else list(range(mdp.n_states))
    groups = [kinds.index(name) for name in names] if mdp.features.n_blocks == 1 else kinds
    largest = 0.0
    for corner in product((0.0, bound), repeat=len(kinds)):
        value = np.array([corner[g] for g in groups])
        value[mdp.terminal] = (mdp.horizon - 1 - h) * -mdp.spec.reward_min
        target = [mdp.rewards[h, s, a] - mdp.spec.reward_min + mdp.transitions[h, s, a] @ value for s, a in pairs]
        theta = np.linalg.lstsq(written, np.array(target), rcond=None)[0]
        part = theta if block is None else theta[block * k : (block + 1) * k]
        largest = max(largest, float(np.linalg.norm(part)))
    return largest


def dense_problem(seed: int, scale: float = 1.0, horizon: int = 2) -> FiniteMDP:
    """Low rank, features rotated so that parameters have both signs."""
    rng = np.random.default_rng([5, seed])
    n_states, n_actions, dim = 4, 3, 3
    phi = rng.dirichlet(np.full(dim, 0.4), size=(horizon, n_states, n_actions))
    mu = rng.dirichlet(np.full(n_states, 0.4), size=(horizon, dim))
    theta = rng.random((horizon, dim)) / horizon
    turn = np.linalg.qr(rng.normal(size=(dim, dim)))[0]
    return FiniteMDP(
        np.einsum("hsad,hdt->hsat", phi, mu),
        np.einsum("hsad,hd->hsa", phi, theta),
        rng.dirichlet(np.ones(n_states)),
        phi @ turn * scale,
        reward_range=(0.0, 1 / horizon),
        well_specified=True,
    )


def block_problem(seed: int) -> FiniteMDP:
    """Every action has its own block, of which the features are the states: exact, n_blocks = 2 and k = 3."""
    rng = np.random.default_rng([6, seed])
    n_states, horizon = 3, 3
    turn = np.linalg.qr(rng.normal(size=(n_states, n_states)))[0]
    vectors = np.broadcast_to(turn[None, :, None], (horizon, n_states, 2, n_states)) * 0.7
    blocks = np.broadcast_to(np.arange(2), (horizon, n_states, 2))
    return FiniteMDP(
        rng.dirichlet(np.ones(n_states), size=(horizon, n_states, 2)),
        rng.random((horizon, n_states, 2)),
        rng.dirichlet(np.ones(n_states)),
        TableFeatures(np.array(vectors), np.array(blocks), 2),
        well_specified=True,
    )


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("scale", [1.0, 0.2])
def test_dense_features_need_what_brute_force_finds(seed, scale):
    mdp = dense_problem(seed, scale)
    assert mdp.spec.radius_from == "computed"
    longest = np.linalg.norm(mdp.features.vectors, axis=-1).max(axis=(1, 2))
    for h in range(mdp.horizon):
        least = (0.5 + (mdp.spec.value_bound[h + 1] if h + 1 < mdp.horizon else 0.0)) / longest[h]
        assert mdp.spec.radius[h] == pytest.approx(max(brute_radius(mdp, h), least), rel=1e-9)
        assert mdp.spec.block_radius[h] == mdp.spec.radius[h]


@pytest.mark.parametrize("seed", range(4))
def test_a_block_needs_less_than_the_whole(seed):
    mdp = block_problem(seed)
    for h in range(mdp.horizon):
        of_blocks = max(brute_radius(mdp, h, block) for block in range(2))
        least = (1 + (mdp.spec.value_bound[h + 1] if h + 1 < mdp.horizon else 0.0)) / 0.7
        assert of_blocks < brute_radius(mdp, h)
        assert mdp.spec.radius[h] == pytest.approx(max(brute_radius(mdp, h), least), rel=1e-9)
        assert mdp.spec.block_radius[h] == pytest.approx(max(of_blocks, least), rel=1e-9)


def test_one_hot_features_by_hand():
    # Two states, one action, H = 2; state 1 is terminal; rewards in [-1, 1], so shifted rewards are r + 1 and an
    # episode that ends after level 0 is worth 1 more. v_1 = 2 in shifted units.
    moves = [[[0.25, 0.75]], [[0.0, 1.0]]]
    mdp = FiniteMDP(moves, [[0.5], [0.0]], [1.0, 0.0], horizon=2, reward_range=(-1.0, 1.0), terminal=[False, True])
    assert mdp.spec.value_bound == (4.0, 2.0)
    # Needed: 1.5 + 0.75 * 1 + 0.25 * 2 = 2.75 at level 0, 1.5 at level 1. The largest targets, 4 and 2, are larger.
    assert mdp.spec.block_radius == (4.0, 2.0)
    half = TableFeatures(0.5 * mdp.features.vectors, mdp.features.blocks, mdp.features.n_blocks)
    scaled = FiniteMDP(
        moves,
        [[0.5], [0.0]],
        [1.0, 0.0],
        half,
        horizon=2,
        reward_range=(-1.0, 1.0),
        terminal=[False, True],
        well_specified=True,
    )
    assert scaled.spec.block_radius == (8.0, 4.0)
    assert brute_radius(scaled, 0) == pytest.approx(5.5)
    assert brute_radius(scaled, 1) == pytest.approx(3.0)


def test_a_declared_radius_that_is_too_small_is_refused():
    mdp = dense_problem(1)
    needed = [brute_radius(mdp, h) for h in range(mdp.horizon)]
    tables = (mdp.transitions, mdp.rewards, mdp.start, mdp.features.vectors)

    def declared(radius, well_specified=True):
        return FiniteMDP(*tables, reward_range=(0.0, 0.5), radius=radius, well_specified=well_specified)

    kept = declared([needed[0] * 1.0001, needed[1] * 3])
    assert kept.spec.radius_from == "declared"
    assert kept.spec.radius == (needed[0] * 1.0001, needed[1] * 3)
    with pytest.raises(ValueError, match=r"radius is .* at level 1, but the parameter of a target reaches norm"):
        declared([needed[0] * 1.0001, needed[1] * 0.999])
    assert declared(0.01, well_specified=False).spec.radius == (0.01, 0.01)  # nothing exact is claimed


def test_other_maps_assume_the_largest_target():
    spec = s4q.Spec.of(
        s4q.features.OneHot(5, n_actions=2), horizon=3, reward_range=(-1, 1), value_bound=1.5, may_end=False
    )
    # Shifted: v = (4.5, 3.5, 2.5) cut at what the rewards allow, (6, 4, 2); largest targets 2 + v_{h+1}.
    assert spec.value_bound == (4.5, 3.5, 2.0)
    assert spec.block_radius == (5.5, 4.0, 2.0)
    np.testing.assert_allclose(spec.radius, np.sqrt(10) * np.array([5.5, 4.0, 2.0]))
    assert spec.radius_from == "default"
    page = s4q.S4Q(spec, "realisable").explain()
    assert "assumed: sqrt(length) times the largest target" in page


@pytest.mark.parametrize("seed", range(40))
def test_bracket_of_the_largest_norm(seed):
    rng = np.random.default_rng(seed)
    dim, n = int(rng.integers(1, 5)), int(rng.integers(1, 9))
    base, slope = rng.normal(size=dim), rng.normal(size=(dim, n)) * (rng.random((dim, n)) < 0.7)
    low, high = sorted(rng.normal(size=2))
    corners = np.array(list(product((low, high), repeat=n)))
    exact = np.linalg.norm(base[None] + corners @ slope.T, axis=1).max()
    below, above = largest_norm(base, slope, low, high)
    assert below == pytest.approx(exact, rel=1e-12)
    assert above == pytest.approx(exact, rel=1e-12)


@pytest.mark.parametrize("seed", range(10))
def test_bracket_without_all_corners(seed, monkeypatch):
    monkeypatch.setattr("s4q.problems.radius._MOST_ENUMERATED", 0)
    rng = np.random.default_rng([9, seed])
    base, slope = rng.normal(size=3), rng.normal(size=(3, 8))
    corners = np.array(list(product((0.0, 1.0), repeat=8)))
    exact = np.linalg.norm(base[None] + corners @ slope.T, axis=1).max()
    below, above = largest_norm(base, slope, 0.0, 1.0)
    assert below <= exact * (1 + 1e-12)
    assert exact <= above * (1 + 1e-12)
    assert above <= 1.6 * below


def test_practical_is_not_projected_and_realisable_balances_bias_and_noise():
    mdp = dense_problem(0)
    practical, exact = s4q.S4Q(mdp).constants, s4q.S4Q(mdp, "realisable").constants
    assert np.isinf(practical.radius()).all()
    for h, after in enumerate((mdp.spec.value_bound[1], 0.0)):
        assert exact.ridge(3, 100)[h] == pytest.approx(((0.5 + after) / 2 / mdp.spec.block_radius[h]) ** 2)


def test_river_swim_with_short_features_is_learned_as_well():
    """With the radius of features of norm 1, these runs ended with a gap of 28 to 92 percent."""
    gaps = []
    for scale in (1.0, 0.05):
        mdp = s4q.problems.river_swim(6, horizon=12)
        table = TableFeatures(scale * mdp.features.vectors, mdp.features.blocks, mdp.features.n_blocks)
        short = FiniteMDP(
            mdp.transitions,
            mdp.rewards,
            mdp.start,
            table,
            reward_range=(0.0, mdp.spec.reward_max),
            reward_noise="none",
            well_specified=True,
        )
        run = s4q.run(s4q.S4Q(short), s4q.collectors.CountCollector(short, seed=0), episodes=3000)
        gaps.append(run.gap / short.v_star)
    assert gaps == pytest.approx([0.0, 0.0], abs=0.02)


def pooled_brute_radius(mdp: FiniteMDP, h: int) -> float:
    """For a stationary problem: steps of every level are samples of level h, also those after the last level."""
    bound = mdp.spec.value_bound[h + 1] if h + 1 < mdp.horizon else 0.0
    states = [s for s in range(mdp.n_states) if mdp.reachable[:, s].any()]
    phi = mdp.features.vectors[0][states].reshape(-1, mdp.dim)
    largest = 0.0
    for corner in product((0.0, bound), repeat=mdp.n_states):
        target = (mdp.rewards[0, states] + mdp.transitions[0, states] @ np.array(corner)).ravel()
        largest = max(largest, float(np.linalg.norm(np.linalg.lstsq(phi, target, rcond=None)[0])))
    return largest


def test_pooled_steps_lead_beyond_the_last_level():
    """State 2 is reached after the last step only, and yet a pooled step ends there with an optimistic value."""
    moves, rewards = np.zeros((3, 8, 3)), np.zeros((3, 8))
    moves[0, :, 1] = moves[1, :, 2] = moves[2, :, 2] = 1.0
    rewards[1] = 1.0
    settings = {"horizon": 2, "value_bound": 1.0, "reward_noise": "none", "well_specified": True}
    mdp = FiniteMDP(moves, rewards, np.eye(3)[0], np.eye(24).reshape(3, 8, 24), **settings)
    assert mdp.spec.stationary
    assert mdp.spec.radius[0] == pytest.approx(pooled_brute_radius(mdp, 0)) == pytest.approx(np.sqrt(8 + 4 * 8))
    run = s4q.run(s4q.S4Q(mdp, "realisable"), s4q.collectors.CountCollector(mdp, seed=0), 10**5, record=True)
    assert run.certificate.upper >= mdp.v_star
    with pytest.raises(ValueError, match=r"radius is 4 at level 0"):
        FiniteMDP(moves, rewards, np.eye(3)[0], np.eye(24).reshape(3, 8, 24), radius=4.0, **settings)


@pytest.mark.parametrize("seed", range(5))
def test_stationary_dense_problems(seed):
    rng = np.random.default_rng([8, seed])
    phi, mu = rng.dirichlet(np.full(3, 0.4), size=(5, 2)), rng.dirichlet(np.full(5, 0.2), size=3)
    turn = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    moves, rewards = phi @ mu, phi @ rng.random(3)
    mdp = FiniteMDP(moves, rewards, np.eye(5)[0], phi @ turn, horizon=3, well_specified=True)
    longest = np.linalg.norm(mdp.features.vectors[0], axis=-1).max()
    for h in range(3):
        least = (1 + (mdp.spec.value_bound[h + 1] if h < 2 else 0.0)) / longest
        assert mdp.spec.radius[h] == pytest.approx(max(pooled_brute_radius(mdp, h), least), rel=1e-9)


def test_a_state_without_features_is_worth_nothing():
    """State 0 pays 0.5 and leads to a state whose features are 0: no target exceeds 0.5, whatever the value bound."""
    moves = np.array([[[0.0, 1.0]], [[0.0, 1.0]]])
    phi = np.array([[[1.0]], [[0.0]]])
    mdp = FiniteMDP(moves, [[0.5], [0.0]], [1.0, 0.0], phi, horizon=3, radius=0.5, well_specified=True)
    assert mdp.spec.radius == (0.5, 0.5, 0.5)


def test_features_that_are_not_exact_are_not_believed():
    mdp = dense_problem(2)
    tables = (mdp.transitions, mdp.rewards, mdp.start)
    with pytest.raises(ValueError, match=r"well_specified=True .* at level 0 a regression target is 0\.\d+ away"):
        FiniteMDP(*tables, mdp.features.vectors[..., :2], reward_range=(0.0, 0.5), well_specified=True)
    wrong = s4q.problems.perturbed_low_rank(amount=0.01)
    with pytest.raises(ValueError, match="declare well_specified=False"):
        FiniteMDP(
            wrong.transitions,
            wrong.rewards,
            wrong.start,
            wrong.features,
            reward_range=(0.0, 1 / 3),
            well_specified=True,
        )


def test_one_constant_reward_and_collinear_features_can_be_explored():
    mdp = FiniteMDP(np.full((3, 2, 3), 1 / 3), np.ones((3, 2)), np.eye(3)[0], horizon=3, reward_range=(1.0, 1.0))
    run = s4q.run(s4q.S4Q(mdp, "realisable"), s4q.collectors.CountCollector(mdp, seed=0), 1000)
    assert run.regret == pytest.approx(0.0, abs=1e-9)
    base = s4q.problems.low_rank(dim=3, horizon=2)
    twice = 0.7 * np.concatenate([base.features.vectors] * 2, axis=-1)
    doubled = FiniteMDP(
        base.transitions, base.rewards, base.start, twice, reward_range=(0.0, 0.5), radius=1e5, well_specified=True
    )
    run = s4q.run(s4q.S4Q(doubled, "realisable"), s4q.collectors.CountCollector(doubled, seed=0), 10**9)
    assert run.episodes == 10**9


@pytest.mark.parametrize("seed", range(6))
def test_how_far_targets_are_from_the_features(seed):
    """Against the error of the least-squares fit of each corner."""
    rng = np.random.default_rng([10, seed])
    moves, rewards = rng.dirichlet(np.full(4, 0.3), size=(2, 4, 2)), rng.random((2, 4, 2))
    phi = rng.normal(size=(2, 4, 2, 3))
    phi /= np.linalg.norm(phi, axis=-1).max()
    mdp = FiniteMDP(moves, rewards, np.full(4, 0.25), phi)
    found = needed_radius(mdp.transitions, mdp.rewards, mdp.terminal, mdp.reachable, mdp.features, mdp.spec).error
    for h, bound in enumerate((mdp.spec.value_bound[1], 0.0)):
        flat, worst = phi[h].reshape(-1, 3), 0.0
        for corner in product((0.0, bound), repeat=4):
            target = (rewards[h] + moves[h] @ np.array(corner)).ravel()
            worst = max(worst, np.abs(flat @ np.linalg.lstsq(flat, target, rcond=None)[0] - target).max())
        assert found[h] == pytest.approx(worst, rel=1e-9)
        assert worst > 0.05


def test_a_target_may_be_missed_from_above():
    """Three actions with one feature: one leads nowhere, two to a state worth up to 1. The fit is 2/3 for all three."""
    moves = np.zeros((3, 3, 3))
    moves[0, 0, 1] = moves[0, 1, 2] = moves[0, 2, 2] = moves[1, :, 1] = moves[2, :, 2] = 1.0
    phi = np.array([[[1.0]] * 3, [[0.0]] * 3, [[1.0]] * 3])
    mdp = FiniteMDP(moves, np.zeros((3, 3)), [1.0, 0.0, 0.0], np.stack([phi, phi]), value_bound=1.0, horizon=2)
    tables = (mdp.transitions[:1].repeat(2, axis=0), mdp.rewards, mdp.terminal)
    reachable = np.array([[True, False, False], [False, False, True]])
    spec = replace(mdp.spec, stationary=False)
    assert needed_radius(*tables, reachable, mdp.features, spec).error[0] == pytest.approx(2 / 3)


@pytest.mark.parametrize("seed", range(3))
def test_episodes_that_end_early_with_negative_rewards(seed):
    """An ended episode is worth a known constant in shifted units, and the parameters must hold it."""
    rng = np.random.default_rng([11, seed])
    turn = np.zeros((4, 3))
    turn[:3] = np.linalg.qr(rng.normal(size=(3, 3)))[0]  # the fourth state is terminal
    vectors = np.broadcast_to(turn[None, :, None], (3, 4, 2, 3)).copy()
    blocks = np.broadcast_to(np.arange(2), (3, 4, 2)).copy()
    moves, rewards = rng.dirichlet(np.full(4, 0.5), size=(3, 4, 2)), rng.uniform(-1.0, 0.5, size=(3, 4, 2))
    moves[:, 3], rewards[:, 3] = np.eye(4)[3], 0.0
    mdp = FiniteMDP(
        moves,
        rewards,
        [0.5, 0.3, 0.2, 0.0],
        TableFeatures(vectors, blocks, 2),
        reward_range=(-1.0, 0.5),
        terminal=[False, False, False, True],
        well_specified=True,
    )
    for h in range(3):
        least = 1.5 + (mdp.spec.value_bound[h + 1] if h < 2 else 0.0)
        assert mdp.spec.radius[h] == pytest.approx(max(brute_radius(mdp, h), least), rel=1e-9)
        assert brute_radius(mdp, h) > least  # so that it is the parameters that count
