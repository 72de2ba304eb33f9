"""Player: one episode being played. Observation in, action out; reward in, "is it over?" out."""

from dataclasses import replace
from typing import Any, final

import numpy as np

from s4q.collectors.seeding import EpisodeDice
from s4q.collectors.stepping.greedy_actor import Actor
from s4q.collectors.stepping.step_features import Eyes, Look, Place, Sights
from s4q.core.messages import Spec

_REWARD_SLACK = 1e-6  # of the range: rewards in single precision are not outside of it


@final
class Player:
    """Plays one episode for whoever steps the environment, and remembers it until it is tallied.

    last: how many steps the episode takes unless it ends. look_after: are the features after the last step needed?
    """

    def __init__(
        self,
        place: Place,
        spec: Spec,
        eyes: Eyes,
        which: int,
        actor: Actor,
        dice: EpisodeDice,
        last: int,
        look_after: bool,
    ) -> None:
        self.place = place
        self.which = which  # of the mixture
        self.env_seed, self.narrow_env_seed = dice.env_seed, dice.narrow_env_seed
        self.looks: list[Look] = []  # one per step, and one more where `look_after`
        self.actions: list[int] = []
        self.rewards: list[float] = []  # the user's units
        self.observations: list[Any] = []
        self.ended = False  # terminated
        self.over = False
        self._horizon = spec.horizon
        self._low, self._high = spec.reward_min, spec.reward_max
        self._slack = _REWARD_SLACK * max(abs(self._low), abs(self._high), 1.0)
        self._eyes, self._actor, self._dice = eyes, actor, dice
        self._last, self._look_after = last, look_after

    @property
    def n_steps(self) -> int:
        """Steps taken."""
        return len(self.rewards)

    def take_narrow_seed(self) -> None:
        """For an environment that refuses wide ones."""
        self.env_seed = self.narrow_env_seed
        self.place = replace(self.place, env_seed=self.narrow_env_seed)

    def act(self, observation: Any) -> int:
        """The action to take at this observation, 0..n_actions-1."""
        h = len(self.actions)
        self.observations.append(observation)
        look = self._eyes(h, observation, self.place, h)
        self.looks.append(look)
        action = self._actor(h, observation, look, self._dice)
        self.actions.append(action)
        return action

    def observe(self, reward: Any, observation: Any, terminated: bool) -> bool:
        """What the action led to; True when the episode is over."""
        step = len(self.rewards)
        self.rewards.append(self._checked(reward, step))
        self.ended = terminated if terminated is False or terminated is True else self.flag("terminated", terminated)
        self.over = self.ended or step + 1 == self._last
        if self.over:
            self.observations.append(observation)
            if self._look_after and not self.ended:
                # Pooled steps are samples for every level, so the last one has an "after" too.
                self.looks.append(self._eyes(min(step + 1, self._horizon - 1), observation, self.place, step + 1))
        return self.over

    def sights(self) -> Sights:
        """The features of the finished episode in arrays, checked."""
        return self._eyes.pack(self.looks, self.place)

    def flag(self, name: str, value: Any) -> bool:
        """Any way to write True and False, at the step just taken; a word such as "no" would count as True."""
        plain = value.item() if isinstance(value, (np.ndarray, np.generic)) and value.size == 1 else value
        if isinstance(plain, (bool, int, float)) and plain in (0, 1):
            return bool(plain)
        raise self.place.fault(len(self.rewards) - 1, f"{name} is {value!r}", "it must be True or False")

    def _checked(self, reward: Any, step: int) -> float:
        try:
            value = float(reward)
        except (TypeError, ValueError):
            raise self.place.fault(step, f"the reward is {reward!r}", "it must be a number") from None
        low, high = self._low, self._high
        if low <= value <= high:
            return value
        if low - self._slack <= value <= high + self._slack:
            return min(max(value, low), high)
        if value != value or value in (float("inf"), float("-inf")):
            raise self.place.fault(step, f"the reward is {value}", "rewards must be finite numbers")
        raise self.place.fault(
            step,
            f"the reward is {value}, outside of the declared range [{low}, {high}]",
            "declare a reward_range that holds all rewards",
        )
