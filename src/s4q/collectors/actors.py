"""Actors: a policy's action at one state, fast. A greedy action is worked out in plain floats, action by action."""

from bisect import bisect_right
from collections.abc import Callable
from math import sqrt
from typing import Any, final

import numpy as np

from s4q.blocks import Array, Phi
from s4q.checks import require_probabilities, require_shape
from s4q.collectors.dice import EpisodeDice
from s4q.collectors.draws import cumulative
from s4q.collectors.looks import Look
from s4q.linear_q import LinearQ
from s4q.optimism import QLevel
from s4q.policies import Policy

Actor = Callable[[int, Any, Look, EpisodeDice], int]

_MOST_REMEMBERED = 2**14


def actor_of(policy: Policy) -> Actor:
    """Who acts for a policy: (level, observation, look, dice) -> action."""
    return GreedyActor(policy) if isinstance(policy, LinearQ) else DrawingActor(policy)


@final
class GreedyActor:
    """The greedy action of a LinearQ at one state: `LinearQ.greedy` without the cost of arrays of one row.

    >>> q = LinearQ(theta=np.array([[[1.0], [2.0]]]))
    >>> look = Look(np.ones((2, 1)), np.array([0, 1]))
    >>> GreedyActor(q)(0, None, look, EpisodeDice(0, 0, 0, horizon=1))
    1
    """

    def __init__(self, policy: LinearQ) -> None:
        self._levels = [policy.level(h) for h in range(policy.horizon)]
        self._in_order = list(range(policy.theta.shape[1]))  # blocks of the actions, where nothing is to be looked up
        self._known: dict[tuple[int, int], int] = {}

    def __call__(self, h: int, observation: Any, look: Look, dice: EpisodeDice) -> int:
        del observation, dice
        if look.key is None:
            return self._best(h, look)
        action = self._known.get((h, look.key))
        if action is None:
            action = self._best(h, look)
            if len(self._known) >= _MOST_REMEMBERED:
                self._known.clear()
            self._known[h, look.key] = action
        return action

    def _best(self, h: int, look: Look) -> int:
        values = self._values(self._levels[h], look)
        return values.index(max(values))  # exact ties go to the lowest

    def _values(self, level: QLevel, look: Look) -> list[float]:
        """`optimism.optimistic` of one state."""
        vectors, blocks = look.vectors, look.blocks
        everywhere = blocks.tolist() == self._in_order
        linear = np.vecdot(level.theta if everywhere else level.theta[blocks], vectors).tolist()
        if level.whitener is None or level.width is None:
            return list(linear)
        if len(level.whitener) == 1:
            white = vectors @ level.whitener[0].T
        else:
            matrices = level.whitener if everywhere else level.whitener[blocks]
            white = np.matmul(matrices, vectors[:, :, None])[:, :, 0]
        norms_sq = np.vecdot(white, white).tolist()
        widths = (level.width if everywhere else level.width[blocks]).tolist()
        if level.second is not None:
            squares = np.vecdot(level.second if everywhere else level.second[blocks], vectors).tolist()
            parts = zip(widths, linear, squares, norms_sq, strict=True)
            widths = [w + _spread_width(level.scale, x, y, n) for w, x, y, n in parts]
        return [x + w * sqrt(n) for x, w, n in zip(linear, widths, norms_sq, strict=True)]


def _spread_width(scale: tuple[float, float, float, float], linear: float, square: float, norm_sq: float) -> float:
    """`optimism.spread_width` of one number."""
    noise, ceiling, ridge, kappa = scale
    samples = max(1.0 / max(norm_sq, 1e-300) - ridge, 0.0)
    variance = min(max(square - linear * linear, 0.0), ceiling)
    return kappa * sqrt((samples * variance + noise) / (max(samples - 1.0, 0.0) + 1.0))


@final
class DrawingActor:
    """Any other policy: its probabilities at one state, and one of the episode's dice."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    def __call__(self, h: int, observation: Any, look: Look, dice: EpisodeDice) -> int:
        states, phi = np.array(observation)[None], Phi(look.vectors[None], look.blocks[None])
        row: Array = np.asarray(self._policy.probabilities(h, states, phi))
        require_shape("policy.probabilities(h, states, phi)", row, (1, len(look.blocks)), "(n, n_actions)")
        require_probabilities("policy.probabilities(h, states, phi)", row)
        return bisect_right(cumulative(row[0]).tolist(), dice.action(h))
