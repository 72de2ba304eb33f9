"""Run and Ledger: what a run came to, and how it is counted."""

import time
from dataclasses import asdict, dataclass
from typing import Any, final

from s4q.linear_q import LinearQ
from s4q.main_loop import PhaseRecord, Record
from s4q.memo import Memo
from s4q.problems import FiniteMDP
from s4q.requests import Collector, Explore, Learner, Policy, Regress, Request


@final
@dataclass(frozen=True, slots=True)
class Point:
    """One row of the learning curve: where a run stood when a phase (for S3Q an epoch) was finished."""

    episodes: int
    main_episodes: int  # of main loops (Explore)
    replay_episodes: int  # of regressions (Regress): for S4Q the price of bounded memory
    steps: int
    phases: int
    regret: float | None  # None where the problem is not a FiniteMDP
    gap: float | None  # v_star - value of the phase's policy (at the end: of the newest)
    optimistic_value: float | None  # what the learner's Q promises at the start
    bytes: int  # held by the learner
    cpu_seconds: float


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
    curve: tuple[Point, ...]  # a point per finished phase, and one for the end
    policy: Policy
    q: LinearQ
    record: Record | None = None  # with record=True

    def __repr__(self) -> str:
        shown = ("episodes", "phases", "regret", "gap", "bytes", "cpu_seconds")
        known = {name: getattr(self, name) for name in shown if getattr(self, name) is not None}
        return f"Run({', '.join(f'{name}={value:.6g}' for name, value in known.items())})"


@final
class Recorder:
    """Keeps what each phase of an S4Q was."""

    def __init__(self, learner: Any) -> None:
        self._learner = learner
        self._phases: list[PhaseRecord] = []

    def mark(self) -> None:
        self._phases.append(self._learner.last_phase)

    def record(self) -> Record:
        return Record(self._learner.constants, tuple(self._phases), self._learner.open_phase)


@final
class Ledger:
    """Counts what a run costs."""

    def __init__(self, learner: Learner, collector: Collector, recorder: Recorder | None) -> None:
        self._recorder = recorder
        self.episodes = 0
        self.steps = 0
        self._main_episodes = 0
        self._learner = learner
        mdp = getattr(collector, "mdp", None)
        self._mdp: FiniteMDP | None = mdp if isinstance(mdp, FiniteMDP) else None
        self._regret = 0.0
        self._gap: Memo[Policy, float] = Memo(self._gap_of, size=4096)
        self._points: list[Point] = []
        self._cpu_start = time.process_time()

    def charge(self, request: Request, answer: Any) -> None:
        """Book the episodes of an answer, each at the price of the policy that played it."""
        self.episodes += answer.n_episodes
        self.steps += answer.n_steps
        self._main_episodes += answer.n_episodes if isinstance(request, Explore) else 0
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
        if self._recorder is not None:
            self._recorder.mark()

    def result(self) -> Run:
        now = self._point(self._learner.policy)
        points = [*self._points, now]
        record = None if self._recorder is None else self._recorder.record()
        return Run(**asdict(now), curve=tuple(points), policy=self._learner.policy, q=self._learner.q, record=record)

    def _point(self, policy: Policy) -> Point:
        known = self._mdp is not None
        return Point(
            episodes=self.episodes,
            main_episodes=self._main_episodes,
            replay_episodes=self.episodes - self._main_episodes,
            steps=self.steps,
            phases=self._learner.phases,
            regret=self._regret if known else None,
            gap=self._gap(policy) if known else None,
            optimistic_value=self._promise(policy) if known else None,
            bytes=self._learner.nbytes,
            cpu_seconds=time.process_time() - self._cpu_start,
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
