"""S4Q against UCBVI and PSRL on tabular problems: `python -m benchmarks.tabular_baselines --help`.

Its problems are the tabular rows of `practical`, and `dense_random` tables, each of a seed of its own. Regret is exact.
A learner that stops exploring too early is stuck: its last policy has a gap above 1 % of V*. The CPU time is that of
the whole run. Most of a baseline's is spent in the collector, which answers each of its several hundred plans.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from rich.console import Console
from rich.table import Table

import s4q
from benchmarks import practical
from benchmarks.practical import Row
from benchmarks.runs import add_to_file, arguments, chosen, empty_table, played, yes
from s4q.baselines import PSRL, UCBVI
from s4q.problems import FiniteMDP

S4Q_NAME = "S4Q, practical"
LEARNERS: dict[str, Callable[[FiniteMDP, int], s4q.Learner]] = {
    S4Q_NAME: lambda mdp, _: s4q.S4Q(mdp, "practical"),
    "UCBVI, c = 0.3": lambda mdp, _: UCBVI(mdp, c=0.3),
    "UCBVI, c = 0.1": lambda mdp, _: UCBVI(mdp, c=0.1),
    "PSRL": lambda mdp, seed: PSRL(mdp, seed=seed),
}
STUCK = 0.01  # gap of the last policy, as a share of V*
DENSE = Row("dense random S=15 A=4 H=10", lambda seed: s4q.problems.dense_random(seed=seed), 100_000)
NOT_TABULAR = "DeepSea 10, columns in pairs"
ROWS = (DENSE, *(row for row in practical.ROWS if row.name != NOT_TABULAR))
USUAL = ("dense random", "four rooms", "few episodes", "slippery grid", "stochastic lock")
# Most mean regret of S4Q relative to a learner's, on these rows.
HELD_TO = {"UCBVI, c = 0.3": 1.0, "UCBVI, c = 0.1": 1.6, "PSRL": 1.0}
HELD_ROWS = ("four rooms H=40", "FrozenLake8x8 H=100, few episodes")
_BY_NAME = {row.name: row for row in ROWS}


@dataclass(frozen=True)
class Case:
    """One run: a learner, the seed of the problem and the seed of the run."""

    row: str
    learner: str
    episodes: int
    problem: int
    seed: int


@dataclass(frozen=True)
class Outcome:
    """What a run reached and cost."""

    regret: float
    gap: float  # of the last policy, as a share of V*
    cpu_seconds: float


def play(case: Case) -> Outcome:
    """One run, with exact regret."""
    mdp = _BY_NAME[case.row].build(case.problem)
    collector = s4q.collectors.CountCollector(mdp, seed=case.seed)
    run = s4q.run(LEARNERS[case.learner](mdp, case.seed), collector, case.episodes)
    return Outcome(run.regret or 0.0, (run.gap or 0.0) / mdp.v_star, run.cpu_seconds)


def cases_of(row: Row, learner: str, problems: int | None, seeds: int, episodes: int | None) -> list[Case]:
    """Every problem with every seed; without a number of problems each run has a problem of its own."""
    pairs = [(p, s) for p in range(problems) for s in range(seeds)] if problems else [(s, s) for s in range(seeds)]
    return [Case(row.name, learner, episodes or row.episodes, problem, seed) for problem, seed in pairs]


def line(learner: str, outcomes: Sequence[Outcome], ours: Sequence[Outcome], held: bool) -> list[str]:
    """The cells of a learner. `ours` are the outcomes of S4Q on the same cases; `held` says that it has a target."""
    regrets, gaps = np.array([o.regret for o in outcomes]), np.array([o.gap for o in outcomes])
    reference = np.array([o.regret for o in ours])
    free = gaps <= STUCK
    free_mean = regrets[free].mean() if free.any() else np.nan
    ratio = reference.mean() / regrets.mean()
    limit = HELD_TO.get(learner) if held else None
    same_runs = reference[free].mean() / free_mean if free.any() else np.nan
    numbers = (regrets.mean(), np.median(regrets), np.quantile(regrets, 0.95), regrets.max())
    return [
        learner,
        *(f"{number:.1f}" for number in numbers),
        f"{gaps.mean():.2%} ({gaps.max():.2%})",
        *(f"{int((gaps > share).sum())} of {len(gaps)}" for share in (STUCK, 0.05)),
        f"{free_mean:.1f}",
        f"{ratio:.2f}",
        "-" if limit is None else f"<= {limit:g} {yes(bool(ratio <= limit))}",
        f"{reference.mean() / free_mean:.2f}",
        f"{same_runs:.2f}",
        f"{np.mean([o.cpu_seconds for o in outcomes]):.1f}",
    ]


def table(
    row: Row,
    problems: int | None = None,
    seeds: int = 10,
    episodes: int | None = None,
    processes: int = 2,
    learners: Sequence[str] = tuple(LEARNERS),
) -> tuple[Table, dict[Case, Outcome]]:
    """A line per learner, S4Q among them, over all problems and seeds; and the runs."""
    headers = ("learner", "mean", "median", "95 %", "worst", "end gap (worst)", "> 1 %", "> 5 %", "mean, not stuck")
    ratios = ("S4Q / it", "target", "S4Q / not stuck", "the same runs")
    cases = {name: cases_of(row, name, problems, seeds, episodes) for name in learners}
    n_runs = len(cases[S4Q_NAME])
    title = f"{row.name}: regret, {episodes or row.episodes:,} episodes, {n_runs} runs"
    result = empty_table(title, (*headers, *ratios, "CPU s"))
    result.caption = (
        "mean, not stuck: over the learner's runs with an end gap of at most 1 %. S4Q / not stuck: mean regret of all "
        "runs of S4Q over it; the same runs: of S4Q on these runs only"
    )
    by_learner = dict(zip(cases, played(play, list(cases.values()), processes), strict=True))
    for name, outcomes in by_learner.items():
        result.add_row(*line(name, outcomes, by_learner[S4Q_NAME], row.name in HELD_ROWS))
    return result, {case: o for name in cases for case, o in zip(cases[name], by_learner[name], strict=True)}


def continued_table(outcomes: dict[Case, Outcome], episodes: int, processes: int = 2) -> Table:
    """The runs of S4Q that were stuck, played again with more episodes."""
    result = empty_table(
        f"runs of S4Q with an end gap above 1 %, played again to {episodes:,} episodes",
        ("problem", "problem's seed", "seed", "K", "end gap", "regret", "end gap, longer", "regret, longer"),
    )
    stuck = [case for case, o in outcomes.items() if case.learner == S4Q_NAME and o.gap > STUCK]
    longer = [Case(case.row, case.learner, episodes, case.problem, case.seed) for case in stuck]
    for case, [later] in zip(stuck, played(play, [[case] for case in longer], processes), strict=True):
        numbers = [cell for o in (outcomes[case], later) for cell in (f"{o.gap:.2%}", f"{o.regret:.0f}")]
        result.add_row(case.row, f"{case.problem}", f"{case.seed}", f"{case.episodes:,}", *numbers)
    return result


def main(argv: Sequence[str] | None = None) -> None:
    parser = arguments("S4Q against UCBVI and PSRL on tabular problems.", "the mean regret of each learner")
    parser.set_defaults(rows=list(USUAL), seeds=10)
    parser.add_argument("--problems", type=int, help="problems with --seeds runs each (default: one problem a seed)")
    parser.add_argument(
        "--continue", type=int, dest="longer", metavar="EPISODES", help="play stuck runs of S4Q again for so long"
    )
    parser.add_argument("--learners", nargs="*", default=[""], metavar="NAME_PART", help="only these beside S4Q")
    given = parser.parse_args(argv)
    learners = [name for name in LEARNERS if name == S4Q_NAME or any(part in name for part in given.learners)]
    console = Console(width=190)
    for row in chosen(ROWS, given.rows):
        shown, outcomes = table(row, given.problems, given.seeds, given.episodes, given.processes, learners)
        means = {
            name: float(np.mean([o.regret for case, o in outcomes.items() if case.learner == name]))
            for name in learners
        }
        add_to_file(given.json, row.name, means)
        console.print(shown)
        if given.longer:
            console.print(continued_table(outcomes, given.longer, given.processes))


if __name__ == "__main__":
    main()
