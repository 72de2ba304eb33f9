"""The oracle for collectors: episodes step by step and their sums, in plain loops, lists and floats.

Nothing here uses the library's stepping, counting or formulas; requests, policies and problems are only read. Features
are inputs: they are asked for one observation at a time. Dice are made again from their documented addresses.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

Vector = list[float]


class Step(NamedTuple):
    """What one action led to."""

    observation: Any
    action: int
    reward: float  # the user's units
    after: Any
    ended: bool


class Episode(NamedTuple):
    which: int  # policy of the mixture
    steps: list[Step]


@dataclass
class Sums:
    """Everything that an answer may hold, by plain names."""

    gram: list[list[list[Vector]]]  # (H or 1, n_blocks, k, k); a regression uses level 0 for its own
    moment: list[Vector]  # (n_blocks, k)
    moment_sq: list[Vector]
    progress: Vector
    per_policy: list[int]
    sum_y2: float = 0.0
    n: float = 0
    n_steps: float = 0
    n_episodes: int = 0
    return_sum: float = 0.0
    return_sum_sq: float = 0.0
    start_value_sum: float | None = None
    kept: list[tuple[Any, ...]] = field(default_factory=list)


class LiteralPlayer:
    """A problem as a player sees it. features: a map (h, states) -> vectors and blocks, asked one state at a time."""

    def __init__(self, features: Any, spec: Any) -> None:
        self.features = features
        self.horizon, self.n_actions = spec.horizon, spec.n_actions
        self.n_blocks, self.k = spec.n_blocks, spec.block_dim
        self.low = spec.reward_min
        self._seen: dict[tuple[int, bytes], tuple[list[Vector], list[int]]] = {}

    # What the features and the policies say.

    def look(self, h: int, observation: Any) -> tuple[list[Vector], list[int]]:
        """Vector and block of every action at one observation."""
        array = np.array(observation)
        key = (h, array.tobytes())
        if key not in self._seen:
            phi = self.features(h, array[None])
            self._seen[key] = (np.array(phi.vectors)[0].tolist(), np.array(phi.blocks)[0].tolist())
        return self._seen[key]

    def optimistic(self, q: Any, h: int, vector: Vector, block: int) -> float:
        """phi . theta + (width + kappa (sigma + lower |W phi|)) |W phi|, from the parameters of a LinearQ."""
        return self.optimistic_level(q.levels[h], vector, block)

    def optimistic_level(self, level: Any, vector: Vector, block: int) -> float:
        """The same, from the parameters of one level."""
        line = sum(x * t for x, t in zip(vector, level.theta[block].tolist(), strict=True))
        if level.whitener is None:
            return line
        white = level.whitener[block].tolist()
        norm_sq = sum(sum(w * x for w, x in zip(row, vector, strict=True)) ** 2 for row in white)
        width = float(level.width[block])
        if level.second is not None:
            noise, ceiling, ridge, kappa = level.noise, level.ceiling, level.ridge, level.kappa
            second = sum(x * t for x, t in zip(vector, level.second[block].tolist(), strict=True))
            seen = max(0.0, 1.0 / max(norm_sq, 1e-300) - ridge)
            variance = min(max(second - line * line, 0.0), ceiling)
            sigma = math.sqrt((seen * variance + noise) / max(seen, 1.0))
            width += kappa * (sigma + level.lower_order * math.sqrt(norm_sq))
        return line + width * math.sqrt(norm_sq)

    def values(self, q: Any, h: int, observation: Any, seen_at: int) -> Vector:
        """Unclipped, of every action: level h of q on the features of level `seen_at`."""
        vectors, blocks = self.look(seen_at, observation)
        return [self.optimistic(q, h, v, b) for v, b in zip(vectors, blocks, strict=True)]

    def worth(self, level: Any, observation: Any, seen_at: int) -> float:
        """max over actions of one level of a Q, clipped; 0 where there is none."""
        if level is None:
            return 0.0
        vectors, blocks = self.look(seen_at, observation)
        best = max(self.optimistic_level(level, v, b) for v, b in zip(vectors, blocks, strict=True))
        return min(max(best, float(level.clip[0])), float(level.clip[1]))

    def chances(self, policy: Any, h: int, observation: Any) -> Vector:
        """Of every action: greedy for a LinearQ, a table (H, S, A), or all alike."""
        if hasattr(policy, "theta"):
            values = self.values(policy, h, observation, h)
            best = values.index(max(values))
            return [1.0 if a == best else 0.0 for a in range(self.n_actions)]
        if hasattr(policy, "table"):
            return list(policy.table[h][int(observation)].tolist())
        return [1.0 / self.n_actions] * self.n_actions

    # Playing.

    def env_episode(
        self, env: Any, request: Any, seed: int, number: int, last: int, env_seed: Callable[[int], int]
    ) -> Episode:
        """One episode of a Gymnasium env: its dice are 64-bit words at the address (seed, request, number).

        The first is for the env's seed, the second for the policy, the others for the actions.
        """
        address = np.random.SeedSequence(seed, spawn_key=(request.id, number))
        words = address.generate_state(2 + self.horizon, np.uint64).tolist()
        policies, weights = policies_of(request)
        which = pick(weights, unit(words[1])) if len(policies) > 1 else 0
        observation, _ = env.reset(seed=env_seed(words[0]))
        steps = []
        for h in range(last):
            action = pick(self.chances(policies[which], h, observation), unit(words[2 + h]))
            after, reward, ended, _, _ = env.step(int(env.action_space.start) + action)
            steps.append(Step(observation, action, float(reward), after, bool(ended)))
            if ended:
                break
            observation = after
        return Episode(which, steps)

    def mdp_episodes(self, mdp: Any, request: Any, seed: int, first: int, n: int, last: int) -> list[Episode]:
        """Episodes of EpisodeCollector: one number for the policy, one for the start, then three a level.

        They are for the action, the reward and the next state, each looked up in cumulative probabilities. All come
        from one stream of numbers for the request, in which every episode has as many, a multiple of four.
        """
        rng = np.random.Generator(np.random.Philox(np.random.SeedSequence(seed, spawn_key=(request.id,))))
        policies, weights = policies_of(request)
        width = 4 * math.ceil((2 + 3 * mdp.horizon) / 4)
        dice = [[float(rng.random()) for _ in range(width)] for _ in range(first + n)][first:]
        which = [pick(weights, numbers[0]) for numbers in dice]
        return [
            self._mdp_episode(mdp, policies[j], j, numbers[1:], last) for j, numbers in zip(which, dice, strict=True)
        ]

    def _mdp_episode(self, mdp: Any, policy: Any, which: int, numbers: Vector, last: int) -> Episode:
        state, steps = pick(mdp.start.tolist(), numbers[0]), []
        for h in range(last):
            action = pick(self.chances(policy, h, state), numbers[1 + 3 * h])
            after = pick(mdp.transitions[h][state][action].tolist(), numbers[3 + 3 * h])
            steps.append(Step(state, action, paid(mdp, h, state, action, after, numbers[2 + 3 * h]), after, False))
            if bool(mdp.terminal[after]):
                steps[-1] = steps[-1]._replace(ended=True)
                break
            state = after
        return Episode(which, steps)

    def only_episode(self, mdp: Any, policy: Any, which: int, last: int) -> Episode:
        """Of a problem and a policy that leave nothing to chance."""
        return self._mdp_episode(mdp, policy, which, [0.5] * (1 + 3 * mdp.horizon), last)

    def all_steps(self, mdp: Any, policy: Any, last: int) -> Iterator[tuple[int, float, Step]]:
        """Every step that an episode may take: its level, its chance, and what happens."""
        here = dict(enumerate(mdp.start.tolist()))
        for h in range(last):
            arrived: dict[int, float] = {}
            for state, chance in here.items():
                for action, acts in enumerate(self.chances(policy, h, state) if chance > 0 else []):
                    for after, moves in enumerate(mdp.transitions[h][state][action].tolist() if acts > 0 else []):
                        if moves == 0:
                            continue
                        ended = bool(mdp.terminal[after])
                        for reward, pays in payments(mdp, h, state, action, after):
                            if pays > 0:
                                yield h, chance * acts * moves * pays, Step(state, action, reward, after, ended)
                        if not ended:
                            arrived[after] = arrived.get(after, 0.0) + chance * acts * moves
            here = arrived

    # Adding up.

    def mean_regression(self, request: Any, mdp: Any) -> Sums:
        """The expected sums of one episode of a Regress."""
        sums = self._empty(1, len(request.mixture.policies), 1)
        last = self.last_step(request, reset_early=True)
        for policy, weight in zip(*policies_of(request), strict=True):
            for h, chance, step in self.all_steps(mdp, policy, last):
                sums.n_steps += weight * chance
                if request.pool or h == request.level:
                    self._sample(sums, request, h, step, weight * chance)
        return sums

    def mean_visits(self, request: Any, mdp: Any) -> tuple[Sums, dict[tuple[Any, ...], float]]:
        """The expected sums of one episode of an Explore, and how often each kept step is seen."""
        sums = self._empty(1 if request.pool else self.horizon, 1, 1 if request.pool else self.horizon)
        seen: dict[tuple[Any, ...], float] = {}
        for h, chance, step in self.all_steps(mdp, request.policy, self.horizon):
            sums.n_steps += chance
            sums.progress[0 if request.pool else h] += chance * self._visit(sums, request, h, step, chance)
            sums.return_sum += chance * (step.reward - self.low)
            if step.ended:
                sums.return_sum += chance * (self.horizon - 1 - h) * -self.low
            row = self._kept(h, step)
            seen[row] = seen.get(row, 0.0) + chance
        if hasattr(request.policy, "theta"):
            starts = enumerate(mdp.start.tolist())
            sums.start_value_sum = sum(p * self.worth(request.policy.levels[0], s, 0) for s, p in starts if p > 0)
        return sums, seen

    def last_step(self, request: Any, reset_early: bool) -> int:
        """How many steps an episode of this request takes unless it ends."""
        leaves = hasattr(request, "mixture") and not request.pool and reset_early
        return request.level + 1 if leaves else self.horizon

    def regression(self, request: Any, episodes: Iterable[Episode]) -> Sums:
        """Of a Regress."""
        sums = self._empty(1, len(request.mixture.policies), 1)
        for which, steps in episodes:
            sums.n_episodes += 1
            sums.per_policy[which] += 1
            sums.n_steps += len(steps)
            for h, step in enumerate(steps):
                if request.pool or h == request.level:
                    self._sample(sums, request, h, step)
        return sums

    def _sample(self, sums: Sums, request: Any, h: int, step: Step, weight: float = 1) -> None:
        vectors, blocks = self.look(h, step.observation)
        x, b = vectors[step.action], blocks[step.action]
        y = step.reward - self.low
        if step.ended:
            y += (self.horizon - 1 - request.level) * -self.low  # 0 a step from now on, in shifted units
        else:
            y += self.worth(request.target, step.after, min(h + 1, self.horizon - 1))
        add_outer(sums.gram[0][b], x, weight)
        for i in range(self.k):
            sums.moment[b][i] += weight * x[i] * y
            sums.moment_sq[b][i] += weight * x[i] * y * y
        sums.sum_y2 += weight * y * y
        sums.n += weight

    def visits(self, request: Any, episodes: Iterable[Episode], n_kept: int | None = None) -> Sums:
        """Of an Explore: up to and including the first episode with which it crosses."""
        levels = 1 if request.pool else self.horizon
        sums = self._empty(levels, 1, levels)
        before = [0.0] * levels if request.progress is None else request.progress.tolist()
        if hasattr(request.policy, "theta"):
            sums.start_value_sum = 0.0
        for _, steps in episodes:
            sums.n_episodes += 1
            sums.n_steps += len(steps)
            if sums.start_value_sum is not None:
                sums.start_value_sum += self.worth(request.policy.levels[0], steps[0].observation, 0)
            total = 0.0
            for h, step in enumerate(steps):
                sums.progress[0 if request.pool else h] += self._visit(sums, request, h, step)
                total += step.reward - self.low
                if sums.n_episodes <= (request.keep if n_kept is None else n_kept):
                    sums.kept.append(self._kept(h, step))
            total += (self.horizon - len(steps)) * -self.low
            sums.return_sum += total
            sums.return_sum_sq += total * total
            so_far = max(a + b for a, b in zip(before, sums.progress, strict=True))
            number = request.done + sums.n_episodes
            if so_far >= request.threshold[0] + request.threshold[1] * math.log(number):
                break
        return sums

    def _visit(self, sums: Sums, request: Any, h: int, step: Step, weight: float = 1) -> float:
        """Adds phi phi^T; returns |W phi|^2."""
        vectors, blocks = self.look(h, step.observation)
        x, b = vectors[step.action], blocks[step.action]
        add_outer(sums.gram[0 if request.pool else h][b], x, weight)
        white = request.whitener[0 if request.pool else h][b].tolist()
        return sum(sum(w * xi for w, xi in zip(row, x, strict=True)) ** 2 for row in white)

    def _kept(self, h: int, step: Step) -> tuple[Any, ...]:
        vectors, blocks = self.look(h, step.observation)
        ahead = ([], []) if step.ended else self.look(min(h + 1, self.horizon - 1), step.after)
        return kept_row(h, vectors[step.action], blocks[step.action], step.reward - self.low, step.ended, *ahead)

    def _empty(self, n_grams: int, n_policies: int, n_progress: int) -> Sums:
        blocks, k = range(self.n_blocks), self.k
        return Sums(
            gram=[[[[0.0] * k for _ in range(k)] for _ in blocks] for _ in range(n_grams)],
            moment=[[0.0] * k for _ in blocks],
            moment_sq=[[0.0] * k for _ in blocks],
            progress=[0.0] * n_progress,
            per_policy=[0] * n_policies,
        )


def policies_of(request: Any) -> tuple[list[Any], Vector]:
    """What an episode of a request may play, and with which chance."""
    if hasattr(request, "mixture"):
        return list(request.mixture.policies), request.mixture.weights.tolist()
    return [request.policy], [1.0]


def unit(word: int) -> float:
    """The first 53 of 64 bits, as a number in [0, 1)."""
    return (word // 2**11) / 2**53


def pick(chances: Sequence[float], number: float) -> int:
    """The first outcome whose cumulative chance exceeds the number; rounding never picks an impossible one."""
    total, last = 0.0, 0
    for outcome, chance in enumerate(chances):
        if chance > 0:
            last = outcome
            total += chance
            if number < total:
                return outcome
    return last


def paid(mdp: Any, h: int, state: int, action: int, after: int, number: float) -> float:
    """The reward of a step of a FiniteMDP, the user's units."""
    if mdp.arrival_rewards is not None:
        mean = float(mdp.arrival_rewards[h][state][action][after])
    else:
        mean = float(mdp.rewards[h][state][action])
    if mdp.reward_noise == "none":
        return mean
    spread = mdp.spec.reward_max - mdp.spec.reward_min
    return mdp.spec.reward_max if number * spread < mean - mdp.spec.reward_min else mdp.spec.reward_min


def payments(mdp: Any, h: int, state: int, action: int, after: int) -> list[tuple[float, float]]:
    """The rewards that a step of a FiniteMDP may pay, the user's units, each with its chance."""
    if mdp.reward_noise == "none":
        return [(paid(mdp, h, state, action, after, 0.0), 1.0)]
    low, high = mdp.spec.reward_min, mdp.spec.reward_max
    chance = (float(mdp.rewards[h][state][action]) - low) / (high - low)
    return [(high, chance), (low, 1.0 - chance)]


def add_outer(matrix: list[Vector], x: Vector, weight: float = 1) -> None:
    """matrix += weight x x^T"""
    for i in range(len(x)):
        for j in range(len(x)):
            matrix[i][j] += weight * x[i] * x[j]


def kept_row(
    h: int, x: Vector, block: int, reward: float, ended: bool, next_vectors: list[Vector], next_blocks: list[int]
) -> tuple[Any, ...]:
    """A kept step as a tuple that can be sorted and counted; what follows an end means nothing and is left out."""
    ahead = tuple((b, *(round(v, 9) + 0.0 for v in row)) for b, row in zip(next_blocks, next_vectors, strict=True))
    return (h, block, *(round(v, 9) + 0.0 for v in x), round(reward, 9) + 0.0, ended, () if ended else ahead)
