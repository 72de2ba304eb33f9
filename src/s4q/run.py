"""The loop: ask, collect, tell. Budget, callbacks, stopping; one BLAS thread throughout."""

from collections.abc import Callable

from threadpoolctl import threadpool_limits

from s4q.checks import require_count
from s4q.ledger import Ledger, Recorder, Run
from s4q.progress_bar import episode_bar
from s4q.requests import Collector, Explore, Learner


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
    ledger = Ledger(learner, collector, _recorder(learner) if record else None)
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


def _recorder(learner: Learner) -> Recorder:
    if not hasattr(learner, "last_phase"):
        raise ValueError(f"record=True keeps the phases of an S4Q; {type(learner).__name__} has none")
    return Recorder(learner)


def _require_one_problem(learner: Learner, collector: Collector) -> None:
    """Bounds may be declared differently on purpose; sizes and the reward range may not."""
    theirs = getattr(getattr(collector, "mdp", None), "spec", None)
    if theirs is None:
        return
    for name in ("horizon", "n_actions", "n_blocks", "block_dim", "reward_min", "reward_max"):
        mine, other = getattr(learner.spec, name), getattr(theirs, name)
        if mine != other:
            raise ValueError(
                f"learner and collector must be made for one problem, but {name} is {mine} for the learner and {other} "
                "for the collector"
            )
