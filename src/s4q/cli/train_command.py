"""`s4q train`: learn a built-in problem or a Gymnasium environment, with a checkpoint and a log.

An interrupted run goes on with the same line and --resume. Settings that would change the run are kept in the
checkpoint and compared, so that a file is never continued with other ones.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, cast, final

import numpy as np
import typer

import s4q
from s4q.cli.arguments import BUILDERS, named_problem, refusals, whole_number
from s4q.cli.executor_options import RayAddress, Workers, executor_of
from s4q.cli.gym_envs import made_env
from s4q.core.validation import drawn_seed, require_count
from s4q.learners.presets import MemoryName, PresetName
from s4q.running.archive import previous_of, require_place, similar_names
from s4q.running.interruption import Terminated

_EPISODES = 10**6  # of a new run, unless others are asked for
_PRESET: PresetName = "practical"


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class Files:
    """The files that a training run writes, and whether it goes on from those that exist."""

    checkpoint: Path | None = None
    resume: bool = False
    minutes: float = 5.0
    log: Path | None = None

    def __post_init__(self) -> None:
        if self.resume and self.checkpoint is None:
            raise ValueError("--resume needs --checkpoint, the file to go on from")
        if self.checkpoint is not None:
            require_place(self.checkpoint)
        if self.log is not None and not self.resume and self.log.is_file() and self.log.stat().st_size:
            raise ValueError(f"{self.log} is there already: pass --resume to go on, or choose another file")

    def autosave(self, settings: dict[str, Any]) -> s4q.Autosave | None:
        """What `run` writes checkpoints with; the settings are kept in the file."""
        return None if self.checkpoint is None else s4q.Autosave(self.checkpoint, self.minutes, {"train": settings})

    def logs(self) -> s4q.JsonLines | None:
        """The log to write, if one is wanted."""
        return None if self.log is None else s4q.JsonLines(self.log)

    def interrupted(self, problem: str, settings: dict[str, Any]) -> s4q.Checkpoint | None:
        """The checkpoint to go on from; None for a new run. Refused where the file is of another run.

        Args:
            problem: The name of the problem.
            settings: The options that were given; None stands for one that was not, and takes that of the file.
        """
        path = self.checkpoint
        if path is None or (not self.resume and not path.exists()):
            return None
        if not self.resume:
            raise ValueError(f"{path} is there already: pass --resume to go on from it, or choose another file")
        if not path.exists() and not previous_of(path).exists():
            meant = similar_names(path)
            hint = f"did you mean {' or '.join(meant)}? " if meant else ""
            raise ValueError(f"there is no {path} to go on from: {hint}leave --resume out to begin a new run")
        found = s4q.load(path)
        typed = found.extra.get("train") or {}
        if typed.get("problem") != problem:
            raise ValueError(f"{path} holds a run of {typed.get('problem')}, not of {problem}; choose another file")
        used = _settings_of(found)
        for name, got in settings.items():
            if got is not None and got not in (typed.get(name), used.get(name)):
                raise ValueError(
                    f"{path} holds a run with {name} {used.get(name)}, not {got}; leave the option out, or pass the "
                    "same"
                )
        return found


def _settings_of(found: s4q.Checkpoint) -> dict[str, Any]:
    """The settings that a checkpoint was made with, those that the library chose included."""
    spec, constants = found.learner.spec, getattr(found.learner, "constants", None)
    return {
        "preset": getattr(constants, "preset", None),
        "memory": getattr(constants, "memory", None),
        "memory_bytes": getattr(constants, "memory_bytes", None),
        "episodes_per_phase": getattr(constants, "episodes_per_phase", None),
        "evaluation_share": found.progress.evaluation_share,
        "horizon": spec.horizon,
        "reward_range": [spec.reward_min, spec.reward_max],
        "value_bound": float(spec.to_user_units(0, np.array(spec.value_bound[0]))),
    }


def train(
    problem: Annotated[
        str, typer.Argument(help=f"One of {', '.join(BUILDERS)}; or the id of a Gymnasium environment.")
    ],
    episodes: Annotated[
        str | None,
        typer.Option(
            help="Episodes of the whole run, those before --resume included; 1e6 is understood, and is the default."
        ),
    ] = None,
    preset: Annotated[PresetName | None, typer.Option(help="See the README; practical by default.")] = None,
    seed: Annotated[
        int | None, typer.Option(help="Seed of the episodes. Without it one is drawn and printed.", show_default=False)
    ] = None,
    memory: Annotated[
        MemoryName | None, typer.Option(help="What is remembered of past episodes. Without it the preset's.")
    ] = None,
    memory_bytes: Annotated[
        str | None,
        typer.Option(help="Budget of the steps that --memory sketch holds; 64 MiB without it. 1e6 is understood."),
    ] = None,
    episodes_per_phase: Annotated[
        int | None,
        typer.Option(help="Episodes that each policy plays at least, so that workers can share them; 1 without it."),
    ] = None,
    horizon: Annotated[int | None, typer.Option(help="Steps of an episode of an environment.")] = None,
    reward_range: Annotated[
        tuple[float, float] | None,
        typer.Option(help="Lowest and highest reward of a step of an environment: --reward-range -1 0."),
    ] = None,
    value_bound: Annotated[float | None, typer.Option(help="The most that an episode of it can return.")] = None,
    evaluate: Annotated[int, typer.Option(help="Episodes of it to play with the policy learned.")] = 1_000,
    stop_when_gap: Annotated[
        float | None, typer.Option(help="End once a certificate proves that the policy is so close to the best.")
    ] = None,
    evaluation_share: Annotated[
        float | None,
        typer.Option(help="Share of the episodes that play the newest policy for that certificate; none by default."),
    ] = None,
    checkpoint: Annotated[Path | None, typer.Option(help="Written at the beginning and after each phase.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the checkpoint. Options left out are those of the file.")
    ] = False,
    minutes: Annotated[float, typer.Option(help="The longest time between two checkpoints.")] = 5.0,
    log: Annotated[Path | None, typer.Option(help="A file of JSON lines, one per request and phase.")] = None,
    workers: Workers = None,
    ray: RayAddress = None,
) -> None:
    """Learn with S4Q; interrupted and resumed, it gives the very same result."""
    of_env = {"horizon": horizon, "reward_range": reward_range and list(reward_range), "value_bound": value_bound}
    built_in, scored = problem in BUILDERS, None
    with refusals(), _interruptions(checkpoint), executor_of(workers, ray) as executor:
        count = None if episodes is None else whole_number(episodes)
        budget = None if memory_bytes is None else whole_number(memory_bytes)
        remembered: dict[str, Any] = {"memory": memory, "memory_bytes": budget}
        settings = {"preset": preset, "evaluation_share": evaluation_share, "episodes_per_phase": episodes_per_phase}
        settings |= remembered
        remembered |= {} if episodes_per_phase is None else {"episodes_per_phase": episodes_per_phase}
        require_count("--evaluate", evaluate, "the number of episodes to play at the end", at_least=0)
        files = Files(checkpoint=checkpoint, resume=resume, minutes=minutes, log=log)
        if built_in and any(value is not None for value in of_env.values()):
            raise ValueError(f"--horizon, --reward-range and --value-bound are for environments; {problem} has its own")
        if built_in and executor is not None:
            raise ValueError(f"--workers and --ray are for environments; {problem} is drawn as counts")
        made = named_problem(problem) if built_in else made_env(problem)
        settings |= {} if built_in else of_env
        found = files.interrupted(problem, settings)
        seed = _chosen_seed(seed, found)
        kept = {"problem": problem} | settings if found is None else dict(found.extra["train"])
        options: dict[str, Any] = {
            "stop_when_gap": stop_when_gap,
            "checkpoint": files.autosave(kept),
            "callback": files.logs(),
            "progress_bar": True,
        }
        if count is None:
            count = _EPISODES if found is None else found.progress.budget
        if built_in:
            learner = found or s4q.S4Q(made, preset or _PRESET, **remembered)
            collector = s4q.collectors.CountCollector(made, seed=seed)
            run = s4q.run(learner, collector, count, evaluation_share=evaluation_share, **options)
        else:
            if found is None or checkpoint is None:
                choices: dict[str, Any] = {**of_env, "reward_range": reward_range}
                agent = s4q.Agent(made, preset=preset or _PRESET, seed=seed, executor=executor, **choices, **remembered)
                agent.learn(count, evaluation_share=evaluation_share, **options)
            else:
                agent = s4q.Agent.load(checkpoint, env=made, executor=executor).resume(count, **options)
            run, scored = cast(s4q.Run, agent.last_run), agent.evaluate(evaluate) if evaluate else None
    for line in (run, scored, run.certificate):
        if line is not None:
            typer.echo(str(line))


@contextmanager
def _interruptions(checkpoint: Path | None) -> Iterator[None]:
    """End with the exit code of the signal (130 after Ctrl-C), and say how to go on."""
    try:
        yield
    except (KeyboardInterrupt, Terminated) as error:
        kept = "nothing was saved; pass --checkpoint" if checkpoint is None else "go on with the same line and --resume"
        typer.echo(f"interrupted: {kept}", err=True)
        raise typer.Exit(error.code if isinstance(error, Terminated) else 130) from None


def _chosen_seed(seed: int | None, found: s4q.Checkpoint | None) -> int:
    """The seed of the checkpoint, the one that was given, or a new one, which is printed."""
    if found is not None:
        found.require_seed(found.seed if seed is None else seed)
        return found.seed
    chosen = drawn_seed(seed)
    if seed is None:
        typer.echo(f"seed {chosen} (repeat this run with --seed {chosen})")
    return chosen
