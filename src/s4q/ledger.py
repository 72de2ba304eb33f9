"""Run and Ledger: what a run came to, and how it is counted."""

import time
from dataclasses import asdict, dataclass, field, fields
from math import inf
from typing import Any, Literal, final

from s4q.certificate import Certificate, Certified, Certifier, Phased
from s4q.curve import Played, Point
from s4q.fit_record import FitRecord, add_answer
from s4q.linear_q import LinearQ
from s4q.main_loop import PhaseRecord, Record
from s4q.memo import Memo
from s4q.problems import FiniteMDP
from s4q.requests import Collector, Explore, Learner, Policy, Regress, Request
from s4q.state import Reader, State


@final
@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Progress:
    """How far a run has come: what a checkpoint keeps of it beside the learner."""

    budget: int  # the episodes it was to play in all
    name: str = ""  # of the run: what it began with, in short; a log knows its lines by it
    episodes: int = 0
    steps: int = 0
    regret: float = 0.0
    cpu_seconds: float = 0.0
    played: Played = field(default_factory=Played)  # in main loops, so far
    phase_played: Played = field(default_factory=Played)  # in the main loop of the running phase
    points: tuple[Point, ...] = ()  # of the finished phases
    record: tuple[PhaseRecord, ...] | None = None  # with record=True
    fits: tuple[FitRecord, ...] = ()  # with record=True
    certified: Certified | None = None  # where certificates are made along the way
    request_episodes: int = 0  # of the request that is answered in part
    request_steps: int = 0

    def state(self) -> State:
        """For a checkpoint."""
        plain = {f.name: getattr(self, f.name) for f in fields(self)}
        parts = {"played": asdict(self.played), "phase_played": asdict(self.phase_played)}
        return {**plain, **parts, "points": [asdict(point) for point in self.points]}

    @classmethod
    def from_state(cls, reader: Reader) -> "Progress":
        """From a checkpoint."""
        progress = cls(
            budget=reader.integer("budget"),
            name=reader.text("name"),
            episodes=reader.integer("episodes"),
            steps=reader.integer("steps"),
            regret=reader.number("regret"),
            cpu_seconds=reader.number("cpu_seconds"),
            played=Played.from_state(reader.row("played")),
            phase_played=Played.from_state(reader.row("phase_played")),
            points=tuple(Point.from_state(row) for row in reader.rows("points")),
            record=tuple(reader.each("record", PhaseRecord)) if reader.has("record") else None,
            fits=tuple(reader.each("fits", FitRecord)),
            certified=reader.one("certified", Certified) if reader.has("certified") else None,
            request_episodes=reader.integer("request_episodes"),
            request_steps=reader.integer("request_steps"),
        )
        if not progress.phase_played.episodes <= progress.played.episodes <= progress.episodes:
            raise ValueError(f"main loops cannot have {progress.played.episodes} of {progress.episodes} episodes")
        return progress


@final
@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Run:
    """What came out and what it cost, in the user's units. Regret is exact and charges every episode played."""

    episodes: int
    main_episodes: int
    replay_episodes: int
    steps: int
    regret: float | None
    gap: float | None
    optimistic_value: float | None
    phases: int
    bytes: int
    cpu_seconds: float
    mean_return: float | None  # of all main-loop episodes of the run, in the user's units; None: there were none
    mean_length: float | None  # in steps, of the same
    curve: tuple[Point, ...]  # a point per finished phase, and one for the end
    policy: Policy
    q: LinearQ
    record: Record | None = None  # with record=True
    certificate: Certificate | None = None  # with stop_when_gap, or with record=True if the preset proves optimism
    resumed: bool = False  # did it go on from a checkpoint?
    name: str = ""  # what it began with, in short: the same for a run and its resumption

    def __repr__(self) -> str:
        shown = ("episodes", "phases", "regret", "gap", "mean_return", "bytes", "cpu_seconds")
        known = {name: getattr(self, name) for name in shown if getattr(self, name) is not None}
        return f"Run({', '.join(f'{name}={value:.6g}' for name, value in known.items())})"


@final
@dataclass(frozen=True, slots=True)
class Answered:
    """A request that has been answered in full."""

    id: int
    kind: Literal["explore", "regress"]
    level: int | None  # of a regression
    n_episodes: int  # it took
    n_steps: int
    episodes: int  # of the run so far
    phases: int  # the learner has finished


@final
class Recorder:
    """Keeps what each phase of an S4Q was, and what the collector returned for its fits."""

    def __init__(self, learner: Any, phases: tuple[PhaseRecord, ...] = (), fits: tuple[FitRecord, ...] = ()) -> None:
        self._learner = learner
        self.phases = list(phases)
        self.fits = list(fits)

    def add(self, request: Request, answer: Any) -> None:
        if isinstance(request, Regress):  # an S3Q call prepares the phase after the last finished one
            policies = [phase.q for phase in self.phases]
            add_answer(self.fits, len(policies) + 1, policies, request, answer)

    def mark(self) -> None:
        self.phases.append(self._learner.last_phase)

    def record(self) -> Record:
        return Record(self._learner.constants, tuple(self.phases), self._learner.open_phase, tuple(self.fits))


@final
class Watch:
    """What is certified of an S4Q, phase by phase."""

    def __init__(self, learner: Phased, before: Certified | None = None) -> None:
        self._learner = learner
        self._certifier = Certifier(learner.constants, before)
        if before is None:
            self.mark()  # a run may go on where another ended

    def mark(self) -> None:
        if self._learner.last_phase is not None:
            self._certifier.add(self._learner.last_phase)

    @property
    def certified(self) -> Certified:
        """For a checkpoint."""
        return self._certifier.certified

    def certificate(self) -> Certificate:
        return self._certifier.certificate(self._learner.open_phase)


@final
class Ledger:
    """Counts what a run costs, from the progress of an earlier one on."""

    def __init__(
        self,
        learner: Learner,
        collector: Collector,
        before: Progress,
        recorder: Recorder | None,
        watch: Watch | None,
        *,
        resumed: bool = False,
    ) -> None:
        self._resumed = resumed
        self._recorder = recorder
        self._watch = watch
        self._budget, self._name = before.budget, before.name
        self.episodes = before.episodes
        self.steps = before.steps
        self._played = before.played
        self._phase_played = before.phase_played
        self._learner = learner
        mdp = getattr(collector, "mdp", None)
        self._mdp: FiniteMDP | None = mdp if isinstance(mdp, FiniteMDP) else None
        self._regret = before.regret
        self._gap: Memo[Policy, float] = Memo(self._gap_of, size=4096)
        self._points = list(before.points)
        self._cpu_start = time.process_time() - before.cpu_seconds
        self._request_episodes = before.request_episodes
        self._request_steps = before.request_steps

    def charge(self, request: Request, answer: Any) -> None:
        """Book the episodes of an answer, each at the price of the policy that played it."""
        self.episodes += answer.n_episodes
        self.steps += answer.n_steps
        self._request_episodes = answer.n_episodes + (self._request_episodes if request.done else 0)
        self._request_steps = answer.n_steps + (self._request_steps if request.done else 0)
        if isinstance(request, Explore):
            self._played = self._played.with_answer(answer)
            self._phase_played = self._phase_played.with_answer(answer)
        if self._recorder is not None:
            self._recorder.add(request, answer)
        if self._mdp is None:
            return
        if isinstance(request, Regress):
            for policy, n in zip(request.mixture.policies, answer.episodes_per_policy.tolist(), strict=True):
                self._regret += n * self._gap(policy) if n else 0.0
        else:
            self._regret += answer.n_episodes * self._gap(request.policy)

    def mark(self, request: Request) -> None:
        """Add a point to the curve: the phase that just ended, with the policy it played."""
        policy = request.policy if isinstance(request, Explore) else self._learner.policy
        self._points.append(self._point(policy))
        self._phase_played = Played()
        if self._recorder is not None:
            self._recorder.mark()
        if self._watch is not None:
            self._watch.mark()

    def certified_gap(self) -> float:
        """The gap of the certificate so far."""
        return inf if self._watch is None else self._watch.certificate().gap

    def note(self) -> str:
        """How it goes, for a progress bar."""
        newest = self._points[-1].mean_return if self._points else None
        return "" if newest is None else f"return {newest:.4g} in phase {self._learner.phases}"

    def answered(self, request: Request) -> Answered:
        """What became of a request that is now answered in full."""
        return Answered(
            id=request.id,
            kind="explore" if isinstance(request, Explore) else "regress",
            level=None if isinstance(request, Explore) else request.level,
            n_episodes=self._request_episodes,
            n_steps=self._request_steps,
            episodes=self.episodes,
            phases=self._learner.phases,
        )

    def progress(self) -> Progress:
        """For a checkpoint."""
        return Progress(
            budget=self._budget,
            name=self._name,
            episodes=self.episodes,
            steps=self.steps,
            regret=self._regret,
            cpu_seconds=time.process_time() - self._cpu_start,
            played=self._played,
            phase_played=self._phase_played,
            points=tuple(self._points),
            record=None if self._recorder is None else tuple(self._recorder.phases),
            fits=() if self._recorder is None else tuple(self._recorder.fits),
            certified=None if self._watch is None else self._watch.certified,
            request_episodes=self._request_episodes,
            request_steps=self._request_steps,
        )

    def result(self) -> Run:
        now = self._point(self._learner.policy)
        points = [*self._points, now]
        record = None if self._recorder is None else self._recorder.record()
        certificate = None if self._watch is None else self._watch.certificate()
        return Run(
            **{
                **asdict(now),
                "mean_return": self._played.mean_return(self._learner.spec),
                "mean_length": self._played.mean_length,
            },
            curve=tuple(points),
            policy=self._learner.policy,
            q=self._learner.q,
            record=record,
            certificate=certificate,
            resumed=self._resumed,
            name=self._name,
        )

    def _point(self, policy: Policy) -> Point:
        known = self._mdp is not None
        return Point(
            episodes=self.episodes,
            main_episodes=self._played.episodes,
            replay_episodes=self.episodes - self._played.episodes,
            steps=self.steps,
            phases=self._learner.phases,
            regret=self._regret if known else None,
            gap=self._gap(policy) if known else None,
            optimistic_value=self._promise(policy) if known else None,
            bytes=self._learner.nbytes,
            cpu_seconds=time.process_time() - self._cpu_start,
            mean_return=self._phase_played.mean_return(self._learner.spec),
            mean_length=self._phase_played.mean_length,
        )

    def _promise(self, policy: Policy) -> float:
        """The learner's value of the start, in the user's units."""
        mdp, q = self._known_mdp(), policy if isinstance(policy, LinearQ) else self._learner.q
        return float(mdp.start @ mdp.spec.to_user_units(0, q.value(0, mdp.features.level(0))))

    def _gap_of(self, policy: Policy) -> float:
        mdp = self._known_mdp()
        return mdp.v_star - mdp.value(policy)

    def _known_mdp(self) -> FiniteMDP:
        if self._mdp is None:
            raise ValueError("regret is exact, so it needs a collector over a FiniteMDP")
        return self._mdp
