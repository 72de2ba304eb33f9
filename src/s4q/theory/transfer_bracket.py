"""Brackets of the transfer error of Definitions 1 and 2: suprema that nobody can compute, between two numbers.

Both are the largest |sum_h E_pibar g_h| over all policies pibar, with g_h = phi . theta^{pi, V', h} - T_h V' the error
of the best fit under a controller pi. Definition 1: one controller, V' = max_a phi . theta' with theta' in the ball.
Definition 2: every controller and every V' with |V'| <= v. The lower end is attained by a witness that a search found.
The upper end is a proof, and its name says which. Shifted units, and the selection of `best_on_policy_fit`.
"""

from dataclasses import dataclass
from typing import Literal, final

import numpy as np
from numpy.typing import ArrayLike

from s4q.core.blocks import Array
from s4q.core.policies import Mixture, Policy
from s4q.core.validation import require_count
from s4q.problems import FiniteMDP
from s4q.theory.level_errors import LevelErrors, linear_errors, next_bound
from s4q.theory.structure import merged, radii
from s4q.theory.transfer_errors import upper_of_envelopes
from s4q.theory.transfer_search import (
    Fits,
    LinearTargets,
    Reached,
    ascend,
    first_controller,
    random_occupancies,
    search_controllers,
)

LowerFrom = Literal["search", "exact features"]
UpperFrom = Literal["exact features", "every pair at its worst", "trivial", "none"]
Values = Literal["printed", "shifted"]

_ROUNDING = 1e-9  # residuals below this share of the values count as 0


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
    balls, reach = radii(mdp, radius), radii(mdp, target_radius)
    if reach.ndim == 2 or not np.isfinite(reach).all():
        raise ValueError("target_radius must be finite: one number, or one per level (H,)")
    limits = np.array(mdp.spec.value_bound) if bounded else np.full(mdp.horizon, np.inf)
    largest = np.linalg.norm(mdp.features.vectors, axis=-1).max(axis=(1, 2)) * reach
    bounds = np.append(np.minimum(limits, largest)[1:], 0.0)
    if _exact(mdp, balls, -bounds, bounds, linear=True):
        return TransferBracket(0.0, 0.0, "exact features", "exact features", None)
    occupancies = mdp.occupancies(controller)
    fits = Fits(mdp, occupancies, balls, -bounds, bounds)
    rng, found = np.random.default_rng(np.random.SeedSequence(seed)), None
    for start in range(restarts):
        for sign in (1.0, -1.0):
            near = None if found is None or start % 2 == 0 else found.theta
            meets = random_occupancies(mdp, rng) if near is None else None
            reached = ascend(fits, sign, LinearTargets(mdp, reach, limits, rng, near), meets)
            found = reached if found is None or reached.size > found.size else found
    assert found is not None
    alike = [_alike(mdp, h, level) for h, level in enumerate(fits.levels)]
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
    balls, high = radii(mdp, radius), np.array([next_bound(mdp, h) for h in range(mdp.horizon)])
    low = -high if values == "printed" else np.zeros(mdp.horizon)
    if _exact(mdp, balls, low, high, linear=False):
        return TransferBracket(0.0, 0.0, "exact features", "exact features", None)
    rng = np.random.default_rng(np.random.SeedSequence(seed))
    best: tuple[Reached, Array] | None = None
    for start in range(restarts):
        found = search_controllers(mdp, first_controller(mdp, start, rng), balls, low, high, sweeps, rng)
        best = found if best is None or found[0].size > best[0].size else best
    assert best is not None
    reached, controller = best
    upper = upper_of_envelopes(mdp, None, balls, low, high)
    witness = TransferWitness(controller, None, reached.values, reached.comparator)
    return TransferBracket(reached.size, upper, "search", "trivial" if np.isfinite(upper) else "none", witness)


def _exact(mdp: FiniteMDP, balls: Array, low: Array, high: Array, *, linear: bool) -> bool:
    """Is T_h V' linear on reachable pairs with a parameter in the ball, for all V' of the boxes? Up to rounding.

    linear: only V' that the features can tell apart. Then every controller's fit has error 0: the true parameter is an
    on-policy minimiser, and the selection finds it.
    """
    everywhere = np.repeat(mdp.reachable[:, :, None], mdp.n_actions, axis=2).astype(np.float64)
    for h in range(mdp.horizon):
        level, here = linear_errors(mdp, everywhere, h), mdp.reachable[h]
        level = _alike(mdp, h, level) if linear else level
        seen = LevelErrors(level.base[here], level.slope[here], level.theta_base, level.theta_slope)
        scale = mdp.spec.reward_max - mdp.spec.reward_min + high[h]
        if seen.largest(low[h], high[h]).max(initial=0.0) > _ROUNDING * scale:
            return False
        if not seen.never_binds(balls[h], low[h], high[h]):
            return False
    return True


def _alike(mdp: FiniteMDP, h: int, level: LevelErrors) -> LevelErrors:
    """The same, with one entry of V' for all next states that no linear Q' tells apart."""
    return LevelErrors(level.base, merged(mdp, h, level.slope), level.theta_base, merged(mdp, h, level.theta_slope))
