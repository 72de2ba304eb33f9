"""`s4q demo`: S4Q explores two problems for 10^8 episodes, in seconds, and prints what it cost.

The episodes are counted, not played, so regret and gap are exact.
"""

from collections.abc import Iterator
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

import s4q
from s4q.cli.arguments import refusals, whole_number
from s4q.core.validation import require_count
from s4q.problems import FiniteMDP
from s4q.running.curve import Point


def demo(
    episodes: Annotated[str, typer.Option(help="Episodes to play on each problem; 1e6 is understood.")] = "1e8",
    seed: Annotated[int, typer.Option(help="Seed of the episodes; the problems stay the same.")] = 0,
) -> None:
    """Explore two problems with S4Q and print exact regret, gap, phases, bytes and CPU as episodes go by."""
    with refusals():
        count = whole_number(episodes)
        require_count("--episodes", count, "the number of episodes to play")
        require_count("--seed", seed, "the seed of the episodes", at_least=0)
    console = Console()
    river_swim, low_rank = s4q.problems.river_swim(6, horizon=12), s4q.problems.low_rank()
    for name, mdp in (("river_swim(6, horizon=12)", river_swim), ("low_rank()", low_rank)):
        learner = s4q.S4Q(mdp, preset="realisable")
        collector = s4q.collectors.CountCollector(mdp, seed=seed)
        run = s4q.run(learner, collector, count, progress_bar=True)
        console.print(regret_table(name, mdp, run))


def regret_table(name: str, mdp: FiniteMDP, run: s4q.Run) -> Table:
    """A row for the first phase that ended in each decade, and one for the end."""
    facts = mdp.facts()
    caption = f"V* = {facts.v_star:.4f}, a random policy gets {facts.v_uniform:.4f}; replay is charged in regret"
    table = Table(title=f"S4Q (realisable) on {name}", caption=caption)
    for header in ("episodes", "replay", "regret", "/ sqrt K", "gap", "phases", "bytes", "CPU s"):
        table.add_column(header, justify="right")
    for point in _one_a_decade(run.curve):
        table.add_row(
            f"{point.episodes:.2e}" if point.episodes >= 10**6 else f"{point.episodes:,}",
            f"{point.replay_episodes / point.episodes:.0%}",
            f"{point.regret:.3g}",
            f"{(point.regret or 0.0) / point.episodes**0.5:.2f}",
            f"{point.gap:.4f}",
            f"{point.phases}",
            f"{point.nbytes:,}",
            f"{point.cpu_seconds:.2f}",
        )
    return table


def _one_a_decade(curve: tuple[Point, ...]) -> Iterator[Point]:
    decade = -1
    for point in curve:
        here = int(np.log10(point.episodes))
        if here > decade or point is curve[-1]:
            decade = here
            yield point
