"""The command line: `s4q demo`, `s4q audit`."""

from typing import Annotated, get_args

import typer
from rich.console import Console

import s4q
from s4q.audit_command import BUILDERS, audit_command, problem, whole_number
from s4q.checks import require_count
from s4q.demo import demo as run_demo
from s4q.presets import PresetName

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


@app.command()
def audit(
    name: Annotated[str, typer.Argument(metavar="PROBLEM", help=f"One of {', '.join(BUILDERS)}.")] = "low_rank",
    preset: Annotated[str, typer.Option(help=f"One of {', '.join(get_args(PresetName))}.")] = "tight",
    episodes: Annotated[str, typer.Option(help="Episodes to play; 1e17 is understood.")] = "1e14",
    seed: Annotated[int, typer.Option(help="Seed of the episodes (the first, with --seeds).")] = 0,
    seeds: Annotated[int, typer.Option(help="Audit so many seeds and count failures.")] = 1,
    delta: Annotated[float, typer.Option(help="Failure probability.")] = 0.05,
    states: Annotated[int | None, typer.Option(help="Number of states, where the problem has one.")] = None,
    actions: Annotated[int | None, typer.Option(help="Number of actions.")] = None,
    dim: Annotated[int | None, typer.Option(help="Length of the features (low_rank: 3 unless given).")] = None,
    horizon: Annotated[int | None, typer.Option(help="Steps of an episode (low_rank: 2 unless given).")] = None,
    size: Annotated[int | None, typer.Option(help="Of deep_sea.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Run S4Q and check every statement of the paper on the run: bound, measured, slack. Exit code 1 if one fails."""
    sizes = {"n_states": states, "n_actions": actions, "dim": dim, "horizon": horizon, "size": size}
    try:
        count = whole_number(episodes)
        require_count("--episodes", count, "the number of episodes to play")
        require_count("--seed", seed, "the seed of the episodes", at_least=0)
        require_count("--seeds", seeds, "the number of seeds")
        console = None if as_json else Console()
        holds = audit_command(problem(name, sizes), preset, count, seed, seeds, delta, console)  # type: ignore[arg-type]
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    raise typer.Exit(0 if holds else 1)
