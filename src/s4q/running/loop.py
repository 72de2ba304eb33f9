"""The loop: ask, collect, tell. Budget, callbacks, stopping, checkpoints; one BLAS thread throughout."""

from collections.abc import Callable, Iterable
from os import PathLike
from typing import Any, cast

from threadpoolctl import threadpool_limits

from s4q.certificates.certifier import refusal
from s4q.core.messages import MOST_STEPS, A, Asks, Collector, Evaluate, Explore, Learner, Regress, Request
from s4q.core.validation import require_count, require_flag, require_positive
from s4q.running.accounting import Ledger, Recorder, Run, Watch
from s4q.running.callbacks import Callback, Listener, listeners
from s4q.running.checkpoint import Autosave, Checkpoint, Keeper, as_autosave, where_to_begin
from s4q.running.evaluations import Evaluations, Schedule
from s4q.running.interruption import interruption_held_back
from s4q.running.progress import Progress
from s4q.running.progress_bar import episode_bar


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
) -> Run:
    """Let the learner learn for at most this many episodes; call again, with the same collector, to go on.

    stop: called with the Run so far after each shard; True ends the run. stop_when_gap: end the run once its
    certificate proves that `Run.certificate.policy` is at most this far from the best (S4Q with a preset that proves
    optimism; refused else). evaluation_share: this share of all episodes plays the policy of the newest phase for the
    lower bound of the certificate, and nothing is learned from them; None: 0, or what an interrupted run had. They
    count in `episodes` and in the regret. callback: a function, called with the Run so far whenever a phase (for S3Q
    an epoch) is finished; or a Listener such as JsonLines, told of requests too; or a list of them. record: keep each
    phase's fit, Gram matrix and Sigma_ref in `Run.record`, for an audit (S4Q only). progress_bar: on a terminal only.
    checkpoint: a file to write at the beginning, after every phase, every 5 minutes (or as Autosave says), at the end.

    A Run counts its own episodes, from 0, while its phases are the learner's. Going on after `stop` gives the bits of
    never having stopped; going on after a budget that ended inside a shard has the same law. A run that was
    interrupted goes on with `run(s4q.load(path), collector, episodes, checkpoint=path)`: `episodes` counts the whole
    run, and with the same number the result has the bits of a run that never stopped.

    >>> import s4q
    >>> mdp = s4q.problems.low_rank()
    >>> learner = s4q.S3Q(mdp, controller=s4q.UniformPolicy(mdp.n_actions))
    >>> result = run(learner, s4q.collectors.EpisodeCollector(mdp, seed=0), episodes=200)
    >>> result.episodes, result.phases, bool(abs(mdp.q_values(result.q) - mdp.q_star).max() < 0.3)
    (200, 5, True)
    """
    require_count("episodes", episodes, "the number of episodes to play")
    require_flag("record", record, "are phases to be kept?")
    _require_roles(learner, collector, stop)
    if stop_when_gap is not None:
        require_positive("stop_when_gap", stop_when_gap, "the largest gap to put up with, in the units of the rewards")
    _require_share(evaluation_share)
    active, before = where_to_begin(learner, collector.seed, int(episodes), record, evaluation_share)
    _require_one_problem(active, collector, int(episodes))
    needed = "stop_when_gap" if stop_when_gap is not None else "evaluation_share" if before.evaluation_share else None
    _require_certificates(active, needed)
    _require_gap(active, stop_when_gap)
    evaluations = _evaluations(active, before)
    recorder = _recorder(active, before, evaluations)
    watch = _watch(active, before, evaluations, needed=needed is not None, wanted=recorder is not None)
    resumed = isinstance(learner, Checkpoint) and learner.begun
    told, ledger = listeners(callback), Ledger(active, collector, before, recorder, watch, evaluations, resumed=resumed)
    keeper = None if checkpoint is None else Keeper(as_autosave(checkpoint), active, collector.seed)

    def enough() -> bool:
        return (stop is not None and stop(ledger.result())) or (
            stop_when_gap is not None and ledger.certified_gap() <= stop_when_gap
        )

    with threadpool_limits(limits=1), episode_bar(int(episodes), progress_bar) as advance:
        if keeper is not None:  # before anything is logged: a run killed at once is resumed, not begun again
            keeper.write(ledger.progress())
        for one in told:
            one.on_start(ledger.result())
        while ledger.episodes < episodes and _one_shard(active, collector, evaluations, ledger, told, keeper):
            advance(ledger.episodes, ledger.note())
            if enough():
                break
        if keeper is not None:
            keeper.write(ledger.progress())
        for one in told:
            one.on_end(ledger.result())
        return ledger.result()


def _one_shard(
    learner: Learner,
    collector: Collector,
    evaluations: Evaluations | None,
    ledger: Ledger,
    told: tuple[Listener, ...],
    keeper: Keeper | None,
) -> bool:
    """Ask, collect, tell; count, announce, save. False when the learner asks for nothing more."""
    request = _next_request(learner, evaluations, ledger)
    if request is None:
        return False
    # A request of any kind: the answer is of the kind that belongs to it.
    answer = _play(collector, cast(Asks[Any], request), ledger, keeper)
    phases = learner.phases
    with interruption_held_back() as interruption:
        if not isinstance(request, Evaluate):
            learner.tell(request, answer)
        ledger.charge(request, answer)
        phase_over = learner.phases > phases
        if phase_over:
            ledger.mark(request)
    if isinstance(request, Evaluate):
        for one in told:
            one.on_request(ledger.evaluated(request, answer))
    elif told:
        _announce(told, learner, request, ledger, phase_over)
    if keeper is not None and (phase_over or keeper.due or interruption.came):
        keeper.write(ledger.progress())
    interruption.deliver()
    return True


def _next_request(learner: Learner, evaluations: Evaluations | None, ledger: Ledger) -> Request | None:
    """The evaluation that is due, or else what the learner asks, which leaves room for the evaluations to come."""
    if evaluations is None:
        return learner.ask(ledger.left)
    return evaluations.ask(ledger.learned) or learner.ask(ledger.left - evaluations.reserved())


def _play(collector: Collector, request: Asks[A], ledger: Ledger, keeper: Keeper | None) -> A:
    """The answer of one shard. One a time: the learner adds them up, so where a run pauses leaves no trace in the sums.

    When the collector fails, or is interrupted, the learner stands as before the shard, and that is saved.
    """
    try:
        shard = next(iter(collector.shards(cast(Request, request))))
        return collector.play(request, shard, request.start() if isinstance(request, Explore) else None)
    except BaseException:
        if keeper is not None:
            keeper.write(ledger.progress())
        raise


def _announce(
    told: Iterable[Listener], learner: Learner, request: Explore | Regress, ledger: Ledger, phase_over: bool
) -> None:
    """Tell of a request that is done (`ask` is pure: it shows whether another one is next) and of a finished phase."""
    following = learner.ask(1)
    if following is None or following.id != request.id:
        for one in told:
            one.on_request(ledger.answered(request))
    if phase_over:
        for one in told:
            one.on_phase(ledger.result())


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


def _require_certificates(learner: Any, what: str | None) -> None:
    """What needs certificates is refused where the learner cannot have any."""
    if what is not None and not hasattr(learner, "last_phase"):
        raise ValueError(f"{what} needs the certificates of an S4Q; {type(learner).__name__} has none")


def _require_gap(learner: Any, gap: float | None) -> None:
    """A gap that no policy can exceed would end the run at once, with a certificate that says nothing."""
    bound = None if gap is None else learner.constants.spec.value_bound[0]
    if gap is not None and bound is not None and gap >= bound:
        raise ValueError(
            f"stop_when_gap is {gap:g}, but no gap can exceed the value_bound of {bound:g} (of rewards shifted to "
            "start at 0); ask for a smaller gap"
        )


def _evaluations(learner: Any, before: Progress) -> Evaluations | None:
    if not before.evaluation_share:
        return None
    return Evaluations(
        learner,
        Schedule(before.evaluation_share, before.budget),
        before.episodes - before.evaluation_episodes,
        before.evaluation_episodes,
        before.evaluations,
        keep_all=before.record is not None,
    )


def _recorder(learner: Learner, before: Progress, evaluations: Evaluations | None) -> Recorder | None:
    if before.record is None:
        return None
    if not hasattr(learner, "last_phase"):
        raise ValueError(f"record=True keeps the phases of an S4Q; {type(learner).__name__} has none")
    return Recorder(learner, before.record, before.fits, evaluations)


def _watch(
    learner: Any, before: Progress, evaluations: Evaluations | None, *, needed: bool, wanted: bool
) -> Watch | None:
    """Certificates along the way; refused when they are needed and nothing is proved."""
    if needed or (wanted and refusal(learner.constants) is None):
        return Watch(learner, evaluations, before.certified)
    return None


def _require_one_problem(learner: Learner, collector: Collector, episodes: int) -> None:
    """Bounds may be declared differently on purpose; sizes and the reward range may not."""
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
