"""The oracle for S4Q: Algorithm 2 as nested loops on long vectors, and the dice that oracle and library share.

Nothing here knows the library: of a problem it reads tables and the numbers of its spec.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from literal_constants import LiteralConstants, data_scaled_width
from literal_s3q import Samples, Script, literal_s3q, long_features, residual_variance, ridge_in_balls, stacked


class SharedDice:
    """Episode number i always has the same dice, whoever plays it."""

    def __init__(self, mdp: Any, seed: int) -> None:
        self.mdp, self.seed, self.n_played = mdp, seed, 0

    def play(self, tables: list[np.ndarray], weights: np.ndarray) -> tuple[int, Script]:
        """One episode of a mixture of policies given as tables (H, S, A)."""
        mdp, low, high = self.mdp, self.mdp.spec.reward_min, self.mdp.spec.reward_max
        dice = np.random.default_rng([self.seed, self.n_played]).random(2 + 3 * mdp.horizon)
        self.n_played += 1
        which = min(int((np.cumsum(weights) <= dice[0]).sum()), len(weights) - 1)
        states, actions, rewards = [pick(mdp.start, dice[1])], [], []
        for h in range(mdp.horizon):
            s = states[-1]
            a = pick(tables[which][h, s], dice[2 + 3 * h])
            mean = float(mdp.rewards[h, s, a])
            paid = high if dice[3 + 3 * h] * (high - low) < mean - low else low
            rewards.append(paid if mdp.reward_noise == "bernoulli" else mean)
            actions.append(a)
            states.append(pick(mdp.transitions[h, s, a], dice[4 + 3 * h]))
            if mdp.terminal[states[-1]]:
                break
        return which, Script(states, actions, rewards, bool(mdp.terminal[states[-1]]))


def pick(probabilities: np.ndarray, u: float) -> int:
    return min(int((np.cumsum(probabilities) <= u).sum()), len(probabilities) - 1)


@dataclass
class LiteralPhase:
    """One phase of the oracle."""

    ridge: np.ndarray
    unclipped: np.ndarray  # (H, S, A): the optimistic value before clipping
    theta: np.ndarray  # (H, d)
    cov_ref: np.ndarray  # (H, d, d), ridge not included
    increment: np.ndarray  # (H, d, d)
    progress: np.ndarray  # (H,), or (1,) with pooled steps
    residuals: np.ndarray  # (H,)
    threshold: tuple[float, float]
    n: int = 0
    finished: bool = False
    origin: int = 0  # the number of the phase that its policy was fitted for
    returns: list[float] = field(default_factory=list)  # for rewards that start at 0
    promises: list[float] = field(default_factory=list)  # the clipped optimistic value where each episode began


@dataclass
class LiteralRun:
    phases: list[LiteralPhase] = field(default_factory=list)  # those whose main loop began
    memory: list[tuple[np.ndarray, int]] = field(default_factory=list)  # (policy table, m)
    cached: list[Script] = field(default_factory=list)  # the first episodes of main loops
    parents: list[LiteralPhase] = field(default_factory=list)  # the phase each policy comes from
    n_replayed: int = 0
    n_main: int = 0
    best: int | None = None  # the origin of the policy whose returns speak best for it

    def returns_of(self) -> dict[int, list[float]]:
        """The returns of every policy, by its origin."""
        found: dict[int, list[float]] = {}
        for phase in self.phases:
            found.setdefault(phase.origin, []).extend(phase.returns)
        return found

    def worth(self, origin: int) -> float:
        """The lower bound of what a policy returns, with the mean and the variances of all."""
        by_policy = self.returns_of()
        everything = np.concatenate(list(by_policy.values()))
        spread = float(np.var(everything))
        squares = sum(len(ones) * float(np.var(ones)) for ones in by_policy.values())
        within = min((squares + spread) / (len(everything) - len(by_policy) + 1), spread)
        between = max(spread - within, spread / 100)
        own = np.array(by_policy[origin])
        error = (len(own) * float(np.var(own)) + 30 * within) / (len(own) + 29) / len(own)
        trust = between / (between + error) if between > 0 else 0.0
        mean = float(np.mean(everything))
        return mean + trust * (float(np.mean(own)) - mean) - 2 * float(np.sqrt(trust * error))

    def refuted(self, value_bound: float) -> bool:
        """Is the best policy another one, and worth more than the last phase promised? Keeps the best one."""
        last = self.phases[-1]
        tie = 1e-9 * value_bound
        if self.best is None or self.worth(last.origin) >= self.worth(self.best) - tie:
            self.best = last.origin
        return last.origin != self.best and self.worth(self.best) > np.mean(last.promises) + tie

    def remember(self, phase: LiteralPhase, table: np.ndarray, m: int) -> None:
        """Add to the memory; a policy with the same parameters as an earlier one only raises its count."""
        for j, other in enumerate(self.parents):
            if max(np.abs(phase.unclipped - other.unclipped).max(), np.abs(phase.theta - other.theta).max()) < 1e-12:
                self.memory[j] = (self.memory[j][0], self.memory[j][1] + m)
                return
        self.memory.append((table, m))
        self.parents.append(phase)


def literal_s4q(mdp: Any, budget: int, seed: int, c: LiteralConstants) -> LiteralRun:
    phi, spec = long_features(mdp), mdp.spec
    horizon, _, n_actions, dim = phi.shape
    dice, run = SharedDice(mdp, seed), LiteralRun()
    lower = 0.0 if spec.well_specified else -np.inf
    clip = np.array([(lower, v) for v in spec.value_bound])
    before = np.zeros((horizon, dim, dim))
    n_progress = 1 if c.pool else horizon
    grouped = c.preset == "practical" and c.memory != "policies" and spec.block_dim == 1 and not spec.well_specified
    again: int | None = None  # the policy to play once more in place of the new one
    while True:
        p = len(run.phases) + 1
        m_tot = sum(m for _, m in run.memory)
        n_total = m_tot + len(run.cached)
        ridge = c.ridge(p, n_total)
        shared: dict[str, np.ndarray] = {}

        def bonus(h: int, samples: Samples) -> np.ndarray:
            """Table (S, A) from the covariance that the mode wants."""
            x = stacked(samples, dim)[0]
            own = x.T @ x
            if c.preset == "practical":
                metric = shared.setdefault("gram", own) if c.pool else own
                # One metric for all levels where steps are pooled: that of the level fitted first.
                lam = float(ridge[-1 if c.pool else h])
                return data_scaled_table(mdp, phi[h], h, samples, norms(phi[h], metric, lam), float(ridge[h]), c)
            cov = own if c.bonus_from == "own" else before[h]
            width = c.width(h, p, n_total, cov, float(ridge[h]))
            return width[mdp.features.blocks[h]] * np.sqrt(norms(phi[h], cov, float(ridge[h])))

        if n_total == 0:
            unclipped = np.stack([bonus(h, []) for h in range(horizon)])
            theta, cov_ref = np.zeros((horizon, dim)), np.zeros((horizon, dim, dim))
            residuals = np.zeros(horizon)
        else:
            slots = c.slots(m_tot)
            total = horizon * slots
            allowed = min(total, budget - dice.n_played)
            tables, weights = [t for t, _ in run.memory], np.array([m for _, m in run.memory]) / max(m_tot, 1)
            result = literal_s3q(
                phi,
                played(lambda t=tables, w=weights: dice.play(t, w)[1]),
                stop=lambda used, most=allowed: used >= most,
                ridge=ridge,
                radius=[c.balls(h) for h in range(horizon)],
                reward_min=spec.reward_min,
                bonus=bonus,
                clip=clip,
                epoch_size=slots if c.epochs == "single" or not slots else None,
                pool=c.pool,
                cached=run.cached,
            )
            run.n_replayed += result.used
            if result.used < total:
                return run  # the budget ended inside the call
            assert result.unclipped is not None
            assert result.theta is not None
            assert result.grams is not None
            assert result.residuals is not None
            unclipped, theta, residuals = result.unclipped, result.theta, result.residuals
            cov_ref = result.grams * (m_tot / max(result.n_level, 1))
            if c.pool:
                cov_ref[:] = cov_ref.mean(axis=0)
            for episode in run.cached:
                for h, (s, a) in enumerate(zip(episode.states, episode.actions, strict=False)):
                    cov_ref[slice(None) if c.pool else h] += np.outer(phi[h, s, a], phi[h, s, a])

        first, slope = threshold = c.threshold(p, replaying=len(run.memory) > 0)
        nothing = (np.zeros_like(cov_ref), np.zeros(n_progress))
        origin = p
        if again is not None:
            unclipped, theta, origin = run.phases[again - 1].unclipped, run.phases[again - 1].theta, again
        phase = LiteralPhase(ridge, unclipped, theta, cov_ref, *nothing, residuals, threshold, origin=origin)
        run.phases.append(phase)
        table = np.eye(n_actions)[unclipped.round(9).argmax(axis=2)]  # ties up to rounding go to the lowest action
        lams = [ridge[0 if c.pool else h] for h in range(horizon)]  # one Sigma_ref where steps are pooled
        inverses = [np.linalg.inv(cov_ref[h] + lams[h] * np.eye(dim)) for h in range(horizon)]
        while dice.n_played < budget:
            _, episode = dice.play([table], np.ones(1))
            phase.n += 1
            run.n_main += 1
            phase.returns.append(sum(reward - spec.reward_min for reward in episode.rewards))
            phase.promises.append(min(max(float(unclipped[0, episode.states[0]].max()), clip[0, 0]), clip[0, 1]))
            if c.memory != "policies":
                run.cached.append(episode)
            for h, (s, a) in enumerate(zip(episode.states, episode.actions, strict=False)):
                x = phi[h, s, a]
                phase.progress[0 if c.pool else h] += x @ inverses[h] @ x
                phase.increment[slice(None) if c.pool else h] += np.outer(x, x)
            if phase.progress.max() >= first + slope * np.log(phase.n):
                phase.finished = True
                break
        if not phase.finished:
            return run
        again = run.best if grouped and run.refuted(spec.value_bound[0]) else None
        if c.memory == "policies":
            run.remember(phase, table, phase.n)
        before = cov_ref + phase.increment


def norms(phi: np.ndarray, cov: np.ndarray, ridge: float) -> np.ndarray:
    """phi^T (cov + ridge)^-1 phi, (S, A)."""
    return np.einsum("sai,ij,saj->sa", phi, np.linalg.inv(cov + ridge * np.eye(len(cov))), phi)


def data_scaled_table(
    mdp: Any, phi: np.ndarray, h: int, samples: Samples, norm_sq: np.ndarray, ridge: float, c: LiteralConstants
) -> np.ndarray:
    """The bonus of `practical` at every pair, number by number."""
    dim = phi.shape[-1]
    x, y = stacked(samples, dim)
    inverse = np.linalg.inv(x.T @ x + ridge * np.eye(dim))
    second = inverse @ (x.T @ y**2)
    residual = residual_variance(samples, inverse @ x.T @ y, ridge)
    theta = ridge_in_balls(x.T @ x, x.T @ y, ridge, c.balls(h))
    table = np.zeros(phi.shape[:2])
    for s, a in np.ndindex(*table.shape):
        if norm_sq[s, a] > 0:
            variance = float(phi[s, a] @ second - (phi[s, a] @ theta) ** 2)
            block = np.flatnonzero(phi[s, a])[0] // mdp.spec.block_dim
            begun = any(np.flatnonzero(one)[0] // mdp.spec.block_dim == block for one in x if one.any())
            width = data_scaled_width(
                mdp.spec, h, norm_sq[s, a], variance, residual, ridge, c.kappa(h), len(y), begun=begun
            )
            table[s, a] = width * np.sqrt(norm_sq[s, a])
    return table


def played(play: Callable[[], Script]) -> Iterator[Script]:
    while True:
        yield play()


def in_blocks(gram: np.ndarray, n_blocks: int) -> np.ndarray:
    """The diagonal blocks of a (d, d) matrix, (n_blocks, k, k)."""
    k = len(gram) // n_blocks
    return np.stack([gram[b * k : (b + 1) * k, b * k : (b + 1) * k] for b in range(n_blocks)])
