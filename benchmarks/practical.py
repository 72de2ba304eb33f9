"""The preset `practical` on few episodes, one setting for all problems: `python -m benchmarks.practical --help`.

Exact regret with every episode charged, replay included. Solved: from that episode to the end of the run every
main-loop policy has a gap of at most 5 % of V*. Each row is run with the value bound a user would know, and with
bounds three and ten times too large. `--json` keeps the mean regrets, and `--against` compares with kept ones.
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
from rich.console import Console
from rich.table import Table

import s4q
from benchmarks.runs import add_to_file, arguments, chosen, empty_table, played, yes
from s4q.problems import FiniteMDP

SEEDS = 10
TABLES = ("rows", "flat")
MOST_AT_SCALE = {3.0: 2.0, 10.0: 5.0}  # most regret, relative to the exact value bound
MOST_OF_ONE_ROW, MOST_OF_ALL_ROWS = 2.0, 1.3  # most regret relative to a kept one, and its geometric mean


@dataclass(frozen=True)
class Row:
    """A problem (made from a seed), a number of episodes, and what must be reached.

    Args:
        name: How tables and `--rows` call it.
        build: The problem of a seed.
        episodes: Episodes of a run.
        measure: What the target is about: the mean regret, the episode from which the worst seed is solved, or the mean
            gap of the last policy as a share of V*.
        target: The most that the measure may be. None (default): no target here.
        seeds: Number of runs.
        wide_seeds: Number of runs with a value bound that is too large.
    """

    name: str
    build: Callable[[int], FiniteMDP]
    episodes: int
    measure: Literal["regret", "solved", "gap"] = "gap"
    target: float | None = None
    seeds: int = SEEDS
    wide_seeds: int = SEEDS


@dataclass(frozen=True)
class Case:
    """One run: a row, and the factor on its value bound."""

    row: str
    episodes: int
    scale: float
    seed: int


@dataclass(frozen=True)
class Outcome:
    """What a run reached and cost."""

    regret: float
    solved: int
    gap: float  # of the last policy, as a share of V*
    best_gap: float  # of the policy to deploy
    phases: int
    nbytes: int
    cpu_seconds: float


def random_mdp(seed: int) -> FiniteMDP:
    """A stationary problem of random size: few next states, few pairs that pay."""
    rng = np.random.default_rng([2026, seed])
    n_states, n_actions, horizon = int(rng.integers(10, 41)), int(rng.integers(2, 6)), int(rng.integers(10, 31))
    transitions = rng.dirichlet(np.full(n_states, 0.1), size=(n_states, n_actions))
    rewards = rng.random((n_states, n_actions)) * (rng.random((n_states, n_actions)) < 0.2)
    return FiniteMDP(transitions, rewards, np.eye(n_states)[0], horizon=horizon)


def _deep_sea(size: int, **options: int) -> Row:
    return Row(
        f"DeepSea {size}",
        lambda seed: s4q.problems.deep_sea(size, seed=seed),
        5 * size**2,
        "solved",
        size**2 / 2,
        **options,
    )


def _stochastic_deep_sea(size: int) -> Row:
    def build(seed: int) -> FiniteMDP:
        return s4q.problems.deep_sea(size, stochastic=True, seed=seed)

    return Row(f"DeepSea {size}, stochastic", build, 10 * size**2, "solved", 10 * size**2)


def _lock(horizon: int) -> Row:
    def build(seed: int) -> FiniteMDP:
        return s4q.problems.combination_lock(10, horizon, seed=seed)

    return Row(f"lock A=10 H={horizon}", build, 2000, "solved", 50 * horizon)


def _big_lake(seed: int) -> FiniteMDP:
    del seed
    return s4q.problems.from_gymnasium("FrozenLake8x8-v1", 100, value_bound=1.0)


ROWS = (
    Row("chain", lambda _: s4q.problems.chain(), 5000, "regret", 20),
    *(_deep_sea(n) for n in (10, 20, 30)),
    *(_stochastic_deep_sea(n) for n in (10, 20)),
    *(_lock(h) for h in (10, 20)),
    Row("RiverSwim (6, 12)", lambda _: s4q.problems.river_swim(6, 12), 20_000, "gap", 0.01),
    Row("RiverSwim (12, 24)", lambda _: s4q.problems.river_swim(12, 24), 20_000, "gap", 0.03),
    Row(
        "FrozenLake H=50",
        lambda _: s4q.problems.from_gymnasium("FrozenLake-v1", 50, value_bound=1.0),
        20_000,
        "gap",
        0.05,
    ),
    Row("FrozenLake8x8 H=100", _big_lake, 20_000, "gap", 0.05, wide_seeds=4),
    Row("20 random MDPs", random_mdp, 20_000, "gap", 0.03, seeds=20, wide_seeds=20),
    *(_deep_sea(n, wide_seeds=3) for n in (40, 50)),
    # The first two have a target in `tabular_baselines`.
    Row("four rooms H=40", lambda _: s4q.problems.four_rooms(40), 1000, wide_seeds=4),
    Row("FrozenLake8x8 H=100, few episodes", _big_lake, 3000, wide_seeds=4),
    Row("slippery grid 10 x 10", lambda _: s4q.problems.slippery_grid(), 2000, "gap", 0.05, wide_seeds=4),
    Row("stochastic lock A=10 H=10", lambda seed: s4q.problems.stochastic_lock(seed=seed), 5000, "gap", 0.05),
    # Features that are not exact: no policy of the run need be good, so there is no target.
    Row("DeepSea 10, columns in pairs", lambda seed: s4q.problems.aggregated_deep_sea(seed=seed), 1000),
)


FLAT_ROWS = ("chain", "DeepSea 20", "RiverSwim (6, 12)", "FrozenLake H=50")
_BY_NAME = {row.name: row for row in ROWS}


def solved_at(run: s4q.Run, v_star: float) -> int:
    """The episode after which no main-loop policy was worse than 5 %; the length of the run if the last one was."""
    bad = [point.episodes for point in run.curve if (point.gap or 0.0) > 0.05 * v_star]
    return bad[-1] if bad else 0


def play(case: Case) -> Outcome:
    """One run, with exact regret."""
    row = _BY_NAME[case.row]
    mdp = row.build(case.seed)
    spec = replace(
        mdp.spec,
        value_bound=tuple(case.scale * v for v in mdp.spec.value_bound),
        radius=tuple(case.scale * b for b in mdp.spec.radius),
        block_radius=tuple(case.scale * b for b in mdp.spec.block_radius),
    )
    learner = s4q.S4Q(spec)
    run = s4q.run(learner, s4q.collectors.CountCollector(mdp, seed=case.seed), case.episodes)
    return Outcome(
        run.regret or 0.0,
        solved_at(run, mdp.v_star),
        (run.gap or 0.0) / mdp.v_star,
        1.0 - mdp.value(run.best) / mdp.v_star,
        run.phases,
        run.nbytes,
        run.cpu_seconds,
    )


def cases_of(row: Row, scale: float, seeds: int | None, episodes: int | None) -> list[Case]:
    """The runs of a row at one factor on its value bound."""
    n = seeds or row.seeds
    n = n if scale == 1 else min(n, row.wide_seeds)
    return [Case(row.name, episodes or row.episodes, scale, seed) for seed in range(n)]


def line(row: Row, episodes: int, by_scale: dict[float, list[Outcome]]) -> list[str]:
    """The cells of a row, from its outcomes at each factor on the value bound, 1 among them."""
    exact = by_scale[1.0]
    regret, solved, gap, best_gap = (
        np.array([getattr(o, name) for o in exact]) for name in ("regret", "solved", "gap", "best_gap")
    )
    value = {"regret": regret.mean(), "solved": solved.max(), "gap": gap.mean()}
    met = row.target is None or bool(value[row.measure] <= row.target)
    met = met and (row.measure != "solved" or solved.max() < episodes)
    wide = []
    for scale, outcomes in by_scale.items():
        if scale != 1:
            ratio = np.mean([o.regret for o in outcomes]) / regret[: len(outcomes)].mean()
            seeds = "" if len(outcomes) == len(exact) else f" ({len(outcomes)} seeds)"
            limit = MOST_AT_SCALE.get(scale)
            wide += [f"{ratio:.2f}{seeds}", "-" if limit is None else yes(bool(ratio <= limit))]
    return [
        row.name,
        f"{episodes:,}",
        f"{regret.mean():.1f} ({regret.max():.1f})",
        f"{solved.mean():.0f} ({solved.max()})",
        f"{gap.mean():.2%} ({gap.max():.2%})",
        f"{best_gap.mean():.2%} ({best_gap.max():.2%})",
        "-" if row.target is None else f"{row.measure} <= {row.target:g}",
        "-" if row.target is None else yes(met),
        *wide,
        f"{np.mean([o.nbytes for o in exact]):,.0f}",
        f"{np.mean([o.cpu_seconds for o in exact]):.1f}",
    ]


def rows_table(
    rows: Sequence[Row],
    scales: Sequence[float] = (1.0, 3.0, 10.0),
    *,
    seeds: int | None = None,
    episodes: int | None = None,
    processes: int = 2,
    kept: Path | None = None,
) -> tuple[Table, dict[str, float]]:
    """A line per row, and the mean regrets with the exact value bound. `kept` is the file of `--json`."""
    scales = (1.0, *(scale for scale in scales if scale != 1))
    wide = [header for scale in scales[1:] for header in (f"v x {scale:g}", f"<= {MOST_AT_SCALE.get(scale, np.inf):g}")]
    headers = (
        "problem",
        "K",
        "regret",
        "solved at",
        "end gap",
        "gap of best",
        "target",
        "met",
        *wide,
        "bytes",
        "CPU s",
    )
    result = empty_table("practical: mean (worst); v x c: regret relative to v x 1", headers)
    regrets: dict[str, float] = {}
    groups = [[case for scale in scales for case in cases_of(row, scale, seeds, episodes)] for row in rows]
    for row, cases, outcomes in zip(rows, groups, played(play, groups, processes), strict=True):
        pairs = list(zip(cases, outcomes, strict=True))
        by_scale = {scale: [o for case, o in pairs if case.scale == scale] for scale in scales}
        regrets[row.name] = float(np.mean([o.regret for o in by_scale[1.0]]))
        add_to_file(kept, row.name, regrets[row.name])
        cells = line(row, episodes or row.episodes, by_scale)
        print(" | ".join(cells), file=sys.stderr, flush=True)
        result.add_row(*cells)
    return result, regrets


def against_table(regrets: dict[str, float], before: dict[str, float]) -> Table:
    """Regrets relative to kept ones, and the geometric mean over the rows that both have."""
    result = empty_table("mean regret against the kept ones", ("problem", "kept", "now", "ratio", "target", "met"))
    ratios = {name: regrets[name] / before[name] for name in regrets if name in before}
    for name, ratio in ratios.items():
        numbers = (f"{before[name]:.1f}", f"{regrets[name]:.1f}", f"{ratio:.2f}")
        result.add_row(name, *numbers, f"<= {MOST_OF_ONE_ROW:g}", yes(ratio <= MOST_OF_ONE_ROW))
    if ratios:
        mean = float(np.exp(np.mean(np.log(list(ratios.values())))))
        met = yes(mean <= MOST_OF_ALL_ROWS)
        result.add_row("geometric mean", "", "", f"{mean:.2f}", f"<= {MOST_OF_ALL_ROWS:g}", met)
    return result


def flat_table(episodes: int | None = None, processes: int = 2) -> Table:
    """What ten and a hundred times more episodes cost, once the policy stands still."""
    result = empty_table(
        "practical, seed 0: CPU and bytes against K", ("problem", "K", "phases", "regret", "bytes", "CPU s")
    )
    cases = [
        Case(name, factor * (episodes or _BY_NAME[name].episodes), 1.0, 0)
        for name in FLAT_ROWS
        for factor in (1, 10, 100)
    ]
    for case, [o] in zip(cases, played(play, [[case] for case in cases], processes), strict=True):
        cells = (f"{case.episodes:,}", f"{o.phases}", f"{o.regret:.1f}", f"{o.nbytes:,}", f"{o.cpu_seconds:.1f}")
        result.add_row(case.row, *cells)
    return result


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(float(number) for number in text.split(","))


def _tables(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    if not set(names) <= set(TABLES):
        raise argparse.ArgumentTypeError(f"tables are {', '.join(TABLES)}; got {text!r}")
    return names


def main(argv: Sequence[str] | None = None) -> None:
    parser = arguments("The preset `practical` on few episodes.", "the mean regret")
    parser.add_argument("--scales", type=_numbers, default=(1.0, 3.0, 10.0), help="factors on the value bound")
    parser.add_argument("--tables", type=_tables, default=TABLES, help=f"some of {','.join(TABLES)} (default: all)")
    parser.add_argument("--against", type=Path, metavar="FILE", help="compare with the mean regrets of a --json file")
    given = parser.parse_args(argv)
    before = None if given.against is None else json.loads(given.against.read_text())
    console, size = Console(width=190), {"episodes": given.episodes, "processes": given.processes}
    if "rows" in given.tables:
        rows = chosen(ROWS, given.rows)
        table, regrets = rows_table(rows, given.scales, seeds=given.seeds, kept=given.json, **size)
        console.print(table)
        if before is not None:
            console.print(against_table(regrets, before))
    if "flat" in given.tables:
        console.print(flat_table(**size))


if __name__ == "__main__":
    main()
