"""Small Gymnasium environments for the tests, well-behaved and bad, and live systems around them."""

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from s4q import FiniteMDP, Phi


class MDPEnv(gym.Env):
    """A FiniteMDP to be stepped. Draws from the env's own seeded generator only."""

    def __init__(self, mdp: FiniteMDP, first_action: int = 0) -> None:
        self.mdp, self.h, self.state = mdp, 0, 0
        self.observation_space = spaces.Discrete(mdp.n_states)
        self.action_space = spaces.Discrete(mdp.n_actions, start=first_action)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[int, dict]:
        super().reset(seed=seed)
        self.h, self.state = 0, int(self.np_random.choice(self.mdp.n_states, p=self.mdp.start))
        return self.state, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict]:
        mdp, pair = (
            self.mdp,
            (min(self.h, self.mdp.horizon - 1), self.state, int(action) - int(self.action_space.start)),
        )
        self.state = int(self.np_random.choice(mdp.n_states, p=mdp.transitions[pair]))
        self.h += 1
        return self.state, float(mdp.rewards[pair]), bool(mdp.terminal[self.state]), False, {}


class Drift(gym.Env):
    """A point on a line that drifts and jitters; it falls off beyond |x| = 1. Continuous observations in float32."""

    def __init__(self, n_actions: int = 3, limit: int | None = None) -> None:
        self.observation_space = spaces.Box(-2.0, 2.0, (2,), np.float32)
        self.action_space = spaces.Discrete(n_actions)
        self.limit, self.t = limit, 0
        self.x = np.zeros(2)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.t, self.x = 0, self.np_random.uniform(-0.5, 0.5, 2)
        return self.x.astype(np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        push = (float(action) - (self.action_space.n - 1) / 2) / 4
        move = np.array([push, self.x[0] / 4]) + self.np_random.normal(0, 0.15, 2)
        self.x = np.clip(self.x + move, -1.9, 1.9)
        self.t += 1
        ended = bool(abs(self.x[0]) > 1)
        truncated = self.limit is not None and self.t >= self.limit
        return self.x.astype(np.float32), float(np.cos(self.x[1]) / 2 - 1.0 * ended), ended, truncated, {}


class Waves:
    """Random cosines of a 2-vector, one block per action or dense over (s, a)."""

    def __init__(self, n_actions: int, k: int, dense: bool, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.n_actions, self.block_dim = n_actions, k
        self.n_blocks = 1 if dense else n_actions
        self.dense = dense
        self.w, self.b = rng.normal(size=(2, k)), rng.uniform(0, 6, size=(n_actions, k))

    def __call__(self, h: int, states: np.ndarray) -> Phi:
        n = len(states)
        waves = (states.astype(np.float64) @ self.w)[:, None, :] + (self.b if self.dense else self.b[:1])
        vectors = np.broadcast_to(np.cos(waves) / np.sqrt(self.block_dim), (n, self.n_actions, self.block_dim))
        blocks = np.zeros(self.n_actions, int) if self.dense else np.arange(self.n_actions)
        return Phi(vectors, np.broadcast_to(blocks, (n, self.n_actions)))


class Broken(gym.Wrapper):
    """Goes wrong at one step of every episode from a given one on."""

    def __init__(self, env: gym.Env, step: int, spoil: Callable[[tuple], tuple], from_episode: int = 0) -> None:
        super().__init__(env)
        self.at, self.spoil, self.t, self.episode, self.from_episode = step, spoil, 0, -1, from_episode

    def reset(self, **options: Any) -> tuple:
        self.t, self.episode = 0, self.episode + 1
        return self.env.reset(**options)

    def step(self, action: int) -> tuple:
        result = self.env.step(action)
        self.t += 1
        return self.spoil(result) if self.t == self.at + 1 and self.episode >= self.from_episode else result


class System:
    """A live system: an env that is started with the seeds that a collector would give it."""

    def __init__(self, env: gym.Env, seeds: Callable[[], int]) -> None:
        self.env, self.seeds = env, seeds

    def start(self) -> Any:
        return self.env.reset(seed=self.seeds())[0]

    def apply(self, action: int) -> tuple[float, Any, bool]:
        first = int(self.env.action_space.start)
        observation, reward, terminated, _, _ = self.env.step(first + action)
        return reward, observation, terminated
