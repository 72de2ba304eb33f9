"""Which wrappers may change rewards or lengths: judged by playing them, not by their names."""

import importlib.util
from collections.abc import Callable
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces, wrappers
from gymnasium.envs.toy_text import CliffWalkingEnv
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorWrapper
from gymnasium.wrappers import vector as vector_wrappers

from s4q.collectors.stepping.wrappers import single_envs, wrappers_that_may_change


class Line(gym.Env):
    """Pays 0, 1, 2, ... and ends after ten steps; the observations are two numbers."""

    metadata: ClassVar[dict] = {"render_modes": ["rgb_array"], "render_fps": 30}
    observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = spaces.Discrete(3)
    render_mode = "rgb_array"

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.t += 1
        return np.full(2, self.t / 20, np.float32), float(self.t - 1), self.t >= 10, False, {}

    def render(self) -> np.ndarray:
        return np.zeros((8, 8, 3), np.uint8)


WRAPPED: dict[str, Callable[[gym.Env], gym.Env]] = {
    "DelayObservation": lambda env: wrappers.DelayObservation(env, 2),
    "DtypeObservation": lambda env: wrappers.DtypeObservation(env, np.float32),
    "DiscretizeObservation": lambda env: wrappers.DiscretizeObservation(env, 4),
    "FlattenObservation": wrappers.FlattenObservation,
    "FrameStackObservation": lambda env: wrappers.FrameStackObservation(env, 2),
    "TransformObservation": lambda env: wrappers.TransformObservation(env, lambda seen: seen, None),
    "NormalizeObservation": wrappers.NormalizeObservation,
    "RescaleObservation": lambda env: wrappers.RescaleObservation(env, np.float32(0), np.float32(1)),
    "ReshapeObservation": lambda env: wrappers.ReshapeObservation(env, (1, 2)),
    "TimeAwareObservation": lambda env: wrappers.TimeAwareObservation(wrappers.TimeLimit(env, 50)),
    "MaxAndSkipObservation": lambda env: wrappers.MaxAndSkipObservation(env, 3),
    "TransformAction": lambda env: wrappers.TransformAction(env, lambda action: 0, env.action_space),
    "StickyAction": lambda env: wrappers.StickyAction(env, 0.5),
    "RepeatAction": lambda env: wrappers.RepeatAction(env, 3),
    "ClipReward": lambda env: wrappers.ClipReward(env, -3, 0.5),
    "TransformReward": lambda env: wrappers.TransformReward(env, lambda reward: 2 * reward),
    "NormalizeReward": wrappers.NormalizeReward,
    "TimeLimit": lambda env: wrappers.TimeLimit(env, 50),
    "Autoreset": wrappers.Autoreset,
    "PassiveEnvChecker": wrappers.PassiveEnvChecker,
    "OrderEnforcing": wrappers.OrderEnforcing,
    "RecordEpisodeStatistics": wrappers.RecordEpisodeStatistics,
    "RenderCollection": wrappers.RenderCollection,
}


def played(env: gym.Env) -> tuple[set[float], int]:
    """The rewards of an episode and its length."""
    env.reset(seed=0)
    rewards: list[float] = []
    while True:
        _, reward, terminated, truncated, _ = env.step(0)
        rewards.append(float(reward))
        if terminated or truncated:
            return set(rewards), len(rewards)


@pytest.mark.parametrize("name", WRAPPED)
def test_a_wrapper_is_harmless_exactly_if_an_episode_shows_it(name: str) -> None:
    """All rewards must be among those of the bare env, and the length the same; else the wrapper must be named."""
    env, bare = WRAPPED[name](Line()), played(Line())
    rewards, length = played(env)
    same = wrappers_that_may_change(env, "rewards") == (), wrappers_that_may_change(env, "lengths") == ()
    assert same == (rewards <= bare[0], length == bare[1])


def test_every_wrapper_of_gymnasium_was_looked_at() -> None:
    """A new one is not trusted before it stands above. Those left out are for pictures, boxes of actions and arrays."""
    pictures = {"AddRenderObservation", "AddWhiteNoise", "GrayscaleObservation", "HumanRendering", "ObstructView"}
    pictures |= {"AtariPreprocessing", "RecordVideo", "ResizeObservation"}
    others = {"vector", "FilterObservation", "ClipAction", "DiscretizeAction", "RescaleAction"}
    arrays = {"ArrayConversion", "JaxToNumpy", "JaxToTorch", "NumpyToTorch"}
    assert set(wrappers.__all__) <= set(WRAPPED) | pictures | others | arrays


class OwnObservation(gym.ObservationWrapper):
    def observation(self, observation: Any) -> Any:
        return observation


class OnlyRenders(gym.Wrapper):
    def render(self) -> Any:
        return None


class OwnStep(gym.Wrapper):
    def step(self, action: Any) -> Any:
        return super().step(action)


class Kinder(CliffWalkingEnv):
    """Its table says -100, and its step never does."""

    def step(self, action: Any) -> Any:
        observation, reward, *rest = super().step(action)
        return observation, max(reward, -1), *rest


def test_wrappers_of_ones_own() -> None:
    """One that leaves `step` to Gymnasium cannot change a reward; one that defines it may do anything."""
    assert wrappers_that_may_change(OnlyRenders(OwnObservation(Line())), "rewards") == ()
    for what in ("rewards", "lengths"):
        assert wrappers_that_may_change(OwnObservation(OwnStep(Line())), what) == ("OwnStep",)
    replaced = OwnObservation(Line())
    replaced.step = lambda action: Line().step(action)  # type: ignore[method-assign]
    assert wrappers_that_may_change(replaced, "rewards") == ("OwnObservation",)


def test_a_step_that_was_replaced() -> None:
    assert wrappers_that_may_change(gym.make("CliffWalking-v1"), "rewards") == ()
    assert wrappers_that_may_change(wrappers.TimeLimit(Kinder(), 9), "rewards") == ("Kinder",)
    env = gym.make("CliffWalking-v1")
    env.unwrapped.step = lambda action: (0, 5.0, False, False, {})  # type: ignore[method-assign]
    assert wrappers_that_may_change(env, "rewards") == ("CliffWalkingEnv",)


def kinder(env: gym.Env) -> gym.Env:
    return wrappers.TransformReward(env, lambda reward: max(reward, -1))


def cliff() -> gym.Env:
    return gym.make("CliffWalking-v1")


@pytest.mark.parametrize("vector", [SyncVectorEnv, AsyncVectorEnv])
def test_vectors(vector: Any) -> None:
    """Wrappers around the vector and around each of its sub-environments count, in processes too."""
    env = vector([cliff, lambda: kinder(cliff())])
    try:
        assert wrappers_that_may_change(env, "rewards") == ("TransformReward",)
        assert wrappers_that_may_change(env, "lengths") == ()
    finally:
        env.close()
    env = vector([cliff, cliff])
    try:
        assert wrappers_that_may_change(env, "rewards") == ()
        assert wrappers_that_may_change(vector_wrappers.RecordEpisodeStatistics(env), "rewards") == ()
        assert wrappers_that_may_change(VectorWrapper(env), "lengths") == ()
        clipped = vector_wrappers.ClipReward(env, -1, 0)
        assert wrappers_that_may_change(clipped, "rewards") == ("ClipReward",)
        assert wrappers_that_may_change(clipped, "lengths") == ()
        assert wrappers_that_may_change(vector_wrappers.NormalizeReward(env), "rewards") == ("NormalizeReward",)
        assert wrappers_that_may_change(vector_wrappers.DictInfoToList(env), "rewards") == ()
    finally:
        env.close()


def test_envs_made_to_be_looked_at_are_closed() -> None:
    closed: list[int] = []

    class Closes(gym.Wrapper):
        def close(self) -> None:
            closed.append(1)
            super().close()

    env = AsyncVectorEnv([lambda: Closes(cliff()), lambda: Closes(cliff())])
    try:
        closed.clear()
        with single_envs(env) as singles:
            assert len(singles) == 2
            assert not closed
        assert len(closed) == 2
    finally:
        env.close()


@pytest.mark.skipif(importlib.util.find_spec("array_api_compat") is None, reason="needs array_api_compat")
def test_conversions_of_arrays_hand_rewards_on() -> None:
    assert wrappers_that_may_change(wrappers.ArrayConversion(Line(), np, np), "rewards") == ()
