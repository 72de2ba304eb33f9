"""What the commands share: whole numbers such as 1e6, refusals, and the built-in problems by name.

Only the files of this folder call it. It knows nothing of learners.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal, InvalidOperation

import typer

from s4q.problems.named_problems import BUILDERS, named_problem

__all__ = ["BUILDERS", "named_problem", "refusals", "whole_number"]


# Arguments of the library that are options of a command under the same name.
OPTIONS = (
    "checkpoint",
    "delta",
    "episodes",
    "evaluation_share",
    "horizon",
    "memory",
    "memory_bytes",
    "minutes",
    "preset",
    "reward_range",
    "seed",
    "stop_when_gap",
    "value_bound",
)


@contextmanager
def refusals() -> Iterator[None]:
    """Show a ValueError, or an extra that is not installed, in one line, with exit code 2 and no traceback.

    The line speaks of options, not of Python.
    """
    try:
        yield
    except (ValueError, ImportError) as error:
        typer.echo(f"error: {' '.join(with_option_names(str(error)).split())}", err=True)
        typer.echo("hint: add --help to see what the command takes", err=True)
        raise typer.Exit(2) from None


def with_option_names(message: str) -> str:
    """A message of the library with the names of options in place of the names of arguments.

    Plain words such as "horizon" stay where they are words: they are replaced at the beginning, and before a `=`.

    >>> with_option_names("memory_bytes must be given: pass memory_bytes=5 or reward_range=(lowest, highest)")
    '--memory-bytes must be given: pass --memory-bytes 5 or --reward-range lowest highest'
    >>> with_option_names("horizon must be given, since the horizon is not known")
    '--horizon must be given, since the horizon is not known'
    """
    names = "|".join(sorted(OPTIONS, key=len, reverse=True))
    message = re.sub(rf"(?<![-\w.])({names})=\(([^()]*)\)", lambda m: f"{m[1]}={m[2].replace(',', '')}", message)
    message = re.sub(rf"(?<![-\w.])({names})=", lambda m: f"{_option(m[1])} ", message)
    message = re.sub(rf"^({names})(?= (?:must|is|needs|has)\b)", lambda m: _option(m[1]), message)
    spelled = "|".join(name for name in OPTIONS if "_" in name)
    return re.sub(rf"(?<![-\w.])({spelled})\b", lambda m: _option(m[1]), message)


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


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
