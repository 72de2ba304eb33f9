"""Agent: a Gymnasium environment in, a policy out."""

from functools import cache
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorWrapper
from gymnasium.wrappers import TimeLimit, TransformObservation, TransformReward
from gymnasium.wrappers.vector import ClipReward as ClipVectorReward
from gymnasium.wrappers.vector import RecordEpisodeStatistics as VectorStatistics

import s4q
from s4q.features import Fourier, OneHot

HORIZON = 12


def lake(**options: Any) -> gym.Env:
    return gym.make("FrozenLake-v1", **options)


def small_agent(seed: Any = 0, env: Any = None, **options: Any) -> s4q.Agent:
    return s4q.Agent(lake() if env is None else env, horizon=HORIZON, reward_range=(0, 1), seed=seed, **options)


def bits(agent: s4q.Agent) -> bytes:
    return agent.learner.q.theta.tobytes() + agent.learner.memory.nbytes.to_bytes(8, "big")


@cache
def after_60_episodes(seed: int) -> bytes:
    return bits(small_agent(seed).learn(60))


def test_it_learns_frozen_lake() -> None:
    mdp = s4q.problems.from_gymnasium("FrozenLake-v1", 20)
    agent = s4q.Agent(lake(), horizon=20, reward_range=(0, 1), seed=0).learn(episodes=1_000)
    assert agent.n_episodes == 1_000
    assert agent.last_run is not None
    assert agent.last_run.episodes == 1_000
    assert agent.last_run.steps > 1_000
    value = mdp.value(agent.learner.policy)
    assert value > 0.9 * mdp.v_star
    found = agent.evaluate(500)
    assert found.low - 0.02 < value < found.high + 0.02
    assert found.n_episodes == 500
    assert agent.evaluate(60) == agent.evaluate(60)  # the same episodes every time
    assert str(found).startswith("mean return 0.")


def test_evaluating_changes_nothing() -> None:
    one, other = small_agent().learn(80), small_agent().learn(80)
    one.evaluate(20)
    assert bits(one.learn(80)) == bits(other.learn(80))


def test_negative_rewards_are_reported_in_the_users_units() -> None:
    """CliffWalking is deterministic, so the evaluation must be exactly the value of the policy."""
    mdp = s4q.problems.from_gymnasium("CliffWalking-v1", 20)
    agent = s4q.Agent(gym.make("CliffWalking-v1"), horizon=20, seed=3).learn(60)  # the range is in the env's table
    assert (agent.learner.spec.reward_min, agent.learner.spec.reward_max) == (-100.0, 0.0)
    found = agent.evaluate(3)
    assert found.mean == pytest.approx(mdp.value(agent.policy.q), abs=1e-9)
    assert -20 * 100 <= found.low <= found.mean <= found.high <= 0


class Diary(gym.Wrapper):
    """Writes down returns and lengths."""

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        self.episodes: list[list[float]] = []

    def reset(self, **options: Any) -> Any:
        self.episodes.append([])
        return self.env.reset(**options)

    def step(self, action: Any) -> Any:
        result = self.env.step(action)
        self.episodes[-1].append(float(result[1]))
        return result


def test_returns_and_lengths_along_the_way(tmp_path: Path) -> None:
    """What the run says is what the environment saw, phase by phase, also when it was interrupted."""
    env = Diary(gym.make("CliffWalking-v1"))
    agent = s4q.Agent(env, horizon=9, reward_range=(-100, 0)).learn(40, callback=s4q.JsonLines(tmp_path / "log.jsonl"))
    run = agent.last_run
    assert run is not None
    assert run.replay_episodes == 0  # all in the cache, so all were played in main loops
    assert run.mean_return == pytest.approx(np.mean([sum(rewards) for rewards in env.episodes]))
    assert run.mean_length == pytest.approx(np.mean([len(rewards) for rewards in env.episodes]))
    begin = 0
    for point in run.curve:
        phase = env.episodes[begin : point.episodes]
        begin = point.episodes
        assert point.mean_return == (pytest.approx(np.mean([sum(one) for one in phase])) if phase else None)
        assert point.mean_length == (pytest.approx(np.mean([len(one) for one in phase])) if phase else None)
    logged = [line["mean_return"] for line in s4q.JsonLines(tmp_path / "log.jsonl").lines() if line["event"] == "phase"]
    assert logged == [point.mean_return for point in run.curve[:-1]]
    path = tmp_path / "half.s4q"
    halves = s4q.Agent(env, horizon=9, reward_range=(-100, 0)).learn(
        40, checkpoint=path, stop=lambda r: r.episodes >= 17
    )
    assert halves.n_episodes < 40
    resumed = s4q.Agent.load(path, env).resume().last_run
    assert resumed is not None
    assert [point.mean_return for point in resumed.curve] == [point.mean_return for point in run.curve]
    assert resumed.mean_return == run.mean_return


def test_settings_of_the_learner() -> None:
    agent = small_agent(delta=0.1, memory="sketch", memory_bytes=10**5, trigger=2.0)
    assert (agent.learner.constants.delta, agent.learner.memory.max_bytes) == (0.1, 10**5)
    assert isinstance(small_agent(memory="policies").learner.memory, s4q.PolicyReplayMemory)
    with pytest.raises(TypeError, match="cache_episodes"):
        small_agent(cache_episodes=3)
    with pytest.raises(ValueError, match="proves nothing"):
        agent.learn(5, stop_when_gap=0.1)
    with pytest.raises(ValueError, match="stop_when_gap is 100, but no gap can exceed"):
        small_agent(preset="realisable").learn(600, stop_when_gap=100.0)


@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize("n_envs", [1, 3])
def test_vector_envs_give_the_bits_of_one_env(mode: AutoresetMode, n_envs: int) -> None:
    vector = SyncVectorEnv([lake] * n_envs, autoreset_mode=mode)
    assert bits(small_agent(env=vector).learn(60)) == after_60_episodes(0)


def test_seeds() -> None:
    assert bits(small_agent(0).learn(60)) == after_60_episodes(0)
    assert bits(small_agent(1).learn(60)) != after_60_episodes(0)


def test_a_seed_that_is_drawn_is_kept(tmp_path: Path) -> None:
    """It repeats the run, it is written to the file, and the next one is another."""
    drawn = small_agent(seed=None).learn(100)
    again = small_agent(seed=drawn.seed).learn(100)
    assert bits(drawn) == bits(again)
    assert drawn.evaluate(20) == again.evaluate(20)
    drawn.save(tmp_path / "lake.s4q")
    assert s4q.Agent.load(tmp_path / "lake.s4q", env=lake()).seed == drawn.seed
    assert small_agent(seed=None).seed != drawn.seed
    assert small_agent().seed == s4q.Agent(lake(), horizon=3).seed == 0
    for seed in (-1, 1.5, True):
        with pytest.raises(ValueError, match="seed is the seed of the episodes, so it must be a whole number"):
            small_agent(seed=seed)


def test_predict_single_and_batched_agree() -> None:
    agent = small_agent().learn(150)
    states = np.arange(16)
    for h in range(HORIZON):
        actions, after = agent.predict(states, np.full(16, h), np.zeros(16, bool))
        assert actions.shape == (16,)
        assert after.tolist() == [h + 1] * 16
        want = [agent.policy.q.greedy(h, agent.features(h, np.array([s])))[0] for s in states]
        assert actions.tolist() == want
        one, then = agent.predict(int(states[5]), state=np.array(h))
        assert (int(one), int(then), np.shape(one), np.shape(then)) == (want[5], h + 1, (), ())


def test_predict_carries_the_step_of_each_episode() -> None:
    agent = small_agent().learn(30)
    _, state = agent.predict(np.array([0, 0, 0]))
    _, state = agent.predict(np.array([1, 1, 1]), state, np.array([False, True, False]))
    assert state.tolist() == [2, 1, 2]
    _, state = agent.predict(0, state=HORIZON - 1)
    action, state = agent.predict(0, state=state)  # beyond the horizon it plans anew
    assert action == agent.predict(0)[0]
    assert int(state) == HORIZON + 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.zeros((2, 2)),), "observation must have the shape"),
        ((0, {"step": 1}), "state must hold the step of each episode.*got {'step': 1}"),
        ((0, -1), "state must hold .* got -1"),
        ((0, 1.5), "state must hold .* got 1.5"),
        (([0, 1], 3), "state must hold .* one for each of 2 observations; got 3"),
        (([0, 1], [3, 3], [True]), r"episode_start must hold .* one for each of 2 observations; got \[True\]"),
    ],
)
def test_predict_refuses_what_it_cannot_read(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        small_agent().predict(*arguments)


def test_predict_takes_starts_as_other_libraries_write_them() -> None:
    agent = small_agent()
    for starts in ([True, False], np.array([1.0, 0.0]), np.array([[True], [False]])):
        assert agent.predict([1, 2], [5, 6], starts)[1].tolist() == [1, 7]
    assert agent.predict([], None, [])[0].tolist() == []


def test_predict_in_the_loop_of_an_evaluator() -> None:
    """The calls that Stable-Baselines3's evaluate_policy makes: batches, states handed back, starts after each end."""
    mdp = s4q.problems.from_gymnasium("FrozenLake-v1", HORIZON)
    agent = small_agent().learn(300)
    envs = SyncVectorEnv([lambda: lake(max_episode_steps=HORIZON)] * 4, autoreset_mode=AutoresetMode.SAME_STEP)
    observations, _ = envs.reset(seed=7)
    states, starts = None, np.ones(4, dtype=bool)
    returns: list[float] = []
    current = np.zeros(4)
    while len(returns) < 400:
        actions, states = agent.predict(observations, state=states, episode_start=starts, deterministic=True)
        observations, rewards, terminated, truncated, _ = envs.step(actions)
        current += rewards
        starts = terminated | truncated
        returns += current[starts].tolist()
        current[starts] = 0.0
    assert np.mean(returns) == pytest.approx(mdp.value(agent.learner.policy), abs=4 * np.std(returns) / np.sqrt(400))


def test_save_load_and_go_on(tmp_path: Path) -> None:
    agent = small_agent(seed=5).learn(100)
    agent.save(tmp_path / "lake.s4q")
    again = s4q.Agent.load(tmp_path / "lake.s4q", env=lake())
    assert bits(again) == bits(agent)
    assert isinstance(again.features, OneHot)
    assert again.n_episodes == 100
    assert bits(again.learn(100)) == bits(agent.learn(100))
    with pytest.raises(ValueError, match="resume finishes"):
        again.resume()


class Fails(gym.Wrapper):
    """Breaks down after so many steps."""

    def __init__(self, env: gym.Env, after: int) -> None:
        super().__init__(env)
        self.left = after

    def step(self, action: Any) -> Any:
        self.left -= 1
        if self.left < 0:
            raise RuntimeError("out of oil")
        return super().step(action)


def test_an_env_that_fails_loses_nothing(tmp_path: Path) -> None:
    """The checkpoint holds the state before the failing shard; resumed, the bits are those of never having failed."""
    path = tmp_path / "lake.s4q"
    broken = small_agent(env=Fails(lake(), after=1_200))
    with pytest.raises(ValueError, match=r"FrozenLake-v1: episode \d+ of request \d+.*out of oil"):
        broken.learn(300, checkpoint=path)
    assert 0 < broken.n_episodes < 300
    broken.save(tmp_path / "also.s4q")
    again = s4q.Agent.load(path, env=lake(), allow_other=True)  # without the wrapper that failed
    assert again.n_episodes == broken.n_episodes
    again.resume(checkpoint=path)
    whole = small_agent().learn(300)
    assert bits(again) == bits(whole)
    assert again.last_run is not None
    assert whole.last_run is not None
    assert (again.last_run.steps, again.last_run.phases) == (whole.last_run.steps, whole.last_run.phases)


def own(h: int, states: np.ndarray) -> np.ndarray:
    del h
    return np.eye(16)[np.asarray(states)][:, None, :] * np.ones((1, 4, 1))


def test_features_of_your_own_are_passed_again(tmp_path: Path) -> None:
    mine = s4q.features.FunctionFeatures(own, n_actions=4, block_dim=16, stationary=True)
    agent = small_agent(features=mine).learn(50)
    agent.save(tmp_path / "mine.s4q")
    with pytest.raises(ValueError, match="pass the map again: features="):
        s4q.Agent.load(tmp_path / "mine.s4q", env=lake())
    assert bits(s4q.Agent.load(tmp_path / "mine.s4q", lake(), mine)) == bits(agent)


def test_load_refuses_what_is_no_agent(tmp_path: Path) -> None:
    s4q.save(tmp_path / "bare.s4q", s4q.S4Q(s4q.problems.chain()), seed=0)
    with pytest.raises(ValueError, match="holds a S4Q without the environment"):
        s4q.Agent.load(tmp_path / "bare.s4q", env=lake())
    small_agent().save(tmp_path / "lake.s4q")
    with pytest.raises(ValueError, match="actions"):
        s4q.Agent.load(tmp_path / "lake.s4q", env=gym.make("Taxi-v4"))
    with pytest.raises(ValueError, match=r"features do not fit .*Discrete\(64\).*at observation 63; make them"):
        s4q.Agent.load(tmp_path / "lake.s4q", env=lake(map_name="8x8"))


def test_certificates() -> None:
    with pytest.raises(ValueError, match='"practical" proves nothing'):
        small_agent().certify()
    mine = s4q.features.FunctionFeatures(own, n_actions=4, block_dim=16, stationary=True)
    with pytest.raises(ValueError, match="well_specified=True"):
        small_agent(features=mine, preset="realisable").certify()
    small_agent(features=mine, preset="realisable", well_specified=True).certify()
    agent = small_agent(preset="realisable").learn(100)
    found = agent.certify()
    assert found.vacuous
    assert found.delta == 0.05


def test_defaults_come_from_the_environment() -> None:
    agent = s4q.Agent(lake())
    assert (agent.horizon, agent.learner.spec.stationary, agent.learner.spec.well_specified) == (100, True, True)
    for env in (TimeLimit(Endless(), 7), TimeLimit(lake(), 7), SyncVectorEnv([lambda: TimeLimit(Endless(), 7)] * 2)):
        assert s4q.Agent(env, reward_range=(0, 1)).horizon == 7
    assert s4q.Agent(gym.make("MountainCar-v0"), reward_range=(-1, 0)).features.block_dim == 16
    assert s4q.Agent(lake(), stationary=False).learner.constants.pool is False


class Endless(gym.Env):
    observation_space = gym.spaces.Discrete(2)
    action_space = gym.spaces.Discrete(2)


class Continuous(Endless):
    action_space = gym.spaces.Box(-1, 1)


@pytest.mark.parametrize(
    ("env", "options", "message"),
    [
        (Endless(), {"reward_range": (0, 1)}, "horizon must be given, since Endless has no time limit"),
        (Endless(), {"horizon": 3}, "reward_range must be given, since Endless does not say"),
        (Continuous(), {"horizon": 3, "reward_range": (0, 1)}, "action_space must be finite .*DiscreteActions"),
        ("NoLake-v1", {}, "env must be a Gymnasium environment, or the id of one; 'NoLake-v1' cannot be made"),
        (lake(), {"horizon": 200, "stationary": False}, "truncated after 100 steps, but the horizon is 200"),
        (lake(), {"horizon": 0}, "horizon .*got 0"),
        (lake(), {"reward_range": (1, 0)}, r"reward_range must be \(lowest, highest\).*got \(1, 0\)"),
        (lake(), {"reward_range": 1}, r"reward_range must be \(lowest, highest\).*got 1"),
        (lake(), {"reward_range": (0, 1, 2)}, r"reward_range must be \(lowest, highest\)"),
        (lake(), {"reward_range": (1, 2)}, r"at most 0 when episodes may end early.*pass reward_range=\(0, 2\)"),
        (lake(), {"features": Fourier(low=[0], high=[1], order=1)}, r"wrap it: features.PerAction\(Fourier"),
        (lake(), {"features": OneHot}, "features must be a feature map.*OneHot lacks"),
        (lake(), {"features": OneHot(3, 4)}, r"FrozenLake-v1: the features do not fit .*Discrete\(16\)"),
    ],
)
def test_bad_input(env: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        s4q.Agent(env, **options)


class FromOne(gym.Env):
    """Actions 5 and 6; 6 pays."""

    observation_space = gym.spaces.Discrete(1)
    action_space = gym.spaces.Discrete(2, start=5)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        return 0, {}

    def step(self, action: Any) -> Any:
        assert action in (5, 6)
        return 0, float(action == 6), False, False, {}


def test_actions_are_the_environments_own_numbers() -> None:
    agent = s4q.Agent(FromOne(), horizon=3, reward_range=(0, 1)).learn(50)
    assert agent.predict(0)[0] == 6
    assert agent.evaluate(2).mean == 3.0


def test_blackjack_as_the_message_says() -> None:
    env = TransformObservation(gym.make("Blackjack-v1"), np.array, gym.spaces.MultiDiscrete([32, 11, 2]))
    agent = s4q.Agent(env, horizon=10, reward_range=(-1, 1)).learn(30)
    assert agent.predict((20, 10, 0))[0] in (0, 1)
    assert agent.predict([(20, 10, 0), (4, 10, 1)])[0].shape == (2,)


def test_resume_can_be_stopped_early(tmp_path: Path) -> None:
    path = tmp_path / "lake.s4q"
    small_agent().learn(120, checkpoint=path, stop=lambda run: run.episodes >= 30)
    again = s4q.Agent.load(path, env=lake()).resume(checkpoint=path, stop=lambda run: run.episodes >= 60)
    assert 60 <= again.n_episodes < 120
    assert bits(s4q.Agent.load(path, env=lake()).resume()) == bits(small_agent().learn(120))


def kinder(env: gym.Env) -> gym.Env:
    return TransformReward(env, lambda reward: max(reward, -1))


def test_a_reward_wrapper_voids_the_range_of_the_table() -> None:
    """With the table's [-100, 0] this agent would learn nothing; the range must be told, and then it learns."""
    env = kinder(gym.make("CliffWalking-v1"))
    with pytest.raises(ValueError, match=r"since TransformReward may change the rewards .*\[-100, -1\]; pass reward_"):
        s4q.Agent(env, horizon=20)
    agent = s4q.Agent(env, horizon=20, reward_range=(-1, 0)).learn(150)
    assert agent.evaluate(1).mean == -13.0
    watched = gym.wrappers.RecordEpisodeStatistics(gym.make("CliffWalking-v1"))
    assert s4q.Agent(watched, horizon=20).learner.spec.reward_min == -100.0


@pytest.mark.parametrize("vector", [SyncVectorEnv, AsyncVectorEnv])
def test_vectors_say_what_their_envs_say(vector: Any) -> None:
    """Range and horizon are found in processes and under wrappers of the vector as they are in a plain vector."""
    plain = vector([lake, lake])
    try:
        for env in (plain, VectorStatistics(plain), VectorWrapper(plain)):
            spec = s4q.Agent(env).learner.spec
            assert (spec.reward_min, spec.reward_max, spec.horizon) == (0.0, 1.0, 100)
        with pytest.raises(ValueError, match="since ClipReward may change the rewards"):
            s4q.Agent(ClipVectorReward(plain, 0, 1))
        single = bits(s4q.Agent(lake(), horizon=HORIZON).learn(60))
        assert bits(s4q.Agent(VectorStatistics(plain), horizon=HORIZON).learn(60)) == single
    finally:
        plain.close()
    mixed = vector([lake, lambda: kinder(lake())])
    try:
        with pytest.raises(ValueError, match="since TransformReward may change the rewards"):
            s4q.Agent(mixed)
    finally:
        mixed.close()


def test_a_loop_that_drops_the_state_is_warned_once() -> None:
    agent, says = small_agent(), r"20 times in a row without `state`.*agent\.predict\(observation, state\)"

    def careless() -> None:
        for _ in range(60):
            agent.predict(0)

    with pytest.warns(UserWarning, match=says) as seen:
        careless()
    assert len(seen) == 1
    state = None
    for _ in range(60):  # a warning is an error here
        _, state = agent.predict(0, state)
