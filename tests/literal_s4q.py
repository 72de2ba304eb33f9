"""The oracle for S4Q: Algorithm 2 as nested loops on long vectors, and the dice that oracle and library share."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from literal_s3q import Samples, literal_s3q, ridge_in_balls
from s4q.collectors import shards
from s4q.collectors.shards import fixed_shards
from s4q.least_squares import Moments
from s4q.presets import Constants
from s4q.problems import FiniteMDP
from s4q.requests import Explore, Regress, Regression, Request, Shard, Transitions, Visits
from scripts import Script, dense_features


class SharedDice:
    """Episode number i always has the same dice, whoever plays it."""

    def __init__(self, mdp: FiniteMDP, seed: int) -> None:
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
    progress: np.ndarray  # (H,)
    n: int = 0
    finished: bool = False


@dataclass
class LiteralRun:
    phases: list[LiteralPhase] = field(default_factory=list)  # those whose main loop began
    memory: list[tuple[np.ndarray, int]] = field(default_factory=list)  # (policy table, m)
    cached: list[Script] = field(default_factory=list)  # the first episodes of main loops
    parents: list[LiteralPhase] = field(default_factory=list)  # the phase each policy comes from
    n_replayed: int = 0
    n_main: int = 0

    def remember(self, phase: LiteralPhase, table: np.ndarray, m: int) -> None:
        """Add to the memory; a policy with the same parameters as an earlier one only raises its count."""
        for j, other in enumerate(self.parents):
            if max(np.abs(phase.unclipped - other.unclipped).max(), np.abs(phase.theta - other.theta).max()) < 1e-12:
                self.memory[j] = (self.memory[j][0], self.memory[j][1] + m)
                return
        self.memory.append((table, m))
        self.parents.append(phase)


def literal_s4q(mdp: FiniteMDP, budget: int, seed: int, c: Constants) -> LiteralRun:
    phi, spec = dense_features(mdp), mdp.spec
    horizon, _, n_actions, dim = phi.shape
    dice, run = SharedDice(mdp, seed), LiteralRun()
    lower = 0.0 if spec.well_specified else -np.inf
    clip = np.array([(lower, v) for v in spec.value_bound])
    before = np.zeros((horizon, dim, dim))
    n_progress = 1 if c.pool else horizon
    while True:
        p = len(run.phases) + 1
        m_tot = sum(m for _, m in run.memory)
        n_total = m_tot + len(run.cached)
        ridge = c.ridge(p, n_total)
        shared: dict[str, np.ndarray] = {}

        def bonus(h: int, samples: Samples) -> np.ndarray:
            """Table (S, A) from the covariance that the mode wants."""
            own = sum((np.outer(x, x) for x, _ in samples), np.zeros((dim, dim)))
            if c.preset == "practical":
                metric = shared.setdefault("gram", own) if c.pool else own
                return data_scaled_table(mdp, phi[h], h, samples, metric, float(ridge[h]), c)
            cov = own if c.bonus_from == "own" else before[h]
            width = c.width(h, p, n_total, in_blocks(cov, spec.n_blocks), ridge[h])
            return width[mdp.features.blocks[h]] * np.sqrt(norms(phi[h], cov, float(ridge[h])))

        if n_total == 0:
            unclipped = np.stack([bonus(h, []) for h in range(horizon)])
            theta, cov_ref = np.zeros((horizon, dim)), np.zeros((horizon, dim, dim))
        else:
            slots = int(max(1 if c.epochs == "single" else 2, np.ceil(c.c_replay * m_tot))) if m_tot else 0
            total = horizon * slots
            allowed = min(total, budget - dice.n_played)
            tables, weights = [t for t, _ in run.memory], np.array([m for _, m in run.memory]) / max(m_tot, 1)
            result = literal_s3q(
                phi,
                played(lambda t=tables, w=weights: dice.play(t, w)[1]),
                stop=lambda used, most=allowed: used >= most,
                ridge=ridge,
                radius=list(c.radius()),
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
            unclipped, theta = result.unclipped, result.theta
            cov_ref = result.grams * (m_tot / max(result.n_level, 1))
            if c.pool:
                cov_ref[:] = cov_ref.mean(axis=0)
            for episode in run.cached:
                for h, (s, a) in enumerate(zip(episode.states, episode.actions, strict=False)):
                    cov_ref[slice(None) if c.pool else h] += np.outer(phi[h, s, a], phi[h, s, a])

        phase = LiteralPhase(ridge, unclipped, theta, cov_ref, np.zeros_like(cov_ref), np.zeros(n_progress))
        run.phases.append(phase)
        table = np.eye(n_actions)[unclipped.round(9).argmax(axis=2)]  # ties up to rounding go to the lowest action
        n_cached = 0
        while dice.n_played < budget:
            _, episode = dice.play([table], np.ones(1))
            phase.n += 1
            run.n_main += 1
            if len(run.cached) < c.cache_episodes:
                run.cached.append(episode)
                n_cached += 1
            for h, (s, a) in enumerate(zip(episode.states, episode.actions, strict=False)):
                x = phi[h, s, a]
                phase.progress[0 if c.pool else h] += x @ np.linalg.inv(cov_ref[h] + ridge[h] * np.eye(dim)) @ x
                phase.increment[slice(None) if c.pool else h] += np.outer(x, x)
            first, slope = c.threshold(p, replaying=len(run.memory) > 0)
            if phase.progress.max() >= first + slope * np.log(phase.n):
                phase.finished = True
                break
        if not phase.finished:
            return run
        if phase.n > n_cached:
            run.remember(phase, table, phase.n - n_cached)
        before = cov_ref + phase.increment


def norms(phi: np.ndarray, cov: np.ndarray, ridge: float) -> np.ndarray:
    """phi^T (cov + ridge)^-1 phi, (S, A)."""
    return np.einsum("sai,ij,saj->sa", phi, np.linalg.inv(cov + ridge * np.eye(len(cov))), phi)


def data_scaled_table(
    mdp: FiniteMDP, phi: np.ndarray, h: int, samples: Samples, metric: np.ndarray, ridge: float, c: Constants
) -> np.ndarray:
    """The bonus of `practical` at every pair, number by number."""
    dim, v = phi.shape[-1], mdp.spec.value_bound[h]
    gram = sum((np.outer(x, x) for x, _ in samples), np.zeros((dim, dim)))
    inverse = np.linalg.inv(gram + ridge * np.eye(dim))
    free = inverse @ sum((x * y for x, y in samples), np.zeros(dim))
    second = inverse @ sum((x * y * y for x, y in samples), np.zeros(dim))
    squares = sum((y - x @ free) ** 2 for x, y in samples)
    residual = squares / max(len(samples) - np.trace(gram @ inverse), 1.0)
    moment = sum((x * y for x, y in samples), np.zeros(dim))
    theta = ridge_in_balls(gram, moment, ridge, c.radius()[h])
    table = np.zeros(phi.shape[:2])
    norm_sq = norms(phi, metric, ridge)
    for s, a in np.ndindex(*table.shape):
        if norm_sq[s, a] > 0:
            n = max(0.0, 1 / norm_sq[s, a] - ridge)
            variance = np.clip(phi[s, a] @ second - (phi[s, a] @ theta) ** 2, 0, v * v / 4)
            sigma = np.sqrt(
                (n * variance + residual + (0.03 * min(1, np.sqrt(10 / mdp.horizon)) * v) ** 2) / (max(n - 1, 0) + 1)
            )
            table[s, a] = (v * np.sqrt(ridge) + sigma) * np.sqrt(norm_sq[s, a])
    return table


def played(play: Callable[[], Script]) -> Iterator[Script]:
    while True:
        yield play()


def in_blocks(gram: np.ndarray, n_blocks: int) -> np.ndarray:
    """The diagonal blocks of a (d, d) matrix, (n_blocks, k, k)."""
    k = len(gram) // n_blocks
    return np.stack([gram[b * k : (b + 1) * k, b * k : (b + 1) * k] for b in range(n_blocks)])


class SharedDiceCollector:
    """Answers requests with the same episodes that the oracle plays."""

    def __init__(self, mdp: FiniteMDP, seed: int, piece: int = 5) -> None:
        self.mdp, self.seed, self.piece = mdp, seed, piece
        self.dice = SharedDice(mdp, seed)

    def shards(self, request: Request) -> Iterator[Shard]:
        return fixed_shards(request, self.piece)

    def collect(self, request: Any) -> Any:
        return shards.collect(self, request)

    def play(self, request: Any, shard: Shard, start: np.ndarray | None = None) -> Any:
        return self._regress(request, shard) if isinstance(request, Regress) else self._explore(request, shard, start)

    def _regress(self, request: Regress, shard: Shard) -> Regression:
        spec = self.mdp.spec
        tables = [self.mdp.policy_table(policy) for policy in request.mixture.policies]
        per_policy = np.zeros(len(tables), dtype=np.int64)
        total = Moments.zeros(spec.n_blocks, spec.block_dim)
        for _ in range(shard.n_episodes):
            which, one = self.dice.play(tables, request.mixture.weights)
            per_policy[which] += 1
            steps = self._steps(one)
            if steps and not request.pool:
                steps = [step for step in steps if step.levels[0] == request.level]
            if steps:
                total = total + Transitions.concatenate(steps).moments(spec, request.level, request.value)
        return Regression(total, per_policy, 0)

    def _explore(self, request: Explore, shard: Shard, start: np.ndarray | None) -> Visits:
        mdp, spec = self.mdp, self.mdp.spec
        assert start is not None
        grams, progress, n = np.zeros((spec.horizon, *spec.gram_shape)), np.zeros(len(start)), 0
        table = mdp.policy_table(request.policy)
        kept: list[Transitions] = []
        for _ in range(shard.n_episodes):
            _, one = self.dice.play([table], np.ones(1))
            if shard.index + n < request.done + request.keep:
                kept += self._steps(one)
            n += 1
            for h, (s, a) in enumerate(zip(one.states, one.actions, strict=False)):
                x, b = mdp.features.vectors[h, s, a], mdp.features.blocks[h, s, a]
                grams[h, b] += np.outer(x, x)
                progress[0 if request.pool else h] += float(np.sum((request.whitener[h, b] @ x) ** 2))
            if request.crossed(start + progress, shard.index + n):
                break
        return Visits(grams, progress, n, 0.0, None, None, 0, Transitions.concatenate(kept) if kept else None)

    def _steps(self, one: Script) -> list[Transitions]:
        """An episode as steps."""
        spec, steps = self.mdp.spec, []
        for h, (s, a) in enumerate(zip(one.states, one.actions, strict=False)):
            vectors, blocks = self.mdp.features(h, np.array([s])).chosen(np.array([a]))
            after = self.mdp.features(min(h + 1, spec.horizon - 1), np.array([one.states[h + 1]]))
            ended = np.array([one.ended and h + 1 == len(one.actions)])
            reward, once = np.array([one.rewards[h] - spec.reward_min]), np.ones(1, dtype=np.int64)
            level = np.array([h])
            steps.append(Transitions(level, vectors, blocks, reward, after.vectors, after.blocks, ended, once))
        return steps
