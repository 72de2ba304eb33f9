"""Every collector against a literal player: all sums of all requests, level by level, at several horizons."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from asking import q_with_spread, regress_request
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from literal_player import LiteralPlayer, Sums, kept_row

import s4q
from s4q.collectors import (
    CountCollector,
    EpisodeCollector,
    GymCollector,
    VectorCollector,
)
from s4q.core.messages import Answer, Explore, Mixture, Phi, Regress, Request, Visits
from s4q.features import Dense, OneHot, PerAction, RandomFourier
from s4q.problems import FiniteMDP

HORIZONS = (1, 2, 3, 5)
N_STATES, N_ACTIONS = 4, 3
LOW, HIGH = -1.0, 0.5
SEED = 7


class Ending(gym.Env):
    """A random walk that ends after as many steps as its start drew, from 1 on; some never do within the horizon."""

    def __init__(self, horizon: int, box: bool = False) -> None:
        self.horizon, self.box = horizon, box
        self.observation_space = spaces.Box(-1.0, 1.0, (2,), np.float64) if box else spaces.Discrete(N_STATES)
        self.action_space = spaces.Discrete(N_ACTIONS)
        self.state = self.left = 0

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.left = int(self.np_random.integers(1, self.horizon + 2))
        return self._arrive(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict]:
        reward = 0.1 * self.state - 0.2 * int(action) + float(self.np_random.uniform(-0.5, 0.2))
        self.left -= 1
        return self._arrive(), reward, self.left == 0, False, {}

    def _arrive(self) -> Any:
        self.state = int(self.np_random.integers(N_STATES))
        return self.np_random.uniform(-1.0, 1.0, 2) if self.box else self.state


class ByLevel:
    """Dense features of a 2-vector that are others at each level."""

    n_actions, n_blocks, block_dim = N_ACTIONS, 1, 3

    def __init__(self, horizon: int) -> None:
        self.w = np.random.default_rng(3).normal(size=(horizon, 2, N_ACTIONS, 3))

    def __call__(self, h: int, states: np.ndarray) -> Phi:
        vectors = np.cos(np.einsum("nd,dak->nak", states, self.w[h])) / 2
        return Phi(vectors, np.zeros((len(states), N_ACTIONS), dtype=np.int64))


class Mixed:
    """Features of length 2 in one of three blocks, which depends on level, state and action."""

    n_actions, n_blocks, block_dim = N_ACTIONS, 3, 2

    def __init__(self, horizon: int) -> None:
        rng = np.random.default_rng(4)
        self.vectors = rng.uniform(-0.7, 0.7, size=(horizon, N_STATES, N_ACTIONS, 2))
        self.blocks = rng.integers(0, 3, size=(horizon, N_STATES, N_ACTIONS))

    def __call__(self, h: int, states: np.ndarray) -> Phi:
        return Phi(self.vectors[h, states], self.blocks[h, states])


def waves(states: np.ndarray) -> np.ndarray:
    return np.stack([np.cos(states), np.sin(2 * states), np.cos(states[:, ::-1] + 1)], axis=1) / 2


FOURIER = RandomFourier(dim=4, width=0.5, low=[-1, -1], high=[1, 1])
KINDS: dict[str, tuple[bool, Callable[[int], Any]]] = {
    "one-hot": (False, lambda horizon: OneHot(N_STATES, n_actions=N_ACTIONS)),
    "per action": (True, lambda horizon: PerAction(FOURIER, n_actions=N_ACTIONS)),
    "dense": (True, lambda horizon: Dense(waves, n_actions=N_ACTIONS, dim=2)),
    "by level": (True, ByLevel),
    "mixed blocks": (False, Mixed),
}


def spec_of(features: Any, horizon: int, **more: Any) -> s4q.Spec:
    return s4q.Spec.of(features, horizon=horizon, reward_range=(LOW, HIGH), **more)


def any_q(spec: s4q.Spec, seed: int, *, bonus: bool = True) -> s4q.LinearQ:
    """Bonus, spread and clip, all of them at work; or the line alone."""
    rng = np.random.default_rng(seed)
    shape = spec.theta_shape
    if not bonus:
        return s4q.LinearQ.from_arrays(rng.normal(size=shape))
    white = np.tril(rng.normal(size=(*shape, spec.block_dim)))
    second, scale = rng.normal(size=shape), rng.uniform(0.1, 1.0, size=(spec.horizon, 4))
    clip = [(0.2 * bound, 0.8 * bound) for bound in spec.value_bound]
    theta, width = rng.normal(size=shape), rng.random(shape[:2])
    numbers = np.hstack([scale, rng.uniform(0.1, 1.0, size=(spec.horizon, 1))])
    return q_with_spread(theta, white, width, clip, second, numbers)


def requests_of(spec: s4q.Spec, n: int, *, draws: bool = True) -> list[Request]:
    """Every level, pooled or not, from the start or from episode 5 on; Explore with and without all its options."""
    third = s4q.UniformPolicy(spec.n_actions) if draws else any_q(spec, 5)
    mixture = Mixture([any_q(spec, 1), third, any_q(spec, 2, bonus=False)], [0.4, 0.35, 0.25])
    values = [any_q(spec, 3), any_q(spec, 4, bonus=False)]
    found: list[Request] = []
    for level in range(spec.horizon):
        for pool in (False, True):
            value = values[(level + pool) % 2]
            found.append(regress_request(len(found), level, mixture, value, n, pool, done=5 * (level % 2)))
    rng = np.random.default_rng(9)
    white = rng.uniform(0.2, 1.0, size=(spec.horizon, *spec.gram_shape))
    levels = np.linspace(0.1, 0.3, spec.horizon)
    i = len(found)
    return [
        *found,
        Explore(i, any_q(spec, 6), white, (np.inf, 0.0), n, keep=4),
        Explore(i + 1, third, white, (1.0, 0.4), 200, keep=2),
        Explore(i + 2, any_q(spec, 7), white[:1], (2.0, 0.3), 200, keep=200, pool=True),
        Explore(i + 3, any_q(spec, 7, bonus=False), white, (1.5, 0.2), 200, keep=3, done=5, progress=levels),
    ]


def assert_sums(answer: Answer, want: Sums, *, weighed: bool = False) -> None:
    """All fields, to rounding. weighed: equal steps may be one with a count."""

    def close(name: str, one: Any, other: Any) -> None:
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9, err_msg=name)

    assert (answer.n_episodes, answer.n_steps) == (want.n_episodes, want.n_steps)
    if not isinstance(answer, Visits):
        moments = answer.moments
        assert moments.n == want.n
        assert answer.episodes_per_policy.tolist() == want.per_policy
        for name in ("moment", "moment_sq", "sum_y2"):
            close(name, getattr(moments, name), getattr(want, name))
        close("gram", moments.gram, want.gram[0])
        return
    close("grams", answer.grams, want.gram)
    close("progress", answer.progress, want.progress)
    close("return_sum", answer.return_sum, want.return_sum)
    if answer.return_sum_sq is not None:
        close("return_sum_sq", answer.return_sum_sq, want.return_sum_sq)
    assert (answer.start_value_sum is None) == (want.start_value_sum is None)
    if answer.start_value_sum is not None:
        close("start_value_sum", answer.start_value_sum, want.start_value_sum)
    assert kept_rows(answer, weighed) == Counter(want.kept)


def kept_rows(answer: Visits, weighed: bool) -> Counter:
    rows: Counter = Counter()
    if answer.kept is not None:
        kept = answer.kept
        assert weighed or set(kept.weights.tolist()) == {1}
        columns = (kept.levels, kept.vectors, kept.blocks, kept.rewards, kept.ended, kept.next_vectors)
        lists = [column.tolist() for column in (*columns, kept.next_blocks, kept.weights)]
        for h, x, b, reward, ended, after, next_blocks, weight in zip(*lists, strict=True):
            rows[kept_row(h, x, b, reward, ended, after, next_blocks)] += weight
    return rows


def wide(word: int) -> int:
    """The seed of an environment, from 64 random bits."""
    return 2**62 + word // 4


class Literal:
    """The literal player in front of its own copy of an environment."""

    def __init__(self, env: gym.Env, features: Any, spec: s4q.Spec, reset_early: bool = True) -> None:
        self.env, self.reset_early = env, reset_early
        self.player = LiteralPlayer(features, spec)
        self.lengths: Counter = Counter()  # of the episodes played to their end

    def answer(self, request: Request, n: int | None = None) -> Sums:
        n = n or request.n_episodes
        last = self.player.last_step(request, self.reset_early)
        numbers = range(request.done, request.done + n)
        episodes = (self.player.env_episode(self.env, request, SEED, number, last, wide) for number in numbers)
        if isinstance(request, Regress):
            return self.player.regression(request, self._counted(episodes))
        return self.player.visits(request, self._counted(episodes))

    def _counted(self, episodes: Any) -> Any:
        for episode in episodes:
            self.lengths[len(episode.steps) if episode.steps[-1].ended else 0] += 1
            yield episode


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("horizon", HORIZONS)
def test_stepped_environments(kind: str, horizon: int) -> None:
    """One env, with and without early resets, and vectors of envs in all modes; episodes end at every step."""
    box, make_features = KINDS[kind]
    features = make_features(horizon)
    spec = spec_of(features, horizon)

    def make() -> Ending:
        return Ending(horizon, box)

    literals = {early: Literal(make(), features, spec, early) for early in (True, False)}
    collectors: list[tuple[bool, Any]] = [
        (True, GymCollector(make(), features, spec, SEED)),
        (False, GymCollector(make(), features, spec, SEED, reset_early=False)),
    ]
    for i, mode in enumerate(AutoresetMode):
        early = (horizon + i) % 2 == 0
        env = SyncVectorEnv([make] * 3, autoreset_mode=mode)
        collectors.append((early, VectorCollector(env, features, spec, SEED, reset_early=early)))
    for request in requests_of(spec, 10):
        wanted = {early: literal.answer(request) for early, literal in literals.items()}
        for early, collector in collectors:
            assert_sums(collector.collect(request), wanted[early])
    assert set(literals[False].lengths) == set(range(horizon + 1))  # an end at each step, and none


@pytest.mark.parametrize("horizon", HORIZONS)
def test_requests_of_several_shards(horizon: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shards of 5 episodes: a threshold is reached in a later one, kept episodes end within one."""
    monkeypatch.setattr("s4q.collectors.stepping.stepping_collector._MOST_EPISODES", 5)
    features = Mixed(horizon)
    spec = spec_of(features, horizon)
    env = SyncVectorEnv([lambda: Ending(horizon)] * 2)
    literal = Literal(Ending(horizon), features, spec)
    for request in [*requests_of(spec, 16)[:2], *requests_of(spec, 16)[-4:]]:
        want = literal.answer(request)
        for collector in (
            GymCollector(Ending(horizon), features, spec, SEED),
            VectorCollector(env, features, spec, SEED),
        ):
            assert_sums(collector.collect(request), want)


def learners(spec: s4q.Spec) -> dict[str, Any]:
    """S3Q and S4Q in all presets, with constants that make phases short."""
    mixed = Mixture([s4q.UniformPolicy(spec.n_actions), any_q(spec, 1)], [0.5, 0.5])
    found: dict[str, Any] = {
        "S3Q": s4q.S3Q(spec, mixed),
        "S3Q, one epoch": s4q.S3Q(spec, mixed, epoch_size=6),
        "practical, policies": s4q.S4Q(spec, memory="policies", trigger=2.1, c_replay=1.0),
        "practical, all kept": s4q.S4Q(spec),
        "realisable": s4q.S4Q(spec, "realisable", ridge=1.0, trigger=2.1, c_replay=1.0),
        "tight": s4q.S4Q(spec, "tight", ridge=1.0, trigger=2.1, c_replay=1.0),
        "paper": s4q.S4Q(spec, "paper", ridge=1.0, trigger=2.1, c_replay=1.0),
    }
    if spec.stationary:
        found["S3Q, pooled"] = s4q.S3Q(spec, mixed, pool=True)
        found["realisable, pooled"] = s4q.S4Q(spec, "realisable", ridge=1.0, trigger=4.1, pool=True)
    return found


@pytest.mark.parametrize("kind", ["one-hot", "per action", "by level"])
@pytest.mark.parametrize("horizon", HORIZONS)
def test_whatever_learners_ask(kind: str, horizon: int) -> None:
    """Every answer that S3Q and S4Q are told, through one env or a vector of envs."""
    box, make_features = KINDS[kind]
    features = make_features(horizon)
    spec = spec_of(features, horizon, stationary=kind != "by level")
    vector = SyncVectorEnv([lambda: Ending(horizon, box)] * 3, autoreset_mode=AutoresetMode.SAME_STEP)
    collectors = [
        GymCollector(Ending(horizon, box), features, spec, SEED),
        VectorCollector(vector, features, spec, SEED),
    ]
    literal = Literal(Ending(horizon, box), features, spec)
    for i, learner in enumerate(learners(spec).values()):
        left = 36
        while left > 0 and (request := learner.ask(left)) is not None:
            answer = collectors[i % 2].collect(request)
            assert_sums(answer, literal.answer(request))
            learner.tell(request, answer)
            left -= answer.n_episodes
        assert learner.phases > 0


class Checking:
    """A learner that compares what it is told with the literal player."""

    def __init__(self, learner: Any, literal: Literal) -> None:
        self.learner, self.literal, self.spec, self.told = learner, literal, learner.spec, 0

    def ask(self, max_episodes: int) -> Request | None:
        return self.learner.ask(max_episodes)

    def tell(self, request: Request, answer: Answer) -> None:
        self.told += 1
        assert_sums(answer, self.literal.answer(request, answer.n_episodes))
        self.learner.tell(request, answer)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.learner, name)


@pytest.mark.parametrize("kind", ["one-hot", "per action", "by level"])
@pytest.mark.parametrize("horizon", HORIZONS)
def test_whatever_a_stream_tells(kind: str, horizon: int) -> None:
    """Each learner with one kind of features or another, by turns."""
    box, make_features = KINDS[kind]
    features = make_features(horizon)
    spec = spec_of(features, horizon, stationary=kind != "by level")
    turn = horizon + ["one-hot", "per action", "by level"].index(kind)
    for learner in list(learners(spec).values())[turn % 3 :: 3]:
        checking = Checking(learner, Literal(Ending(horizon, box), features, spec, reset_early=False))
        stream, env = s4q.Stream(checking, features, seed=SEED), Ending(horizon, box)
        for _ in range(20):
            stream._sums = stream._sums or stream._next_sums()  # the address of the episode must be known
            number = stream._sums.shard.index + stream._sums.n_episodes
            address = np.random.SeedSequence(SEED, spawn_key=(stream._sums.request.id, number))
            observation, over = env.reset(seed=wide(int(address.generate_state(1, np.uint64)[0])))[0], False
            while not over:
                observation, reward, ended, _, _ = env.step(stream.act(observation))
                over = stream.observe(reward, observation, terminated=ended)
        assert checking.told > 0


def test_s3q_learns_the_same_from_stepping_as_from_counting() -> None:
    """Two levels, one state each step, fixed rewards: what level 1 learns belongs to the second step."""
    rewards = np.array([[[0.1, 0.5], [0.0, 0.0]], [[0.0, 0.0], [0.9, 0.2]]])
    transitions = np.zeros((2, 2, 2, 2))
    transitions[..., 1] = 1.0
    mdp = FiniteMDP(transitions, rewards, [1.0, 0.0], reward_noise="none")

    class Two(gym.Env):
        observation_space, action_space = spaces.Discrete(2), spaces.Discrete(2)

        def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[int, dict]:
            self.h = 0
            return 0, {}

        def step(self, action: int) -> tuple[int, float, bool, bool, dict]:
            self.h += 1
            return 1, float(rewards[self.h - 1, self.h - 1, action]), False, False, {}

    found = []
    for collector in (
        CountCollector(mdp),
        EpisodeCollector(mdp),
        GymCollector(Two(), mdp.features, mdp.spec),
        VectorCollector(SyncVectorEnv([Two] * 3), mdp.features, mdp.spec),
    ):
        learner = s4q.S3Q(mdp, s4q.UniformPolicy(2), epoch_size=200, ridge=1e-9, radius=100.0)
        found.append(s4q.run(learner, collector, 400).q.theta[:, :, 0])
    for theta in found:
        np.testing.assert_allclose(theta, [[1.0, 1.4, 0.0, 0.0], [0.0, 0.0, 0.9, 0.2]], atol=1e-6)


@pytest.mark.parametrize("planted", ["reward", "action", "end", "arrival"])
def test_the_literal_player_is_not_easily_pleased(planted: str) -> None:
    """One wrong number in one step of one episode is noticed."""
    features = Mixed(3)
    spec = spec_of(features, 3)
    collector, literal = GymCollector(Ending(3), features, spec, SEED), Literal(Ending(3), features, spec)
    player = literal.player
    for request in (requests_of(spec, 16)[1], requests_of(spec, 16)[-4]):
        answer = collector.collect(request)
        numbers = range(request.done, request.done + 16)
        episodes = [player.env_episode(literal.env, request, SEED, i, 3, wide) for i in numbers]
        spoilt = next(i for i, one in enumerate(episodes) if not one.steps[0].ended)
        step = episodes[spoilt].steps[0]
        episodes[spoilt].steps[0] = {
            "reward": step._replace(reward=step.reward + 1e-3),
            "action": step._replace(action=(step.action + 1) % N_ACTIONS),
            "end": step._replace(ended=True),
            "arrival": step._replace(after=(step.after + 1) % N_STATES),
        }[planted]
        add = player.regression if isinstance(request, Regress) else player.visits
        with pytest.raises(AssertionError):
            assert_sums(answer, add(request, episodes))
