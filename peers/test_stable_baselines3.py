"""Stable-Baselines3's own `evaluate_policy` scores an s4q Agent, unchanged, at the exact value of its policy."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.wrappers import TimeLimit
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv

import s4q

HORIZON = 12
EPISODES = 1_500
LIMIT = {"max_episode_steps": HORIZON}  # an evaluation that went on would score another policy


def lake() -> gym.Env:
    return gym.make("FrozenLake-v1", **LIMIT)


def cliff() -> gym.Env:
    return gym.make("CliffWalking-v1", max_episode_steps=20)


@pytest.fixture(scope="module")
def agent() -> s4q.Agent:
    return s4q.Agent(lake(), seed=0).learn(1_000)


@pytest.fixture(scope="module")
def value(agent: s4q.Agent) -> float:
    """Of the agent's policy, by dynamic programming on the table of the environment."""
    return s4q.problems.from_gymnasium("FrozenLake-v1", HORIZON).value(agent.learner.best)


def single() -> gym.Env:
    """Seeded once; later resets go on drawing from there."""
    env = Monitor(lake())
    env.reset(seed=0)
    return env


def several(n: int) -> DummyVecEnv:
    envs = DummyVecEnv([lambda: Monitor(lake())] * n)
    envs.seed(0)
    return envs


ENVIRONMENTS = {
    "single": single,
    "one in a vector": lambda: several(1),
    "several": lambda: several(5),
    "made by make_vec_env": lambda: make_vec_env("FrozenLake-v1", n_envs=4, seed=0, env_kwargs=LIMIT),
    "processes": lambda: make_vec_env("FrozenLake-v1", 2, seed=0, env_kwargs=LIMIT, vec_env_cls=SubprocVecEnv),
}


@pytest.mark.parametrize("kind", ENVIRONMENTS)
def test_evaluate_policy_finds_the_exact_value(agent: s4q.Agent, value: float, kind: str) -> None:
    env: Any = ENVIRONMENTS[kind]()
    returns, lengths = evaluate_policy(agent, env, n_eval_episodes=EPISODES, return_episode_rewards=True)
    env.close()
    assert len(returns) == EPISODES
    assert max(lengths) <= HORIZON
    assert 0.05 < value < 0.95
    assert abs(np.mean(returns) - value) < 4 * np.sqrt(value * (1 - value) / EPISODES)


class Clock(gym.Env):
    """Pays 1 for the right action, which depends on the step alone; ends by chance."""

    observation_space = gym.spaces.Discrete(1)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.step_number = 0
        return 0, {}

    def step(self, action: Any) -> Any:
        right = int(action) == (self.step_number in (1, 2))
        self.step_number += 1
        return 0, float(right), bool(self.np_random.random() < 0.2), False, {}


class Odd:
    """Planted: an agent that leaves out one of the arguments of `predict`."""

    def __init__(self, agent: s4q.Agent, left_out: str) -> None:
        self.agent, self.left_out = agent, left_out

    def predict(self, observation: Any, **given: Any) -> Any:
        return self.agent.predict(observation, **{**given, self.left_out: None})


def test_the_step_is_carried_and_starts_are_heeded() -> None:
    agent = s4q.Agent(Clock(), horizon=5, reward_range=(0, 1), stationary=False, seed=0).learn(300)
    envs = make_vec_env(lambda: TimeLimit(Clock(), 5), n_envs=3, seed=0)
    returns, lengths = evaluate_policy(agent, envs, n_eval_episodes=60, return_episode_rewards=True)
    assert returns == lengths  # right at every step
    assert len(set(lengths)) == 5
    for left_out in ("state", "episode_start"):
        returns, lengths = evaluate_policy(Odd(agent, left_out), envs, 60, return_episode_rewards=True)
        assert returns != lengths


def test_negative_rewards_are_the_users_own() -> None:
    """CliffWalking is deterministic: the score is the value to the last digit."""
    agent = s4q.Agent(cliff(), seed=3).learn(200)
    exact = s4q.problems.from_gymnasium("CliffWalking-v1", 20).value(agent.learner.best)
    mean, spread = evaluate_policy(agent, make_vec_env(cliff, n_envs=2), n_eval_episodes=4)
    assert mean == pytest.approx(exact, abs=1e-9)
    assert spread == 0.0


def test_evaluate_policy_agrees_with_evaluate(agent: s4q.Agent) -> None:
    mean, _ = evaluate_policy(agent, make_vec_env(lake, n_envs=4, seed=1), n_eval_episodes=EPISODES)
    ours = agent.evaluate(EPISODES)
    assert abs(mean - ours.mean) < 2 * (ours.high - ours.low)


def test_boxes_too() -> None:
    """A float observation space, and actions that the environment takes as they come."""
    features = s4q.features.PerAction(
        s4q.features.Fourier(low=[-4.8, -3, -0.42, -3], high=[4.8, 3, 0.42, 3], order=1, clip=True), n_actions=2
    )

    def pole() -> gym.Env:
        return gym.make("CartPole-v1", max_episode_steps=20)

    agent = s4q.Agent(pole(), features, reward_range=(0, 1), seed=0).learn(30)
    returns, lengths = evaluate_policy(agent, make_vec_env(pole, n_envs=3, seed=1), 30, return_episode_rewards=True)
    assert returns == lengths  # 1 a step
    ours = agent.evaluate(200)
    assert abs(np.mean(returns) - ours.mean) < 5 * max(np.std(returns), 0.5) / np.sqrt(30)
