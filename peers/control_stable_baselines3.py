"""Classic control with DQN and PPO of Stable-Baselines3; a line of JSON a run.

    python control_stable_baselines3.py dqn_tuned CartPole-v1 50000 0        # learner, environment, steps, seed

"Untuned" is what `DQN("MlpPolicy", env)` gives. "Tuned" are the settings of RL Baselines3 Zoo for the environment, each
chosen for that environment alone. A run may stop before the Zoo's number of steps; its schedules are then those of the
whole number, so that what is shown is the beginning of the Zoo's run.
"""

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from control_meter import metered, new_record, summed
from held_bytes import held_bytes

FRESH = 50  # episodes of the evaluation
WIDE = {"net_arch": [256, 256]}


def falling(first: float) -> Callable[[float], float]:
    """A schedule that falls in a straight line to 0."""
    return lambda left: first * left


# Settings of the learner; and of the run: steps, environments, normalised observations and rewards.
ZOO: dict[str, dict[str, tuple[dict[str, Any], dict[str, Any]]]] = {
    "dqn_tuned": {
        "CartPole-v1": (
            {
                "learning_rate": 2.3e-3,
                "batch_size": 64,
                "buffer_size": 100_000,
                "learning_starts": 1000,
                "gamma": 0.99,
                "target_update_interval": 10,
                "train_freq": 256,
                "gradient_steps": 128,
                "exploration_fraction": 0.16,
                "exploration_final_eps": 0.04,
                "policy_kwargs": WIDE,
            },
            {"steps": 50_000},
        ),
        "MountainCar-v0": (
            {
                "learning_rate": 4e-3,
                "batch_size": 128,
                "buffer_size": 10_000,
                "learning_starts": 1000,
                "gamma": 0.98,
                "target_update_interval": 600,
                "train_freq": 16,
                "gradient_steps": 8,
                "exploration_fraction": 0.2,
                "exploration_final_eps": 0.07,
                "policy_kwargs": WIDE,
            },
            {"steps": 120_000},
        ),
        "Acrobot-v1": (
            {
                "learning_rate": 6.3e-4,
                "batch_size": 128,
                "buffer_size": 50_000,
                "learning_starts": 0,
                "gamma": 0.99,
                "target_update_interval": 250,
                "train_freq": 4,
                "gradient_steps": -1,
                "exploration_fraction": 0.12,
                "exploration_final_eps": 0.1,
                "policy_kwargs": WIDE,
            },
            {"steps": 100_000},
        ),
    },
    "ppo_tuned": {
        "CartPole-v1": (
            {
                "n_steps": 32,
                "batch_size": 256,
                "gae_lambda": 0.8,
                "gamma": 0.98,
                "n_epochs": 20,
                "ent_coef": 0.0,
                "learning_rate": falling(0.001),
                "clip_range": falling(0.2),
            },
            {"steps": 100_000, "envs": 8},
        ),
        "MountainCar-v0": (
            {"n_steps": 16, "gae_lambda": 0.98, "gamma": 0.99, "n_epochs": 4, "ent_coef": 0.0},
            {"steps": 1_000_000, "envs": 16, "normalised": True},
        ),
        "Acrobot-v1": (
            {"n_steps": 256, "gae_lambda": 0.94, "gamma": 0.99, "n_epochs": 4, "ent_coef": 0.0},
            {"steps": 1_000_000, "envs": 16, "normalised": True},
        ),
    },
}


class StopAfter(BaseCallback):
    """Ends learning after a number of steps."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps = steps

    def _on_step(self) -> bool:
        return self.num_timesteps < self.steps


def main() -> None:
    learner, env_id, steps, seed = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    torch.set_num_threads(1)
    settings, how = ZOO.get(learner, {}).get(env_id, ({}, {}))
    record = new_record()
    envs: Any = DummyVecEnv([lambda: metered(gym.make(env_id), record)] * how.get("envs", 1))
    if how.get("normalised"):
        envs = VecNormalize(envs, gamma=settings["gamma"])
    made = {"dqn": DQN, "ppo": PPO}[learner.partition("_")[0]]("MlpPolicy", envs, seed=seed, device="cpu", **settings)
    began = time.process_time()
    made.learn(max(how.get("steps", steps), steps), callback=StopAfter(steps))
    fresh: Any = DummyVecEnv([lambda: gym.make(env_id)])
    if how.get("normalised"):
        fresh = VecNormalize(fresh, training=False, norm_reward=False)
        fresh.obs_rms = envs.obs_rms
    fresh.seed(10_000)
    returns, _ = evaluate_policy(made, fresh, n_eval_episodes=FRESH, return_episode_rewards=True, warn=False)
    print(json.dumps(summed(record, began, held_bytes(made), float(np.mean(returns)))))


if __name__ == "__main__":
    main()
