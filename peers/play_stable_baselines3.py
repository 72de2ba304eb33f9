"""The chain with DQN and PPO of Stable-Baselines3. It runs inside an environment that has them.

    python play_stable_baselines3.py dqn 100 200 400 800

All settings are the package's own. A line of JSON a run is printed.
"""

import json
import sys
import time
from typing import Any

import gymnasium as gym
import torch
from stable_baselines3 import DQN, PPO

from chain import HORIZON, N_ACTIONS, N_STATES, Chain
from held_bytes import held_bytes

CLASSES = {"dqn": DQN, "ppo": PPO}


class ChainEnv(gym.Env):
    """The chain as an environment of Gymnasium."""

    observation_space = gym.spaces.Discrete(N_STATES)
    action_space = gym.spaces.Discrete(N_ACTIONS)

    def __init__(self, seed: int) -> None:
        self.chain = Chain(seed)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return self.chain.reset()

    def step(self, action: Any) -> Any:
        return self.chain.step(action)


def main() -> None:
    torch.set_num_threads(1)
    for episodes in (int(text) for text in sys.argv[2:]):
        env = ChainEnv(seed=1)
        agent = CLASSES[sys.argv[1]]("MlpPolicy", env, seed=0, device="cpu")
        before = time.process_time()
        agent.learn(episodes * HORIZON)
        seconds = time.process_time() - before
        chain = env.chain
        # PPO plays whole batches of steps, so it may play some episodes more than it was asked for.
        per_episode = chain.regret / chain.n_episodes
        found = {"episodes": chain.n_episodes, "regret": chain.regret, "cpu_seconds": seconds}
        print(json.dumps({**found, "per_episode": per_episode, "bytes": held_bytes(agent)}), flush=True)


if __name__ == "__main__":
    main()
