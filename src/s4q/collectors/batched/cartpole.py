"""CartPoleBatch: Gymnasium's native vector CartPole as an array simulator."""

from typing import Any, final

import numpy as np

from s4q.core.blocks import Array, BoolArray, IntArray


@final
class CartPoleBatch:
    """CartPole-v1 for many episodes at once: states (n, 4) = cart position and speed, pole angle and speed.

    The dynamics are those of gymnasium's CartPoleVectorEnv, whose state is set before each step and read after it; an
    episode that ends is simply handed back as ended. Every step pays 1.

    >>> batch, rng = CartPoleBatch(), np.random.default_rng(0)
    >>> rewards, states, ended = batch.step(0, batch.start(3, rng), np.array([0, 1, 1]), rng)
    >>> rewards.tolist(), states.shape, ended.tolist()
    ([1.0, 1.0, 1.0], (3, 4), [False, False, False])
    """

    def __init__(self) -> None:
        try:
            from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
        except ImportError:
            raise ImportError('CartPoleBatch needs gymnasium; install it with: pip install "s4q[gym]"') from None
        self._make = CartPoleVectorEnv
        self._env: Any = CartPoleVectorEnv(num_envs=1)

    def start(self, n: int, rng: np.random.Generator) -> Array:
        """n start states."""
        return rng.uniform(self._env.low, self._env.high, size=(n, 4))

    def step(
        self, h: int, states: Array, actions: IntArray, rng: np.random.Generator
    ) -> tuple[Array, Array, BoolArray]:
        """Rewards, next states, and which episodes ended."""
        del h, rng  # the same at every level, and without noise
        n = len(states)
        if n > self._env.num_envs:
            self._env = self._make(num_envs=n)
        env, size = self._env, self._env.num_envs
        env.state = np.zeros((4, size))  # rows beyond n stand still and are not looked at
        env.state[:, :n] = states.T
        env.steps = np.zeros(size, dtype=np.int32)
        env.prev_done = np.zeros(size, dtype=np.bool_)
        padded = np.zeros(size, dtype=np.int64)
        padded[:n] = actions
        _, rewards, terminated, _, _ = env.step(padded)
        return rewards[:n].astype(np.float64), env.state[:, :n].T.copy(), terminated[:n]
