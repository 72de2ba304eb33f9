"""Least squares with probabilities in place of samples: the fits that the paper's definitions speak of.

`PopulationFit` solves one regression, in a ball if there is one, with a rule for ties. `LevelErrors` is the error of
such a fit as a function of the value V' that it bootstraps on: affine, as long as no ball binds. The definitions, the
audit and the transfer errors are built on these two. Nothing here plays or samples.
"""

from dataclasses import dataclass, replace
from typing import final

import numpy as np

from s4q.core.blocks import Array, BoolArray, IntArray
from s4q.problems import FiniteMDP
from s4q.problems.radius import feature_classes, largest_norm

# Directions whose singular value is below this share of the block's features count as unvisited: a probability of
# 1e-14 of the whole is below what float64 can tell from none.
UNVISITED = 1e-7


@final
@dataclass(frozen=True, eq=False, slots=True)
class _Axes:
    """Orthogonal axes of weighted features per block: the visited ones with their singular values, and the kernel."""

    visited: Array  # (n_blocks, k, k): columns are axes; columns of 0 where there are fewer
    values: Array  # (n_blocks, k): singular values along them; 0 where there are fewer
    kernel: Array  # (n_blocks, k, k): columns are the axes with no weight
    # For each block with visited axes: the block, its rows (r,), and the map (number of visited axes, r) from targets
    # in these rows to coordinates.
    solvers: tuple[tuple[int, IntArray, Array], ...]

    @classmethod
    def of(cls, vectors: Array, rows_by_block: list[IntArray], weights: Array, basis: Array) -> "_Axes":
        """vectors (n, k), weights (n,); basis (n_blocks, k, k): columns span what may be fitted."""
        visited, kernel, values = np.zeros_like(basis), np.zeros_like(basis), np.zeros(basis.shape[:2])
        k, solvers = vectors.shape[1], []
        for block, rows in enumerate(rows_by_block):
            roots = np.sqrt(weights[rows])
            seen = roots[:, None] * (vectors[rows] @ basis[block])
            padded = seen if len(seen) >= k else np.concatenate([seen, np.zeros((k - len(seen), k))])
            left, sizes, right = np.linalg.svd(padded, full_matrices=False)
            n_seen = int((sizes > UNVISITED * np.linalg.norm(roots[:, None] * vectors[rows])).sum())
            visited[block, :, :n_seen] = basis[block] @ right[:n_seen].T
            values[block, :n_seen] = sizes[:n_seen]
            # Of the rest, only what lies in the basis: combinations of its columns of 0 come out as 0.
            kernel[block, :, n_seen:] = basis[block] @ right[n_seen:].T
            if n_seen:
                solvers.append((block, rows, (left[: len(rows), :n_seen] / sizes[:n_seen]).T * roots))
        return cls(visited, values, kernel, tuple(solvers))

    def coordinates(self, targets: Array) -> Array:
        """Of the shortest least-squares fit: (n_blocks, k, m) for targets (n, m)."""
        found = np.zeros((*self.values.shape, targets.shape[1]))
        for block, rows, solver in self.solvers:
            found[block, : len(solver)] = solver @ targets[rows]
        return found

    def in_ball(self, coordinates: Array, balls: Array) -> Array:
        """The constrained minimisers (n_blocks, k, m) from the free ones; balls (m,), or (n_blocks, m) for one a block.

        x(mu) = s^2 c / (s^2 + mu) with |x(mu)| = ball: Newton steps on 1 / |x|, which rise to mu from the left.
        """

        def summed(x: Array) -> Array:
            return np.asarray(x.sum(axis=1) if balls.ndim == 2 else x.sum(axis=(0, 1)))

        def spread(x: Array) -> Array:
            return np.asarray(x[:, None, :] if balls.ndim == 2 else x[None, None, :])

        sizes = np.sqrt(summed(coordinates**2))
        out = sizes > balls
        if not out.any():
            return coordinates
        ball = np.where(out, np.maximum(balls, 1e-150), sizes + 1.0)  # a ball of 0 leaves 0, to rounding

        weights = np.where(self.values > 0, self.values**2, 1.0)[:, :, None]  # coordinates are 0 along the others
        multiplier = np.zeros(ball.shape)
        for _ in range(200):
            found = weights * coordinates / (weights + spread(multiplier))
            norms = np.sqrt(summed(found**2))
            slope = summed(found**2 / (weights + spread(multiplier)))
            step = np.where(out & (slope > 0), norms**2 / np.where(slope > 0, slope, 1.0) * (norms - ball) / ball, 0.0)
            if np.all(step <= 1e-15 * multiplier):
                break
            multiplier = np.maximum(multiplier + step, 0.0)
        shorter = found * spread(ball / np.maximum(norms, 1e-300))
        return np.asarray(np.where(spread(np.where(out, 1.0, 0.0)) > 0, shorter, coordinates))


@final
class PopulationFit:
    """argmin over theta of the sum of weight (phi . theta - y)^2; among several, the least with `tiebreak` weights.

    vectors (n, k), blocks (n,), weights and tiebreak (n,). What neither weight sees stays 0. Features are decomposed,
    not their Gram matrix, so that directions of small probability keep half of their digits.

    >>> vectors, blocks = np.eye(2), np.zeros(2, dtype=np.int64)
    >>> fit = PopulationFit(vectors, blocks, 1, weights=np.array([1.0, 0.0]), tiebreak=np.array([0.5, 0.5]))
    >>> fit.solve(np.array([2.0, 3.0])).round(12).tolist()  # the second pair is never visited, its target still met
    [[2.0, 3.0]]
    >>> fit.solve(np.array([2.0, 3.0]), radius=2.5).round(12).tolist()  # in a ball, as far as there is room
    [[2.0, 1.5]]
    """

    def __init__(self, vectors: Array, blocks: IntArray, n_blocks: int, weights: Array, tiebreak: Array) -> None:
        self._vectors, self._blocks = vectors, blocks
        order = np.argsort(blocks, kind="stable")
        ends = np.searchsorted(blocks[order], np.arange(1, n_blocks))
        rows = np.split(order, ends)
        every = np.broadcast_to(np.eye(vectors.shape[1]), (n_blocks, vectors.shape[1], vectors.shape[1]))
        self._first = _Axes.of(vectors, rows, weights, np.array(every))
        self._second = _Axes.of(vectors, rows, tiebreak, self._first.kernel)

    def predict(self, theta: Array) -> Array:
        """phi . theta, (n, m); theta (n_blocks, k, m)."""
        if len(theta) == 1:
            return np.asarray(self._vectors @ theta[0])
        return np.asarray(np.einsum("nk,nkm->nm", self._vectors, theta[self._blocks]))

    def solve(self, targets: Array, radius: Array | float = np.inf) -> Array:
        """theta (n_blocks, k) for targets (n,), in one ball or, radius (n_blocks,), in one ball per block.

        A ball that the shortest minimiser does not fit in determines the answer; otherwise the tie is broken within
        the room that the ball leaves.
        """
        return np.asarray(self.solve_many(targets[:, None], radius)[:, :, 0])

    def solve_many(self, targets: Array, radius: Array | float = np.inf) -> Array:
        """The same for many targets (n, m): (n_blocks, k, m); without a ball it is linear in them."""
        free = self._first.coordinates(targets)
        size_sq = (free**2).sum(axis=1)
        ball = np.asarray(radius, dtype=np.float64)[..., None]
        size_sq = size_sq if ball.ndim == 2 else size_sq.sum(axis=0)
        balls = np.broadcast_to(ball, size_sq.shape)
        theta = self._first.visited @ self._first.in_ball(free, balls)
        room = np.sqrt(np.maximum(balls**2 - size_sq, 0.0))  # 0 where the ball binds: the minimiser is then unique
        rest = targets - self.predict(theta)
        return np.asarray(theta + self._second.visited @ self._second.in_ball(self._second.coordinates(rest), room))


def flat_features(mdp: FiniteMDP, h: int) -> tuple[Array, IntArray]:
    """Features (S * A, k) and blocks (S * A,) of all pairs at level h."""
    return mdp.features.vectors[h].reshape(-1, mdp.spec.block_dim), mdp.features.blocks[h].ravel()


def reachable_pairs(mdp: FiniteMDP) -> BoolArray:
    """The pairs that some policy visits, (H, S, A); terminal states left out."""
    return np.repeat(mdp.reachable[:, :, None], mdp.n_actions, axis=2)


def population_fit(mdp: FiniteMDP, occupancies: Array, h: int) -> PopulationFit:
    """Fits at level h under occupancies (H, S, A); targets are (S * A,)."""
    everywhere = np.repeat(mdp.reachable[h], mdp.n_actions).astype(np.float64)
    everywhere /= max(everywhere.sum(), 1.0)  # 0 where all episodes have ended before
    return PopulationFit(*flat_features(mdp, h), mdp.spec.n_blocks, occupancies[h].ravel(), everywhere)


@final
@dataclass(frozen=True, eq=False, slots=True)
class LevelErrors:
    """At one level: phi . theta - T_h V' = base + slope V', and theta = theta_base + theta_slope V'.

    V' is over the states that are not terminal, in the box [low, high]; after the last level it is 0.
    """

    base: Array  # (S, A)
    slope: Array  # (S, A, S); 0 for terminal next states
    theta_base: Array  # (d,)
    theta_slope: Array  # (d, S)

    def at(self, values: Array) -> Array:
        """The error for a value (S,), (S, A)."""
        return np.asarray(self.base + self.slope @ values)

    def extremes(self, low: float, high: float) -> tuple[Array, Array]:
        """The smallest and the largest error at each pair over the box, (S, A) each."""
        up, down = np.maximum(self.slope, 0.0).sum(axis=-1), np.minimum(self.slope, 0.0).sum(axis=-1)
        return np.asarray(self.base + low * up + high * down), np.asarray(self.base + high * up + low * down)

    def largest(self, low: float, high: float) -> float:
        """The largest |error| at any pair over the box."""
        lowest, highest = self.extremes(low, high)
        return float(np.maximum(highest, -lowest).max(initial=0.0))

    def largest_norm(self, low: float, high: float) -> tuple[float, float]:
        """A lower and an upper bound on the largest |theta| over the box."""
        return largest_norm(self.theta_base, self.theta_slope, low, high)

    def never_binds(self, ball: Array, low: float, high: float) -> bool:
        """Does theta lie in the ball (), or in the balls (n_blocks,), for every V' of the box?"""
        if np.isinf(ball).all():
            return True
        shape = (ball.size, -1)
        bases, slopes = self.theta_base.reshape(shape), self.theta_slope.reshape(*shape, self.theta_slope.shape[1])
        largest = [largest_norm(base, slope, low, high)[1] for base, slope in zip(bases, slopes, strict=True)]
        return bool(np.all(np.array(largest) <= ball * (1 + 1e-12)))  # an exact radius may be missed by rounding

    def where(self, here: BoolArray) -> "LevelErrors":
        """The same at some of the states only; here (S,)."""
        return replace(self, base=self.base[here], slope=self.slope[here])

    def merged(self, mdp: FiniteMDP, h: int) -> "LevelErrors":
        """The same, with one entry of V' for all next states that no linear Q' tells apart."""
        if h + 1 == mdp.horizon:
            return self
        groups = feature_classes(mdp.features, h + 1, np.ones(mdp.n_states, dtype=np.bool_))
        one_hot = np.eye(groups.max() + 1)[groups]
        return replace(self, slope=self.slope @ one_hot, theta_slope=self.theta_slope @ one_hot)


def linear_errors(mdp: FiniteMDP, occupancies: Array, h: int) -> LevelErrors:
    """The errors of fits at level h under occupancies (H, S, A), no ball."""
    n_pairs = mdp.n_states * mdp.n_actions
    moves = mdp.transitions[h].reshape(n_pairs, mdp.n_states)
    ended = moves[:, mdp.terminal].sum(axis=1) * mdp.spec.ended_value(h)
    fixed = (mdp.rewards[h] - mdp.spec.reward_min).ravel() + ended
    slope = moves * (~mdp.terminal if h + 1 < mdp.horizon else False)
    targets = np.concatenate([fixed[:, None], slope], axis=1)
    fit = population_fit(mdp, occupancies, h)
    theta = fit.solve_many(targets)
    errors = fit.predict(theta) - targets
    errors[np.repeat(mdp.terminal, mdp.n_actions)] = 0.0
    pairs, thetas = errors.reshape(mdp.n_states, mdp.n_actions, -1), theta.reshape(mdp.dim, -1)
    return LevelErrors(pairs[..., 0], pairs[..., 1:], thetas[:, 0], thetas[:, 1:])


def errors_everywhere(mdp: FiniteMDP, h: int) -> LevelErrors:
    """The errors at reachable pairs of fits that weigh all of these pairs alike."""
    return linear_errors(mdp, reachable_pairs(mdp).astype(np.float64), h).where(mdp.reachable[h])
