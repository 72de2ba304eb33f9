"""A combination lock whose right digit depends on a coin that is tossed anew at every level."""

import numpy as np

from s4q.core.validation import require_count
from s4q.problems._slippery_grid import require_slip
from s4q.problems.finite_mdp import FiniteMDP


def stochastic_lock(n_actions: int = 10, horizon: int = 10, *, slip: float = 0.1, seed: int = 0) -> FiniteMDP:
    """Two states are open and need different digits; one wrong digit, or a slip, loses the episode.

    At each level each of the open states 0 and 1 has one right action, drawn from `seed`. It leads to one of the open
    states, with probability (1 - slip)/2 each, or slips into the lost state 2. Every other action leads to the lost
    state, for good. The right last digit pays 1, always; nothing else pays. Start: state 0 or 1, each with probability
    1/2. One-hot features per level, of length 3A. Value bound: 1. V* is (1 - slip)^(H - 1).

    Args:
        n_actions: Number of digits.
        horizon: Length of the combination.
        slip: Probability that the right digit is lost all the same.
        seed: Seed of the combination.

    >>> facts = stochastic_lock().facts()
    >>> f"V* {facts.v_star:.4f}, uniform {facts.v_uniform:.1e}, chance {facts.chance:.1e}"
    'V* 0.3874, uniform 3.9e-11, chance 3.9e-11'
    """
    require_count("seed", seed, "the seed of the problem", at_least=0)
    require_count("n_actions", n_actions, "the number of digits", at_least=2)
    require_count("horizon", horizon, "the length of the combination")
    require_slip(slip)
    code = np.random.default_rng(np.random.SeedSequence(seed)).integers(n_actions, size=(horizon, 2))
    levels, open_states = np.arange(horizon)[:, None], np.arange(2)
    transitions = np.zeros((horizon, 3, n_actions, 3))
    transitions[..., 2] = 1.0
    transitions[levels, open_states, code] = [(1 - slip) / 2, (1 - slip) / 2, slip]
    rewards = np.zeros((horizon, 3, n_actions))
    rewards[-1, open_states, code[-1]] = 1.0
    return FiniteMDP(transitions, rewards, start=[0.5, 0.5, 0.0], value_bound=1.0, reward_noise="none")
