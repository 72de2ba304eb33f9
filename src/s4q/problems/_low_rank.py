"""Random problems whose features are exact: a linear (low-rank) MDP, and one that is Bellman closed only."""

from dataclasses import dataclass
from typing import final

import numpy as np

from s4q.core.blocks import Array
from s4q.core.validation import require_count
from s4q.problems.finite_mdp import FiniteMDP


@final
@dataclass(frozen=True, eq=False, slots=True)
class LinearModel:
    """phi on the simplex, P_h(.|s, a) = sum_i phi_i mu_i, r_h = phi . theta_h, all of it per level."""

    phi: Array  # (H, S, A, d)
    mu: Array  # (H, d, S): each row a distribution
    theta: Array  # (H, d), in [0, 1/H]


def draw_linear_model(n_states: int, n_actions: int, dim: int, horizon: int, rng: np.random.Generator) -> LinearModel:
    require_count("n_actions", n_actions, "the number of actions")
    require_count("dim", dim, "the length of the features")
    require_count("horizon", horizon, "the number of steps of an episode")
    phi = rng.dirichlet(np.full(dim, 0.3), size=(horizon, n_states, n_actions))
    mu = rng.dirichlet(np.full(n_states, 0.3), size=(horizon, dim))
    theta = rng.random((horizon, dim)) / horizon
    return LinearModel(phi, mu, theta)


def low_rank(n_states: int = 20, n_actions: int = 4, dim: int = 5, horizon: int = 3, *, seed: int = 0) -> FiniteMDP:
    """A random linear MDP: transitions and rewards of every level are exactly linear in features on the simplex.

    Features, next-state distributions and reward weights are drawn from `seed`, anew at each level. Rewards are
    Bernoulli, 1/H or 0, so an episode pays at most 1: the value bound is (H - h)/H.

    >>> facts = low_rank().facts()
    >>> f"V* {facts.v_star:.4f}, uniform {facts.v_uniform:.4f}, chance {facts.chance:.1e}"
    'V* 0.6670, uniform 0.4854, chance 3.4e-02'
    """
    require_count("n_states", n_states, "the number of states", at_least=2)
    require_count("seed", seed, "the seed of the problem", at_least=0)
    rng = np.random.default_rng(np.random.SeedSequence(seed))
    model = draw_linear_model(n_states, n_actions, dim, horizon, rng)
    return FiniteMDP(
        np.einsum("hsad,hdt->hsat", model.phi, model.mu),
        np.einsum("hsad,hd->hsa", model.phi, model.theta),
        start=rng.dirichlet(np.ones(n_states)),
        features=model.phi,
        reward_range=(0.0, 1.0 / horizon),
        well_specified=True,
    )


def bellman_closed(
    n_types: int = 8, n_copies: int = 3, n_actions: int = 4, dim: int = 5, horizon: int = 3, *, seed: int = 0
) -> FiniteMDP:
    """Zero inherent Bellman error, yet not low rank: backups of linear functions are linear, of all functions not.

    A state is a type and a copy. Types move and pay as in `low_rank`, and the features see only the type; which copy
    of the next type comes up depends on state and action in a way that is not linear. A learner's functions read only
    features, so they never depend on the copy and the features stay exact for them. Value bound and noise as in
    `low_rank`.

    >>> facts = bellman_closed().facts()
    >>> f"V* {facts.v_star:.4f}, uniform {facts.v_uniform:.4f}, chance {facts.chance:.1e}"
    'V* 0.3710, uniform 0.2689, chance 1.6e-02'
    """
    require_count("n_types", n_types, "the number of types", at_least=2)
    require_count("n_copies", n_copies, "the number of copies of a type", at_least=2)
    require_count("seed", seed, "the seed of the problem", at_least=0)
    rng = np.random.default_rng(np.random.SeedSequence(seed))
    model = draw_linear_model(n_types, n_actions, dim, horizon, rng)
    n_states = n_types * n_copies
    phi = np.repeat(model.phi, n_copies, axis=1)  # state = type * n_copies + copy
    copies = rng.dirichlet(np.full(n_copies, 0.3), size=(horizon, n_states, n_actions, n_types))
    types = np.einsum("hsad,hdt->hsat", phi, model.mu)
    return FiniteMDP(
        (types[..., None] * copies).reshape(horizon, n_states, n_actions, n_states),
        np.einsum("hsad,hd->hsa", phi, model.theta),
        start=rng.dirichlet(np.ones(n_states)),
        features=phi,
        reward_range=(0.0, 1.0 / horizon),
        well_specified=True,
    )
