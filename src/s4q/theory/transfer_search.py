"""Local search for the transfer error: targets level by level, policies by dynamic programs, controllers by moves.

`transfer_errors` calls it for lower ends of brackets and builds the bounds itself. A search only ever returns what it
has attained, never an estimate. All randomness comes from the generator that the caller passes.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from s4q.core.blocks import Array
from s4q.problems import FiniteMDP, planning
from s4q.theory.definitions import bellman_backup, errors_of_fits, gradient_of_values
from s4q.theory.population_fits import PopulationFit, linear_errors, population_fit

_AFAR = 64  # points far from the present one that a search looks at


class Reached(NamedTuple):
    """Where a search stands: the error, V' (H, S), its parameter if it has one, and the policy that meets it."""

    size: float
    values: Array
    theta: Array | None
    comparator: Array


class Fits:
    """The fits of one controller at all levels: exact errors, and their slopes where no ball binds."""

    def __init__(self, mdp: FiniteMDP, occupancies: Array, balls: Array, low: Array, high: Array) -> None:
        self.mdp, self.balls, self.low, self.high = mdp, balls, low, high
        self.fits: list[PopulationFit] = [population_fit(mdp, occupancies, h) for h in range(mdp.horizon)]
        self.levels = [linear_errors(mdp, occupancies, h) for h in range(mdp.horizon)]
        limits = zip(self.levels, balls, low, high, strict=True)
        self.free = [level.never_binds(ball, bottom, top) for level, ball, bottom, top in limits]

    def errors(self, h: int, values: Array) -> Array:
        """phi . theta - T_h V', (S, A), for V' (S,)."""
        if self.free[h]:
            return self.levels[h].at(values)
        return np.asarray(self._many(h, values[None])[0])

    def _many(self, h: int, many: Array) -> Array:
        """In the ball, for many V' (m, S): (m, S, A)."""
        mdp = self.mdp
        after = np.where(mdp.terminal, 0.0, many) @ mdp.transitions[h].reshape(-1, mdp.n_states).T
        backups = bellman_backup(mdp, h, np.zeros(mdp.n_states)).ravel() + after
        fit = self.fits[h]
        found = (fit.predict(fit.solve_many(backups.T, self.balls[h])).T - backups).reshape(-1, *mdp.rewards.shape[1:])
        found[:, mdp.terminal] = 0.0
        return np.asarray(found)

    def all_errors(self, values: Array) -> Array:
        """(H, S, A), for values (H, S)."""
        return np.stack([self.errors(h, after) for h, after in enumerate(values)])

    def met(self, h: int, meets: Array, many: Array) -> Array:
        """E g_h under the occupancy meets (S, A), for many V' (m, S): (m,)."""
        if self.free[h]:
            level = self.levels[h]
            return np.asarray((meets * level.base).sum() + many @ self.weights(h, meets))
        return np.asarray(np.einsum("sa,msa->m", meets, self._many(h, many)))

    def weights(self, h: int, meets: Array) -> Array:
        """The slope of E g_h in V', (S,), as if no ball bound."""
        return np.asarray(np.einsum("sa,sat->t", meets, self.levels[h].slope))


def _worst_policy(mdp: FiniteMDP, errors: Array, sign: float) -> tuple[float, Array]:
    """The largest sign * sum_h E errors_h over all policies, and the policy (H, S, A)."""
    q = planning.optimal_values(mdp.transitions, sign * errors)
    return float(mdp.start @ q[0].max(axis=-1)), planning.greedy(q)


def _best(points: Array, scores: Array) -> tuple[Array, float]:
    """The point (row) with the highest score, and that score."""
    place = int(scores.argmax())
    return points[place], float(scores[place])


class LinearTargets:
    """V'_h = max_a phi_{h+1} . theta', theta' in a ball: random starts, and local steps of a level."""

    def __init__(
        self, mdp: FiniteMDP, balls: Array, limits: Array, rng: np.random.Generator, near: Array | None
    ) -> None:
        self._mdp, self._balls, self._limits, self._rng = mdp, balls, limits, rng
        self.theta = np.zeros((mdp.horizon, mdp.dim))
        for h in range(1, mdp.horizon):
            theta = rng.normal(size=mdp.dim)
            theta *= balls[h] / max(float(np.linalg.norm(theta)), 1e-300)
            self.theta[h] = self._inside(h, theta if near is None else near[h].ravel() + 0.3 * theta)[0]

    def values(self) -> Array:
        """(H, S)"""
        rows = [self._values(h + 1, self.theta[h + 1][None])[0] for h in range(self._mdp.horizon - 1)]
        return np.array([*rows, np.zeros(self._mdp.n_states)])

    def improve(self, h: int, score: Callable[[Array], Array], weights: Array) -> None:
        """Local search of theta' of level h + 1 for the score of V'_h: the linearised maximum, then a compass."""
        mdp, ball = self._mdp, self._balls[h + 1]
        afar = self._rng.normal(size=(_AFAR, mdp.dim))
        afar *= ball * self._rng.random((_AFAR, 1)) ** 0.2 / np.linalg.norm(afar, axis=1, keepdims=True)
        tried = np.concatenate([self.theta[h + 1][None], self._inside(h + 1, afar)])
        (theta, best), step = _best(tried, score(self._values(h + 1, tried))), 0.5 * ball
        shares = 0.5 ** np.arange(7.0)
        while step > 1e-4 * ball:
            phi = mdp.features.level(h + 1)
            q = np.einsum("nak,nak->na", phi.vectors, theta.reshape(mdp.spec.n_blocks, -1)[phi.blocks])
            slope = gradient_of_values(mdp, h + 1, q.argmax(axis=1), weights).ravel()
            length = float(np.linalg.norm(slope))
            there = theta if length == 0 else slope * (ball / length)
            axes = np.linalg.qr(self._rng.normal(size=(mdp.dim, mdp.dim)))[0] * step
            tried = np.concatenate([theta + shares[:, None] * (there - theta), theta + axes, theta - axes])
            tried = self._inside(h + 1, tried)
            found, size = _best(tried, score(self._values(h + 1, tried)))
            if size > best + 1e-12 * (1.0 + abs(best)):
                theta, best = found, size
            else:
                step /= 2
        self.theta[h + 1] = theta

    def _values(self, h: int, many: Array) -> Array:
        """max_a phi_h . theta for many theta (m, d): (m, S)."""
        return np.asarray(self._q(h, many).max(axis=-1))

    def _q(self, h: int, many: Array) -> Array:
        """phi_h . theta for many theta (m, d): (m, S, A)."""
        phi = self._mdp.features.level(h)
        shaped = many.reshape(len(many), self._mdp.spec.n_blocks, -1)
        return np.asarray(np.einsum("nak,mnak->mna", phi.vectors, shaped[:, phi.blocks]))

    def _inside(self, h: int, many: Array) -> Array:
        """The same parameters (m, d), shortened where they leave the ball or their values the limit."""
        rows = np.atleast_2d(many)
        norms = np.linalg.norm(rows, axis=1)
        sizes = np.abs(self._q(h, rows)[:, self._mdp.reachable[h]]).max(axis=(1, 2), initial=0.0)
        share = np.minimum(self._balls[h] / np.maximum(norms, 1e-300), self._limits[h] / np.maximum(sizes, 1e-300))
        return np.asarray(rows * np.minimum(1.0, share)[:, None])


class AllTargets:
    """Every V'_h in [low_h, high_h]: random corners, and steps of a level to better corners and points."""

    def __init__(self, fits: Fits, rng: np.random.Generator, start: Array | None = None) -> None:
        self._fits, self.theta = fits, None
        shape = (fits.mdp.horizon, fits.mdp.n_states)
        corners = np.where(rng.random(shape) < 0.5, fits.low[:, None], fits.high[:, None])
        self._values = corners if start is None else start.copy()

    def values(self) -> Array:
        """(H, S)"""
        return self._values.copy()

    def improve(self, h: int, score: Callable[[Array], Array], weights: Array) -> None:
        """The best corner where errors are linear in V'; where a ball binds, also points on the way and coordinates."""
        low, high, now = self._fits.low[h], self._fits.high[h], self._values[h]
        corner = np.where(weights >= 0, high, low)
        if self._fits.free[h]:
            self._values[h] = corner
            return
        best = float(score(now[None])[0])
        tried = now + np.array([1.0, 0.75, 0.5, 0.25])[:, None] * (corner - now)
        for state in range(-1, len(now)):
            if state >= 0:
                tried = np.repeat(now[None], 5, axis=0)
                tried[:, state] = np.linspace(low, high, 5)
            found, size = _best(tried, score(tried))
            if size > best + 1e-12 * (1.0 + abs(best)):
                now, best = found, size
        self._values[h] = now


def ascend(fits: Fits, sign: float, targets: LinearTargets | AllTargets, meets: Array | None = None) -> Reached:
    """Alternate between the worst policy, a dynamic program, and better targets level by level, until nothing grows.

    meets: occupancies (H, S, A) that the first targets are made for; None for the first targets as they are.
    """
    mdp, reached = fits.mdp, None
    if meets is not None:
        _improve(fits, sign, targets, meets)
    while True:
        values = targets.values()
        size, comparator = _worst_policy(mdp, fits.all_errors(values), sign)
        if reached is not None and size <= reached.size + 1e-12 * (1.0 + abs(size)):
            return reached
        theta = None if targets.theta is None else targets.theta.reshape(mdp.spec.theta_shape).copy()
        reached = Reached(size, values, theta, comparator)
        _improve(fits, sign, targets, planning.occupancies(mdp.transitions, mdp.start, comparator))


def _improve(fits: Fits, sign: float, targets: LinearTargets | AllTargets, meets: Array) -> None:
    """Better targets of every level for the occupancies (H, S, A) that meet the errors."""
    for h in range(fits.mdp.horizon - 1):

        def score(many: Array, h: int = h) -> Array:
            return sign * fits.met(h, meets[h], many)

        targets.improve(h, score, sign * fits.weights(h, meets[h]))


def random_occupancies(mdp: FiniteMDP, rng: np.random.Generator) -> Array:
    """Those of a random deterministic policy, (H, S, A)."""
    return planning.occupancies(mdp.transitions, mdp.start, planning.greedy(rng.random(mdp.rewards.shape)))


def search_controllers(
    mdp: FiniteMDP, controller: Array, balls: Array, low: Array, high: Array, sweeps: int, rng: np.random.Generator
) -> tuple[Reached, Array]:
    """Alternate between targets and policies for a controller (H, S, A), and moves of the controller for both."""

    def ascended(start: Array | None, sign: float) -> tuple[Reached, float]:
        fits = Fits(mdp, planning.occupancies(mdp.transitions, mdp.start, controller), balls, low, high)
        return ascend(fits, sign, AllTargets(fits, rng, start)), sign

    best, sign = max((ascended(None, way) for way in (1.0, -1.0) for _ in range(2)), key=lambda pair: pair[0].size)
    for _ in range(sweeps):
        before = best.size
        for h, s in np.argwhere(mdp.reachable & ~mdp.terminal):
            for table in _moves(controller, h, s):
                occupancies = planning.occupancies(mdp.transitions, mdp.start, table)
                errors = -errors_of_fits(mdp, occupancies, best.values, balls)
                if _worst_policy(mdp, errors, sign)[0] > best.size * (1 + 1e-6) + 1e-12:
                    controller = table
                    best, sign = ascended(best.values, sign)
        if best.size == before:
            break
    return best, controller


def _moves(controller: Array, h: int, s: int) -> list[Array]:
    """Tables (H, S, A) that put all, or half, of the weight at one state and level on one action."""
    found = []
    for chosen in np.eye(controller.shape[-1]):
        for share in (1.0, 0.5):
            if (1.0 - controller[h, s] @ chosen) * share > 1e-3:
                found.append(controller.copy())
                found[-1][h, s] += share * (chosen - controller[h, s])
    return found


def first_controller(mdp: FiniteMDP, start: int, rng: np.random.Generator) -> Array:
    """Where search number `start` begins, (H, S, A)."""
    if start == 0:
        return np.full(mdp.rewards.shape, 1.0 / mdp.n_actions)
    if start == 1:
        return planning.greedy(mdp.q_star)
    table = rng.dirichlet(np.full(mdp.n_actions, 0.5), size=mdp.rewards.shape[:2])
    return planning.greedy(table) if start % 2 == 0 else table
