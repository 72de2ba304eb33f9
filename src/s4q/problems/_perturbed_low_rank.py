"""A linear MDP whose steps go wrong with a known probability, in a way that the features do not see."""

import numpy as np

from s4q.core.validation import require_count
from s4q.problems._low_rank import draw_linear_model
from s4q.problems.finite_mdp import FiniteMDP


def perturbed_low_rank(
    n_states: int = 20,
    n_actions: int = 4,
    dim: int = 5,
    horizon: int = 3,
    *,
    amount: float = 0.1,
    seed: int = 0,
) -> FiniteMDP:
    """`low_rank`, but with probability `amount` a step pays and moves by another model, drawn anew for every pair.

    Rewards and transitions are (1 - amount) times linear ones plus amount times arbitrary ones, so a backup of values
    in [0, v] is at most amount (1/H + v) away from a linear function. For given occupancies the error of a fit is
    proportional to the amount. amount = 0 is `low_rank` of the same seed. Value bound and noise as there.

    >>> facts = perturbed_low_rank().facts()
    >>> f"V* {facts.v_star:.4f}, uniform {facts.v_uniform:.4f}, chance {facts.chance:.1e}"
    'V* 0.6531, uniform 0.4871, chance 3.3e-02'
    """
    require_count("n_states", n_states, "the number of states", at_least=2)
    require_count("seed", seed, "the seed of the problem", at_least=0)
    if not 0 <= amount <= 1:
        raise ValueError(f"amount is the probability that a step goes wrong, so it must lie in [0, 1]; got {amount!r}")
    rng = np.random.default_rng(np.random.SeedSequence(seed))
    model = draw_linear_model(n_states, n_actions, dim, horizon, rng)
    start = rng.dirichlet(np.ones(n_states))
    other = rng.dirichlet(np.full(n_states, 0.3), size=(horizon, n_states, n_actions))
    pays = rng.random((horizon, n_states, n_actions)) / horizon
    return FiniteMDP(
        (1 - amount) * np.einsum("hsad,hdt->hsat", model.phi, model.mu) + amount * other,
        (1 - amount) * np.einsum("hsad,hd->hsa", model.phi, model.theta) + amount * pays,
        start=start,
        features=model.phi,
        reward_range=(0.0, 1.0 / horizon),
        well_specified=amount == 0,
    )
