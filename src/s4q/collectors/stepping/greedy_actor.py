"""Actors: a policy's action at one state, fast. A greedy action is worked out in plain floats, action by action."""

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt
from typing import Any, final

import numpy as np

from s4q.collectors.draws import cumulative
from s4q.collectors.seeding import EpisodeDice
from s4q.collectors.stepping.step_features import Look
from s4q.core.blocks import Array
from s4q.core.linear_q import LinearQ
from s4q.core.optimism import TIE, QLevel
from s4q.core.policies import Policy
from s4q.core.validation import require_probabilities, require_shape

Actor = Callable[[int, Any, Look, EpisodeDice], int]

_MOST_REMEMBERED = 2**14


def actor_of(policy: Policy) -> Actor:
    """Who acts for a policy: (level, observation, look, dice) -> action."""
    return GreedyActor(policy) if isinstance(policy, LinearQ) else DrawingActor(policy)


@final
class GreedyActor:
    """The greedy action of a LinearQ at one state: `LinearQ.greedy` without the cost of arrays of one row.

    >>> q = LinearQ.from_arrays(np.array([[[1.0], [2.0]]]))
    >>> look = Look(np.ones((2, 1)), np.array([0, 1]))
    >>> GreedyActor(q)(0, None, look, EpisodeDice(0, 0, 0, horizon=1))
    1
    """

    def __init__(self, policy: LinearQ) -> None:
        self._policy = policy
        self._levels: list[_Level | None] = [None] * policy.horizon
        self._in_order = list(range(len(policy.levels[0].theta)))
        self._known: dict[tuple[int, int], int] = {}

    def __call__(self, h: int, observation: Any, look: Look, dice: EpisodeDice) -> int:
        del observation, dice
        if look.key is not None:
            action = self._known.get((h, look.key))
            if action is not None:
                return action
        values = self.values(h, look)
        best = max(values)  # `optimism.best_actions` of one state
        least = best - TIE * abs(best)
        action = next((a for a, value in enumerate(values) if value >= least), 0)  # NaN is reported when it is packed
        if look.key is not None:
            if len(self._known) >= _MOST_REMEMBERED:
                self._known.clear()
            self._known[h, look.key] = action
        return action

    def values(self, h: int, look: Look) -> list[float]:
        """`optimism.optimistic` of one state."""
        level = self._levels[h]
        if level is None:
            level = self._levels[h] = _Level.of(self._policy.levels[h])
        vectors, blocks = look.vectors, look.blocks.tolist()
        white, widths = level.white, level.widths
        one_psi = len(vectors) == 1 or vectors.strides[0] == 0
        if one_psi and blocks == self._in_order:  # e_a (x) psi(s)
            psi = vectors[0]
            lines = level.stacked_lines.dot(psi).tolist()
            product = None if level.stacked_white is None else level.stacked_white.dot(psi).reshape(len(blocks), -1)
        elif len(self._in_order) == 1:  # dense
            lines = level.stacked_lines.dot(vectors.T).ravel().tolist()
            product = None if white is None else vectors.dot(white[0].T)
        else:
            vectors = np.broadcast_to(vectors, (len(blocks), vectors.shape[1]))
            lines = np.vecdot(level.lines[:, look.blocks], vectors).ravel().tolist()
            product = None if white is None else np.matmul(white[look.blocks], vectors[:, :, None])[:, :, 0]
        if product is None:
            return list(lines)
        if blocks != self._in_order:
            widths = [widths[b] for b in blocks]
        return _optimistic(level.scale, lines, widths, np.vecdot(product, product).tolist())


@final
@dataclass(frozen=True, eq=False, slots=True)
class _Level:
    """The parameters of a level as one state wants them."""

    lines: Array  # (1 or 2, n_blocks, k): theta, and second if there is a spread
    stacked_lines: Array  # the same numbers, (1 or 2 times n_blocks, k)
    white: Array | None  # (n_blocks, k, k)
    stacked_white: Array | None  # the same numbers, (n_blocks * k, k)
    widths: list[float]  # (n_blocks,)
    scale: tuple[float, float, float, float]

    @classmethod
    def of(cls, level: QLevel) -> "_Level":
        lines = np.stack([level.theta] if level.second is None else [level.theta, level.second])
        k, white = lines.shape[-1], level.whitener
        stacked = None if white is None else white.reshape(-1, k)
        widths = [] if level.width is None else level.width.tolist()
        scale = (level.noise, level.ceiling, level.ridge, level.kappa)
        return cls(lines, lines.reshape(-1, k), white, stacked, widths, scale)


def _optimistic(
    scale: tuple[float, float, float, float], lines: list[float], widths: list[float], norms_sq: list[float]
) -> list[float]:
    """phi . theta + bonus of every action. lines: phi . theta of each, then, if there is a spread, phi . second."""
    n = len(norms_sq)
    if len(lines) == n:
        return [x + w * sqrt(norm_sq) for x, w, norm_sq in zip(lines, widths, norms_sq, strict=True)]
    noise, ceiling, ridge, kappa = scale
    values = []
    for x, square, w, norm_sq in zip(lines[:n], lines[n:], widths, norms_sq, strict=True):
        # `optimism.spread_width` of one number; comparisons cost a third of max and min.
        samples = 1.0 / (norm_sq if norm_sq > 1e-300 else 1e-300) - ridge
        if samples < 0.0:
            samples = 0.0
        variance = square - x * x
        variance = 0.0 if variance < 0.0 else ceiling if variance > ceiling else variance
        sigma_sq = (samples * variance + noise) / (samples if samples > 1.0 else 1.0)
        values.append(x + (w + kappa * sqrt(sigma_sq)) * sqrt(norm_sq))
    return values


@final
class DrawingActor:
    """Any other policy: its probabilities at one state, and one of the episode's dice."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    def __call__(self, h: int, observation: Any, look: Look, dice: EpisodeDice) -> int:
        states, phi = np.array(observation)[None], look.phi()
        row: Array = np.asarray(self._policy.probabilities(h, states, phi))
        require_shape("policy.probabilities(h, states, phi)", row, (1, len(look.blocks)), "(n, n_actions)")
        require_probabilities("policy.probabilities(h, states, phi)", row)
        return bisect_right(cumulative(row[0]).tolist(), dice.action(h))
