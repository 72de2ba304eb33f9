"""What an Agent takes by itself: declared facts, default features, measured ranges, mixtures of spaces, the horizon."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
from gymnasium.vector import SyncVectorEnv
from gymnasium.wrappers import RescaleObservation, TimeLimit, TransformReward

import s4q
from s4q.collectors.stepping.action_numbers import ActionNumbers
from s4q.collectors.stepping.facts_of_gymnasium import declared_facts
from s4q.collectors.stepping.observations import batch_of
from s4q.features.defaults import MOST_DIMENSIONS, MOST_TERMS, default_features
from s4q.features.layout import Layout
from s4q.features.unmeasured import Unmeasured
from s4q.wrappers import DiscreteActions

# --- declared facts ---------------------------------------------------------------------------------------------------

PLAYED = ["CartPole-v1", "MountainCar-v0", "Acrobot-v1", "Blackjack-v1", "FrozenLake-v1", "Taxi-v4"]
PLAYED += ["FrozenLake8x8-v1", "CliffWalking-v1", "CliffWalkingSlippery-v1", "Pendulum-v1", "MountainCarContinuous-v0"]


@pytest.mark.parametrize(
    ("name", "options"), [*((name, {}) for name in PLAYED), ("CartPole-v1", {"sutton_barto_reward": True})]
)
def test_facts_hold_in_play(name: str, options: dict[str, Any]) -> None:
    """Random play pays nothing outside of the declared range, and where rewards are few it pays both ends."""
    env = gym.make(name, **options)
    facts = declared_facts(env)
    assert facts is not None
    low, high = facts.reward_range
    env.action_space.seed(0)
    for episode in range(8):
        env.reset(seed=episode)
        total, steps, over = 0.0, 0, False
        while not over and steps < 300:
            _, reward, ended, cut, _ = env.step(env.action_space.sample())
            assert low <= reward <= high
            total, steps, over = total + float(reward), steps + 1, ended or cut
        assert facts.value_bound is None or total <= facts.value_bound + 1e-9
        if name == "Blackjack-v1":
            assert facts.horizon is not None
            assert steps <= facts.horizon


def test_facts_follow_how_an_environment_was_made() -> None:
    assert declared_facts(gym.make("CartPole-v1", sutton_barto_reward=True)).reward_range == (-1.0, 0.0)  # type: ignore[union-attr]
    natural = declared_facts(gym.make("Blackjack-v1", natural=True, sab=False))
    assert natural is not None
    assert natural.reward_range == (-1.0, 1.5)
    assert declared_facts(gym.make("FrozenLake-v1", reward_schedule=(2, -1, 0))) is None


class OtherPole(CartPoleEnv):
    """Planted: a class built on Gymnasium's, which pays 10 a step."""

    def step(self, action: Any) -> Any:
        seen, reward, *rest = super().step(action)
        return (seen, 10 * reward, *rest)


def test_what_may_change_rewards_or_observations_voids_them() -> None:
    assert declared_facts(TransformReward(gym.make("CartPole-v1"), lambda r: 2 * r)) is None
    assert declared_facts(OtherPole()) is None
    assert declared_facts(gym.Env()) is None
    with pytest.raises(ValueError, match="reward_range must be given"):
        s4q.Agent(TimeLimit(OtherPole(), 50))
    narrow = declared_facts(gym.make("Acrobot-v1"))
    rescaled = declared_facts(RescaleObservation(gym.make("Acrobot-v1"), 0, 1))
    assert narrow is not None
    assert narrow.observation_range is not None
    assert rescaled is not None
    assert rescaled.observation_range is None
    assert rescaled.reward_range == narrow.reward_range


@pytest.mark.parametrize("name", [n for n in PLAYED if n not in ("Pendulum-v1", "MountainCarContinuous-v0")])
def test_an_id_is_enough(name: str) -> None:
    agent = s4q.Agent(name)
    assert agent.horizon >= 20
    assert agent.learner.spec.dim > 1
    assert f"horizon      {agent.horizon}" in agent.explain()


def test_what_the_user_declares_wins() -> None:
    spec = s4q.Agent("CliffWalking-v1", horizon=30, reward_range=(-200, 1), value_bound=0.5).learner.spec
    assert (spec.horizon, spec.reward_min, spec.reward_max) == (30, -200.0, 1.0)
    assert s4q.Agent("FrozenLake-v1").learner.spec.value_bound[0] == 1.0
    assert s4q.Agent("FrozenLake-v1", reward_range=(0, 1)).learner.spec.value_bound[0] == 100.0


# --- default features -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dim", range(1, MOST_DIMENSIONS + 1))
def test_boxes_stay_within_the_budget(dim: int) -> None:
    made = default_features(spaces.Box(-1, 1, (dim,)), spaces.Discrete(2))
    assert dim < made.block_dim <= MOST_TERMS
    assert made.n_blocks == 2


def test_pairs_of_dimensions_are_the_terms_of_the_whole_basis() -> None:
    low, high = np.zeros(4), np.ones(4)
    points = np.random.default_rng(0).uniform(0, 1, (50, 4))
    whole = s4q.features.Fourier(low=low, high=high, order=2)
    pairs = s4q.features.Fourier(low=low, high=high, order=2, interactions=2)
    wanted = [c for c in np.ndindex(3, 3, 3, 3) if sum(one > 0 for one in c) <= 2]
    columns = [int(np.ravel_multi_index(c, (3,) * 4)) for c in wanted]
    assert pairs.dim == len(wanted) == 33
    np.testing.assert_allclose(pairs(points) * np.sqrt(33), whole(points)[:, columns] * 9, atol=1e-12)


class Runner(gym.Env):
    """A place and a speed without bounds, and a lamp; both switches forward move it on."""

    observation_space: Any = spaces.Dict(
        {"lamp": spaces.Discrete(2, start=3), "run": spaces.Box(-np.inf, np.inf, (2,), dtype=np.float64)}
    )
    action_space: Any = spaces.MultiDiscrete([2, 3])

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.at, self.speed, self.lamp = self.np_random.normal(0, 0.1), 0.0, 3
        return self._seen(), {}

    def _seen(self) -> Any:
        return {"lamp": self.lamp, "run": np.array([self.at, self.speed])}

    def step(self, action: Any) -> Any:
        assert np.shape(action) == (2,)
        self.lamp = 3 + int(action[0])
        self.speed = 0.5 * self.speed + (float(action[1]) - 1) * int(action[0])
        self.at += self.speed + self.np_random.normal(0, 0.05)
        return self._seen(), float(np.clip(self.at, 0, 5) / 5), False, False, {}


def runner(seed: int = 0, env: Any = None) -> s4q.Agent:
    return s4q.Agent(Runner() if env is None else env, horizon=5, reward_range=(0, 1), seed=seed)


def test_mixtures_are_learned_from_raw_observations_with_several_actions() -> None:
    agent = runner().learn(60)
    assert agent.features.n_blocks == 2 * 6
    assert agent.evaluate(40).mean > 1.0  # random play gets 0.1
    seen = [Runner().reset(seed=i)[0] for i in range(3)]
    single, state = agent.predict(seen[0])
    assert single.tolist() == [1, 2]
    assert state == 1
    batch, _ = agent.predict(seen)
    assert batch.shape == (3, 2)
    stacked = {"lamp": np.array([one["lamp"] for one in seen]), "run": np.stack([one["run"] for one in seen])}
    np.testing.assert_array_equal(agent.predict(stacked)[0], batch)
    with pytest.raises(ValueError, match="observation must lie in the env's observation_space"):
        agent.predict({"lamp": 9, "run": np.zeros(2)})


class Comfortable(Runner):
    """Whoever does nothing gets half of what can be got."""

    def step(self, action: Any) -> Any:
        seen, _, *rest = super().step(action)
        return (seen, float(1 / (1 + np.exp(-self.at))), *rest)


def test_actions_that_were_never_tried_are_tried_where_doing_nothing_pays() -> None:
    assert runner(env=Comfortable()).learn(60).evaluate(40).mean > 4.0  # doing nothing gets 2.5


def test_vectors_of_mixtures_give_the_bits_of_one() -> None:
    one = runner().learn(20)
    several = runner(env=SyncVectorEnv([Runner] * 3)).learn(20)
    assert several.learner.q.theta.tobytes() == one.learner.q.theta.tobytes()
    assert several.features.config() == one.features.config()  # type: ignore[attr-defined]


def test_a_map_of_the_users_sees_raw_observations() -> None:
    def phi(h: int, states: Any) -> np.ndarray:
        rows = np.array([[1.0, np.tanh(one["run"][0]), one["lamp"] - 3.0] for one in states]) / 2
        return np.einsum("nk,ab->nabk", rows, np.eye(6)).reshape(len(rows), 6, 18)

    features = s4q.features.FunctionFeatures(phi, n_actions=6, block_dim=18, stationary=True)
    agent = s4q.Agent(Runner(), features, horizon=5, reward_range=(0, 1)).learn(30)
    assert agent.n_episodes == 30


def test_whole_numbers_in_parts_are_exact() -> None:
    agent = s4q.Agent("Blackjack-v1")
    assert agent.learner.spec.well_specified
    assert agent.learner.spec.n_blocks == 32 * 11 * 2 * 2
    assert agent.learn(40).predict((14, 10, 0))[0] in (0, 1)


def test_layouts_are_written_down() -> None:
    nested = spaces.Dict(
        {"a": spaces.Tuple((spaces.Discrete(2), spaces.Box(0, 1, (2, 2)))), "b": spaces.MultiBinary(3)}
    )
    layout = Layout.of(nested)
    assert Layout.from_config(layout.config()) == layout
    whole, real = layout.split([{"a": (1, np.arange(4.0).reshape(2, 2)), "b": np.array([0, 1, 1])}])
    assert whole.tolist() == [[1, 0, 1, 1]]
    assert real.tolist() == [[0.0, 1.0, 2.0, 3.0]]
    with pytest.raises(ValueError, match=r"the observation\['b'\] cannot be read"):
        layout.split([{"a": (1, np.zeros((2, 2)))}])


def test_action_numbers_count_through_all_combinations() -> None:
    space = spaces.MultiDiscrete([2, 3], start=[0, 5])
    numbers = ActionNumbers.of(space)
    own = [tuple(numbers(i).tolist()) for i in range(6)]
    assert own == [(a, 5 + b) for a in range(2) for b in range(3)]
    assert all(space.contains(numbers(i)) for i in range(6))
    assert ActionNumbers.of(spaces.Discrete(3, start=4))(2) == 6
    assert ActionNumbers.of(spaces.MultiBinary(2)).many(np.array([3])).tolist() == [[1, 1]]


def test_one_observation_or_a_batch() -> None:
    box = spaces.Box(-1, 1, (2,))
    assert batch_of(box, np.zeros(2))[1]
    assert not batch_of(box, np.zeros((3, 2)))[1]
    pair = spaces.Tuple((spaces.Discrete(2), spaces.Discrete(2)))
    assert batch_of(pair, (0, 1))[1]
    assert len(batch_of(pair, [(0, 1), (1, 1)])[0]) == 2
    assert batch_of(pair, (np.array([0, 1, 1]), np.array([1, 1, 0])))[0].tolist() == [(0, 1), (1, 1), (1, 0)]


# --- measured ranges --------------------------------------------------------------------------------------------------


def test_open_ranges_are_measured_once_counted_and_frozen(tmp_path: Path) -> None:
    agent = s4q.Agent("CartPole-v1", horizon=40)
    assert isinstance(agent.features, Unmeasured)
    assert agent.features.dimensions == [1, 3]
    with pytest.raises(ValueError, match=r"dimensions \[1, 3\] .* call learn first"):
        agent.predict(np.zeros(4))
    assert "measured on the first episodes of learn" in agent.explain()
    run = agent.learn(20).last_run
    assert run is not None
    assert (run.episodes, run.warm_up_episodes, run.main_episodes, agent.n_episodes) == (20, 2, 18, 18)
    assert run.steps > run.warm_up_episodes * 5
    ranges = agent.features.state_features.ranges  # type: ignore[attr-defined]
    assert ranges.clip
    np.testing.assert_allclose(ranges.high[[0, 2]], [2.4, 0.20943951])
    assert 0.3 < ranges.high[1] == -ranges.low[1] < 4
    assert "dimensions [1, 3] measured on 2 episodes of random actions" in agent.explain()
    before = agent.features
    second = agent.learn(10).last_run
    assert second is not None
    assert (agent.features, second.warm_up_episodes) == (before, 0)
    agent.save(tmp_path / "pole.s4q")
    loaded = s4q.Agent.load(tmp_path / "pole.s4q", "CartPole-v1")
    assert loaded.features.config() == agent.features.config()  # type: ignore[attr-defined]
    assert "measured on 2 episodes" in loaded.explain()


def test_ranges_hold_what_random_play_shows() -> None:
    """By play of our own: most of what random actions show lies inside."""
    agent = s4q.Agent("CartPole-v1", horizon=20).learn(30)
    ranges = agent.features.state_features.ranges  # type: ignore[attr-defined]
    env = gym.make("CartPole-v1")
    env.action_space.seed(1)
    inside = []
    for episode in range(30):
        seen, _ = env.reset(seed=1000 + episode)
        over = False
        while not over:
            inside.append(bool(((seen >= ranges.low) & (seen <= ranges.high))[[1, 3]].all()))
            seen, _, ended, cut, _ = env.step(env.action_space.sample())
            over = ended or cut
    assert np.mean(inside) > 0.95


def test_a_measuring_run_that_was_stopped_goes_on_with_the_same_bits(tmp_path: Path) -> None:
    whole = s4q.Agent("CartPole-v1", horizon=20).learn(30)
    path = tmp_path / "half.s4q"
    s4q.Agent("CartPole-v1", horizon=20).learn(30, checkpoint=path, stop=lambda run: run.episodes >= 12)
    resumed = s4q.Agent.load(path, "CartPole-v1").resume()
    assert resumed.last_run is not None
    assert whole.last_run is not None
    assert resumed.last_run.episodes == whole.last_run.episodes == 30
    assert resumed.last_run.warm_up_episodes == 3
    assert resumed.learner.q.theta.tobytes() == whole.learner.q.theta.tobytes()


def test_features_that_wait_can_be_saved_and_read_back(tmp_path: Path) -> None:
    agent = s4q.Agent("CartPole-v1", horizon=20, seed=5)
    agent.save(tmp_path / "new.s4q")
    loaded = s4q.Agent.load(tmp_path / "new.s4q", "CartPole-v1").learn(20)
    assert loaded.learner.q.theta.tobytes() == agent.learn(20).learner.q.theta.tobytes()


@pytest.mark.parametrize(
    ("seen", "range_"),
    [
        ([-1.0, 2.0], (-3.0, 3.0)),  # around 0, with a quarter of the width more on each side
        ([1.0, 3.0], (0.5, 3.5)),
        ([4.0, 4.0], (3.0, 5.0)),  # never changed
    ],
)
def test_measured_ranges_have_a_margin(seen: list[float], range_: tuple[float, float]) -> None:
    space = spaces.Box(-np.inf, np.inf, (1,), dtype=np.float64)
    waiting = default_features(space, spaces.Discrete(2))
    assert isinstance(waiting, Unmeasured)
    _, ranges = waiting.measured([np.array([one]) for one in seen])
    np.testing.assert_allclose(ranges[0], range_)


# --- continuous actions, and the horizon ------------------------------------------------------------------------------


def test_discrete_actions_are_evenly_spaced_and_keep_the_facts() -> None:
    env = DiscreteActions(gym.make("Pendulum-v1"), 5)
    assert env.action_space == spaces.Discrete(5)
    assert [float(env.action(i)[0]) for i in range(5)] == [-2, -1, 0, 1, 2]
    facts = declared_facts(env)
    assert facts is not None
    assert facts.reward_range == pytest.approx((-(np.pi**2 + 0.1 * 64 + 0.001 * 4), 0), abs=1e-6)
    assert s4q.Agent(env, horizon=20).learn(3).n_episodes == 3
    plane = gym.Env()
    plane.action_space = spaces.Box(-1, 1, (2,))
    grid = DiscreteActions(plane, [3, 1])
    assert grid.actions.tolist() == [[-1.0, 0.0], [0.0, 0.0], [1.0, 0.0]]


@pytest.mark.parametrize(
    ("space", "values", "message"),
    [
        (spaces.Discrete(3), 2, "must have a Box of actions"),
        (spaces.Box(-np.inf, 1, (1,)), 2, "number 0 of the actions needs finite low"),
        (spaces.Box(-1, 1, (2,)), [2], "one for each of 2 numbers"),
        (spaces.Box(-1, 1, (2,)), 0, "values .*got 0"),
        (spaces.Box(-1, 1, (9,)), 3, "more than 1000"),
    ],
)
def test_discrete_actions_refuse(space: Any, values: Any, message: str) -> None:
    env = gym.Env()
    env.action_space = space
    with pytest.raises(ValueError, match=message):
        DiscreteActions(env, values)


class Blink(gym.Env):
    """Two steps, then it is over."""

    observation_space = spaces.Discrete(2)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.at = 0
        return 0, {}

    def step(self, action: Any) -> Any:
        self.at += 1
        return self.at - 1, 0.0, self.at == 2, False, {}


def test_a_horizon_of_which_a_tenth_would_do_is_noted() -> None:
    def explained(horizon: int, episodes: int) -> str:
        agent = s4q.Agent(Blink(), horizon=horizon, reward_range=(0, 1))
        return agent.learn(episodes).explain() if episodes else agent.explain()

    assert "a horizon of 3 would do" in explained(30, 20)
    assert "would do" not in explained(15, 20)
    assert "would do" not in explained(30, 0)  # nothing is known yet


def test_a_time_limit_below_the_horizon_is_taken_where_steps_are_alike() -> None:
    agent = s4q.Agent(gym.make("FrozenLake-v1", max_episode_steps=8), horizon=20).learn(50)
    assert agent.last_run is not None
    assert 0 < agent.last_run.truncated_episodes < 50
    with pytest.raises(ValueError, match="declare stationary=True if all steps are alike"):
        s4q.Agent(gym.make("FrozenLake-v1", max_episode_steps=8), horizon=20, stationary=False)


def test_a_mixture_with_many_combinations_gets_order_1_before_it_is_refused() -> None:
    fine = gym.spaces.Dict({"at": gym.spaces.Box(0, 1, (6,)), "key": gym.spaces.Discrete(60)})
    coarse = gym.spaces.Dict({"at": gym.spaces.Box(0, 1, (6,)), "key": gym.spaces.Discrete(70)})
    refused = gym.spaces.Dict({"at": gym.spaces.Box(0, 1, (6,)), "key": gym.spaces.Discrete(300)})
    assert default_features(fine, gym.spaces.Discrete(4)).block_dim == 73
    assert default_features(coarse, gym.spaces.Discrete(4)).block_dim == 22
    with pytest.raises(ValueError, match="22 features of its 6 real numbers: more than 20000"):
        default_features(refused, gym.spaces.Discrete(4))
