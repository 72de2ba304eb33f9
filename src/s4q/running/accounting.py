"""The accounting of a run: what it returns (Run) and how that is counted (Accounting).

The loop charges every answer to the Accounting. Regret is exact, and charges every episode of every policy played.
Nothing here plays episodes or tells a learner anything.
"""

import time
from dataclasses import asdict, dataclass, fields, replace
from importlib import import_module
from math import inf, isfinite
from typing import TYPE_CHECKING, Any, Literal, final

import numpy as np

from s4q.certificates.certifier import Certificate, Certified, Certifier, Phased, refusal
from s4q.collectors.finite.counts import CountCollector
from s4q.core.identity_cache import IdentityCache
from s4q.core.linear_q import LinearQ
from s4q.core.messages import Collector, Evaluate, Explore, Policy, Regress, Request, Returns, Visits
from s4q.learners.fit_record import add_answer
from s4q.learners.learning_progress import LearningProgress
from s4q.learners.main_loop import PhaseRecord, Record
from s4q.problems import FiniteMDP
from s4q.running.curve import Played, Point, Totals
from s4q.running.evaluations import Evaluations
from s4q.running.executors.executor import Cost
from s4q.running.live_progress import LiveNumbers
from s4q.running.progress import Progress

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_POINT = tuple(one.name for one in fields(Point))  # a Run has them too


@final
@dataclass(frozen=True, eq=False, slots=True, repr=False, kw_only=True)
class Run(Totals):
    """What a run learned and what it cost, in the user's units. `run` makes it.

    Attributes:
        episodes: Episodes played, the sum of the next four.
        main_episodes: Episodes of main loops, in which new policies are tried.
        replay_episodes: Episodes of regressions; for S4Q the price of bounded memory.
        evaluation_episodes: Episodes of evaluations, from which nothing is learned.
        discarded_episodes: Episodes that an executor played ahead and nobody used, in none of the numbers above. How
            many there are depends on the executor, and nothing else does.
        warm_up_episodes: Episodes of random actions that measured the ranges of observations, where those were open.
        truncated_episodes: Episodes of main loops that were cut before their horizon.
        steps: Steps played.
        phases: Phases (for S3Q epochs) that the learner has finished.
        regret: Exact regret of all episodes. None where the problem is not a FiniteMDP.
        gap: v_star minus the value of the newest policy. None where the problem is not a FiniteMDP.
        optimistic_value: The learner's value of the start. Elsewhere than on a FiniteMDP: the mean over the starts that
            the newest phase saw, and None before its first episode.
        nbytes: Bytes held by the learner.
        cpu_seconds: CPU time, of all parts of a resumed run and of the workers of an executor.
        mean_return: Mean return of main-loop episodes that were not cut. None where there were none.
        mean_length: Mean length of main-loop episodes, in steps, those that were cut included.
        curve: A point per finished phase, and one for the end.
        policy: The newest policy.
        best: The policy to deploy: an S4Q's best by its own returns, else the newest.
        q: The newest Q.
        record: All phases, for an audit, with record=True. Else None.
        certificate: With stop_when_gap or an evaluation_share, or with record=True if the preset proves optimism. Else
            None.
        resumed: True if the run went on from a checkpoint.
        name: A digest of seed, budget and settings, the same for a run and its resumption.
        promise: What the newest policies promised at the start of an episode, to be compared with what they got. None
            where it is not known.
        share_seen: Share of the directions of the features that were seen, 0 to 1. None but for S4Q.
        best_return: Mean return of the best policy so far, by its own episodes. None but for S4Q.
        logged_steps: Steps that `learn_from` took before the first episode. They are no part of the other counts.
    """

    curve: tuple[Point, ...]
    policy: Policy
    best: Policy
    q: LinearQ
    record: Record | None = None
    certificate: Certificate | None = None
    resumed: bool = False
    name: str = ""
    logged_steps: int = 0

    def to_dataframe(self) -> Any:
        """The curve as a pandas DataFrame: a row per point, a column per number. Needs pandas.

        A column is there for every field of a point; where a number is not known, as the regret of an environment, it
        is missing (NaN).
        """
        try:
            pandas = import_module("pandas")
        except ImportError:
            raise ImportError('to_dataframe needs pandas; install it with: pip install "s4q[pandas]"') from None
        rows = [asdict(point) for point in self.curve]
        table = pandas.DataFrame(rows, columns=[one.name for one in fields(Point)])
        maybe = [one.name for one in fields(Point) if one.default is None or "None" in str(one.type)]
        return table.astype(dict.fromkeys(maybe, float))

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Return and promise of every phase against episodes; needs `pip install "s4q[report]"`.

        Args:
            ax: The Axes to draw on. None (default): new ones; `ax.figure.savefig(path)` writes them.
        """
        from s4q.report.run_plots import plot_run

        return plot_run(self, ax)

    def __repr__(self) -> str:
        shown = ("episodes", "phases", "regret", "gap", "mean_return", "nbytes", "cpu_seconds")
        known = {name: getattr(self, name) for name in shown if getattr(self, name) is not None}
        known |= {"logged_steps": self.logged_steps} if self.logged_steps else {}
        return f"Run({', '.join(f'{name}={value:.6g}' for name, value in known.items())})"


@final
@dataclass(frozen=True, slots=True)
class Answered:
    """A request that has been answered in full, or a shard of an evaluation."""

    id: int
    kind: Literal["explore", "regress", "evaluate"]
    level: int | None  # of a regression
    n_episodes: int  # episodes this request needed
    n_steps: int
    episodes: int  # of the run so far
    phases: int  # that the learner has finished


def share_of_phase(request: Explore, answer: Visits) -> tuple[float, ...]:
    """How much of what ends the phase each level has after an answer, 1 being all.

    A phase ends when a level has reached the threshold and as many episodes were played as are asked for at least.
    """
    n_episodes = request.done + answer.n_episodes
    threshold = request.threshold_at(max(n_episodes, request.at_least))
    if threshold <= 0:  # any episode reaches it
        return (min(n_episodes / request.at_least, 1.0),) * len(request.whitener)
    shares = (request.start() + answer.progress) / threshold
    return tuple(np.minimum(shares, n_episodes / request.at_least).tolist())


@final
class Recorder:
    """Keeps the phases of an S4Q, and the answers to their fits."""

    def __init__(self, learner: Any, before: Progress, evaluations: Evaluations) -> None:
        self._learner, self._evaluations = learner, evaluations
        self.phases, self.fits = list(before.record or ()), list(before.fits)
        self._before = learner.phases  # finished before the answer that comes next

    def add(self, request: Request, answer: Any) -> None:
        """Keep the answer to a fit."""
        if isinstance(request, Regress):  # an S3Q call prepares the phase after the last finished one
            add_answer(self.fits, self._before + 1, [phase.q for phase in self.phases], request, answer)

    def mark(self) -> None:
        """Keep the phase that has just finished."""
        self.phases.append(self._learner.last_phase)
        self._before = self._learner.phases

    def record(self) -> Record:
        """All phases, answers and evaluations so far."""
        evaluations, constants, running = self._evaluations.by_phase, self._learner.constants, self._learner.open_phase
        return Record(constants, tuple(self.phases), running, dict(evaluations), tuple(self.fits))


@final
class PhaseCertifier:
    """Certifies an S4Q phase by phase.

    A phase is closed when the next one has its policy, because until then its policy may still be evaluated.
    """

    def __init__(self, learner: Phased, evaluations: Evaluations, before: Certified | None = None) -> None:
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
        """Look at the learner after it was told an answer."""
        newest = self._newest
        if newest is not None and newest.phase > self._phase:
            self._close()
            self._phase = newest.phase

    def _close(self) -> None:
        last = self._learner.last_phase
        if last is not None:
            self._certifier.add(last, self._evaluated(last))

    def _evaluated(self, phase: PhaseRecord) -> Returns | None:
        return self._evaluations.by_phase.get(phase.phase)

    @property
    def certified(self) -> Certified:
        """What a checkpoint keeps of it."""
        return self._certifier.certified

    def certificate(self) -> Certificate:
        """The certificate so far."""
        newest = self._newest
        return self._certifier.certificate(newest, None if newest is None else self._evaluated(newest))


@final
class Accounting:
    """Counts what a run costs, and goes on from the progress of an earlier one.

    Args:
        learner: The learner of the run.
        collector: Its collector; regret is known if it plays a FiniteMDP.
        before: How far the run has come.
        certify: True if certificates are needed. Else they are made for a record where the preset proves optimism.
        resumed: True if the run goes on from a checkpoint.
    """

    def __init__(
        self,
        learner: Any,
        collector: Collector,
        before: Progress,
        *,
        certify: bool,
        resumed: bool = False,
    ) -> None:
        self.elsewhere = Cost()  # what the executor of the run costs
        self._learner, self._resumed = learner, resumed
        self._doing = ""  # what is being played
        self._trigger: tuple[float, ...] = ()  # how far each level of the running phase has come
        self._so_far = replace(before)  # a copy: it is changed in place
        self.evaluations = Evaluations(learner, before)
        self._recorder = None if before.record is None else Recorder(learner, before, self.evaluations)
        proved = self._recorder is not None and refusal(learner.constants) is None
        self._certifier = PhaseCertifier(learner, self.evaluations, before.certified) if certify or proved else None
        self._by_counts = isinstance(collector, CountCollector)
        mdp = getattr(collector, "mdp", None)
        self._mdp: FiniteMDP | None = mdp if isinstance(mdp, FiniteMDP) else None
        self._gap: IdentityCache[Policy, float] = IdentityCache(self._gap_of, size=4096)
        self._cpu_start = time.process_time() - before.cpu_seconds

    def charge(self, request: Request, answer: Any) -> None:
        """Add an answer to the totals. Each episode is charged the gap of the policy that played it."""
        now = self._so_far
        now.episodes += answer.n_episodes
        now.steps += answer.n_steps
        self._watch(request, answer)
        if isinstance(request, Evaluate):  # may come between two parts of another request
            self.evaluations.tell(answer)
        else:
            now.request_episodes = answer.n_episodes + (now.request_episodes if request.done else 0)
            now.request_steps = answer.n_steps + (now.request_steps if request.done else 0)
        if self._certifier is not None:
            self._certifier.update()
        if isinstance(request, Explore):
            now.played, now.phase_played = now.played.with_answer(answer), now.phase_played.with_answer(answer)
        if self._recorder is not None:
            self._recorder.add(request, answer)
        if self._mdp is None:
            return
        if isinstance(request, Regress):
            for policy, n in zip(request.mixture.policies, answer.episodes_per_policy.tolist(), strict=True):
                now.regret += n * self._gap(policy) if n else 0.0
        else:
            now.regret += answer.n_episodes * self._gap(request.policy)

    def mark(self, request: Request) -> None:
        """Add a point to the curve: the phase that just ended, with the policy it played."""
        policy = request.policy if isinstance(request, Explore) else self._learner.policy
        self._so_far.points += (self._point(policy, getattr(self._learner, "last_phase", None)),)
        self._so_far.phase_played = Played()
        self._trigger = tuple(0.0 for _ in self._trigger)  # of the phase that begins
        if self._recorder is not None:
            self._recorder.mark()

    def end(self) -> None:
        """Note that the run came to its end: nothing is left to play, or a rule stopped it."""
        self._so_far.over = True

    def certified_gap(self) -> float:
        """The gap of the certificate so far."""
        return inf if self._certifier is None else self._certifier.certificate().gap

    def live_numbers(self) -> LiveNumbers:
        """How far it is, for those who watch; of learners that cannot tell, the return of the newest phase."""
        now, learner = self._so_far, self._learner
        known = getattr(learner, "progress", None)
        far = known if isinstance(known, LearningProgress) else None
        newest = now.points[-1].mean_return if now.points else now.phase_played.mean_return(learner.spec)
        gap = self.certified_gap()
        return LiveNumbers(
            phases=learner.phases,
            doing=self._doing,
            stage="" if far is None or not far.episodes else far.stage,
            episodes=now.episodes,
            budget=now.budget,
            steps=now.steps,
            max_steps=now.max_steps,
            promise=None if far is None else far.promise,
            mean_return=newest if far is None else far.mean_return,
            best_return=None if far is None else far.best_return,
            share_seen=None if far is None else far.share_seen,
            certified_gap=gap if isfinite(gap) else None,
            trigger=self._trigger,
            nbytes=learner.nbytes,
            by_counts=self._by_counts,
        )

    def _watch(self, request: Request, answer: Any) -> None:
        """Remember what is being played, and how far the trigger of the phase has come."""
        if isinstance(request, Evaluate):
            self._doing = "evaluating"
        elif isinstance(request, Regress):
            self._doing, self._trigger = f"replaying past policies for level {request.level}", ()
        else:
            self._doing = "playing its policy"
            self._trigger = share_of_phase(request, answer)

    @property
    def episodes(self) -> int:
        """Episodes played so far."""
        return self._so_far.episodes

    @property
    def left(self) -> int:
        """Episodes of the budget that are left.

        Where steps are limited, as many as surely fit into what is left of them, and one at least. So the limit is
        exceeded by less than an episode.
        """
        now = self._so_far
        episodes = now.budget - now.episodes
        if now.max_steps is None or episodes <= 0:
            return episodes
        steps = now.max_steps - now.steps
        return min(episodes, max(steps // self._learner.spec.horizon, 1)) if steps > 0 else 0

    @property
    def learned(self) -> int:
        """Episodes that the learner asked for."""
        return self.episodes - self.evaluations.n_episodes - self._so_far.warm_up_episodes

    def answered(self, request: Request, answer: Any) -> Answered:
        """What listeners are told of a request that is answered in full, or of a shard of an evaluation."""
        now, level = self._so_far, None
        kind: Literal["explore", "regress", "evaluate"] = "explore"
        n_episodes, n_steps = now.request_episodes, now.request_steps
        if isinstance(request, Evaluate):
            kind, n_episodes, n_steps = "evaluate", answer.n_episodes, answer.n_steps
        elif isinstance(request, Regress):
            kind, level = "regress", request.level
        return Answered(request.id, kind, level, n_episodes, n_steps, now.episodes, self._learner.phases)

    def progress(self) -> Progress:
        """How far the run has come, for a checkpoint."""
        recorder, certifier = self._recorder, self._certifier
        return replace(
            self._so_far,
            cpu_seconds=self._cpu_seconds(),
            discarded_episodes=self._discarded(),
            record=None if recorder is None else tuple(recorder.phases),
            fits=() if recorder is None else tuple(recorder.fits),
            certified=None if certifier is None else certifier.certified,
            evaluation_episodes=self.evaluations.n_episodes,
            evaluations=dict(self.evaluations.by_phase),
        )

    def result(self) -> Run:
        """The run so far."""
        newest = getattr(self._learner, "open_phase", None) or getattr(self._learner, "last_phase", None)
        now, played = self._point(self._learner.policy, newest), self._so_far.played
        whole = {"mean_return": played.mean_return(self._learner.spec), "mean_length": played.mean_length}
        return Run(
            **{**{name: getattr(now, name) for name in _POINT}, **whole},
            curve=(*self._so_far.points, now),
            policy=self._learner.policy,
            best=getattr(self._learner, "best", self._learner.policy),
            q=self._learner.q,
            record=None if self._recorder is None else self._recorder.record(),
            certificate=None if self._certifier is None else self._certifier.certificate(),
            resumed=self._resumed,
            name=self._so_far.name,
            logged_steps=getattr(self._learner, "n_logged", 0),
        )

    def _point(self, policy: Policy, phase: PhaseRecord | None) -> Point:
        now, mdp, evaluated = self._so_far, self._mdp, self.evaluations.n_episodes
        progress = getattr(self._learner, "progress", None)
        far = progress if isinstance(progress, LearningProgress) else None
        return Point(
            episodes=now.episodes,
            main_episodes=now.played.episodes,
            replay_episodes=now.episodes - now.played.episodes - evaluated - now.warm_up_episodes,
            evaluation_episodes=evaluated,
            discarded_episodes=self._discarded(),
            warm_up_episodes=now.warm_up_episodes,
            truncated_episodes=now.played.truncated,
            steps=now.steps,
            phases=self._learner.phases,
            regret=None if mdp is None else now.regret,
            gap=None if mdp is None else self._gap(policy),
            optimistic_value=self._seen_promise() if mdp is None else self._start_value(policy, mdp),
            nbytes=self._learner.nbytes,
            cpu_seconds=self._cpu_seconds(),
            mean_return=now.phase_played.mean_return(self._learner.spec),
            mean_length=now.phase_played.mean_length,
            promise=None if phase is None else phase.promise(self._learner.spec),
            share_seen=None if far is None else far.share_seen,
            best_return=None if far is None else far.best_return,
        )

    def _cpu_seconds(self) -> float:
        return time.process_time() - self._cpu_start + self.elsewhere.cpu_seconds

    def _discarded(self) -> int:
        return self._so_far.discarded_episodes + self.elsewhere.discarded_episodes

    def _start_value(self, policy: Policy, mdp: FiniteMDP) -> float:
        """The learner's value of the start, in the user's units."""
        q = policy if isinstance(policy, LinearQ) else self._learner.q
        return float(mdp.start @ mdp.spec.to_user_units(0, q.value(0, mdp.features.level(0))))

    def _seen_promise(self) -> float | None:
        """What the policy of the newest phase promised at the starts that it saw, in the user's units."""
        running: PhaseRecord | None = getattr(self._learner, "open_phase", None)
        phase: PhaseRecord | None = (
            running if running is not None and running.n_returns else getattr(self._learner, "last_phase", None)
        )
        return None if phase is None else phase.promise(self._learner.spec)

    def _gap_of(self, policy: Policy) -> float:
        if self._mdp is None:
            raise ValueError("regret is exact, so it needs a collector over a FiniteMDP")
        return self._mdp.v_star - self._mdp.value(policy)
