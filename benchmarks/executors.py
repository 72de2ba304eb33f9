"""Executors: two workers against one, and what it costs to send shards: `python -m benchmarks.executors [--ray]`.

Wall time is the least of a few repetitions, taken in turn, and the load of the machine stands in the title. On a busy
machine wall times say little, so CPU time stands beside them: it shows what sending costs, whatever else runs.
"""

import argparse
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import scipy.linalg  # noqa: F401  its BLAS can be limited only when it is loaded
from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_limits

import s4q
from benchmarks.collectors import Torus, dense_waves, optimistic_q
from s4q.collectors import BatchCollector, GymCollector
from s4q.core.messages import Evaluate, Mixture, Regress, Request
from s4q.running.executors import Executor, collect

HORIZON = 10
N_ACTIONS = 8


@dataclass(frozen=True)
class Work:
    """Requests of one kind, and the collector that answers them."""

    name: str
    collector: Any
    requests: list[Request]

    def done_by(self, executor: Executor) -> tuple[float, float]:
        """Wall and CPU seconds, those of workers included. Starting workers is not counted."""
        with executor.session(self.collector) as session:
            collect(session, self.requests[0])  # workers start and build what they need
            cpu, wall, elsewhere = time.process_time(), time.perf_counter(), session.cost.cpu_seconds
            for request in self.requests[1:]:
                collect(session, request)
            cpu_here = time.process_time() - cpu
            return time.perf_counter() - wall, cpu_here + session.cost.cpu_seconds - elsewhere


def environment_bound(n_shards: int) -> Work:
    """Evaluations of CartPole, where nearly all time is the environment's own."""
    env = gym.make("CartPole-v1")
    basis = s4q.features.Fourier(low=[-2.4, -3.0, -0.21, -3.0], high=[2.4, 3.0, 0.21, 3.0], order=1, clip=True)
    features = s4q.features.PerAction(basis, 2)
    spec = s4q.Spec.of(features, horizon=30, reward_range=(0, 1))
    collector, policy = GymCollector(env, features, spec, seed=0), optimistic_q(spec, seed=0)
    size = next(iter(collector.shards(Evaluate(0, policy, 10**6)))).n_episodes
    return Work(
        "environment: CartPole, evaluation",
        collector,
        [Evaluate(1, policy, 2 * size), Evaluate(2, policy, n_shards * size)],
    )


def matrix_bound(n_shards: int, dim: int = 128) -> Work:
    """Regressions of a batched simulator with dense features, as the replay of `realisable` asks for them."""
    features = dense_waves(N_ACTIONS, dim)
    spec = s4q.Spec.of(features, horizon=HORIZON, reward_range=(0, 1))
    collector = BatchCollector(Torus(N_ACTIONS), features, spec, seed=0)
    q = optimistic_q(spec, seed=0)
    mixture = Mixture([q, s4q.UniformPolicy(N_ACTIONS)], [0.5, 0.5])
    size = next(iter(collector.shards(Evaluate(0, q, 10**6)))).n_episodes
    level = HORIZON - 2
    ask = partial(Regress, level=level, mixture=mixture, target=q.levels[level + 1])
    return Work(
        f"matrices: replay in batches, d = {dim}",
        collector,
        [ask(id=1, n_episodes=2 * size), ask(id=2, n_episodes=n_shards * size)],
    )


def replay_of_environment(n_shards: int) -> Work:
    """Regressions of MountainCar, level by level, as the replay of `realisable` asks for them."""
    env = gym.make("MountainCar-v0")
    features = s4q.features.PerAction(s4q.features.Fourier(env.observation_space, order=3), 3)
    spec = s4q.Spec.of(features, horizon=20, reward_range=(-1, 0))
    collector = GymCollector(env, features, spec, seed=0)
    mixture = Mixture([optimistic_q(spec, seed=0)], [1.0])
    size = next(iter(collector.shards(Evaluate(0, s4q.UniformPolicy(3), 10**6)))).n_episodes
    ask = partial(Regress, level=19, mixture=mixture, target=None)
    return Work(
        "environment: MountainCar, replay",
        collector,
        [ask(id=1, n_episodes=2 * size), ask(id=2, n_episodes=n_shards * size)],
    )


def compared(work: Work, executors: dict[str, Executor], repeat: int) -> dict[str, tuple[float, float]]:
    """The least wall and the least CPU seconds of each executor, over repetitions taken in turn."""
    best = dict.fromkeys(executors, (np.inf, np.inf))
    for _ in range(repeat):
        for name, executor in executors.items():
            wall, cpu = work.done_by(executor)
            best[name] = (min(best[name][0], wall), min(best[name][1], cpu))
    return best


def speed_table(works: list[Callable[[], Work]], repeat: int = 5, with_ray: bool = False) -> Table:
    """One against two workers; what one worker costs more than none."""
    load = os.getloadavg()[0]
    cores = len(os.sched_getaffinity(0))
    table = Table(title=f"Executors: best of {repeat}, load {load:.1f} on {cores} cores at the beginning")
    walls, cpus = ("none, s", "1 worker, s", "2 workers, s", "2 against 1"), ("CPU of 1 / none - 1", "of 2")
    for column in ("work", "kind", *walls, *cpus):
        table.add_column(column)
    kinds: dict[str, Callable[[int], Any]] = {"processes": s4q.Processes}
    if with_ray:
        kinds["Ray"] = lambda n: s4q.Ray(workers=n)
    for make in works:
        work = make()
        for kind, executor in kinds.items():
            with executor(2) as two, executor(1) as one:
                best = compared(work, {"none": s4q.Serial(), "1": one, "2": two}, repeat)
            table.add_row(
                work.name,
                kind,
                *(f"{best[name][0]:.2f}" for name in ("none", "1", "2")),
                f"{best['1'][0] / best['2'][0]:.2f}",
                *(f"{100 * (best[name][1] / best['none'][1] - 1):.1f} %" for name in ("1", "2")),
            )
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ray", action="store_true", help="measure Ray too")
    parser.add_argument("--shards", type=int, default=8, help="shards of a request")
    parser.add_argument("--repeat", type=int, default=5)
    given = parser.parse_args()
    works = [partial(make, given.shards) for make in (environment_bound, replay_of_environment, matrix_bound)]
    with threadpool_limits(limits=1):
        for work in works:  # one table each, because on a busy machine a row takes minutes
            Console(width=150).print(speed_table([work], given.repeat, given.ray))


if __name__ == "__main__":
    main()
