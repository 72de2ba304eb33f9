"""The chain: walk right along a line, past a small reward, to a large one.

Benchmarks of other libraries use this problem, so numbers can be compared.
"""

import numpy as np

from s4q.core.validation import require_count
from s4q.problems.finite_mdp import FiniteMDP


def chain(n_states: int = 10, horizon: int = 10) -> FiniteMDP:
    """Walk right along a line; a small reward lies at the left end, where an episode starts, and 1 at the right end.

    Action 1 moves right with probability 0.95 and else stays, action 0 moves left. Action 0 at the left end pays
    0.005, action 1 at the right end pays 1, always. Features are one-hot. The value bound is 1 for each step left at
    the right end (with the default sizes nine of ten steps are needed to get there, so it is 1).

    Args:
        n_states: Length of the line.
        horizon: Steps of an episode.

    >>> facts = chain().facts()
    >>> f"V* {facts.v_star:.4f}, uniform {facts.v_uniform:.4f}, chance {facts.chance:.1e}"
    'V* 0.6361, uniform 0.0115, chance 6.2e-04'
    """
    require_count("horizon", horizon, "the number of steps of an episode")
    require_count("n_states", n_states, "the length of the line", at_least=2)
    transitions = np.zeros((n_states, 2, n_states))
    for s in range(n_states):
        transitions[s, 0, max(s - 1, 0)] = 1.0
        transitions[s, 1, s] += 0.05
        transitions[s, 1, min(s + 1, n_states - 1)] += 0.95
    rewards = np.zeros((n_states, 2))
    rewards[0, 0], rewards[-1, 1] = 0.005, 1.0
    return FiniteMDP(
        transitions,
        rewards,
        start=np.eye(n_states)[0],
        horizon=horizon,
        value_bound=max(1.0, horizon - n_states + 1, 0.005 * horizon),
        reward_noise="none",
    )
