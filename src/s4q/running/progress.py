"""Progress: how far a run has come, so that it can go on later.

The Accounting of a run counts in it, and a checkpoint keeps it beside the learner.
"""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import final

from s4q.certificates.certifier import Certified
from s4q.core.codec import MaybeInfinite, Positive
from s4q.core.messages import Returns
from s4q.learners.fit_record import FitRecord
from s4q.learners.main_loop import PhaseRecord
from s4q.running.curve import Played, Point


@final
@dataclass(eq=False, slots=True, kw_only=True)
class Progress:
    """How far a run has come. The Accounting of the run changes its own copy; all others only read."""

    budget: int  # episodes of the whole run
    name: str = ""  # a digest of seed, budget and settings, by which a log knows its lines
    episodes: int = 0
    steps: int = 0
    regret: MaybeInfinite = 0.0
    cpu_seconds: float = 0.0
    discarded_episodes: int = 0  # played ahead by an executor and not used
    played: Played = field(default_factory=Played)  # in main loops, so far
    phase_played: Played = field(default_factory=Played)  # in the main loop of the running phase
    points: tuple[Point, ...] = ()  # of the finished phases
    record: tuple[PhaseRecord, ...] | None = None  # with record=True
    fits: tuple[FitRecord, ...] = ()  # with record=True
    certified: Certified | None = None  # where certificates are made along the way
    request_episodes: int = 0  # of the request that is answered in part
    request_steps: int = 0
    warm_up_episodes: int = 0  # played before the first request, and counted in `episodes`
    max_steps: Positive | None = None  # of the whole run, where it has such a limit
    evaluation_share: float = 0.0
    evaluation_episodes: int = 0
    evaluations: Mapping[Positive, Returns] = field(default_factory=dict)  # by phase
    over: bool = False  # the run came to its end, by `stop` too; False after Ctrl-C, and while it is running

    def check_restored(self) -> None:
        """Counts read from a file must agree."""
        learned = self.episodes - self.evaluation_episodes - self.warm_up_episodes
        if not self.phase_played.episodes <= self.played.episodes <= learned:
            raise ValueError(f"main loops cannot have {self.played.episodes} of {learned} episodes")
        phases = [one.phase for one in self.record or ()]
        if phases != sorted(set(phases)):
            raise ValueError("the phases of a record must be in order, none twice")
        for fit in self.fits:  # it counts the episodes of each policy recorded before it, and of all others together
            before = bisect_left(phases, fit.phase)
            if self.record is None or len(fit.per_policy) != before + 1:
                got = len(fit.per_policy)
                raise ValueError(f"a fit of phase {fit.phase} needs {before + 1} counts in a record; got {got}")
        if not 0 <= self.evaluation_share < 1:
            raise ValueError(f"evaluation_share must lie in [0, 1); got {self.evaluation_share}")
        if sum(one.n_episodes for one in self.evaluations.values()) > self.evaluation_episodes:
            raise ValueError(f"the phases have more than all {self.evaluation_episodes} episodes of evaluations")
