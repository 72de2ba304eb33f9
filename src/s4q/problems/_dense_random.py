"""Random tables in which every state can be reached and every pair pays a little."""

import numpy as np

from s4q.core.validation import require_count
from s4q.problems.finite_mdp import FiniteMDP


def dense_random(n_states: int = 15, n_actions: int = 4, horizon: int = 10, *, seed: int = 0) -> FiniteMDP:
    """Random transitions with few likely next states, and a random mean reward at every pair.

    The next states of a pair are drawn from Dirichlet(0.1) and its mean reward uniformly from [0, 1]. Rewards are 0 or
    1 (Bernoulli). An episode starts in state 0. All levels are the same. One-hot features. Many policies are nearly as
    good as the best, so a learner that stops exploring too early keeps a small gap for ever.

    Args:
        n_states: Number of states.
        n_actions: Number of actions.
        horizon: Steps of an episode.
        seed: Seed of the tables.

    >>> facts = dense_random().facts()
    >>> f"V* {facts.v_star:.4f}, uniform {facts.v_uniform:.4f}, chance {facts.chance:.1e}"
    'V* 8.0936, uniform 4.6162, chance 3.2e-01'
    """
    require_count("n_states", n_states, "the number of states", at_least=2)
    require_count("n_actions", n_actions, "the number of actions")
    require_count("horizon", horizon, "the number of steps of an episode")
    require_count("seed", seed, "the seed of the problem", at_least=0)
    rng = np.random.default_rng(np.random.SeedSequence(seed))
    transitions = rng.dirichlet(np.full(n_states, 0.1), size=(n_states, n_actions))
    rewards = rng.random((n_states, n_actions))
    return FiniteMDP(transitions, rewards, start=np.eye(n_states)[0], horizon=horizon)
