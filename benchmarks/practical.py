"""The preset `practical` on few episodes, one setting for all problems: `python -m benchmarks.practical [rows]`.

Exact regret with every episode charged, replay included. Solved: from that episode to the end of the run every
main-loop policy has a gap of at most 5 % of V*. Each row is run twice: with the value bound a user would know, and
with one ten times too large.
"""

import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from rich.console import Console
from rich.table import Table

import s4q
from s4q.problems import FiniteMDP

SEEDS = 10


@dataclass(frozen=True)
class Row:
    """A problem (made from a seed), a number of episodes, and what must be reached."""

    name: str
    build: Callable[[int], FiniteMDP]
    episodes: int
    measure: str  # "regret", "solved" or "gap"
    target: float
    seeds: int = SEEDS
    wide_seeds: int = SEEDS  # of the runs with a value bound ten times too large


@dataclass(frozen=True)
class Outcome:
    regret: float
    solved: int
    gap: float  # share of V*
    held: int
    cpu: float


def solved_at(run: s4q.Run, v_star: float) -> int:
    """The episode after which no main-loop policy was worse than 5 %; the length of the run if the last one was."""
    bad = [point.episodes for point in run.curve if (point.gap or 0.0) > 0.05 * v_star]
    return bad[-1] if bad else 0


def play(row: Row, scale: float, seed: int) -> Outcome:
    mdp = row.build(seed)
    spec = replace(
        mdp.spec,
        value_bound=tuple(scale * v for v in mdp.spec.value_bound),
        radius=tuple(scale * b for b in mdp.spec.radius),
        block_radius=tuple(scale * b for b in mdp.spec.block_radius),
    )
    learner = s4q.S4Q(spec)
    run = s4q.run(learner, s4q.collectors.CountCollector(mdp, seed=seed), row.episodes)
    gap = (run.gap or 0.0) / mdp.v_star
    return Outcome(run.regret or 0.0, solved_at(run, mdp.v_star), gap, run.nbytes, run.cpu_seconds)


def random_mdp(seed: int) -> FiniteMDP:
    """A stationary problem of random size: few next states, few pairs that pay."""
    rng = np.random.default_rng([2026, seed])
    n_states, n_actions, horizon = int(rng.integers(10, 41)), int(rng.integers(2, 6)), int(rng.integers(10, 31))
    transitions = rng.dirichlet(np.full(n_states, 0.1), size=(n_states, n_actions))
    rewards = rng.random((n_states, n_actions)) * (rng.random((n_states, n_actions)) < 0.2)
    return FiniteMDP(transitions, rewards, np.eye(n_states)[0], horizon=horizon)


def _chain(seed: int) -> FiniteMDP:
    del seed
    return s4q.problems.chain()


def _deep_sea(size: int, stochastic: bool, seed: int) -> FiniteMDP:
    return s4q.problems.deep_sea(size, stochastic=stochastic, seed=seed)


def _lock(horizon: int, seed: int) -> FiniteMDP:
    return s4q.problems.combination_lock(10, horizon, seed=seed)


def _river(n_states: int, horizon: int, seed: int) -> FiniteMDP:
    del seed
    return s4q.problems.river_swim(n_states, horizon)


def _lake(name: str, horizon: int, seed: int) -> FiniteMDP:
    del seed
    return s4q.problems.from_gymnasium(name, horizon, value_bound=1.0)


ROWS = [
    Row("chain", _chain, 5000, "regret", 20),
    *(Row(f"DeepSea {n}", partial(_deep_sea, n, False), 5 * n * n, "solved", n * n) for n in (10, 20, 30)),
    *(Row(f"DeepSea {n}, stochastic", partial(_deep_sea, n, True), 10 * n * n, "solved", 10 * n * n) for n in (10, 20)),
    *(Row(f"lock A=10 H={h}", partial(_lock, h), 2000, "solved", 50 * h) for h in (10, 20)),
    Row("RiverSwim (6, 12)", partial(_river, 6, 12), 20_000, "gap", 0.01),
    Row("RiverSwim (12, 24)", partial(_river, 12, 24), 20_000, "gap", 0.03),
    Row("FrozenLake H=50", partial(_lake, "FrozenLake-v1", 50), 20_000, "gap", 0.05),
    Row("FrozenLake8x8 H=100", partial(_lake, "FrozenLake8x8-v1", 100), 20_000, "gap", 0.05, wide_seeds=4),
    Row("20 random MDPs", random_mdp, 20_000, "gap", 0.03, seeds=20, wide_seeds=20),
    *(Row(f"DeepSea {n}", partial(_deep_sea, n, False), 5 * n * n, "solved", n * n, wide_seeds=3) for n in (40, 50)),
]


def line(row: Row, exact: list[Outcome], wide: list[Outcome]) -> list[str]:
    regret, solved, gap = ([getattr(o, name) for o in exact] for name in ("regret", "solved", "gap"))
    value = {"regret": np.mean(regret), "solved": max(solved), "gap": np.mean(gap)}[row.measure]
    ratio = np.mean([o.regret for o in wide]) / np.mean(regret[: len(wide)])
    met = bool(value <= row.target) and (row.measure != "solved" or max(solved) < row.episodes)
    return [
        row.name,
        f"{row.episodes:,}",
        f"{np.mean(regret):.1f}",
        f"{np.mean(solved):.0f} ({max(solved)})",
        f"{np.mean(gap):.2%} ({max(gap):.2%})",
        f"{row.measure} <= {row.target:g}",
        "yes" if met else "NO",
        f"{ratio:.2f}" if len(wide) >= SEEDS else f"{ratio:.2f} ({len(wide)} seeds)",
        "yes" if ratio <= 5 else "NO",
        f"{np.mean([o.held for o in exact]):,.0f}",
        f"{np.mean([o.cpu for o in exact]):.1f}",
    ]


def table(wanted: str = "") -> Table:
    """All rows whose name contains `wanted`; seeds run in two processes."""
    result = Table(title=f"practical, {SEEDS} seeds: mean (worst)")
    headers = (
        "problem",
        "K",
        "regret",
        "solved at",
        "end gap",
        "target",
        "met",
        "regret, v x 10",
        "<= 5",
        "bytes",
        "CPU s",
    )
    for header in headers:
        result.add_column(header, justify="right")
    with ProcessPoolExecutor(2) as pool:
        for row in ROWS:
            if wanted in row.name:
                exact = list(pool.map(partial(play, row, 1.0), range(row.seeds)))
                wide = list(pool.map(partial(play, row, 10.0), range(row.wide_seeds)))
                cells = line(row, exact, wide)
                print(" | ".join(cells), file=sys.stderr, flush=True)
                result.add_row(*cells)
    return result


PRICE_SEEDS = 10


def _low_rank(dim: int, held: int | None, seed: int) -> Outcome:
    mdp = s4q.problems.low_rank(dim=dim, seed=seed)
    learner = s4q.S4Q(mdp, memory="all") if held is None else s4q.S4Q(mdp, memory_bytes=held)
    run = s4q.run(learner, s4q.collectors.CountCollector(mdp, seed=seed), 10**6)
    return Outcome(run.regret or 0.0, 0, (run.gap or 0.0) / mdp.v_star, run.nbytes, run.cpu_seconds)


def price_table() -> Table:
    """What bounded memory costs where nothing is stationary: against keeping every transition."""
    result = Table(
        title=f"low_rank, H = 3, 10^6 episodes, {PRICE_SEEDS} seeds: the price of bounded memory (target: 1.2)"
    )
    for header in ("d", "budget, bytes", "regret", "regret, all kept", "ratio", "bytes", "CPU s"):
        result.add_column(header, justify="right")
    with ProcessPoolExecutor(2) as pool:
        for dim in (5, 10, 20):
            free = np.mean([o.regret for o in pool.map(partial(_low_rank, dim, None), range(PRICE_SEEDS))])
            for budget in (10**6, 2 * 10**5):
                bounded = list(pool.map(partial(_low_rank, dim, budget), range(PRICE_SEEDS)))
                regret, held, cpu = (np.mean([getattr(o, name) for o in bounded]) for name in ("regret", "held", "cpu"))
                cells = [f"{dim}", f"{budget:,}", f"{regret:.0f}", f"{free:.0f}"]
                result.add_row(*cells, f"{regret / free:.2f}", f"{held:,.0f}", f"{cpu:.1f}")
    return result


def flat_table() -> Table:
    """What ten and a hundred times more episodes cost, once the policy stands still."""
    result = Table(title="practical, seed 0: CPU and bytes against K")
    for header in ("problem", "K", "phases", "regret", "bytes", "CPU s"):
        result.add_column(header, justify="right")
    for row in [row for row in ROWS if row.name in ("chain", "DeepSea 20", "RiverSwim (6, 12)", "FrozenLake H=50")]:
        for factor in (1, 10, 100):
            mdp = row.build(0)
            learner = s4q.S4Q(mdp)
            run = s4q.run(learner, s4q.collectors.CountCollector(mdp), factor * row.episodes)
            cells = (f"{run.episodes:,}", f"{run.phases}", f"{run.regret:.1f}", f"{run.nbytes:,}")
            result.add_row(row.name, *cells, f"{run.cpu_seconds:.1f}")
    return result


if __name__ == "__main__":
    console = Console(width=150)
    console.print(table(sys.argv[1] if len(sys.argv) > 1 else ""))
    console.print(price_table())
    console.print(flat_table())
