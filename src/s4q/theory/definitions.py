"""What the paper defines, computed exactly on a finite MDP.

Expected covariances, Bellman backups, best on-policy fits and the errors of a learned Q; and `check_structure`, which
says what the features can represent. Users call these directly, and the audit and the transfer errors are built on
them. All in the shifted units that learners see. No learner may import this module.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import ArrayLike

from s4q.core.blocks import Array, IntArray
from s4q.core.least_squares import gram_of
from s4q.core.linear_q import LinearQ
from s4q.core.policies import Mixture, Policy
from s4q.core.spec import ball_radii
from s4q.core.validation import finite_array, require_count, require_kind, require_shape
from s4q.learners.main_loop import PhaseRecord, Record
from s4q.problems import FiniteMDP, planning
from s4q.theory.population_fits import LevelErrors, errors_everywhere, flat_features, population_fit


def expected_sum(occupancy: Array, values: Array) -> float:
    """E sum_h f_h(s_h, a_h) under the occupancy (H, S, A) of a policy; values (H, S, A)."""
    return float((occupancy * values).sum())


def best_return(mdp: FiniteMDP, rewards: Array) -> float:
    """The largest expected sum of rewards (H, S, A) over all policies."""
    return float(mdp.start @ planning.optimal_values(mdp.transitions, rewards)[0].max(axis=-1))


def optimal_occupancies(mdp: FiniteMDP) -> Array:
    """Those of an optimal policy, (H, S, A); ties go to the lowest action."""
    return planning.occupancies(mdp.transitions, mdp.start, planning.greedy(mdp.q_star))


def expected_grams(mdp: FiniteMDP, controller: Policy | Mixture) -> Array:
    """G_pi,h = E_pi[phi phi^T] of every level, (H, n_blocks, k, k).

    Args:
        mdp: The problem.
        controller: The policy pi, or a mixture of policies.

    >>> from s4q.core.policies import UniformPolicy
    >>> from s4q.problems import chain
    >>> expected_grams(chain(3, 2), UniformPolicy(2))[0].ravel().tolist()  # one-hot pairs: their probabilities
    [0.5, 0.5, 0.0, 0.0, 0.0, 0.0]
    """
    return grams_of_occupancies(mdp, mdp.occupancies(controller))


def grams_of_occupancies(mdp: FiniteMDP, occupancies: Array) -> Array:
    """sum over pairs of the occupancy times phi phi^T, (H, n_blocks, k, k); occupancies (H, S, A)."""
    return np.stack([gram_of_pairs(mdp, h, occupancy) for h, occupancy in enumerate(occupancies)])


def gram_of_pairs(mdp: FiniteMDP, h: int, occupancy: Array) -> Array:
    """The same at one level, (n_blocks, k, k); occupancy (S, A)."""
    vectors, blocks, weights = visited_pairs(mdp, h, occupancy)
    if mdp.spec.block_dim == 1:  # one bincount, whatever the number of blocks
        sums = np.bincount(blocks, weights * vectors[:, 0] ** 2, minlength=mdp.spec.n_blocks)
        return np.asarray(sums[:, None, None])
    return gram_of(vectors * np.sqrt(weights)[:, None], blocks, mdp.spec.n_blocks)


def visited_pairs(mdp: FiniteMDP, h: int, occupancy: Array) -> tuple[Array, IntArray, Array]:
    """Features, blocks and probabilities of the pairs that an occupancy (S, A) of level h visits at all."""
    here = np.flatnonzero(occupancy.ravel())
    vectors, blocks = flat_features(mdp, h)
    return vectors[here], blocks[here], occupancy.ravel()[here]


def expected_covariances(mdp: FiniteMDP, record: Record) -> Array:
    """Sbar^(p) less its ridge: sum over j < p of n_j G_{pi_j}, for every phase p that began; (P, H, n_blocks, k, k).

    Entry p - 1 is phase p's; the first is 0. Add `record.phases[p - 1].ridge` where the ridge is wanted. The expected
    covariance of the paper (before eqn:ExpectedUncertaintyParam), with n_j the trajectories of phase j's main loop.

    Args:
        mdp: The problem.
        record: The `record` of run(..., record=True) on that problem.

    >>> import s4q
    >>> mdp = s4q.problems.low_rank()
    >>> learner, collector = s4q.S4Q(mdp, "realisable"), s4q.collectors.CountCollector(mdp, seed=0)
    >>> result = s4q.run(learner, collector, 10**4, record=True)
    >>> sums = expected_covariances(mdp, result.record)
    >>> sums.shape[1:], bool(sums[0].any()), len(sums) >= result.phases
    ((3, 1, 5, 5), False, True)
    """
    return np.stack(cumulative_grams(mdp, record)[:-1])


def cumulative_grams(mdp: FiniteMDP, record: Record) -> list[Array]:
    """sum over j <= p of n_j G_{pi_j} for p = 0, 1, ..., P: one more than `expected_covariances`."""
    sums = [np.zeros((mdp.horizon, *mdp.spec.gram_shape))]
    for phase in phases_of(mdp, record):
        sums.append(sums[-1] + phase.n_episodes * expected_grams(mdp, phase.q))
    return sums


def controllers(mdp: FiniteMDP, record: Record) -> Iterator[tuple[PhaseRecord, Array]]:
    """Every phase from the second on, with the occupancies (H, S, A) of the controller its fit was made with.

    That is the mixture of the earlier phases' policies with weights m_j / m_tot; phase 1 fits nothing.
    """
    total, n_total = np.zeros(mdp.rewards.shape), 0
    for phase in phases_of(mdp, record):
        if n_total:
            yield phase, total / n_total
        total = total + phase.n_episodes * mdp.occupancies(phase.q)
        n_total += phase.n_episodes


def phases_of(mdp: FiniteMDP, record: Record) -> tuple[PhaseRecord, ...]:
    """All phases that began, the unfinished one last; refuses a run that the exact quantities are not made for."""
    if not isinstance(record, Record):
        raise ValueError(f"record must be the `record` of a run(..., record=True); got {type(record).__name__}")
    require_kind("mdp", mdp, FiniteMDP, ", the one the run was played on")
    if record.constants.pool:
        raise ValueError("record is of a run with pooled steps, whose levels share one covariance; run with pool=False")
    theirs, ours = record.constants.spec, mdp.spec
    same = (theirs.horizon, theirs.n_actions, *theirs.gram_shape) == (ours.horizon, ours.n_actions, *ours.gram_shape)
    if not same:
        raise ValueError(f"record is of a run on a problem of other sizes than {mdp}; pass the one it was made on")
    return record.phases if record.unfinished is None else (*record.phases, record.unfinished)


def bellman_backup(mdp: FiniteMDP, h: int, v_next: ArrayLike) -> Array:
    """T_h V' = r_h + P_h V', (S, A), in rewards shifted to start at 0.

    Args:
        mdp: The problem.
        h: The level.
        v_next: V', the value (S,) of level h + 1. Entries at terminal states are not read: as in the regression targets
            of a learner, an episode that has ended is worth a known constant.

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
    When the ball excludes all free minimisers, the minimiser in it is unique and no tie is left. When it cuts through
    them, the tie is broken among those inside. Both are constrained least squares, solved by the secular equation.

    Args:
        mdp: The problem.
        controller: The policy whose data the fit is made with.
        h: The level.
        v_next: V', the value (S,) of level h + 1.
        radius: Of the ball; (n_blocks,) for a ball per block; infinite for none. None (default): `spec.radius[h]`.

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

    Args:
        mdp: The problem.
        controller: The policy whose data the fits are made with.
        q: Qtar, the learned Q whose next level is the target.
        radius: Of the balls: one number, one per level (H,) or one per level and block (H, n_blocks); infinite for no
            ball. None (default): `spec.radius`.

    >>> from s4q.core.policies import UniformPolicy
    >>> from s4q.problems import low_rank
    >>> mdp = low_rank()
    >>> bool(abs(comparator_errors(mdp, UniformPolicy(4), LinearQ.from_arrays(np.full((3, 1, 5), 0.3)))).max() < 1e-12)
    True
    """
    return errors_of_fits(mdp, mdp.occupancies(controller), next_values(mdp, q), radius)


def errors_of_fits(mdp: FiniteMDP, occupancies: Array, after: Array, radius: ArrayLike | None) -> Array:
    """The same from the controller's occupancies (H, S, A) and the next values (H, S)."""
    balls, errors = ball_radii(mdp.spec, radius), np.zeros(mdp.rewards.shape)
    for h in range(mdp.horizon):
        fit, backup = population_fit(mdp, occupancies, h), bellman_backup(mdp, h, after[h])
        theta = fit.solve(backup.ravel(), balls[h])
        errors[h] = backup - fit.predict(theta[:, :, None]).reshape(backup.shape)
    errors[:, mdp.terminal] = 0.0
    return errors


def bellman_errors(mdp: FiniteMDP, q: LinearQ) -> Array:
    """err_h = Q_h - T_h Q_{h+1} of a learned Q at every pair, (H, S, A); 0 at terminal states.

    Args:
        mdp: The problem.
        q: The learned Q.

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

    Args:
        mdp: The problem.
        restarts: The number of starting points of the search, for each level.
        seed: Of the search.
        tolerance: Residuals up to this size count as 0.

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
    rows = []
    for h in range(mdp.horizon):
        seen, bound = errors_everywhere(mdp, h), mdp.spec.next_bound(h)
        found = max(_search_closure(mdp, h, seen, rng) for _ in range(restarts)) if mdp.reachable[h].any() else 0.0
        errors = (seen.largest(0.0, bound), seen.merged(mdp, h).largest(0.0, bound), found)
        rows.append((*errors, *seen.largest_norm(0.0, bound)))
    low_rank, by_merging, closure, below, above = np.array(rows).T
    return Structure(low_rank, by_merging, closure, below, above, np.array(mdp.spec.radius), tolerance)


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
