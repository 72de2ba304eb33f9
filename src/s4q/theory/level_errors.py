"""The error of a fit as a function of the value it bootstraps on: affine, as long as no ball binds."""

from dataclasses import dataclass
from typing import final

import numpy as np

from s4q.core.blocks import Array
from s4q.problems import FiniteMDP
from s4q.problems.radius import largest_norm
from s4q.theory.population_fits import population_fit


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

    def highest(self, low: float, high: float) -> Array:
        """The largest error at each pair over the box, (S, A)."""
        up, down = np.maximum(self.slope, 0.0).sum(axis=-1), np.minimum(self.slope, 0.0).sum(axis=-1)
        return np.asarray(self.base + high * up + low * down)

    def lowest(self, low: float, high: float) -> Array:
        """The smallest error at each pair over the box, (S, A)."""
        up, down = np.maximum(self.slope, 0.0).sum(axis=-1), np.minimum(self.slope, 0.0).sum(axis=-1)
        return np.asarray(self.base + low * up + high * down)

    def largest(self, low: float, high: float) -> Array:
        """The largest |error| at each pair over the box, (S, A)."""
        return np.maximum(self.highest(low, high), -self.lowest(low, high))

    def largest_norm(self, low: float, high: float) -> tuple[float, float]:
        """A lower and an upper bound on the largest |theta| over the box."""
        return largest_norm(self.theta_base, self.theta_slope, low, high)

    def never_binds(self, ball: Array, low: float, high: float) -> bool:
        """Does theta lie in the ball (), or in the balls (n_blocks,), for every V' of the box?"""
        parts = [self]
        if ball.ndim == 1:
            shape = (len(ball), -1)
            bases, slopes = self.theta_base.reshape(shape), self.theta_slope.reshape(*shape, self.theta_slope.shape[1])
            parts = [LevelErrors(self.base, self.slope, base, slope) for base, slope in zip(bases, slopes, strict=True)]
        largest = np.array([part.largest_norm(low, high)[1] for part in parts])
        return bool(np.all(largest <= ball * (1 + 1e-12)))  # an exact radius may be missed by rounding


def linear_errors(mdp: FiniteMDP, occupancies: Array, h: int) -> LevelErrors:
    """The errors of fits at level h under occupancies (H, S, A), no ball."""
    n_pairs = mdp.n_states * mdp.n_actions
    moves = mdp.transitions[h].reshape(n_pairs, mdp.n_states)
    ended = moves[:, mdp.terminal].sum(axis=1) * mdp.spec.ended_value(h)
    fixed = (mdp.rewards[h] - mdp.spec.reward_min).ravel() + ended
    slope = moves * (~mdp.terminal if h + 1 < mdp.horizon else False)
    targets = np.concatenate([fixed[:, None], slope], axis=1)
    fit = population_fit(mdp, occupancies, h)
    theta = fit.solve_free(targets)
    errors = fit.predict(theta) - targets
    errors[np.repeat(mdp.terminal, mdp.n_actions)] = 0.0
    pairs, thetas = errors.reshape(mdp.n_states, mdp.n_actions, -1), theta.reshape(mdp.dim, -1)
    return LevelErrors(pairs[..., 0], pairs[..., 1:], thetas[:, 0], thetas[:, 1:])


def next_bound(mdp: FiniteMDP, h: int) -> float:
    """v_{h+1}, the bound on the value that level h bootstraps on; 0 after the last level."""
    return mdp.spec.value_bound[h + 1] if h + 1 < mdp.horizon else 0.0
