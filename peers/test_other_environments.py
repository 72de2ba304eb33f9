"""check_env on environments of three other packages: all checks pass with what the refusals ask for."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import s4q

pytestmark = pytest.mark.filterwarnings("ignore")  # of these packages, about themselves


def minigrid() -> tuple[Any, dict[str, Any]]:
    """The place and the direction of the agent; the raw observation is an image with a text."""
    pytest.importorskip("minigrid")
    env = gym.make("MiniGrid-Empty-5x5-v0")
    space = gym.spaces.MultiDiscrete([5, 5, 4])

    def place(_: Any) -> np.ndarray:
        inside = env.unwrapped
        return np.array([*inside.agent_pos, inside.agent_dir], dtype=np.int64)

    return gym.wrappers.TransformObservation(env, place, space), {"horizon": 40, "reward_range": (0, 1)}


def highway() -> tuple[Any, dict[str, Any]]:
    """25 numbers of five cars: more than the default features take, so the features are named."""
    highway_env = pytest.importorskip("highway_env")
    highway_env.register_highway_envs() if hasattr(highway_env, "register_highway_envs") else None
    env = gym.make("highway-fast-v0", config={"vehicles_count": 5, "duration": 10})
    waves = s4q.features.RandomFourier(low=-np.ones(25), high=np.ones(25), dim=33, width=2.0, clip=True)
    options = {"horizon": 10, "reward_range": (0, 1), "features": s4q.features.PerAction(waves, 5)}
    return env, options


def popgym() -> tuple[Any, dict[str, Any]]:
    """A card is shown, and the one shown some steps before must be named."""
    made = pytest.importorskip("popgym.envs.repeat_first")
    return made.RepeatFirstEasy(), {"horizon": 60, "reward_range": (-1, 1)}


PACKAGES = {"minigrid": minigrid, "highway-env": highway, "popgym": popgym}


@pytest.mark.parametrize("name", PACKAGES)
def test_all_checks_pass(name: str) -> None:
    env, options = PACKAGES[name]()
    report = s4q.check_env(env, **options, episodes=2)
    assert report.ok, str(report)


def test_an_agent_learns_minigrid() -> None:
    """The goal pays up to 1, and the sooner the more; an agent that has not found it gets 0."""
    env, options = minigrid()
    agent = s4q.Agent(env, **options).learn(300)
    assert agent.evaluate(3).mean > 0.8


@pytest.mark.parametrize(
    ("make", "words"), [("MiniGrid-Empty-5x5-v0", "no fixed number of numbers"), (None, "25 real")]
)
def test_what_has_no_default_is_refused_with_a_cure(make: str | None, words: str) -> None:
    pytest.importorskip("minigrid")
    env = highway()[0] if make is None else gym.make(make)
    found = {failure.check: str(failure) for failure in s4q.check_env(env, horizon=5, reward_range=(0, 1)).failures}
    assert words in found["observations have features"]
