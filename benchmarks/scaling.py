"""How far executors scale: a cost model with measured constants, and a simulator: `python -m benchmarks.scaling`.

A request is cut into shards. Workers play them side by side; the driver sends tasks, receives answers and adds them one
after the other. `Costs` holds what each of these takes, `simulated` plays the calendar of one request.
"""

import argparse
import os
import pickle
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush

import numpy as np
from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_limits

import s4q
from benchmarks.clock import cpu_seconds
from benchmarks.collectors import Torus, dense_waves, optimistic_q
from benchmarks.executors import HORIZON, N_ACTIONS, Work, compared
from s4q.collectors import BatchCollector
from s4q.core.messages import Evaluate, Mixture, Regress, Request, Shard
from s4q.running.executors import collect

SHARD = 1024  # episodes, the batch size of BatchCollector
NETWORK = 1.25e9  # bytes a second between machines: an assumption, 10 Gbit/s


@dataclass(frozen=True)
class Costs:
    """Seconds of the model, fitted to measurements of this machine.

    Args:
        task: Of the driver, for each shard, whatever its size.
        byte: Of the driver, for each byte of an answer: to receive, to unpickle and to add it.
        episode: Of a worker, for each episode, whatever the number of features.
        feature_pair: Of a worker, for each episode and each pair of features.
    """

    task: float
    byte: float
    episode: float
    feature_pair: float

    def play(self, dim: int, episodes: int = SHARD) -> float:
        """Seconds in which a worker plays a shard."""
        return episodes * (self.episode + self.feature_pair * dim**2)

    def answer(self, dim: int, network: bool = True) -> float:
        """Seconds in which the driver takes one answer."""
        n_bytes = answer_bytes(dim)
        return self.task + n_bytes * (self.byte + network / NETWORK)


def answer_bytes(dim: int) -> int:
    """Bytes of the answer to a Regress with dense features: one Gram matrix and two vectors."""
    return 8 * (dim**2 + 2 * dim)


def payload_bytes(dim: int, policies: int = 1) -> int:
    """Bytes of a Regress: a whitener and a parameter for each level of each policy, and the target's."""
    return 8 * (policies * HORIZON + 1) * (dim**2 + dim)


def simulated(n_shards: int, workers: int, play: float, answer: float, payload: float = 0.0) -> float:
    """Seconds of one request: workers play, two tasks each at hand; the driver does one thing at a time.

    >>> simulated(8, 1, play=1.0, answer=0.0)
    8.0
    >>> simulated(8, 4, play=1.0, answer=0.0)
    2.0
    >>> simulated(8, 4, play=1.0, answer=1.0)  # the driver is never idle after the first answer
    9.0
    """
    now = 0.0
    room = [(0, worker) for worker in range(workers)]  # tasks at hand and worker, as a heap
    at_hand, free, has_payload = [0] * workers, [0.0] * workers, [False] * workers
    finished: list[tuple[float, int, int]] = []
    received: set[int] = set()
    sent = first_missing = 0
    while len(received) < n_shards:
        while sent < min(n_shards, first_missing + 2 * workers + 2) and room:
            _, worker = heappop(room)
            if not has_payload[worker]:
                has_payload[worker], now = True, now + payload
            free[worker] = max(now, free[worker]) + play
            heappush(finished, (free[worker], worker, sent))
            at_hand[worker] += 1
            sent += 1
            if at_hand[worker] < 2:
                heappush(room, (at_hand[worker], worker))
        end, worker, shard = heappop(finished)
        now = max(now, end) + answer
        at_hand[worker] -= 1
        if at_hand[worker] == 1:  # it was full
            heappush(room, (1, worker))
        else:  # its entry in the heap is old: 1 task at hand, now none
            room = [(at_hand[one], one) for _, one in room]
            room.sort()
        received.add(shard)
        while first_missing in received:
            first_missing += 1
    return now


def measured(dims: tuple[int, ...] = (64, 128, 256), episodes: int = 256, repeat: int = 3) -> Costs:
    """The constants, by CPU time of this machine."""
    play, answers = [], []
    for dim in dims:
        work = regressions(dim, [episodes])
        collector, request = work.collector, work.requests[0]
        answer = collector.play(request, Shard(0, episodes))
        play.append(cpu_seconds(partial(collector.play, request, Shard(0, episodes)), repeat) / episodes)

        def take(answer: object = answer) -> object:
            copy = pickle.loads(pickle.dumps(answer, protocol=5))  # dumps stands for receiving, which copies too
            return copy + copy

        answers.append(cpu_seconds(take, 5 * repeat))
    pairs = np.array([dim**2 for dim in dims])
    feature_pair, episode = np.polyfit(pairs, play, 1)
    byte = np.polyfit([answer_bytes(dim) for dim in dims], answers, 1)[0]
    return Costs(task_seconds(), max(float(byte), 0.0), max(float(episode), 0.0), float(feature_pair))


def regressions(dim: int, episodes: Sequence[int]) -> Work:
    """Requests of so many episodes each, of the kind that the model is made for."""
    features = dense_waves(N_ACTIONS, dim)
    spec = s4q.Spec.of(features, horizon=HORIZON, reward_range=(0, 1))
    q = optimistic_q(spec, seed=0)
    mixture, target = Mixture([q], [1.0]), q.levels[-1]
    requests: list[Request] = [Regress(i, HORIZON - 2, mixture, target, n) for i, n in enumerate(episodes)]
    return Work(f"regressions, d = {dim}", BatchCollector(Torus(N_ACTIONS), features, spec, seed=0), requests)


def task_seconds(n: int = 300) -> float:
    """CPU seconds of the driver for a shard that is nearly empty."""
    mdp = s4q.problems.chain(3)
    collector = BatchCollector(s4q.collectors.FiniteBatch(mdp), mdp.features, mdp.spec, batch_size=1)
    with s4q.Processes(1) as executor, executor.session(collector) as session:
        collect(session, Evaluate(1, s4q.UniformPolicy(2), 5))
        start = time.process_time()
        collect(session, Evaluate(2, s4q.UniformPolicy(2), n))
        return (time.process_time() - start) / n


def constants_table(costs: Costs) -> Table:
    table = Table(title="Constants of the model, by CPU time of this machine")
    for column in ("what", "seconds"):
        table.add_column(column)
    table.add_row("driver, a shard", f"{costs.task:.1e}")
    table.add_row("driver, a megabyte of answers", f"{1e6 * costs.byte:.1e}")
    table.add_row("worker, an episode of 10 steps", f"{costs.episode:.1e}")
    table.add_row("worker, an episode and a pair of features", f"{costs.feature_pair:.1e}")
    return table


def prediction_table(costs: Costs, n_shards: int) -> Table:
    """Speed-up over one worker, by the simulator."""
    table = Table(title=f"Predicted speed-up of one Regress of {n_shards} shards of {SHARD} episodes")
    for column in ("d", "a shard, s", "an answer, MB", "driver a shard, s", "limit", "10", "100", "1000"):
        table.add_column(column)
    for dim in (64, 256, 1024, 4096):
        play, answer = costs.play(dim), costs.answer(dim)
        payload = payload_bytes(dim) * (costs.byte + 1 / NETWORK)
        alone = simulated(n_shards, 1, play, answer, payload)
        table.add_row(
            f"{dim}",
            f"{play:.3g}",
            f"{answer_bytes(dim) / 1e6:.3g}",
            f"{answer:.2g}",
            f"{play / answer:.0f}",
            *(f"{alone / simulated(n_shards, n, play, answer, payload):.1f}" for n in (10, 100, 1000)),
        )
    return table


def check_table(costs: Costs, n_shards: int = 8, repeat: int = 3, dim: int = 128) -> Table:
    """One and two workers: the model beside this machine. Wall time means something on an idle one only."""
    work = regressions(dim, [2 * SHARD, n_shards * SHARD])
    play, answer = costs.play(dim), costs.answer(dim, network=False)
    payload = payload_bytes(dim) * costs.byte
    load = os.getloadavg()[0]
    table = Table(title=f"The model beside this machine, d = {dim}, {n_shards} shards, load {load:.1f}")
    for column in ("workers", "CPU predicted, s", "CPU measured, s", "wall predicted, s", "wall measured, s"):
        table.add_column(column)
    for n in (1, 2):
        with s4q.Processes(n) as executor:
            best = compared(work, {"workers": executor}, repeat)["workers"]
        cpu = n_shards * (play + answer) + n * payload
        wall = simulated(n_shards, n, play, answer, payload)
        table.add_row(f"{n}", f"{cpu:.2f}", f"{best.cpu:.2f}", f"{wall:.2f}", f"{best.wall:.2f}")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="measure one and two workers; walls need an idle machine")
    given = parser.parse_args()
    console = Console(width=120)
    with threadpool_limits(limits=1):
        costs = measured()
        tables: list[Callable[[], Table]] = [
            partial(constants_table, costs),
            partial(prediction_table, costs, 64),
            partial(prediction_table, costs, 4096),
        ]
        if given.check:
            tables.append(partial(check_table, costs))
        for table in tables:
            console.print(table())


if __name__ == "__main__":
    main()
