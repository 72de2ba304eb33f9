"""Exact Bellman backups, best on-policy fits and errors of a value, and what the features can represent.

All in the shifted units that learners see.
"""

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import ArrayLike

from s4q.core.blocks import Array, IntArray
from s4q.core.linear_q import LinearQ
from s4q.core.policies import Mixture, Policy
from s4q.core.validation import finite_array, require_count, require_shape
from s4q.problems import FiniteMDP
from s4q.problems.radius import feature_classes
from s4q.theory.level_errors import LevelErrors, linear_errors, next_bound
from s4q.theory.population_fits import population_fit


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

    >>> from s4q.core.policies import UniformPolicy
    >>> from s4q.problems import chain
    >>> best_on_policy_fit(chain(2, 3), UniformPolicy(2), 1, [0.0, 1.0]).ravel().round(3).tolist()
    [0.005, 0.95, 0.0, 2.0]
    """
    ball = np.asarray(mdp.spec.radius[h] if radius is None else radius, dtype=np.float64)
    fit = population_fit(mdp, mdp.occupancies(controller), h)
    return fit.solve(bellman_backup(mdp, h, v_next).ravel(), ball)


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

    >>> from s4q.core.policies import UniformPolicy
    >>> from s4q.problems import low_rank
    >>> mdp = low_rank()
    >>> bool(abs(comparator_errors(mdp, UniformPolicy(4), LinearQ.from_arrays(np.full((3, 1, 5), 0.3)))).max() < 1e-12)
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
    >>> bool(abs(bellman_errors(mdp, LinearQ.from_arrays(mdp.q_star.reshape(10, 20, 1)))).max() < 1e-12)
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


@final
@dataclass(frozen=True, eq=False, slots=True)
class Structure:
    """What the features of an MDP can represent, per level (H,). Residuals are over pairs that can be reached.

    A residual is the largest error of a least-squares fit of a backup T_h V', in the units of values, for V' in a
    class: all values in [0, v_{h+1}] (low rank), those that are equal where the features of all actions are (merged),
    or the linear ones, max_a phi . theta' with theta' in the ball (closure, found by search: a lower bound).
    """

    low_rank_residual: Array
    merged_residual: Array
    closure_residual: Array
    radius_lower: Array  # the radius B_h that backups of values in [0, v_{h+1}] need lies between these two
    radius_upper: Array
    radius_declared: Array
    tolerance: float

    @property
    def low_rank(self) -> bool:
        """Is every backup linear in the features, the radius left aside?"""
        return bool(self.low_rank_residual.max() <= self.tolerance)

    @property
    def bellman_closed(self) -> bool | None:
        """Is every backup of a linear Q linear? None: not refuted by the search, and not shown by merging states."""
        if self.merged_residual.max() <= self.tolerance:
            return True
        return False if self.closure_residual.max() > self.tolerance else None

    @property
    def radius_fits(self) -> bool | None:
        """Is the declared radius large enough? None: the bracket does not tell."""
        if np.all(self.radius_upper <= self.radius_declared * (1 + 1e-9)):
            return True
        return False if np.any(self.radius_lower > self.radius_declared * (1 + 1e-9)) else None


def check_structure(mdp: FiniteMDP, *, restarts: int = 20, seed: int = 0, tolerance: float = 1e-9) -> Structure:
    """Is this MDP low rank (asm:LowRank) or Bellman closed (asm:InherentBellman) for its features, and in which ball?

    Low rank is decided exactly, and implies closure. Closure alone has a maximum in it: it is shown if backups of all
    values that the features can tell apart are linear, refuted if a search over linear Q finds an error, else open.

    >>> from s4q.problems import bellman_closed, low_rank
    >>> found = check_structure(low_rank())
    >>> found.low_rank, found.bellman_closed, found.radius_fits
    (True, True, True)
    >>> found = check_structure(bellman_closed())
    >>> found.low_rank, found.bellman_closed
    (False, True)
    """
    require_count("restarts", restarts, "the number of starting points of the search")
    rng = np.random.default_rng(np.random.SeedSequence(seed))
    everywhere = np.repeat(mdp.reachable[:, :, None], mdp.n_actions, axis=2).astype(np.float64)
    rows = []
    for h in range(mdp.horizon):
        level, bound, here = linear_errors(mdp, everywhere, h), next_bound(mdp, h), mdp.reachable[h]
        seen = LevelErrors(level.base[here], level.slope[here], level.theta_base, level.theta_slope)
        alike = LevelErrors(seen.base, merged(mdp, h, seen.slope), seen.theta_base, seen.theta_slope)
        widest = [float(part.largest(0.0, bound).max(initial=0.0)) for part in (seen, alike)]
        found = max(_search_closure(mdp, h, seen, rng) for _ in range(restarts)) if here.any() else 0.0
        rows.append((*widest, found, *seen.largest_norm(0.0, bound)))
    low_rank, by_merging, closure, below, above = np.array(rows).T
    return Structure(low_rank, by_merging, closure, below, above, np.array(mdp.spec.radius), tolerance)


def merged(mdp: FiniteMDP, h: int, slope: Array) -> Array:
    """Slopes (..., S) summed over next states whose actions have the same features: no linear V' tells them apart."""
    if h + 1 == mdp.horizon:
        return slope
    groups = feature_classes(mdp.features, h + 1, np.ones(mdp.n_states, dtype=np.bool_))
    return np.asarray(slope @ np.eye(groups.max() + 1)[groups])


def _search_closure(mdp: FiniteMDP, h: int, seen: LevelErrors, rng: np.random.Generator) -> float:
    """The largest error of a backup of one linear Q, by local ascent from a random theta' on the sphere."""
    if h + 1 == mdp.horizon:
        return float(np.abs(seen.base).max())
    phi, ball = mdp.features.level(h + 1), mdp.spec.radius[h + 1]
    theta, reached = rng.normal(size=(mdp.spec.n_blocks, mdp.spec.block_dim)), 0.0
    while True:
        theta = theta * (ball / max(float(np.linalg.norm(theta)), 1e-300))
        q = np.einsum("nak,nak->na", phi.vectors, theta[phi.blocks])
        errors = seen.at(q.max(axis=1))
        worst = np.unravel_index(int(np.abs(errors).argmax()), errors.shape)
        size = float(abs(errors[worst]))
        if size <= reached * (1 + 1e-12):
            return reached
        reached = size
        theta = gradient_of_values(mdp, h + 1, q.argmax(axis=1), np.sign(errors[worst]) * seen.slope[worst])


def gradient_of_values(mdp: FiniteMDP, h: int, actions: IntArray, weights: Array) -> Array:
    """Of sum_s weight(s) phi(s, action(s)) . theta, (n_blocks, k)."""
    vectors, blocks = mdp.features.level(h).chosen(actions)
    total = np.zeros((mdp.spec.n_blocks, mdp.spec.block_dim))
    np.add.at(total, blocks, weights[:, None] * vectors)
    return total
