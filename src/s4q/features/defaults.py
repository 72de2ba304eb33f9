"""The features of an environment for which the user names none.

`Agent` calls it. It refuses spaces for which no default would work well, and says what to pass instead.
"""

from typing import Any

import numpy as np

from s4q.core.messages import FeatureMap
from s4q.features.fourier import Fourier
from s4q.features.one_hot import OneHot
from s4q.features.per_action import PerAction
from s4q.features.spaces import (
    AS_GOOD_AS_INFINITE,
    bounds_of,
    cure_of,
    gymnasium_spaces,
    n_actions_of,
    sizes_of,
)

MOST_PAIRS = 200_000  # (s, a): with more, no learner sees every pair often enough
MOST_DIMENSIONS = 4
MOST_TERMS = 81  # of a Fourier basis: order 15, 8, 3, 2 in 1, 2, 3, 4 dimensions
HIGHEST_ORDER = 15


def default_features(observation_space: Any, action_space: Any) -> FeatureMap:
    """One-hot for whole numbers; a Fourier basis per action for a Box of at most 4 dimensions with finite bounds.

    Args:
        observation_space: A Gymnasium Discrete, MultiDiscrete, MultiBinary or Box.
        action_space: A Discrete. Action i is the environment's `action_space.start + i`.

    >>> from gymnasium.spaces import Box, Discrete
    >>> default_features(Discrete(16), Discrete(4)).n_blocks
    64
    >>> default_features(Box(0, 1, (2,)), Discrete(3)).block_dim
    81
    """
    spaces = gymnasium_spaces()
    n_actions = n_actions_of(action_space)
    if isinstance(observation_space, (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)):
        sizes, _ = sizes_of(observation_space)
        pairs = float(np.prod(sizes, dtype=np.float64)) * n_actions
        if pairs > MOST_PAIRS:
            raise ValueError(
                f"observation_space {observation_space} has {pairs:.3g} pairs of state and action, too many to learn "
                f"one by one (the default stops at {MOST_PAIRS}); group states, or share between them with "
                "features.Dense or features.FunctionFeatures (features.OneHot takes more pairs if you insist)"
            )
        return OneHot(observation_space, n_actions)
    if isinstance(observation_space, spaces.Box):
        return PerAction(_fourier(observation_space, n_actions), n_actions)
    raise ValueError(
        f"there are no default features for the observation space {observation_space}; {cure_of(observation_space)}, "
        "or pass features=..."
    )


def _fourier(space: Any, n_actions: int) -> Fourier:
    low, high = bounds_of(space)
    if not 1 <= len(low) <= MOST_DIMENSIONS:
        raise ValueError(
            f"default features go up to {MOST_DIMENSIONS} dimensions; the observation space has {len(low)}; pass "
            f"features such as features.PerAction(features.RandomFourier(space, dim=129, width=0.5), {n_actions})"
        )
    wide = np.flatnonzero(~(np.maximum(np.abs(low), np.abs(high)) < AS_GOOD_AS_INFINITE))
    order = _order(len(low))
    if len(wide):
        raise ValueError(
            f"the observation space has no finite bounds in dimension {', '.join(map(str, wide.tolist()))}, and ranges "
            "are never guessed from data; declare them, and pass features=features.PerAction(features.Fourier("
            f"low=[...], high=[...], order={order}, clip=True), {n_actions})"
        )
    return Fourier(space, order=order)


def _order(dim: int) -> int:
    """The highest order with at most MOST_TERMS terms."""
    return max(order for order in range(1, HIGHEST_ORDER + 1) if (order + 1) ** dim <= MOST_TERMS)
