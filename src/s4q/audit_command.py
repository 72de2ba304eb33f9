"""`s4q audit`: run S4Q on a known problem and check every statement of the paper on that run."""

import inspect
import json
from collections.abc import Callable
from dataclasses import asdict
from decimal import Decimal, InvalidOperation
from typing import Any

from rich.console import Console

import s4q
from s4q.presets import PresetName
from s4q.problems import FiniteMDP
from s4q.theory import Audit, SeedAudit, audit, over_seeds

# The sizes at which the bounds of the paper begin to say something within 10^17 episodes.
DEFAULTS: dict[str, dict[str, int]] = {
    name: {"dim": 3, "horizon": 2} for name in ("low_rank", "perturbed_low_rank", "harmless_error", "padded_features")
}
BUILDERS: dict[str, Callable[..., FiniteMDP]] = {
    "low_rank": s4q.problems.low_rank,
    "perturbed_low_rank": s4q.problems.perturbed_low_rank,
    "harmless_error": s4q.problems.harmless_error,
    "padded_features": s4q.problems.padded_features,
    "bellman_closed": s4q.problems.bellman_closed,
    "river_swim": s4q.problems.river_swim,
    "chain": s4q.problems.chain,
    "deep_sea": s4q.problems.deep_sea,
    "combination_lock": s4q.problems.combination_lock,
}


def whole_number(text: str) -> int:
    """An exact whole number, also written as 1e17.

    >>> whole_number("1e17") == 10**17, whole_number("2.5e3")
    (True, 2500)
    """
    try:
        value = Decimal(text.replace("_", ""))
    except InvalidOperation:
        raise ValueError(f"a whole number is needed, such as 1000000 or 1e6; got {text!r}") from None
    if not value.is_finite() or value != value.to_integral_value():
        raise ValueError(f"a whole number is needed, such as 1000000 or 1e6; got {text!r}")
    return int(value)


def problem(name: str, sizes: dict[str, int | None]) -> FiniteMDP:
    """Build a problem by name; sizes that are None take their default."""
    if name not in BUILDERS:
        raise ValueError(f"problem must be one of {', '.join(BUILDERS)}; got {name!r}")
    given = {key: size for key, size in sizes.items() if size is not None}
    known = inspect.signature(BUILDERS[name]).parameters
    for key in given:
        if key not in known:
            raise ValueError(f"{name} has no {key}; it has {', '.join(k for k in sizes if k in known) or 'no sizes'}")
    return BUILDERS[name](**{**DEFAULTS.get(name, {}), **given})


def audited(mdp: FiniteMDP, preset: PresetName, episodes: int, seed: int, delta: float) -> Audit:
    """One recorded run, by counts, and its audit; cache and pooling are off, as the paper has neither."""
    learner = s4q.S4Q(mdp, preset, delta=delta, cache_episodes=0, pool=False)
    collector = s4q.collectors.CountCollector(mdp, seed=seed)
    return audit(s4q.run(learner, collector, episodes, record=True), mdp)


def audit_command(
    mdp: FiniteMDP, preset: PresetName, episodes: int, seed: int, seeds: int, delta: float, console: Console | None
) -> bool:
    """Print the audit of one seed, or of many together; as JSON without a console. True when all holds."""
    audits = [audited(mdp, preset, episodes, seed + i, delta) for i in range(seeds)]
    result: Audit | SeedAudit = audits[0] if seeds == 1 else over_seeds(audits)
    if console is None:
        print(json.dumps(_plain(result), indent=1))
    else:
        console.print(result.table())
    return result.holds


def _plain(result: Audit | SeedAudit) -> dict[str, Any]:
    rows = [{**asdict(row), "holds": row.holds} for row in result.rows]
    return {"title": result.title, "holds": result.holds, "rows": rows}
