"""The bonus of tables with one to three levels, beside fixed ones: `python -m benchmarks.few_levels --help`.

The rule, 0.5 / sqrt(H) standard errors, was chosen in trials on bandits with seeds below 5,000. These runs have others,
from 10,000 on. A run is stuck if the last tenth of its episodes gave up more than 5 % of V* on average.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

import s4q
from benchmarks.runs import add_to_file, arguments, chosen, empty_table, played
from benchmarks.unseen_families import Outcome, arms, cell, contexts, late_loss, two_steps
from s4q.problems import FiniteMDP

WIDTHS = (None, 0.25, 0.5, 0.75)  # None: the rule
FIRST_SEED, SEEDS, EPISODES = 10_000, 200, 5000


@dataclass(frozen=True)
class Row:
    """A family of problems."""

    name: str
    build: Callable[[int], FiniteMDP]


ROWS = (
    Row("20 arms", lambda seed: arms(seed, 20, 1)),
    Row("5 arms", lambda seed: arms(seed, 5, 1)),
    Row("contextual bandit", contexts),
    Row("10 arms, twice", lambda seed: arms(seed, 10, 2)),
    Row("two steps", two_steps),
    Row("dense random S=5 A=10 H=2", lambda seed: s4q.problems.dense_random(5, 10, 2, seed=seed)),
    Row("10 arms, three times", lambda seed: arms(seed, 10, 3)),
    Row("dense random S=5 A=10 H=3", lambda seed: s4q.problems.dense_random(5, 10, 3, seed=seed)),
)
_BY_NAME = {row.name: row for row in ROWS}


@dataclass(frozen=True)
class Case:
    """One run."""

    row: str
    width: float | None
    seed: int
    episodes: int


def play(case: Case) -> Outcome:
    """One run, with exact regret."""
    mdp = _BY_NAME[case.row].build(case.seed)
    learner = s4q.S4Q(mdp, bonus_width=case.width)
    run = s4q.run(learner, s4q.collectors.CountCollector(mdp, seed=case.seed), case.episodes)
    return Outcome(run.regret, late_loss(run) / mdp.v_star)


def main(argv: Sequence[str] | None = None) -> None:
    parser = arguments("The bonus of tables with one to three levels.", "the cells")
    parser.set_defaults(seeds=SEEDS, episodes=EPISODES)
    given = parser.parse_args(argv)
    names = ["the rule", *(f"{width}" for width in WIDTHS[1:])]
    table: Table = empty_table(f"mean regret ± standard error, {given.seeds} seeds", ("family", *names))
    seeds = range(FIRST_SEED, FIRST_SEED + given.seeds)
    for row in chosen(ROWS, given.rows):
        groups = [[Case(row.name, width, seed, given.episodes) for seed in seeds] for width in WIDTHS]
        cells = [cell(outcomes) for outcomes in played(play, groups, given.processes)]
        add_to_file(given.json, row.name, dict(zip(names, cells, strict=True)))
        table.add_row(row.name, *cells)
    Console(width=150).print(table)


if __name__ == "__main__":
    main()
