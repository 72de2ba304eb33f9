"""Effective dimension d~_h = max over policies of log det(I + (n / ridge) E_pi[phi phi^T]), bracketed.

The paper's "Information gain and effective dimension". The objective is concave in the occupancy of level h, and the
best occupancy for a linear objective is a DP. So: conditional gradient steps over convex combinations of policies'
occupancies ("atoms"), with away steps (weight moves from the worst atom in use to the best) as long as they promise
more than a new atom. The gap of the linearised problem bounds how far the optimum can be.
"""

from dataclasses import dataclass
from math import log1p, sqrt
from typing import final

import numpy as np
from numpy.typing import ArrayLike

from s4q.core.blocks import Array
from s4q.core.factors import whitener
from s4q.core.least_squares import elliptical_norm_sq, gram_of
from s4q.core.policies import UniformPolicy
from s4q.core.spec import per_level
from s4q.core.validation import require_count, require_positive
from s4q.learners.main_loop import Record
from s4q.problems import FiniteMDP
from s4q.theory.definitions import cumulative_grams, phases_of
from s4q.theory.population_fits import flat_features


@final
@dataclass(frozen=True, eq=False, slots=True)
class EffectiveDim:
    """lower <= d~_h <= upper; `occupancy` (S, A) of level h attains the lower end."""

    lower: float
    upper: float
    steps: int
    occupancy: Array

    @property
    def width(self) -> float:
        return self.upper - self.lower


def effective_dim(
    mdp: FiniteMDP, h: int, n_over_ridge: float, *, tolerance: float = 1e-2, max_steps: int = 100_000
) -> EffectiveDim:
    """Bracket d~_h of one level.

    Args:
        mdp: The problem.
        h: The level.
        n_over_ridge: The number of samples over the ridge.
        tolerance: The width of the bracket; wider only if the steps run out.
        max_steps: The most steps to take.

    >>> from s4q.problems import chain
    >>> bracket = effective_dim(chain(), 0, 100.0)  # one start state, two actions: half and half is best
    >>> round(bracket.lower, 3), bool(bracket.width <= 1e-2), bool(abs(bracket.lower - 2 * np.log(51)) < 1e-2)
    (7.864, True, True)
    """
    require_positive("n_over_ridge", n_over_ridge, "samples over ridge")
    require_positive("tolerance", tolerance, "the width of the bracket")
    require_count("max_steps", max_steps, "the most steps to take")
    if not 0 <= h < mdp.horizon:
        raise ValueError(f"h must lie in 0..{mdp.horizon - 1}; got {h}")
    return _Search(mdp, h, float(n_over_ridge)).run(tolerance, int(max_steps))


def effective_dims(mdp: FiniteMDP, n_over_ridge: ArrayLike, *, tolerance: float = 1e-2) -> list[EffectiveDim]:
    """Bracket d~_h of every level.

    Args:
        mdp: The problem.
        n_over_ridge: The number of samples over the ridge: one number or one per level.
        tolerance: The width of each bracket.

    >>> from s4q.problems import chain
    >>> [round(bracket.lower, 2) for bracket in effective_dims(chain(3, 2), [100.0, 0.01])]
    [7.86, 0.01]
    """
    ratios = per_level("n_over_ridge", n_over_ridge, mdp.horizon)
    return [effective_dim(mdp, h, float(ratio), tolerance=tolerance) for h, ratio in enumerate(ratios)]


def effective_dim_cap(dim: int, n_over_ridge: float) -> float:
    """d log(1 + n / (d ridge)): no problem with features of norm at most 1 has a larger d~.

    "Upper Bound on Information Gain", with the 1 inside the logarithm that its proof gives.

    Args:
        dim: d, the length of the features.
        n_over_ridge: The number of samples over the ridge.

    >>> round(effective_dim_cap(5, 100.0), 3)
    15.223
    """
    return dim * log1p(n_over_ridge / dim) if dim else 0.0


def realised_gain(mdp: FiniteMDP, record: Record) -> Array:
    """log det Sbar^(P+1) / det Sbar^(1) per level, (H,): the information a run has gathered in expectation.

    All phases count, the unfinished one too, with the ridge of the first. At most d~_h for n = all main-loop
    trajectories and that ridge ("Upper Bound on Information Gain").

    Args:
        mdp: The problem.
        record: The `record` of run(..., record=True) on that problem.
    """
    total, ridge = cumulative_grams(mdp, record)[-1], phases_of(mdp, record)[0].ridge
    scaled = total / ridge[:, None, None, None] + np.eye(mdp.spec.block_dim)
    return np.asarray(np.linalg.slogdet(scaled)[1].sum(axis=-1))


@final
class _Search:
    """Atoms (occupancies of level h) with their weights, and M = I + (n / ridge) E[phi phi^T] of the mean of them."""

    def __init__(self, mdp: FiniteMDP, h: int, ratio: float) -> None:
        self._mdp, self._h = mdp, h
        vectors, self._rank = _spanning(mdp, h)
        self._vectors = sqrt(ratio) * vectors
        self._cap = effective_dim_cap(self._rank, ratio)
        self._blocks = mdp.features.blocks[h].ravel()
        first = mdp.occupancies(UniformPolicy(mdp.n_actions))[h].ravel()
        self._atoms: Array = first[None]  # (m, S * A)
        self._grams: Array = self._gram(first)[None]  # (m, n_blocks, k, k), times n / ridge
        self._weights: Array = np.ones(1)

    def run(self, tolerance: float, max_steps: int) -> EffectiveDim:
        """Step until the bracket is narrow enough."""
        lower, upper, promise, steps = 0.0, self._cap, 0.0, 0
        while steps < max_steps:
            steps += 1
            mean = np.tensordot(self._weights, self._grams, axes=1)
            white = whitener(mean, 1.0)
            slopes = np.einsum("mbij,bij->m", self._grams, np.swapaxes(white, 1, 2) @ white)  # towards each atom
            best, worst = int(slopes.argmax()), int(slopes.argmin())
            if slopes[best] - slopes[worst] > max(promise, tolerance / 2):  # enough to gain without a new atom
                self._shift(white, best, worst)
                continue
            pairs = elliptical_norm_sq(self._vectors, self._blocks, white)
            atom = self._best_occupancy(pairs)
            gap = max(float(pairs @ atom) - float(slopes @ self._weights), 0.0)
            lower = -2.0 * float(np.log(np.diagonal(white, axis1=1, axis2=2)).sum())  # log det M
            # log det(M + D) <= log det M + r log(1 + tr(M^-1 D) / r), and the trace is at most the gap.
            upper = max(min(upper, lower + effective_dim_cap(self._rank, gap)), lower)
            if upper - lower <= tolerance:
                break
            promise = gap / 2
            self._add(white, atom, mean)
        return EffectiveDim(lower, upper, steps, (self._weights @ self._atoms).reshape(self._mdp.rewards.shape[1:]))

    def _shift(self, white: Array, best: int, worst: int) -> None:
        """Move weight from the worst atom in use to the best; an atom that loses all of it is dropped."""
        most = float(self._weights[worst])
        moved = _line_search(white, self._grams[best] - self._grams[worst], most)
        self._weights[best] += moved
        self._weights[worst] -= moved
        if moved == most:
            keep = np.arange(len(self._weights)) != worst
            self._weights, self._atoms, self._grams = self._weights[keep], self._atoms[keep], self._grams[keep]

    def _add(self, white: Array, atom: Array, mean: Array) -> None:
        """A step from the mean of all atoms towards a new one."""
        gram = self._gram(atom)
        share = _line_search(white, gram - mean, 1.0)
        self._weights = np.append((1.0 - share) * self._weights, share)
        self._atoms = np.concatenate([self._atoms, atom[None]])
        self._grams = np.concatenate([self._grams, gram[None]])

    def _gram(self, occupancy: Array) -> Array:
        visited = np.flatnonzero(occupancy)
        scaled = self._vectors[visited] * np.sqrt(occupancy[visited])[:, None]
        return gram_of(scaled, self._blocks[visited], self._mdp.spec.n_blocks)

    def _best_occupancy(self, pairs: Array) -> Array:
        """Of level h, (S * A,): that of the policy which earns most, when level h pays `pairs` and no other pays."""
        moves, n_actions = self._mdp.transitions, self._mdp.n_actions
        q = pairs.reshape(-1, n_actions)
        actions = [q.argmax(axis=1)]
        for g in range(self._h - 1, -1, -1):
            q = moves[g] @ q.max(axis=1)
            actions.append(q.argmax(axis=1))
        everyone, states = np.arange(self._mdp.n_states), self._mdp.start
        for g, chosen in enumerate(actions[:0:-1]):
            states = states @ moves[g][everyone, chosen]
        occupancy = np.zeros((self._mdp.n_states, n_actions))
        occupancy[everyone, actions[0]] = states
        return occupancy.ravel()


def _line_search(white: Array, direction: Array, most: float) -> float:
    """The t in [0, most] that maximises log det(M + t direction); white whitens M."""
    rates = np.linalg.eigvalsh(white @ direction @ np.swapaxes(white, 1, 2)).ravel()
    rates = rates[rates != 0]

    def slope(t: float) -> float:
        return float((rates / (1.0 + t * rates)).sum())

    if slope(most) >= 0:
        return most
    from scipy.optimize import brentq  # late, so that `import s4q` stays light

    return float(brentq(slope, 0.0, most, xtol=1e-12 * most)) if slope(0.0) > 0 else 0.0


def _spanning(mdp: FiniteMDP, h: int) -> tuple[Array, int]:
    """The features of level h, (S * A, k), turned so that directions no pair has are exactly 0; and their rank.

    A turn within a block changes no determinant. Without it a direction that is 0 up to rounding would be seen once
    n / ridge is large enough.
    """
    vectors, blocks = flat_features(mdp, h)
    vectors = vectors.copy()
    vectors[~np.repeat(mdp.reachable[h], mdp.n_actions)] = 0.0
    if mdp.spec.block_dim == 1:
        return vectors, len(np.unique(blocks[vectors[:, 0] != 0]))
    rank = 0
    for block in np.unique(blocks):
        rows = blocks == block
        _, sizes, right = np.linalg.svd(vectors[rows], full_matrices=False)
        real = int((sizes > 1e-12 * max(sizes[0], 1e-300)).sum())
        turned = np.zeros_like(vectors[rows])
        turned[:, :real] = vectors[rows] @ right[:real].T
        vectors[rows] = turned
        rank += real
    return vectors, rank
