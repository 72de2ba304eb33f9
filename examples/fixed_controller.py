"""Learn Q* from a controller that is not yours to change: S3Q, and how its error falls with data."""

import sys

import numpy as np

import s4q

MOST = int(sys.argv[1]) if len(sys.argv) > 1 else 10**6

mdp = s4q.problems.low_rank()
controller = s4q.UniformPolicy(mdp.n_actions)
reached = mdp.reachable[..., None] & np.ones(mdp.n_actions, dtype=bool)


def error(run: s4q.Run) -> float:
    """The largest error to Q* where some policy can get."""
    return float(np.abs(mdp.q_values(run.q) - mdp.q_star)[reached].max())


rows: list[tuple[int, float, int]] = []
s4q.run(
    s4q.S3Q(mdp, controller),
    s4q.collectors.CountCollector(mdp, seed=0),
    episodes=MOST,
    callback=lambda run: rows.append((run.episodes, error(run), run.nbytes)),
)
print("episodes   error to Q*   x sqrt(episodes)   bytes")
for episodes, off, held in rows[3::3]:
    print(f"{episodes:8,}   {off:11.4f}   {off * np.sqrt(episodes):16.2f}   {held:5}")

tail = np.array([(episodes, off) for episodes, off, _ in rows if episodes > 100])
if len(tail) > 3:
    slope = np.polyfit(np.log(tail[:, 0]), np.log(tail[:, 1]), 1)[0]
    print(f"slope of log error on log episodes: {slope:.2f} (the theory says -1/2)")
