"""The loop: ask, collect, tell. Budget, exact regret, callbacks, stopping; one BLAS thread throughout."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, final

from threadpoolctl import threadpool_limits

from s4q.checks import require_count
from s4q.linear_q import LinearQ
from s4q.main_loop import PhaseRecord, Record
from s4q.memo import Memo
from s4q.problems import FiniteMDP
from s4q.progress_bar import episode_bar
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


def run(
    learner: Learner,
    collector: Collector,
    episodes: int,
    *,
    stop: Callable[[Run], bool] | None = None,
    callback: Callable[[Run], None] | None = None,
    record: bool = False,
    progress_bar: bool = False,
) -> Run:
    """Let the learner learn for at most this many episodes; call again, with the same collector, to go on.

    stop: called with the Run so far after each shard; True ends the run. callback: called with the Run so far
    whenever a phase (for S3Q an epoch) is finished. record: keep each phase's fit, Gram matrix and Sigma_ref in
    `Run.record`, for an audit (S4Q only). progress_bar: on a terminal only. A Run counts its own episodes, from 0,
    while its phases are the learner's. Going on after `stop` gives the bits of never having stopped; going on
    after a budget that ended inside a shard has the same law.

    >>> import s4q
    >>> mdp = s4q.problems.low_rank()
    >>> learner = s4q.S3Q(mdp, controller=s4q.UniformPolicy(mdp.n_actions))
    >>> result = run(learner, s4q.collectors.EpisodeCollector(mdp, seed=0), episodes=200)
    >>> result.episodes, result.phases, bool(abs(mdp.q_values(result.q) - mdp.q_star).max() < 0.3)
    (200, 5, True)
    """
    require_count("episodes", episodes, "the number of episodes to play")
    _require_roles(learner, collector, stop, callback)
    _require_one_problem(learner, collector)
    ledger = _Ledger(learner, collector, _recorder(learner) if record else None)
    with threadpool_limits(limits=1), episode_bar(int(episodes), progress_bar) as advance:
        while ledger.episodes < episodes:
            request = learner.ask(int(episodes) - ledger.episodes)
            if request is None:
                break
            # One shard an ask: the learner adds shard after shard, so where a run pauses leaves no trace in the sums.
            shard = next(iter(collector.shards(request)))
            start = request.start() if isinstance(request, Explore) else None
            answer = collector.play(request, shard, start)
            phases = learner.phases
            learner.tell(request, answer)
            ledger.charge(request, answer)
            advance(ledger.episodes)
            if learner.phases > phases:
                ledger.mark(request)
                if callback is not None:
                    callback(ledger.result())
            if stop is not None and stop(ledger.result()):
                break
    return ledger.result()


def _require_roles(learner: object, collector: object, stop: object, callback: object) -> None:
    for name, thing, method in (("learner", learner, "ask"), ("collector", collector, "play")):
        if not callable(getattr(thing, method, None)) or isinstance(thing, type):
            raise ValueError(f"{name} must be a {name}, with a method `{method}`; got {thing!r}")
    for name, thing in (("stop", stop), ("callback", callback)):
        if not (thing is None or callable(thing)):
            raise ValueError(f"{name} must be a function of a Run, or None; got {thing!r}")


def _recorder(learner: Learner) -> "_Recorder":
    if not hasattr(learner, "last_phase"):
        raise ValueError(f"record=True keeps the phases of an S4Q; {type(learner).__name__} has none")
    return _Recorder(learner)


def _require_one_problem(learner: Learner, collector: Collector) -> None:
    """Bounds may be declared differently on purpose; sizes and the reward range may not."""
    theirs = getattr(getattr(collector, "mdp", None), "spec", None) or getattr(collector, "spec", None)
    if theirs is None:
        return
    for name in ("horizon", "n_actions", "n_blocks", "block_dim", "reward_min", "reward_max"):
        mine, other = getattr(learner.spec, name), getattr(theirs, name)
        if mine != other:
            raise ValueError(
                f"learner and collector must be made for one problem, but {name} is {mine} for the learner and {other} "
                "for the collector"
            )


@final
class _Recorder:
    """Keeps what each phase of an S4Q was."""

    def __init__(self, learner: Any) -> None:
        self._learner = learner
        self._phases: list[PhaseRecord] = []

    def mark(self) -> None:
        self._phases.append(self._learner.last_phase)

    def record(self) -> Record:
        return Record(self._learner.constants, tuple(self._phases), self._learner.open_phase)


@final
class _Ledger:
    """Counts what a run costs."""

    def __init__(self, learner: Learner, collector: Collector, recorder: _Recorder | None) -> None:
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
