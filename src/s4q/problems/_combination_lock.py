"""The combination lock: one wrong digit and the episode is lost.

It is the hardest problem here for random exploration: its chance of success is n_actions ** -horizon.
"""

import numpy as np

from s4q.core.validation import require_count
from s4q.problems.finite_mdp import FiniteMDP


def combination_lock(n_actions: int = 10, horizon: int = 10, *, seed: int = 0) -> FiniteMDP:
    """At each level one action, drawn from `seed`, is right; any other loses the episode.

    There are two states: open so far (0) and lost (1). The right last digit pays 1, nothing else pays. Features are
    one-hot per level, of length 2A. The value bound is 1.

    Args:
        n_actions: Number of digits to choose from.
        horizon: Length of the combination.
        seed: Seed of the problem: the combination is drawn from it.

    >>> facts = combination_lock(10, 10).facts()
    >>> f"V* {facts.v_star:.4f}, uniform {facts.v_uniform:.1e}, chance {facts.chance:.1e}"
    'V* 1.0000, uniform 1.0e-10, chance 1.0e-10'
    """
    require_count("seed", seed, "the seed of the problem", at_least=0)
    require_count("n_actions", n_actions, "the number of digits", at_least=2)
    require_count("horizon", horizon, "the length of the combination")
    code = np.random.default_rng(np.random.SeedSequence(seed)).integers(n_actions, size=horizon)
    transitions = np.zeros((horizon, 2, n_actions, 2))
    transitions[..., 1] = 1.0
    transitions[np.arange(horizon), 0, code] = [1.0, 0.0]
    rewards = np.zeros((horizon, 2, n_actions))
    rewards[-1, 0, code[-1]] = 1.0
    return FiniteMDP(transitions, rewards, start=[1.0, 0.0], value_bound=1.0, reward_noise="none")
