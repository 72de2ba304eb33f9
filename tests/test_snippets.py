"""The promised programs, as they stand: a Gymnasium environment in five lines, going on from a file, your own loop."""

import re
from itertools import count
from pathlib import Path

import gymnasium as gym
import pytest
from small_envs import System

import s4q


@pytest.mark.slow
def test_frozen_lake_saved_loaded_and_gone_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    env = gym.make("FrozenLake-v1")
    agent = s4q.Agent(env, horizon=50, reward_range=(0, 1), seed=0)
    agent.learn(episodes=20_000, progress_bar=True)
    print(agent.evaluate(1_000))
    agent.save("lake.s4q")

    best = s4q.problems.from_gymnasium("FrozenLake-v1", 50)
    found = re.match(r"mean return ([\d.]+), 95 % interval", capsys.readouterr().out)
    assert found is not None
    assert float(found[1]) > 0.9 * best.v_star
    assert best.value(agent.learner.policy) > 0.95 * best.v_star

    agent = s4q.Agent.load("lake.s4q", env=gym.make("FrozenLake-v1"))
    agent.learn(episodes=20_000)
    assert agent.n_episodes == 40_000
    assert best.value(agent.learner.policy) > 0.95 * best.v_star

    observation, state, episode_start = env.reset(seed=0)[0], None, None
    action, state = agent.predict(observation, state, episode_start)
    action, state = agent.predict(env.step(action)[0], state, episode_start)
    assert (state.tolist(), env.action_space.contains(action)) == (2, True)


@pytest.mark.slow
def test_your_own_loop() -> None:
    system = System(gym.make("FrozenLake-v1", is_slippery=False), count().__next__)
    features = s4q.features.OneHot(16, n_actions=4)
    spec = s4q.Spec.of(features, horizon=20, reward_range=(0, 1), well_specified=True)
    stream = s4q.Stream(s4q.S4Q(spec), features, seed=0)
    for _ in range(1_000):
        observation, over = system.start(), False
        while not over:
            reward, observation, ended = system.apply(stream.act(observation))
            over = stream.observe(reward, observation, terminated=ended)
    assert stream.n_episodes == 1_000
    best = s4q.problems.from_gymnasium(system.env, 20)
    assert best.value(stream.learner.policy) == best.v_star == 1.0
