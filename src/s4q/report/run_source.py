"""RunSource: all that a report is made from, whether the run is over, in progress, or read from a checkpoint.

The command line and users make one; the page reads it. A checkpoint holds the whole curve, so nothing is played again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, final

from s4q.core.messages import FeatureMap, Spec
from s4q.learners.s3q import S3Q
from s4q.learners.s4q import S4Q
from s4q.problems import FiniteMDP
from s4q.report.value_plots import Ranges
from s4q.running.accounting import Accounting, Run
from s4q.running.checkpoint import Checkpoint
from s4q.running.curve import Played, Point
from s4q.running.progress import Progress


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class RunSource:
    """A run and what is known about it.

    Args:
        problem: Name of the problem, as its reader knows it.
        run: What was learned and what it cost.
        learner: The learner of the run.
        budget: Episodes that were asked for. None (default): as many as were played.
        max_steps: Steps that were asked for. None (default): there is no such limit.
        stop_when_gap: The proved gap that ends the run. None (default): none does.
        over: True if the run came to its end, though episodes may be left: a rule of the user stopped it. False
            (default): what was asked for decides.
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
    max_steps: int | None = None
    stop_when_gap: float | None = None
    over: bool = False
    seed: int | None = None
    mdp: FiniteMDP | None = None
    features: FeatureMap | None = None
    ranges: Ranges | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    command: str | None = None

    @property
    def in_progress(self) -> bool:
        """Is there anything left to play: episodes, steps, and a gap that is still to be proved?"""
        run = self.run
        if self.over or self.budget is None or run.episodes >= self.budget:
            return False
        if self.max_steps is not None and run.steps >= self.max_steps:
            return False
        return self.stop_when_gap is None or run.certificate is None or run.certificate.gap > self.stop_when_gap

    @property
    def episodes_asked(self) -> int | None:
        """Episodes that were asked for. None where only steps were: then the budget is the most that they can hold."""
        return None if self.max_steps is not None and self.budget == self.max_steps else self.budget

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


@final
@dataclass(frozen=True, slots=True)
class LoggedCurve:
    """The curve of a run as its log tells it.

    Args:
        points: A point per finished phase.
        end: The totals of the run, with the means of all its episodes. None (default): the log has no end.
    """

    points: tuple[Point, ...]
    end: Point | None = None

    def progress(self, spec: Spec) -> Progress:
        """How far the run had come.

        Args:
            spec: The problem.
        """
        last = self.points[-1] if self.end is None else self.end
        return Progress(
            budget=0,
            points=self.points,
            episodes=last.episodes,
            steps=last.steps,
            regret=last.regret or 0.0,
            cpu_seconds=last.cpu_seconds,
            discarded_episodes=last.discarded_episodes,
            evaluation_episodes=last.evaluation_episodes,
            warm_up_episodes=last.warm_up_episodes,
            played=self._played(spec),
        )

    def _played(self, spec: Spec) -> Played:
        """Episodes, steps and returns of main loops: from the end where there is one, else phase by phase."""
        if self.end is not None:
            return _played(spec, self.end, 0, 0)
        total, before, cut = Played(), 0, 0
        for point in self.points:
            part = _played(spec, point, before, cut)
            total = Played(
                total.episodes + part.episodes,
                total.steps + part.steps,
                total.return_sum + part.return_sum,
                total.truncated + part.truncated,
            )
            before, cut = point.main_episodes, point.truncated_episodes
        return total


def _played(spec: Spec, point: Point, before: int, cut: int) -> Played:
    """What was played since there were `before` episodes, of which `cut` were truncated."""
    n, truncated = point.main_episodes - before, point.truncated_episodes - cut
    mean = 0.0 if point.mean_return is None else point.mean_return - spec.horizon * spec.reward_min
    return Played(n, round(n * (point.mean_length or 0.0)), (n - truncated) * mean, truncated)


def run_of(found: Checkpoint, mdp: FiniteMDP | None = None, logged: LoggedCurve | None = None) -> Run:
    """The Run that a checkpoint was written in, as far as it had come.

    Args:
        found: The checkpoint.
        mdp: The problem that a collector of counts or tables played, for the gap of the newest policy. None (default):
            regret and gap are not known.
        logged: The curve of a log, used where the checkpoint has none: that of a learner saved by itself. None
            (default): there is no log.
    """
    progress = found.progress
    if not progress.points and logged is not None:
        progress = logged.progress(found.learner.spec)
    known = progress.points[-1].regret is not None if progress.points else progress.episodes > 0
    certify = progress.certified is not None
    accounting = Accounting(found.learner, _Plays(mdp if known else None), progress, certify=certify, resumed=True)  # type: ignore[arg-type]
    run = accounting.result()
    # Reading takes CPU time too, which is not that of the run.
    end = replace(run.curve[-1], cpu_seconds=progress.cpu_seconds)
    return replace(run, cpu_seconds=progress.cpu_seconds, curve=(*run.curve[:-1], end))
