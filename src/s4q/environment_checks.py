"""check_env: a battery that tries an environment before anything is learned from it.

Users call it; nothing else does. It resets and steps the environment with random actions, and says which of its checks
fail, what was seen and what to do. It asks for what s4q relies on: spaces, a horizon, a reward range, seeds that repeat
an episode, five honest values from every step.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from s4q.collectors.stepping.action_numbers import ActionNumbers
from s4q.collectors.stepping.env_facts import horizon_of, made_env, reward_range_of, spaces_of, time_limit
from s4q.collectors.stepping.facts_of_gymnasium import declared_facts
from s4q.collectors.stepping.observations import lies_in
from s4q.core.messages import FeatureMap
from s4q.core.validation import require_count
from s4q.features import check_features, default_features
from s4q.features.layout import Layout
from s4q.features.spaces import gymnasium_spaces, n_actions_of
from s4q.features.unmeasured import Unmeasured

MOST_ACTIONS = 1_000
LONGEST = 100_000
_ACTIONS, _EPISODES = 2**40, 2**41  # parts of the addresses of random numbers


@final
@dataclass(frozen=True, slots=True)
class Failure:
    """A check that failed.

    Args:
        check: Its name.
        what: What was seen.
        cure: What to do.
    """

    check: str
    what: str
    cure: str

    def __str__(self) -> str:
        return f"{self.check}: {self.what}; {self.cure}"


@final
@dataclass(frozen=True, slots=True)
class EnvReport:
    """What `check_env` found.

    Args:
        passed: Names of the checks that passed.
        failures: Those that failed.
        skipped: Names of the checks that could not be made, because others failed.
    """

    passed: tuple[str, ...]
    failures: tuple[Failure, ...]
    skipped: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """True if every check was made and passed."""
        return not self.failures and not self.skipped

    def __str__(self) -> str:
        lines = [f"{len(self.passed)} of {len(CHECKS)} checks passed"]
        lines += [f"  FAILED {failure}" for failure in self.failures]
        lines += [f"  not tried: {', '.join(self.skipped)}"] if self.skipped else []
        return "\n".join(lines)


CHECKS = (
    "it is an environment",
    "it is a single environment",
    "the observation space is one of Gymnasium's",
    "the action space is one of Gymnasium's",
    "there are finitely many actions",
    "there are few enough actions",
    "the horizon is known",
    "the horizon is moderate",
    "the reward range is known",
    "the reward range holds 0",
    "observations have features",
    "reset takes a seed",
    "reset works",
    "reset returns two values",
    "the info of reset is a dictionary",
    "the first observation lies in its space",
    "a seed repeats the first observation",
    "step works",
    "step returns five values",
    "observations have the shape of their space",
    "observations are finite",
    "observations lie within their bounds",
    "rewards are numbers",
    "rewards are finite",
    "rewards lie in their range",
    "terminated is True or False",
    "truncated is True or False",
    "the info of step is a dictionary",
    "every action is accepted",
    "earlier observations stay as they were",
    "a seed repeats the observations of an episode",
    "a seed repeats the rewards of an episode",
    "a seed repeats the end of an episode",
    "reset forgets the episode before",
    "an episode can be left before its end",
    "no episode is cut before the horizon",
    "returns stay within the value bound",
    "features fit the observations",
)


class _EndOfTrialError(Exception):
    """A check failed without which no other can be made."""


def check_env(
    env: Any,
    *,
    horizon: int | None = None,
    reward_range: tuple[float, float] | None = None,
    value_bound: float | None = None,
    features: FeatureMap | None = None,
    episodes: int = 5,
    seed: int = 0,
) -> EnvReport:
    """Try an environment with random actions, and say what s4q would stumble over.

    Args:
        env: A Gymnasium environment, or the id of one. It is reset and stepped, and left open.
        horizon: As of Agent.
        reward_range: As of Agent.
        value_bound: As of Agent, one number.
        features: As of Agent. None (default): the default features.
        episodes: Episodes to play. 5 by default.
        seed: Seed of the episodes. 0 by default.

    Returns:
        What was found; `ok` is True if all is well. Print it.

    >>> report = check_env("FrozenLake-v1")
    >>> report.ok, len(report.passed)
    (True, 38)
    """
    require_count("episodes", episodes, "the number of episodes to play")
    trial = _Trial(made_env(env), horizon, reward_range, value_bound, features, int(episodes), seed)
    with suppress(_EndOfTrialError):
        trial.run()
    return trial.report()


@final
@dataclass(frozen=True, eq=False, slots=True)
class _Played:
    """What an episode showed."""

    observations: list[Any]  # copies, the first and the last included
    originals: list[Any]  # the very objects that the environment returned
    rewards: list[float]
    ended: bool
    cut: bool


@final
class _Trial:
    """The battery on one environment."""

    def __init__(
        self,
        env: Any,
        horizon: int | None,
        reward_range: tuple[float, float] | None,
        value_bound: float | None,
        features: FeatureMap | None,
        episodes: int,
        seed: int,
    ) -> None:
        self._env, self._given_horizon, self._given_range = env, horizon, reward_range
        self._value_bound, self._features = value_bound, features
        self._n_episodes, self._seed = episodes, seed
        self._tried: set[str] = set()
        self._failures: dict[str, Failure] = {}
        self._low, self._high = -np.inf, np.inf
        self._layout = Layout(())

    def report(self) -> EnvReport:
        """What was found so far."""
        passed = tuple(name for name in CHECKS if name in self._tried and name not in self._failures)
        failures = tuple(self._failures[name] for name in CHECKS if name in self._failures)
        return EnvReport(passed, failures, tuple(name for name in CHECKS if name not in self._tried))

    def _check(self, name: str, good: bool, what: str, cure: str, *, vital: bool = False) -> bool:
        """Note the outcome of a check; the first failure of each is kept."""
        if name not in CHECKS:
            raise KeyError(name)
        self._tried.add(name)
        if not good and name not in self._failures:
            self._failures[name] = Failure(name, what, cure)
        if not good and vital:
            raise _EndOfTrialError
        return good

    def _attempt(self, name: str, work: Callable[[], Any], cure: str, *, vital: bool = True) -> Any:
        """What `work` returns; an exception fails the check."""
        try:
            result = work()
        except _EndOfTrialError:
            raise
        except Exception as error:
            self._check(name, False, f"{type(error).__name__}: {error}", cure, vital=vital)
            return None
        self._check(name, True, "", "")
        return result

    def run(self) -> None:
        """All checks, as far as they can be made."""
        self._declarations()
        self._first_resets()
        played = self._episodes()
        self._compare(played)
        self._every_action()
        self._fit_features()

    def _declarations(self) -> None:
        env = self._env
        missing = [name for name in ("reset", "step", "action_space", "observation_space") if not hasattr(env, name)]
        self._check(
            "it is an environment",
            not missing and not isinstance(env, type),
            f"{env!r:.100} is a class" if isinstance(env, type) else f"{env!r:.100} lacks {', '.join(missing)}",
            "pass a Gymnasium environment, made",
            vital=True,
        )
        several = hasattr(env, "num_envs")
        self._check(
            "it is a single environment", not several, "it is a vector", "check one of its environments", vital=True
        )
        spaces = gymnasium_spaces()
        for name, space in (
            ("the observation space is one of Gymnasium's", env.observation_space),
            ("the action space is one of Gymnasium's", env.action_space),
        ):
            what = f"it is a {type(space).__module__}.{type(space).__name__}"
            self._check(name, isinstance(space, spaces.Space), what, "use gymnasium.spaces", vital=True)
        observations, actions = spaces_of(env)
        n_actions = self._attempt("there are finitely many actions", lambda: n_actions_of(actions), "see s4q.wrappers")
        many = f"there are {n_actions}, each with features of its own"
        self._check(
            "there are few enough actions",
            n_actions <= MOST_ACTIONS,
            many,
            f"choose {MOST_ACTIONS} or fewer",
            vital=True,
        )
        self._actions = ActionNumbers.of(actions)
        with suppress(ValueError):
            self._layout = Layout.of(observations)
        facts = declared_facts(env)
        given = self._given_horizon
        if given is None and facts is not None and time_limit(env) is None:
            given = facts.horizon
        cure = "pass horizon=..., here and to Agent"
        self._horizon = self._attempt("the horizon is known", lambda: horizon_of(env, given), cure, vital=False) or 200
        long = f"it is {self._horizon}, and a fit goes through every level"
        self._check("the horizon is moderate", self._horizon <= LONGEST, long, "choose a shorter one")
        self._horizon = min(self._horizon, LONGEST)
        declared = self._given_range
        if declared is None and facts is not None:
            declared = facts.reward_range
            self._value_bound = facts.value_bound if self._value_bound is None else self._value_bound
        cure = "pass reward_range=(lowest, highest), here and to Agent"
        found = self._attempt("the reward range is known", lambda: reward_range_of(env, declared), cure, vital=False)
        if found is not None:
            self._low, self._high = (float(end) for end in found)
            outside = f"it is [{self._low:g}, {self._high:g}], but an episode that ended earns 0 a step"
            self._check(
                "the reward range holds 0", self._low <= 0 <= self._high, outside, "widen it so that it holds 0"
            )
        if self._features is None:
            self._features = self._attempt(
                "observations have features",
                lambda: self._default_features(facts),
                "pass features=..., here and to Agent",
                vital=False,
            )
        else:
            self._check("observations have features", True, "", "")

    def _default_features(self, facts: Any) -> FeatureMap:
        low, high = (None, None) if facts is None or facts.observation_range is None else facts.observation_range
        return default_features(*spaces_of(self._env), low=low, high=high)

    def _reset(self, number: int) -> Any:
        """The first observation of an episode, by its number."""
        seed = int(np.random.SeedSequence(self._seed, spawn_key=(_EPISODES, number)).generate_state(1)[0] >> 1)
        try:
            happened = self._env.reset(seed=seed)
        except TypeError as error:
            about_seed = "seed" in str(error) or "argument" in str(error)
            name = "reset takes a seed" if about_seed else "reset works"
            self._check(name, False, f"TypeError: {error}", "reset takes (*, seed=None, options=None)", vital=True)
        except Exception as error:
            self._check("reset takes a seed", True, "", "")
            self._check("reset works", False, f"{type(error).__name__}: {error}", "correct env.reset", vital=True)
        self._check("reset takes a seed", True, "", "")
        self._check("reset works", True, "", "")
        pair = isinstance(happened, (tuple, list)) and len(happened) == 2
        self._check(
            "reset returns two values", pair, f"it returned {happened!r:.80}", "return (observation, info)", vital=True
        )
        observation, info = happened
        self._check(
            "the info of reset is a dictionary",
            isinstance(info, Mapping),
            f"it is {info!r:.80}",
            "return a dictionary, {} if empty",
        )
        return observation

    def _first_resets(self) -> None:
        first = deepcopy(self._reset(0))
        space = self._env.observation_space
        inside = lies_in(space, first)
        what = f"{first!r:.120} does not lie in {space}"
        self._check("the first observation lies in its space", inside, what, "correct the observation, or the space")
        again = self._reset(0)
        what = f"{first!r:.80}, then {again!r:.80}"
        cure = "draw from self.np_random, which super().reset(seed=seed) seeds"
        self._check("a seed repeats the first observation", _same(first, again), what, cure)

    def _episodes(self) -> list[_Played]:
        return [self._play(number) for number in range(self._n_episodes)]

    def _play(self, number: int, *, steps: int | None = None) -> _Played:
        """An episode of random actions, which depend on its number alone."""
        rng = np.random.default_rng(np.random.SeedSequence(self._seed, spawn_key=(_ACTIONS, number)))
        observation = self._reset(number)
        played = _Played([deepcopy(observation)], [observation], [], False, False)
        observations, originals, rewards = played.observations, played.originals, played.rewards
        ended = cut = False
        for _ in range(self._horizon if steps is None else steps):
            observation, reward, ended, cut = self._step(int(rng.integers(len(self._actions))))
            observations.append(deepcopy(observation))
            originals.append(observation)
            rewards.append(reward)
            if ended or cut:
                break
        return _Played(observations, originals, rewards, ended, cut)

    def _step(self, number: int) -> tuple[Any, float, bool, bool]:
        action = self._actions(number)
        try:
            happened = self._env.step(action)
        except Exception as error:
            what = f"{type(error).__name__}: {error}, for action {action!r}"
            self._check("step works", False, what, "correct env.step", vital=True)
        self._check("step works", True, "", "")
        five = isinstance(happened, (tuple, list)) and len(happened) == 5
        cure = "return (observation, reward, terminated, truncated, info)"
        self._check("step returns five values", five, f"it returned {happened!r:.100}", cure, vital=True)
        observation, reward, terminated, truncated, info = happened
        self._look_at(observation)
        value = self._reward(reward)
        flags = []
        for name, flag in (("terminated is True or False", terminated), ("truncated is True or False", truncated)):
            plain = flag.item() if isinstance(flag, (np.ndarray, np.generic)) and flag.size == 1 else flag
            good = isinstance(plain, (bool, int, float)) and plain in (0, 1)
            self._check(name, good, f"it is {flag!r:.80}", "return True or False")
            flags.append(bool(plain) if good else False)
        self._check(
            "the info of step is a dictionary",
            isinstance(info, Mapping),
            f"it is {info!r:.80}",
            "return a dictionary, {} if empty",
        )
        return observation, value, flags[0], flags[1]

    def _look_at(self, observation: Any) -> None:
        space = self._env.observation_space
        cure = "correct the observation, or the space"
        shaped, real = lies_in(space, observation), np.zeros((1, 0))
        with suppress(Exception):  # of a space that has no layout, only this much can be said
            _, real = self._layout.split([observation])
            boxes = [leaf for leaf in self._layout.leaves if leaf.dim]
            shaped = all(np.shape(leaf.of(observation)) == _part(space, leaf.path).shape for leaf in boxes)
        shown = f"{observation!r:.120} for {space}"
        self._check("observations have the shape of their space", shaped, shown, cure)
        self._check("observations are finite", bool(np.isfinite(real).all()), shown, "remove NaN and infinity")
        if shaped and np.isfinite(real).all():
            self._check("observations lie within their bounds", lies_in(space, observation), shown, cure)

    def _reward(self, reward: Any) -> float:
        try:
            value = float(reward)
        except (TypeError, ValueError):
            self._check("rewards are numbers", False, f"it is {reward!r:.80}", "return one number")
            return 0.0
        self._check("rewards are numbers", True, "", "")
        if not self._check("rewards are finite", bool(np.isfinite(value)), f"it is {value}", "remove NaN and infinity"):
            return 0.0
        slack = 1e-6 * max(abs(self._low), abs(self._high), 1.0) if np.isfinite(self._low) else 0.0
        inside = self._low - slack <= value <= self._high + slack
        outside = f"{value:g} lies outside of [{self._low:g}, {self._high:g}]"
        self._check("rewards lie in their range", inside, outside, "declare a reward_range that holds all rewards")
        return value

    def _compare(self, played: list[_Played]) -> None:
        """What episodes show when they are played again, and what became of what they returned."""
        kept = all(_same(a, b) for one in played for a, b in zip(one.observations, one.originals, strict=True))
        what = "an observation changed after it was returned"
        self._check(
            "earlier observations stay as they were",
            kept,
            what,
            "return a copy, not the array that the env goes on writing to",
        )
        first, again = played[0], self._play(0)
        cure = "draw from self.np_random, which super().reset(seed=seed) seeds"
        n = min(len(first.observations), len(again.observations))
        apart = next((i for i in range(n) if not _same(first.observations[i], again.observations[i])), None)
        seen = f"they differ from step {apart} on"
        self._check(
            "reset forgets the episode before",
            apart != 0,
            "the first observation of a seed differs after other episodes",
            cure,
        )
        self._check("a seed repeats the observations of an episode", apart in (None, 0), seen, cure)
        m = min(len(first.rewards), len(again.rewards))
        paid = next((i for i in range(m) if first.rewards[i] != again.rewards[i]), None)
        self._check("a seed repeats the rewards of an episode", paid is None, f"they differ at step {paid}", cure)
        ends = [(len(one.rewards), one.ended, one.cut) for one in (first, again)]
        self._check(
            "a seed repeats the end of an episode",
            ends[0] == ends[1],
            f"steps, terminated, truncated were {ends[0]}, then {ends[1]}",
            cure,
        )
        cut = [len(one.rewards) for one in played if one.cut and not one.ended and len(one.rewards) < self._horizon]
        what = f"{len(cut)} of {len(played)} episodes were truncated, the first after {cut[0] if cut else 0} steps"
        cure = (
            "their steps are data, but their returns count nowhere: raise the time limit, or choose a shorter horizon"
        )
        self._check("no episode is cut before the horizon", not cut, what, cure)
        if self._value_bound is None:
            self._check("returns stay within the value bound", True, "", "")
        else:
            most = max(sum(one.rewards) for one in played)
            what = f"an episode returned {most:g}, more than {self._value_bound:g}"
            self._check(
                "returns stay within the value bound",
                most <= self._value_bound + 1e-6 * abs(most),
                what,
                "declare a larger value_bound",
            )
        self._observations = [one for episode in played for one in episode.observations]

    def _every_action(self) -> None:
        """Each action once, at the start of an episode that is then left."""
        wrong: list[str] = []
        left: list[str] = []
        for number in range(len(self._actions)):
            try:
                self._reset(number)
            except _EndOfTrialError:
                left.append(f"reset failed after an episode of one step: {self._failures}"[:200])
                break
            action = self._actions(number)
            try:
                self._env.step(action)
            except Exception as error:
                wrong.append(f"action {action!r} raised {type(error).__name__}: {error}")
        self._check(
            "every action is accepted",
            not wrong,
            "; ".join(wrong[:3]),
            "accept every action of the space in every state",
        )
        self._check("an episode can be left before its end", not left, "; ".join(left), "allow reset at any time")

    def _fit_features(self) -> None:
        if self._features is None:
            return
        features = self._features
        if isinstance(features, Unmeasured):
            features, _ = self._attempt(
                "features fit the observations",
                lambda: features.measured(self._observations),
                "correct the observations",
            )
        self._attempt(
            "features fit the observations",
            lambda: check_features(features, self._env, n=50, seed=0, horizon=self._horizon),
            "correct the features, or the observations",
            vital=False,
        )


def _part(space: Any, path: tuple[str | int, ...]) -> Any:
    for key in path:
        space = space[key]
    return space


def _same(a: Any, b: Any) -> bool:
    """True if two observations are equal, part by part; NaN equals NaN."""
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return set(a) == set(b) and all(_same(a[key], b[key]) for key in a)
    if isinstance(a, (tuple, list)) and isinstance(b, (tuple, list)):
        return len(a) == len(b) and all(_same(x, y) for x, y in zip(a, b, strict=True))
    try:
        first, second = np.asarray(a), np.asarray(b)
        return first.shape == second.shape and bool(((first == second) | ((first != first) & (second != second))).all())
    except Exception:
        return bool(a == b)
