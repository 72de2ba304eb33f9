"""`s4q report`: one HTML page about a run, finished or in progress, from its checkpoint."""

from pathlib import Path
from typing import Annotated

import typer

from s4q.cli.arguments import refusals
from s4q.cli.saved_runs import JsonOption, ProblemOption, RunPath, print_json, saved_run
from s4q.report.page import findings_of, write_report
from s4q.report.sentences import headline


def report(
    run: RunPath,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The page to write. Without it report.html beside the run.")
    ] = None,
    log: Annotated[
        Path | None, typer.Option(help="The log of the run, for the curve of a file that Agent.save wrote.")
    ] = None,
    problem: ProblemOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write one HTML page about a run, finished or in progress. It needs no network.

    Examples:

    s4q report river

    s4q report lake --out lake.html --json
    """
    with refusals():
        found = saved_run(run, problem)
        place = found.path.with_name("report.html") if out is None else out
        source = found.source(log)
        write_report(place, source)
    said = headline(source)
    if as_json:
        names = [finding.name for finding in findings_of(source)]
        print_json({"report": str(place), "bytes": place.stat().st_size, "headline": said, "findings": names})
    else:
        typer.echo(said)
        typer.echo(f"report: {place}")
