"""What longer phases cost: regret of `practical` by `episodes_per_phase`: `python -m benchmarks.episodes_per_phase`.

With more episodes a phase workers have more to share, and policies are older than they need be. Regret is exact, and
its ratio to that of the default is taken seed by seed.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import s4q
from benchmarks.runs import add_to_file, arguments, chosen, empty_table, played
from s4q.collectors import CountCollector

SEEDS = 5
PER_PHASE = (1, 8, 32, 128)


@dataclass(frozen=True)
class Row:
    """A problem."""

    name: str
    make: Any
    episodes: int


ROWS = (
    Row("river_swim(6, 12)", partial(s4q.problems.river_swim, 6, 12), 1_000),
    Row("deep_sea(8)", partial(s4q.problems.deep_sea, 8), 1_000),
    Row("low_rank(40, 4, 8, 4)", partial(s4q.problems.low_rank, 40, 4, 8, 4), 1_000),
    Row("dense_random(20, 3, 5)", partial(s4q.problems.dense_random, 20, 3, 5), 1_000),
)
_BY_NAME = {row.name: row for row in ROWS}


@dataclass(frozen=True)
class Case:
    """One run."""

    row: str
    per_phase: int
    episodes: int
    seed: int


@dataclass(frozen=True)
class Outcome:
    """What it cost."""

    regret: float
    phases: int


def play(case: Case) -> Outcome:
    """One run with exact regret."""
    mdp = _BY_NAME[case.row].make()
    learner = s4q.S4Q(mdp, episodes_per_phase=case.per_phase)
    run = s4q.run(learner, CountCollector(mdp, seed=case.seed), case.episodes)
    assert run.regret is not None
    return Outcome(run.regret, run.phases)


def line(row: Row, episodes: int, groups: Sequence[Sequence[Outcome]]) -> list[str]:
    """The cells of a row: regret and phases of the default, then the ratio and the phases of each other number."""
    first = groups[0]
    cells = [row.name, f"{episodes:,}", f"{np.mean([o.regret for o in first]):.0f}", _phases(first)]
    for others in groups[1:]:
        ratios = [other.regret / one.regret for one, other in zip(first, others, strict=True)]
        cells += [f"{np.mean(ratios):.2f} ({max(ratios):.2f})", _phases(others)]
    return cells


def _phases(outcomes: Sequence[Outcome]) -> str:
    return f"{np.mean([one.phases for one in outcomes]):.0f}"


def table(
    rows: Sequence[Row] = ROWS,
    *,
    seeds: int = SEEDS,
    episodes: int | None = None,
    processes: int = 1,
    kept: Path | None = None,
) -> Table:
    """A line per problem. `kept` is the file of `--json`."""
    columns = [f"{n}, regret over that" for n in PER_PHASE[1:]]
    headers = ["problem", "episodes", "regret with 1", "phases"]
    headers += [header for column in columns for header in (column, "phases")]
    result = empty_table(f"practical by episodes_per_phase, {seeds} seeds: mean (worst)", headers)
    groups = [
        [Case(row.name, n, episodes or row.episodes, seed) for seed in range(seeds)] for row in rows for n in PER_PHASE
    ]
    outcomes = list(played(play, groups, processes))
    for i, row in enumerate(rows):
        of_row = outcomes[i * len(PER_PHASE) : (i + 1) * len(PER_PHASE)]
        add_to_file(kept, row.name, [[asdict(one) for one in of_number] for of_number in of_row])
        result.add_row(*line(row, episodes or row.episodes, of_row))
    return result


def main(argv: Sequence[str] | None = None) -> None:
    parser = arguments("Regret of practical by episodes_per_phase.", "the outcomes")
    parser.set_defaults(seeds=SEEDS, processes=1)
    given = parser.parse_args(argv)
    rows = chosen(ROWS, given.rows)
    size = {"seeds": given.seeds, "episodes": given.episodes, "processes": given.processes}
    Console(width=170).print(table(rows, **size, kept=given.json))


if __name__ == "__main__":
    main()
