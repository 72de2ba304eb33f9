"""Transfer error: how wrong the best on-policy fits are under other policies.

Let g_h = phi . theta^{pi, V', h} - T_h V' be the error of the best fit under a controller pi on next values V'. The
transfer error is the largest |sum over levels of E_pibar g_h|: signed, in expectation, over policies pibar. For a given
controller and given values it is exact. Definitions 1 and 2 of the paper take suprema that nobody can compute; they are
bracketed. Users call this module. Shifted units, and the selection of `best_on_policy_fit` throughout.
"""

from dataclasses import dataclass
from typing import Literal, final

import numpy as np
from numpy.typing import ArrayLike

from s4q.core.blocks import Array
from s4q.core.linear_q import LinearQ
from s4q.core.policies import Mixture, Policy
from s4q.core.spec import ball_radii
from s4q.core.validation import finite_array, require_count, require_shape
from s4q.learners.main_loop import Record
from s4q.problems import FiniteMDP
from s4q.theory import definitions
from s4q.theory import transfer_search as search
from s4q.theory.definitions import best_return, expected_sum, next_values
from s4q.theory.population_fits import LevelErrors, errors_everywhere, linear_errors

LowerFrom = Literal["search", "exact features"]
UpperFrom = Literal["exact features", "every pair at its worst", "trivial", "none"]
Values = Literal["printed", "shifted"]

_ROUNDING = 1e-9  # residuals below this share of the values count as 0


def transfer_error(
    mdp: FiniteMDP, controller: Policy | Mixture, target: LinearQ | ArrayLike, radius: ArrayLike | None = None
) -> float:
    """The largest |sum_h E_pibar g_h| over all policies pibar, for one controller and one target: exact, two DPs.

    Args:
        mdp: The problem.
        controller: The policy whose data the fits are made with.
        target: A LinearQ, or next values (H, S) whose row h is what level h sees; the last row must be 0.
        radius: Of the balls that the fits lie in: as in `comparator_errors`. None (default): `spec.radius`.

    >>> from s4q.core.policies import UniformPolicy
    >>> from s4q.problems import low_rank
    >>> mdp = low_rank()
    >>> transfer_error(mdp, UniformPolicy(4), LinearQ.from_arrays(np.full((3, 1, 5), 0.3))) < 1e-12
    True
    """
    after = next_values(mdp, target) if isinstance(target, LinearQ) else _checked_values(mdp, target)
    return _sup_over_policies(mdp, definitions.errors_of_fits(mdp, mdp.occupancies(controller), after, radius))


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
    """The transfer error of every phase from the second on (the first fits nothing), in the balls of the run.

    Args:
        mdp: The problem.
        record: The `record` of run(..., record=True) on that problem.
    """
    definitions.phases_of(mdp, record)  # refuses what is no record of this problem
    best, balls, found = definitions.optimal_occupancies(mdp), record.constants.radius(), []
    for phase, occupancies in definitions.controllers(mdp, record):
        errors = definitions.errors_of_fits(mdp, occupancies, next_values(mdp, phase.q), balls)
        optimal, own = (abs(expected_sum(meets, errors)) for meets in (best, mdp.occupancies(phase.q)))
        found.append(PhaseTransfer(phase.phase, optimal, own, _sup_over_policies(mdp, errors)))
    return found


def transfer_error_realised(mdp: FiniteMDP, record: Record) -> float:
    """The transfer error that a run's guarantee needs: its own controllers and targets, under pi* and pi^(p) only.

    Args:
        mdp: The problem.
        record: The `record` of run(..., record=True) on that problem.

    >>> import s4q
    >>> mdp = s4q.problems.low_rank()
    >>> learner, collector = s4q.S4Q(mdp, "realisable"), s4q.collectors.CountCollector(mdp, seed=0)
    >>> transfer_error_realised(mdp, s4q.run(learner, collector, 10**4, record=True).record) < 1e-8  # exact
    True
    """
    return max((phase.realised for phase in phase_transfers(mdp, record)), default=0.0)


def transfer_error_runs(mdp: FiniteMDP, record: Record) -> float:
    """The transfer error of a run's own controllers and targets under all policies: exact, two DPs a phase.

    Args:
        mdp: The problem.
        record: The `record` of run(..., record=True) on that problem.
    """
    return max((phase.worst for phase in phase_transfers(mdp, record)), default=0.0)


def transfer_error_search(
    mdp: FiniteMDP, controller: Policy | Mixture, restarts: int = 10, seed: int = 0, radius: ArrayLike | None = None
) -> float:
    """A lower bound on the transfer error of a controller over all V' with |V'| <= v and all policies.

    Args:
        mdp: The problem.
        controller: The policy whose data the fits are made with.
        restarts: The number of starting points of the search.
        seed: Of the search.
        radius: Of the balls that the fits lie in: as in `comparator_errors`. None (default): `spec.radius`.

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
    bounds = _next_bounds(mdp)
    fits = search.Fits(mdp, mdp.occupancies(controller), np.full(mdp.horizon, np.inf), -bounds, bounds)
    rng = np.random.default_rng(np.random.SeedSequence(seed))
    starts = bounds[:, None] * rng.choice([-1.0, 1.0], size=(restarts, mdp.horizon, mdp.n_states))
    found = []
    for start in starts:
        for sign in (1.0, -1.0):
            targets = search.AllTargets(fits, rng, start)
            search.ascend(fits, sign, targets)
            found.append(targets.values())
    return found


def transfer_error_upper(mdp: FiniteMDP, controller: Policy | Mixture, radius: ArrayLike | None = None) -> float:
    """An upper bound on the transfer error of a controller over all V' with |V'| <= v and all policies: two DPs.

    Every pair meets its own worst V'. At levels where the ball may bind, fits are not linear in V'; only |phi . theta|
    <= radius |phi| is used there, which is valid but crude.

    Args:
        mdp: The problem.
        controller: The policy whose data the fits are made with.
        radius: Of the balls that the fits lie in: as in `comparator_errors`. None (default): `spec.radius`.

    >>> from s4q.core.policies import UniformPolicy
    >>> from s4q.problems import low_rank
    >>> transfer_error_upper(low_rank(), UniformPolicy(4)) < 1e-12
    True
    """
    occupancies, balls = mdp.occupancies(controller), ball_radii(mdp.spec, radius)
    levels = [linear_errors(mdp, occupancies, h) for h in range(mdp.horizon)]
    bounds = _next_bounds(mdp)
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
            lowest[h], highest[h] = levels[h].extremes(low[h], high[h])
            continue
        reach = np.linalg.norm(mdp.features.vectors[h], axis=-1)
        reach = reach * (balls[h] if balls.ndim == 1 else balls[h][mdp.features.blocks[h]])
        ended = mdp.transitions[h][..., mdp.terminal].sum(axis=-1)
        backup = mdp.rewards[h] - mdp.spec.reward_min + ended * mdp.spec.ended_value(h)
        highest[h], lowest[h] = reach - backup - (1.0 - ended) * low[h], -reach - backup - (1.0 - ended) * high[h]
    highest[:, mdp.terminal] = lowest[:, mdp.terminal] = 0.0
    return max(best_return(mdp, highest), best_return(mdp, -lowest))


def _sup_over_policies(mdp: FiniteMDP, errors: Array) -> float:
    """The largest |sum_h E_pibar errors_h| over all policies."""
    return max(best_return(mdp, errors), best_return(mdp, -errors))


def _checked_values(mdp: FiniteMDP, values: ArrayLike) -> Array:
    after = finite_array("target", values)
    require_shape("target", after, (mdp.horizon, mdp.n_states), "(H, S)")
    if after[-1].any():
        raise ValueError("target must be 0 in its last row: nothing comes after the last level")
    return after


def _next_bounds(mdp: FiniteMDP) -> Array:
    """v_{h+1} of every level, (H,)."""
    return np.array([mdp.spec.next_bound(h) for h in range(mdp.horizon)])


@final
@dataclass(frozen=True, eq=False, slots=True)
class TransferWitness:
    """What attains a lower bound: `transfer_error` of this controller and these values is that number."""

    controller: Array | None  # action probabilities (H, S, A); None: the one that was given
    theta: Array | None  # of Q', (H, n_blocks, k), row h for level h; None where Q' need not be linear
    values: Array  # V' as each level sees it, (H, S); the last row is 0
    comparator: Array  # the policy pibar that meets the error, (H, S, A)


@final
@dataclass(frozen=True, eq=False, slots=True)
class TransferBracket:
    """lower <= transfer error <= upper, and where each end comes from.

    lower_from "search": `witness` attains it. "exact features": it is 0 because the upper end is, and no witness is
    needed. upper_from "exact features": every backup is linear and its parameter lies in the ball, checked numerically,
    so the error is 0. "every pair at its worst": each pair meets its own worst V', two dynamic programs. "trivial":
    only |phi . theta| <= radius |phi| and the range of T_h V' are used. "none": without a ball nothing is known.
    """

    lower: float
    upper: float
    lower_from: LowerFrom
    upper_from: UpperFrom
    witness: TransferWitness | None


def transfer_error_definition1(
    mdp: FiniteMDP,
    controller: Policy | Mixture,
    *,
    restarts: int = 10,
    seed: int = 0,
    radius: ArrayLike | None = None,
    target_radius: ArrayLike | None = None,
    bounded: bool = True,
) -> TransferBracket:
    """A bracket of Definition 1: the given controller, all linear Q' with theta' in the ball, all policies.

    In the paper the ball is so small that linear Q' are bounded by 1. Here a ball may allow more than the value bound.
    So that linear Q' are still among the bounded ones, those that leave |Q'| <= v at a reachable pair are left out.

    Args:
        mdp: The problem.
        controller: The policy whose data the fits are made with.
        restarts: The number of starting points of the search.
        seed: Of the search.
        radius: Of the balls that the fits lie in: as in `comparator_errors`, default `spec.radius`.
        target_radius: Of the ball of theta', one number or one per level (H,); default `spec.radius`.
        bounded: False keeps all of the ball, values beyond the value bound included.

    >>> import s4q
    >>> found = transfer_error_definition1(s4q.problems.low_rank(), s4q.UniformPolicy(4))
    >>> found.lower, found.upper, found.upper_from
    (0.0, 0.0, 'exact features')
    """
    require_count("restarts", restarts, "the number of starting points")
    balls, reach = ball_radii(mdp.spec, radius), ball_radii(mdp.spec, target_radius)
    if reach.ndim == 2 or not np.isfinite(reach).all():
        raise ValueError("target_radius must be finite: one number, or one per level (H,)")
    limits = np.array(mdp.spec.value_bound) if bounded else np.full(mdp.horizon, np.inf)
    largest = np.linalg.norm(mdp.features.vectors, axis=-1).max(axis=(1, 2)) * reach
    bounds = np.append(np.minimum(limits, largest)[1:], 0.0)
    if _exact(mdp, balls, -bounds, bounds, linear=True):
        return TransferBracket(0.0, 0.0, "exact features", "exact features", None)
    occupancies = mdp.occupancies(controller)
    fits = search.Fits(mdp, occupancies, balls, -bounds, bounds)
    rng, found = np.random.default_rng(np.random.SeedSequence(seed)), None
    for start in range(restarts):
        for sign in (1.0, -1.0):
            near = None if found is None or start % 2 == 0 else found.theta
            meets = search.random_occupancies(mdp, rng) if near is None else None
            reached = search.ascend(fits, sign, search.LinearTargets(mdp, reach, limits, rng, near), meets)
            found = reached if found is None or reached.size > found.size else found
    assert found is not None
    alike = [level.merged(mdp, h) for h, level in enumerate(fits.levels)]
    upper, trivial = (upper_of_envelopes(mdp, levels, balls, -bounds, bounds) for levels in (alike, None))
    upper_from: UpperFrom = "none" if np.isinf(upper) else "every pair at its worst" if upper < trivial else "trivial"
    witness = TransferWitness(None, found.theta, found.values, found.comparator)
    return TransferBracket(found.size, min(upper, trivial), "search", upper_from, witness)


def transfer_error_definition2(
    mdp: FiniteMDP,
    *,
    restarts: int = 4,
    seed: int = 0,
    sweeps: int = 3,
    radius: ArrayLike | None = None,
    values: Values = "printed",
) -> TransferBracket:
    """A bracket of Definition 2: all controllers, all bounded Q', all policies.

    The search starts from the uniform policy, an optimal one and random ones, and moves one action probability of the
    controller at a time.

    Args:
        mdp: The problem.
        restarts: The number of starting controllers.
        seed: Of the search.
        sweeps: How often, at most, all action probabilities of a controller are tried; one try is H fits.
        radius: Of the balls that the fits lie in: as in `comparator_errors`, default `spec.radius`.
        values: "printed": |Q'| <= v. "shifted": 0 <= Q' <= v, all that a learner with exact features ever fits.

    >>> import s4q
    >>> found = transfer_error_definition2(s4q.problems.low_rank())
    >>> found.lower, found.upper, found.upper_from
    (0.0, 0.0, 'exact features')
    """
    require_count("restarts", restarts, "the number of starting controllers")
    require_count("sweeps", sweeps, "the number of passes over a controller", at_least=0)
    if values not in ("printed", "shifted"):
        raise ValueError(f'values must be "printed" or "shifted"; got {values!r}')
    balls, high = ball_radii(mdp.spec, radius), _next_bounds(mdp)
    low = -high if values == "printed" else np.zeros(mdp.horizon)
    if _exact(mdp, balls, low, high, linear=False):
        return TransferBracket(0.0, 0.0, "exact features", "exact features", None)
    rng = np.random.default_rng(np.random.SeedSequence(seed))
    controllers = (search.first_controller(mdp, start, rng) for start in range(restarts))
    searches = (search.search_controllers(mdp, first, balls, low, high, sweeps, rng) for first in controllers)
    reached, controller = max(searches, key=lambda found: found[0].size)
    upper = upper_of_envelopes(mdp, None, balls, low, high)
    witness = TransferWitness(controller, None, reached.values, reached.comparator)
    return TransferBracket(reached.size, upper, "search", "trivial" if np.isfinite(upper) else "none", witness)


def _exact(mdp: FiniteMDP, balls: Array, low: Array, high: Array, *, linear: bool) -> bool:
    """Is T_h V' linear on reachable pairs with a parameter in the ball, for all V' of the boxes? Up to rounding.

    linear: only V' that the features can tell apart. Then every controller's fit has error 0: the true parameter is an
    on-policy minimiser, and the selection finds it.
    """
    for h in range(mdp.horizon):
        seen = errors_everywhere(mdp, h)
        seen = seen.merged(mdp, h) if linear else seen
        scale = mdp.spec.reward_max - mdp.spec.reward_min + high[h]
        if seen.largest(low[h], high[h]) > _ROUNDING * scale or not seen.never_binds(balls[h], low[h], high[h]):
            return False
    return True
