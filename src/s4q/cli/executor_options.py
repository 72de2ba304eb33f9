"""The options --workers and --ray: who plays the episodes of a command."""

from contextlib import AbstractContextManager, nullcontext
from typing import Annotated

import typer

from s4q.running.executors import Executor, Processes, Ray

Workers = Annotated[
    int | None,
    typer.Option(help="Processes that play the episodes of an environment. The result is the same for any number."),
]
RayAddress = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Play them on the Ray cluster at this address; `local` starts one on this machine. "
        r'Needs `pip install "s4q\[ray]"`.',  # escaped, or it would be taken for a colour
    ),
]


def executor_of(workers: int | None, ray: str | None) -> AbstractContextManager[Executor | None]:
    """The executor that the options ask for; it ends with the block. None without them."""
    if ray is not None:
        return Ray(None if ray == "local" else ray, workers=workers)
    return nullcontext() if workers is None else Processes(workers)
