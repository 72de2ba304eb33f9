"""The chain, with nothing but NumPy: the problem that every package here plays, and the exact account of its regret.

Ten states in a line and ten steps. Action 1 moves right with probability 0.95 and else stays, action 0 moves left.
Action 0 at the left end pays 0.005, action 1 at the right end pays 1. It is `s4q.problems.chain()`.

What an action gives up is V*_h(s) - Q*_h(s, a). Its sum over an episode has the mean V* - V of the policy that played,
so the sum over all episodes is the regret without the noise of the returns. The environment itself adds it up, so that
every package is charged in the same way.
"""

from typing import Any

import numpy as np

N_STATES, N_ACTIONS, HORIZON = 10, 2, 10
RIGHT = 0.95  # probability that action 1 moves


def tables() -> tuple[np.ndarray, np.ndarray]:
    """Transitions (S, A, S) and rewards (S, A)."""
    transitions = np.zeros((N_STATES, N_ACTIONS, N_STATES))
    for s in range(N_STATES):
        transitions[s, 0, max(s - 1, 0)] = 1.0
        transitions[s, 1, s] += 1.0 - RIGHT
        transitions[s, 1, min(s + 1, N_STATES - 1)] += RIGHT
    rewards = np.zeros((N_STATES, N_ACTIONS))
    rewards[0, 0], rewards[-1, 1] = 0.005, 1.0
    return transitions, rewards


def optimal_values() -> np.ndarray:
    """Q* of every level, (H, S, A), by dynamic programming."""
    transitions, rewards = tables()
    found = np.zeros((HORIZON + 1, N_STATES, N_ACTIONS))
    for h in reversed(range(HORIZON)):
        found[h] = rewards + transitions @ found[h + 1].max(axis=1)
    return found[:HORIZON]


class Chain:
    """The chain with the methods of a Gymnasium environment, and the regret of all finished and open episodes.

    Args:
        seed: Seed of all episodes.
    """

    def __init__(self, seed: int = 0) -> None:
        self._rng = np.random.default_rng(seed)
        self._q = optimal_values()
        self.v_star = float(self._q[0, 0].max())
        self.regret, self.total_return = 0.0, 0.0
        self.n_episodes, self.n_steps = 0, 0
        self._state, self._step = 0, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        """Begin at the left end. The seed of a reset is ignored: the whole run has one."""
        self._state, self._step = 0, 0
        return 0, {}

    def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
        """Take a step; the episode is cut after the last level."""
        a, s, values = int(action), self._state, self._q[self._step, self._state]
        self.regret += float(values.max() - values[a])
        reward = 0.005 if s == 0 and a == 0 else float(s == N_STATES - 1 and a == 1)
        if a == 0:
            self._state = max(s - 1, 0)
        elif self._rng.random() < RIGHT:
            self._state = min(s + 1, N_STATES - 1)
        self._step += 1
        self.n_steps += 1
        self.total_return += reward
        over = self._step == HORIZON
        self.n_episodes += over
        return self._state, reward, False, over, {}
