"""The oracle for S3Q: Algorithm 1 as nested loops, with full history, batch solves, long vectors, no ask and tell.

Nothing here knows the library: problems are tables of numbers, episodes are lists.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Script:
    """One episode: states s_0..s_L, actions and rewards (user's units) of L <= H steps, and whether it ended early."""

    states: list[int]
    actions: list[int]
    rewards: list[float]
    ended: bool


@dataclass
class LiteralResult:
    theta: np.ndarray | None = None  # (H, d) of the last finished epoch
    q: np.ndarray | None = None  # (H, S, A) of the last finished epoch
    used: int = 0  # episodes played
    fits: list[tuple[int, int, int]] = field(default_factory=list)  # (epoch, level, episodes) of every finished level
    grams: np.ndarray | None = None  # (H, d, d) of the last finished epoch, cached samples left out
    unclipped: np.ndarray | None = None  # (H, S, A) of the last finished epoch
    n_level: int = 0  # its episodes a level
    residuals: np.ndarray | None = None  # (H,) residual variance of its fits


Samples = list[tuple[np.ndarray, float]]


def literal_s3q(
    phi: np.ndarray,  # (H, S, A, d)
    episodes: Iterator[Script],
    stop: Callable[[int], bool],
    *,
    ridge: Sequence[float],  # per level
    radius: Sequence[float | np.ndarray | None],  # per level: one ball, one per block, or none
    reward_min: float,
    bonus: Callable[[int, Samples], np.ndarray] | None = None,  # level and its samples to a table (S, A)
    clip: np.ndarray | None = None,  # (H, 2)
    epoch_size: int | None = None,
    pool: bool = False,
    cached: Sequence[Script] = (),
) -> LiteralResult:
    horizon, n_states, n_actions, dim = phi.shape
    target = np.zeros((horizon + 1, n_states, n_actions))
    unclipped = np.zeros((horizon, n_states, n_actions))
    result = LiteralResult()

    def samples_of(episode: Script, level: int) -> Samples:
        """The regression samples of an episode for a level; none if it ended before, all steps if pooled."""
        found = []
        for h in range(len(episode.actions)) if pool else [level] * (len(episode.actions) > level):
            y = episode.rewards[h] - reward_min
            if episode.ended and len(episode.actions) == h + 1:
                y += -reward_min * (horizon - 1 - level)
            else:
                y += max(target[level + 1, episode.states[h + 1], b] for b in range(n_actions))
            found.append((phi[h, episode.states[h], episode.actions[h]], y))
        return found

    epoch = 0
    while True:
        epoch += 1
        thetas = np.zeros((horizon, dim))
        grams = np.zeros((horizon, dim, dim))
        residuals = np.zeros(horizon)
        for level in range(horizon - 1, -1, -1):
            replayed: Samples = []
            size = 2**epoch if epoch_size is None else epoch_size
            for _ in range(size):
                if stop(result.used):
                    return result
                episode = next(episodes)
                result.used += 1
                replayed += samples_of(episode, level)
            samples = replayed + [sample for episode in cached for sample in samples_of(episode, level)]
            x, y = stacked(samples, dim)
            thetas[level] = ridge_in_balls(x.T @ x, x.T @ y, ridge[level], radius[level])
            residuals[level] = residual_variance(samples, thetas[level], ridge[level])
            x = stacked(replayed, dim)[0]
            grams[level] = x.T @ x
            result.fits.append((epoch, level, size))
            unclipped[level] = phi[level] @ thetas[level]
            target[level] = unclipped[level]
            if bonus is not None and clip is not None:
                unclipped[level] += bonus(level, samples)
                target[level] = np.clip(unclipped[level], clip[level, 0], clip[level, 1])
        result.theta, result.q, result.grams = thetas, target[:horizon].copy(), grams
        result.unclipped, result.n_level, result.residuals = unclipped.copy(), size, residuals
        if epoch_size is not None:
            return result


def long_features(mdp: Any) -> np.ndarray:
    """phi written out from the tables of a problem, (H, S, A, d)."""
    vectors, blocks = mdp.features.vectors, mdp.features.blocks
    horizon, n_states, n_actions, k = vectors.shape
    phi = np.zeros((horizon, n_states, n_actions, mdp.spec.n_blocks * k))
    for h, s, a in np.ndindex(horizon, n_states, n_actions):
        first = blocks[h, s, a] * k
        phi[h, s, a, first : first + k] = vectors[h, s, a]
    return phi


def stacked(samples: Samples, dim: int) -> tuple[np.ndarray, np.ndarray]:
    """Features (n, d) and targets (n,)."""
    return np.array([x for x, _ in samples]).reshape(-1, dim), np.array([y for _, y in samples])


def residual_variance(samples: Samples, theta: np.ndarray, ridge: float) -> float:
    """Residual sum of squares over the degrees of freedom, of which at least 1 is left. Rounding counts as nothing."""
    x, y = stacked(samples, len(theta))
    used = np.trace(x.T @ x @ np.linalg.inv(x.T @ x + ridge * np.eye(len(theta))))
    left = float(np.sum((y - x @ theta) ** 2))
    return 0.0 if left <= 1e-11 * float(np.sum(y**2)) else left / max(len(samples) - used, 1.0)


def ridge_in_balls(gram: np.ndarray, moment: np.ndarray, ridge: float, radius: float | np.ndarray | None) -> np.ndarray:
    """One ball for the whole parameter, one for each of len(radius) equal pieces of it, or none."""
    if radius is None:
        return np.linalg.solve(gram + ridge * np.eye(len(moment)), moment)
    if np.ndim(radius) == 0:
        return ridge_in_ball(gram, moment, ridge, float(radius))
    k = len(moment) // len(radius)
    pieces = [slice(b * k, (b + 1) * k) for b in range(len(radius))]
    return np.concatenate(
        [ridge_in_ball(gram[p, p], moment[p], ridge, float(r)) for p, r in zip(pieces, radius, strict=True)]
    )


def ridge_in_ball(gram: np.ndarray, moment: np.ndarray, ridge: float, radius: float) -> np.ndarray:
    """argmin over |x| <= radius of x.(gram + ridge I)x - 2 moment.x, by bisection and plain solves."""
    dim = len(moment)

    def solve(extra: float) -> np.ndarray:
        return np.linalg.solve(gram + (ridge + extra) * np.eye(dim), moment)

    if np.linalg.norm(solve(0.0)) <= radius:
        return solve(0.0)
    low, high = 0.0, float(np.linalg.norm(moment)) / radius
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if np.linalg.norm(solve(middle)) > radius else (low, middle)
    return solve(high)
