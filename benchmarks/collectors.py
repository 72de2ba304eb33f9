"""Collectors that step: matrix-product rates, blocks against dense, tabular steps, what a learner adds to one env."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import gymnasium as gym
import numpy as np
from rich.table import Table
from scipy.linalg.blas import dtrmm

import s4q
from benchmarks.clock import cpu_seconds
from s4q.collectors import BatchCollector, FiniteBatch, GymCollector
from s4q.collectors.stepping.env_facts import EnvFacts
from s4q.collectors.stepping.greedy_actor import actor_of
from s4q.collectors.stepping.step_features import EpisodeAddress, Featurizer
from s4q.collectors.stepping.stepping_collector import EpisodePlayers, shards_of
from s4q.collectors.stepping.sums import RegressSums, VisitSums
from s4q.core.messages import Explore, Mixture, Phi, Regress, Request
from s4q.features import Dense, OneHot, PerAction, RandomFourier

HORIZON = 10
FREE = (np.inf, 0.0)  # a threshold that is never reached


class Timed:
    """A feature map that measures its own CPU time."""

    def __init__(self, features: Any) -> None:
        self._features, self.seconds = features, 0.0
        self.n_actions, self.n_blocks, self.block_dim = features.n_actions, features.n_blocks, features.block_dim
        self.validates_output = features.validates_output  # its own check is part of its time

    def __call__(self, h: int, states: Any) -> Phi:
        start = time.process_time()
        phi = self._features(h, states)
        self.seconds += time.process_time() - start
        return phi


class TimedEnv:
    """A simulator that measures its own CPU time."""

    def __init__(self, env: Any) -> None:
        self._env, self.seconds = env, 0.0

    def start(self, n: int, rng: Any) -> Any:
        begin = time.process_time()
        states = self._env.start(n, rng)
        self.seconds += time.process_time() - begin
        return states

    def step(self, *arguments: Any) -> Any:
        begin = time.process_time()
        result = self._env.step(*arguments)
        self.seconds += time.process_time() - begin
        return result


class Torus:
    """A point on a torus of 4 dimensions that moves by its action and some noise: continuous states, no end."""

    def __init__(self, n_actions: int) -> None:
        self._moves = np.random.default_rng(0).uniform(-0.1, 0.1, size=(n_actions, 4))

    def start(self, n: int, rng: np.random.Generator) -> Any:
        return rng.random((n, 4))

    def step(self, h: int, states: Any, actions: Any, rng: np.random.Generator) -> tuple[Any, Any, Any]:
        del h
        moved = states + self._moves[actions] + 0.05 * rng.random(states.shape)
        moved -= np.floor(moved)
        return moved[:, 0], moved, np.zeros(len(states), dtype=np.bool_)


def dense_waves(n_actions: int, dim: int) -> Dense:
    """Random Fourier features of (s, a), dense: a phase per action."""
    rng = np.random.default_rng(1)
    frequencies, phases = rng.normal(size=(4, dim)) * 3, rng.uniform(0, 2 * np.pi, size=(n_actions, dim))

    def waves(states: Any) -> Any:
        return np.cos((states @ frequencies)[:, None, :] + phases) / np.sqrt(dim)

    return Dense(waves, n_actions=n_actions, dim=dim)


def optimistic_q(spec: s4q.Spec, seed: int) -> s4q.LinearQ:
    """Random parameters with a bonus at every level."""
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=(spec.horizon, spec.n_blocks, spec.block_dim))
    white = np.tril(rng.normal(size=(spec.horizon, *spec.gram_shape))) / spec.block_dim
    clip = [[0.0, bound] for bound in spec.value_bound]
    return s4q.LinearQ.from_arrays(theta, white, np.ones(spec.horizon), np.array(clip))


def spread_q(spec: s4q.Spec) -> s4q.LinearQ:
    """A policy of the preset practical: one whitener for all levels, and a width that the data scales."""
    q, rng = optimistic_q(spec, 0), np.random.default_rng(5)
    spread = {"noise": 1.0, "ceiling": 0.25, "ridge": 1e-6, "kappa": 0.1}
    seconds, white = rng.normal(size=q.theta.shape), q.levels[0].whitener
    rows = zip(q.levels, seconds, strict=True)
    return s4q.LinearQ([replace(level, whitener=white, second=second, **spread) for level, second in rows])


def explore_request(spec: s4q.Spec, n: int) -> Explore:
    q = optimistic_q(spec, 0)
    return Explore(0, q, np.stack([level.whitener for level in q.levels]), FREE, n)


def regress_request(spec: s4q.Spec, n: int) -> Regress:
    mixture = Mixture([optimistic_q(spec, j) for j in range(3)], np.array([0.5, 0.3, 0.2]))
    return Regress(1, HORIZON // 2, mixture, optimistic_q(spec, 9).levels[HORIZON // 2 + 1], n)


def flops(request: Request, n: int, n_actions: int, dim: int) -> float:
    """What is multiplied and added in products. Whiteners are triangular and a Gram matrix symmetric: half each.

    The progress of an Explore needs no whitening of its own here, since policy and request have one metric.
    """
    evaluate, gram = n * n_actions * (1.0 * dim * dim + 2.0 * dim), 1.0 * n * dim * dim
    if isinstance(request, Explore):
        return HORIZON * (evaluate + gram)  # policy and Gram matrix at every level
    return (request.level + 2) * evaluate + gram + 4.0 * n * dim  # policies up to the level, the target after it; sums


def bare_products(request: Request, n: int, n_actions: int, dim: int) -> float:
    """CPU seconds of the same products, called by themselves on arrays of the collector's shapes."""
    rows = 1024 * n_actions  # of a piece, as the collector has them
    rng = np.random.default_rng(0)
    vectors, sample, theta = rng.random((rows, dim)), rng.random((rows // n_actions, dim)), rng.random(dim)
    whitener = np.tril(rng.random((dim, dim)))
    levels, grams = (HORIZON, HORIZON) if isinstance(request, Explore) else (request.level + 2, 1)

    def products() -> None:
        for _ in range(n * n_actions // rows):
            for _ in range(levels):
                dtrmm(1.0, whitener.T, vectors.T, trans_a=1)
                np.matmul(vectors, theta)
            for _ in range(grams):
                np.matmul(sample.T, sample)

    return cpu_seconds(products)


def dgemm_rate(rows: int, dim: int) -> float:
    """FLOP per CPU second of (rows, dim) @ (dim, dim)."""
    a, b = np.random.default_rng(0).random((rows, dim)), np.random.default_rng(1).random((dim, dim))
    out = np.empty_like(a)
    times = max(1, int(2e9 / (2.0 * rows * dim * dim)))

    def products() -> None:
        for _ in range(times):
            np.matmul(a, b, out=out)

    return times * 2.0 * rows * dim * dim / cpu_seconds(products)


def rate_table() -> Table:
    n_actions, square = 4, dgemm_rate(2000, 2000)
    result = Table(title=f"Batches, dense random Fourier features, |A| = 4, H = 10; dgemm {square / 1e9:.1f} GFLOP/s")
    result.caption = (
        "CPU s without features. FLOP as they are done: triangular whiteners and Gram matrices at half. Target: half "
        "of dgemm (2000 x 2000). Beside it: of a product of the collector's own shape; the same products called by "
        "themselves; and the share of the CPU that they are"
    )
    headers = ("request", "d", "steps", "CPU s", "simulator s", "features s", "GFLOP/s", "of dgemm", "of own shape")
    for header in (*headers, "products alone, of dgemm", "share of CPU"):
        result.add_column(header, justify="right")
    for dim, n in ((64, 16384), (256, 4096)):
        for make in (explore_request, regress_request):
            features, env = Timed(dense_waves(n_actions, dim)), TimedEnv(Torus(n_actions))
            spec = s4q.Spec.of(features, horizon=HORIZON, reward_range=(0, 1))
            collector, request = BatchCollector(env, features, spec), make(spec, n)
            answer = collector.collect(make(spec, 1024))
            seconds, in_features, in_env = np.inf, 0.0, 0.0
            for _ in range(3):  # the least of three, as for dgemm
                features.seconds = env.seconds = 0.0
                start = time.process_time()
                answer = collector.collect(request)
                spent = time.process_time() - start - features.seconds
                if spent < seconds:
                    seconds, in_features, in_env = spent, features.seconds, env.seconds
            rate = flops(request, n, n_actions, dim) / seconds
            own, bare = dgemm_rate(4096, dim), bare_products(request, n, n_actions, dim)
            result.add_row(
                type(request).__name__,
                f"{dim}",
                f"{answer.n_steps:,}",
                f"{seconds:.2f}",
                f"{in_env:.2f}",
                f"{in_features:.2f}",
                f"{rate / 1e9:.1f}",
                f"{rate / square:.0%}",
                f"{rate / own:.0%}",
                f"{rate * seconds / bare / square:.0%}",
                f"{bare / seconds:.0%}",
            )
    return result


def blocks_table() -> Table:
    """e_a (x) psi(s) in blocks, and the same long vectors in one block."""
    n_actions, k = 8, 32
    psi = RandomFourier(low=[0.0] * 4, high=[1.0] * 4, dim=k, width=0.3)
    blocked = PerAction(psi, n_actions=n_actions)
    eye = np.eye(n_actions)

    def long(states: Any) -> Any:
        return (eye[None, :, :, None] * psi(states)[:, None, None, :]).reshape(len(states), n_actions, n_actions * k)

    result = Table(title="Per-action blocks against the same features written densely, |A| = 8, k = 32; CPU us a step")
    result.caption = "target: ratio >= 10; features included, then left out"
    for header in ("request", "dense", "blocks", "ratio", "dense, no features", "blocks, no features", "ratio"):
        result.add_column(header, justify="right")
    for make in (explore_request, regress_request):
        cells: list[tuple[float, float]] = []
        for source in (Dense(long, n_actions=n_actions, dim=n_actions * k), blocked):
            features = Timed(source)
            spec = s4q.Spec.of(features, horizon=HORIZON, reward_range=(0, 1))
            collector, request = BatchCollector(Torus(n_actions), features, spec), make(spec, 2048)
            steps = collector.collect(request).n_steps
            runs = []
            for _ in range(3):
                features.seconds, start = 0.0, time.process_time()
                collector.collect(request)
                seconds = time.process_time() - start
                runs.append((1e6 * seconds / steps, 1e6 * (seconds - features.seconds) / steps))
            cells.append(min(runs))
        (dense, dense_alone), (blocks, blocks_alone) = cells
        result.add_row(
            make.__name__.removesuffix("_request").capitalize(),
            *(f"{value:.2f}" for value in (dense, blocks)),
            f"{dense / blocks:.0f}",
            *(f"{value:.2f}" for value in (dense_alone, blocks_alone)),
            f"{dense_alone / blocks_alone:.0f}",
        )
    return result


def tabular_table() -> Table:
    rng = np.random.default_rng(0)
    transitions = rng.dirichlet(np.full(200, 0.1), size=(200, 4))
    mdp = s4q.FiniteMDP(transitions, rng.random((200, 4)), np.full(200, 1 / 200), horizon=10)
    result = Table(title="Tabular one-hot through FiniteBatch, S = 200, A = 4, H = 10: million steps per CPU second")
    result.caption = "target: >= 3"
    for header in ("request", "steps", "CPU s", "M steps / s"):
        result.add_column(header, justify="right")
    collector = BatchCollector(FiniteBatch(mdp), mdp.features, mdp.spec)
    for make in (explore_request, regress_request):
        request = make(mdp.spec, 10**5)
        answer = collector.collect(request)
        seconds = cpu_seconds(lambda r=request: collector.collect(r))  # type: ignore[misc]
        rate = answer.n_steps / seconds / 1e6
        result.add_row(type(request).__name__, f"{answer.n_steps:,}", f"{seconds:.2f}", f"{rate:.1f}")
    return result


def single_table() -> Table:
    """The same episodes played bare, with the actions that the collector took, and by the collector."""
    result = Table(title="One Gymnasium env, d = n_blocks x k = 64, policy practical: CPU us a step, resets included")
    result.caption = (
        "target: the learner adds at most 4 times the env's own cost. Each part is the same work done again by itself, "
        "on what was recorded; the rest is draws, players and checks, and what parts lose when they alternate"
    )
    parts = ("env", "features", "actor", "sums", "rest")
    for header in ("env id", "features of", "H", "request", "steps", *parts, "collector", "added / env"):
        result.add_column(header, justify="right")
    ranges = {"low": [-4.8, -4.0, -0.42, -4.0], "high": [4.8, 4.0, 0.42, 4.0], "clip": True}
    pole = PerAction(RandomFourier(dim=32, width=0.5, **ranges), n_actions=2)
    cases: list[tuple[str, int, Any, str, bool]] = [
        ("CartPole-v1", 100, pole, "2 x 32", False),
        ("CartPole-v1", 100, _dense_pole(), "dense 64", False),
        ("CartPole-v1", 500, pole, "2 x 32, balanced", True),
        ("FrozenLake-v1", 50, OneHot(16, n_actions=4), "one-hot 64", False),
    ]
    for name, horizon, features, label, balanced in cases:
        spec = s4q.Spec.of(features, horizon=horizon, reward_range=(0, 1), stationary=True)
        q, n = spread_q(spec), 32 if balanced else 256
        white = optimistic_q(spec, 0).levels[0].whitener[None]
        for request in (
            Explore(7, q, white, FREE, n, pool=True),
            Regress(8, 10, Mixture([q], np.ones(1)), q.levels[11], n, pool=True),
        ):
            make = _Balanced if balanced else lambda name=name: gym.make(name)
            times, steps = _split(make, features, spec, request, q)
            micro = {part: 1e6 * seconds / steps for part, seconds in times.items()}
            micro["rest"] = 2 * micro["collector"] - sum(micro.values())
            cells = [f"{micro[part]:.1f}" for part in (*parts, "collector")]
            added = (micro["collector"] - micro["env"]) / micro["env"]
            kind = type(request).__name__
            result.add_row(name, label, f"{horizon}", kind, f"{steps:,}", *cells, f"{added:.1f}")
    return result


def _split(
    make: Callable[[], Any], features: Any, spec: s4q.Spec, request: Any, q: Any
) -> tuple[dict[str, float], int]:
    """CPU seconds of a collection and of each of its parts alone, the least of several; steps."""
    tape = _Tape(make())
    GymCollector(tape, features, spec).collect(request)
    facts, actor, address = EnvFacts.of(tape, spec), actor_of(q), EpisodeAddress("", 0, 0, None)
    makers = EpisodePlayers("", features, spec, 0, facts)
    shard = next(iter(shards_of(request, spec)))
    assert shard.n_episodes == len(tape.episodes)

    def empty_sums() -> Any:
        if isinstance(request, Explore):
            return VisitSums(request, shard, spec, request.start())
        return RegressSums(request, shard, spec, reset_early=True)

    recorded, players = empty_sums(), []
    for number, episode in enumerate(tape.episodes):
        player = makers.player(recorded, shard.index + number)
        for t, action in enumerate(episode.actions):
            assert player.act(episode.seen[t]) == action
            player.observe(episode.rewards[t], episode.seen[t + 1], episode.ended and t + 1 == len(episode.actions))
        players.append(player)
    n_rows = [len(player.episode().blocks) for player in players]

    def featurize() -> list[list[Any]]:
        featurizer = Featurizer(features, spec, discrete=facts.numbers is not None)
        return [
            [
                featurizer(min(h, spec.horizon - 1), seen, address, h)
                for h, seen in enumerate(player.observations[:rows])
            ]
            for player, rows in zip(players, n_rows, strict=True)
        ]

    seen = featurize()

    def act() -> None:
        for episode, steps in zip(tape.episodes, seen, strict=True):
            for h in range(len(episode.actions)):
                actor(h, None, steps[h], None)  # type: ignore[arg-type]

    def add_up() -> None:
        sums = empty_sums()
        for player in players:
            sums.add(player.episode())
        sums.answer()

    env = make()
    works = {
        "env": lambda: tape.replay(env),
        "features": featurize,
        "actor": act,
        "sums": add_up,
        "collector": lambda: GymCollector(env, features, spec).collect(request),
    }
    times = dict.fromkeys(works, np.inf)
    for _ in range(5):  # in turn, so that all meet the same neighbours
        for part, work in works.items():
            times[part] = min(times[part], cpu_seconds(work, repeat=1))
    return times, tape.steps


def _dense_pole() -> Dense:
    rng = np.random.default_rng(1)
    frequencies, phases = rng.normal(size=(4, 64)), rng.uniform(0, 2 * np.pi, size=(2, 64))
    return Dense(lambda x: np.cos((x @ frequencies)[:, None, :] + phases) / 8.0, n_actions=2, dim=64)


@dataclass(eq=False)
class _Episode:
    seed: int
    seen: list[Any]  # observations, one more than actions
    actions: list[int] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    ended: bool = False


class _Tape(gym.Wrapper):  # type: ignore[type-arg]
    """Remembers episodes, to play them again without a collector."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.episodes: list[_Episode] = []

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        result = self.env.reset(seed=seed, options=options)
        self.episodes.append(_Episode(seed, [result[0]]))
        return result

    def step(self, action: Any) -> Any:
        result = self.env.step(action)
        episode = self.episodes[-1]
        episode.seen.append(result[0])
        episode.actions.append(action)
        episode.rewards.append(float(result[1]))
        episode.ended = bool(result[2])
        return result

    @property
    def steps(self) -> int:
        return sum(len(episode.actions) for episode in self.episodes)

    def replay(self, env: Any) -> None:
        for episode in self.episodes:
            env.reset(seed=episode.seed)
            for action in episode.actions:
                env.step(action)


class _Balanced(gym.ActionWrapper):  # type: ignore[type-arg]
    """CartPole with a hand that overrules the action, so that a random policy plays long episodes."""

    def __init__(self) -> None:
        super().__init__(gym.make("CartPole-v1"))

    def action(self, action: Any) -> int:
        del action
        x, speed, angle, spin = self.unwrapped.state  # type: ignore[attr-defined]
        return int(0.05 * x + 0.2 * speed + 2.0 * angle + 0.6 * spin > 0)
