# %% [markdown]
# # Exact regret, up to 10^12 episodes
#
# On a finite problem the value of every policy is known, so the regret of a run is exact: no noise, no smoothing. And
# episodes can be counted instead of played, so that 10^12 of them take seconds.
#
# This notebook is made by `make notebooks` from `docs/notebooks/exact_regret.py`.

# %%
import matplotlib.pyplot as plt

import s4q

mdp = s4q.problems.deep_sea(10)
print(mdp.facts())

# %% [markdown]
# DeepSea: ten steps to the right in a row find the treasure, and every step to the right costs a little. `chance` is
# how often random actions find it.
#
# ## Explore

# %%
run = s4q.run(s4q.S4Q(mdp), s4q.collectors.CountCollector(mdp, seed=0), episodes=500)
print(f"{run.phases} phases, regret {run.regret:.1f}, gap {run.gap:.4f}, {run.nbytes:,} bytes")

# %%
fig, ax = plt.subplots(figsize=(7, 3))
ax = s4q.report.plot_regret(run, ax, uniform_gap=mdp.v_star - mdp.value(s4q.UniformPolicy(2)))

# %% [markdown]
# Regret stands still once the way is known. The policy, and the exact values of the states it can reach:

# %%
fig, ax = plt.subplots(figsize=(4.5, 4.5))
ax = mdp.plot(run.best, ax=ax)

# %% [markdown]
# ## With a proof
#
# The preset `realisable` is optimistic with probability 0.95, if the features are exact, as one-hot features are. It
# remembers past policies instead of data. Its memory grows with the number of phases, and that grows like the
# logarithm of the episodes:

# %%
river = s4q.problems.river_swim(6, horizon=12)
for power in (4, 8, 12):
    run = s4q.run(s4q.S4Q(river, "realisable"), s4q.collectors.CountCollector(river, seed=0), episodes=10**power)
    print(f"10^{power} episodes: regret {run.regret:.3g}, gap {run.gap:.1e}, {run.phases} phases, {run.nbytes:,} bytes")

# %%
fig, ax = plt.subplots(figsize=(7, 3))
ax = s4q.report.plot_regret(run, ax)

# %% [markdown]
# ## What a run can say of itself
#
# A run may stop as soon as it can prove that its policy is good enough. It uses what it has seen and nothing else:

# %%
learner = s4q.S4Q(river, "realisable")
run = s4q.run(learner, s4q.collectors.CountCollector(river, seed=0), episodes=10**9, stop_when_gap=0.1)
print(f"stopped after {run.episodes:,} episodes")
print(run.certificate)
print(f"the truth: V* = {river.v_star:.4f}, the policy is worth {river.value(run.certificate.policy):.4f}")
