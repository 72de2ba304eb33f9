"""The built-in problems by name, for the command line and for comparisons."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from s4q import problems
from s4q.core.validation import did_you_mean
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
    "baird": problems.baird,
}


def named_problem(name: str, sizes: Mapping[str, Any] | None = None) -> FiniteMDP:
    """Build a problem by name; sizes that are None take their default.

    >>> named_problem("low_rank", {"dim": 3}).dim
    3
    """
    if name not in BUILDERS:
        raise ValueError(f"problem must be one of {', '.join(BUILDERS)}; got {name!r}{meant(name)}")
    sizes = sizes or {}
    given = {key: size for key, size in sizes.items() if size is not None}
    known = inspect.signature(BUILDERS[name]).parameters
    for key in given:
        if key not in known:
            has = [one for one in sizes if one in known] or list(known)
            raise ValueError(f"{name} has no {key}; it has {', '.join(has)}")
    return BUILDERS[name](**given)


def meant(name: str) -> str:
    """The end of a refusal: the built-in problem whose name is most like this one. Empty where there is none.

    >>> meant("river_swin"), meant("chain:size=5"), meant("CartPole-v1")
    (', did you mean river_swim?', ', did you mean chain?', '')
    """
    return did_you_mean(name.partition(":")[0], BUILDERS)
