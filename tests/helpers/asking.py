"""Requests and Q functions of tests, made of arrays whose first axis is the level."""

from typing import Any

import numpy as np

from s4q import LinearQ, Mixture
from s4q.core.messages import Regress
from s4q.core.optimism import QLevel


def regress_request(
    request_id: int, level: int, mixture: Mixture, q: LinearQ, n_episodes: int, pool: bool = False, done: int = 0
) -> Regress:
    """A Regress whose target is the level of q after `level`."""
    return Regress(request_id, level, mixture, after_level(q, level), n_episodes, pool, done)


def after_level(q: LinearQ, level: int) -> QLevel | None:
    """The level of q after `level`; None after the last."""
    return q.levels[level + 1] if level + 1 < q.horizon else None


def q_with_spread(
    theta: Any, whitener: Any, width: Any, clip: Any, second: Any = None, scale: Any = None, share: bool = False
) -> LinearQ:
    """A LinearQ with a width from the data too. share: one whitener.

    scale: noise, ceiling, ridge, kappa and lower_order of each level, (H, 5).
    """
    levels: list[QLevel] = []
    for h, row in enumerate(theta):
        numbers = [0.0] * 5 if scale is None else np.asarray(scale[h]).tolist()
        white = levels[0].whitener if share and levels else whitener[0 if share else h]
        squares = None if second is None else second[h]
        levels.append(QLevel(row, white, width[h], tuple(clip[h]), squares, *numbers))
    return LinearQ(levels)


def stacked(q: LinearQ, name: str) -> Any:
    """An array of all levels, the level first."""
    return np.stack([getattr(level, name) for level in q.levels])
