"""Random linear (low-rank) MDPs: exact, Bellman closed only, perturbed, and padded with useless features.

`low_rank` is the plain one, and the other builders change one thing of it each. All draw the same kind of model with
`draw_linear_model`, which `harmless_error` uses too. The seed of a problem is not the seed of a run.
"""

from dataclasses import dataclass
from typing import final

import numpy as np

from s4q.core.blocks import Array
from s4q.core.validation import require_count, require_positive, require_share
from s4q.problems.finite_mdp import FiniteMDP


@final
@dataclass(frozen=True, eq=False, slots=True)
class LinearModel:
    """Features phi on the simplex, P_h(.|s, a) = sum_i phi_i mu_i and r_h = phi . theta_h, drawn anew at each level."""

    phi: Array  # (H, S, A, d)
    mu: Array  # (H, d, S): each row a distribution
    theta: Array  # (H, d), in [0, 1/H]
    rng: np.random.Generator  # for whatever a problem draws next

    @property
    def moves(self) -> Array:
        """Transitions (H, S, A, S)."""
        return np.asarray(np.einsum("hsad,hdt->hsat", self.phi, self.mu))

    @property
    def rewards(self) -> Array:
        """Mean rewards (H, S, A)."""
        return np.asarray(np.einsum("hsad,hd->hsa", self.phi, self.theta))


def draw_linear_model(n_states: int, n_actions: int, dim: int, horizon: int, seed: int) -> LinearModel:
    """Check the sizes and draw a model from `seed`."""
    require_count("n_states", n_states, "the number of states", at_least=2)
    require_count("n_actions", n_actions, "the number of actions")
    require_count("dim", dim, "the length of the features")
    require_count("horizon", horizon, "the number of steps of an episode")
    require_count("seed", seed, "the seed of the problem", at_least=0)
    rng = np.random.default_rng(np.random.SeedSequence(seed))
    phi = rng.dirichlet(np.full(dim, 0.3), size=(horizon, n_states, n_actions))
    mu = rng.dirichlet(np.full(n_states, 0.3), size=(horizon, dim))
    theta = rng.random((horizon, dim)) / horizon
    return LinearModel(phi, mu, theta, rng)


def low_rank(n_states: int = 20, n_actions: int = 4, dim: int = 5, horizon: int = 3, *, seed: int = 0) -> FiniteMDP:
    """A random linear MDP: transitions and rewards of every level are exactly linear in features on the simplex.

    Rewards are Bernoulli, 1/H or 0, so an episode pays at most 1, and the value bound is (H - h)/H.

    Args:
        n_states: Number of states.
        n_actions: Number of actions.
        dim: Length of the features.
        horizon: Steps of an episode.
        seed: Seed of the problem: features, next-state distributions and reward weights are drawn from it.

    >>> facts = low_rank().facts()
    >>> f"V* {facts.v_star:.4f}, uniform {facts.v_uniform:.4f}, chance {facts.chance:.1e}"
    'V* 0.6670, uniform 0.4854, chance 3.4e-02'
    """
    model = draw_linear_model(n_states, n_actions, dim, horizon, seed)
    return FiniteMDP(
        model.moves,
        model.rewards,
        start=model.rng.dirichlet(np.ones(n_states)),
        features=model.phi,
        reward_range=(0.0, 1.0 / horizon),
        well_specified=True,
    )


def bellman_closed(
    n_types: int = 8, n_copies: int = 3, n_actions: int = 4, dim: int = 5, horizon: int = 3, *, seed: int = 0
) -> FiniteMDP:
    """A problem with zero inherent Bellman error that is not low rank.

    A state is a type and a copy. Types move and pay as in `low_rank`, and the features see only the type. Which copy
    of the next type comes up depends on state and action in a way that is not linear. A learner's functions read only
    features, so they never depend on the copy, and the features stay exact for them. Value bound and noise are those
    of `low_rank`.

    Args:
        n_types: Number of types.
        n_copies: Number of copies of each type; there are n_types * n_copies states.
        n_actions: Number of actions.
        dim: Length of the features.
        horizon: Steps of an episode.
        seed: Seed of the problem.

    >>> facts = bellman_closed().facts()
    >>> f"V* {facts.v_star:.4f}, uniform {facts.v_uniform:.4f}, chance {facts.chance:.1e}"
    'V* 0.3710, uniform 0.2689, chance 1.6e-02'
    """
    require_count("n_types", n_types, "the number of types", at_least=2)
    require_count("n_copies", n_copies, "the number of copies of a type", at_least=2)
    model = draw_linear_model(n_types, n_actions, dim, horizon, seed)
    n_states = n_types * n_copies
    phi = np.repeat(model.phi, n_copies, axis=1)  # state = type * n_copies + copy
    copies = model.rng.dirichlet(np.full(n_copies, 0.3), size=(horizon, n_states, n_actions, n_types))
    types = np.einsum("hsad,hdt->hsat", phi, model.mu)
    return FiniteMDP(
        (types[..., None] * copies).reshape(horizon, n_states, n_actions, n_states),
        np.einsum("hsad,hd->hsa", phi, model.theta),
        start=model.rng.dirichlet(np.ones(n_states)),
        features=phi,
        reward_range=(0.0, 1.0 / horizon),
        well_specified=True,
    )


def perturbed_low_rank(
    n_states: int = 20, n_actions: int = 4, dim: int = 5, horizon: int = 3, *, amount: float = 0.1, seed: int = 0
) -> FiniteMDP:
    """`low_rank`, but with probability `amount` a step pays and moves by another model, drawn anew for every pair.

    Rewards and transitions are (1 - amount) times linear ones plus amount times arbitrary ones, so a backup of values
    in [0, v] is at most amount (1/H + v) away from a linear function. For given occupancies the error of a fit is
    proportional to the amount. With amount = 0 it is `low_rank` of the same seed. Value bound and noise are those of
    `low_rank`.

    Args:
        n_states: Number of states.
        n_actions: Number of actions.
        dim: Length of the features.
        horizon: Steps of an episode.
        amount: Probability, in [0, 1], that a step follows the other model.
        seed: Seed of the problem.

    >>> facts = perturbed_low_rank().facts()
    >>> f"V* {facts.v_star:.4f}, uniform {facts.v_uniform:.4f}, chance {facts.chance:.1e}"
    'V* 0.6531, uniform 0.4871, chance 3.3e-02'
    """
    require_share("amount", amount, "the probability that a step goes wrong")
    model = draw_linear_model(n_states, n_actions, dim, horizon, seed)
    start = model.rng.dirichlet(np.ones(n_states))
    other = model.rng.dirichlet(np.full(n_states, 0.3), size=(horizon, n_states, n_actions))
    pays = model.rng.random((horizon, n_states, n_actions)) / horizon
    return FiniteMDP(
        (1 - amount) * model.moves + amount * other,
        (1 - amount) * model.rewards + amount * pays,
        start=start,
        features=model.phi,
        reward_range=(0.0, 1.0 / horizon),
        well_specified=amount == 0,
    )


def padded_features(
    n_states: int = 20,
    n_actions: int = 4,
    dim: int = 3,
    horizon: int = 3,
    *,
    padding: int = 57,
    size: float = 1e-3,
    seed: int = 0,
) -> FiniteMDP:
    """`low_rank` with more features than it needs: large d, small effective dimension.

    The additional features are useless but harmless: rewards and moves are exactly linear without them, so the
    features are exact. Their share of the information gain is at most log(1 + size^2 n / ridge) a direction. Value
    bound and noise are those of `low_rank`.

    Args:
        n_states: Number of states.
        n_actions: Number of actions.
        dim: Number of useful features.
        horizon: Steps of an episode.
        padding: Number of useless features.
        size: Norm, in (0, 1), of the useless features of a pair; their direction is random.
        seed: Seed of the problem.

    >>> mdp = padded_features()
    >>> mdp.dim
    60
    >>> facts = mdp.facts()
    >>> f"V* {facts.v_star:.4f}, uniform {facts.v_uniform:.4f}, chance {facts.chance:.1e}"
    'V* 0.7708, uniform 0.5518, chance 1.1e-03'
    """
    require_count("padding", padding, "the number of useless features")
    require_positive("size", size, "the norm of the useless features")
    if size >= 1:
        raise ValueError(f"size is the norm of the useless features, so it must lie in (0, 1); got {size!r}")
    model = draw_linear_model(n_states, n_actions, dim, horizon, seed)
    start = model.rng.dirichlet(np.ones(n_states))
    useless = model.rng.normal(size=(horizon, n_states, n_actions, padding))
    useless *= size / np.linalg.norm(useless, axis=-1, keepdims=True)
    shrink = np.sqrt(1 - size**2)  # keeps the norm of all features at most 1
    return FiniteMDP(
        model.moves,
        model.rewards,
        start=start,
        features=np.concatenate([shrink * model.phi, useless], axis=-1),
        reward_range=(0.0, 1.0 / horizon),
        well_specified=True,
    )
