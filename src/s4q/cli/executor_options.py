"""The options --workers and --ray: who plays the episodes of a command."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import pairwise
from typing import Annotated

import typer

from s4q.running.executors import Executor, Processes, Ray

_LOCAL = "local"

Workers = Annotated[
    int | None,
    typer.Option(help="Processes that play the episodes of an environment. The result is the same for any number."),
]
RayAddress = Annotated[
    str | None,
    typer.Option(
        metavar="[ADDRESS]",
        help="Play them on the Ray cluster at this address; `local`, or no address, starts one on this machine. "
        "The word after --ray is taken for its address, so write --ray last, or --ray local. "
        r'Needs `pip install "s4q\[ray]"`.',  # escaped, or it would be taken for a colour
    ),
]


def executor_of(workers: int | None, ray: str | None) -> AbstractContextManager[Executor | None]:
    """The executor that the options ask for; it ends with the block. None without them."""
    if ray is not None:
        return ray_at(ray, workers)
    return nullcontext() if workers is None else Processes(workers)


def ray_at(address: str, workers: int | None) -> Ray:
    """The cluster that --ray asks for.

    Args:
        address: Its address, or "local".
        workers: Tasks side by side; None: the cores of the cluster.
    """
    return Ray(None if address == _LOCAL else address, workers=workers)


def with_ray_address(words: Sequence[str]) -> list[str]:
    """The words of a command line, where a --ray without an address means this machine.

    Typer has no options whose value may be left out. A --ray has none if it is the last word or stands before an
    option.

    >>> with_ray_address(["train", "CartPole-v1", "--ray", "--seed", "1"])
    ['train', 'CartPole-v1', '--ray', 'local', '--seed', '1']
    """
    found: list[str] = []
    for word, after in pairwise([*words, "-"]):
        found += [word, _LOCAL] if word == "--ray" and after.startswith("-") else [word]
    return found
