"""Checkpoints: a learner and the progress of its run in one file, from which a run goes on with the same bits.

Learners draw nothing and collectors draw from addresses, so the state of a learner, the seed of the collector and the
counters of the run are all there is to save. `run` and `Agent` write checkpoints; `load` reads one and runs no code.
"""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from os import PathLike
from pathlib import Path
from typing import Any, final

from s4q.core.codec import AnySize, NotSaved, Packed, cannot_be_saved, pack, unpack
from s4q.core.messages import Learner
from s4q.core.validation import require_count, require_flag, require_positive
from s4q.core.version import __version__
from s4q.learners.s3q import S3Q
from s4q.learners.s4q import S4Q
from s4q.running import archive
from s4q.running.archive import CheckpointError, refusal
from s4q.running.progress import Progress

SCHEMA = 9
Extra = Mapping[str, Any]  # what JSON can hold


@final
@dataclass(frozen=True, eq=False, slots=True, kw_only=True, repr=False)
class Checkpoint:
    """Everything that an interrupted run needs to go on. Pass it to `run` in place of a learner.

    `load` makes one; its fields are the learner, the seed of the collector, the progress of the run, and what the
    writer kept in `extra`.
    """

    learner: S3Q | S4Q
    seed: AnySize  # of the collector
    progress: Progress
    extra: Extra = field(default_factory=dict)  # what the writer kept beside the run
    n_episodes: NotSaved[int] = field(init=False)  # the learner had answered, those of earlier runs included

    def __post_init__(self) -> None:
        object.__setattr__(self, "n_episodes", self.learner.n_episodes)

    def __repr__(self) -> str:
        return f"Checkpoint({self.progress.episodes} of {self.progress.budget} episodes, {self.learner!r})"

    @property
    def begun(self) -> bool:
        """True if it was written during a run, which can be finished."""
        return self.progress.budget > 0

    def require_seed(self, seed: int) -> None:
        """Refuse another seed, because it would play other episodes than the interrupted run.

        Args:
            seed: The seed of the collector that is to go on.
        """
        if seed != self.seed:
            raise ValueError(f"the checkpoint was made with a collector of seed {self.seed}; got one of seed {seed}")


@final
@dataclass(frozen=True, slots=True)
class Autosave:
    """Where and how often `run` writes checkpoints: at the beginning, after every phase, at intervals, at the end.

    Args:
        path: The file. The one before it is kept as `<path>.previous`.
        minutes: The longest time between two checkpoints, 5 by default.
        extra: A dictionary of what JSON can hold, kept in the file. Empty by default.
        overwrite: True lets a run write over the checkpoint of another one. False (default): that is refused.
    """

    path: str | PathLike[str]
    minutes: float = 5.0
    extra: Extra = field(default_factory=dict)
    overwrite: bool = False

    def __post_init__(self) -> None:
        require_flag("overwrite", self.overwrite, "may the checkpoint of another run be lost?")
        require_positive("minutes", self.minutes, "the longest time between two checkpoints")


def save(
    path: str | PathLike[str],
    learner: Learner,
    *,
    seed: int,
    progress: Progress | None = None,
    extra: Extra | None = None,
) -> None:
    """Write a checkpoint: at once or not at all. The file that was there becomes `<path>.previous`.

    Args:
        path: The file to write.
        learner: An S3Q or S4Q.
        seed: Seed of its collector.
        progress: How far the run has come. None (default): a run that has not begun.
        extra: A dictionary of what JSON can hold, kept in the file. None (default): empty.
    """
    place = Path(path)
    packed = _packed(learner, seed, progress or Progress(budget=0), extra or {})
    manifest = {"format": "s4q checkpoint", "schema": SCHEMA, "s4q": __version__, "objects": packed.objects}
    try:
        archive.write(place, manifest, packed.arrays)
    except OSError as error:
        raise CheckpointError(f"{place} cannot be written: {error}; choose another place or make room") from error


def load(path: str | PathLike[str]) -> Checkpoint:
    """Read a checkpoint. Nothing in the file is executed.

    Args:
        path: The file to read.

    Returns:
        The checkpoint. A CheckpointError says which file cannot be read, why, and where the previous good one is.

    >>> import s4q, tempfile
    >>> mdp = s4q.problems.chain()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(f"{folder}/run.s4q", s4q.S4Q(mdp), seed=7)
    ...     load(f"{folder}/run.s4q").learner
    S4Q(practical, phase 1, main loop, 15200 bytes)
    """
    place = Path(path)
    manifest, arrays = archive.read(place, SCHEMA, "s4q")
    objects = manifest.get("objects")
    try:
        if set(manifest) != {"format", "schema", "s4q", "objects", "arrays"} or not isinstance(objects, list):
            raise ValueError("its manifest does not describe a checkpoint")
        return unpack(Packed(objects, arrays), Checkpoint)
    except (ValueError, TypeError, ArithmeticError, RecursionError, MemoryError) as error:
        raise refusal(place, str(error) or type(error).__name__) from None


def where_to_begin(
    source: Learner | Checkpoint,
    seed: int,
    episodes: int,
    record: bool,
    evaluation_share: float | None,
    max_steps: int | None = None,
    warm_up: tuple[int, int] = (0, 0),
) -> tuple[Learner, Progress]:
    """The learner and the progress to go on from. Refused where the run would not be the interrupted one."""
    if not isinstance(source, Checkpoint):
        share = float(evaluation_share or 0.0)
        begins = (seed, episodes, source.spec, getattr(source, "constants", None), getattr(source, "n_episodes", 0))
        before = getattr(source, "n_logged", 0)
        name = blake2b(repr((*begins, before, share, max_steps)).encode(), digest_size=6).hexdigest()
        begun = Progress(budget=episodes, name=name, evaluation_share=share, max_steps=max_steps)
        begun.episodes = begun.warm_up_episodes = warm_up[0]
        begun.steps = warm_up[1]
        return source, replace(begun, record=() if record else None)
    progress = source.progress
    if source.learner.n_episodes != source.n_episodes:
        raise ValueError("the learner of this checkpoint has learned more since it was loaded; load the file again")
    source.require_seed(seed)
    if episodes < progress.episodes:
        raise ValueError(
            f"episodes is the number for the whole run, of which {progress.episodes} have been played; got {episodes}"
        )
    if record and progress.record is None:
        raise ValueError("record=True needs the record from the first phase on, and this run was begun without it")
    share = progress.evaluation_share if evaluation_share is None else float(evaluation_share)
    if source.begun and share != progress.evaluation_share:
        raise ValueError(
            f"the checkpoint is of a run with evaluation_share {progress.evaluation_share}; got {share}, pass the same"
        )
    kept = progress.record if record else None
    limit = progress.max_steps if max_steps is None else max_steps
    return source.learner, replace(
        progress, budget=episodes, record=kept, evaluation_share=share, max_steps=limit, over=False
    )


def _packed(learner: Learner, seed: int, progress: Progress, extra: Extra) -> Packed:
    if not isinstance(learner, (S3Q, S4Q)):
        raise cannot_be_saved("a learner", learner, S3Q, S4Q)
    require_count("seed", seed, "the seed of the collector", at_least=0)
    try:
        plain = json.loads(json.dumps(extra, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise ValueError(f"extra must hold what JSON can hold ({error}); got {extra!r}") from None
    if not isinstance(plain, dict):
        raise ValueError(f"extra must be a dictionary; got {extra!r}")
    return pack(Checkpoint(learner=learner, seed=int(seed), progress=progress, extra=plain))


@final
class CheckpointWriter:
    """Writes the checkpoints of one run; none at all where no file is named."""

    def __init__(self, checkpoint: str | PathLike[str] | Autosave | None, learner: Learner, seed: int) -> None:
        self._autosave = None if checkpoint is None else as_autosave(checkpoint)
        self._learner, self._seed = learner, seed
        if self._autosave is not None:
            archive.require_place(Path(self._autosave.path))
        self._written = time.monotonic()
        self._newest: tuple[int, bool] | None = None  # episodes of the newest checkpoint, and was the run over?

    @property
    def path(self) -> Path | None:
        """The file; None where nothing is written."""
        return None if self._autosave is None else Path(self._autosave.path)

    def require_own(self) -> None:
        """Refuse to write over a checkpoint that the learner did not come from: that run would be lost.

        Its own older checkpoints have the same seed and settings, and no more episodes than it.
        """
        there = self.path
        if there is None or self._autosave is None or self._autosave.overwrite or not there.exists():
            return
        cure = "choose another file, or pass Autosave(path, overwrite=True) to give that one up"
        try:
            found = load(there)
        except CheckpointError as error:
            raise CheckpointError(
                f"{there} is there already, and is not known to be of this run ({error}); {cure}"
            ) from None
        theirs, mine = (
            (type(one).__name__, seed, repr(one.spec), repr(getattr(one, "constants", None)))
            for one, seed in ((found.learner, found.seed), (self._learner, self._seed))
        )
        n_episodes = getattr(self._learner, "n_episodes", 0)
        if found.n_episodes and (theirs != mine or found.n_episodes > n_episodes):
            raise CheckpointError(
                f"{there} holds a run of {found.n_episodes:,} episodes, which this learner with {n_episodes:,} did not "
                f"come from; load that file to go on from it, {cure}"
            )

    @property
    def due(self) -> bool:
        """True if the newest checkpoint is older than the interval."""
        return self._autosave is not None and time.monotonic() - self._written >= 60 * self._autosave.minutes

    def write(self, progress: Progress) -> None:
        """Write a checkpoint, unless there is one of this very state."""
        if self._autosave is not None and (progress.episodes, progress.over) != self._newest:
            save(self._autosave.path, self._learner, seed=self._seed, progress=progress, extra=self._autosave.extra)
            self._newest = progress.episodes, progress.over
            self._written = time.monotonic()


def as_autosave(checkpoint: str | PathLike[str] | Autosave) -> Autosave:
    """Wrap a path in an Autosave with the default interval."""
    if isinstance(checkpoint, (str, PathLike)):
        return Autosave(checkpoint)
    if not isinstance(checkpoint, Autosave):
        raise ValueError(f"checkpoint must be a path or an Autosave; got {type(checkpoint).__name__}")
    return checkpoint
