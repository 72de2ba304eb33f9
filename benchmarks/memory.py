"""What bounded memory costs: `python -m benchmarks.memory --help`.

Regret with a sketch of few bytes over that with every step kept, on problems that are not stationary. Regret is exact,
and seeds are paired. The default budget and the paper's policy replay stand beside it where a row asks for them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from rich.console import Console

import s4q
from benchmarks.runs import add_to_file, arguments, chosen, empty_table, played, yes
from s4q.learners.presets import MemoryName
from s4q.problems import FiniteMDP

SEEDS = 10


def linear_mdp(horizon: int, seed: int) -> FiniteMDP:
    """A random linear MDP with other laws and rewards at every level; 100 states, 4 actions, 8 features."""
    n_states, n_actions, dim = 100, 4, 8
    rng = np.random.default_rng(seed)
    features = rng.dirichlet(np.full(dim, 0.3), size=(n_states, n_actions))
    arrivals = rng.dirichlet(np.full(n_states, 0.02), size=(horizon, dim))
    weights = rng.random((horizon, dim)) ** 3 / horizon
    return FiniteMDP(
        np.einsum("sad,hdt->hsat", features, arrivals),
        np.einsum("sad,hd->hsa", features, weights),
        rng.dirichlet(np.full(n_states, 0.5)),
        features,
        value_bound=1.0,
        well_specified=True,
    )


@dataclass(frozen=True)
class Row:
    """A problem of every seed, a number of episodes, a memory, and the most that its regret may be, relatively."""

    name: str
    build: Callable[[int], FiniteMDP]
    episodes: int
    memory: MemoryName
    memory_bytes: int | None
    target: float | None


def _linear(horizon: int, episodes: int, budget: int, target: float | None) -> Row:
    name = f"linear MDP H={horizon}, {budget / 1e6:g} MB"
    return Row(name, lambda seed: linear_mdp(horizon, seed), episodes, "sketch", budget, target)


def _low_rank(dim: int, memory: MemoryName, budget: int | None, target: float | None, shown: str) -> Row:
    def build(seed: int) -> FiniteMDP:
        return s4q.problems.low_rank(dim=dim, seed=seed)

    return Row(f"low_rank d={dim}, {shown}", build, 10**6, memory, budget, target)


ROWS = (
    _linear(4, 300_000, 10**6, 1.2),
    _linear(15, 30_000, 1_500_000, 1.2),
    _linear(4, 300_000, 10**5, None),  # a tenth of all steps
    *(_low_rank(dim, "sketch", None, 1.1, "default budget") for dim in (20, 40)),
    *(_low_rank(dim, "sketch", 10**5, None, "0.1 MB") for dim in (20, 40)),
    _low_rank(20, "policies", None, None, "policy replay"),
)
_BY_NAME = {row.name: row for row in ROWS}


@dataclass(frozen=True)
class Case:
    """One run; with every step kept in place of the row's memory where `everything` is true."""

    row: str
    episodes: int
    everything: bool
    seed: int


@dataclass(frozen=True)
class Outcome:
    """What a run reached and cost."""

    regret: float
    gap: float  # of the last policy, as a share of V*
    thinnings: int
    phases: int
    nbytes: int
    cpu_seconds: float


def play(case: Case) -> Outcome:
    """One run, with exact regret."""
    row = _BY_NAME[case.row]
    mdp = row.build(case.seed)
    kept = {"memory": "all"} if case.everything else {"memory": row.memory, "memory_bytes": row.memory_bytes}
    learner = s4q.S4Q(mdp, **kept)  # type: ignore[arg-type]
    run = s4q.run(learner, s4q.collectors.CountCollector(mdp, seed=case.seed), case.episodes)
    thinnings = getattr(learner.memory, "n_thinnings", 0)
    gap = (run.gap or 0.0) / mdp.v_star
    return Outcome(run.regret or 0.0, gap, thinnings, run.phases, run.nbytes, run.cpu_seconds)


def line(row: Row, bounded: Sequence[Outcome], everything: Sequence[Outcome]) -> list[str]:
    """The cells of a row."""
    mine, theirs = (np.array([o.regret for o in outcomes]) for outcomes in (bounded, everything))
    ratio = float(mine.mean() / theirs.mean())
    return [
        row.name,
        f"{mine.mean():.0f} ({mine.max():.0f})",
        f"{theirs.mean():.0f} ({theirs.max():.0f})",
        f"{ratio:.2f}",
        "-" if row.target is None else f"<= {row.target:g} {yes(ratio <= row.target)}",
        f"{np.median(mine / theirs):.2f}",
        f"{np.mean([o.thinnings for o in bounded]):.0f}",
        f"{np.mean([o.nbytes for o in bounded]):,.0f}",
        f"{np.mean([o.nbytes for o in everything]):,.0f}",
        f"{np.mean([o.cpu_seconds for o in bounded]):.1f}",
        f"{np.mean([o.cpu_seconds for o in everything]):.1f}",
    ]


def main(argv: Sequence[str] | None = None) -> None:
    parser = arguments("What bounded memory costs, against keeping every step.", "the mean regrets")
    parser.set_defaults(seeds=SEEDS)
    given = parser.parse_args(argv)
    headers = ("regret (worst)", "all kept", "ratio", "target", "median ratio", "thinnings", "bytes", "bytes, all kept")
    result = empty_table(
        f"practical, {given.seeds} seeds: mean regret (worst)", ("problem", *headers, "CPU s", "CPU s, all kept")
    )
    rows = chosen(ROWS, given.rows)
    groups = [
        [Case(row.name, given.episodes or row.episodes, everything, seed) for seed in range(given.seeds)]
        for row in rows
        for everything in (False, True)
    ]
    outcomes = list(played(play, groups, given.processes))
    for row, bounded, everything in zip(rows, outcomes[::2], outcomes[1::2], strict=True):
        result.add_row(*line(row, bounded, everything))
        add_to_file(given.json, row.name, [float(np.mean([o.regret for o in x])) for x in (bounded, everything)])
    Console(width=190).print(result)


if __name__ == "__main__":
    main()
