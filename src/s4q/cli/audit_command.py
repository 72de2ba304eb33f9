"""`s4q audit`: run S4Q, or S3Q, on a known problem and check every statement of the paper on that run."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Literal

from rich.console import Console

import s4q
from s4q.core.validation import require_failure_probability
from s4q.learners.presets import PresetName
from s4q.problems import FiniteMDP
from s4q.problems.names import named_problem
from s4q.theory import Audit, SeedAudit, audit, audited_s3q, over_seeds

Algorithm = Literal["s4q", "s3q"]

# The sizes at which the bounds of the paper begin to say something within 10^18 episodes.
SMALL: dict[str, dict[str, int]] = {
    name: {"dim": 3, "horizon": 2} for name in ("low_rank", "perturbed_low_rank", "harmless_error", "padded_features")
}


def small_problem(name: str, sizes: Mapping[str, int | None]) -> FiniteMDP:
    """A problem by name, small enough for the theory unless sizes are given."""
    given = {key: size for key, size in sizes.items() if size is not None}
    return named_problem(name, {**dict.fromkeys(sizes), **SMALL.get(name, {}), **given})


def audited(mdp: FiniteMDP, preset: PresetName, episodes: int, seed: int, delta: float) -> Audit:
    """One recorded run, by counts, and its audit; cache and pooling are off, as the paper has neither."""
    learner = s4q.S4Q(mdp, preset, delta=delta, cache_episodes=0, pool=False)
    collector = s4q.collectors.CountCollector(mdp, seed=seed)
    return audit(s4q.run(learner, collector, episodes, record=True), mdp)


def print_audit(
    mdp: FiniteMDP,
    preset: PresetName,
    episodes: int,
    seed: int,
    seeds: int,
    delta: float,
    console: Console | None,
    algorithm: Algorithm = "s4q",
) -> bool:
    """Print the audit of one seed, or of many together; as JSON without a console. True when all holds."""
    require_failure_probability("delta", delta)
    if algorithm == "s3q":
        audits = [audited_s3q(mdp, episodes, seed + i, delta) for i in range(seeds)]
    else:
        audits = [audited(mdp, preset, episodes, seed + i, delta) for i in range(seeds)]
    result: Audit | SeedAudit = audits[0] if seeds == 1 else over_seeds(audits)
    if console is None:
        print(json.dumps(_plain(result), indent=1))
    else:
        console.print(result.table())
        console.print(f"fails: {'; '.join(result.failing)}" if result.failing else "All that is claimed holds.")
    return result.holds


def _plain(result: Audit | SeedAudit) -> dict[str, Any]:
    rows = [{**asdict(row), "holds": row.holds} for row in result.rows]
    return {"title": result.title, "holds": result.holds, "rows": rows}
