"""Explore a hard problem: 20 steps to the right in a row, or nothing. Exact regret, in seconds.

A coin-tossing policy reaches the treasure of DeepSea(20) once in a million episodes.
"""

import sys

import s4q

EPISODES = int(sys.argv[1]) if len(sys.argv) > 1 else 2_000

mdp = s4q.problems.deep_sea(20)
learner = s4q.S4Q(mdp)  # preset "practical": no tuning
run = s4q.run(learner, s4q.collectors.CountCollector(mdp, seed=0), episodes=EPISODES)

print(mdp)
print(f"by chance one episode in {1 / mdp.facts().chance:,.0f} reaches the treasure")
for point in run.curve[-5:]:
    print(
        f"{point.episodes:6,} episodes: gap {point.gap:.4f}, regret so far {point.regret:.1f}, {point.nbytes:,} bytes"
    )
print(f"value of the policy {mdp.value(run.policy):.4f}, best possible {mdp.v_star:.4f}")
