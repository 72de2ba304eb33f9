"""Your own environment and your own features: a boat on a river whose far end pays."""

import sys
from typing import Any

import gymnasium as gym
import numpy as np

import s4q

EPISODES = int(sys.argv[1]) if len(sys.argv) > 1 else 3_000


class Boat(gym.Env[np.ndarray, np.int64]):
    """Position in [0, 1]. Drift takes the boat back; rowing costs, and only the far end pays."""

    observation_space = gym.spaces.Box(0.0, 1.0, (1,))
    action_space = gym.spaces.Discrete(2)  # drift, row

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed, options=options)
        self.position = 0.2
        return self._observation(), {}

    def step(self, action: np.int64) -> Any:
        push = (0.11 if action else -0.08) + self.np_random.normal(0, 0.03)
        self.position = float(np.clip(self.position + push, 0.0, 1.0))
        reward = (1.0 if self.position > 0.9 else 0.0) - (0.05 if action else 0.0)
        return self._observation(), reward, False, False, {}

    def _observation(self) -> np.ndarray:
        return np.array([self.position], dtype=np.float32)


def nearby_buoys(h: int, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How near each of nine buoys is, of norm at most 1; one block per action, so that actions share nothing."""
    del h
    near = np.exp(-(((states - np.linspace(0, 1, 9)) / 0.1) ** 2))  # (n, 9)
    near /= np.linalg.norm(near, axis=1, keepdims=True)
    n = len(states)
    return np.repeat(near[:, None], 2, axis=1), np.tile([0, 1], (n, 1))


env = Boat()
features = s4q.features.FunctionFeatures(nearby_buoys, n_actions=2, block_dim=9, n_blocks=2, stationary=True)
print(s4q.features.check_features(features, env))

agent = s4q.Agent(env, features, horizon=20, reward_range=(-0.05, 1.0), seed=0)
agent.learn(episodes=EPISODES, progress_bar=True)
print(agent.evaluate(500))
for finding in agent.learner.diagnose():
    print(finding)
