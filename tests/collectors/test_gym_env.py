"""GymCollector: exact sums, laws, shards and bits; the fast greedy action; the draws."""

import gymnasium as gym
import numpy as np
import pytest
from asking import q_with_spread, regress_request
from scipy.stats import chisquare
from small_envs import Drift, MDPEnv, Waves
from small_problems import cliff, random_mdp
from test_episodes import same_bits

import s4q
from s4q.collectors import CountCollector, EpisodeCollector, GymCollector
from s4q.collectors.seeding import EpisodeDraws
from s4q.collectors.stepping.episode import Episode
from s4q.collectors.stepping.greedy_actor import GreedyActor
from s4q.collectors.stepping.step_features import StepFeatures
from s4q.core.messages import Answer, Explore, Mixture, Phi, Regress, Request
from s4q.features import Dense, OneHot, PerAction, RandomFourier

DRIFT_RANGE = (-1.5, 0.5)


def drift_spec(features: Waves, horizon: int = 8) -> s4q.Spec:
    return s4q.Spec.of(features, horizon=horizon, reward_range=DRIFT_RANGE)


def random_q(spec: s4q.Spec, seed: int, spread: bool = True) -> s4q.LinearQ:
    """Everything a policy can have: bonus, spread, clip."""
    rng = np.random.default_rng(seed)
    shape = (spec.horizon, spec.n_blocks, spec.block_dim)
    white = np.tril(rng.normal(size=(*shape, spec.block_dim)))
    second = (rng.normal(size=shape), rng.uniform(0.1, 1.0, size=(spec.horizon, 5))) if spread else ()
    clip = [(0.0, bound) for bound in spec.value_bound]
    return q_with_spread(rng.normal(size=shape), white, rng.random((spec.horizon, spec.n_blocks)), clip, *second)


def all_requests(spec: s4q.Spec, n: int = 300) -> list[Request]:
    """Regress and Explore, pooled or not, mixtures with a stochastic policy, kept episodes, crossing and not."""
    mixture = Mixture([random_q(spec, 1), s4q.UniformPolicy(spec.n_actions), random_q(spec, 2)], [0.5, 0.2, 0.3])
    white = np.broadcast_to(0.2 * np.eye(spec.block_dim), (spec.horizon, *spec.gram_shape))
    varied = white * np.linspace(1.0, 2.0, spec.horizon)[:, None, None, None]
    value, last = random_q(spec, 3), spec.horizon - 1
    return [
        regress_request(0, 0, mixture, value, n),
        regress_request(1, last, mixture, value, n),
        regress_request(2, last // 2, mixture, value, n, pool=True),
        Explore(3, random_q(spec, 4), varied, (np.inf, 0.0), n, keep=5),
        Explore(4, random_q(spec, 4), varied, (1.0, 0.3), 10**5, keep=3),
        Explore(5, s4q.UniformPolicy(spec.n_actions), white[:1], (3.0, 0.5), 10**5, pool=True),
    ]


def everything(answer: Answer) -> list[np.ndarray]:
    """All numbers of an answer, kept transitions and start values included."""
    kept = getattr(answer, "kept", None)
    names = [] if kept is None else [*(set(kept.__slots__) - {"state_vectors"}), "vectors", "next_vectors"]
    fields = [np.asarray(getattr(kept, name)) for name in names]  # the table may hold one vector for all actions
    return [*fields, np.asarray(getattr(answer, "start_value_sum", 0.0), dtype=np.float64)]


def equal(a: Answer, b: Answer) -> bool:
    pairs = list(zip(everything(a), everything(b), strict=True))
    return same_bits(a, b) and all(np.array_equal(x, y, equal_nan=True) for x, y in pairs)


def literal(env: gym.Env, features: Waves, spec: s4q.Spec, request: Regress | Explore, seed: int, n: int) -> dict:
    """The definition, one step at a time, with LinearQ's own formulas."""
    out = {"gram": np.zeros((spec.horizon, *spec.gram_shape)), "y": [], "phi": [], "returns": [], "steps": 0}
    out["progress"] = np.zeros(spec.horizon)
    for episode in range(n):
        draws = EpisodeDraws(seed, request.id, episode, spec.horizon)
        policy = request.policy if isinstance(request, Explore) else request.mixture.policies[0]
        observation, _ = env.reset(seed=draws.env_seed)
        total = -spec.horizon * spec.reward_min
        for h in range(spec.horizon):
            phi = features(h, observation[None])
            action = int(policy.greedy(h, phi)[0])
            (vector,), (block,) = phi.chosen(np.array([action]))
            observation, reward, ended, _, _ = env.step(action)
            out["gram"][h, block] += np.outer(vector, vector)
            out["steps"] += 1
            total += reward
            if isinstance(request, Explore):
                out["progress"][h] += np.sum((request.whitener[h, block] @ vector) ** 2)
            elif h == request.level:
                after = 0.0 if request.target is None else request.target.value(features(h + 1, observation[None]))[0]
                out["y"].append(reward - spec.reward_min + (spec.ended_value(h) if ended else after))
                out["phi"].append((block, vector))
                break
            if ended:
                break
        out["returns"].append(total)
    return out


@pytest.mark.parametrize("dense", [True, False])
def test_sums_are_those_of_the_definition(dense: bool) -> None:
    features = Waves(3, 4, dense)
    spec, env = drift_spec(features), Drift()
    collector = GymCollector(env, features, spec, seed=5)
    for level in (0, 3, 7):
        request = regress_request(level, level, Mixture([random_q(spec, 1)], [1.0]), random_q(spec, 2), 100)
        moments, want = collector.collect(request).moments, literal(env, features, spec, request, 5, 100)
        moment = np.zeros(spec.gram_shape[:2])
        for (block, vector), y in zip(want["phi"], want["y"], strict=True):
            moment[block] += y * vector
        assert moments.n == len(want["y"])
        assert 0 < moments.n < 100 or level == 0  # some episodes end before level 3 already
        np.testing.assert_allclose(moments.moment, moment, atol=1e-12)
        np.testing.assert_allclose(moments.gram, want["gram"][level], atol=1e-12)
        np.testing.assert_allclose(moments.sum_y2, np.sum(np.square(want["y"])), rtol=1e-12)
    explore = all_requests(spec, 100)[3]
    visits, want = collector.collect(explore), literal(env, features, spec, explore, 5, 100)
    np.testing.assert_allclose(visits.grams, want["gram"], atol=1e-12)
    np.testing.assert_allclose(visits.progress, want["progress"], rtol=1e-12)
    np.testing.assert_allclose(visits.return_sum, np.sum(want["returns"]), rtol=1e-12)
    np.testing.assert_allclose(visits.return_sum_sq, np.sum(np.square(want["returns"])), rtol=1e-12)
    assert visits.n_steps == want["steps"]


@pytest.mark.parametrize("which", range(6))
def test_same_seed_same_bits_another_seed_differs_and_parts_make_the_whole(which: int) -> None:
    features = Waves(3, 4, dense=False)
    spec = drift_spec(features)
    request = all_requests(spec, n=270)[which]
    collector = GymCollector(Drift(), features, spec, seed=1)
    answer = collector.collect(request)
    assert equal(answer, collector.collect(request))
    assert not same_bits(answer, GymCollector(Drift(), features, spec, seed=2).collect(request))
    shards = list(collector.shards(request))
    assert shards[0].n_episodes == 256
    if isinstance(request, Regress):
        played = [collector.play(request, shard) for shard in reversed(shards)]
        total = played[-1]
        for part in reversed(played[:-1]):
            total = total + part
        assert equal(total, answer)


def test_an_episode_does_not_depend_on_where_a_request_is_cut() -> None:
    """The draws are the episode's: 3 + 97 episodes see what 100 see, up to the rounding of another order of adding."""
    features = Waves(3, 4, dense=True)
    spec = drift_spec(features)
    collector = GymCollector(Drift(), features, spec, seed=1)
    mixture, value = all_requests(spec)[0].mixture, random_q(spec, 3)
    whole = collector.collect(regress_request(0, 2, mixture, value, 100))
    parts = collector.collect(regress_request(0, 2, mixture, value, 3)) + collector.collect(
        regress_request(0, 2, mixture, value, 97, done=3)
    )
    np.testing.assert_allclose(parts.moments.moment, whole.moments.moment, rtol=1e-12, atol=1e-13)
    assert parts.episodes_per_policy.tolist() == whole.episodes_per_policy.tolist()


def test_explore_stops_at_the_first_crossing_episode() -> None:
    features = Waves(3, 4, dense=False)
    spec = drift_spec(features)
    collector = GymCollector(Drift(), features, spec, seed=3)
    for which in (4, 5):
        request = all_requests(spec)[which]
        answer = collector.collect(request)
        n = answer.n_episodes
        assert n > 3
        free = (np.inf, 0.0)
        again = Explore(request.id, request.policy, request.whitener, free, n, keep=request.keep, pool=request.pool)
        assert equal(collector.collect(again), answer)
        before = collector.collect(
            Explore(request.id, request.policy, request.whitener, free, n - 1, pool=request.pool)
        )
        assert not request.crossed(before.progress, n - 1)
        assert request.crossed(answer.progress, n)


def test_reset_early_changes_no_moment_but_saves_steps() -> None:
    features = Waves(3, 4, dense=False)
    spec = drift_spec(features)
    for request in all_requests(spec, 60)[:3]:
        early, late = (GymCollector(Drift(), features, spec, reset_early=b).collect(request) for b in (True, False))
        assert np.array_equal(early.moments.moment, late.moments.moment)
        assert early.n_steps <= late.n_steps
    assert GymCollector(Drift(), features, spec).collect(all_requests(spec, 50)[0]).n_steps == 50


def test_actions_may_start_elsewhere_and_whole_number_states_are_remembered() -> None:
    mdp = random_mdp(5, 3, 4, 3, seed=1, terminal=True, low=-1.0)
    for request in all_requests(mdp.spec, 60):
        plain = GymCollector(MDPEnv(mdp), mdp.features, mdp.spec).collect(request)
        assert equal(plain, GymCollector(MDPEnv(mdp, first_action=7), mdp.features, mdp.spec).collect(request))


@pytest.mark.parametrize("planted", ["rows of another batch", "nan", "norm"])
def test_a_dense_function_is_checked_before_it_acts(planted: str) -> None:
    good = np.full((1, 3, 4), 0.5)
    bad = {"rows of another batch": np.repeat(good, 7, axis=0), "nan": good * np.nan, "norm": 3 * good}[planted]
    features = Dense(lambda states: bad, n_actions=3, dim=4)
    spec = s4q.Spec.of(features, horizon=8, reward_range=DRIFT_RANGE)
    stream = s4q.Stream(s4q.S4Q(spec), features)
    with pytest.raises(ValueError, match=r"step 0: the features raised ValueError \(features must (have|be)"):
        stream.act(np.zeros(2))


def test_draws_are_uniform_and_have_a_prefix_property() -> None:
    draws = [EpisodeDraws(0, 1, i, horizon=3) for i in range(2000)]
    for numbers in ([d.policy for d in draws], [d.action(2) for d in draws], [d.env_seed / 2**62 - 1 for d in draws]):
        assert chisquare(np.histogram(numbers, 10, (0, 1))[0]).pvalue > 1e-3
    assert EpisodeDraws(0, 1, 5, horizon=9).action(2) == draws[5].action(2)
    assert len({d.env_seed for d in draws}) == 2000


@pytest.mark.parametrize("kind", ["dense", "per action", "one psi", "mixed blocks", "one-hot"])
@pytest.mark.parametrize("spread", [True, False])
def test_the_fast_greedy_action_is_that_of_linear_q(kind: str, spread: bool) -> None:
    rng = np.random.default_rng(0)
    sizes = {"dense": (5, 1), "per action": (5, 4), "one psi": (5, 4), "mixed blocks": (5, 3), "one-hot": (1, 12)}
    k, n_blocks = sizes[kind]
    theta = rng.normal(size=(2, n_blocks, k))
    white, width = rng.normal(size=(2, n_blocks, k, k)), rng.random((2, n_blocks))
    second = (rng.normal(size=theta.shape), rng.uniform(0.1, 1.0, size=(2, 5))) if spread else ()
    no_clip = [(-np.inf, np.inf)] * 2
    for q in (s4q.LinearQ.from_arrays(theta), q_with_spread(theta, white, width, no_clip, *second)):
        actor = GreedyActor(q)
        for _ in range(50):
            vectors = rng.normal(size=(4, k))
            if kind == "one psi":
                vectors = np.broadcast_to(vectors[0], (4, k))
            in_order = kind in ("per action", "one psi")
            blocks = np.arange(4) if in_order else rng.integers(0, n_blocks, size=4)
            step = StepFeatures(vectors[:1] if kind == "one psi" else vectors, blocks)
            phi = Phi(vectors[None], blocks[None])
            for h in (0, 1):
                fast = actor.values(h, step)
                np.testing.assert_allclose(fast, q.optimistic(h, phi)[0], rtol=1e-12, atol=1e-12)
                assert actor(h, None, step, EpisodeDraws(0, 0, 0, 1)) == q.greedy(h, phi)[0]


def test_a_part_of_an_episode_has_its_steps_and_the_features_after_them() -> None:
    """A view where it is most of the episode, else a copy that lets go of the rest."""
    vectors, blocks = np.arange(24.0).reshape(6, 2, 2), np.arange(12).reshape(6, 2)
    whole = Episode(0, vectors, blocks, [0, 1, 0, 1, 0], [0.1, 0.2, 0.3, 0.4, 0.5], ended=True, which=2)
    one, most, late = whole.part(range(2, 3)), whole.part(range(1, 9)), whole.part(range(7, 9))
    assert (one.first, one.actions, one.rewards, one.ended, one.which) == (2, [0], [0.3], False, 2)
    assert one.blocks.tolist() == [[4, 5], [6, 7]]
    assert (most.first, most.actions, most.ended) == (1, [1, 0, 1, 0], True)
    assert most.part(range(2, 3)).vectors.tolist() == one.vectors.tolist() == vectors[2:4].tolist()
    assert most.part(range(2, 3)).first == 2
    assert (np.shares_memory(one.vectors, vectors), np.shares_memory(most.vectors, vectors)) == (False, True)
    assert late.actions == []


class Hidden:
    """A feature map that the collector knows nothing of."""

    def __init__(self, features: PerAction) -> None:
        self._features = features
        self.n_actions, self.n_blocks, self.block_dim = features.n_actions, features.n_blocks, features.block_dim

    def __call__(self, h: int, states: np.ndarray) -> Phi:
        return self._features(h, states)


def test_one_psi_for_all_actions_has_the_bits_of_the_features_written_out() -> None:
    psi = RandomFourier(dim=6, width=0.5, low=[-4.8, -9, -0.42, -9], high=[4.8, 9, 0.42, 9], clip=True)
    features, env = PerAction(psi, n_actions=2), gym.make("CartPole-v1")
    spec = s4q.Spec.of(features, horizon=30, reward_range=(0, 1))
    for request in all_requests(spec, 20):
        answer = GymCollector(env, features, spec).collect(request)
        assert equal(answer, GymCollector(env, Hidden(features), spec).collect(request))


def test_exact_ties_go_to_the_lowest_action() -> None:
    q = s4q.LinearQ.from_arrays(np.zeros((1, 3, 2)), np.tile(np.eye(2), (1, 3, 1, 1)), np.ones((1, 3)))
    step = StepFeatures(np.array([[0.1, 0.2], [0.3, 0.4], [0.3, 0.4]]), np.arange(3))
    assert GreedyActor(q)(0, None, step, EpisodeDraws(0, 0, 0, 1)) == 1


def law_of(env_id: str, horizon: int, n: int, slippery: bool | None = None) -> tuple[float, float]:
    """Worst z-score of visits and of returns: counting on the table against stepping the env, greedy and uniform."""
    options = {} if slippery is None else {"is_slippery": slippery}
    mdp = s4q.problems.from_gymnasium(env_id, horizon=horizon)
    env, n_states = gym.make(env_id, max_episode_steps=horizon, **options), gym.make(env_id).observation_space.n
    features = OneHot(int(n_states), n_actions=mdp.n_actions)
    spec = s4q.Spec.of(features, horizon=horizon, reward_range=(mdp.spec.reward_min, mdp.spec.reward_max))
    rng = np.random.default_rng(0)
    theta = np.zeros((horizon, mdp.n_states * mdp.n_actions, 1))
    theta[:, : spec.n_blocks] = rng.normal(size=(horizon, spec.n_blocks, 1))
    worst_visits, worst_return = 0.0, 0.0
    pairs = [
        (s4q.UniformPolicy(mdp.n_actions),) * 2,
        (s4q.LinearQ.from_arrays(theta[:, : spec.n_blocks]), s4q.LinearQ.from_arrays(theta)),
    ]
    for policy, counted in pairs:
        white = np.ones((horizon, spec.n_blocks, 1, 1))
        stepped = GymCollector(env, features, spec, seed=1).collect(Explore(0, policy, white, (np.inf, 0.0), n))
        wide = np.ones((horizon, mdp.spec.n_blocks, 1, 1))
        counts = CountCollector(mdp, seed=1).collect(Explore(0, counted, wide, (np.inf, 0.0), 50 * n))
        a = stepped.grams[:, :, 0, 0]
        b = counts.grams[:, : spec.n_blocks, 0, 0] / 50
        seen = (b >= 10) | (a >= 10)
        worst_visits = max(worst_visits, float(np.max(np.abs(a - b)[seen] / np.sqrt(np.maximum(a, b)[seen] * 1.02))))
        spread = np.sqrt(max(stepped.return_sum_sq / n - (stepped.return_sum / n) ** 2, 1e-12) / n)
        worst_return = max(worst_return, abs(stepped.return_sum / n - counts.return_sum / 50 / n) / spread)
    return worst_visits, worst_return


def test_counting_agrees_in_law_with_stepping_frozen_lake() -> None:
    visits, returns = law_of("FrozenLake-v1", horizon=12, n=800)
    assert visits < 5
    assert returns < 4


def test_the_law_test_notices_another_lake() -> None:
    """Planted: the env does not slip, the table does."""
    visits, _ = law_of("FrozenLake-v1", horizon=12, n=200, slippery=False)
    assert visits > 8


@pytest.mark.slow
@pytest.mark.parametrize(("env_id", "horizon"), [("FrozenLake-v1", 30), ("CliffWalking-v1", 15), ("Taxi-v4", 10)])
def test_counting_agrees_in_law_with_stepping(env_id: str, horizon: int) -> None:
    visits, returns = law_of(env_id, horizon, n=10_000)
    assert visits < 5.5  # thousands of cells
    assert returns < 4


def test_stepping_agrees_in_law_with_the_reference() -> None:
    """The cliff: negative rewards, early ends. Mean targets and returns against EpisodeCollector, many episodes."""
    mdp, n = cliff(), 1000
    mixture = Mixture([s4q.UniformPolicy(4)], [1.0])
    request = regress_request(0, 2, mixture, random_q(mdp.spec, 3), n)
    stepped = GymCollector(MDPEnv(mdp), mdp.features, mdp.spec, seed=1).collect(request).moments
    reference = (
        EpisodeCollector(mdp, seed=1).collect(regress_request(0, 2, mixture, random_q(mdp.spec, 3), 20 * n)).moments
    )
    a, b = stepped.gram.ravel(), reference.gram.ravel() / 20
    assert np.max(np.abs(a - b) / np.sqrt(b + 1)) < 5
    seen = a > 5
    np.testing.assert_allclose(
        (stepped.moment.ravel() / np.maximum(a, 1))[seen],
        (reference.moment.ravel() / 20 / np.maximum(b, 1))[seen],
        rtol=0.3,
    )
