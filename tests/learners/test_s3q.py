"""Algorithm 1: S3Q equals the literal nested loops, given the same episodes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from literal_s3q import LiteralResult, literal_s3q, long_features
from scripts import ScriptedCollector, write_scripts
from small_problems import blocked_mdp, cliff, random_mdp
from test_episodes import one_hot_mdp

import s4q
from s4q.core.blocks import dense
from s4q.core.codec import pack, unpack
from s4q.core.factors import whitener
from s4q.core.messages import Regression
from s4q.learners.bonus_rules import FixedBonus
from s4q.problems import FiniteMDP

CASES: dict[str, FiniteMDP] = {
    "plain": random_mdp(5, 3, 4, 3, seed=1),
    "one level": random_mdp(4, 2, 3, 1, seed=2),
    "one feature": random_mdp(4, 2, 1, 3, seed=3),
    "one action": random_mdp(4, 1, 3, 3, seed=4),
    "ends early": random_mdp(4, 2, 3, 4, seed=5, terminal=True),
    "ends early, negative rewards": random_mdp(4, 2, 3, 4, seed=6, terminal=True, low=-2.0),
    "one-hot": s4q.problems.chain(4, 3),
    "per-action blocks": blocked_mdp(),
    "small ball": FiniteMDP(
        random_mdp(4, 2, 3, 3, seed=7).transitions,
        random_mdp(4, 2, 3, 3, seed=7).rewards,
        [1, 0, 0, 0],
        random_mdp(4, 2, 3, 3, seed=7).features.vectors,
        radius=[0.3, 0.2, 0.1],
    ),
}


def some_bonus(mdp: FiniteMDP) -> tuple[FixedBonus, np.ndarray]:
    """A bonus and its table (H, S, A), the latter computed with long vectors and inverses."""
    rng = np.random.default_rng(0)
    spec = mdp.spec
    x = rng.normal(size=(spec.horizon, spec.n_blocks, 6, spec.block_dim))
    gram = np.einsum("hbni,hbnj->hbij", x, x)
    width = rng.uniform(0.1, 0.5, size=(spec.horizon, spec.n_blocks))
    table = np.zeros(mdp.rewards.shape)
    for h in range(spec.horizon):
        for s in range(mdp.n_states):
            for a in range(mdp.n_actions):
                v, b = mdp.features.vectors[h, s, a], mdp.features.blocks[h, s, a]
                sigma = gram[h, b] + 0.5 * np.eye(spec.block_dim)
                table[h, s, a] = width[h, b] * np.sqrt(v @ np.linalg.solve(sigma, v))
    return FixedBonus(np.stack([whitener(gram[h], 0.5) for h in range(spec.horizon)]), width), table


def both(
    mdp: FiniteMDP,
    budget: int,
    *,
    with_bonus: bool = False,
    epoch_size: int | None = None,
    piece: int = 5,
    ridge: float = 0.3,
) -> tuple[s4q.S3Q, s4q.Run, LiteralResult]:
    scripts = write_scripts(mdp, budget, seed=11)
    bonus, table = some_bonus(mdp) if with_bonus else (None, None)
    ridges = [ridge * (1 + 0.4 * h) for h in range(mdp.horizon)]
    learner = s4q.S3Q(mdp, s4q.UniformPolicy(mdp.n_actions), bonus=bonus, ridge=ridges, epoch_size=epoch_size)
    run = s4q.run(learner, ScriptedCollector(mdp, scripts, piece), episodes=budget)
    lower = 0.0 if mdp.spec.well_specified else -np.inf
    literal = literal_s3q(
        long_features(mdp),
        iter(scripts),
        stop=lambda used: used >= budget,
        ridge=ridges,
        radius=mdp.spec.radius,
        reward_min=mdp.spec.reward_min,
        bonus=None if table is None else lambda level, _: table[level],
        clip=np.array([(lower, v) for v in mdp.spec.value_bound]),
        epoch_size=epoch_size,
    )
    return learner, run, literal


def assert_equal(mdp: FiniteMDP, learner: s4q.S3Q, run: s4q.Run, literal: LiteralResult) -> None:
    assert run.episodes == literal.used == learner.n_episodes
    assert learner.fitted == (literal.theta is not None)
    assert run.phases == sum(level == 0 for _, level, _ in literal.fits)
    if literal.theta is None or literal.q is None:
        assert not np.any(run.q.theta)
        return
    np.testing.assert_allclose(run.q.theta.reshape(mdp.horizon, -1), literal.theta, atol=1e-10, rtol=1e-10)
    shifted = mdp.q_values(run.q) - mdp.spec.reward_min * np.arange(mdp.horizon, 0, -1)[:, None, None]
    alive = ~mdp.terminal
    np.testing.assert_allclose(shifted[:, alive], literal.q[:, alive], atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("with_bonus", [False, True])
@pytest.mark.parametrize("budget", [1, 2, 7, 8, 41, 150])
def test_s3q_equals_nested_loops(name: str, with_bonus: bool, budget: int) -> None:
    mdp = CASES[name]
    assert_equal(mdp, *both(mdp, budget, with_bonus=with_bonus))


@given(
    budget=st.integers(1, 120),
    piece=st.integers(1, 50),
    epoch_size=st.none() | st.integers(1, 30),
    name=st.sampled_from(sorted(CASES)),
    with_bonus=st.booleans(),
)
def test_every_stop_piece_and_schedule(
    budget: int, piece: int, epoch_size: int | None, name: str, with_bonus: bool
) -> None:
    mdp = CASES[name]
    assert_equal(mdp, *both(mdp, budget, with_bonus=with_bonus, epoch_size=epoch_size, piece=piece))


def test_the_oracle_notices_planted_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another ridge, a target one level off, a forgotten reset: none of them is within 1e-10."""
    mdp = CASES["plain"]
    learner, _, literal = both(mdp, 150)
    with pytest.raises(AssertionError):
        assert_equal(mdp, learner, both(mdp, 150, ridge=0.31)[1], literal)
    with monkeypatch.context() as patch:
        patch.setattr(s4q.S3Q, "_next_target", property(lambda self: self._target[-1] if self._target else None))
        with pytest.raises(AssertionError):
            assert_equal(mdp, *both(mdp, 150))
    with monkeypatch.context() as patch:
        patch.setattr(s4q.S3Q, "_start_level", start_level_without_reset)
        with pytest.raises(AssertionError):
            assert_equal(mdp, *both(mdp, 150))


def start_level_without_reset(learner: s4q.S3Q, level: int) -> None:
    if not hasattr(learner, "_moments"):
        learner._moments = s4q.Moments.zeros(learner.spec.n_blocks, learner.spec.block_dim)
    learner._level, learner._done = level, 0


def test_gram_matrices_of_the_finished_epoch_are_kept_on_request() -> None:
    mdp = CASES["plain"]
    scripts = write_scripts(mdp, 150, seed=11)
    learner = s4q.S3Q(mdp, s4q.UniformPolicy(3), ridge=0.3, keep_grams=True)
    s4q.run(learner, ScriptedCollector(mdp, scripts), episodes=150)
    literal = both(mdp, 150)[2]
    np.testing.assert_allclose(learner.grams[:, 0], literal.grams, atol=1e-12)
    assert learner.n_fitted == literal.n_level
    with pytest.raises(ValueError, match="keep_grams"):
        _ = s4q.S3Q(mdp, s4q.UniformPolicy(3)).grams


@pytest.mark.parametrize("n_episodes", range(1, 200))
def test_sample_count_lemma(n_episodes: int) -> None:
    """T >= 2H trajectories: the finished epoch has 2^E >= T/4H episodes a level, E = floor(log2(T/H + 2)) - 1."""
    mdp = CASES["plain"]
    horizon = mdp.horizon
    learner = s4q.S3Q(mdp, s4q.UniformPolicy(3))
    zero = s4q.Moments.zeros(1, mdp.dim)
    left = n_episodes
    while left:
        request = learner.ask(left)
        assert request is not None
        learner.tell(request, Regression(zero, np.array([request.n_episodes]), 0))
        left -= request.n_episodes
    expected = int(np.floor(np.log2(n_episodes / horizon + 2))) - 1
    assert learner.phases == expected
    if n_episodes >= 2 * horizon:
        assert 2**learner.phases >= n_episodes / (4 * horizon)
    else:
        assert not learner.fitted


def test_levels_go_from_last_to_first_with_fresh_sums_and_the_newest_target() -> None:
    mdp = CASES["plain"]
    learner = s4q.S3Q(mdp, s4q.UniformPolicy(3))
    rng = np.random.default_rng(0)
    asked = []
    newest: dict[int, np.ndarray] = {}
    for _ in range(9):
        request = learner.ask(10**6)
        assert request is not None
        asked.append((request.level, request.n_episodes))
        assert (request.target is None) == (request.level == 2)
        if request.target is not None:
            np.testing.assert_allclose(request.target.theta[0], newest[request.level + 1], atol=1e-12)
        x, y = rng.normal(size=(request.n_episodes, mdp.dim)) / 9, rng.random(request.n_episodes)
        moments = s4q.Moments.of(x, np.zeros(len(x), dtype=np.int64), y, 1)
        learner.tell(request, Regression(moments, np.array([request.n_episodes]), 0))
        newest[request.level] = np.linalg.solve(x.T @ x + np.eye(mdp.dim), x.T @ y)  # this level's samples only
    assert asked == [(2, 2), (1, 2), (0, 2), (2, 4), (1, 4), (0, 4), (2, 8), (1, 8), (0, 8)]


def test_an_unfinished_epoch_is_never_returned() -> None:
    mdp = CASES["plain"]
    collector = ScriptedCollector(mdp, write_scripts(mdp, 100, seed=0))
    learner = s4q.S3Q(mdp, s4q.UniformPolicy(3))
    s4q.run(learner, collector, episodes=6)
    best = learner.q
    for _ in range(11):  # the second epoch takes 12
        s4q.run(learner, collector, episodes=1)
        assert learner.q is best
    s4q.run(learner, collector, episodes=1)
    assert learner.q is not best


@pytest.mark.parametrize("epoch_size", [None, 1, 3])
def test_a_target_that_was_asked_for_never_changes(epoch_size: int | None) -> None:
    mdp = CASES["plain"]
    learner = s4q.S3Q(mdp, s4q.UniformPolicy(3), epoch_size=epoch_size)
    collector = s4q.collectors.EpisodeCollector(mdp, seed=2)
    asked = []
    for _ in range(3):
        request = learner.ask(100)
        assert request is not None
        if request.target is not None:
            asked.append((request.target, request.target.theta.copy()))
        learner.tell(request, collector.collect(request))
    assert asked
    for target, theta in asked:
        np.testing.assert_array_equal(target.theta, theta)


def test_the_zero_fit_is_the_bonus_alone() -> None:
    mdp = CASES["one-hot"]
    bonus, table = some_bonus(mdp)
    learner = s4q.S3Q(mdp, s4q.UniformPolicy(2), bonus=bonus)
    assert (learner.fitted, learner.n_fitted) == (False, 0)
    expected = np.minimum(table, np.array(mdp.spec.value_bound)[:, None, None])
    np.testing.assert_allclose(mdp.q_values(learner.q), expected, atol=1e-12)


def test_ask_is_pure_and_tell_is_strict() -> None:
    mdp = CASES["plain"]
    learner = s4q.S3Q(mdp, s4q.UniformPolicy(3))
    collector = s4q.collectors.EpisodeCollector(mdp)
    first, second = learner.ask(5), learner.ask(5)
    assert first is not None
    assert second is not None
    assert (first.id, first.n_episodes, first.done) == (second.id, second.n_episodes, second.done)
    answer = collector.collect(first)
    nan = Regression(
        s4q.Moments(answer.moments.gram * np.nan, answer.moments.moment, answer.moments.moment_sq, 0.0, 2),
        answer.episodes_per_policy,
        0,
    )
    with pytest.raises(ValueError, match=r"gram.*finite"):
        learner.tell(first, nan)
    learner.tell(first, answer)  # nothing was lost by the refusal
    with pytest.raises(ValueError, match="not the open one"):
        learner.tell(first, answer)


@pytest.mark.parametrize("name", ["plain", "one-hot"])
def test_state_does_not_grow_with_episodes(name: str) -> None:
    """O(d^2 + d H) floats without a bonus (one Gram matrix, not one per level), at any number of episodes."""
    mdp = CASES[name]
    learner = s4q.S3Q(mdp, s4q.UniformPolicy(mdp.n_actions))
    collector = s4q.collectors.EpisodeCollector(mdp)
    sizes: list[list[int]] = []
    for episodes in (100, 20_000):
        sizes.append([])
        s4q.run(learner, collector, episodes, stop=lambda run: sizes[-1].append(run.nbytes) or False)
    spec = mdp.spec
    fixed = spec.n_blocks * spec.block_dim**2 + 2 * spec.dim + spec.dim * spec.horizon + 2 * spec.horizon
    # The target holds the levels that were fitted in this epoch: at most all but the first.
    held = {8 * (fixed + level * spec.dim) for level in range(spec.horizon)}
    assert [set(one) for one in sizes] == [held, held]


def test_a_single_epoch_ends_by_itself() -> None:
    mdp = CASES["plain"]
    learner = s4q.S3Q(mdp, s4q.UniformPolicy(3), epoch_size=7)
    run = s4q.run(learner, s4q.collectors.EpisodeCollector(mdp), episodes=10**6)
    assert (run.episodes, run.phases, learner.finished, learner.ask(1)) == (21, 1, True, None)


def greedy_actions(mdp: FiniteMDP, q: s4q.LinearQ) -> np.ndarray:
    return np.stack([q.greedy(h, mdp.features.level(h)) for h in range(mdp.horizon)])


def test_shifting_negative_rewards_keeps_the_best_policy_best() -> None:
    """A deterministic cliff: a tiny ridge and enough samples make the fit exact, so Q* comes back in user's units."""
    mdp = cliff()
    learner = s4q.S3Q(mdp, s4q.UniformPolicy(4), ridge=1e-9, epoch_size=4000)
    run = s4q.run(learner, s4q.collectors.EpisodeCollector(mdp, seed=1), episodes=10**6)
    seen = mdp.occupancies(s4q.UniformPolicy(4)) > 1e-2
    np.testing.assert_allclose(mdp.q_values(run.q)[seen], mdp.q_star[seen], atol=1e-6)
    np.testing.assert_array_equal(greedy_actions(mdp, run.q)[0, :4], 0)  # forward, everywhere
    assert run.gap == pytest.approx(0.0, abs=1e-12)


def test_forgetting_what_an_end_is_worth_would_teach_to_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    mdp = cliff()
    monkeypatch.setattr(s4q.Spec, "ended_value", lambda self, h: 0.0)
    learner = s4q.S3Q(mdp, s4q.UniformPolicy(4), ridge=1e-9, epoch_size=4000)
    run = s4q.run(learner, s4q.collectors.EpisodeCollector(mdp, seed=1), episodes=10**6)
    assert run.gap is not None
    assert run.gap > 1.0
    assert greedy_actions(mdp, run.q)[0, 3] != 0


def test_dense_and_blocked_features_learn_the_same() -> None:
    """One-hot blocks against the same features written out."""
    blocked = s4q.problems.chain(4, 3)
    written = dense(blocked.features.vectors, blocked.features.blocks, blocked.spec.n_blocks)
    plain = FiniteMDP(
        blocked.transitions, blocked.rewards, blocked.start, written, value_bound=1.0, reward_noise="none"
    )
    runs = [
        s4q.run(s4q.S3Q(mdp, s4q.UniformPolicy(2)), s4q.collectors.EpisodeCollector(mdp, seed=3), episodes=500)
        for mdp in (blocked, plain)
    ]
    np.testing.assert_allclose(runs[0].q.theta.ravel(), runs[1].q.theta.ravel(), atol=1e-12)


@pytest.mark.parametrize("pool", [False, True])
def test_grams_and_residuals_are_those_of_the_finished_epoch(pool: bool) -> None:
    """0 before the first one is finished, and then never a mixture of two epochs; a state keeps the open ones too."""
    mdp = one_hot_mdp()
    collector = s4q.collectors.EpisodeCollector(mdp, seed=2)
    learner = s4q.S3Q(mdp, s4q.UniformPolicy(2), ridge=0.3, radius=np.inf, pool=pool, keep_grams=True)
    shape = (1 if pool else 3, *mdp.spec.gram_shape)
    finished = (np.zeros(shape), np.zeros(3))
    for epoch in (1, 2, 3):
        grams, residuals = np.zeros(shape), np.zeros(3)
        for level in (2, 1, 0):
            assert (learner.phases, learner.fitted) == (epoch - 1, epoch > 1)
            np.testing.assert_allclose(learner.grams, finished[0], atol=1e-12)
            np.testing.assert_allclose(learner.residuals, finished[1], atol=1e-12)
            request = learner.ask(10**6)
            assert request is not None
            assert (request.level, request.n_episodes) == (level, 2**epoch)
            answer = collector.collect(request)
            learner.tell(request, answer)
            learner = unpack(pack(learner), s4q.S3Q)
            m = answer.moments  # one-hot pairs: the fit and its residual are those of each pair alone
            seen, y = m.gram[:, 0, 0], m.moment[:, 0]
            theta = y / (seen + 0.3)
            loss = m.sum_y2 - 2 * theta @ y + theta @ (seen * theta)
            residuals[level] = loss / max(m.n - np.sum(seen / (seen + 0.3)), 1.0)
            grams[0 if pool else level] += m.gram / 3 if pool else m.gram
        finished = (grams, residuals)
        np.testing.assert_allclose(learner.grams, grams, atol=1e-12)
        np.testing.assert_allclose(learner.residuals, residuals, atol=1e-12)
    assert finished[1].min() > 0.01


def test_grams_and_residuals_are_copies() -> None:
    """What was handed out does not change when the next epoch comes."""
    mdp = CASES["plain"]
    learner = s4q.S3Q(mdp, s4q.UniformPolicy(3), keep_grams=True)
    collector = s4q.collectors.EpisodeCollector(mdp)
    handed = []
    for _ in range(9):
        one = (learner.grams, learner.residuals)
        handed.append((one, tuple(array.copy() for array in one)))
        request = learner.ask(10**6)
        learner.tell(request, collector.collect(request))
    for one, then in handed:
        assert all(np.array_equal(a, b) for a, b in zip(one, then, strict=True))


@pytest.mark.parametrize("n_main", [2, 4, 5])
def test_a_phase_of_doubling_epochs_records_the_fit_it_uses(n_main: int) -> None:
    """2 episodes a level finish the first epoch; of 4 and 5 a level some go to levels of a second, left open."""
    mdp = one_hot_mdp()
    learner = s4q.S4Q(mdp, "paper", ridge=1.0, trigger=n_main - 0.5, c_replay=1.0)
    collector = s4q.collectors.EpisodeCollector(mdp, seed=1)
    told = []
    while learner.open_phase is None or learner.open_phase.phase == 1:
        request = learner.ask(10**6)
        answer = collector.collect(request)
        learner.tell(request, answer)
        told.append((request, answer))
    assert told[0][1].n_episodes == n_main
    assert len(told) > 4 or n_main == 2
    record = learner.open_phase
    for request, answer in told[1:4]:  # the first epoch, of 2 episodes a level
        level, m = request.level, answer.moments
        assert m.n == 2
        np.testing.assert_allclose(record.cov_ref[level], m.gram * (n_main / 2), atol=1e-12)
        seen, y, theta = m.gram[:, 0, 0], m.moment[:, 0], record.q.theta[level, :, 0]
        loss = m.sum_y2 - 2 * theta @ y + theta @ (seen * theta)
        residual = loss / max(m.n - np.sum(seen / (seen + 1)), 1.0)
        assert record.residuals[level] == pytest.approx(residual, abs=1e-12)
