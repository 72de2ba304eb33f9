"""The loop: ask, collect, tell, with budget, callbacks, stopping rules and checkpoints.

`Agent`, the command line and the audit call `run`; a user may too. Only the learner decides what is asked, and only the
collector plays. One BLAS thread throughout, because bits depend on their number.
"""

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from os import PathLike
from typing import Any, cast, final

from threadpoolctl import threadpool_limits

from s4q.core.messages import MOST_STEPS, Asks, Collector, Evaluate, Learner, Request
from s4q.core.validation import require_count, require_flag, require_positive
from s4q.running.accounting import Accounting, Run
from s4q.running.callbacks import Callback, HearsInterruptions, Listener, listeners
from s4q.running.checkpoint import Autosave, Checkpoint, CheckpointWriter, where_to_begin
from s4q.running.executors.executor import Executor, Serial, Session, require_executor
from s4q.running.file_locks import locked
from s4q.running.interruption import ended_by_exception, interruption_held_back
from s4q.running.live_progress import show_progress
from s4q.running.logs import JsonLines


def run(
    learner: Learner | Checkpoint,
    collector: Collector,
    episodes: int,
    *,
    stop: Callable[[Run], bool] | None = None,
    stop_when_gap: float | None = None,
    evaluation_share: float | None = None,
    callback: Callback | Iterable[Callback] | None = None,
    record: bool = False,
    checkpoint: str | PathLike[str] | Autosave | None = None,
    progress_bar: bool = False,
    max_steps: int | None = None,
    executor: Executor | None = None,
    warm_up: tuple[int, int] = (0, 0),
) -> Run:
    """Let a learner learn from a collector for a number of episodes. Call it again, with the same collector, to go on.

    A Run counts its own episodes, from 0, while its phases are the learner's. Going on after `stop` gives the bits of a
    run that never stopped; going on after a budget that ended inside a shard has the same law. An interrupted run goes
    on with `run(s4q.load(path), collector, episodes, checkpoint=path)`. There `episodes` counts the whole run, and with
    the same number the result is bit-identical to that of an uninterrupted run.

    Ctrl-C, SIGTERM and SIGHUP never leave half an update behind. With a checkpoint, all three end the run with a last
    one. The files that a run writes are locked: a second run on one of them is refused, in whatever process.

    Args:
        learner: S3Q, S4Q or any learner; or a Checkpoint, to finish an interrupted run.
        collector: The collector that plays the episodes.
        episodes: The most episodes to play, evaluations included.
        stop: Function of the Run so far, called after each shard; True ends the run. None (default): no such rule.
        stop_when_gap: End the run once its certificate proves that `Run.certificate.policy` is at most this far from
            the best. Needs an S4Q with a preset that proves optimism. None (default): no certificate is needed.
        evaluation_share: Share, in [0, 1), of all episodes that play the policy of the newest phase for the lower bound
            of the certificate. Nothing is learned from them; they count in `episodes` and in the regret. None
            (default): 0, or the share of the interrupted run.
        callback: Function of the Run so far, called whenever a phase (for S3Q an epoch) is finished; or a Listener such
            as JsonLines, which is told of requests too; or a list of them. None (default): nobody is told.
        record: True keeps each phase's fit, Gram matrix and Sigma_ref in `Run.record`, for an audit (S4Q only).
        checkpoint: File to write at the beginning, after every phase, every 5 minutes and at the end; or an Autosave,
            with an interval of its own. A file of another run is refused, not written over. None (default): nothing is
            written.
        progress_bar: True shows on standard error how far the run has come: live on a terminal, elsewhere a line when
            a phase ends, at most one a second.
        max_steps: End the run also after so many steps, with the episode in which they are reached. None (default): no
            such limit, or that of the interrupted run.
        executor: Who plays the episodes: `s4q.Processes(n)` or `s4q.Ray()`. It changes no bit of the result. None
            (default): they are played here, one after the other.
        warm_up: Episodes and steps that were played before, to be counted in `episodes` and in the Run. `Agent` passes
            those that measured ranges. Default: none. Ignored for a Checkpoint, which has counted them.

    Returns:
        What was learned and what it cost.

    >>> import s4q
    >>> mdp = s4q.problems.low_rank()
    >>> learner = s4q.S3Q(mdp, controller=s4q.UniformPolicy(mdp.n_actions))
    >>> result = run(learner, s4q.collectors.EpisodeCollector(mdp, seed=0), episodes=200)
    >>> result.episodes, result.phases, bool(abs(mdp.q_values(result.q) - mdp.q_star).max() < 0.3)
    (200, 5, True)
    """
    require_count("episodes", episodes, "the number of episodes to play")
    require_flag("record", record, "True keeps the phases for an audit")
    _require_roles(learner, collector, stop)
    chosen = Serial() if executor is None else executor
    require_executor(chosen)
    if stop_when_gap is not None:
        require_positive("stop_when_gap", stop_when_gap, "the largest gap that is allowed, in the units of the rewards")
    _require_share(evaluation_share)
    if max_steps is not None:
        require_count("max_steps", max_steps, "the number of steps to play")
    active, before = where_to_begin(
        learner, collector.seed, int(episodes), record, evaluation_share, max_steps, warm_up
    )
    if before.max_steps is not None and before.evaluation_share:
        raise ValueError("evaluation_share is a share of a number of episodes; it cannot be used with a limit on steps")
    _require_one_problem(active, collector, int(episodes))
    needed = "stop_when_gap" if stop_when_gap is not None else "evaluation_share" if before.evaluation_share else None
    _require_phases(active, needed, record=before.record is not None)
    _require_gap(active, stop_when_gap)
    resumed = isinstance(learner, Checkpoint) and learner.begun
    accounting = Accounting(active, collector, before, certify=needed is not None, resumed=resumed)
    told, writer = listeners(callback), CheckpointWriter(checkpoint, active, collector.seed)

    def close_enough() -> bool:
        return stop_when_gap is not None and accounting.certified_gap() <= stop_when_gap

    def enough() -> bool:
        return (stop is not None and stop(accounting.result())) or close_enough()

    logs = [one.path for one in told if isinstance(one, JsonLines)]
    with (
        locked(logs if writer.path is None else [writer.path, *logs]),
        ended_by_exception() if writer.path is not None else nullcontext(),
        threadpool_limits(limits=1),
        chosen.session(collector) as session,
        show_progress(accounting.live_numbers, progress_bar) as advance,
    ):
        writer.require_own()
        accounting.elsewhere = session.cost
        whole = Whole()
        try:
            # Before anything is logged: a run killed at once is resumed, not begun again.
            _write(writer, accounting)
            for one in told:
                one.on_start(accounting.result())
            over = resumed and close_enough()  # a run that ended by its certificate has nothing left to play
            while not over and accounting.left > 0 and _one_shard(active, session, accounting, told, writer, whole):
                advance()
                if enough():
                    break
            accounting.end()
            _write(writer, accounting)
            for one in told:
                one.on_end(accounting.result())
        except BaseException:
            if whole.is_so:
                _write(writer, accounting)
                for one in told:
                    if isinstance(one, HearsInterruptions):
                        one.on_interrupted(accounting.result(), accounting.progress())
            raise
        return accounting.result()


@final
@dataclass(slots=True)
class Whole:
    """Whether learner and accounting agree. After an update that failed they do not, and must not be saved."""

    is_so: bool = True


def _write(writer: CheckpointWriter, accounting: Accounting) -> None:
    """Write a checkpoint, which no signal cuts short."""
    if writer.path is None:
        return
    with interruption_held_back() as interruption:
        writer.write(accounting.progress())
    interruption.deliver()


def _one_shard(
    learner: Learner,
    session: Session,
    accounting: Accounting,
    told: tuple[Listener, ...],
    writer: CheckpointWriter,
    whole: Whole,
) -> bool:
    """Ask, collect, tell; count, announce, save. False when the learner asks for nothing more."""
    # An evaluation goes first where one is due. The learner leaves room for those to come.
    evaluations = accounting.evaluations
    request = evaluations.ask(accounting.learned) or learner.ask(accounting.left - evaluations.reserved())
    if request is None:
        return False
    # The learner adds shards one by one, so its sums do not depend on where a run pauses. If this is interrupted, it is
    # as before the shard. A request of any kind: the answer is of the kind that belongs to it.
    answer = session.play(cast(Asks[Any], request))
    phases = learner.phases
    with interruption_held_back() as interruption:
        whole.is_so = False
        if not isinstance(request, Evaluate):
            learner.tell(request, answer)
        accounting.charge(request, answer)
        phase_over = learner.phases > phases
        if phase_over:
            accounting.mark(request)
        whole.is_so = True
        request_over = bool(told) and _is_over(request, learner)

        def announce(listener: Listener) -> None:
            if request_over:
                listener.on_request(accounting.answered(request, answer))
            if phase_over:
                listener.on_phase(accounting.result())

        # A log is written at once, so that it has every line up to the checkpoint that a signal leaves behind. Other
        # listeners may take long, so they can be interrupted.
        for one in told:
            if isinstance(one, JsonLines):
                announce(one)
    for one in told:
        if not isinstance(one, JsonLines):
            announce(one)
    if phase_over or writer.due or interruption.came:
        _write(writer, accounting)
    interruption.deliver()
    return True


def _is_over(request: Request, learner: Learner) -> bool:
    """True if a request is answered in full; of an evaluation, each shard counts as a request."""
    if isinstance(request, Evaluate):
        return True
    following = learner.ask(1)  # pure: it shows whether another request is next
    return following is None or following.id != request.id


def _require_roles(learner: object, collector: object, stop: object) -> None:
    for name, thing, method in (("learner", learner, "ask"), ("collector", collector, "play")):
        ready = callable(getattr(thing, method, None)) or isinstance(thing, Checkpoint)
        if not ready or isinstance(thing, type):
            raise ValueError(f"{name} must be a {name}, with a method `{method}`; got {thing!r}")
    if not (stop is None or callable(stop)):
        raise ValueError(f"stop must be a function of a Run, or None; got {stop!r}")


def _require_share(share: object) -> None:
    if share is not None and not (isinstance(share, (int, float)) and 0 <= share < 1):
        raise ValueError(f"evaluation_share is a share of all episodes, so it must lie in [0, 1); got {share!r}")


def _require_phases(learner: Any, needed: str | None, *, record: bool) -> None:
    """Refuse certificates and records where the learner has no phases to make them from."""
    if hasattr(learner, "last_phase"):
        return
    if needed is not None:
        raise ValueError(f"{needed} needs the certificates of an S4Q; {type(learner).__name__} has none")
    if record:
        raise ValueError(f"record=True keeps the phases of an S4Q; {type(learner).__name__} has none")


def _require_gap(learner: Any, gap: float | None) -> None:
    """Refuse a gap that no policy can exceed, because it would end the run at once."""
    bound = None if gap is None else learner.constants.spec.value_bound[0]
    if gap is not None and bound is not None and gap >= bound:
        raise ValueError(
            f"stop_when_gap is {gap:g}, but no gap can exceed {bound:g}, as far as returns can lie apart; ask for a "
            "smaller gap"
        )


def _require_one_problem(learner: Learner, collector: Collector, episodes: int) -> None:
    """Sizes and the reward range of learner and collector must agree; bounds may differ on purpose."""
    most = MOST_STEPS // learner.spec.horizon
    if episodes > most:
        steps = f"{most} episodes of {learner.spec.horizon} steps"
        raise ValueError(f"episodes are counted in 64 bits, so at most {steps}; got {episodes}, pass fewer")
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
