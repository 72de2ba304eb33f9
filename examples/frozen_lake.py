"""A Gymnasium environment in, a policy out: slippery FrozenLake, saved, loaded and gone on with."""

import sys
import tempfile
from pathlib import Path

import gymnasium as gym

import s4q

EPISODES = int(sys.argv[1]) if len(sys.argv) > 1 else 5_000

env = gym.make("FrozenLake-v1")
agent = s4q.Agent(env, horizon=50, reward_range=(0, 1), seed=0)
agent.learn(episodes=EPISODES, progress_bar=True)
print(agent.evaluate(1_000))

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "lake.s4q"
    agent.save(path)
    again = s4q.Agent.load(path, env=gym.make("FrozenLake-v1"))
again.learn(episodes=EPISODES)
print(f"after {again.n_episodes:,} episodes:", again.evaluate(1_000))

# The same problem as a table, so the answer is known exactly.
mdp = s4q.problems.from_gymnasium("FrozenLake-v1", 50)
print(f"value of the policy {mdp.value(again.learner.policy):.4f}, best possible {mdp.v_star:.4f}")

observation, _ = env.reset(seed=1)
state, total, over = None, 0.0, False
while not over:
    action, state = again.predict(observation, state)
    observation, reward, terminated, truncated, _ = env.step(action)
    total, over = total + float(reward), terminated or truncated or int(state) == 50
print(f"one episode of {int(state)} steps paid {total:g}")
