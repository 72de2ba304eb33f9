"""`s4q explain`: what a run learned, what is proved about it, and what its learner finds wrong, in words."""

from dataclasses import asdict

import typer

import s4q
from s4q.cli.arguments import refusals
from s4q.cli.saved_runs import (
    JsonOption,
    ProblemOption,
    RunPath,
    certificate_numbers,
    print_json,
    run_numbers,
    saved_run,
)
from s4q.report.page import configuration, findings_of
from s4q.report.sentences import certificate_of, guarantee_of, headline, no_certificate, tiles, where_episodes_went


def explain(run: RunPath, problem: ProblemOption = None, as_json: JsonOption = False) -> None:
    """Say in words what a run learned, what is proved, and what looks wrong.

    Examples:

    s4q explain river
    """
    with refusals():
        found = saved_run(run, problem)
        source = found.source()
        findings, certificate = findings_of(source), certificate_of(source)
        said, numbers = headline(source), tiles(source)
    learner = source.learner
    if as_json:
        shown = None if certificate is None else certificate_numbers(certificate)
        print_json(
            {
                "headline": said,
                "in_progress": source.in_progress,
                "summary": {tile.name: " ".join(filter(None, (tile.value, tile.note))) for tile in numbers},
                "run": run_numbers(source.run),
                "guarantee": guarantee_of(source),
                "certificate": shown,
                "findings": [asdict(one) for one in findings],
                "configuration": configuration(source),
                "command": source.command,
            }
        )
        return
    typer.echo(said)
    typer.echo(f"episodes: {where_episodes_went(source.run)}")
    typer.echo(f"proved: {guarantee_of(source)}")
    typer.echo(f"certificate: {no_certificate(source) if certificate is None else certificate}")
    typer.echo(f"memory: {learner.memory!r}" if isinstance(learner, s4q.S4Q) else f"learner: {learner!r}")
    typer.echo("findings:" if findings else "findings: no sign of trouble")
    for one in findings:
        typer.echo(f"- {one}")
    if isinstance(learner, s4q.S4Q):
        typer.echo(learner.explain())
    if source.command is not None:
        typer.echo(f"repeat it with: {source.command}")
