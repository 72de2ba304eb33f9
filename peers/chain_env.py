"""The chain as an environment of Gymnasium, for packages that ask for one. It keeps the account of its regret."""

from typing import Any

import gymnasium as gym

from chain import N_ACTIONS, N_STATES, Chain


class ChainEnv(gym.Env):
    """The chain. A package that has spaces of its own names them in a subclass.

    Args:
        seed: Seed of all episodes.
    """

    observation_space = gym.spaces.Discrete(N_STATES)
    action_space = gym.spaces.Discrete(N_ACTIONS)

    def __init__(self, seed: int) -> None:
        self.chain = Chain(seed)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return self.chain.reset()

    def step(self, action: Any) -> Any:
        return self.chain.step(action)
