"""Transfer error of given controllers: how wrong the best on-policy fits are under other policies.

Given a controller pi and next values V', let g_h = phi . theta^{pi, V', h} - T_h V' be the error of the best fit. The
transfer error is the largest |sum over levels of E_pibar g_h|: signed, in expectation, over policies pibar. Here the
controller is given or that of a run, and V' is given, that of a run, or any with |V'| <= v. The suprema of Definitions
1 and 2 are in `transfer_bracket`. Shifted units, and the selection of `best_on_policy_fit` throughout.
"""

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import ArrayLike

from s4q.core.blocks import Array
from s4q.core.linear_q import LinearQ
from s4q.core.policies import Mixture, Policy
from s4q.core.validation import finite_array, require_count, require_shape
from s4q.learners.main_loop import Record
from s4q.problems import FiniteMDP, planning
from s4q.theory.bounds import expected_sum
from s4q.theory.covariance import controllers, optimal_occupancies, phases_of
from s4q.theory.level_errors import LevelErrors, linear_errors, next_bound
from s4q.theory.structure import errors_of_fits, next_values, radii


def transfer_error(
    mdp: FiniteMDP, controller: Policy | Mixture, target: LinearQ | ArrayLike, radius: ArrayLike | None = None
) -> float:
    """The largest |sum_h E_pibar g_h| over all policies pibar, for one controller and one target: exact, two DPs.

    target: a LinearQ, or next values (H, S) whose row h is what level h sees (the last row must be 0). radius: as in
    `comparator_errors`.

    >>> from s4q.core.policies import UniformPolicy
    >>> from s4q.problems import low_rank
    >>> mdp = low_rank()
    >>> transfer_error(mdp, UniformPolicy(4), LinearQ.from_arrays(np.full((3, 1, 5), 0.3))) < 1e-12
    True
    """
    after = next_values(mdp, target) if isinstance(target, LinearQ) else _checked_values(mdp, target)
    return _sup_over_policies(mdp, errors_of_fits(mdp, mdp.occupancies(controller), after, radius))


@final
@dataclass(frozen=True, slots=True)
class PhaseTransfer:
    """|sum_h E g_h| of one phase's controller and target, under three choices of the policy that meets the error."""

    phase: int
    optimal: float  # under pi*
    own: float  # under the phase's own greedy policy
    worst: float  # the largest over all policies

    @property
    def realised(self) -> float:
        """What the regret proof pays: the larger of the two policies that it looks at."""
        return max(self.optimal, self.own)


def phase_transfers(mdp: FiniteMDP, record: Record) -> list[PhaseTransfer]:
    """The transfer error of every phase from the second on (the first fits nothing), in the balls of the run."""
    phases_of(mdp, record)  # refuses what is no record of this problem
    best, balls, found = optimal_occupancies(mdp), record.constants.radius(), []
    for phase, occupancies in controllers(mdp, record):
        errors = errors_of_fits(mdp, occupancies, next_values(mdp, phase.q), balls)
        optimal, own = (abs(expected_sum(meets, errors)) for meets in (best, mdp.occupancies(phase.q)))
        found.append(PhaseTransfer(phase.phase, optimal, own, _sup_over_policies(mdp, errors)))
    return found


def transfer_error_realised(mdp: FiniteMDP, record: Record) -> float:
    """The transfer error that a run's guarantee needs: its own controllers and targets, under pi* and pi^(p) only.

    >>> import s4q
    >>> mdp = s4q.problems.low_rank()
    >>> learner, collector = s4q.S4Q(mdp, "realisable"), s4q.collectors.CountCollector(mdp, seed=0)
    >>> transfer_error_realised(mdp, s4q.run(learner, collector, 10**4, record=True).record) < 1e-8  # exact
    True
    """
    return max((phase.realised for phase in phase_transfers(mdp, record)), default=0.0)


def transfer_error_runs(mdp: FiniteMDP, record: Record) -> float:
    """The same under all policies: exact, two DPs a phase."""
    return max((phase.worst for phase in phase_transfers(mdp, record)), default=0.0)


def transfer_error_search(
    mdp: FiniteMDP, controller: Policy | Mixture, restarts: int = 10, seed: int = 0, radius: ArrayLike | None = None
) -> float:
    """A lower bound on the transfer error of a controller over all V' with |V'| <= v and all policies.

    >>> from s4q.core.policies import UniformPolicy
    >>> from s4q.problems import low_rank
    >>> transfer_error_search(low_rank(), UniformPolicy(4)) < 1e-12
    True
    """
    targets = worst_values(mdp, controller, restarts, seed)
    return max(transfer_error(mdp, controller, target, radius) for target in targets)


def worst_values(mdp: FiniteMDP, controller: Policy | Mixture, restarts: int = 10, seed: int = 0) -> list[Array]:
    """Next values (H, S) that an alternating search ends in, balls left aside; one per restart and sign.

    For a fixed policy the worst V' is a corner of the box, for a fixed V' the worst policy is a DP: each step improves.
    """
    require_count("restarts", restarts, "the number of starting points")
    occupancies = mdp.occupancies(controller)
    levels = [linear_errors(mdp, occupancies, h) for h in range(mdp.horizon)]
    bounds = np.array([next_bound(mdp, h) for h in range(mdp.horizon)])
    rng = np.random.default_rng(np.random.SeedSequence(seed))
    starts = bounds[:, None] * rng.choice([-1.0, 1.0], size=(restarts, mdp.horizon, mdp.n_states))
    return [_ascend(mdp, levels, bounds, start, sign) for start in starts for sign in (1.0, -1.0)]


def transfer_error_upper(mdp: FiniteMDP, controller: Policy | Mixture, radius: ArrayLike | None = None) -> float:
    """An upper bound on the transfer error of a controller over all V' with |V'| <= v and all policies: two DPs.

    Every pair meets its own worst V'. At levels where the ball may bind, fits are not linear in V'; only |phi . theta|
    <= radius |phi| is used there, which is valid but crude.

    >>> from s4q.core.policies import UniformPolicy
    >>> from s4q.problems import low_rank
    >>> transfer_error_upper(low_rank(), UniformPolicy(4)) < 1e-12
    True
    """
    occupancies, balls = mdp.occupancies(controller), radii(mdp, radius)
    levels = [linear_errors(mdp, occupancies, h) for h in range(mdp.horizon)]
    bounds = np.array([next_bound(mdp, h) for h in range(mdp.horizon)])
    return upper_of_envelopes(mdp, levels, balls, -bounds, bounds)


def upper_of_envelopes(
    mdp: FiniteMDP, levels: list[LevelErrors] | None, balls: Array, low: Array, high: Array
) -> float:
    """A bound on |sum_h E g_h| for all V'_h in [low_h, high_h] and all policies: every pair meets its own worst V'.

    levels: the errors of free fits, used where the ball never binds; None for fits under an unknown controller, of
    which only |phi . theta| <= radius |phi| is known. low, high (H,). Infinite where nothing is known.
    """
    highest, lowest = np.zeros(mdp.rewards.shape), np.zeros(mdp.rewards.shape)
    for h in range(mdp.horizon):
        linear = levels is not None and levels[h].never_binds(balls[h], low[h], high[h])
        if not linear and not np.isfinite(balls[h]).all():
            return float("inf")
        if linear and levels is not None:
            highest[h], lowest[h] = levels[h].highest(low[h], high[h]), levels[h].lowest(low[h], high[h])
            continue
        reach = np.linalg.norm(mdp.features.vectors[h], axis=-1)
        reach = reach * (balls[h] if balls.ndim == 1 else balls[h][mdp.features.blocks[h]])
        ended = mdp.transitions[h][..., mdp.terminal].sum(axis=-1)
        backup = mdp.rewards[h] - mdp.spec.reward_min + ended * mdp.spec.ended_value(h)
        highest[h], lowest[h] = reach - backup - (1.0 - ended) * low[h], -reach - backup - (1.0 - ended) * high[h]
    highest[:, mdp.terminal] = lowest[:, mdp.terminal] = 0.0
    return max(best_return(mdp, highest), best_return(mdp, -lowest))


def _ascend(mdp: FiniteMDP, levels: list[LevelErrors], bounds: Array, start: Array, sign: float) -> Array:
    """Alternate between the worst policy and the worst V' (H, S) until nothing grows."""
    values, reached = start, -np.inf
    while True:
        errors = sign * np.stack([level.at(after) for level, after in zip(levels, values, strict=True)])
        q = planning.optimal_values(mdp.transitions, errors)
        size = float(mdp.start @ q[0].max(axis=-1))
        if size <= reached + 1e-12 * (1.0 + abs(size)):
            return np.asarray(values)
        reached = size
        meets = planning.occupancies(mdp.transitions, mdp.start, planning.greedy(q))
        weights = np.stack([np.einsum("sa,sat->t", m, level.slope) for m, level in zip(meets, levels, strict=True)])
        values = bounds[:, None] * np.where(sign * weights >= 0, 1.0, -1.0)


def _sup_over_policies(mdp: FiniteMDP, errors: Array) -> float:
    """The largest |sum_h E_pibar errors_h| over all policies."""
    return max(best_return(mdp, errors), best_return(mdp, -errors))


def best_return(mdp: FiniteMDP, rewards: Array) -> float:
    return float(mdp.start @ planning.optimal_values(mdp.transitions, rewards)[0].max(axis=-1))


def _checked_values(mdp: FiniteMDP, values: ArrayLike) -> Array:
    after = finite_array("target", values)
    require_shape("target", after, (mdp.horizon, mdp.n_states), "(H, S)")
    if after[-1].any():
        raise ValueError("target must be 0 in its last row: nothing comes after the last level")
    return after
