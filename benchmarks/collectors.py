"""Collectors that step: matrix-product rates, blocks against dense, tabular steps, what a learner adds to one env."""

import time
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from rich.table import Table

import s4q
from benchmarks.clock import cpu_seconds
from s4q.collectors import BatchCollector, FiniteBatch, GymCollector
from s4q.features import Dense, OneHot, PerAction, RandomFourier
from s4q.linear_q import Spread
from s4q.requests import Explore, Mixture, Phi, Regress, Request

HORIZON = 10
FREE = (np.inf, 0.0)  # a threshold that is never reached


class Timed:
    """A feature map that measures its own CPU time."""

    def __init__(self, features: Any) -> None:
        self._features, self.seconds = features, 0.0
        self.n_actions, self.n_blocks, self.block_dim = features.n_actions, features.n_blocks, features.block_dim

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
    return s4q.LinearQ(theta, white, np.ones(spec.horizon), np.array(clip))


def spread_q(spec: s4q.Spec) -> s4q.LinearQ:
    """A policy of the preset practical: one whitener for all levels, and a width that the data scales."""
    q, rng = optimistic_q(spec, 0), np.random.default_rng(5)
    assert q.whitener is not None
    spread = Spread(rng.normal(size=q.theta.shape), np.tile([1.0, 0.25, 1e-6, 0.1], (spec.horizon, 1)))
    return s4q.LinearQ(q.theta, q.whitener[:1], q.width, q.clip, spread)


def explore_request(spec: s4q.Spec, n: int) -> Explore:
    q = optimistic_q(spec, 0)
    assert q.whitener is not None
    return Explore(0, q, q.whitener, FREE, n)


def regress_request(spec: s4q.Spec, n: int) -> Regress:
    mixture = Mixture([optimistic_q(spec, j) for j in range(3)], np.array([0.5, 0.3, 0.2]))
    return Regress(1, HORIZON // 2, mixture, optimistic_q(spec, 9), n)


def flops(request: Request, n: int, n_actions: int, dim: int) -> float:
    """Of matrix products alone; a Gram matrix is symmetric, so it counts half."""
    whiten, gram = 2.0 * n * dim * dim, 1.0 * n * dim * dim
    if isinstance(request, Explore):
        return HORIZON * (n_actions * whiten + whiten + gram)  # policy, progress, Gram at every level
    return (request.level + 2) * n_actions * whiten + gram  # policies up to the level, the target after it, Gram


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
        "CPU s without features. FLOP: whitening for every policy, target and progress, Gram at half. Target: "
        ">= 50 % of dgemm (2000 x 2000); beside it, of a product of the collector's own shape"
    )
    headers = ("request", "d", "steps", "CPU s", "simulator s", "features s", "GFLOP/s", "of dgemm", "of own shape")
    for header in headers:
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
            own = dgemm_rate(4096, dim)
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
    result = Table(title="One Gymnasium env, d = 64: CPU us a step, resets with seeds included")
    result.caption = "target: the learner adds at most 4 times the env's own cost"
    for header in ("env", "features", "request", "policy", "steps", "env", "collector", "added / env"):
        result.add_column(header, justify="right")
    ranges = {"low": [-4.8, -4.0, -0.42, -4.0], "high": [4.8, 4.0, 0.42, 4.0], "clip": True}
    pole = PerAction(RandomFourier(dim=32, width=0.5, **ranges), n_actions=2)
    cases: list[tuple[str, int, tuple[float, float], Any, str]] = [
        ("CartPole-v1", 100, (0, 1), pole, "2 x 32"),
        ("CartPole-v1", 100, (0, 1), _dense_pole(), "dense 64"),
        ("FrozenLake-v1", 50, (0, 1), OneHot(16, n_actions=4), "one-hot 64"),
    ]
    for name, horizon, rewards, features, label in cases:
        spec = s4q.Spec.of(features, horizon=horizon, reward_range=rewards, stationary=True)
        q = spread_q(spec)
        white = np.broadcast_to(optimistic_q(spec, 0).whitener[:1], (horizon, *spec.gram_shape))  # type: ignore[index]
        for request in (
            Explore(7, q, white, FREE, 256, pool=True),
            Regress(8, 10, Mixture([q], np.ones(1)), q, 256, pool=True),
        ):
            env, collected = _taped(name, lambda env, r=request, f=features, s=spec: GymCollector(env, f, s).collect(r))
            steps, bare = env.steps, cpu_seconds(env.replay)
            result.add_row(
                name,
                label,
                type(request).__name__,
                "practical",
                f"{steps:,}",
                f"{1e6 * bare / steps:.1f}",
                f"{1e6 * collected / steps:.1f}",
                f"{(collected - bare) / bare:.1f}",
            )
    return result


def _dense_pole() -> Dense:
    rng = np.random.default_rng(1)
    frequencies, phases = rng.normal(size=(4, 64)), rng.uniform(0, 2 * np.pi, size=(2, 64))
    return Dense(lambda x: np.cos((x @ frequencies)[:, None, :] + phases) / 8.0, n_actions=2, dim=64)


class _Tape(gym.Wrapper):  # type: ignore[type-arg]
    """Remembers seeds and actions, to play the same episodes again with nobody looking."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.episodes: list[tuple[int, list[int]]] = []

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self.episodes.append((seed, []))
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> Any:
        self.episodes[-1][1].append(action)
        return self.env.step(action)

    @property
    def steps(self) -> int:
        return sum(len(actions) for _, actions in self.episodes)

    def replay(self) -> None:
        for seed, actions in self.episodes:
            self.env.reset(seed=seed)
            for action in actions:
                self.env.step(action)


def _taped(name: str, collect: Callable[[Any], Any]) -> tuple[_Tape, float]:
    """The tape of a collection, and the CPU seconds of the same collection without a tape."""
    tape = _Tape(gym.make(name))
    collect(tape)
    bare = gym.make(name)
    return tape, cpu_seconds(lambda: collect(bare))
