"""What the commands share: built-in problems by name, whole numbers such as 1e6, and refusals.

Only the files of this folder call it. It knows nothing of learners.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal, InvalidOperation

import typer

from s4q import problems
from s4q.problems import FiniteMDP

BUILDERS: dict[str, Callable[..., FiniteMDP]] = {
    "low_rank": problems.low_rank,
    "perturbed_low_rank": problems.perturbed_low_rank,
    "harmless_error": problems.harmless_error,
    "padded_features": problems.padded_features,
    "bellman_closed": problems.bellman_closed,
    "river_swim": problems.river_swim,
    "chain": problems.chain,
    "deep_sea": problems.deep_sea,
    "aggregated_deep_sea": problems.aggregated_deep_sea,
    "combination_lock": problems.combination_lock,
    "stochastic_lock": problems.stochastic_lock,
    "dense_random": problems.dense_random,
    "slippery_grid": problems.slippery_grid,
    "four_rooms": problems.four_rooms,
}


@contextmanager
def refusals() -> Iterator[None]:
    """Show a ValueError as a bad argument, with exit code 2 and no traceback."""
    try:
        yield
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


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


def named_problem(name: str, sizes: Mapping[str, int | None] | None = None) -> FiniteMDP:
    """Build a problem by name; sizes that are None take their default.

    >>> named_problem("low_rank", {"dim": 3}).dim
    3
    """
    if name not in BUILDERS:
        raise ValueError(f"problem must be one of {', '.join(BUILDERS)}; got {name!r}")
    sizes = sizes or {}
    given = {key: size for key, size in sizes.items() if size is not None}
    known = inspect.signature(BUILDERS[name]).parameters
    for key in given:
        if key not in known:
            raise ValueError(f"{name} has no {key}; it has {', '.join(k for k in sizes if k in known) or 'no sizes'}")
    return BUILDERS[name](**given)
