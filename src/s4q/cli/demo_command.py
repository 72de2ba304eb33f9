"""`s4q demo`: learn CartPole from nothing, explore an exact problem for 10^8 episodes, and write a report of each.

The episodes of the exact problem are counted, not played, so regret and gap are exact.
"""

from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from s4q.cli.arguments import QuietOption, named_problem, refusals, whole_number
from s4q.cli.run_folder import RunFolder
from s4q.cli.saved_runs import JsonOption, print_json, saved_run
from s4q.cli.train_command import Files, Trained, trained, training_numbers
from s4q.cli.train_options import TrainOptions
from s4q.core.validation import require_count
from s4q.problems import FiniteMDP
from s4q.report.page import write_report
from s4q.report.run_source import RunSource
from s4q.report.sentences import bytes_a_step, count, first_and_last_returns
from s4q.running.accounting import Run
from s4q.running.curve import Point
from s4q.running.live_progress import byte_count

_ENV, _EXACT = "CartPole-v1", "river_swim"
_EVALUATE = 100  # fresh episodes of CartPole
_NOTE = "# Made by s4q demo. The next demo in this place writes over it."  # first line of its config.toml


def demo(
    episodes: Annotated[
        str, typer.Option(help="Episodes of the exact problem, river_swim; 1e6 is understood.")
    ] = "1e8",
    cartpole: Annotated[int, typer.Option(help="Episodes of CartPole-v1; 0 leaves it out.")] = 50,
    seed: Annotated[int, typer.Option(help="Seed of the episodes; the problems stay the same.")] = 0,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FOLDER", help="Where the runs and their reports are kept.")
    ] = Path("s4q-demo"),
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Learn CartPole from nothing, explore an exact problem for 10^8 episodes, and write a report of each.

    It takes about a minute. A demo that was there before is written over; a run of your own is not.

    Examples:

    s4q demo --cartpole 5 --episodes 1e4
    """
    with refusals():
        total = whole_number(episodes)
        require_count("--episodes", total, "the number of episodes of river_swim")
        require_count("--cartpole", cartpole, "the number of episodes of CartPole-v1", at_least=0)
        require_count("--seed", seed, "the seed of the episodes", at_least=0)
        plans = [TrainOptions(problem=_EXACT, preset="realisable", episodes=total, seed=seed)]
        if cartpole and find_spec("gymnasium") is None:
            typer.echo(f'{_ENV} is left out: it needs pip install "s4q[gym]"', err=True)
        elif cartpole:
            plans.insert(0, TrainOptions(problem=_ENV, episodes=cartpole, seed=seed, evaluate=_EVALUATE))
        for plan in plans:
            _require_ours(RunFolder(out / str(plan.problem)))
        done = [_learned(plan, RunFolder(out / str(plan.problem)), quiet, as_json) for plan in plans]
        sources = [saved_run(out / one.problem).source() for one in done]
        drawn = find_spec("jinja2") is not None and find_spec("matplotlib") is not None
        places = [RunFolder(out / one.problem).report for one in done] if drawn else []
        reports = [str(write_report(place, source)) for place, source in zip(places, sources, strict=False)]
    said = [line for one, source in zip(done, sources, strict=True) for line in sentences(one, source)]
    if as_json:
        runs = [training_numbers(one, RunFolder(out / one.problem), bool(reports)) for one in done]
        print_json({"runs": runs, "reports": reports, "sentences": said})
        return
    for one in reports or ['none; pip install "s4q[report]"']:
        typer.echo(f"report: {one}")
    for line in said:
        typer.echo(line)


def _require_ours(folder: RunFolder) -> None:
    """Refuse a folder with files that no demo made: they would be lost."""
    files = folder.files()
    if files and not _is_of_a_demo(folder):
        raise ValueError(
            f"--out: {next(iter(files.values()))} was not made by s4q demo, which would write over it; pass --out with "
            "another folder"
        )


def _is_of_a_demo(folder: RunFolder) -> bool:
    """A run that `s4q train --resume` has gone on with is the user's: the note is gone from its config.toml."""
    try:
        return folder.config.read_text(encoding="utf-8").startswith(f"{_NOTE}\n")
    except (OSError, UnicodeDecodeError):
        return False


def _learned(plan: TrainOptions, folder: RunFolder, quiet: bool, as_json: bool) -> Trained:
    """Play one part of the demo, and print what it reached."""
    if not as_json:
        typer.echo(f"{plan.problem}, {plan.episodes:,} episodes")
    if _is_of_a_demo(folder):
        folder.clear()
    with folder.made():
        files = replace(Files.of(folder.path, None, None, resume=False), note=_NOTE)
        done = trained(plan, files, quiet=quiet)
    if as_json:
        return done
    if done.scored is not None:
        typer.echo(f"{done.scored}\n")
    else:
        Console(width=None if Console().is_terminal else 100).print(
            regret_table(str(plan.problem), named_problem(str(plan.problem)), done.run)
        )
    return done


def sentences(done: Trained, source: RunSource) -> Iterator[str]:
    """What a part of the demo shows: one sentence of an environment, two of an exact problem.

    Args:
        done: The run.
        source: The same, as its report sees it.
    """
    run, played = done.run, f"After {count(done.run.episodes)} episodes"
    if done.scored is not None:
        most = float(done.policy.spec.to_user_units(0, np.array(done.policy.spec.value_bound[0])))
        began = first_and_last_returns(run)
        first = "" if began is None else f"; its first policies got {began[0]:.4g}"
        yield (
            f"{played} the policy for {done.problem} gets {done.scored.mean:.4g} in {done.scored.n_episodes} fresh "
            f"episodes, of at most {most:.4g}{first}."
        )
        return
    regret = run.regret or 0.0
    best = "is exactly as good as the best" if run.gap == 0 else f"is {run.gap:.2g} short of the best"
    yield (
        f"{played} of {done.problem} exploration has cost {regret:,.0f} in all, {regret / run.episodes:.2g} an episode"
        f", and the newest policy {best}."
    )
    everything = byte_count(bytes_a_step(source) * run.steps)
    yield f"The learner holds {byte_count(run.nbytes)}; one that keeps every step would hold {everything}."


def regret_table(name: str, mdp: FiniteMDP, run: Run) -> Table:
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
