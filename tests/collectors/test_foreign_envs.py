"""Environments of other libraries and pictures: the message says what they are and what to do."""

import sys
from types import ModuleType
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import s4q


def class_of(module: str, name: str, **fields: Any) -> Any:
    """An object of a class that another package would define."""
    return type(name, (), {"__module__": module, **fields})()


PETTING_ZOO = class_of(
    "pettingzoo.utils.env",
    "TicTacToe",
    possible_agents=["player_1"],
    reset=lambda self: None,
    step=lambda self, action: None,
    action_space=lambda self, agent: spaces.Discrete(9),
    observation_space=lambda self, agent: spaces.Discrete(9),
)
OLD_GYM = class_of(
    "gym.envs.cartpole",
    "CartPoleEnv",
    reset=lambda self: 0,
    step=lambda self, action: (0, 0.0, False, {}),
    action_space=class_of("gym.spaces", "Discrete"),
    observation_space=class_of("gym.spaces", "Box"),
)
OLD_SPACES = class_of(
    "my_code",
    "Mine",
    reset=lambda self: 0,
    step=lambda self, action: (0, 0.0, False, {}),
    action_space=class_of("gym.spaces.discrete", "Discrete"),
    observation_space=spaces.Discrete(3),
)
DM_ENV = class_of("dm_control.rl", "Environment", action_spec=lambda self: 0, observation_spec=lambda self: 0)


@pytest.mark.parametrize(
    ("env", "says"),
    [
        (
            PETTING_ZOO,
            "TicTacToe is a PettingZoo environment, with several agents, and an Agent learns for one; write a",
        ),
        (OLD_GYM, r'CartPoleEnv is an environment of the old package gym; .*gymnasium.make\("GymV26Environment-v0"'),
        (OLD_SPACES, r"Mine is an environment with spaces of the old package gym; make them with gymnasium\.spaces"),
        (DM_ENV, r"Environment is a dm_env environment; .*shimmy\.DmControlCompatibilityV0\(env\)"),
    ],
)
def test_other_libraries(env: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        s4q.Agent(env, reward_range=(0, 1), horizon=5)
    features = s4q.features.OneHot(9, 9)
    with pytest.raises(ValueError, match=says):
        s4q.collectors.GymCollector(env, features, s4q.Spec.of(features, horizon=5, reward_range=(0, 1)))


class Pictures(gym.Env):
    observation_space: Any = spaces.Box(0, 255, (84, 84), np.uint8)
    action_space = spaces.Discrete(2)


class Floats(Pictures):
    observation_space = spaces.Box(0, 1, (3, 16, 16))


class Inside(Pictures):
    observation_space = spaces.Dict(speed=spaces.Box(0, 1), camera=spaces.Box(0, 255, (8, 8, 3), np.uint8))


@pytest.mark.parametrize(("kind", "shape"), [(Pictures, r"\(84, 84\)"), (Floats, "3, 16, 16"), (Inside, "8, 8, 3")])
def test_pictures(kind: Any, shape: str) -> None:
    with pytest.raises(ValueError, match=rf"{kind.__name__}: the observations are pictures .*{shape}.*TransformObserv"):
        s4q.Agent(kind(), reward_range=(0, 1), horizon=5)


def test_a_small_table_of_numbers_is_no_picture() -> None:
    class Small(Pictures):
        observation_space = spaces.Box(0, 1, (2, 2))

    assert s4q.Agent(Small(), reward_range=(0, 1), horizon=5).features.n_actions == 2


def test_minigrid_is_told_which_wrapper_works(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a grid of MiniGrid's shape; the wrapper of the message is tried out on it."""
    module = ModuleType("minigrid.envs.empty")
    monkeypatch.setitem(sys.modules, "minigrid.envs.empty", module)

    class Grid(gym.Env):
        """Turn left, turn right, go on, in a corridor of three places; the last one pays."""

        observation_space = spaces.Dict(
            direction=spaces.Discrete(4), image=spaces.Box(0, 255, (7, 7, 3), np.uint8), mission=spaces.Text(9)
        )
        action_space = spaces.Discrete(3)
        width, height = 5, 3

        def seen(self) -> dict[str, Any]:
            return {"direction": self.agent_dir, "image": np.zeros((7, 7, 3), np.uint8), "mission": "go"}

        def reset(self, *, seed: int | None = None, options: dict | None = None) -> Any:
            super().reset(seed=seed)
            self.agent_pos, self.agent_dir = (1, 1), 1
            return self.seen(), {}

        def step(self, action: int) -> Any:
            if action < 2:
                self.agent_dir = (self.agent_dir + (1, -1)[action]) % 4
            elif self.agent_dir == 0:
                self.agent_pos = (self.agent_pos[0] + 1, 1)
            won = self.agent_pos[0] == 3
            return self.seen(), float(won), won, False, {}

    Grid.__module__ = "minigrid.envs.empty"
    env = Grid()
    with pytest.raises(ValueError, match=r"MiniGrid shows pictures .* number the places instead") as caught:
        s4q.Agent(env, reward_range=(0, 1), horizon=5)
    code = str(caught.value).split("grid = env.unwrapped; ")[1].split("; or pass")[0]
    names = {"gymnasium": gym, "env": env, "grid": env.unwrapped}
    agent = s4q.Agent(eval(code, names), reward_range=(0, 1), horizon=5).learn(100)
    assert agent.evaluate(5).mean == 1.0
