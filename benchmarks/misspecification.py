"""What misspecification costs: the plateau of average regret against the transfer error of the run and the sup norm.

`python -m benchmarks.misspecification` prints the table and writes docs/misspecification.png (a few minutes).
"""

from dataclasses import dataclass
from pathlib import Path
from typing import final

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_limits

import s4q
from s4q.problems import FiniteMDP
from s4q.theory import check_structure, phase_transfers

EPISODES = 10**11
OUTPUT = Path(__file__).parent.parent / "docs" / "misspecification.png"


@final
@dataclass(frozen=True, eq=False)
class Outcome:
    """One run, and the three numbers to compare."""

    name: str
    kind: str
    run: s4q.Run
    plateau: float  # regret an episode over the whole run
    realised: float  # transfer_error_realised
    sup_norm: float  # largest error of a fit to the backup of a linear Q, anywhere


def outcome(name: str, kind: str, mdp: FiniteMDP, episodes: int = EPISODES, seed: int = 0) -> Outcome:
    """Explore with `realisable`, told that the features are not exact."""
    run = s4q.run(s4q.S4Q(mdp, "realisable"), s4q.collectors.CountCollector(mdp, seed=seed), episodes, record=True)
    assert run.record is not None
    assert run.regret is not None
    realised = max(phase.realised for phase in phase_transfers(mdp, run.record))
    sup_norm = float(check_structure(mdp).closure_residual.max())
    return Outcome(name, kind, run, run.regret / episodes, realised, sup_norm)


def cases(episodes: int = EPISODES) -> list[Outcome]:
    """Perturbed problems of several amounts and seeds, and the two harmless kinds."""
    found = []
    for amount in (0.03, 0.1, 0.2, 0.4, 0.7, 1.0):
        for seed in range(3):
            mdp = s4q.problems.perturbed_low_rank(amount=amount, seed=seed)
            found.append(outcome(f"perturbed by {amount:g}, seed {seed}", "perturbed", mdp, episodes))
    for kind in ("unvisited", "cancelling"):
        for amount in (0.1, 0.25):
            mdp = s4q.problems.harmless_error(kind=kind, amount=amount)  # type: ignore[arg-type]
            found.append(outcome(f"harmless, {kind}, {amount:g}", kind, mdp, episodes))
    return found


def table(outcomes: list[Outcome]) -> Table:
    result = Table(title=f"S4Q (realisable), 10^{np.log10(EPISODES):.0f} episodes; values at most 1")
    for header in (
        "problem",
        "sup-norm error",
        "transfer_error_realised",
        "average regret",
        "average regret / transfer_error_realised",
    ):
        result.add_column(header, justify="right")
    for o in outcomes:
        ratio = f"{o.plateau / o.realised:.2f}" if o.realised > 1e-9 else "-"
        result.add_row(o.name, f"{o.sup_norm:.1e}", f"{o.realised:.1e}", f"{o.plateau:.1e}", ratio)
    return result


COLOURS = {"perturbed": "tab:red", "unvisited": "tab:blue", "cancelling": "tab:green"}
LABELS = {
    "perturbed": "perturbed_low_rank",
    "unvisited": "harmless: never visited",
    "cancelling": "harmless: cancels across levels",
}


def figure(outcomes: list[Outcome]) -> plt.Figure:
    """Average regret over time; where it ends, against the transfer error; the same against the sup-norm error."""
    shape, (curves, realised, sup) = plt.subplots(1, 3, figsize=(13, 4.2), constrained_layout=True)
    nothing = 0.3 * min(o.realised for o in outcomes if o.kind == "perturbed")  # where an error of 0 is drawn
    for o in outcomes:
        colour = COLOURS[o.kind]
        points = [(p.episodes, p.regret / p.episodes) for p in o.run.curve if p.regret and p.episodes >= 10**4]
        curves.loglog(*zip(*points, strict=True), color=colour, alpha=0.6, linewidth=1)
        realised.loglog(max(o.realised, nothing), o.plateau, "o", color=colour, label=LABELS[o.kind])
        sup.loglog(o.sup_norm, o.plateau, "o", color=colour)
    ends = np.array([nothing, max(o.realised for o in outcomes)])
    realised.loglog(ends, ends, "k:", linewidth=1)
    realised.annotate("average regret = terr", (0.05, 0.06), ha="right", fontsize=8)
    realised.annotate("terr = 0", (nothing, 1.5 * max(o.plateau for o in outcomes if o.realised < 1e-9)), fontsize=8)
    curves.set(xlabel="episodes", ylabel="average regret", title="Average regret over time")
    after = f"average regret after $10^{{{np.log10(EPISODES):.0f}}}$ episodes"
    realised.set(xlabel="transfer_error_realised", ylabel=after, title="Where it ends follows the transfer error")
    sup.set(xlabel="largest error of a backup (sup norm)", ylabel=after, title="and not the sup-norm error")
    sup.set_xlim(0.01, 1.0)
    handles, names = realised.get_legend_handles_labels()
    unique = dict(zip(names, handles, strict=True))
    curves.legend(unique.values(), unique.keys(), fontsize=8, loc="lower left")
    for axes in (curves, realised, sup):
        axes.grid(alpha=0.3)
    return shape


def main() -> None:
    with threadpool_limits(limits=1):
        outcomes = cases()
    Console(width=130).print(table(outcomes))
    figure(outcomes).savefig(OUTPUT, dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    main()
