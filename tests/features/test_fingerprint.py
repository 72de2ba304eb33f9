"""Fingerprints of maps on large whole numbers: a file holds floats, so numbers that no float holds are left out."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import s4q
from s4q.features import FunctionFeatures
from s4q.features.fingerprint import Fingerprint


class LargeNumbers(gym.Env):
    """Observations are whole numbers of a space that allows far larger ones."""

    def __init__(self, dtype: Any = np.int64, high: int = 2**60) -> None:
        self.observation_space = spaces.Box(0, high, (2,), dtype)
        self.action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        return np.array([1, 2], dtype=self.observation_space.dtype), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        return np.array([3, int(action)], dtype=self.observation_space.dtype), float(action), False, False, {}


def parity(h: int, states: Any) -> np.ndarray:
    """Features that change with the last bit of a number."""
    bits = (np.asarray(states).astype(np.int64) % 2).astype(np.float64) / 2
    return np.stack([bits, bits[:, ::-1]], axis=1)


def features() -> FunctionFeatures:
    return FunctionFeatures(parity, n_actions=2, block_dim=2, stationary=True)


@pytest.mark.parametrize(("dtype", "high"), [(np.int64, 2**60), (np.uint64, 2**64 - 1)])
def test_an_agent_with_large_whole_numbers_is_saved_and_read(dtype: Any, high: int, tmp_path: Path) -> None:
    env = LargeNumbers(dtype, high)
    agent = s4q.Agent(env, features(), horizon=3, reward_range=(0, 1), seed=0).learn(5)
    agent.save(tmp_path / "agent.s4q")
    agent.policy.save(tmp_path / "policy.s4q")
    read = s4q.Agent.load(tmp_path / "agent.s4q", env, features=features())
    policy = s4q.Policy.load(tmp_path / "policy.s4q", features=features())
    seen = np.array([3, 1], dtype=dtype)
    assert read.policy.act(seen, 0) == policy.act(seen, 0) == agent.policy.act(seen, 0)


def test_numbers_that_a_float_holds_are_kept() -> None:
    """Of a space in which about half of the probes are too large, the others are compared, and a difference is seen."""
    found = Fingerprint.of(features(), spaces.Box(0, 2**53 + 2**52, (2,), np.int64), 3)
    assert 0 < len(found.observations) < 16
    assert found.observations.max() <= 2**53
    assert Fingerprint.from_config(found.config()).difference(features()) is None  # type: ignore[union-attr]
    other = FunctionFeatures(lambda h, s: 1 - parity(h, s), n_actions=2, block_dim=2, stationary=True)
    assert found.difference(other) is not None


def test_a_doctored_fingerprint_is_refused() -> None:
    config = Fingerprint.of(features(), spaces.Box(0, 9, (2,), np.int64), 3).config()
    config["observations"][0] = [2.0**60, 1.0]
    with pytest.raises(ValueError, match="whole numbers of a fingerprint must lie within"):
        Fingerprint.from_config(config)
