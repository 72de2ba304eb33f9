"""The command line: `s4q demo`."""

from typing import Annotated

import typer
from rich.console import Console

import s4q
from s4q.checks import require_count
from s4q.demo import demo as run_demo

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(s4q.__version__)
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Exploration with linear features: a regret guarantee, and memory that does not grow."""
    del version


@app.command()
def demo(
    episodes: Annotated[int, typer.Option(help="Episodes to play on each problem.")] = 10**8,
    seed: Annotated[int, typer.Option(help="Seed of the episodes; the problems stay the same.")] = 0,
) -> None:
    """Explore two problems with S4Q and print exact regret, gap, phases, bytes and CPU as episodes go by."""
    try:
        require_count("--episodes", episodes, "the number of episodes to play")
        require_count("--seed", seed, "the seed of the episodes", at_least=0)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    run_demo(episodes, seed, Console())
