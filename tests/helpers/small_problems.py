"""Small problems for the tests, edge cases among them."""

from itertools import product

import numpy as np

from s4q import FiniteMDP, LinearQ
from s4q.core.blocks import dense
from s4q.core.messages import Phi


def random_mdp(
    n_states: int, n_actions: int, dim: int, horizon: int, seed: int, *, terminal: bool = False, low: float = 0.0
) -> FiniteMDP:
    """Random dynamics and random dense features (misspecified on purpose); the last state may end the episode."""
    rng = np.random.default_rng(seed)
    transitions = rng.dirichlet(np.ones(n_states), size=(horizon, n_states, n_actions))
    rewards = rng.uniform(low, 1.0, size=(horizon, n_states, n_actions))
    features = rng.normal(size=(horizon, n_states, n_actions, dim))
    norms = np.linalg.norm(features, axis=-1, keepdims=True)
    features *= rng.uniform(0.3, 1.0, size=norms.shape) / norms  # no equal norms: rounding would decide
    start = rng.dirichlet(np.ones(n_states))
    mask = np.zeros(n_states, dtype=bool)
    if terminal:
        mask[-1] = True
        transitions[:, -1] = np.eye(n_states)[-1]
        rewards[:, -1] = 0.0
        features[:, -1] = 0.0
        start = np.append(rng.dirichlet(np.ones(n_states - 1)), 0.0)
    return FiniteMDP(transitions, rewards, start, features, reward_range=(low, 1.0), terminal=mask)


class TablePolicy:
    """A policy given by its probabilities (H, S, A)."""

    def __init__(self, table: np.ndarray) -> None:
        self.table = table

    def probabilities(self, h: int, states: np.ndarray, phi: Phi) -> np.ndarray:
        return self.table[h, states]


def random_policy(mdp: FiniteMDP, seed: int, *, deterministic: bool = False) -> TablePolicy:
    """Random action probabilities at every state and level; all on one action each, if deterministic."""
    table = np.random.default_rng(seed).dirichlet(np.ones(mdp.n_actions), size=mdp.rewards.shape[:2])
    return TablePolicy(np.eye(mdp.n_actions)[table.argmax(axis=-1)] if deterministic else table)


class PerActionFeatures:
    """e_a (x) psi(s): one block per action."""

    def __init__(self, psi: np.ndarray, n_actions: int) -> None:
        self.psi, self.n_actions, self.n_blocks, self.block_dim = psi, n_actions, n_actions, psi.shape[1]

    def __call__(self, h: int, states: np.ndarray) -> Phi:
        vectors = np.repeat(self.psi[states][:, None, :], self.n_actions, axis=1)
        return Phi(vectors, np.tile(np.arange(self.n_actions), (len(states), 1)))


def blocked_mdp(seed: int = 0, horizon: int = 3) -> FiniteMDP:
    """Per-action blocks of length 2."""
    rng = np.random.default_rng(seed)
    psi = rng.normal(size=(5, 2))
    psi /= np.maximum(np.linalg.norm(psi, axis=1, keepdims=True), 1.0)
    transitions = rng.dirichlet(np.ones(5), size=(horizon, 5, 3))
    rewards = rng.random((horizon, 5, 3))
    return FiniteMDP(transitions, rewards, rng.dirichlet(np.ones(5)), PerActionFeatures(psi, 3))


def cliff(horizon: int = 8) -> FiniteMDP:
    """A walk of 4 cells along a cliff: each step costs 1, a fall costs 10 and leads back to the start.

    States 0..3 are cells, 4 is the goal (terminal). Actions: 0 = forward, 1 = back, 2 = over the edge, 3 = wait.
    The best policy walks straight to the goal; a learner that forgets what an early end is worth would rather wait.
    """
    transitions = np.zeros((5, 4, 5))
    rewards = np.full((5, 4), -1.0)
    for cell in range(4):
        transitions[cell, 0, cell + 1] = 1.0
        transitions[cell, 1, max(cell - 1, 0)] = 1.0
        transitions[cell, 2, 0] = 1.0
        transitions[cell, 3, cell] = 1.0
        rewards[cell, 2] = -10.0
    transitions[4, :, 4] = 1.0
    rewards[4] = 0.0
    return FiniteMDP(
        transitions,
        rewards,
        start=[0.4, 0.3, 0.2, 0.1, 0.0],
        horizon=horizon,
        reward_range=(-10.0, 0.0),
        reward_noise="none",
        terminal=[False, False, False, False, True],
    )


def all_policies(mdp: FiniteMDP) -> list[np.ndarray]:
    """Every deterministic Markov policy as a table (H, S, A)."""
    cells = mdp.horizon * mdp.n_states
    choices = product(range(mdp.n_actions), repeat=cells)
    return [np.eye(mdp.n_actions)[np.array(choice)].reshape(mdp.rewards.shape) for choice in choices]


def long_features(mdp: FiniteMDP, h: int) -> np.ndarray:
    """(S A, d)"""
    phi = mdp.features.level(h)
    return dense(phi.vectors, phi.blocks, mdp.spec.n_blocks).reshape(-1, mdp.dim)


def random_q(mdp: FiniteMDP, seed: int, *, clip: bool = False) -> LinearQ:
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=(mdp.horizon, mdp.spec.n_blocks, mdp.spec.block_dim))
    bounds = np.array([[0.0, v] for v in mdp.spec.value_bound])
    return LinearQ.from_arrays(theta, clip=bounds if clip else None)
