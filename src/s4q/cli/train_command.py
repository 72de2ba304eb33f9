"""`s4q train`: learn a built-in problem or a Gymnasium environment, into a folder that holds all of the run.

An interrupted run goes on with --resume. Settings that would change the run are kept in the checkpoint and compared, so
that a file is never continued with other ones.
"""

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, cast, final

import numpy as np
import typer

import s4q
from s4q.cli.arguments import BUILDERS, QuietOption, complete_problem, named_problem, refusals, whole_number
from s4q.cli.evaluate_command import counted_evaluation
from s4q.cli.executor_options import RayAddress, Workers, executor_of
from s4q.cli.feature_names import FEATURES, named_features
from s4q.cli.gym_envs import EnvArguments, env_arguments, made_env
from s4q.cli.run_beginnings import BeginningAndInterruption
from s4q.cli.run_folder import RunFolder
from s4q.cli.saved_runs import JsonOption, certificate_numbers, print_json, run_numbers, saved_run
from s4q.cli.train_options import ENV_EPISODES, EPISODES, PRESET, Config, TrainOptions, config_text, read_config
from s4q.core.validation import drawn_seed, require_count
from s4q.learners.presets import MemoryName, PresetName
from s4q.report.page import write_report
from s4q.running.archive import previous_of, require_place, similar_names
from s4q.running.interruption import Terminated

_EVALUATE = 1_000  # episodes to play with the policy learned on an environment
_MINUTES = 5.0  # between two checkpoints


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class Files:
    """The files that a training run writes, and whether it goes on from those that exist."""

    checkpoint: Path | None = None
    log: Path | None = None
    folder: RunFolder | None = None
    resume: bool = False
    config: Path | None = None  # the file that --config names
    note: str | None = None  # a comment for the first line of the config.toml that is written

    @classmethod
    def of(
        cls, out: Path | None, checkpoint: Path | None, log: Path | None, resume: bool, config: Path | None = None
    ) -> "Files":
        """The files that the options ask for."""
        if out is None:
            return cls(checkpoint=checkpoint, log=log, resume=resume, config=config)
        if checkpoint is not None or log is not None:
            raise ValueError("--out keeps checkpoint and log in its folder; leave --checkpoint and --log out")
        folder = RunFolder(out)
        return cls(checkpoint=folder.checkpoint, log=folder.metrics, folder=folder, resume=resume, config=config)

    def require_usable(self) -> None:
        """Refuse what would end in an error, or in a file written over."""
        if self.resume and self.checkpoint is None:
            raise ValueError("--resume needs --out or --checkpoint, where the run to go on with is")
        if self.checkpoint is not None:
            require_place(self.checkpoint)
        if self.folder is not None and not self.resume:
            self.folder.require_free(self.config)
        if self.log is not None and not self.resume and self.log.is_file() and self.log.stat().st_size:
            raise ValueError(f"{self.log} is there already: pass --resume to go on, or choose another place")

    def autosave(self, settings: dict[str, Any], minutes: float) -> s4q.Autosave | None:
        """What `run` writes checkpoints with; the settings are kept in the file."""
        return None if self.checkpoint is None else s4q.Autosave(self.checkpoint, minutes, {"train": settings})

    def logs(self) -> s4q.JsonLines | None:
        """The log to write, if one is wanted."""
        return None if self.log is None else s4q.JsonLines(self.log)

    def kept(self) -> bool:
        """Is there a checkpoint to go on from?"""
        return self.checkpoint is not None and (self.checkpoint.exists() or previous_of(self.checkpoint).exists())

    def interrupted(self) -> s4q.Checkpoint | None:
        """The checkpoint to go on from; None for a new run."""
        path = self.checkpoint
        if path is None or (not self.resume and not path.exists()):
            return None
        if not self.resume:
            raise ValueError(f"{path} is there already: pass --resume to go on from it, or choose another place")
        if not self.kept():
            meant = similar_names(path)
            hint = f"did you mean {' or '.join(meant)}? " if meant else ""
            raise ValueError(f"there is no {path} to go on from: {hint}leave --resume out to begin a new run")
        return s4q.load(path)

    def options_of(self, found: s4q.Checkpoint, given: TrainOptions) -> TrainOptions:
        """The options of a run that goes on: those that were given, and for the others those of the checkpoint.

        Args:
            found: The checkpoint.
            given: The options that were given. Ones that the checkpoint was not made with are refused.
        """
        typed = found.extra.get("train")
        typed = typed if isinstance(typed, dict) else {}
        path, problem = self.checkpoint, given.problem
        if problem is not None and typed.get("problem") != problem:
            raise ValueError(f"{path} holds a run of {typed.get('problem')}, not of {problem}; choose another file")
        used = _settings_of(found)
        for name, got in (given.of_run() | given.of_env()).items():
            if got is not None and got not in (typed.get(name), used.get(name)):
                raise ValueError(
                    f"{path} holds a run with {name} {used.get(name, typed.get(name))}, not {got}; leave the option "
                    "out, or pass the same"
                )
        known = {one.name for one in fields(TrainOptions)}
        return given.over(TrainOptions(**{name: value for name, value in typed.items() if name in known}))


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
        str | None,
        typer.Argument(
            help=f"One of {', '.join(BUILDERS)}; or the id of a Gymnasium environment.",
            autocompletion=complete_problem,
            show_default=False,
        ),
    ] = None,
    episodes: Annotated[
        str | None,
        typer.Option(
            help=f"Episodes of the whole run, those before --resume included; 1e6 is understood. Without it {EPISODES} "
            f"of a built-in problem, {ENV_EPISODES} of an environment."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FOLDER",
            help="Keep the run here: config.toml, metrics.jsonl, checkpoint.s4q, best.policy.",
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Go on with the run in --out or --checkpoint. Options left out are those of it."),
    ] = False,
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Take the options of this config.toml. Options that are given win over it."),
    ] = None,
    features: Annotated[
        str | None,
        typer.Option(
            help=f"Features of an environment: {', '.join(FEATURES)}, with settings, such as fourier:order=3. Without "
            "it those that fit its observations."
        ),
    ] = None,
    preset: Annotated[
        PresetName | None, typer.Option(help="practical by default; docs/choosing.md says which to take.")
    ] = None,
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
    env_kwargs: EnvArguments = None,
    horizon: Annotated[int | None, typer.Option(help="Steps of an episode of an environment.")] = None,
    reward_range: Annotated[
        tuple[float, float] | None,
        typer.Option(help="Lowest and highest reward of a step of an environment: --reward-range -1 0."),
    ] = None,
    value_bound: Annotated[float | None, typer.Option(help="The most that an episode of it can return.")] = None,
    evaluate: Annotated[
        int | None,
        typer.Option(
            help="Episodes to play at the end with the policy learned. Without it 1000 of an environment, none of a "
            "built-in problem."
        ),
    ] = None,
    stop_when_gap: Annotated[
        float | None,
        typer.Option(
            "--stop-when-gap",
            "--stop-gap",
            help="End once a certificate proves that the policy is so close to the best.",
        ),
    ] = None,
    evaluation_share: Annotated[
        float | None,
        typer.Option(help="Share of the episodes that play the newest policy for that certificate; none by default."),
    ] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Without --out: a file to write at the beginning and after each phase.")
    ] = None,
    log: Annotated[
        Path | None, typer.Option(help="Without --out: a file of JSON lines, one per request and phase.")
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(help="The longest time between two checkpoints; 5 without it.")
    ] = None,
    workers: Workers = None,
    ray: RayAddress = None,
    report: Annotated[bool, typer.Option("--report", help="Write report.html into --out at the end.")] = False,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Learn with S4Q; interrupted and resumed, it gives the very same result.

    Examples:

    s4q train river_swim --episodes 300 --seed 7 --out river --report

    s4q train --out river --resume --episodes 500

    s4q train --config river/config.toml --out again

    s4q train FrozenLake-v1 --horizon 20 --episodes 100 --evaluate 100 --out lake

    s4q train FrozenLake-v1 --env-kwargs '{"map_name": "8x8"}' --horizon 20 --episodes 30 --out large
    """
    with refusals():
        given = TrainOptions(
            problem=problem,
            env_kwargs=env_arguments(env_kwargs),
            features=features,
            episodes=None if episodes is None else whole_number(episodes),
            seed=seed,
            preset=preset,
            memory=memory,
            memory_bytes=None if memory_bytes is None else whole_number(memory_bytes),
            episodes_per_phase=episodes_per_phase,
            horizon=horizon,
            reward_range=None if reward_range is None else list(reward_range),
            value_bound=value_bound,
            evaluate=evaluate,
            stop_when_gap=stop_when_gap,
            evaluation_share=evaluation_share,
            minutes=minutes,
            workers=workers,
            ray=ray,
        )
        files = Files.of(out, checkpoint, log, resume, config)
        if report and files.folder is None:
            raise ValueError("--report is written into the folder of the run: add --out FOLDER")
        known = _config(config, files)
        with _interruptions(files), nullcontext() if files.folder is None else files.folder.made():
            done = trained(given.over(known.options), files, known, quiet=quiet, talk=not as_json)
        if report and files.folder is not None:
            write_report(files.folder.report, saved_run(files.folder.path).source())
    if as_json:
        print_json(training_numbers(done, files.folder, report))
        return
    for line in (done.run, done.scored, done.run.certificate):
        if line is not None:
            typer.echo(str(line))
    if files.folder is not None:
        names = [Path(one).name for one in written_files(files.folder, report).values()]
        older = "; report.html is older" if not report and files.folder.report.is_file() else ""
        typer.echo(f"run: {files.folder.path} ({', '.join(names)}{older})")


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class Trained:
    """What a training run came to."""

    problem: str
    seed: int
    run: s4q.Run
    policy: s4q.Policy  # to deploy
    scored: s4q.Evaluation | None = None  # of that policy


def trained(
    options: TrainOptions, files: Files, known: Config | None = None, *, quiet: bool = False, talk: bool = False
) -> Trained:
    """Begin or finish a training run.

    Args:
        options: What the run is.
        files: What it writes.
        known: The file of options that was read, if one was. None (default): none.
        quiet: True shows no progress.
        talk: True prints a seed that was drawn, and, unless it is quiet, that nothing is kept where that is so.
    """
    files.require_usable()
    found = files.interrupted()
    options = options if found is None else files.options_of(found, options)
    problem = options.problem
    if problem is None:
        raise ValueError(
            "PROBLEM must be given: a built-in problem (s4q problems), the id of an environment, or --config"
        )
    built_in = problem in BUILDERS
    rehearsals = options.evaluate
    if rehearsals is None:
        rehearsals = 0 if built_in else _EVALUATE
    require_count("--evaluate", rehearsals, "the number of episodes to play at the end", at_least=0)
    with executor_of(options.workers, options.ray) as executor:
        if built_in and any(value is not None for value in options.of_env().values()):
            raise ValueError(f"--horizon, --reward-range and --value-bound are for environments; {problem} has its own")
        if built_in and options.env_kwargs is not None:
            raise ValueError(f"--env-kwargs is for environments; {problem} is built in, and is as it is")
        if built_in and options.features is not None:
            raise ValueError(f"--features is for environments; {problem} has its own")
        if built_in and executor is not None:
            raise ValueError(f"--workers and --ray are for environments; {problem} is drawn as counts")
        made: Any = named_problem(problem) if built_in else made_env(problem, options.env_kwargs)
        settings = options.of_run() | ({} if built_in else options.of_env())
        preset = options.preset or PRESET
        kept = dict(found.extra["train"]) if found else {"problem": problem} | settings | {"preset": preset}
        gap = options.stop_when_gap
        seed = _chosen_seed(options.seed, found, talk)
        count = options.episodes
        if count is None:
            new = EPISODES if built_in else ENV_EPISODES
            count = new if found is None else found.progress.budget
        chosen = replace(options, episodes=count, seed=seed, preset=preset, evaluate=rehearsals)
        chosen = replace(chosen, minutes=options.minutes or _MINUTES)
        config = config_text(chosen, _budgets(found, count, known), files.note)

        def begun() -> None:
            """Nothing was refused, and the first checkpoint is written."""
            if files.folder is not None:
                files.folder.write_config(config)
            elif files.checkpoint is None and talk and not quiet:
                # Not `typer.echo`, which would write into the lines of the live progress.
                sys.stderr.write("note: nothing of this run is kept; add --out FOLDER to keep it\n")

        def deployed(run: s4q.Run) -> s4q.Policy:
            if not built_in:
                return cast(s4q.Policy, learner.policy)
            return s4q.Policy(cast(s4q.LinearQ, run.best), made.features, made.spec, env=problem)

        def interrupted(run: s4q.Run) -> None:
            if files.folder is not None and run.phases:
                with suppress(ValueError, OSError):  # what ended the run is to be said, and the checkpoint is whole
                    deployed(run).save(files.folder.policy)

        logs = files.logs()
        choices: dict[str, Any] = {
            "stop_when_gap": gap,
            "checkpoint": files.autosave(
                kept | {"stop_when_gap": gap}, _MINUTES if options.minutes is None else options.minutes
            ),
            "callback": [BeginningAndInterruption(begun, interrupted), *([] if logs is None else [logs])],
            "progress_bar": not quiet,
        }
        remembered: dict[str, Any] = {"memory": options.memory, "memory_bytes": options.memory_bytes}
        if options.episodes_per_phase is not None:
            remembered["episodes_per_phase"] = options.episodes_per_phase
        learner: Any
        if built_in:
            learner = found or s4q.S4Q(made, cast(PresetName, preset), **remembered)
        elif found is None or files.checkpoint is None:
            learner = s4q.Agent(
                made,
                None if options.features is None else named_features(options.features, made),
                preset=cast(PresetName, preset),
                seed=seed,
                executor=executor,
                **{**options.of_env(), "reward_range": options.reward_range and tuple(options.reward_range)},
                **remembered,
            )
        else:
            learner = s4q.Agent.load(files.checkpoint, env=made, executor=executor)
        if built_in:
            collector = s4q.collectors.CountCollector(made, seed=seed)
            run = s4q.run(learner, collector, count, evaluation_share=options.evaluation_share, **choices)
        else:
            if found is None:
                learner.learn(count, evaluation_share=options.evaluation_share, **choices)
            else:
                learner.resume(count, **choices)
            run = learner.last_run
        policy = deployed(run)
        if files.folder is not None:  # before the policy is played: that can be interrupted too
            policy.save(files.folder.policy)
        scored = None
        if rehearsals and built_in:
            scored = counted_evaluation(made, run.best, rehearsals, seed)
        elif rehearsals:
            scored = learner.evaluate(rehearsals)
        return Trained(problem=problem, seed=seed, run=run, policy=policy, scored=scored)


def _config(config: Path | None, files: Files) -> Config:
    """The options of --config, or those of the folder of a run that is to go on."""
    if config is not None:
        found = read_config(config)
        for note in found.notes():
            typer.echo(f"note: {config}: {note}", err=True)
        return replace(found, budgets=())  # a new run has a history of its own
    if files.folder is not None and files.resume and files.folder.config.is_file():
        return read_config(files.folder.config)
    return Config()


def _budgets(found: s4q.Checkpoint | None, count: int, known: Config | None) -> list[int]:
    """The numbers of episodes that were asked for, in turn."""
    before = [] if found is None or known is None else list(known.budgets) or [found.progress.budget]
    return before if before[-1:] == [count] else [*before, count]


def written_files(folder: RunFolder, report: bool) -> dict[str, str]:
    """The files of a folder that a run has written.

    Args:
        folder: The folder.
        report: Whether the run wrote its report. Else one that is there is older, and is left out.
    """
    return {name: path for name, path in folder.files().items() if report or name != "report"}


def training_numbers(done: Trained, folder: RunFolder | None, report: bool) -> dict[str, Any]:
    """What a machine wants to know.

    Args:
        done: The run.
        folder: Where it is kept. None: nowhere.
        report: Whether a report was written.
    """
    certificate = done.run.certificate
    return {
        "problem": done.problem,
        "seed": done.seed,
        "run": run_numbers(done.run),
        "evaluation": None if done.scored is None else asdict(done.scored),
        "certificate": None if certificate is None else certificate_numbers(certificate),
        "files": {} if folder is None else written_files(folder, report),
    }


@contextmanager
def _interruptions(files: Files) -> Iterator[None]:
    """End with the exit code of the signal (130 after Ctrl-C), and say how to go on."""
    try:
        yield
    except (KeyboardInterrupt, Terminated) as error:
        if files.checkpoint is not None and not files.kept():
            kept = "nothing was saved yet; begin again with the same line"
        elif files.folder is not None:
            kept = f"go on with: s4q train --out {shlex.quote(str(files.folder.path))} --resume"
        elif files.checkpoint is not None:
            kept = "go on with the same line and --resume"
        else:
            kept = "nothing was saved; pass --out FOLDER"
        typer.echo(f"interrupted: {kept}", err=True)
        raise typer.Exit(error.code if isinstance(error, Terminated) else 130) from None


def _chosen_seed(seed: int | None, found: s4q.Checkpoint | None, say: bool) -> int:
    """The seed of the checkpoint, the one that was given, or a new one, which is printed."""
    if found is not None:
        found.require_seed(found.seed if seed is None else seed)
        return found.seed
    chosen = drawn_seed(seed)
    if seed is None and say:
        typer.echo(f"seed {chosen} (repeat this run with --seed {chosen})")
    return chosen
