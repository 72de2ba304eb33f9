"""Smooth features that are not exact: a comfortable place must not end the search for a better one."""

from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import s4q
from s4q.core.optimism import QLevel
from s4q.features import Fourier, PerAction
from s4q.learners import presets


class Swimmer(gym.Env[Any, Any]):
    """A place in [0, 1]. The left end, where it begins, pays 0.3 a step; the right end, ten strokes away, 1 a step."""

    observation_space = spaces.Box(0, 1, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self.place = 0.1
        return np.array([self.place], np.float32), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        stroke = 0.08 if action else -0.1
        self.place = float(np.clip(self.place + stroke + self.np_random.normal(0, 0.03), 0, 1))
        reward = 0.3 if self.place < 0.15 else 1.0 if self.place > 0.9 else 0.0
        return np.array([self.place], np.float32), reward, False, False, {}


def reached(seed: int) -> float:
    """Mean return of the policy to keep: 12 at the left end, 30 at the right one."""
    env = Swimmer()
    features = PerAction(Fourier(env.observation_space, order=7), n_actions=2)
    agent = s4q.Agent(env, features, horizon=40, reward_range=(0, 1), seed=seed)
    return float(agent.learn(150).evaluate(30).mean)


@pytest.mark.slow
def test_the_far_end_is_found_by_nearly_all() -> None:
    assert sum(reached(seed) > 25 for seed in range(8)) >= 7


@pytest.mark.slow
def test_with_a_tenth_of_the_bonus_of_what_was_never_seen_it_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = presets.with_data_scaled_bonus

    def small(fit: QLevel, *given: Any, **named: Any) -> QLevel:
        made = honest(fit, *given, **named)
        assert made.width is not None
        return replace(made, width=made.width / 10)

    monkeypatch.setattr(presets, "with_data_scaled_bonus", small)
    assert sum(reached(seed) < 15 for seed in range(8)) >= 3
