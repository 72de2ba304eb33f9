"""The features of an environment for which the user names none.

`Agent` calls it. Few features come first, because a learner needs several episodes for each of them: the budgets are
MOST_TERMS features per action for real numbers, and MOST_PAIRS pairs of whole-number state and action. Spaces for which
no default would work well are refused, with what to pass instead.
"""

from math import comb, prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from s4q.core.blocks import Array
from s4q.core.messages import FeatureMap
from s4q.core.validation import finite_array
from s4q.features.fourier import Fourier
from s4q.features.layout import Layout, bounds_of_parts
from s4q.features.mixed import Mixed
from s4q.features.one_hot import OneHot
from s4q.features.per_action import PerAction
from s4q.features.spaces import AS_GOOD_AS_INFINITE, gymnasium_spaces, n_actions_of
from s4q.features.unmeasured import Unmeasured

MOST_PAIRS = 200_000  # (s, a): with more, no learner sees every pair often enough
MOST_DIMENSIONS = 8
MOST_TERMS = 80  # features per action of a Box: a stated budget
MOST_FEATURES = 20_000  # of a mixture, over all its blocks
ORDERS = {1: 5, 2: 3, 3: 3, 4: 1}  # of the whole basis, by dimension
ORDERS_OF_PAIRS = {5: 2, 6: 2, 7: 1, 8: 1}  # of single dimensions and pairs of them


def default_features(
    observation_space: Any,
    action_space: Any,
    *,
    low: ArrayLike | None = None,
    high: ArrayLike | None = None,
) -> FeatureMap:
    """One-hot for whole numbers, a small Fourier basis per action for at most 8 real numbers, both for mixtures.

    The order of the basis is 5, 3, 3, 1 in 1, 2, 3, 4 dimensions (6, 16, 64, 16 features per action). In 5 to 8
    dimensions only single dimensions and pairs of them are there, of order 2, 2, 1, 1 (51, 73, 29, 37 features per
    action); of order 1 in a mixture that would have more than 20,000 features in all. Real numbers without finite
    bounds make `Unmeasured` features, whose ranges the first `Agent.learn` measures.

    Args:
        observation_space: A Gymnasium space of arrays and whole numbers: Discrete, MultiDiscrete, MultiBinary, Box, and
            Dict and Tuple of them.
        action_space: A Discrete, MultiDiscrete or MultiBinary. Actions are numbered from 0.
        low: Lower ends of the real numbers, where they are known to be narrower than the space. None (default): those
            of the space.
        high: Upper ends, likewise.

    >>> from gymnasium.spaces import Box, Dict, Discrete
    >>> default_features(Discrete(16), Discrete(4)).n_blocks
    64
    >>> default_features(Box(0, 1, (2,)), Discrete(3)).block_dim
    16
    >>> mixture = default_features(Dict({"at": Box(0, 1, (2,)), "key": Discrete(2)}), Discrete(3))
    >>> mixture.n_blocks, mixture.block_dim
    (6, 16)
    """
    n_actions = n_actions_of(action_space)
    layout = Layout.of(observation_space)
    pairs = prod(layout.sizes) * n_actions
    if pairs > MOST_PAIRS:
        raise ValueError(
            f"observation_space {observation_space} has {pairs:.3g} pairs of state and action, too many to learn "
            f"one by one (the default stops at {MOST_PAIRS}); group states, or share between them with "
            "features.Dense or features.FunctionFeatures (features.OneHot takes more pairs if you insist)"
        )
    if layout.dim == 0:
        return Mixed(layout, n_actions) if layout.has_parts else OneHot(observation_space, n_actions)
    order, interactions = _require_few(layout, pairs, n_actions, observation_space)
    lows, highs = _bounds(observation_space, low, high)
    declared = low is not None or high is not None
    if not (np.isfinite(lows).all() and np.isfinite(highs).all()):
        return Unmeasured(layout, n_actions, lows, highs, order, interactions)
    basis = Fourier(low=lows, high=highs, order=order, interactions=interactions, clip=declared)
    return Mixed(layout, n_actions, basis) if layout.has_parts else PerAction(basis, n_actions)


def basis_for(dim: int) -> tuple[int, int | None]:
    """Order and interactions of the default Fourier basis of so many real numbers.

    >>> basis_for(2), basis_for(6)
    ((3, None), (2, 2))
    """
    return (ORDERS[dim], None) if dim in ORDERS else (ORDERS_OF_PAIRS[dim], 2)


def _require_few(layout: Layout, pairs: int, n_actions: int, space: Any) -> tuple[int, int | None]:
    """Order and interactions; a Box of many dimensions, and a mixture with too many features in all, are refused."""
    dim = layout.dim
    if dim > MOST_DIMENSIONS:
        what = "an image" if _is_image(space) else f"{dim} real numbers"
        raise ValueError(
            f"default features go up to {MOST_DIMENSIONS} dimensions; the observation space {space} is {what}; pass "
            f"features such as features.PerAction(features.RandomFourier(space, dim=129, width=0.5), {n_actions}), or "
            "a map of yours that makes a few numbers of an observation (features.FunctionFeatures)"
        )
    order, interactions = basis_for(dim)
    if interactions is not None and pairs * _terms(dim, order, interactions) > MOST_FEATURES:
        order = 1  # many combinations of whole numbers: coarser, but not refused
    terms = _terms(dim, order, interactions)
    if pairs * terms > MOST_FEATURES:
        raise ValueError(
            f"observation_space {space} has {pairs} combinations of whole numbers and actions, each with {terms} "
            f"features of its {dim} real numbers: more than {MOST_FEATURES}; group the whole numbers, or pass "
            "features=features.FunctionFeatures(...)"
        )
    return order, interactions


def _terms(dim: int, order: int, interactions: int | None) -> int:
    """Features per action and combination of whole numbers."""
    return (order + 1) ** dim if interactions is None else 1 + dim * order + comb(dim, 2) * order**2


def _is_image(space: Any) -> bool:
    return isinstance(space, gymnasium_spaces().Box) and len(space.shape) >= 2 and space.dtype == np.uint8


def _bounds(space: Any, low: ArrayLike | None, high: ArrayLike | None) -> tuple[Array, Array]:
    """The bounds of the space, or the declared ones; infinite where there are none worth the name."""
    lows, highs = bounds_of_parts(space)
    for name, given, bounds in (("low", low, lows), ("high", high, highs)):
        if given is not None:
            numbers = np.array(given, dtype=np.float64)
            finite_array(name, np.where(np.isinf(numbers), 0.0, numbers))
            if numbers.shape != bounds.shape:
                raise ValueError(f"{name} must have one number per dimension, {len(bounds)}; got {numbers.shape}")
            bounds[:] = numbers
    lows[~(np.abs(lows) < AS_GOOD_AS_INFINITE)] = -np.inf
    highs[~(np.abs(highs) < AS_GOOD_AS_INFINITE)] = np.inf
    return lows, highs
