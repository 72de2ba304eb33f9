"""Actors: a policy's action at one state, fast. A greedy action is worked out in plain floats, action by action."""

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
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
        self._policy = policy
        self._levels: list[_Level | None] = [None] * policy.horizon
        self._in_order = list(range(policy.theta.shape[1]))
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
        values = self.values(h, look)
        return values.index(max(values))  # exact ties go to the lowest

    def values(self, h: int, look: Look) -> list[float]:
        """`optimism.optimistic` of one state."""
        level = self._levels[h]
        if level is None:
            level = self._levels[h] = _Level.of(self._policy.level(h))
        (linear, *squares), norms_sq, widths = self._parts(level, look)
        if norms_sq is None:
            return linear
        if squares:
            parts = zip(widths, linear, squares[0], norms_sq, strict=True)
            widths = [w + _spread_width(level.scale, x, y, n) for w, x, y, n in parts]
        return [x + w * sqrt(n) for x, w, n in zip(linear, widths, norms_sq, strict=True)]

    def _parts(self, level: "_Level", look: Look) -> tuple[list[list[float]], list[float] | None, list[float]]:
        """phi . theta (and phi . second), squared norms and widths of every action, in as few products as possible."""
        vectors, blocks = look.vectors, look.blocks.tolist()
        white = level.white
        if vectors.strides[0] == 0 and blocks == self._in_order:  # e_a (x) psi: one psi, every block
            psi = vectors[0]
            lines = level.lines.reshape(-1, len(psi)).dot(psi).reshape(-1, len(blocks)).tolist()
            if white is None:
                return lines, None, []
            product = white.reshape(-1, len(psi)).dot(psi).reshape(len(blocks), -1)
            return lines, np.vecdot(product, product).tolist(), level.widths
        widths = [level.widths[b] for b in blocks] if level.widths else []
        if len(self._in_order) == 1:  # dense
            lines = level.lines[:, 0].dot(vectors.T).tolist()
            if white is None:
                return lines, None, []
            product = vectors.dot(white[0].T)
        else:
            lines = np.vecdot(level.lines[:, look.blocks], vectors).tolist()
            if white is None:
                return lines, None, []
            product = np.matmul(white[look.blocks], vectors[:, :, None])[:, :, 0]
        return lines, np.vecdot(product, product).tolist(), widths


@final
@dataclass(frozen=True, eq=False, slots=True)
class _Level:
    """The parameters of a level as one state wants them."""

    lines: Array  # (1 or 2, n_blocks, k): theta, and second if there is a spread
    white: Array | None  # (n_blocks, k, k)
    widths: list[float]
    scale: tuple[float, float, float, float]

    @classmethod
    def of(cls, level: QLevel) -> "_Level":
        lines = [level.theta] if level.second is None else [level.theta, level.second]
        return cls(np.stack(lines), level.whitener, [] if level.width is None else level.width.tolist(), level.scale)


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
