"""S4Q against UCBVI and PSRL on random tables: `python -m benchmarks.dense_random --problems 8 --seeds 2`.

Every problem is a `dense_random` of its own seed. Regret is exact. A learner that stops exploring too early shows in
the worst regret and in the runs whose last policy has a gap above 1 % or 5 % of V*. The CPU time is that of the whole
run. Most of a baseline's is spent in the collector, which answers each of its several hundred plans.
"""

import argparse
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np
from rich.console import Console
from rich.table import Table

import s4q
from s4q.baselines import PSRL, UCBVI
from s4q.problems import FiniteMDP

LEARNERS: dict[str, Callable[[FiniteMDP, int], s4q.Learner]] = {
    "S4Q, practical": lambda mdp, _: s4q.S4Q(mdp, "practical"),
    "UCBVI, c = 0.3": lambda mdp, _: UCBVI(mdp, c=0.3),
    "UCBVI, c = 0.1": lambda mdp, _: UCBVI(mdp, c=0.1),
    "PSRL": lambda mdp, seed: PSRL(mdp, seed=seed),
}


@dataclass(frozen=True)
class Outcome:
    regret: float
    gap: float  # of the last policy, as a share of V*
    cpu_seconds: float


def play(name: str, episodes: int, case: tuple[int, int]) -> Outcome:
    """One run: a problem and a seed of the run."""
    problem, seed = case
    mdp = s4q.problems.dense_random(seed=problem)
    collector = s4q.collectors.CountCollector(mdp, seed=seed)
    run = s4q.run(LEARNERS[name](mdp, seed), collector, episodes)
    return Outcome(run.regret or 0.0, (run.gap or 0.0) / mdp.v_star, run.cpu_seconds)


def line(name: str, outcomes: list[Outcome]) -> list[str]:
    regrets, gaps = np.array([o.regret for o in outcomes]), np.array([o.gap for o in outcomes])
    numbers = (regrets.mean(), np.median(regrets), np.quantile(regrets, 0.95), regrets.max())
    stuck = [f"{int((gaps > share).sum())} of {len(gaps)}" for share in (0.01, 0.05)]
    return [name, *(f"{number:.0f}" for number in numbers), *stuck, f"{np.mean([o.cpu_seconds for o in outcomes]):.1f}"]


def table(problems: int = 8, seeds: int = 2, episodes: int = 100_000, processes: int = 2) -> Table:
    """A row per learner, over all problems and seeds."""
    result = Table(title=f"dense_random (S=15, A=4, H=10): {problems} problems, {seeds} seeds, {episodes:,} episodes")
    headers = ("learner", "regret", "median", "95 %", "worst", "end gap > 1 %", "end gap > 5 %", "CPU s a run")
    for header in headers:
        result.add_column(header, justify="left" if header == "learner" else "right")
    cases = [(problem, seed) for problem in range(problems) for seed in range(seeds)]
    with ProcessPoolExecutor(processes) as pool:
        for name in LEARNERS:
            result.add_row(*line(name, list(pool.map(partial(play, name, episodes), cases))))
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description="S4Q against UCBVI and PSRL on random tables.")
    parser.add_argument("--problems", type=int, default=8, help="number of random problems")
    parser.add_argument("--seeds", type=int, default=2, help="runs of each problem")
    parser.add_argument("--episodes", type=int, default=100_000, help="episodes of a run")
    parser.add_argument("--processes", type=int, default=2, help="runs at a time")
    given = parser.parse_args()
    Console(width=120).print(table(given.problems, given.seeds, given.episodes, given.processes))


if __name__ == "__main__":
    main()
