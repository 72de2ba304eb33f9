"""Cells: one run of one learner on one problem with one seed, and what is kept of it.

`play` is what worker processes call. A finite problem is played by an EpisodeCollector, so that its regret is exact; an
environment of Gymnasium by a GymCollector. Gymnasium is imported only where an id is given.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import log
from typing import Any, final

import numpy as np

from s4q.agent import Agent
from s4q.baselines.named_learners import named_learner
from s4q.collectors import EpisodeCollector, GymCollector
from s4q.collectors.stepping.env_facts import spaces_of
from s4q.collectors.stepping.warm_up import EPISODES, random_play
from s4q.comparing.plan import Named
from s4q.core.messages import A, Asks, Collector, Explore, Learner, Regress, Spec
from s4q.core.validation import did_you_mean, finite_array
from s4q.features import Fourier, PerAction
from s4q.features.unmeasured import Unmeasured
from s4q.problems import FiniteMDP, from_gymnasium
from s4q.problems.named_problems import BUILDERS, meant, named_problem
from s4q.running.curve import Point
from s4q.running.loop import run

_CURVE_POINTS = 60  # of a kept curve, evenly spaced in log episodes
_FIRST_POINTS = 10
_ROUNDING = 1e-12  # of a return, an episode
_ENV_SETTINGS = ("horizon", "reward_range", "value_bound", "low", "high", "order", "env_kwargs")


@final
@dataclass(frozen=True)
class Cell:
    """One run."""

    problem: Named
    learner: Named
    seed: int
    episodes: int


@final
@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a run reached and cost.

    Args:
        regret: Exact regret of all episodes, 0 where it is rounding alone; None where the problem is not finite.
        mean_return: Mean return of the episodes whose return is known.
        scored_episodes: Their number. Episodes that replay old policies have no known return, nor those that were cut.
        truncated_episodes: Episodes that were cut before the horizon.
        gap: v_star minus the value of the last policy; None where the problem is not finite.
        phases: Policies that were played to their end.
        steps: Steps played.
        nbytes: Bytes held by the learner at the end.
        cpu_seconds: CPU time of the whole run, that of playing and of exact values included.
        learner_seconds: CPU time of the learner alone.
        curve: Of some moments of the run: episodes, regret, mean return so far, CPU seconds, bytes.
        error: Why the run failed; empty where it did not.
    """

    regret: float | None = None
    mean_return: float | None = None
    scored_episodes: int = 0
    truncated_episodes: int = 0
    gap: float | None = None
    phases: int = 0
    steps: int = 0
    nbytes: int = 0
    cpu_seconds: float = 0.0
    learner_seconds: float = 0.0
    curve: Sequence[Sequence[float | None]] = ()
    error: str = ""


@final
class TimedLearner:
    """A learner whose CPU time is measured. All else is the learner's own."""

    def __init__(self, learner: Learner) -> None:
        self._learner = learner
        self.seconds = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._learner, name)

    def ask(self, max_episodes: int) -> Regress | Explore | None:
        """Ask the learner."""
        before = time.process_time()
        request = self._learner.ask(max_episodes)
        self.seconds += time.process_time() - before
        return request

    def tell(self, request: Asks[A], answer: A) -> None:
        """Tell the learner."""
        before = time.process_time()
        self._learner.tell(request, answer)
        self.seconds += time.process_time() - before


def problem_of(named: Named) -> FiniteMDP | tuple[Any, Any, Spec]:
    """The finite problem, or an environment with its features and its Spec."""
    if named.what in BUILDERS:
        return named_problem(named.what, named.settings)
    for name in named.settings:
        if name not in _ENV_SETTINGS:
            known = ", ".join(_ENV_SETTINGS)
            like = did_you_mean(name, _ENV_SETTINGS)
            raise ValueError(f"settings of an environment are {known}; got {name!r}{like}")
    settings: Mapping[str, Any] = named.settings
    env = _made(named.what, settings.get("env_kwargs", {}))
    reward_range = settings.get("reward_range")
    if isinstance(reward_range, list):
        reward_range = tuple(reward_range)
    bound = settings.get("value_bound")
    own = _features(env, settings)
    try:
        agent = Agent(env, own, horizon=settings.get("horizon"), reward_range=reward_range, value_bound=bound)
    except ValueError as error:
        if "horizon" in settings and "reward_range" in settings:
            raise
        as_here = f"here settings follow the id, as in {named.what}:horizon=20,reward_range=[0, 1]"
        raise ValueError(f"{error}; {as_here}") from None
    if hasattr(env.unwrapped, "P") and hasattr(env.unwrapped, "initial_state_distrib"):
        return from_gymnasium(env, agent.horizon, reward_range=reward_range, value_bound=bound)
    features = agent.features
    if isinstance(features, Unmeasured):
        # Every learner gets the ranges of the same random episodes, which are counted for none of them.
        features, _ = features.measured(random_play(agent.collector, EPISODES)[0])
    return env, features, agent.learner.spec


def _features(env: Any, settings: Mapping[str, Any]) -> PerAction | None:
    """The Fourier basis that the settings ask for; None for the default features of an Agent."""
    given = [name for name in ("low", "high", "order") if name in settings]
    if not given:
        return None
    space, actions = spaces_of(env)
    if not isinstance(getattr(space, "low", None), np.ndarray):
        raise ValueError(
            f"{given[0]} is for a Fourier basis of real numbers, but observations are {space}; leave it out"
        )
    low, high = settings.get("low", space.low), settings.get("high", space.high)
    for name, ends in (("low", low), ("high", high)):
        if name in settings:
            finite_array(name, ends)
        if np.shape(ends) != space.shape:
            shown = f"{name} must have a number for each dimension of an observation, so the shape {space.shape}"
            raise ValueError(f"{shown}; got {ends!r}")
    if not (np.all(np.isfinite(low)) and np.all(np.isfinite(high))):
        raise ValueError(
            "a Fourier basis needs the range of each observation, which the environment does not tell; add low=[...] "
            "and high=[...], a number for each dimension; observations beyond them are clipped"
        )
    fourier = Fourier(low=np.asarray(low), high=np.asarray(high), order=settings.get("order", 3), clip=True)
    return PerAction(fourier, int(actions.n))


def _made(env_id: str, arguments: Any) -> Any:
    if not isinstance(arguments, Mapping):
        raise ValueError(f'env_kwargs must be a table such as {{map_name = "8x8"}}; got {arguments!r}')
    known = f"problem must be one of {', '.join(BUILDERS)}, or the id of a Gymnasium environment"
    try:
        import gymnasium
    except ImportError:
        raise ValueError(f'{known}, which needs pip install "s4q[gym]"; got {env_id!r}') from None
    try:
        return gymnasium.make(env_id, **arguments)
    except Exception as error:  # also those of its own code, such as a missing argument
        if env_id in gymnasium.registry:  # the name is right; an extra or an argument is missing, or is wrong
            raise ValueError(f"{env_id} cannot be made: {error}") from None
        raise ValueError(f"{known}; got {env_id!r}{meant(env_id)} ({error})") from None


def built(cell: Cell) -> tuple[Learner, Collector]:
    """The learner and the collector of a cell. A learner that does not suit the problem is refused here."""
    problem = problem_of(cell.problem)
    learner = named_learner(cell.learner.what)
    if isinstance(problem, FiniteMDP):
        made = learner.build(problem, cell.seed, cell.episodes, cell.learner.settings)
        return made, EpisodeCollector(problem, seed=cell.seed)
    env, features, spec = problem
    made = learner.build(spec, cell.seed, cell.episodes, cell.learner.settings)
    return made, GymCollector(env, features, spec, cell.seed)


def play(cell: Cell) -> Outcome:
    """One run. An error of the run, whatever it is, is an outcome, so that it does not stop the others."""
    try:
        learner, collector = built(cell)
        timed, at_first = TimedLearner(learner), learner.nbytes
        result = run(timed, collector, cell.episodes)
    except Exception as error:
        said = " ".join(str(error).split())
        expected = isinstance(error, (ValueError, ArithmeticError)) and said
        return Outcome(error=said if expected else f"{type(error).__name__}: {said}")
    curve = kept_points(result.curve, at_first)
    return Outcome(
        regret=_without_rounding(result.regret, result.episodes, result.mean_return),
        mean_return=result.mean_return,
        scored_episodes=result.main_episodes - result.truncated_episodes,
        truncated_episodes=result.truncated_episodes,
        gap=_without_rounding(result.gap, 1, result.mean_return),
        phases=result.phases,
        steps=result.steps,
        nbytes=result.nbytes,
        cpu_seconds=result.cpu_seconds,
        learner_seconds=timed.seconds,
        curve=curve,
    )


def rounding_of_regret(episodes: float, mean_return: float | None) -> float:
    """How far exact regrets of so many episodes may differ by rounding alone.

    Args:
        episodes: The episodes.
        mean_return: Their mean return, which tells the size of the values; None if it is not known.
    """
    return _ROUNDING * episodes * max(abs(mean_return or 0.0), 1.0)


def _without_rounding(regret: float | None, episodes: int, mean_return: float | None) -> float | None:
    """A regret that is rounding alone is 0, so that no table or plot makes anything of it."""
    return 0.0 if regret is not None and abs(regret) <= rounding_of_regret(episodes, mean_return) else regret


def kept_points(curve: Sequence[Point], nbytes: int) -> list[list[float | None]]:
    """Episodes, regret, mean return so far, CPU seconds and bytes, at moments spread evenly in log episodes.

    Args:
        curve: The points of a run.
        nbytes: Bytes that the learner held at the beginning.
    """
    kept = _beginning(curve[0], nbytes)
    spacing = log(max(curve[-1].episodes, 2)) / _CURVE_POINTS
    total, scored, last = 0.0, 0, -1.0
    for i, point in enumerate(curve):
        final = i == len(curve) - 1
        known = point.main_episodes - point.truncated_episodes
        if point.mean_return is not None:  # of the episodes since the point before that were not cut
            total += (known - scored) * point.mean_return
            scored = known
        if final or log(max(point.episodes, 1)) >= last + spacing:
            last = log(max(point.episodes, 1))
            mean = total / scored if scored else None
            regret = _without_rounding(point.regret, point.episodes, mean)
            kept.append([point.episodes, regret, mean, point.cpu_seconds, point.nbytes])
    return kept


def _beginning(first: Point, nbytes: int) -> list[list[float | None]]:
    """Points of the first phase, which plays one policy: its regret grows in proportion to its episodes.

    Without them a learner whose policy never changes would have no curve. The bytes lie on a line too. A phase that
    replays old policies has no such points.
    """
    n = first.episodes
    if n == 1 or first.replay_episodes:
        return []
    kept: list[list[float | None]] = []
    for k in np.unique(np.geomspace(1, n, _FIRST_POINTS).round().astype(int))[:-1].tolist():
        share = k / n
        lost = None if first.regret is None else share * first.regret
        regret = _without_rounding(lost, k, first.mean_return)
        held = nbytes + share * (first.nbytes - nbytes)
        kept.append([k, regret, first.mean_return, share * first.cpu_seconds, held])
    return kept


def as_row(cell: Cell, outcome: Outcome) -> dict[str, Any]:
    """A cell and its outcome as plain values."""
    values = asdict(outcome)
    return {
        "problem": cell.problem.name,
        "learner": cell.learner.name,
        "seed": cell.seed,
        "episodes": cell.episodes,
        **values,
    }
