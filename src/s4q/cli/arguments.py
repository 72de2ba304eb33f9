"""What the commands share: whole numbers such as 1e6, options that many have, and the built-in problems by name.

Only the files of this folder call it. It knows nothing of learners.
"""

from decimal import Decimal, InvalidOperation
from typing import Annotated

import typer

from s4q.cli.errors import refusals
from s4q.problems.named_problems import BUILDERS, named_problem

__all__ = ["BUILDERS", "QuietOption", "complete_problem", "named_problem", "refusals", "whole_number"]

QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]


def complete_problem(incomplete: str) -> list[str]:
    """The built-in problems that begin so, for the completion of a shell.

    Args:
        incomplete: What was typed so far.
    """
    return [name for name in BUILDERS if name.startswith(incomplete)]


def whole_number(text: str) -> int:
    """The exact whole number that `text` says, also where it is written as 1e17.

    >>> whole_number("1e17") == 10**17, whole_number("2.5e3")
    (True, 2500)
    """
    try:
        value = Decimal(text.replace("_", ""))
    except InvalidOperation:
        value = Decimal("nan")
    if not value.is_finite() or value != value.to_integral_value():
        raise ValueError(f"a whole number is needed, such as 1000000 or 1e6; got {text!r}")
    return int(value)
