"""How the command says no: one line, a hint, and an exit code. Tracebacks are shown with --debug only.

| code | meaning |
|---|---|
| 0 | done |
| 1 | `s4q audit`: a statement or an assumption fails; `s4q compare`: every run failed |
| 2 | the command was refused: an option, a file, a name or an environment is wrong |
| 3 | something failed that should not: s4q itself, or the machine |
| 128 + n | ended by signal n: 130 after Ctrl-C, 143 after SIGTERM |
"""

import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, final

import typer
from typer.core import TyperGroup

from s4q.cli.executor_options import with_ray_address
from s4q.cli.option_names import OPTIONS, with_option_names

REFUSED, FAILED = 2, 3
_HINT = "hint: add --help to see what the command takes"
# What Typer raises for options that do not fit. Older versions take it from click, newer ones have their own copy.
_UsageError: Any = typer.BadParameter.__mro__[2]


@final
class Refusal(Exception):
    """The user's input cannot be used; the message says why, in one line."""


@contextmanager
def refusals(options: Sequence[str] = OPTIONS) -> Iterator[None]:
    """Refuse where the library raises a ValueError, or where an extra is not installed.

    The line speaks of options, not of Python.

    Args:
        options: Arguments of the library that are options of the command under the same name.
    """
    try:
        yield
    except (ValueError, ImportError) as error:
        raise Refusal(" ".join(with_option_names(str(error), options).split())) from error


@final
class Commands(TyperGroup):
    """The commands as a group that ends every error with one line, a hint and an exit code."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run a command, and exit.

        Args:
            args: The words of the command line. None (default): those that Python was started with.
            prog_name: The name of the program. None (default): as it was called.
            complete_var: The environment variable that asks for completion. None (default): made from the name.
            standalone_mode: Ignored: the process always exits.
            windows_expand_args: Ignored: words are taken as they are.
            extra: Passed on to Typer.
        """
        del standalone_mode, windows_expand_args
        words = list(sys.argv[1:] if args is None else args)
        debug = "--debug" in words
        try:
            code = super().main(
                with_ray_address([word for word in words if word != "--debug"]),
                prog_name,
                complete_var,
                standalone_mode=False,
                **extra,
            )
        except Refusal as error:
            _say(str(error), _HINT, debug)
            code = REFUSED
        except _UsageError as error:
            _say(" ".join(error.format_message().split()), _HINT, debug)
            code = REFUSED
        except Exception as error:
            what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            _say(" ".join(what.split()), "hint: add --debug to see where it happened", debug)
            code = FAILED
        sys.exit(code if isinstance(code, int) else 0)


def _say(error: str, hint: str, debug: bool) -> None:
    if debug:
        traceback.print_exc()
    typer.echo(f"error: {error}", err=True)
    typer.echo(hint, err=True)
