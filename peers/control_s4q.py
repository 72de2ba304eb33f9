"""Classic control with an Agent of s4q and its defaults, and with SARSA(lambda) on tiles; a line of JSON a run.

python control_s4q.py agent CartPole-v1 100 0        # learner, environment, episodes, seed
"""

import json
import sys
import time
from typing import Any

import gymnasium as gym
import numpy as np

import s4q
from control_meter import metered, new_record, summed
from held_bytes import held_bytes
from s4q.features import Tiles
from tile_sarsa import TileSarsa

FRESH = 50  # episodes of the evaluation
# One step size, lambda and epsilon for all; tiles as fine as 10,000 features allow. CartPole's speeds have no bounds.
TILES: dict[str, dict[str, Any]] = {
    "CartPole-v1": {"low": [-2.4, -3, -0.21, -3], "high": [2.4, 3, 0.21, 3], "tiles_per_dim": 5},
    "MountainCar-v0": {"tiles_per_dim": 8},
    "Acrobot-v1": {"tiles_per_dim": 2},
}


def agent(env_id: str, episodes: int, seed: int) -> dict[str, Any]:
    """Agent(id): nothing else is named. What it says about itself afterwards is kept too."""
    record, env = new_record(), gym.make(env_id)
    learner = s4q.Agent(env, seed=seed)
    metered(env, record)  # afterwards: an Agent takes declared rewards only of an environment that nobody has changed
    began = time.process_time()
    learner.learn(episodes)
    noted = {name: list(ones) for name, ones in record.items()}
    run = learner.last_run
    assert run is not None
    found = summed(noted, began, run.nbytes, learner.evaluate(FRESH).mean)
    return {**found, "findings": [str(one) for one in learner.diagnose()]}


def sarsa(env_id: str, episodes: int, seed: int) -> dict[str, Any]:
    """SARSA(lambda) on tiles."""
    record = new_record()
    env = metered(gym.make(env_id), record)
    settings = TILES[env_id]
    space = None if "low" in settings else env.observation_space
    learner = TileSarsa(Tiles(space, n_tilings=8, clip=True, **settings), int(env.action_space.n), seed=seed)
    began = time.process_time()
    for number in range(episodes):
        learner.episode(env, seed=seed if number == 0 else None)
    noted = {name: list(ones) for name, ones in record.items()}
    returns = []
    for number in range(FRESH):
        observation, total, over = env.reset(seed=10_000 + number)[0], 0.0, False
        while not over:
            observation, reward, terminated, truncated, _ = env.step(learner.action(learner.active(observation)))
            total, over = total + float(reward), terminated or truncated
        returns.append(total)
    return summed(noted, began, held_bytes(learner), float(np.mean(returns)))


def main() -> None:
    learner, env_id, episodes, seed = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    print(json.dumps({"agent": agent, "sarsa": sarsa}[learner](env_id, episodes, seed)))


if __name__ == "__main__":
    main()
