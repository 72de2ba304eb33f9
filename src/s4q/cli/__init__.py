"""The command `s4q`: one file per subcommand, put together here.

`pyproject.toml` names `app` as the entry point. Commands call the public library; nothing else imports this folder.
"""

from typing import Annotated

import typer

from s4q.cli.audit_command import audit
from s4q.cli.compare_command import compare
from s4q.cli.demo_command import demo
from s4q.cli.errors import Commands
from s4q.cli.evaluate_command import evaluate
from s4q.cli.explain_command import explain
from s4q.cli.problems_command import problems
from s4q.cli.report_command import report
from s4q.cli.train_command import train
from s4q.core.version import __version__

__all__ = ["app"]

app = typer.Typer(cls=Commands, invoke_without_command=True, pretty_exceptions_enable=False)
for _command in (demo, problems, train, evaluate, compare, audit, report, explain):
    app.command()(_command)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def main(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show a traceback with an error. It may stand anywhere in the line.")
    ] = False,
) -> None:
    """Exploration with linear features in bounded memory; the presets paper and tight have a regret guarantee."""
    del version, debug  # `Commands` looks for --debug before the line is read
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
