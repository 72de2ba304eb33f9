"""DeepSea: one path in 2^N pays, and every step towards it costs a little.

A test of exploration from the literature (Osband et al. 2020): a learner that follows the small rewards never finds
the large one.
"""

import numpy as np

from s4q.core.validation import require_count, require_flag
from s4q.problems.finite_mdp import FiniteMDP
from s4q.problems.grid_layout import GridLayout


def deep_sea(size: int = 10, *, stochastic: bool = False, seed: int = 0) -> FiniteMDP:
    """A diver sinks one row a step and steers left or right; the treasure lies in the right corner of the last row.

    The row is the level, the state is the column. Which action means right is drawn for each cell. A right move costs
    0.01/N whether or not it works; right in the corner pays 1. Rewards have no noise. Features are one-hot per level,
    of length 2N. An episode pays at most once, so the value bound is 1.

    Args:
        size: Depth and width N of the sea.
        stochastic: True: a right move fails with probability 1/N, and the diver stays in its column.
        seed: Seed of the problem: the meaning of the actions is drawn from it.

    >>> facts = deep_sea(10).facts()
    >>> f"V* {facts.v_star:.4f}, uniform {facts.v_uniform:.4f}, chance {facts.chance:.1e}"
    'V* 0.9900, uniform -0.0040, chance 9.8e-04'
    >>> facts = deep_sea(10, stochastic=True).facts()
    >>> f"V* {facts.v_star:.4f}, uniform {facts.v_uniform:.4f}, chance {facts.chance:.1e}"
    'V* 0.3809, uniform -0.0046, chance 3.8e-04'
    """
    require_count("seed", seed, "the seed of the problem", at_least=0)
    require_count("size", size, "the depth and width of the sea", at_least=2)
    require_flag("stochastic", stochastic, "may a right move fail?")
    right = np.random.default_rng(np.random.SeedSequence(seed)).integers(2, size=(size, size))
    slip = 1.0 / size if stochastic else 0.0
    transitions = np.zeros((size, size, 2, size))
    rewards = np.zeros((size, size, 2))
    for row in range(size):
        for column in range(size):
            go_right, go_left = right[row, column], 1 - right[row, column]
            transitions[row, column, go_left, max(column - 1, 0)] = 1.0
            transitions[row, column, go_right, min(column + 1, size - 1)] += 1.0 - slip
            transitions[row, column, go_right, column] += slip
            rewards[row, column, go_right] = -0.01 / size
    rewards[-1, -1, right[-1, -1]] += 1.0
    return FiniteMDP(
        transitions,
        rewards,
        start=np.eye(size)[0],
        reward_range=(-0.01 / size, 1.0),
        value_bound=1.0,
        reward_noise="none",
        layout=GridLayout(size, size, tuple((0, column) for column in range(size)), row_is_level=True),
    )
