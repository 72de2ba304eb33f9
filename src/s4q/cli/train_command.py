"""The work behind `s4q train`: learn with a checkpoint and a log, and go on if interrupted."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast, final

import s4q
from s4q.learners.presets import PresetName
from s4q.problems.names import BUILDERS, named_problem
from s4q.running.archive import previous_of, require_place


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class Files:
    """What a training run writes, and whether it goes on from what is there."""

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
        """For `run`; the settings are kept in the file."""
        return None if self.checkpoint is None else s4q.Autosave(self.checkpoint, self.minutes, {"train": settings})

    def logs(self) -> s4q.JsonLines | None:
        """For `run`."""
        return None if self.log is None else s4q.JsonLines(self.log)

    def interrupted(self, settings: dict[str, Any]) -> s4q.Checkpoint | None:
        """The checkpoint to go on from, if there is one; refused if it is of another run, or not asked for."""
        path = self.checkpoint
        if path is None or not (path.exists() or (self.resume and previous_of(path).exists())):
            return None
        if not self.resume:
            raise ValueError(f"{path} is there already: pass --resume to go on from it, or choose another file")
        found = s4q.load(path)
        theirs = found.extra.get("train") or {}
        for name in sorted({*theirs, *settings}):
            had, got = theirs.get(name), settings.get(name)
            if had != got:
                raise ValueError(f"{path} holds a run with {name} {had}, not {got}; pass the same settings")
        return found


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class Goal:
    """Which certificate is wanted of a training run, and what is spent on it; as in `s4q.run`."""

    stop_when_gap: float | None = None
    evaluation_share: float = 0.0


def train(
    problem: str,
    episodes: int,
    *,
    preset: PresetName = "practical",
    seed: int = 0,
    goal: Goal | None = None,
    files: Files,
) -> s4q.Run:
    """Learn a built-in problem with S4Q, counting episodes, for `episodes` in all.

    >>> train("chain", 1000, files=Files()).episodes
    1000
    """
    mdp = named_problem(problem)
    goal = goal or Goal()
    settings = {"problem": problem, "preset": preset, "evaluation_share": goal.evaluation_share}
    learner = s4q.S4Q(mdp, preset=preset)
    return s4q.run(
        files.interrupted(settings) or learner,
        s4q.collectors.CountCollector(mdp, seed=seed),
        episodes,
        stop_when_gap=goal.stop_when_gap,
        evaluation_share=goal.evaluation_share,
        checkpoint=files.autosave(settings),
        callback=files.logs(),
        progress_bar=True,
    )


def train_environment(
    env_id: str,
    episodes: int,
    *,
    horizon: int | None = None,
    reward_range: tuple[float, float] | None = None,
    value_bound: float | None = None,
    preset: PresetName = "practical",
    seed: int = 0,
    evaluate: int = 1_000,
    goal: Goal | None = None,
    files: Files,
) -> tuple[s4q.Run, s4q.Evaluation | None]:
    """Learn a Gymnasium environment with an Agent, for `episodes` in all; and play its policy `evaluate` times."""
    env, goal = _made(env_id), goal or Goal()
    declared = None if reward_range is None else list(reward_range)
    settings = {
        "problem": env_id,
        "horizon": horizon,
        "reward_range": declared,
        "value_bound": value_bound,
        "preset": preset,
        "evaluation_share": goal.evaluation_share,
    }
    autosave, told = files.autosave(settings), files.logs()
    found = files.interrupted(settings)
    if found is None or files.checkpoint is None:
        agent = s4q.Agent(
            env, horizon=horizon, reward_range=reward_range, value_bound=value_bound, preset=preset, seed=seed
        )
        agent.learn(
            episodes,
            progress_bar=True,
            callback=told,
            checkpoint=autosave,
            stop_when_gap=goal.stop_when_gap,
            evaluation_share=goal.evaluation_share,
        )
    else:
        found.require_seed(seed)
        agent = s4q.Agent.load(files.checkpoint, env=env)
        agent.resume(episodes, progress_bar=True, callback=told, checkpoint=autosave, stop_when_gap=goal.stop_when_gap)
    return cast(s4q.Run, agent.last_run), agent.evaluate(evaluate) if evaluate else None


def _made(env_id: str) -> Any:
    known = f"problem must be one of {', '.join(BUILDERS)}, or the id of a Gymnasium environment"
    try:
        import gymnasium
    except ImportError:
        raise ValueError(f'{known}, which needs pip install "s4q[gym]"; got {env_id!r}') from None
    try:
        return gymnasium.make(env_id)
    except (gymnasium.error.Error, ImportError) as error:
        raise ValueError(f"{known}; got {env_id!r} ({error})") from None
