"""A linear MDP with many features more than it needs, hardly ever excited: large d, small effective dimension."""

import numpy as np

from s4q.core.validation import require_count
from s4q.problems._low_rank import draw_linear_model
from s4q.problems.finite_mdp import FiniteMDP


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
    """`low_rank` with `dim` features, and `padding` more that have norm `size` in all and a random direction.

    The padding is useless but harmless: rewards and moves are exactly linear without it, so the features are exact.
    Its share of the information gain is at most log(1 + size^2 n / ridge) a direction. Value bound and noise as in
    `low_rank`.

    >>> mdp = padded_features()
    >>> mdp.dim
    60
    >>> facts = mdp.facts()
    >>> f"V* {facts.v_star:.4f}, uniform {facts.v_uniform:.4f}, chance {facts.chance:.1e}"
    'V* 0.7708, uniform 0.5518, chance 1.1e-03'
    """
    require_count("n_states", n_states, "the number of states", at_least=2)
    require_count("padding", padding, "the number of useless features")
    require_count("seed", seed, "the seed of the problem", at_least=0)
    if not 0 < size < 1:
        raise ValueError(f"size is the norm of the useless features, so it must lie in (0, 1); got {size!r}")
    rng = np.random.default_rng(np.random.SeedSequence(seed))
    model = draw_linear_model(n_states, n_actions, dim, horizon, rng)
    start = rng.dirichlet(np.ones(n_states))
    useless = rng.normal(size=(horizon, n_states, n_actions, padding))
    useless *= size / np.linalg.norm(useless, axis=-1, keepdims=True)
    shrink = np.sqrt(1 - size**2)  # keeps the norm of all features at most 1
    return FiniteMDP(
        np.einsum("hsad,hdt->hsat", model.phi, model.mu),
        np.einsum("hsad,hd->hsa", model.phi, model.theta),
        start=start,
        features=np.concatenate([shrink * model.phi, useless], axis=-1),
        reward_range=(0.0, 1.0 / horizon),
        well_specified=True,
    )
