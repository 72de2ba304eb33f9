"""check_env: good environments pass every check, and each check is seen to fail on an environment planted for it."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import s4q
from s4q.environment_checks import CHECKS

HORIZON = 6


class Walk(gym.Env):
    """A good environment: a noisy walk in a square that pays its first coordinate and may end."""

    observation_space = spaces.Box(-1.0, 1.0, (2,), dtype=np.float64)
    action_space: Any = spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.at = self.np_random.uniform(-0.2, 0.2, 2)
        self.clock = 0
        return self.at.copy(), {}

    def step(self, action: Any) -> Any:
        self.clock += 1
        self.at = np.clip(self.at + self.np_random.normal(0, 0.1, 2) + 0.05 * (int(action) - 1), -1, 1)
        return self.at.copy(), float(abs(self.at[0])), bool(self.np_random.random() < 0.05), False, {}


class Planted(Walk):
    """The good environment with one value of `step` replaced."""

    def __init__(self, place: int, value: Any) -> None:
        self.place, self.value = place, value

    def step(self, action: Any) -> Any:
        happened = list(super().step(action))
        happened[self.place] = self.value(happened[self.place], self) if callable(self.value) else self.value
        return tuple(happened)


class PlantedReset(Walk):
    """The good environment with another answer to `reset`."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def reset(self, **options: Any) -> Any:
        return self.answer(*super().reset(**options))


class WithSpaces(Walk):
    def __init__(self, observation: Any = None, action: Any = None) -> None:
        self.observation_space = observation or self.observation_space
        self.action_space = action or self.action_space


class NoSeed(Walk):
    def reset(self) -> Any:  # type: ignore[override]
        return super().reset()


class BrokenReset(Walk):
    def reset(self, **options: Any) -> Any:
        raise RuntimeError("the robot is asleep")


class BrokenStep(Walk):
    def step(self, action: Any) -> Any:
        raise RuntimeError("the robot is asleep")


class FourValues(Walk):
    def step(self, action: Any) -> Any:
        return super().step(action)[:4]


class OwnDice(Walk):
    """Draws from a generator of its own, which no seed reaches. `what` says where it shows."""

    def __init__(self, what: str) -> None:
        self.what, self.dice, self.episodes = what, np.random.default_rng(0), 0

    def reset(self, **options: Any) -> Any:
        self.episodes += 1
        seen, info = super().reset(**options)
        return (self.dice.uniform(-0.2, 0.2, 2), info) if self.what == "first observation" else (seen, info)

    def step(self, action: Any) -> Any:
        seen, reward, ended, cut, info = super().step(action)
        if self.what == "observation":
            seen = self.dice.uniform(-1, 1, 2)
        if self.what == "reward":
            reward = float(self.dice.random())
        if self.what == "end":
            ended = self.clock > self.episodes % 4
        return seen, reward, ended, cut, info


class Remembers(Walk):
    """Begins where the last episode ended, but only once something was played."""

    at = np.zeros(2)
    played = 0

    def reset(self, **options: Any) -> Any:
        before, steps = self.at, self.played
        seen, info = super().reset(**options)
        if steps > 2:
            self.at = before
            seen = before.copy()
        return seen, info

    def step(self, action: Any) -> Any:
        self.played += 1
        return super().step(action)


class OneArray(Walk):
    """Writes every observation into the same array."""

    def reset(self, **options: Any) -> Any:
        seen, info = super().reset(**options)
        self.array = seen
        return self.array, info

    def step(self, action: Any) -> Any:
        seen, *rest = super().step(action)
        self.array[:] = seen
        return (self.array, *rest)


class RefusesOne(Walk):
    """Refuses one of its 200 actions, which random play does not meet."""

    action_space = spaces.Discrete(200)

    def step(self, action: Any) -> Any:
        if action == 197:
            raise ValueError("not this one")
        return super().step(action % 3)


class MustFinish(Walk):
    """Refuses to be reset after exactly one step, as some simulators do."""

    clock = 0

    def reset(self, **options: Any) -> Any:
        if self.clock == 1:
            raise RuntimeError("an episode is running")
        return super().reset(**options)

    def step(self, action: Any) -> Any:
        happened = super().step(action)
        return (*happened[:2], False, *happened[3:])


class OldSpace:
    """A space of another library."""

    n = 3
    shape = ()


FEW = {"reward_range": (0, 1), "horizon": HORIZON}
PLANTED: dict[str, tuple[Any, dict[str, Any]]] = {
    "it is an environment": (Walk, FEW),
    "it is a single environment": (gym.vector.SyncVectorEnv([Walk] * 2), FEW),
    "the observation space is one of Gymnasium's": (WithSpaces(observation=OldSpace()), FEW),
    "the action space is one of Gymnasium's": (WithSpaces(action=OldSpace()), FEW),
    "there are finitely many actions": (WithSpaces(action=spaces.Box(-1, 1, (1,))), FEW),
    "there are few enough actions": (WithSpaces(action=spaces.Discrete(10**6)), FEW),
    "the horizon is known": (Walk(), {"reward_range": (0, 1)}),
    "the horizon is moderate": (Walk(), {"reward_range": (0, 1), "horizon": 10**6}),
    "the reward range is known": (Walk(), {"horizon": HORIZON}),
    "the reward range holds 0": (Walk(), {"reward_range": (0.5, 1), "horizon": HORIZON}),
    "observations have features": (
        WithSpaces(observation=spaces.Box(-1, 1, (30,))),
        FEW,
    ),
    "reset takes a seed": (NoSeed(), FEW),
    "reset works": (BrokenReset(), FEW),
    "reset returns two values": (PlantedReset(lambda seen, info: seen), FEW),
    "the info of reset is a dictionary": (PlantedReset(lambda seen, info: (seen, None)), FEW),
    "the first observation lies in its space": (PlantedReset(lambda seen, info: (seen + 9, info)), FEW),
    "a seed repeats the first observation": (OwnDice("first observation"), FEW),
    "step works": (BrokenStep(), FEW),
    "step returns five values": (FourValues(), FEW),
    "observations have the shape of their space": (Planted(0, np.zeros(3)), FEW),
    "observations are finite": (Planted(0, np.array([0.0, np.nan])), FEW),
    "observations lie within their bounds": (Planted(0, np.array([0.0, 1.5])), FEW),
    "rewards are numbers": (Planted(1, "much"), FEW),
    "rewards are finite": (Planted(1, float("nan")), FEW),
    "rewards lie in their range": (Planted(1, 1.5), FEW),
    "terminated is True or False": (Planted(2, "no"), FEW),
    "truncated is True or False": (Planted(3, None), FEW),
    "the info of step is a dictionary": (Planted(4, None), FEW),
    "every action is accepted": (RefusesOne(), FEW),
    "earlier observations stay as they were": (OneArray(), FEW),
    "a seed repeats the observations of an episode": (OwnDice("observation"), FEW),
    "a seed repeats the rewards of an episode": (OwnDice("reward"), FEW),
    "a seed repeats the end of an episode": (OwnDice("end"), FEW),
    "reset forgets the episode before": (Remembers(), FEW),
    "an episode can be left before its end": (MustFinish(), FEW),
    "no episode is cut before the horizon": (Planted(3, lambda _, env: env.clock == 3), FEW),
    "returns stay within the value bound": (Walk(), {**FEW, "value_bound": 0.01}),
    "features fit the observations": (
        Walk(),
        {**FEW, "features": s4q.features.PerAction(s4q.features.Fourier(low=[-0.3] * 2, high=[0.3] * 2, order=1), 3)},
    ),
}


def test_every_check_is_planted() -> None:
    assert set(PLANTED) == set(CHECKS)
    assert len(CHECKS) >= 25


def test_a_good_environment_passes() -> None:
    report = s4q.check_env(Walk(), **FEW)
    assert report.ok, str(report)
    assert report.passed == CHECKS


@pytest.mark.parametrize("check", CHECKS)
def test_each_check_fails_on_the_environment_planted_for_it(check: str) -> None:
    env, options = PLANTED[check]
    report = s4q.check_env(env, **options)
    assert not report.ok
    assert check in {failure.check for failure in report.failures}, str(report)
    named = next(failure for failure in report.failures if failure.check == check)
    assert named.what
    assert named.cure
    assert f"FAILED {check}: " in str(report)


IDS = ["CartPole-v1", "MountainCar-v0", "Acrobot-v1", "Blackjack-v1", "FrozenLake-v1", "FrozenLake8x8-v1"]
IDS += ["CliffWalking-v1", "CliffWalkingSlippery-v1", "Taxi-v4"]


@pytest.mark.parametrize("name", IDS)
def test_gymnasiums_own_environments_pass(name: str) -> None:
    report = s4q.check_env(name, horizon=50, episodes=1)
    assert report.ok, str(report)


@pytest.mark.parametrize("name", ["Pendulum-v1", "MountainCarContinuous-v0"])
def test_continuous_actions_pass_with_the_wrapper_that_the_refusal_names(name: str) -> None:
    refused = s4q.check_env(name)
    assert "s4q.wrappers.DiscreteActions(env, 5)" in str(refused)
    report = s4q.check_env(s4q.wrappers.DiscreteActions(gym.make(name), 5), horizon=50, episodes=1)
    assert report.ok, str(report)


class Mixture(Walk):
    """A dictionary of a place and a lamp, and two switches to set."""

    observation_space: Any = spaces.Dict(
        {"place": spaces.Box(-1.0, 1.0, (2,), dtype=np.float64), "lamp": spaces.Discrete(2)}
    )
    action_space = spaces.MultiDiscrete([2, 2])

    def reset(self, **options: Any) -> Any:
        seen, info = super().reset(**options)
        return {"place": seen, "lamp": 0}, info

    def step(self, action: Any) -> Any:
        seen, *rest = super().step(int(action[0]) + int(action[1]))
        return ({"place": seen, "lamp": int(action[0])}, *rest)


def test_mixtures_pass() -> None:
    report = s4q.check_env(Mixture(), **FEW)
    assert report.ok, str(report)
