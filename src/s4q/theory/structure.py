"""Exact Bellman backups, best on-policy fits and errors of a value, in the shifted units that learners see."""

import numpy as np
from numpy.typing import ArrayLike

from s4q.blocks import Array
from s4q.checks import finite_array, require_shape
from s4q.linear_q import LinearQ
from s4q.policies import Mixture, Policy
from s4q.problems import FiniteMDP
from s4q.theory.population_fit import PopulationFit


def bellman_backup(mdp: FiniteMDP, h: int, v_next: ArrayLike) -> Array:
    """T_h V' = r_h + P_h V', (S, A), of a value v_next (S,) of level h + 1; rewards shifted to start at 0.

    As in the regression targets of a learner, an episode that has ended is worth a known constant, so the entries of
    v_next at terminal states are not read.

    >>> from s4q.problems import chain
    >>> bellman_backup(chain(2, 3), 0, [0.0, 2.0]).round(3).tolist()
    [[0.005, 1.9], [0.0, 3.0]]
    """
    values = finite_array("v_next", v_next)
    require_shape("v_next", values, (mdp.n_states,), "(S,)")
    after = np.where(mdp.terminal, mdp.spec.ended_value(h), values)
    return np.asarray(mdp.rewards[h] - mdp.spec.reward_min + mdp.transitions[h] @ after)


def best_on_policy_fit(
    mdp: FiniteMDP, controller: Policy | Mixture, h: int, v_next: ArrayLike, radius: ArrayLike | None = None
) -> Array:
    """theta^{pi, Q', h} (eqn:BestPredictor): argmin over the ball of E_pi (phi . theta - T_h V')^2, (n_blocks, k).

    Where the controller leaves directions unvisited there are many minimisers. The paper's bounds hold for any; taken
    is the one nearest to T_h V' in least squares over all pairs that can be reached (the limit of mixing a little of
    all pairs into the controller), so that it is the true parameter whenever T_h V' is linear in the features.
    radius: of the ball, default `spec.radius[h]`; (n_blocks,) for a ball per block; infinite for none. When the ball
    excludes all free minimisers, the minimiser in it is unique and no tie is left. When it cuts through them, the tie
    is broken among those inside. Both are constrained least squares, solved by the secular equation.

    >>> from s4q.policies import UniformPolicy
    >>> from s4q.problems import chain
    >>> best_on_policy_fit(chain(2, 3), UniformPolicy(2), 1, [0.0, 2.0]).ravel().round(3).tolist()
    [0.005, 1.9, 0.0, 3.0]
    """
    ball = np.asarray(mdp.spec.radius[h] if radius is None else radius, dtype=np.float64)
    fit = population_fit(mdp, mdp.occupancies(controller), h)
    return fit.solve(bellman_backup(mdp, h, v_next).ravel(), ball)


def population_fit(mdp: FiniteMDP, occupancies: Array, h: int) -> PopulationFit:
    """Fits at level h under occupancies (H, S, A); targets are (S * A,)."""
    vectors, blocks = mdp.features.vectors[h].reshape(-1, mdp.spec.block_dim), mdp.features.blocks[h].ravel()
    everywhere = np.repeat(mdp.reachable[h], mdp.n_actions).astype(np.float64)
    return PopulationFit(vectors, blocks, mdp.spec.n_blocks, occupancies[h].ravel(), everywhere / everywhere.sum())


def next_values(mdp: FiniteMDP, q: LinearQ) -> Array:
    """V' as each level sees it, (H, S): row h is max_a Q_{h+1}(s, a), clipped as Q clips; the last row is 0."""
    after = np.zeros((mdp.horizon, mdp.n_states))
    for h in range(mdp.horizon - 1):
        after[h] = q.value(h + 1, mdp.features.level(h + 1))
    return after


def comparator_errors(
    mdp: FiniteMDP, controller: Policy | Mixture, q: LinearQ, radius: ArrayLike | None = None
) -> Array:
    """Delta_h = T_h Qtar_{h+1} - phi . theta^{pi, Qtar, h} at every pair, (H, S, A); 0 at terminal states.

    radius: one number, one per level or (H, n_blocks); default `spec.radius`.

    >>> from s4q.policies import UniformPolicy
    >>> from s4q.problems import low_rank
    >>> mdp = low_rank()
    >>> bool(abs(comparator_errors(mdp, UniformPolicy(4), LinearQ(np.full((3, 1, 5), 0.3)))).max() < 1e-12)
    True
    """
    return errors_of_fits(mdp, mdp.occupancies(controller), next_values(mdp, q), radius)


def errors_of_fits(mdp: FiniteMDP, occupancies: Array, after: Array, radius: ArrayLike | None) -> Array:
    """The same from the controller's occupancies (H, S, A) and the next values (H, S)."""
    balls, errors = radii(mdp, radius), np.zeros(mdp.rewards.shape)
    for h in range(mdp.horizon):
        fit, backup = population_fit(mdp, occupancies, h), bellman_backup(mdp, h, after[h])
        theta = fit.solve(backup.ravel(), balls[h])
        errors[h] = backup - fit.predict(theta[:, :, None]).reshape(backup.shape)
    errors[:, mdp.terminal] = 0.0
    return errors


def bellman_errors(mdp: FiniteMDP, q: LinearQ) -> Array:
    """err_h = Q_h - T_h Q_{h+1} of a learned Q at every pair, (H, S, A); 0 at terminal states.

    >>> from s4q.problems import chain
    >>> mdp = chain()
    >>> bool(abs(bellman_errors(mdp, LinearQ(mdp.q_star.reshape(10, 20, 1)))).max() < 1e-12)
    True
    """
    after = next_values(mdp, q)
    levels = range(mdp.horizon)
    errors = np.stack([q.q_values(h, mdp.features.level(h)) - bellman_backup(mdp, h, after[h]) for h in levels])
    errors[:, mdp.terminal] = 0.0
    return errors


def radii(mdp: FiniteMDP, radius: ArrayLike | None) -> Array:
    """One ball per level, (H,), or one per level and block, (H, n_blocks); infinite for none."""
    balls = np.array(mdp.spec.radius if radius is None else radius, dtype=np.float64)
    if balls.ndim == 0:
        balls = np.full(mdp.horizon, float(balls))
    if balls.shape not in ((mdp.horizon,), (mdp.horizon, mdp.spec.n_blocks)):
        raise ValueError(
            f"radius must be one number, one per level ({mdp.horizon},) or one per level and block "
            f"({mdp.horizon}, {mdp.spec.n_blocks}); got shape {balls.shape}"
        )
    if not (balls > 0).all():  # NaN fails here too
        raise ValueError(f"radius must be positive (infinite for no ball); got {balls.min()}")
    return balls
