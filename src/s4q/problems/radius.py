"""The radius of the parameter ball that a finite problem needs when its features are exact.

A learner regresses on targets T_h V', where V' is a clipped optimistic value: any function in [0, v_{h+1}] of the
features of the next state. Each of these targets has a true parameter, and the guarantees hold only if the ball
contains all of them. `FiniteMDP` calls this module where the tables are known; learners never see it.
"""

from dataclasses import dataclass
from itertools import product
from typing import Protocol, final

import numpy as np

from s4q.core.blocks import Array, BoolArray, IntArray
from s4q.core.messages import Spec
from s4q.features import TableFeatures

_MOST_ENUMERATED = 14  # next values whose corners are all tried: 2^14 of them
_MOST_PAIRED = 2048  # next values whose products in pairs are formed


@final
@dataclass(frozen=True, eq=False, slots=True)
class NeededRadius:
    """Per level (H,), over all V' in [0, v_{h+1}] that read only features.

    `whole` and `block` are large enough. `whole` equals `attained` for one-hot features, for features on the simplex,
    and wherever all corners could be tried. Elsewhere it is an upper bound.
    """

    whole: Array  # of the whole parameter
    block: Array  # of the part that stands in one block, the largest over blocks
    attained: Array  # some V' needs a parameter of this norm
    error: Array  # the largest distance of a target from the features: 0, up to rounding, if they are exact


def needed_radius(
    transitions: Array, rewards: Array, terminal: BoolArray, reachable: BoolArray, features: TableFeatures, spec: Spec
) -> NeededRadius:
    """The norms of the true parameters of all targets, and how far targets are from having any.

    Args:
        transitions: (H, S, A, S).
        rewards: Means, (H, S, A), in the user's units.
        terminal: (S,), the states in which an episode is over.
        reachable: (H, S), the states that some policy visits at each level.
        features: The features that are declared exact.
        spec: Sizes, reward range and value bounds of the problem. Its radii are not read.
    """
    rows = []
    # When all levels are the same, pooled steps of any level are samples of every level.
    visited = np.broadcast_to(reachable.any(axis=0), reachable.shape) if spec.stationary else reachable
    solved: _Parameters | None = None
    for h in range(spec.horizon):
        if solved is None or not spec.stationary:
            solved = _parameters(transitions[h], rewards[h] - spec.reward_min, terminal, visited[h], features, h)
        ended, bound = spec.ended_value(h), spec.next_bound(h)
        rows.append((*solved.norms(ended, bound), solved.error(ended, bound)))
    return NeededRadius(*np.array(rows).T)


class _Parameters(Protocol):
    """The parameters of T_h V' = reward + ended P(end) + P V' at one level, linear in `ended` and V' in [0, bound]."""

    def norms(self, ended: float, bound: float) -> tuple[float, float, float]:
        """Whole radius, block radius and attained norm."""
        ...

    def error(self, ended: float, bound: float) -> float:
        """The largest error of a fit."""
        ...


@final
@dataclass(frozen=True, eq=False, slots=True)
class _Numbers:
    """One-hot features of any length and one sign: a parameter is a target over a length, and grows with V'.

    So V' = bound is the worst for all blocks at once.
    """

    reward: Array  # (n,), one for each pair that is visited
    end: Array
    moves: Array  # summed over next states

    def norms(self, ended: float, bound: float) -> tuple[float, float, float]:
        sizes = np.abs(self.reward + ended * self.end + bound * self.moves)
        whole = float(np.linalg.norm(sizes))
        return whole, float(sizes.max(initial=0.0)), whole

    def error(self, ended: float, bound: float) -> float:
        del ended, bound
        return 0.0


@final
@dataclass(frozen=True, eq=False, slots=True)
class _Vectors:
    """Any other features, one entry for each block that is visited.

    Columns of a parameter: of the reward, of P(end), and of each feature class of next states.
    """

    parameters: list[Array]  # (k, 2 + number of classes)
    residuals: list[Array]  # (pairs of the block, 2 + number of classes)

    def norms(self, ended: float, bound: float) -> tuple[float, float, float]:
        bases = [p[:, 0] + ended * p[:, 1] for p in self.parameters]
        moves = [p[:, 2:] for p in self.parameters]
        blocks = [largest_norm(base, slope, 0.0, bound) for base, slope in zip(bases, moves, strict=True)]
        largest = max((above for _, above in blocks), default=0.0)
        if len(blocks) < 2:
            return largest, largest, max((below for below, _ in blocks), default=0.0)
        below, above = largest_norm(np.concatenate(bases), np.concatenate(moves), 0.0, bound)
        return above, largest, below

    def error(self, ended: float, bound: float) -> float:
        worst = 0.0
        for residual in self.residuals:
            fixed, slope = residual[:, 0] + ended * residual[:, 1], residual[:, 2:]
            high = fixed + bound * np.maximum(slope, 0.0).sum(axis=1)
            low = fixed + bound * np.minimum(slope, 0.0).sum(axis=1)
            worst = max(worst, float(np.maximum(high, -low).max(initial=0.0)))
        return worst


def largest_norm(base: Array, slope: Array, low: float, high: float) -> tuple[float, float]:
    """A lower and an upper bound on the largest |base + slope V| over V in [low, high]^C. base (d,), slope (d, C).

    Below: local search over corners. Above: the least of three bounds: each coordinate at its own worst corner, the
    same along the principal axes of `slope`, and the sum of all products in absolute value. When the two do not meet
    and C is small, all corners are tried, and both are the exact maximum.

    >>> largest_norm(np.array([1.0, 0.0]), np.array([[1.0, 0.0], [0.0, -1.0]]), 0.0, 2.0)
    (3.605551275463989, 3.605551275463989)
    """
    half = (high - low) / 2
    middle = base + slope.sum(axis=1) * ((high + low) / 2)
    spread = half * slope[:, np.any(slope != 0, axis=0)]
    if not spread.size:
        norm = float(np.linalg.norm(middle))
        return norm, norm
    bounds = [float(np.linalg.norm(np.abs(middle) + np.abs(spread).sum(axis=1)))]
    below = max(_climb(middle, spread, np.full(spread.shape[1], sign)) for sign in (1.0, -1.0))
    if bounds[0] <= below * (1 + 1e-12):  # one corner is the worst for all coordinates
        return below, max(below, bounds[0])
    axes = np.linalg.svd(spread, full_matrices=False)[0]
    starts = np.where(axes.T @ spread >= 0, 1.0, -1.0)
    below = max(below, *(_climb(middle, spread, sign * corner) for corner in starts for sign in (1.0, -1.0)))
    outside = middle - axes @ (axes.T @ middle)  # what no V changes
    along = np.linalg.norm(np.abs(axes.T @ middle) + np.abs(axes.T @ spread).sum(axis=1))
    bounds.append(float(np.hypot(along, np.linalg.norm(outside))))
    if spread.shape[1] <= _MOST_PAIRED:
        pairs = np.abs(spread.T @ spread).sum() + 2 * np.abs(spread.T @ middle).sum()
        bounds.append(float(np.sqrt(middle @ middle + pairs)))
    above = max(min(bounds), below)
    if above > below * (1 + 1e-9) and spread.shape[1] <= _MOST_ENUMERATED:
        corners = np.array(list(product((1.0, -1.0), repeat=spread.shape[1]))).T
        below = above = float(np.linalg.norm(middle[:, None] + spread @ corners, axis=0).max())
    return below, above


def _climb(middle: Array, spread: Array, corner: Array) -> float:
    """Move to the corner that is best for the present direction until the norm stops growing; return the norm."""
    size = -1.0
    while True:
        theta = middle + spread @ corner
        norm = float(np.linalg.norm(theta))
        if norm <= size * (1 + 1e-12):
            return size
        size = norm
        corner = np.where(spread.T @ theta >= 0, 1.0, -1.0)


def feature_classes(features: TableFeatures, h: int, states: BoolArray) -> IntArray:
    """A number for each state (S,), equal where the features of all actions are equal; -1 for states not asked for.

    Values that a learner forms read only features, so they are equal there too.
    """
    rows = np.concatenate([features.blocks[h][..., None], features.vectors[h]], axis=-1)
    names: dict[frozenset[bytes], int] = {}
    classes = np.full(len(states), -1, dtype=np.int64)
    for state in np.flatnonzero(states).tolist():
        # The order of the actions does not matter for their maximum.
        classes[state] = names.setdefault(frozenset(row.tobytes() for row in rows[state]), len(names))
    return classes


def _parameters(
    moves: Array, rewards: Array, terminal: BoolArray, visited: BoolArray, features: TableFeatures, h: int
) -> _Parameters:
    """Least squares over the visited pairs of one level; the shortest parameter where there are several."""
    k, next_level = features.block_dim, min(h + 1, features.horizon - 1)
    here = np.repeat(visited & ~terminal, features.n_actions)
    vectors, blocks = features.vectors[h].reshape(-1, k)[here], features.blocks[h].ravel()[here]
    onto = moves.reshape(len(here), -1)[here]
    pays, ends = rewards.ravel()[here], onto[:, terminal].sum(axis=1)
    # Where all features are 0 the optimistic value is 0.
    worth = ~terminal & features.vectors[next_level].any(axis=(1, 2))
    one_sign = k == 1 and (np.all(vectors > 0) or np.all(vectors < 0))
    if one_sign and len(np.unique(blocks)) == len(blocks):
        lengths = vectors[:, 0]
        return _Numbers(pays / lengths, ends / lengths, onto[:, worth].sum(axis=1) / lengths)
    classes = feature_classes(features, next_level, worth & (onto > 0).any(axis=0))
    merged = np.zeros((len(onto), int(classes.max(initial=-1)) + 1))
    np.add.at(merged.T, classes[classes >= 0], onto.T[classes >= 0])
    targets = np.concatenate([pays[:, None], ends[:, None], merged], axis=1)
    parameters, residuals = [], []
    for block in np.unique(blocks).tolist():
        rows = blocks == block
        parameters.append(np.linalg.lstsq(vectors[rows], targets[rows], rcond=None)[0])
        residuals.append(vectors[rows] @ parameters[-1] - targets[rows])
    return _Vectors(parameters, residuals)
