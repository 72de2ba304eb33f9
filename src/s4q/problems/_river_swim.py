"""RiverSwim: the large reward lies upstream, and swimming against the current often fails.

A classic test of exploration (Strehl and Littman 2008), scaled so that an episode pays at most 1.
"""

import numpy as np

from s4q.core.validation import require_count
from s4q.problems.finite_mdp import FiniteMDP


def river_swim(n_states: int = 6, horizon: int = 12) -> FiniteMDP:
    """Swim up a river: left always works and pays a little at the left end, right is slow and pays at the right end.

    Right moves on with probability 0.35, stays with 0.6 and slips back with 0.05; at the left end it moves on with
    0.6 and stays with 0.4, at the right end it stays with 0.6 and slips back with 0.4. Rewards are 0.005/H (left end,
    left) and 1/H (right end, right), always paid, so the value bound is (H - h)/H. An episode starts at the left end.
    Features are one-hot.

    Args:
        n_states: Length of the river.
        horizon: Steps H of an episode.

    >>> facts = river_swim(6, horizon=12).facts()
    >>> f"V* {facts.v_star:.4f}, uniform {facts.v_uniform:.4f}, chance {facts.chance:.1e}"
    'V* 0.0628, uniform 0.0019, chance 3.1e-03'
    """
    require_count("horizon", horizon, "the number of steps of an episode")
    require_count("n_states", n_states, "the length of the river", at_least=2)
    last = n_states - 1
    transitions = np.zeros((n_states, 2, n_states))
    for s in range(n_states):
        transitions[s, 0, max(s - 1, 0)] = 1.0
        if 0 < s < last:
            transitions[s, 1, [s + 1, s, s - 1]] = 0.35, 0.6, 0.05
    transitions[0, 1, [1, 0]] = 0.6, 0.4
    transitions[last, 1, [last, last - 1]] = 0.6, 0.4
    rewards = np.zeros((n_states, 2))
    rewards[0, 0], rewards[last, 1] = 0.005 / horizon, 1.0 / horizon
    return FiniteMDP(
        transitions,
        rewards,
        start=np.eye(n_states)[0],
        horizon=horizon,
        reward_range=(0.0, 1.0 / horizon),
        reward_noise="none",
    )
