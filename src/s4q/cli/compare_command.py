"""`s4q compare`: learners x problems x seeds in parallel, resumable, then tables with intervals and plots."""

import json
import os
import shlex
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from s4q.baselines.named_learners import LEARNERS
from s4q.cli.arguments import BUILDERS, QuietOption, refusals, whole_number
from s4q.cli.executor_options import RayAddress, ray_at
from s4q.cli.gym_envs import find_modules_here
from s4q.comparing.comparison import compare_plan
from s4q.comparing.plan import Plan, plan_of, read_plan, written
from s4q.comparing.report_page import write_comparison
from s4q.comparing.results import Comparison
from s4q.report.html_files import is_page

_OPTIONS = ("episodes", "processes", "seeds")  # options of this command that the library knows by the same name


def compare(
    file: Annotated[
        Path | None,
        typer.Argument(help="TOML file with problems, learners, seeds and episodes. Flags replace its values."),
    ] = None,
    problem: Annotated[
        list[str] | None,
        typer.Option(
            "--problem",
            "-p",
            help=f"One of {', '.join(BUILDERS)}, or the id of a Gymnasium environment; with settings: "
            "deep_sea:size=20. Repeat the option for more.",
        ),
    ] = None,
    learner: Annotated[
        list[str] | None,
        typer.Option(
            "--learner",
            "-l",
            help=f"One of {', '.join(LEARNERS)}; with settings: lsvi_ucb:beta=0.3. Repeat the option for more.",
        ),
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="Number of seeds; 5 without it.", show_default=False)] = None,
    episodes: Annotated[
        str | None, typer.Option(help="Episodes of a run; 5000 without it. 1e6 is understood.", show_default=False)
    ] = None,
    first_seed: Annotated[
        int | None, typer.Option(help="The first seed; 0 without it. The others follow it.", show_default=False)
    ] = None,
    processes: Annotated[
        int | None,
        typer.Option(
            "--processes",
            "--workers",
            help="Runs at a time, each in a process of its own; 2 without it, and with --ray the cores of the cluster.",
            show_default=False,
        ),
    ] = None,
    ray: RayAddress = None,
    results: Annotated[
        Path | None,
        typer.Option(help="SQLite file of finished runs. A killed comparison goes on from it with the same line."),
    ] = None,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Play failed runs of --results again; else they are kept.")
    ] = False,
    plots: Annotated[Path | None, typer.Option(help="Folder for plots, a PNG file for each problem.")] = None,
    report: Annotated[
        Path | None,
        typer.Option(help="The HTML page to write. Without it one beside --results, with its name and .html."),
    ] = None,
    quiet: QuietOption = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the rows as JSON instead of tables.")] = False,
) -> None:
    """Compare learners on problems: regret or return with intervals, bytes and CPU time.

    Examples:

    s4q compare -p chain -p deep_sea:size=6 -l s4q -l psrl --seeds 2 --episodes 200 --results chain.sqlite
    """
    given: dict[str, Any] = {"problems": problem, "learners": learner, "seeds": seeds, "first_seed": first_seed}
    try:
        with refusals(_OPTIONS):
            given["episodes"] = None if episodes is None else whole_number(episodes)
            given = {key: value for key, value in given.items() if value not in (None, [])}
            if file is not None:
                plan = read_plan(file, given)
            else:
                for key in ("problems", "learners"):
                    if key not in given:
                        raise ValueError(f"pass a TOML file, or --{key[:-1]} at least once")
                plan = plan_of(**{"seeds": 5, "episodes": 5000, **given})
            if any(":" in one.what for one in plan.problems):
                find_modules_here()
            place = _report_place(report, results)
            _require_own_file(place, report, results, file)
            _require_folders(place, plots, asked=report is not None)
            _require_extras(report, plots)
            with _warnings_as_notes(), nullcontext() if ray is None else ray_at(ray, processes) as cluster:
                found = compare_plan(
                    plan,
                    processes=2 if processes is None else processes,
                    ray=cluster,
                    results=results,
                    retry_failed=retry_failed,
                    progress_bar=not quiet,
                )
    except KeyboardInterrupt:
        kept = "nothing was kept; pass --results" if results is None else f"go on with the same line; kept in {results}"
        typer.echo(f"interrupted: {kept}", err=True)
        raise typer.Exit(130) from None
    _say_what_failed(found, results)
    if as_json:
        typer.echo(json.dumps([dict(row) for row in found.rows]))
    else:
        console = Console(width=None if sys.stdout.isatty() else 180)
        tables = found.tables()
        unbounded = console.options.update(max_width=10_000)
        if any(console.measure(table, options=unbounded).maximum > console.width for table in tables):
            tables = found.tables(narrow=True)
        for table in tables:
            console.print(table)
    if place is not None:
        with refusals(_OPTIONS):
            typer.echo(f"report: {write_comparison(place, found, shlex.join(_words(plan)))}", err=as_json)
    if plots is not None:
        with refusals(_OPTIONS):
            typer.echo("\n".join(found.plot(plots)), err=as_json)
    if all(row["error"] for row in found):
        raise typer.Exit(1)


def _say_what_failed(found: Comparison, results: Path | None) -> None:
    failed = sum(bool(row["error"]) for row in found)
    if failed:
        again = "" if results is None else f"; --retry-failed plays those in {results} again"
        typer.echo(f"note: {failed} of {len(found)} runs failed{again}", err=True)


@contextmanager
def _warnings_as_notes() -> Iterator[None]:
    """Show a warning as a line of its own, without the place in the code."""

    def shown(message: Warning | str, *_: object, **__: object) -> None:
        typer.echo(f"note: {message}", err=True)

    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = shown
        yield


def _report_place(report: Path | None, results: Path | None) -> Path | None:
    """Where the page goes. Beside the results only where what it needs is installed."""
    if results is not None and (not results.name or results.is_dir()):
        raise ValueError(f"--results {results} is a folder; name a file in it")
    if report is not None or results is None:
        return report
    if not _can_report():
        typer.echo('no report: it needs pip install "s4q[report]"', err=True)
        return None
    return results.with_suffix(".html")


def _require_own_file(place: Path | None, report: Path | None, results: Path | None, plan: Path | None) -> None:
    """Refuse a page that would replace the file of results, the plan, or unasked a file that s4q did not write."""
    if place is not None and report is None and place.is_file() and not is_page(place):
        raise ValueError(
            f"--results {results}: the page beside it would replace {place}, which s4q did not write; name another "
            "file with --report, or move that one"
        )
    for name, other in (("--results", results), ("the plan", plan)):
        if place is None or other is None or place.resolve() != other.resolve():
            continue
        if report is None:
            raise ValueError(f"--results {other}: the page beside it has the same name; end the file in .sqlite")
        raise ValueError(f"--report {place} is the file of {name}, which the page would replace; choose another name")


def _require_folders(page: Path | None, plots: Path | None, asked: bool) -> None:
    """Refuse places that are plainly wrong before the first run is played."""
    if page is not None and not page.absolute().parent.is_dir():
        option = f"--report {page}" if asked else "--results"
        raise ValueError(f"{option}: the folder {page.parent} does not exist; make it first")
    if page is not None and page.is_dir():
        raise ValueError(f"the page cannot be {page}, which is a folder; name a file with --report")
    if plots is not None and plots.exists() and not plots.is_dir():
        raise ValueError(f"--plots {plots} is a file; name a folder")
    for option, folder in (("--report", page and page.absolute().parent), ("--plots", plots and _existing(plots))):
        if folder is not None and not os.access(folder, os.W_OK):
            raise ValueError(f"{option}: nothing can be written to {folder}; name another folder")


def _existing(folder: Path) -> Path:
    """The folder, or the nearest one above it that exists."""
    return next(one for one in (folder.absolute(), *folder.absolute().parents) if one.exists())


def _require_extras(report: Path | None, plots: Path | None) -> None:
    """Refuse what cannot be drawn before the first run is played."""
    if report is not None and not _can_report():
        raise ValueError(f'--report {report} needs pip install "s4q[report]"')
    if plots is not None and find_spec("matplotlib") is None:
        raise ValueError(f'--plots {plots} needs pip install "s4q[plot]"')


def _can_report() -> bool:
    return find_spec("jinja2") is not None and find_spec("matplotlib") is not None


def _words(plan: Plan) -> list[str]:
    """The command that repeats a comparison."""
    words = ["s4q", "compare"]
    for flag, ones in (("--problem", plan.problems), ("--learner", plan.learners)):
        for one in ones:
            words += [flag, written(one)]
    words += ["--first-seed", str(plan.first_seed)] if plan.first_seed else []
    return [*words, "--seeds", str(plan.seeds), "--episodes", str(plan.episodes)]
