"""`s4q evaluate`: play the policy of a saved run without learning, and say what it returns."""

from dataclasses import asdict
from typing import Annotated, Any, Literal

import typer

import s4q
from s4q.cli.arguments import refusals, whole_number
from s4q.cli.gym_envs import EnvArguments, env_arguments
from s4q.cli.saved_runs import JsonOption, ProblemOption, RunPath, SavedRun, print_json, saved_run
from s4q.core.messages import Evaluate, Policy
from s4q.core.validation import require_count
from s4q.problems import FiniteMDP

Which = Literal["best", "newest", "no_bonus"]
_EVALUATION = 0  # request id that no run uses


def evaluate(
    run: RunPath,
    episodes: Annotated[str, typer.Option(help="Episodes to play; 1e6 is understood.")] = "1000",
    policy: Annotated[
        Which, typer.Option(help="The best by its own returns, the newest, or the newest without its bonus.")
    ] = "best",
    seed: Annotated[
        int | None, typer.Option(help="Seed of these episodes. Without it that of the run.", show_default=False)
    ] = None,
    problem: ProblemOption = None,
    env_kwargs: EnvArguments = None,
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
        found = saved_run(run, problem, env_arguments(env_kwargs))
        scored, more = evaluation(found, policy, count, seed)
    if as_json:
        print_json({**asdict(scored), **more})
        return
    typer.echo(str(scored))
    if more["exact_value"] is not None:
        typer.echo(f"exact value {more['exact_value']:.6g}; the best possible is {more['best_value']:.6g}")


def counted_evaluation(mdp: FiniteMDP, policy: Policy, episodes: int, seed: int) -> s4q.Evaluation:
    """Play a policy on a finite problem, episodes drawn as counts. The spread of the returns is not known then.

    Args:
        mdp: The problem.
        policy: The policy.
        episodes: Number of episodes.
        seed: Seed of the episodes.
    """
    collector = s4q.collectors.CountCollector(mdp, seed=seed)
    return s4q.Evaluation.of(collector.collect(Evaluate(_EVALUATION, policy, episodes)), mdp.spec)


def evaluation(found: SavedRun, which: Which, episodes: int, seed: int | None) -> tuple[s4q.Evaluation, dict[str, Any]]:
    """Play the policy of a run. Returns its evaluation, and what else is known, by name.

    Args:
        found: The run.
        which: The policy to keep, the newest one, or the newest one without its bonus.
        episodes: Number of episodes.
        seed: Seed of the episodes. None: that of the run.
    """
    learner, seed = found.checkpoint.learner, found.checkpoint.seed if seed is None else seed
    newest = learner.policy if isinstance(learner, s4q.S4Q) else learner.q
    chosen = learner.best if which == "best" and isinstance(learner, s4q.S4Q) else newest
    if which == "no_bonus":
        chosen = chosen.without_bonus()
    if found.counted and found.mdp is not None:
        scored = counted_evaluation(found.mdp, chosen, episodes, seed)
    elif found.differences:
        raise ValueError(
            f"{found.path} is of {found.problem} made in another way than by its id: {'; '.join(found.differences)}; "
            "pass the arguments as --env-kwargs where they are all that differs, or evaluate it in Python, with "
            "s4q.Agent.load(path, env).evaluate(episodes)"
        )
    elif found.env is None:
        raise ValueError(
            f"{found.path} is of {found.problem}, which cannot be made from the file alone; pass it as --problem"
        )
    elif found.features is None:
        raise ValueError(f"the features of {found.path} are code of your own; evaluate it in Python, with Agent.load")
    else:
        collector = s4q.collectors.GymCollector(found.env, found.features, learner.spec, seed)
        scored = s4q.Evaluation.of(collector.collect(Evaluate(_EVALUATION, chosen, episodes)), learner.spec)
    exact = found.mdp.value(chosen) if found.mdp is not None else None
    best = found.mdp.v_star if found.mdp is not None else None
    return scored, {"policy": which, "seed": seed, "exact_value": exact, "best_value": best}
