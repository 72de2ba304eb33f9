"""Run and Ledger: what a run came to, and how it is counted."""

import time
from dataclasses import asdict, dataclass
from math import inf
from typing import Any, Literal, final

from s4q.certificates.certifier import Certificate, Certified, Certifier, Phased
from s4q.core.identity_cache import Memo
from s4q.core.linear_q import LinearQ
from s4q.core.messages import Collector, Evaluate, Explore, Learner, Policy, Regress, Request, Returns
from s4q.learners.fit_record import FitRecord, add_answer
from s4q.learners.main_loop import PhaseRecord, Record
from s4q.problems import FiniteMDP
from s4q.running.curve import Played, Point
from s4q.running.evaluations import Evaluations
from s4q.running.progress import Progress


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
    nbytes: int
    cpu_seconds: float
    mean_return: float | None  # of all main-loop episodes of the run, in the user's units; None: there were none
    mean_length: float | None  # in steps, of the same
    curve: tuple[Point, ...]  # a point per finished phase, and one for the end
    policy: Policy
    q: LinearQ
    record: Record | None = None  # with record=True
    # With stop_when_gap or an evaluation_share, or with record=True if the preset proves optimism.
    certificate: Certificate | None = None
    resumed: bool = False  # did it go on from a checkpoint?
    name: str = ""  # what it began with, in short: the same for a run and its resumption
    evaluation_episodes: int = 0

    def __repr__(self) -> str:
        shown = ("episodes", "phases", "regret", "gap", "mean_return", "nbytes", "cpu_seconds")
        known = {name: getattr(self, name) for name in shown if getattr(self, name) is not None}
        return f"Run({', '.join(f'{name}={value:.6g}' for name, value in known.items())})"


@final
@dataclass(frozen=True, slots=True)
class Answered:
    """A request that has been answered in full, or a shard of an evaluation."""

    id: int
    kind: Literal["explore", "regress", "evaluate"]
    level: int | None  # of a regression
    n_episodes: int  # it took
    n_steps: int
    episodes: int  # of the run so far
    phases: int  # the learner has finished


@final
class Recorder:
    """Keeps what each phase of an S4Q was, and what the collector returned for its fits."""

    def __init__(
        self,
        learner: Any,
        phases: tuple[PhaseRecord, ...],
        fits: tuple[FitRecord, ...],
        evaluations: Evaluations | None,
    ) -> None:
        self._learner = learner
        self._evaluations = evaluations
        self.phases = list(phases)
        self.fits = list(fits)
        self._before = learner.phases  # finished before the answer that comes next

    def add(self, request: Request, answer: Any) -> None:
        if isinstance(request, Regress):  # an S3Q call prepares the phase after the last finished one
            add_answer(self.fits, self._before + 1, [phase.q for phase in self.phases], request, answer)

    def mark(self) -> None:
        self.phases.append(self._learner.last_phase)
        self._before = self._learner.phases

    def record(self) -> Record:
        evaluations = {} if self._evaluations is None else dict(self._evaluations.by_phase)
        constants, running = self._learner.constants, self._learner.open_phase
        return Record(constants, tuple(self.phases), running, evaluations, tuple(self.fits))


@final
class Watch:
    """What is certified of an S4Q, phase by phase.

    A phase is closed when the next one has its policy: until then the policy may still be evaluated.
    """

    def __init__(self, learner: Phased, evaluations: Evaluations | None, before: Certified | None = None) -> None:
        self._learner = learner
        self._evaluations = evaluations
        self._certifier = Certifier(learner.constants, before)
        self._phase = 0 if self._newest is None else self._newest.phase
        if before is None and learner.open_phase is not None:
            self._close()  # a run may go on where another ended

    @property
    def _newest(self) -> PhaseRecord | None:
        return self._learner.open_phase or self._learner.last_phase

    def update(self) -> None:
        """The learner was told something."""
        newest = self._newest
        if newest is not None and newest.phase > self._phase:
            self._close()
            self._phase = newest.phase

    def _close(self) -> None:
        last = self._learner.last_phase
        if last is not None:
            self._certifier.add(last, self._evaluated(last))

    def _evaluated(self, phase: PhaseRecord) -> Returns | None:
        return None if self._evaluations is None else self._evaluations.by_phase.get(phase.phase)

    @property
    def certified(self) -> Certified:
        """For a checkpoint."""
        return self._certifier.certified

    def certificate(self) -> Certificate:
        newest = self._newest
        return self._certifier.certificate(newest, None if newest is None else self._evaluated(newest))


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
        evaluations: Evaluations | None = None,
        *,
        resumed: bool = False,
    ) -> None:
        self._resumed = resumed
        self._evaluations, self._share = evaluations, before.evaluation_share
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
        if not isinstance(request, Evaluate):  # which may come between two parts of another
            self._request_episodes = answer.n_episodes + (self._request_episodes if request.done else 0)
            self._request_steps = answer.n_steps + (self._request_steps if request.done else 0)
        if self._evaluations is not None and isinstance(request, Evaluate):
            self._evaluations.tell(answer)
        if self._watch is not None:
            self._watch.update()
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

    def certified_gap(self) -> float:
        """The gap of the certificate so far."""
        return inf if self._watch is None else self._watch.certificate().gap

    def note(self) -> str:
        """How it goes, for a progress bar."""
        newest = self._points[-1].mean_return if self._points else None
        return "" if newest is None else f"return {newest:.4g} in phase {self._learner.phases}"

    @property
    def left(self) -> int:
        """Episodes of the budget that are left."""
        return self._budget - self.episodes

    @property
    def learned(self) -> int:
        """Episodes that the learner asked for."""
        return self.episodes - self.evaluation_episodes

    @property
    def evaluation_episodes(self) -> int:
        """Episodes of evaluations so far."""
        return 0 if self._evaluations is None else self._evaluations.n_episodes

    def evaluated(self, request: Evaluate, answer: Returns) -> Answered:
        """What became of a shard of an evaluation."""
        n, phases = answer.n_episodes, self._learner.phases
        return Answered(request.id, "evaluate", None, n, answer.n_steps, self.episodes, phases)

    def answered(self, request: Explore | Regress) -> Answered:
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
            evaluation_share=self._share,
            evaluation_episodes=self.evaluation_episodes,
            evaluations={} if self._evaluations is None else dict(self._evaluations.by_phase),
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
            replay_episodes=self.episodes - self._played.episodes - self.evaluation_episodes,
            evaluation_episodes=self.evaluation_episodes,
            steps=self.steps,
            phases=self._learner.phases,
            regret=self._regret if known else None,
            gap=self._gap(policy) if known else None,
            optimistic_value=self._promise(policy) if known else None,
            nbytes=self._learner.nbytes,
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
