"""Executors: two workers against one, and what it costs to send shards: `python -m benchmarks.executors [--ray]`.

Wall time is the least of a few repetitions, taken in turn, and the load of the machine stands in the title. On a busy
machine wall times say little, so CPU time stands beside them. It is that of all processes, those of Ray included.
`sending` is the part of it that was spent outside of shards, over the CPU without workers: requests and answers that
are packed, sent, unpacked and added. The whole CPU over that without workers also has what cores do to each other.
"""

import argparse
import os
import time
from collections.abc import Callable
from contextlib import ExitStack
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
from benchmarks.clock import cpu_of_descendants
from benchmarks.collectors import Torus, dense_waves, optimistic_q
from s4q.collectors import BatchCollector, GymCollector
from s4q.core.messages import Evaluate, Mixture, Regress, Request
from s4q.running.executors import Executor, collect

HORIZON = 10
N_ACTIONS = 8


@dataclass(frozen=True)
class Times:
    """What a request took. Starting workers is not counted."""

    wall: float
    cpu: float  # of this process and of all that it has started
    sending: float  # that part of it which no shard needed: what an executor adds

    def least(self, other: "Times") -> "Times":
        """The least of each."""
        return Times(min(self.wall, other.wall), min(self.cpu, other.cpu), min(self.sending, other.sending))


@dataclass(frozen=True)
class Work:
    """Requests of one kind, and the collector that answers them."""

    name: str
    collector: Any
    requests: list[Request]

    def done_by(self, executor: Executor) -> Times:
        """The times of the requests after the first."""
        with executor.session(self.collector) as session:
            collect(session, self.requests[0])  # workers start and build what they need
            here, elsewhere, playing = time.process_time(), cpu_of_descendants(), session.cost.cpu_seconds
            wall = time.perf_counter()
            for request in self.requests[1:]:
                collect(session, request)
            wall = time.perf_counter() - wall
            cpu = time.process_time() - here + cpu_of_descendants() - elsewhere
            # `Serial` plays here and adds up in the same loop: what it adds cannot be told from what it plays.
            alone = isinstance(executor, s4q.Serial)
            return Times(wall, cpu, 0.0 if alone else cpu - (session.cost.cpu_seconds - playing))


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


def compared(work: Work, executors: dict[str, Executor], repeat: int) -> dict[str, Times]:
    """The least times of each executor, over repetitions taken in turn."""
    best = {name: Times(np.inf, np.inf, np.inf) for name in executors}
    for _ in range(repeat):
        for name, executor in executors.items():
            best[name] = best[name].least(work.done_by(executor))
    return best


def speed_table(works: list[Callable[[], Work]], repeat: int = 5, with_ray: bool = False) -> Table:
    """One against two workers; what workers cost more than none. All executors take turns."""
    load = os.getloadavg()[0]
    cores = len(os.sched_getaffinity(0))
    table = Table(title=f"Executors: best of {repeat}, load {load:.1f} on {cores} cores at the beginning")
    walls, against = ("none, s", "1 worker, s", "2 workers, s"), ("2 against 1", "2 against none")
    for column in ("work", "kind", *walls, *against, "sending, 1", "2", "CPU of 1 / none - 1", "of 2"):
        table.add_column(column)
    kinds: dict[str, Callable[[int], Any]] = {"processes": s4q.Processes}
    if with_ray:
        kinds["Ray"] = lambda n: s4q.Ray(workers=n)
    for make in works:
        work = make()
        with ExitStack() as stack:
            executors: dict[str, Executor] = {"none": s4q.Serial()}
            for kind, executor in kinds.items():
                for n in (2, 1):  # both kinds of Ray share the cluster of the first, which has two cores
                    executors[f"{kind} {n}"] = stack.enter_context(executor(n))
            best = compared(work, executors, repeat)
        none = best["none"]
        for kind in kinds:
            one, two = best[f"{kind} 1"], best[f"{kind} 2"]
            table.add_row(
                work.name,
                kind,
                *(f"{times.wall:.2f}" for times in (none, one, two)),
                *(f"{times.wall / two.wall:.2f}" for times in (one, none)),
                *(f"{100 * times.sending / none.cpu:.1f} %" for times in (one, two)),
                *(f"{100 * (times.cpu / none.cpu - 1):.1f} %" for times in (one, two)),
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
