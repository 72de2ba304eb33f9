"""The work behind `s4q train`: learn a built-in problem with a checkpoint and a log, and go on if interrupted."""

from collections.abc import Callable
from pathlib import Path

import s4q
from s4q.archive import previous_of
from s4q.problems import FiniteMDP

PROBLEMS: dict[str, Callable[[], FiniteMDP]] = {
    "bellman_closed": s4q.problems.bellman_closed,
    "chain": s4q.problems.chain,
    "combination_lock": s4q.problems.combination_lock,
    "deep_sea": s4q.problems.deep_sea,
    "low_rank": s4q.problems.low_rank,
    "river_swim": s4q.problems.river_swim,
}


def train(
    problem: str,
    episodes: int,
    *,
    preset: str = "practical",
    seed: int = 0,
    checkpoint: Path | None = None,
    resume: bool = False,
    minutes: float = 5.0,
    log: Path | None = None,
) -> s4q.Run:
    """Learn with S4Q for `episodes` episodes in all.

    >>> train("chain", 1000).episodes
    1000
    """
    if problem not in PROBLEMS:
        raise ValueError(f"problem must be one of {', '.join(sorted(PROBLEMS))}; got {problem!r}")
    mdp = PROBLEMS[problem]()
    settings = {"problem": problem, "preset": preset}
    source: s4q.S4Q | s4q.Checkpoint = s4q.S4Q(mdp, preset=preset)  # type: ignore[arg-type]  # checked there
    if resume and checkpoint is None:
        raise ValueError("--resume needs --checkpoint, the file to go on from")
    if checkpoint is not None and (checkpoint.exists() or (resume and previous_of(checkpoint).exists())):
        source = _interrupted(checkpoint, settings, resume)
    return s4q.run(
        source,
        s4q.collectors.CountCollector(mdp, seed=seed),
        episodes,
        checkpoint=None if checkpoint is None else s4q.Autosave(checkpoint, minutes, {"train": settings}),
        callback=None if log is None else s4q.JsonLines(log),
        progress_bar=True,
    )


def _interrupted(path: Path, settings: dict[str, str], resume: bool) -> s4q.Checkpoint:
    if not resume:
        raise ValueError(f"{path} is there already: pass --resume to go on from it, or choose another file")
    found = s4q.load(path)
    theirs = found.extra.get("train")
    if theirs != settings:
        raise ValueError(f"{path} holds a run of {theirs}, not of {settings}; pass the same problem and preset")
    return found
