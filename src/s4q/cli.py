"""The command line: `s4q demo`, `s4q train`."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

import s4q
from s4q.checks import require_count
from s4q.demo import demo as run_demo
from s4q.presets import PresetName
from s4q.train import PROBLEMS, Files, train_environment
from s4q.train import train as run_train

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
def train(
    problem: Annotated[
        str, typer.Argument(help=f"One of {', '.join(sorted(PROBLEMS))}; or the id of a Gymnasium environment.")
    ],
    episodes: Annotated[int, typer.Option(help="Episodes of the whole run, those before --resume included.")] = 10**6,
    preset: Annotated[PresetName, typer.Option(help="See the README.")] = "practical",
    seed: Annotated[int, typer.Option(help="Seed of the episodes.")] = 0,
    horizon: Annotated[int | None, typer.Option(help="Steps of an episode of an environment.")] = None,
    reward_range: Annotated[
        tuple[float, float] | None, typer.Option(help="Lowest and highest reward of a step of an environment.")
    ] = None,
    checkpoint: Annotated[Path | None, typer.Option(help="Written after each phase, and at the end.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the checkpoint, if it is there.")] = False,
    minutes: Annotated[float, typer.Option(help="The longest time between two checkpoints.")] = 5.0,
    log: Annotated[Path | None, typer.Option(help="A file of JSON lines, one per request and phase.")] = None,
) -> None:
    """Learn with S4Q; interrupted and resumed, it gives the very same result."""
    try:
        files = Files(checkpoint=checkpoint, resume=resume, minutes=minutes, log=log)
        if problem in PROBLEMS:
            if horizon is not None or reward_range is not None:
                raise ValueError(f"--horizon and --reward-range are for environments; {problem} has its own")
            typer.echo(repr(run_train(problem, episodes, preset=preset, seed=seed, files=files)))
        else:
            played, scored = train_environment(
                problem,
                episodes,
                horizon=horizon,
                reward_range=reward_range,
                preset=preset,
                seed=seed,
                files=files,
            )
            typer.echo(f"{played!r}\n{scored}")
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
