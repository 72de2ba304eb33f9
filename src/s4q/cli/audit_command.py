"""`s4q audit`: run S4Q, or S3Q, on a known problem and check every statement of the paper on that run.

The exit code is 1 when a statement or an assumption fails. The benchmarks of the audit call `audited` and
`small_problem` too.
"""

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any, Literal

import typer
from rich.console import Console

import s4q
from s4q.cli.arguments import BUILDERS, named_problem, refusals, whole_number
from s4q.core.validation import require_count, require_failure_probability
from s4q.learners.presets import PresetName
from s4q.problems import FiniteMDP
from s4q.theory import Audit, SeedAudit, audited_s3q, over_seeds
from s4q.theory import audit as audit_of

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
    """One recorded run, by counts, and its audit; policies are replayed and steps are not pooled, as in the paper."""
    learner = s4q.S4Q(mdp, preset, delta=delta, memory="policies", pool=False)
    collector = s4q.collectors.CountCollector(mdp, seed=seed)
    return audit_of(s4q.run(learner, collector, episodes, record=True), mdp)


def audit(
    name: Annotated[str, typer.Argument(metavar="PROBLEM", help=f"One of {', '.join(BUILDERS)}.")] = "low_rank",
    algorithm: Annotated[
        Algorithm, typer.Option(help="s4q, or s3q with a uniform controller (Theorem 2); it has no preset.")
    ] = "s4q",
    preset: Annotated[PresetName, typer.Option(help="See the README.")] = "tight",
    episodes: Annotated[str, typer.Option(help="Episodes to play; 1e17 is understood.")] = "1e14",
    seed: Annotated[int, typer.Option(help="Seed of the episodes (the first, with --seeds).")] = 0,
    seeds: Annotated[int, typer.Option(help="Audit so many seeds and count failures.")] = 1,
    delta: Annotated[float, typer.Option(help="Failure probability.")] = 0.05,
    states: Annotated[int | None, typer.Option(help="Number of states, where the problem has one.")] = None,
    actions: Annotated[int | None, typer.Option(help="Number of actions.")] = None,
    dim: Annotated[int | None, typer.Option(help="Length of the features (low_rank: 3 unless given).")] = None,
    horizon: Annotated[int | None, typer.Option(help="Steps of an episode (low_rank: 2 unless given).")] = None,
    size: Annotated[int | None, typer.Option(help="Depth and width of deep_sea.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Run S4Q or S3Q and check every statement of the paper on the run. Exit code 1 if one fails, or an assumption.

    Examples:

    s4q audit low_rank --episodes 1e4

    s4q audit low_rank --algorithm s3q --episodes 1e4 --json
    """
    sizes = {"n_states": states, "n_actions": actions, "dim": dim, "horizon": horizon, "size": size}
    with refusals():
        count = whole_number(episodes)
        require_count("--episodes", count, "the number of episodes to play")
        require_count("--seed", seed, "the seed of the episodes", at_least=0)
        require_count("--seeds", seeds, "the number of seeds")
        require_failure_probability("delta", delta)
        mdp = small_problem(name, sizes)
        if algorithm == "s3q":
            audits = [audited_s3q(mdp, count, seed + i, delta) for i in range(seeds)]
        else:
            audits = [audited(mdp, preset, count, seed + i, delta) for i in range(seeds)]
        result: Audit | SeedAudit = audits[0] if seeds == 1 else over_seeds(audits)
    if as_json:
        typer.echo(json.dumps(_plain(result), indent=1))
    else:
        console = Console(width=None if sys.stdout.isatty() else 180)
        console.print(result.table())
        console.print(f"fails: {'; '.join(result.failing)}" if result.failing else "All that is claimed holds.")
    raise typer.Exit(0 if result.holds else 1)


def _plain(result: Audit | SeedAudit) -> dict[str, Any]:
    rows = [{**asdict(row), "holds": row.holds} for row in result.rows]
    return {"title": result.title, "holds": result.holds, "rows": rows}
