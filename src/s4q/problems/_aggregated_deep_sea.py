"""DeepSea seen through features that cannot tell neighbouring columns apart."""

import numpy as np

from s4q.core.validation import require_count
from s4q.features import TableFeatures
from s4q.problems._deep_sea import deep_sea
from s4q.problems.finite_mdp import FiniteMDP


def aggregated_deep_sea(size: int = 10, group: int = 2, *, stochastic: bool = False, seed: int = 0) -> FiniteMDP:
    """`deep_sea` whose features are one-hot in (group of columns, action) instead of (column, action).

    Columns 0..group-1 share their features, then the next `group` columns, and so on; the last group may be smaller.
    Dynamics, rewards and value bound are those of `deep_sea`. Unless `group` is 1 the features are not exact: columns
    of one group differ in their values, and which action means right is drawn for each cell.

    Args:
        size: Depth and width of the sea.
        group: Number of neighbouring columns that share features. 1 is exact.
        stochastic: True if a right move fails with probability 1/size.
        seed: Seed of the actions.

    >>> mdp = aggregated_deep_sea(10)
    >>> mdp.dim, mdp.spec.well_specified, f"{mdp.v_star:.4f}"
    (10, False, '0.9900')
    """
    require_count("group", group, "the number of columns that share features")
    sea = deep_sea(size, stochastic=stochastic, seed=seed)
    blocks = np.arange(size)[:, None] // group * 2 + np.arange(2)
    shape = (size, size, 2)  # (H, S, A)
    features = TableFeatures(np.ones((*shape, 1)), np.broadcast_to(blocks, shape), int(blocks.max()) + 1)
    return FiniteMDP(
        sea.transitions,
        sea.rewards,
        sea.start,
        features,
        reward_range=(sea.spec.reward_min, sea.spec.reward_max),
        value_bound=1.0,
        reward_noise="none",
        well_specified=group == 1,
        layout=sea.layout,
    )
