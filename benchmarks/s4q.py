"""S4Q by counts: CPU, memory and regret up to 10^15 episodes."""

import resource
import time

import numpy as np
from rich.table import Table

import s4q
from benchmarks.clock import cpu_seconds
from s4q.problems import FiniteMDP


def dgemm_seconds() -> float:
    """100 products of 2000 x 2000 matrices, on one thread; a fifth of them are timed."""
    a = np.random.default_rng(0).random((2000, 2000))
    out = np.empty_like(a)

    def products() -> None:
        for _ in range(20):
            np.matmul(a, a, out=out)

    return 5 * cpu_seconds(products, repeat=1)


def explore(mdp: FiniteMDP, preset: str, episodes: int, seed: int = 0) -> s4q.Run:
    collector = s4q.collectors.CountCollector(mdp, seed=seed)
    return s4q.run(s4q.S4Q(mdp, preset=preset), collector, episodes)  # type: ignore[arg-type]


def cost_table() -> Table:
    dgemms = dgemm_seconds()
    result = Table(title=f"S4Q by counts; 100 dgemms of 2000 x 2000 take {dgemms:.1f} CPU s in this run")
    result.caption = "targets: / dgemms <= 1, peak MB <= 300, river_swim 10^12 at most 5 times the CPU of 10^8"
    for header in ("problem", "preset", "episodes", "phases", "regret", "gap", "bytes", "CPU s", "/ dgemms", "peak MB"):
        result.add_column(header, justify="right")
    river, linear = s4q.problems.river_swim(6, horizon=12), s4q.problems.low_rank()
    rows = [("river_swim(6, 12)", river, "realisable", k) for k in (10**4, 10**6, 10**8, 10**10, 10**12)]
    rows += [("low_rank()", linear, "tight", k) for k in (10**8, 10**11, 10**15)]
    rows += [("low_rank()", linear, "realisable", k) for k in (10**8, 10**12)]
    for name, mdp, preset, episodes in rows:
        run = explore(mdp, preset, episodes)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        result.add_row(
            name,
            preset,
            f"10^{np.log10(episodes):.0f}",
            f"{run.phases}",
            f"{run.regret:.3g}",
            f"{run.gap:.1e}",
            f"{run.nbytes:,}",
            f"{run.cpu_seconds:.2f}",
            f"{run.cpu_seconds / dgemms:.2f}",
            f"{peak:.0f}",
        )
    return result


def slope_table() -> Table:
    sizes = [10**k for k in range(6, 13)]
    result = Table(
        title="S4Q (realisable) on low_rank(): regret (regret/sqrt K), slope of logs, 10^6 to 10^12; target <= 0.6"
    )
    for header in ("seed", *(f"10^{k}" for k in (6, 8, 10, 12)), "slope"):
        result.add_column(header, justify="right")
    mdp = s4q.problems.low_rank()
    for seed in range(3):
        regrets = [explore(mdp, "realisable", k, seed).regret or np.nan for k in sizes]
        slope = np.polyfit(np.log(sizes), np.log(regrets), 1)[0]
        scaled = [f"{r:,.0f} ({r / k**0.5:.2f})" for r, k in zip(regrets, sizes, strict=True)]
        result.add_row(f"{seed}", *scaled[::2], f"{slope:.2f}")
    return result


def counts_table() -> Table:
    result = Table(title="S4Q (realisable) for 10^5 episodes: counting against playing, CPU s")
    for header in ("problem", "EpisodeCollector", "CountCollector", "ratio"):
        result.add_column(header, justify="right")
    for name, mdp in (("river_swim(6, 12)", s4q.problems.river_swim(6, 12)), ("low_rank()", s4q.problems.low_rank())):
        seconds = {}
        for kind in (s4q.collectors.EpisodeCollector, s4q.collectors.CountCollector):
            start = time.process_time()
            s4q.run(s4q.S4Q(mdp, "realisable"), kind(mdp, seed=0), 10**5)
            seconds[kind] = time.process_time() - start
        played, counted = seconds.values()
        result.add_row(name, f"{played:.2f}", f"{counted:.2f}", f"{played / counted:.1f}")
    return result
