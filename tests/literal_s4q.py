"""The oracle for S4Q: Algorithm 2 as nested loops on long vectors, and the dice that oracle and library share."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from literal_s3q import literal_s3q
from s4q.collectors import shards
from s4q.collectors.shards import fixed_shards
from s4q.least_squares import Moments
from s4q.presets import Constants
from s4q.problems import FiniteMDP
from s4q.requests import Explore, Regress, Regression, Request, Shard, Visits
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
    n_replayed: int = 0
    n_main: int = 0


def literal_s4q(mdp: FiniteMDP, budget: int, seed: int, c: Constants) -> LiteralRun:
    phi, spec = dense_features(mdp), mdp.spec
    horizon, _, n_actions, dim = phi.shape
    dice, run = SharedDice(mdp, seed), LiteralRun()
    lower = 0.0 if spec.well_specified else -np.inf
    clip = np.array([(lower, v) for v in spec.value_bound])
    before = np.zeros((horizon, dim, dim))
    while True:
        p = len(run.phases) + 1
        m_tot = sum(m for _, m in run.memory)
        ridge = c.ridge(p, m_tot)

        def bonus(h: int, gram: np.ndarray) -> np.ndarray:
            """Table (S, A) from the covariance that the mode wants."""
            cov = gram if c.bonus_from == "own" else before[h]
            width = c.width(h, p, m_tot, in_blocks(cov, spec.n_blocks), ridge[h])
            inverse = np.linalg.inv(cov + ridge[h] * np.eye(dim))
            norm = np.sqrt(np.einsum("sai,ij,saj->sa", phi[h], inverse, phi[h]))
            return width[mdp.features.blocks[h]] * norm

        if m_tot == 0:
            unclipped = np.stack([bonus(h, np.zeros((dim, dim))) for h in range(horizon)])
            theta, cov_ref = np.zeros((horizon, dim)), np.zeros((horizon, dim, dim))
        else:
            slots = int(max(1 if c.epochs == "single" else 2, np.ceil(c.c_replay * m_tot)))
            total = horizon * slots
            allowed = min(total, budget - dice.n_played)
            tables, weights = [t for t, _ in run.memory], np.array([m for _, m in run.memory]) / m_tot
            result = literal_s3q(
                phi,
                played(lambda t=tables, w=weights: dice.play(t, w)[1]),
                stop=lambda used, most=allowed: used >= most,
                ridge=ridge,
                radius=list(c.radius()),
                reward_min=spec.reward_min,
                bonus=bonus,
                clip=clip,
                epoch_size=slots if c.epochs == "single" else None,
            )
            run.n_replayed += result.used
            if result.used < total:
                return run  # the budget ended inside the call
            assert result.unclipped is not None
            assert result.theta is not None
            assert result.grams is not None
            unclipped, theta = result.unclipped, result.theta
            cov_ref = result.grams * (m_tot / result.n_level)

        phase = LiteralPhase(ridge, unclipped, theta, cov_ref, np.zeros_like(cov_ref), np.zeros(horizon))
        run.phases.append(phase)
        table = np.eye(n_actions)[unclipped.round(9).argmax(axis=2)]  # ties up to rounding go to the lowest action
        while dice.n_played < budget:
            _, episode = dice.play([table], np.ones(1))
            phase.n += 1
            run.n_main += 1
            for h, (s, a) in enumerate(zip(episode.states, episode.actions, strict=False)):
                x = phi[h, s, a]
                phase.progress[h] += x @ np.linalg.inv(cov_ref[h] + ridge[h] * np.eye(dim)) @ x
                phase.increment[h] += np.outer(x, x)
            first, slope = c.threshold(p)
            if phase.progress.max() >= first + slope * np.log(phase.n):
                phase.finished = True
                break
        if not phase.finished:
            return run
        run.memory.append((table, phase.n))
        before = cov_ref + phase.increment
        if dice.n_played == budget:
            return run


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
        spec, h = self.mdp.spec, request.level
        tables = [self.mdp.policy_table(policy) for policy in request.mixture.policies]
        per_policy = np.zeros(len(tables), dtype=np.int64)
        total = Moments.zeros(spec.n_blocks, spec.block_dim)
        for _ in range(shard.n_episodes):
            which, one = self.dice.play(tables, request.mixture.weights)
            per_policy[which] += 1
            if len(one.actions) <= h:
                continue
            vector, block = self.mdp.features(h, np.array(one.states[h : h + 1])).chosen(np.array([one.actions[h]]))
            after = 0.0
            if one.ended and len(one.actions) == h + 1:
                after = spec.ended_value(h)
            elif h + 1 < spec.horizon:
                after = request.value.value(h + 1, self.mdp.features(h + 1, np.array([one.states[h + 1]])))[0]
            y = one.rewards[h] - spec.reward_min + after
            total = total + Moments.of(vector, block, np.array([y]), spec.n_blocks)
        return Regression(total, per_policy, 0)

    def _explore(self, request: Explore, shard: Shard, start: np.ndarray | None) -> Visits:
        mdp, spec = self.mdp, self.mdp.spec
        assert start is not None
        grams, progress, n = np.zeros((spec.horizon, *spec.gram_shape)), np.zeros(spec.horizon), 0
        table = mdp.policy_table(request.policy)
        for _ in range(shard.n_episodes):
            _, one = self.dice.play([table], np.ones(1))
            n += 1
            for h, (s, a) in enumerate(zip(one.states, one.actions, strict=False)):
                x, b = mdp.features.vectors[h, s, a], mdp.features.blocks[h, s, a]
                grams[h, b] += np.outer(x, x)
                progress[h] += float(np.sum((request.whitener[h, b] @ x) ** 2))
            if request.crossed(start + progress, shard.index + n):
                break
        return Visits(grams, progress, n, 0.0, None, None, 0)
