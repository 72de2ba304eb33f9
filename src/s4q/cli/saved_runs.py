"""What `s4q report`, `s4q explain` and `s4q evaluate` share: a saved run by the name of its file or folder.

A checkpoint of `s4q train` says which problem it is of. One that Python wrote may not; then --problem says it.
"""

import json
import shlex
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, final

import typer

import s4q
from s4q.cli.arguments import BUILDERS, named_problem
from s4q.cli.gym_envs import made_env
from s4q.cli.run_folder import RunFolder
from s4q.features import registry
from s4q.problems import FiniteMDP
from s4q.report.run_source import LoggedCurve, RunSource, run_of
from s4q.report.value_plots import Ranges
from s4q.running.archive import previous_of
from s4q.running.curve import Point
from s4q.running.same_problem import differences

RunPath = Annotated[
    Path,
    typer.Argument(
        metavar="RUN",
        help="A folder that `s4q train --out` wrote, or a checkpoint.",
        show_default=False,
    ),
]
ProblemOption = Annotated[
    str | None, typer.Option("--problem", help="The problem of the run, where its file does not say it.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]


@final
@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class SavedRun:
    """A checkpoint and the problem it is of."""

    path: Path
    checkpoint: s4q.Checkpoint
    problem: str  # its name
    mdp: FiniteMDP | None  # the problem itself, where it is a finite one
    counted: bool  # was it learned on `mdp` itself? Else an environment was stepped
    env: Any = None  # the environment, where it can be made
    differences: tuple[str, ...] = ()  # in which ways what the name makes is another environment

    @property
    def settings(self) -> dict[str, Any]:
        """What `s4q train` was told."""
        return _kept(self.checkpoint, "train")

    @property
    def features(self) -> Any:
        """The feature map of an Agent; None for a built-in problem, or where it holds the user's own code."""
        return _features(self.path, self.checkpoint)

    def command(self) -> str | None:
        """The command that repeats the run, where `s4q train` made it."""
        settings = self.settings
        if "problem" not in settings:
            return None
        words = ["s4q", "train", str(settings.pop("problem"))]
        words += ["--episodes", str(self.checkpoint.progress.budget), "--seed", str(self.checkpoint.seed)]
        for name, value in settings.items():
            if value is None or value is False or (name == "evaluation_share" and value == 0):
                continue
            values = [] if value is True else value if isinstance(value, list) else [value]
            words += [f"--{name.replace('_', '-')}", *map(str, values)]
        return shlex.join(words)

    def source(self, log: Path | None = None) -> RunSource:
        """What a report is made from.

        Args:
            log: A log of JSON lines, whose curve is used where the checkpoint has none.
        """
        found, features = self.checkpoint, self.features
        progress, gap = found.progress, self.settings.get("stop_when_gap")
        space = None if self.env is None else self.env.observation_space
        return RunSource(
            problem=self.problem,
            run=run_of(found, self.mdp if self.counted else None, None if log is None else logged_curve(log)),
            learner=found.learner,
            budget=progress.budget or None,
            max_steps=progress.max_steps,
            stop_when_gap=gap if isinstance(gap, int | float) else None,
            over=progress.over,
            seed=found.seed,
            mdp=self.mdp,
            features=features,
            ranges=None if space is None else Ranges.of_space(space, features),
            settings=self.settings,
            command=self.command(),
        )


def saved_run(path: Path, problem: str | None = None, arguments: str | None = None) -> SavedRun:
    """Read a run.

    Args:
        path: A checkpoint, or a folder that holds one.
        problem: Name of a built-in problem, or id of an environment. None (default): what the file says.
        arguments: A JSON object of what the environment is made with. None (default): what `s4q train` was told.
    """
    place = _checkpoint_at(path)
    found = s4q.load(place)
    said = _kept(found, "train").get("problem") or _kept(found, "problem").get("env")
    said = None if said is None else str(said)
    if problem is not None and said is not None and problem != said:
        raise ValueError(f"{place} holds a run on {said}, not on {problem}; leave --problem out")
    name = problem or said
    if name is None:
        return SavedRun(path=place, checkpoint=found, problem="an unnamed problem", mdp=None, counted=False)
    kept_arguments = _kept(found, "train").get("env_kwargs")
    kept_arguments = kept_arguments if isinstance(kept_arguments, str) else None
    if arguments is not None and (name in BUILDERS or kept_arguments not in (None, arguments)):
        raise ValueError(f"{place} holds a run on {name} with --env-kwargs {kept_arguments}; leave --env-kwargs out")
    if name in BUILDERS:
        mdp = named_problem(name)
        _require_fit(place, found, name, mdp)
        return SavedRun(path=place, checkpoint=found, problem=name, mdp=mdp, counted=True)
    typed = problem is not None or arguments is not None
    # An id such as "module:Name" makes Gymnasium import a module, and a file must not run code.
    told = ":" not in name or problem is not None
    env = _env_or_none(name, arguments or kept_arguments, must=typed) if told else None
    others = [] if env is None else _differences(place, found, env)
    if others and typed:
        raise ValueError(f"{place} holds another problem than {name}: {'; '.join(others)}; evaluate it in Python")
    env = None if others else env
    return SavedRun(
        path=place,
        checkpoint=found,
        problem=name,
        mdp=_table(env, found),
        counted=False,
        env=env,
        differences=tuple(others),
    )


def logged_curve(log: Path) -> LoggedCurve:
    """The curve of the last run in a log of JSON lines; lines that are not whole are left out.

    Args:
        log: The file that `s4q train --log` wrote.
    """
    if not log.is_file():
        raise ValueError(f"--log: there is no file {log}; pass the file that `s4q train --log` wrote")
    known = {one.name for one in fields(Point)}
    points: list[Point] = []
    end: Point | None = None
    for line in s4q.JsonLines(log).lines():
        if line["event"] == "start":
            points, end = [], None
        elif line["event"] in ("phase", "end"):
            try:
                point = Point(**{name: value for name, value in line.items() if name in known})
            except TypeError as error:
                raise ValueError(f"--log: {log} is no log of a run ({error})") from None
            if line["event"] == "end":
                end = point
            else:
                points.append(point)
    if not points:
        raise ValueError(f"--log: {log} holds no finished phase; pass the file that `s4q train --log` wrote")
    return LoggedCurve(tuple(points), end)


def print_json(value: Any) -> None:
    """Print a value as JSON; infinities, which JSON does not know, become null."""
    typer.echo(json.dumps(_plain(value), indent=1, allow_nan=False))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    return value


def run_numbers(run: s4q.Run) -> dict[str, Any]:
    """The numbers of a run, for a machine.

    Args:
        run: The run.
    """
    return {name: getattr(run, name) for name in _NUMBERS}


def certificate_numbers(certificate: s4q.Certificate) -> dict[str, Any]:
    """The numbers of a certificate, for a machine.

    Args:
        certificate: The certificate.
    """
    return {name: getattr(certificate, name) for name in ("upper", "lower", "gap", "delta", "phase", "n_episodes")}


_NUMBERS = (
    "episodes", "main_episodes", "replay_episodes", "evaluation_episodes", "warm_up_episodes", "truncated_episodes",
    "steps", "phases", "regret", "gap", "mean_return", "optimistic_value", "best_return", "nbytes", "cpu_seconds",
)  # fmt: skip


def _checkpoint_at(path: Path) -> Path:
    folder = RunFolder(path)
    if folder.checkpoint.is_file() or previous_of(folder.checkpoint).is_file():
        return folder.checkpoint
    if path.is_file() or previous_of(path).is_file():
        return path  # a damaged file names the one before it
    if not path.is_dir():
        raise ValueError(f"there is no run at {path}; pass a folder that `s4q train --out` wrote, or a checkpoint")
    found = sorted(path.glob("*.s4q"))
    if len(found) != 1:
        what = (
            "no checkpoint" if not found else f"{len(found)} checkpoints ({', '.join(one.name for one in found[:3])})"
        )
        raise ValueError(f"the folder {path} holds {what}; pass one file that ends in .s4q")
    return found[0]


def _require_fit(place: Path, found: s4q.Checkpoint, name: str, mdp: FiniteMDP) -> None:
    spec = found.learner.spec
    for size in ("horizon", "n_actions", "n_blocks", "block_dim"):
        mine, theirs = getattr(mdp.spec, size), getattr(spec, size)
        if mine != theirs:
            raise ValueError(f"{place} is no run on {name}: {size} is {theirs} there, and {mine} in {name}")


def _kept(found: s4q.Checkpoint, name: str) -> dict[str, Any]:
    """What the writer kept under a name; empty where a file holds anything else than a dictionary there."""
    value = found.extra.get(name)
    return dict(value) if isinstance(value, dict) else {}


def _features(place: Path, found: s4q.Checkpoint) -> Any:
    config = _kept(found, "problem").get("features")
    if not isinstance(config, dict) or config.get("custom"):
        return None
    try:
        return registry.from_config(config)
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError, MemoryError) as error:
        raise ValueError(f"the features of {place} cannot be made again: {error}; the file is damaged") from None


def _differences(place: Path, found: s4q.Checkpoint, env: Any) -> list[str]:
    """In which ways an environment that was made by its name is not the one of the file."""
    features, kept = _features(place, found), _kept(found, "problem")
    return differences(kept, env, features, found.learner.spec.horizon) if kept and features is not None else []


def _env_or_none(name: str, arguments: str | None, must: bool) -> Any:
    """The environment; None where it cannot be made here and the file alone will do."""
    try:
        return made_env(name, arguments)
    except ValueError:
        if must:
            raise
        return None


def _table(env: Any, found: s4q.Checkpoint) -> FiniteMDP | None:
    """The exact problem behind an environment with a table and one-hot features, such as FrozenLake."""
    features = _kept(found, "problem").get("features")
    one_hot = isinstance(features, dict) and features.get("name") == "OneHot"
    if env is None or not one_hot or not hasattr(env.unwrapped, "P"):
        return None
    spec = found.learner.spec
    try:
        made = s4q.problems.from_gymnasium(env, spec.horizon, reward_range=(spec.reward_min, spec.reward_max))
    except ValueError:  # of other rewards, or of a table that a FiniteMDP cannot hold
        return None
    return made if made.spec.n_blocks == spec.n_blocks else None
