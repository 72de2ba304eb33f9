# %% [markdown]
# # MountainCar from scratch
#
# A car in a valley must get up the right hill. Its engine is too weak to do so from standing, so it must swing. Every
# step costs 1 until the goal, and an episode ends after 200 steps: all that is known before the first success is that
# nothing helps. Random actions do not find it.
#
# This notebook is made by `make notebooks` from `docs/notebooks/mountain_car.py`.

# %%
from pathlib import Path
from tempfile import TemporaryDirectory

import matplotlib.pyplot as plt

import s4q

agent = s4q.Agent("MountainCar-v0", seed=0)
print(agent.explain())

# %% [markdown]
# `explain` says where each setting comes from. The features are a Fourier basis of order 3 in position and speed,
# once for each of the three actions: 48 numbers.
#
# ## Learn

# %%
agent.learn(episodes=60)
print(agent.progress)

# %% [markdown]
# `promised` is what the values of the newest policies say of the start, bonus included. It is meant to be too high:
# promise minus return is what may still be gained.

# %%
fig, ax = plt.subplots(figsize=(7, 3))
ax = agent.plot(ax)

# %% [markdown]
# ## The policy to keep
#
# Of all policies so far the agent keeps the one whose own returns speak best for it. Fresh episodes say what it is
# worth:

# %%
print(agent.evaluate(100))

# %% [markdown]
# What it promises over position (from left to right) and speed (upwards). In the middle, at rest in the valley, it
# promises least:

# %%
fig, ax = plt.subplots(figsize=(5.5, 4))
ax = agent.plot_value((0, 1), ax=ax)

# %% [markdown]
# ## Take it elsewhere

# %%
with TemporaryDirectory() as folder:
    path = Path(folder) / "car.policy"
    agent.policy.save(path)
    policy = s4q.Policy.load(path)
    print(f"{path.stat().st_size:,} bytes")
print("values of the three actions at rest:", policy.q_values([-0.5, 0.0], step=0).round(1).tolist())

# %% [markdown]
# ## What looks wrong?
#
# `diagnose` lists signs of trouble. None is no proof that there is none.

# %%
print(len(agent.diagnose()), "signs of trouble")
