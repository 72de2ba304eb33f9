"""RunSource: all that a report is made from, whether the run is over, in progress, or read from a checkpoint.

The command line and users make one; the page reads it. A checkpoint holds the whole curve, so nothing is played again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, final

from s4q.core.messages import FeatureMap
from s4q.learners.s3q import S3Q
from s4q.learners.s4q import S4Q
from s4q.problems import FiniteMDP
from s4q.report.value_plots import Ranges
from s4q.running.accounting import Accounting, Run
from s4q.running.checkpoint import Checkpoint
from s4q.running.curve import Point


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class RunSource:
    """A run and what is known about it.

    Args:
        problem: Name of the problem, as its reader knows it.
        run: What was learned and what it cost.
        learner: The learner of the run.
        budget: Episodes that were asked for. None (default): as many as were played.
        seed: Seed of the episodes. None (default): not said.
        mdp: The problem itself, where it is a finite one. None (default): its values are not known.
        features: The feature map, for a picture of the value. None (default): no picture.
        ranges: Where observations lie, for the same picture. None (default): no picture.
        settings: What else was chosen, by name; shown as a table. Empty by default.
        command: The command that repeats the run. None (default): not said.
    """

    problem: str
    run: Run
    learner: S3Q | S4Q
    budget: int | None = None
    seed: int | None = None
    mdp: FiniteMDP | None = None
    features: FeatureMap | None = None
    ranges: Ranges | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    command: str | None = None

    @property
    def in_progress(self) -> bool:
        """Are there episodes of the budget left?"""
        return self.budget is not None and self.run.episodes < self.budget

    @property
    def policy_fits(self) -> bool:
        """Can the exact values of the learner's policies be computed?"""
        sizes = ("horizon", "n_actions", "n_blocks", "block_dim")
        mdp, spec = self.mdp, self.learner.spec
        return mdp is not None and all(getattr(mdp.spec, name) == getattr(spec, name) for name in sizes)


@final
class _Plays:
    """Stands for the collector of a run that is only read: the accounting asks which problem it plays."""

    def __init__(self, mdp: FiniteMDP | None) -> None:
        self.mdp = mdp


def run_of(found: Checkpoint, mdp: FiniteMDP | None = None, points: tuple[Point, ...] = ()) -> Run:
    """The Run that a checkpoint was written in, as far as it had come.

    Args:
        found: The checkpoint.
        mdp: The problem that a collector of counts or tables played, for the gap of the newest policy. None (default):
            regret and gap are not known.
        points: The curve of a log, used where the checkpoint has none: that of a learner saved by itself. Empty by
            default.
    """
    progress = found.progress
    if not progress.points and points:
        last = points[-1]
        progress = replace(progress, points=points, episodes=last.episodes, steps=last.steps)
    known = progress.points[-1].regret is not None if progress.points else progress.episodes > 0
    certify = progress.certified is not None
    accounting = Accounting(found.learner, _Plays(mdp if known else None), progress, certify=certify, resumed=True)  # type: ignore[arg-type]
    run = accounting.result()
    # Reading takes CPU time too, which is not that of the run.
    end = replace(run.curve[-1], cpu_seconds=progress.cpu_seconds)
    return replace(run, cpu_seconds=progress.cpu_seconds, curve=(*run.curve[:-1], end))
