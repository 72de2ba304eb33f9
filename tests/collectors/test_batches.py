"""BatchCollector: exact sums against literal loops, laws against the reference, crossings, adapters, portability."""

from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from asking import regress_request, stacked
from scipy.stats import chisquare, ks_2samp
from small_envs import Drift, MDPEnv, Waves
from small_problems import blocked_mdp, cliff, random_mdp
from test_episodes import explore, one_hot_mdp, same_bits, state_q, stochastic_policy
from test_gym_env import all_requests, drift_spec, equal, random_q

import s4q
from s4q.collectors import BatchCollector, CartPoleBatch, EpisodeCollector, FiniteBatch, GymCollector
from s4q.collectors.batched.array_backends import NumpyArrays
from s4q.collectors.finite.alias import AliasTable
from s4q.collectors.seeding import EpisodeDraws
from s4q.core.messages import Answer, Explore, Mixture, Regress, Regression, Shard, Visits
from s4q.features import Dense


class Plain:
    """A simulator that does not say that its states are few."""

    def __init__(self, env: Any) -> None:
        self.start, self.step = env.start, env.step


class Replayed:
    """Gymnasium episodes as a batched simulator: the seeds are those a GymCollector gives; states carry the episode."""

    def __init__(self, make: Any, seed: int, horizon: int) -> None:
        self.make, self.seed, self.horizon, self.first, self.request_id = make, seed, horizon, 0, 0

    def start(self, n: int, rng: np.random.Generator) -> np.ndarray:
        self.envs = [self.make() for _ in range(n)]
        dice = [EpisodeDraws(self.seed, self.request_id, self.first + i, self.horizon) for i in range(n)]
        seen = [np.atleast_1d(env.reset(seed=d.env_seed)[0]) for env, d in zip(self.envs, dice, strict=True)]
        return np.column_stack([np.arange(n), np.array(seen, dtype=np.float64)])

    def step(self, h: int, states: np.ndarray, actions: np.ndarray, rng: np.random.Generator) -> tuple:
        results = [self.envs[int(i)].step(int(a)) for i, a in zip(states[:, 0], actions, strict=True)]
        seen = np.array([np.atleast_1d(r[0]) for r in results], dtype=np.float64)
        rewards, ended = np.array([r[1] for r in results]), np.array([r[2] for r in results])
        return rewards, np.column_stack([states[:, 0], seen]), ended


class Without:
    """Features of a state without its first number, in the env's precision."""

    def __init__(self, features: Any, dtype: type) -> None:
        self.features, self.dtype = features, dtype
        self.n_actions, self.n_blocks, self.block_dim = features.n_actions, features.n_blocks, features.block_dim

    def __call__(self, h: int, states: np.ndarray) -> s4q.Phi:
        seen = states[:, 1:].astype(self.dtype)
        return self.features(h, seen[:, 0] if self.dtype is np.int64 else seen)


def close(a: Answer, b: Answer) -> None:
    """All sums of two answers to 1e-12."""
    assert a.n_episodes == b.n_episodes
    assert a.n_steps == b.n_steps
    if isinstance(a, Regression):
        pairs = [(getattr(a.moments, f), getattr(b.moments, f)) for f in ("gram", "moment", "moment_sq", "sum_y2", "n")]
    else:
        pairs = [(getattr(a, f), getattr(b, f)) for f in ("grams", "progress", "return_sum", "return_sum_sq")]
        pairs.append((a.start_value_sum or 0.0, b.start_value_sum or 0.0))
        if a.kept is not None:
            for kept in (a.kept, b.kept):
                assert len(kept.levels) == len(a.kept.levels)
            pairs += [
                (np.sort(a.kept.rewards), np.sort(b.kept.rewards)),
                (a.kept.vectors.sum(0), b.kept.vectors.sum(0)),
            ]
    for x, y in pairs:
        np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-12)


CASES = {
    "early ends": (Drift, Waves(3, 4, dense=False), np.float32, drift_spec(Waves(3, 4, dense=False))),
    "dense": (Drift, Waves(3, 4, dense=True), np.float32, drift_spec(Waves(3, 4, dense=True))),
    "H = 1": (Drift, Waves(3, 4, dense=False), np.float32, drift_spec(Waves(3, 4, dense=False), horizon=1)),
    "whole numbers": (lambda: MDPEnv(cliff()), cliff().features, np.int64, cliff().spec),
}


@pytest.mark.parametrize("case", CASES)
def test_the_same_episodes_give_the_same_moments_as_stepping(case: str) -> None:
    """A batched simulator that replays the very episodes of the single env: all sums agree to 1e-12."""
    make, features, dtype, spec = CASES[case]
    q, value = random_q(spec, 1), random_q(spec, 3)
    white = np.broadcast_to(0.2 * np.eye(spec.block_dim), (spec.horizon, *spec.gram_shape))
    level = spec.horizon // 2
    for request in (
        regress_request(0, level, Mixture([q], [1.0]), value, 60),
        regress_request(1, level, Mixture([q], [1.0]), value, 60, pool=True),
        Explore(2, q, white * np.linspace(1, 2, spec.horizon)[:, None, None, None], (0.4, 0.1), 60, keep=7),
        Explore(3, q, white[:1], (1.0, 0.1), 60, keep=7, pool=True),
        Explore(4, q, stacked(q, "whitener"), (0.4, 0.1), 60, keep=7),  # progress in the metric of the policy's bonus
    ):
        env = Replayed(make, 9, spec.horizon)
        env.request_id = request.id
        batch = BatchCollector(env, Without(features, dtype), spec, seed=9)
        close(batch.collect(request), GymCollector(make(), features, spec, seed=9).collect(request))


@pytest.mark.parametrize("lower", [True, False])
def test_wide_features_and_triangular_whiteners(lower: bool) -> None:
    """Enough wide vectors for the triangular product; a whitener that is not triangular must not take it."""
    features = Waves(3, 70, dense=True)
    spec = drift_spec(features)
    q = random_q(spec, 1)
    white = stacked(q, "whitener")
    white = white if lower else white + np.swapaxes(white, -1, -2)
    q = s4q.LinearQ.from_arrays(q.theta, white, stacked(q, "width"), [level.clip for level in q.levels])
    for request in (
        Explore(0, q, white, (np.inf, 0.0), 200),
        Explore(1, q, 0.5 * white, (np.inf, 0.0), 200),
        regress_request(2, 3, Mixture([q], [1.0]), q, 200),
    ):
        env = Replayed(Drift, 9, spec.horizon)
        env.request_id = request.id
        batch = BatchCollector(env, Without(features, np.float32), spec, seed=9, batch_size=256)
        close(batch.play(request, Shard(0, 200)), GymCollector(Drift(), features, spec, seed=9).collect(request))


@pytest.mark.parametrize("mdp", [blocked_mdp(), cliff(), random_mdp(5, 3, 4, 4, 1, terminal=True, low=-1.0)])
def test_tables_and_features_give_the_same_sums(mdp: s4q.FiniteMDP) -> None:
    for request in all_requests(mdp.spec, 500):
        tabulated = BatchCollector(FiniteBatch(mdp), mdp.features, mdp.spec, seed=2).collect(request)
        general = BatchCollector(Plain(FiniteBatch(mdp)), mdp.features, mdp.spec, seed=2).collect(request)
        close(tabulated, general)


def standardised(batch: Answer, reference: Answer, n: int, m: int) -> float:
    """Worst z-score between means over n and over m episodes, from the Gram diagonal (0..1 a sample)."""
    if isinstance(batch, Visits):
        a, b = batch.grams, reference.grams
    else:
        a, b = batch.moments.gram, reference.moments.gram
    p, q = (np.diagonal(x, axis1=-2, axis2=-1) / size for x, size in ((a, n), (b, m)))
    return float(np.max(np.abs(p - q) / np.sqrt((np.maximum(p, q) + 1e-3) * (1 / n + 1 / m))))


@pytest.mark.parametrize("mdp", [one_hot_mdp(), cliff(), random_mdp(5, 3, 4, 3, seed=1, terminal=True, low=-1.0)])
def test_laws_agree_with_the_reference(mdp: s4q.FiniteMDP) -> None:
    n, m = 20_000, 5_000
    mixture = Mixture([stochastic_policy(mdp, 1), random_q(mdp.spec, 2)], [0.3, 0.7])
    batch, reference = BatchCollector(FiniteBatch(mdp), mdp.features, mdp.spec, seed=1), EpisodeCollector(mdp, seed=1)
    a = batch.collect(regress_request(0, 1, mixture, random_q(mdp.spec, 3), n))
    b = reference.collect(regress_request(0, 1, mixture, random_q(mdp.spec, 3), m))
    assert standardised(a, b, n, m) < 5
    assert chisquare(a.episodes_per_policy, n * mixture.weights).pvalue > 1e-3
    mean_y2 = (a.moments.sum_y2 / n, b.moments.sum_y2 / m)
    assert mean_y2[0] == pytest.approx(mean_y2[1], rel=0.1)
    x = batch.collect(explore(mdp, stochastic_policy(mdp, 1), (np.inf, 0.0), n))
    y = reference.collect(explore(mdp, stochastic_policy(mdp, 1), (np.inf, 0.0), m))
    assert standardised(x, y, n, m) < 5
    spread = np.sqrt(y.return_sum_sq / m - (y.return_sum / m) ** 2)
    assert abs(x.return_sum / n - y.return_sum / m) < 5 * spread * np.sqrt(1 / n + 1 / m)


def test_the_law_test_notices_planted_errors() -> None:
    mdp, n, m = one_hot_mdp(), 20_000, 20_000
    mixture = Mixture([stochastic_policy(mdp, 1), stochastic_policy(mdp, 2)], [0.3, 0.7])
    right = EpisodeCollector(mdp, seed=1).collect(regress_request(0, 2, mixture, state_q(mdp), m))
    other = one_hot_mdp(slip=0.0)
    slipped = BatchCollector(FiniteBatch(other), other.features, other.spec, seed=1)
    assert standardised(slipped.collect(regress_request(0, 2, mixture, state_q(mdp), n)), right, n, m) > 6
    batch = BatchCollector(FiniteBatch(mdp), mdp.features, mdp.spec, seed=1)
    swapped = Mixture(mixture.policies, [0.7, 0.3])
    assert standardised(batch.collect(regress_request(0, 2, swapped, state_q(mdp), n)), right, n, m) > 6


def test_bernoulli_rewards_have_their_mean() -> None:
    for paid, fits in ((0.4, True), (0.37, False)):
        mdp = one_hot_mdp(paid=paid)
        request = regress_request(
            1, 1, Mixture([s4q.UniformPolicy(2)], [1.0]), s4q.LinearQ.from_arrays(np.zeros((3, 6, 1))), 20_000
        )
        ones = BatchCollector(FiniteBatch(mdp), mdp.features, mdp.spec).collect(request).moments.sum_y2
        assert (chisquare([ones, 20_000 - ones], [8000, 12_000]).pvalue > 1e-3) == fits


@pytest.mark.parametrize("pool", [False, True])
@pytest.mark.parametrize("threshold", [(0.5, 0.0), (7.0, 0.0), (3.0, 2.0), (200.0, 50.0)])
def test_explore_ends_with_exactly_the_first_crossing_episode(threshold: tuple[float, float], pool: bool) -> None:
    """Across doubling shards: all 3000 episodes are kept once, their progress added one by one until it crosses."""
    mdp = blocked_mdp()
    collector = BatchCollector(FiniteBatch(mdp), mdp.features, mdp.spec, seed=2)
    policy = random_q(mdp.spec, 5)
    request = explore(mdp, policy, threshold, 3000, pool=pool, keep=70)
    everyone = [
        collector.play(explore(mdp, policy, (np.inf, 0.0), 3000, keep=3000), shard).kept
        for shard in collector.shards(request)
    ]
    stopped = collector.collect(request)
    progress, n, grams, paid = np.zeros(3), 0, np.zeros_like(stopped.grams), 0.0
    for kept in everyone:
        by_level = [np.flatnonzero(kept.levels == h) for h in range(3)]
        for rows in zip(*by_level, strict=True):
            for h, row in enumerate(rows):
                progress[h] += kept.vectors[row] @ kept.vectors[row]  # the whitener is I
                grams[0 if pool else h, kept.blocks[row]] += np.outer(kept.vectors[row], kept.vectors[row])
                paid += kept.rewards[row]
            n += 1
            if request.crossed(progress.sum() if pool else progress, n):
                assert stopped.n_episodes == n < 3000
                np.testing.assert_allclose(stopped.progress, [progress.sum()] if pool else progress, rtol=1e-12)
                np.testing.assert_allclose(stopped.grams, grams, rtol=1e-11, atol=1e-12)
                np.testing.assert_allclose(stopped.return_sum, paid, rtol=1e-12)
                assert stopped.n_steps == 3 * n
                assert len(stopped.kept.levels) == 3 * min(n, 70)
                return
    pytest.fail("never crossed")


def test_the_first_crossing_has_the_law_of_the_reference() -> None:
    """150 runs each; played beyond the crossing and cut, or stopped there: the same number of episodes in law."""
    mdp, policy = random_mdp(4, 2, 3, 3, seed=5, terminal=True, low=-1.0), s4q.UniformPolicy(2)

    def lengths(make: Any, limit: float) -> list[int]:
        return [make(seed).collect(explore(mdp, policy, (limit, 1.0), 10**4)).n_episodes for seed in range(150)]

    batch = lengths(lambda seed: BatchCollector(FiniteBatch(mdp), mdp.features, mdp.spec, seed=seed), 4.0)
    assert ks_2samp(batch, lengths(lambda seed: EpisodeCollector(mdp, seed=seed), 4.0)).pvalue > 1e-2
    assert ks_2samp(batch, lengths(lambda seed: EpisodeCollector(mdp, seed=seed), 5.0)).pvalue < 1e-6  # planted


@pytest.mark.parametrize("which", range(6))
def test_seeds_shards_and_parts(which: int) -> None:
    mdp = random_mdp(5, 3, 4, 3, seed=1, terminal=True, low=-1.0)
    request = all_requests(mdp.spec, n=2500)[which]
    collector = BatchCollector(FiniteBatch(mdp), mdp.features, mdp.spec, seed=0)
    answer = collector.collect(request)
    assert equal(answer, collector.collect(request))
    assert not same_bits(answer, BatchCollector(FiniteBatch(mdp), mdp.features, mdp.spec, seed=1).collect(request))
    if isinstance(request, Regress):
        first = replace(request, n_episodes=1024)
        rest = replace(request, n_episodes=1476, done=1024)
        close(collector.collect(first) + collector.collect(rest), answer)


def test_a_run_learns_and_knows_its_regret() -> None:
    mdp = s4q.problems.river_swim(4, horizon=6)
    collector = BatchCollector(FiniteBatch(mdp), mdp.features, mdp.spec, seed=0)
    result = s4q.run(s4q.S4Q(mdp), collector, 3000)
    assert result.gap < 0.1 * mdp.v_star
    assert result.regret > 0


def test_alias_tables_have_the_right_law_and_no_impossible_outcome() -> None:
    rng = np.random.default_rng(0)
    probabilities = rng.dirichlet(np.full(12, 0.2), size=40) * (rng.random((40, 12)) < 0.6)
    probabilities[np.arange(40), rng.integers(0, 12, 40)] += 0.01
    probabilities[0] = np.eye(12)[3]
    probabilities[1] = 1 / 12
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    table = AliasTable.of(probabilities)
    # The mass that falls on each outcome, added up over columns: exact.
    mass = np.zeros((40, 12))
    stay = table.stay.reshape(40, table.width)
    index = table.index.reshape(40, table.width, 2)
    for row in range(40):
        np.add.at(mass[row], index[row, :, 1], stay[row] / table.width)
        np.add.at(mass[row], index[row, :, 0], (1 - stay[row]) / table.width)
    np.testing.assert_allclose(mass, probabilities, atol=1e-14)
    assert np.all(mass[probabilities == 0] == 0)
    rows = rng.integers(0, 40, size=40_000)
    drawn = table.draw(rows, rng.random(40_000))
    for row in (0, 1, 7):
        counts = np.bincount(drawn[rows == row], minlength=12)
        possible = probabilities[row] > 1e-3
        assert counts[probabilities[row] == 0].sum() == 0
        if possible.sum() > 1:
            expected = probabilities[row, possible] / probabilities[row, possible].sum() * counts[possible].sum()
            assert chisquare(counts[possible], expected).pvalue > 1e-3


def test_cartpole_steps_like_gymnasium() -> None:
    batch, env = CartPoleBatch(), gym.make("CartPole-v1").unwrapped
    rng = np.random.default_rng(0)
    states = batch.start(200, rng) * rng.uniform(1, 60, size=(200, 1))
    assert np.abs(batch.start(1000, rng)).max() <= 0.05
    for _ in range(3):
        actions = rng.integers(0, 2, size=len(states))
        rewards, after, ended = batch.step(0, states, actions, rng)
        for i in range(0, len(states), 7):
            env.reset(seed=0)
            env.state = tuple(states[i])
            _, reward, terminated, _, _ = env.step(int(actions[i]))
            np.testing.assert_allclose(after[i], env.state, rtol=1e-12, atol=1e-12)
            assert (reward, terminated) == (rewards[i], ended[i])
        assert 0 < ended.sum() < len(ended)
        states = after[~ended]


def test_cartpole_is_collected() -> None:
    features = Dense(lambda x: np.stack([np.tanh(x), np.tanh(-x)], axis=1) / 2, n_actions=2, dim=4)
    spec = s4q.Spec.of(features, horizon=30, reward_range=(0, 1))
    white = np.broadcast_to(np.eye(4), (30, 1, 4, 4))
    request = Explore(0, s4q.UniformPolicy(2), white, (np.inf, 0.0), 120)
    batch = BatchCollector(CartPoleBatch(), features, spec).collect(request)
    stepped = GymCollector(gym.make("CartPole-v1"), features, spec).collect(request)
    spread = np.sqrt(stepped.return_sum_sq / 120 - (stepped.return_sum / 120) ** 2)
    assert abs(batch.return_sum - stepped.return_sum) / 120 < 4 * spread * np.sqrt(2 / 120)
    assert batch.n_steps == batch.return_sum


class Strict(NumpyArrays):
    """numpy that forgets everything outside of the array standard: other modules would not have it either."""

    @property
    def xp(self) -> Any:
        return _Standard()


class _Standard:
    ALLOWED = (
        *("abs", "all", "any", "arange", "argmax", "clip", "concat", "full", "matmul", "max", "min", "nonzero"),
        *("permute_dims", "reshape", "searchsorted", "sqrt", "stack", "sum", "take", "unique_values", "vecdot"),
        *("astype", "int8", "zeros", "zeros_like"),
    )

    def __getattr__(self, name: str) -> Any:
        if name not in self.ALLOWED:
            raise AttributeError(f"{name} is not in the array standard")
        return getattr(np, name)


def test_the_engine_keeps_to_the_array_standard() -> None:
    mdp = blocked_mdp()
    for env in (FiniteBatch(mdp), Plain(FiniteBatch(mdp))):
        for request in all_requests(mdp.spec, 100):
            plain = BatchCollector(env, mdp.features, mdp.spec).collect(request)
            assert equal(plain, BatchCollector(env, mdp.features, mdp.spec, arrays=Strict()).collect(request))


def test_bad_simulators_are_explained() -> None:
    mdp = cliff()
    spec = mdp.spec

    class Pays:
        def __init__(self, reward: float) -> None:
            self.reward = reward

        def start(self, n: int, rng: np.random.Generator) -> np.ndarray:
            return np.zeros(n, int)

        def step(self, h: int, states: np.ndarray, actions: np.ndarray, rng: np.random.Generator) -> tuple:
            rewards = np.full(len(states), -1.0)
            rewards[min(2, len(states) - 1)] = self.reward
            return rewards, states, np.zeros(len(states), bool)

    request = Explore(0, s4q.UniformPolicy(4), np.ones((8, 20, 1, 1)), (np.inf, 0.0), 5)
    for reward, message in ((np.nan, "nan.*must be finite"), (5.0, r"5.0, outside .*\[-10.0, 0.0\]; declare")):
        with pytest.raises(ValueError, match=rf"Pays: episode 2 of the shard, step 0: the reward is {message}"):
            BatchCollector(Pays(reward), mdp.features, spec).collect(request)
    with pytest.raises(ValueError, match=r"env must be a BatchedEnv"):
        BatchCollector("env", mdp.features, spec)
    with pytest.raises(ValueError, match=r"n_blocks is 15 and 20|n_actions is 3 and 4"):
        BatchCollector(FiniteBatch(mdp), blocked_mdp().features, spec)
    with pytest.raises(ValueError, match=r"batch_size .*got 0"):
        BatchCollector(FiniteBatch(mdp), mdp.features, spec, batch_size=0)


def test_rounding_beyond_the_range_is_clipped() -> None:
    """Kept rewards and returns are those of the bounds, exactly; a little more is refused."""
    mdp = cliff()

    class Pays:
        def __init__(self, beyond: float) -> None:
            self.beyond = beyond

        def start(self, n: int, rng: np.random.Generator) -> np.ndarray:
            return np.zeros(n, int)

        def step(self, h: int, states: np.ndarray, actions: np.ndarray, rng: np.random.Generator) -> tuple:
            reward = self.beyond if h % 2 else -10.0 - self.beyond
            return np.full(len(states), reward), states, np.zeros(len(states), bool)

    request = Explore(0, s4q.UniformPolicy(4), np.ones((8, 20, 1, 1)), (np.inf, 0.0), 5, keep=5)
    answer = BatchCollector(Pays(9e-6), mdp.features, mdp.spec).collect(request)
    assert set(answer.kept.rewards[answer.kept.levels % 2 == 1]) == {10.0}
    assert set(answer.kept.rewards[answer.kept.levels % 2 == 0]) == {0.0}
    assert answer.return_sum == 200.0
    with pytest.raises(ValueError, match="outside of the declared range"):
        BatchCollector(Pays(3e-5), mdp.features, mdp.spec).collect(request)
