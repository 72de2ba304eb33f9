"""Exact planning in a finite problem, as plain functions of arrays.

Arrays: transitions (H, S, A, S), rewards (H, S, A), start (S,), policy probabilities (H, S, A). FiniteMDP and the
theory call it; nothing here checks its input.
"""

import numpy as np

from s4q.core.blocks import Array, BoolArray


def optimal_values(transitions: Array, rewards: Array) -> Array:
    """Q*, (H, S, A), by backward induction.

    >>> stay = np.ones((2, 1, 1, 1))
    >>> optimal_values(stay, np.ones((2, 1, 1))).ravel().tolist()
    [2.0, 1.0]
    """
    q = np.array(rewards, dtype=np.float64)
    for h in range(len(q) - 2, -1, -1):
        q[h] += transitions[h] @ q[h + 1].max(axis=-1)
    return q


def greedy(q: Array) -> Array:
    """The policy that takes the best action of q (H, S, A), as probabilities (H, S, A); ties go to the lowest action.

    >>> greedy(np.array([[[1.0, 3.0, 3.0]]])).tolist()
    [[[0.0, 1.0, 0.0]]]
    """
    return np.asarray(np.eye(q.shape[-1])[q.argmax(axis=-1)])


def policy_values(transitions: Array, rewards: Array, policy: Array) -> Array:
    """Q^pi, (H, S, A), of a policy (H, S, A)."""
    q = np.array(rewards, dtype=np.float64)
    for h in range(len(q) - 2, -1, -1):
        q[h] += transitions[h] @ (policy[h + 1] * q[h + 1]).sum(axis=-1)
    return q


def occupancies(transitions: Array, start: Array, policy: Array) -> Array:
    """Probability of each (s, a) at each level, (H, S, A)."""
    occupancy = np.zeros(policy.shape)
    states = start
    for h in range(len(policy)):
        occupancy[h] = states[:, None] * policy[h]
        states = np.einsum("sa,sat->t", occupancy[h], transitions[h])
    return occupancy


def reachable(transitions: Array, start: Array) -> BoolArray:
    """Which states some policy visits at each level, (H, S) of bool."""
    seen = np.zeros(transitions.shape[:2], dtype=np.bool_)
    seen[0] = start > 0
    for h in range(len(seen) - 1):
        seen[h + 1] = (transitions[h][seen[h]] > 0).any(axis=(0, 1))
    return seen
