"""The command line: `s4q demo`."""

from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

import s4q
from s4q.checks import require_count
from s4q.problems import FiniteMDP

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)


@app.callback()
def main() -> None:
    """Exploration with linear features: a regret guarantee, and memory that does not grow."""


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(s4q.__version__)


@app.command()
def demo(
    episodes: Annotated[int, typer.Option(help="Episodes to play on each problem.")] = 200_000,
    seed: Annotated[int, typer.Option(help="Seed of the episodes; the problems stay the same.")] = 0,
) -> None:
    """Learn Q* of two problems from a controller that acts at random (S3Q, Algorithm 1)."""
    try:
        require_count("--episodes", episodes, "the number of episodes to play")
        require_count("--seed", seed, "the seed of the episodes", at_least=0)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    console = Console()
    for name, mdp in (("low_rank", s4q.problems.low_rank()), ("bellman_closed", s4q.problems.bellman_closed())):
        console.print(_error_table(name, mdp, episodes, seed))


def _error_table(name: str, mdp: FiniteMDP, episodes: int, seed: int) -> Table:
    """Run S3Q and tabulate the largest error at each finished epoch."""
    table = Table(title=f"S3Q on {name}: V* = {mdp.v_star:.4f}, the controller gets {mdp.facts().v_uniform:.4f}")
    for header in ("episodes", "a level", "error", "error x sqrt(n)", "gap of greedy", "bytes", "CPU s"):
        table.add_column(header, justify="right")
    learner = s4q.S3Q(mdp, controller=s4q.UniformPolicy(mdp.n_actions))

    def add_row(run: s4q.Run) -> None:
        n = 2**run.phases
        error = float(np.abs(mdp.q_values(run.q) - mdp.q_star)[mdp.reachable].max())
        table.add_row(
            f"{run.episodes:,}",
            f"{n:,}",
            f"{error:.4f}",
            f"{error * n**0.5:.2f}",
            f"{run.gap:.4f}",
            f"{run.bytes:,}",
            f"{run.cpu_seconds:.2f}",
        )

    collector = s4q.collectors.EpisodeCollector(mdp, seed=seed)
    s4q.run(learner, collector, episodes, callback=add_row, progress_bar=True)
    return table
