"""`s4q evaluate`: play the policy of a saved run without learning, and say what it returns."""

from dataclasses import asdict
from math import inf
from typing import Annotated, Any, Literal

import typer

import s4q
from s4q.cli.arguments import refusals, whole_number
from s4q.cli.saved_runs import JsonOption, ProblemOption, RunPath, SavedRun, print_json, saved_run
from s4q.core.messages import Evaluate
from s4q.core.validation import require_count

Which = Literal["best", "newest"]
_EVALUATION = 0  # request id that no run uses


def evaluate(
    run: RunPath,
    episodes: Annotated[str, typer.Option(help="Episodes to play; 1e6 is understood.")] = "1000",
    policy: Annotated[
        Which, typer.Option(help="The best by its own returns, which one would deploy, or the newest.")
    ] = "best",
    seed: Annotated[
        int | None, typer.Option(help="Seed of these episodes. Without it that of the run.", show_default=False)
    ] = None,
    problem: ProblemOption = None,
    as_json: JsonOption = False,
) -> None:
    """Play the policy of a run without learning: its mean return, and its exact value where that is known.

    Examples:

    s4q evaluate river --episodes 1e6

    s4q evaluate lake --policy newest --json
    """
    with refusals():
        count = whole_number(episodes)
        require_count("--episodes", count, "the number of episodes to play")
        if seed is not None:
            require_count("--seed", seed, "the seed of the episodes", at_least=0)
        found = saved_run(run, problem)
        scored = evaluation(found, policy, count, seed)
    exact = scored["exact_value"]
    if as_json:
        print_json(scored)
        return
    spread = "" if scored["low"] == -inf else f", 95 % interval [{scored['low']:.6g}, {scored['high']:.6g}]"
    played = f"{scored['n_episodes']:,} episodes, {scored['n_steps']:,} steps"
    typer.echo(f"mean return {scored['mean']:.6g}{spread}, {played}")
    if exact is not None:
        typer.echo(f"exact value {exact:.6g}; the best possible is {scored['best_value']:.6g}")


def evaluation(found: SavedRun, which: Which, episodes: int, seed: int | None) -> dict[str, Any]:
    """Play the policy of a run.

    Args:
        found: The run.
        which: The policy to keep, or the newest one.
        episodes: Number of episodes.
        seed: Seed of the episodes. None: that of the run.
    """
    learner, seed = found.checkpoint.learner, found.checkpoint.seed if seed is None else seed
    newest = learner.policy if isinstance(learner, s4q.S4Q) else learner.q
    chosen = learner.best if which == "best" and isinstance(learner, s4q.S4Q) else newest
    if found.counted and found.mdp is not None:
        collector: Any = s4q.collectors.CountCollector(found.mdp, seed=seed)
    elif found.differences:
        raise ValueError(
            f"{found.path} is of {found.problem} made in another way than by its id: {'; '.join(found.differences)}; "
            "evaluate it in Python, with s4q.Agent.load(path, env).evaluate(episodes)"
        )
    elif found.env is None:
        raise ValueError(
            f"{found.path} is of {found.problem}, which cannot be made from the file alone; pass it as --problem"
        )
    elif found.features is None:
        raise ValueError(f"the features of {found.path} are code of your own; evaluate it in Python, with Agent.load")
    else:
        collector = s4q.collectors.GymCollector(found.env, found.features, learner.spec, seed)
    seen, spec = collector.collect(Evaluate(_EVALUATION, chosen, episodes)), learner.spec
    if seen.return_sum_sq is None:  # the spread is not known where episodes were counted
        mean = seen.return_sum / seen.n_episodes + spec.horizon * spec.reward_min
        scored = s4q.Evaluation(mean, -inf, inf, seen.n_episodes, seen.n_steps)
    else:
        scored = s4q.Evaluation.of(seen, spec)
    exact = found.mdp.value(chosen) if found.mdp is not None else None
    best = found.mdp.v_star if found.mdp is not None else None
    return {**asdict(scored), "policy": which, "seed": seed, "exact_value": exact, "best_value": best}
