"""Actors choose a policy's action at one observation. A greedy action is computed in plain floats, action by action.

EpisodePlayer calls an actor at every step, where arrays of one row would cost more than the numbers in them. An actor
draws nothing: a random action is looked up with a number of the episode.
"""

from bisect import bisect_right
from collections.abc import Callable
from math import sqrt
from typing import Any, final

import numpy as np

from s4q.collectors.draws import cumulative
from s4q.collectors.seeding import EpisodeDraws
from s4q.collectors.stepping.step_features import StepFeatures
from s4q.core.blocks import Array
from s4q.core.linear_q import LinearQ
from s4q.core.optimism import TIE, QLevel
from s4q.core.policies import Policy
from s4q.core.validation import require_probabilities, require_shape

Actor = Callable[[int, Any, StepFeatures, EpisodeDraws], int]

_MOST_REMEMBERED = 2**14


def actor_of(policy: Policy) -> Actor:
    """The actor of a policy: (level, observation, features, draws) -> action."""
    return GreedyActor(policy) if isinstance(policy, LinearQ) else DrawingActor(policy)


@final
class GreedyActor:
    """The greedy action of a LinearQ at one observation: `LinearQ.greedy` without the cost of arrays of one row.

    >>> q = LinearQ.from_arrays(np.array([[[1.0], [2.0]]]))
    >>> features = StepFeatures(np.ones((2, 1)), np.array([0, 1]))
    >>> GreedyActor(q)(0, None, features, EpisodeDraws(0, 0, 0, horizon=1))
    1
    """

    def __init__(self, policy: LinearQ) -> None:
        self._levels = policy.levels
        self._stacked: list[tuple[Array, list[float]] | None] = [None] * policy.horizon  # made when first used
        self._in_order = list(range(len(policy.levels[0].theta)))
        self._known: dict[tuple[int, int], int] = {}

    def __call__(self, h: int, observation: Any, features: StepFeatures, draws: EpisodeDraws) -> int:
        del observation, draws
        if features.key is not None:
            action = self._known.get((h, features.key))
            if action is not None:
                return action
        action = best_action(self.values(h, features))
        if features.key is not None:
            if len(self._known) >= _MOST_REMEMBERED:
                self._known.clear()
            self._known[h, features.key] = action
        return action

    def values(self, h: int, features: StepFeatures) -> list[float]:
        """phi . theta + bonus of every action: a copy of `optimism.optimistic` for one state; a test compares them."""
        level, vectors, blocks = self._levels[h], features.vectors, features.blocks
        k, white, product = vectors.shape[1], level.whitener, None
        lines: list[float]  # phi . theta of every action, then phi . second
        if len(vectors) == 1 and blocks.tolist() == self._in_order:  # e_a (x) psi(s)
            parameters, widths = self._stacked[h] or self._stack(h)
            dots = parameters.reshape(-1, k).dot(vectors[0])
            if white is not None:
                product = white.reshape(-1, k).dot(vectors[0]).reshape(len(blocks), k)
        elif len(self._in_order) == 1:  # dense
            parameters, widths = self._stacked[h] or self._stack(h)
            widths, vectors = widths * len(blocks), np.broadcast_to(vectors, (len(blocks), k))
            dots = parameters[:, 0].dot(vectors.T).ravel()
            if white is not None:
                product = vectors.dot(white[0].T)
        elif k == 1:  # one-hot: numbers
            seen = vectors.ravel().tolist() * (1 if len(vectors) == len(blocks) else len(blocks))
            numbers = blocks.tolist()
            first, n = numbers[0], len(numbers)
            in_order = numbers == self._in_order[first : first + n]
            where = slice(first, first + n) if in_order else blocks  # a view is faster
            here = [one[where, 0].tolist() for one in (level.theta, level.second) if one is not None]
            lines = [x * v for one in here for x, v in zip(one, seen, strict=True)]
            if white is None:
                return lines[:n]
            widths = level.width[where].tolist()
            norms_sq = [(v * w) * (v * w) for v, w in zip(seen, white[where, 0, 0].tolist(), strict=True)]
            return _values(level, lines, widths, norms_sq)
        else:  # a few of many blocks: only theirs are looked at
            here = [one[blocks] for one in (level.theta, level.second) if one is not None]
            dots = np.concatenate([np.vecdot(one, vectors) for one in here])
            widths = [] if level.width is None else level.width[blocks].tolist()
            if white is not None:
                product = np.matmul(white[blocks], vectors[:, :, None])[:, :, 0]
        lines = dots.tolist()
        if product is None:
            return lines[: len(blocks)]
        return _values(level, lines, widths, np.vecdot(product, product).tolist())

    def _stack(self, h: int) -> tuple[Array, list[float]]:
        """theta and, where there is one, second of level h in one array (1 or 2, n_blocks, k); its widths."""
        level = self._levels[h]
        parameters = np.stack([level.theta] if level.second is None else [level.theta, level.second])
        stacked = (parameters, [] if level.width is None else level.width.tolist())
        self._stacked[h] = stacked
        return stacked


def best_action(values: list[float]) -> int:
    """The best action of one state: a copy of `optimism.best_actions` for plain floats; a test compares the two."""
    best = max(values)
    least = best - TIE * abs(best)
    return next((a for a, value in enumerate(values) if value >= least), 0)  # NaN is reported with the features


def _values(level: QLevel, lines: list[float], widths: list[float], norms_sq: list[float]) -> list[float]:
    """phi . theta + width |W phi| of every action. lines: phi . theta of every action, then phi . second."""
    if level.second is not None:
        widths = _with_spread(level, widths, lines, norms_sq)
    return [x + w * sqrt(norm_sq) for x, w, norm_sq in zip(lines, widths, norms_sq, strict=False)]


def _with_spread(level: QLevel, widths: list[float], lines: list[float], norms_sq: list[float]) -> list[float]:
    """Widths with the part that the data gives: a copy of `optimism.spread_width` for one state; a test compares them.

    lines: phi . theta of every action, then phi . second of every action.
    """
    noise, ceiling, ridge, kappa, lower = level.noise, level.ceiling, level.ridge, level.kappa, level.lower_order
    wider = []
    for x, square, w, norm_sq in zip(lines, lines[len(widths) :], widths, norms_sq, strict=False):
        # Comparisons cost a third of max and min.
        samples = 1.0 / (norm_sq if norm_sq > 1e-300 else 1e-300) - ridge
        if samples < 0.0:
            samples = 0.0
        variance = square - x * x
        variance = 0.0 if variance < 0.0 else ceiling if variance > ceiling else variance
        sigma_sq = (samples * variance + noise) / (samples if samples > 1.0 else 1.0)
        wider.append(w + kappa * (sqrt(sigma_sq) + lower * sqrt(norm_sq)))
    return wider


@final
class DrawingActor:
    """Any other policy: its probabilities at one observation, and the episode's number for the action."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    def __call__(self, h: int, observation: Any, features: StepFeatures, draws: EpisodeDraws) -> int:
        states, phi = np.array(observation)[None], features.phi()
        row: Array = np.asarray(self._policy.probabilities(h, states, phi))
        require_shape("policy.probabilities(h, states, phi)", row, (1, len(features.blocks)), "(n, n_actions)")
        require_probabilities("policy.probabilities(h, states, phi)", row)
        return bisect_right(cumulative(row[0]).tolist(), draws.action(h))
