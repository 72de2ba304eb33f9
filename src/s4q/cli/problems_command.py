"""`s4q problems`: the built-in problems, how large they are, and how hard."""

import inspect
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from s4q.cli.arguments import BUILDERS, named_problem, refusals
from s4q.cli.saved_runs import JsonOption, print_json


def problems(
    name: Annotated[
        str | None, typer.Argument(metavar="[PROBLEM]", help="Show this one alone, with its description.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the built-in problems: sizes, the best return, what random actions get, and how often they reach the goal.

    Examples:

    s4q problems

    s4q problems deep_sea --json
    """
    with refusals():
        rows = [facts_of(one) for one in ([name] if name is not None else BUILDERS)]
    if as_json:
        print_json(rows)
        return
    if name is not None:
        described = inspect.getdoc(BUILDERS[name]) or ""
        typer.echo(f"{name}: {described.split('>>>')[0].strip()}\n")
    console = Console(width=None if Console().is_terminal else 140)
    table = Table(
        title="Built-in problems, with their default sizes",
        caption="H: steps of an episode; S: states; A: actions; d: features; chance: that an episode of random actions "
        "meets the best-paid step",
    )
    for header in ("problem", "H", "S", "A", "d", "exact", "best return", "random actions", "chance", "what it is"):
        table.add_column(header, justify="left" if header in ("problem", "exact", "what it is") else "right")
    for row in rows:
        sizes = [str(row[key]) for key in ("horizon", "states", "actions", "features")]
        numbers = [f"{row['best_return']:.4g}", f"{row['random_return']:.3g}", f"{row['chance']:.1e}"]
        table.add_row(row["problem"], *sizes, "yes" if row["exact_features"] else "no", *numbers, row["description"])
    console.print(table)


def facts_of(name: str) -> dict[str, Any]:
    """Sizes and hardness of a built-in problem.

    Args:
        name: Its name.
    """
    mdp = named_problem(name)
    facts = mdp.facts()
    return {
        "problem": name,
        "horizon": mdp.horizon,
        "states": mdp.n_states,
        "actions": mdp.n_actions,
        "features": mdp.dim,
        "exact_features": mdp.spec.well_specified,
        "best_return": facts.v_star,
        "random_return": facts.v_uniform,
        "chance": facts.chance,
        "description": (inspect.getdoc(BUILDERS[name]) or "").splitlines()[0],
    }
