"""The chain with DQN and PPO of Stable-Baselines3. It runs inside an environment that has them.

    python play_stable_baselines3.py dqn 100 200 400 800

All settings are the package's own. A line of JSON a run is printed.
"""

import json
import sys
import time

import torch
from stable_baselines3 import DQN, PPO

from chain import HORIZON
from chain_env import ChainEnv
from held_bytes import held_bytes

CLASSES = {"dqn": DQN, "ppo": PPO}


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
