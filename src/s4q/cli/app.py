"""The command line: `s4q demo`, `s4q train`, `s4q audit`."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

import s4q
from s4q.cli.audit_command import Algorithm, print_audit, small_problem
from s4q.cli.demo_command import demo as run_demo
from s4q.cli.train_command import Files, Goal, train_environment
from s4q.cli.train_command import train as run_train
from s4q.core.validation import require_count
from s4q.learners.presets import PresetName
from s4q.problems.names import BUILDERS, whole_number

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
        str, typer.Argument(help=f"One of {', '.join(BUILDERS)}; or the id of a Gymnasium environment.")
    ],
    episodes: Annotated[
        str, typer.Option(help="Episodes of the whole run, those before --resume included; 1e6 is understood.")
    ] = "1e6",
    preset: Annotated[PresetName, typer.Option(help="See the README.")] = "practical",
    seed: Annotated[int, typer.Option(help="Seed of the episodes.")] = 0,
    horizon: Annotated[int | None, typer.Option(help="Steps of an episode of an environment.")] = None,
    reward_range: Annotated[
        tuple[float, float] | None,
        typer.Option(help="Lowest and highest reward of a step of an environment: --reward-range -1 0."),
    ] = None,
    value_bound: Annotated[float | None, typer.Option(help="The most that an episode of it can return.")] = None,
    evaluate: Annotated[int, typer.Option(help="Episodes of it to play with the policy learned.")] = 1_000,
    stop_when_gap: Annotated[
        float | None, typer.Option(help="End once a certificate proves that the policy is so close to the best.")
    ] = None,
    evaluation_share: Annotated[
        float, typer.Option(help="Share of the episodes that play the newest policy for that certificate.")
    ] = 0.0,
    checkpoint: Annotated[Path | None, typer.Option(help="Written at the beginning and after each phase.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the checkpoint, if it is there.")] = False,
    minutes: Annotated[float, typer.Option(help="The longest time between two checkpoints.")] = 5.0,
    log: Annotated[Path | None, typer.Option(help="A file of JSON lines, one per request and phase.")] = None,
) -> None:
    """Learn with S4Q; interrupted and resumed, it gives the very same result."""
    try:
        count = whole_number(episodes)
        require_count("--evaluate", evaluate, "the number of episodes to play at the end", at_least=0)
        goal = Goal(stop_when_gap=stop_when_gap, evaluation_share=evaluation_share)
        files = Files(checkpoint=checkpoint, resume=resume, minutes=minutes, log=log)
        if problem in BUILDERS:
            if not (horizon is None and reward_range is None and value_bound is None):
                raise ValueError(
                    f"--horizon, --reward-range and --value-bound are for environments; {problem} has its own"
                )
            played, scored = run_train(problem, count, preset=preset, seed=seed, goal=goal, files=files), None
        else:
            played, scored = train_environment(
                problem,
                count,
                horizon=horizon,
                reward_range=reward_range,
                value_bound=value_bound,
                preset=preset,
                seed=seed,
                evaluate=evaluate,
                goal=goal,
                files=files,
            )
        for line in (repr(played), scored, played.certificate):
            if line is not None:
                typer.echo(str(line))
    except KeyboardInterrupt:
        kept = "nothing was saved; pass --checkpoint" if checkpoint is None else "go on with the same line and --resume"
        typer.echo(f"interrupted: {kept}", err=True)
        raise typer.Exit(130) from None
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


@app.command()
def audit(
    name: Annotated[str, typer.Argument(metavar="PROBLEM", help=f"One of {', '.join(BUILDERS)}.")] = "low_rank",
    algorithm: Annotated[
        Algorithm, typer.Option(help="s4q, or s3q with a uniform controller (Theorem 2); it has no preset.")
    ] = "s4q",
    preset: Annotated[PresetName, typer.Option(help="See the README.")] = "tight",
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
    """Run S4Q or S3Q and check every statement of the paper on the run. Exit code 1 if one fails, or an assumption."""
    sizes = {"n_states": states, "n_actions": actions, "dim": dim, "horizon": horizon, "size": size}
    try:
        count = whole_number(episodes)
        require_count("--episodes", count, "the number of episodes to play")
        require_count("--seed", seed, "the seed of the episodes", at_least=0)
        require_count("--seeds", seeds, "the number of seeds")
        console = None if as_json else Console(width=None if sys.stdout.isatty() else 180)
        holds = print_audit(small_problem(name, sizes), preset, count, seed, seeds, delta, console, algorithm)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    raise typer.Exit(0 if holds else 1)
