"""One episode: while it is being played (EpisodePlayer), and when it is over (Episode).

Whoever steps an environment calls `act` and `observe` of the player until it is over, and hands its `episode()` to the
sums. A player knows no environment and adds nothing up.
"""

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from s4q.collectors.seeding import EpisodeDraws
from s4q.collectors.stepping.greedy_actor import Actor
from s4q.collectors.stepping.step_features import EpisodeAddress, Featurizer, StepFeatures
from s4q.core.blocks import Array, IntArray
from s4q.core.messages import Spec


@final
@dataclass(frozen=True, eq=False, slots=True)
class Episode:
    """A finished episode, or a run of its steps.

    The features have one row more than there are steps where those after the last step are known.
    """

    first: int  # level of the first step
    vectors: Array  # (T or T + 1, n_actions, k), or (T or T + 1, 1, k) where all actions share one vector
    blocks: IntArray  # (T or T + 1, n_actions)
    actions: list[int]  # (T,)
    rewards: list[float]  # (T,), in the user's units
    ended: bool  # the environment ended the episode with the last of these steps
    which: int = 0  # the policy of the mixture
    truncated: bool = False  # it was cut after the last of its steps, before its horizon: its return is not known

    def part(self, levels: range) -> "Episode":
        """The steps at these levels, as far as the episode came, and the features after them."""
        begin, end = (max(0, level - self.first) for level in (levels.start, levels.stop))
        vectors, blocks = self.vectors[begin : end + 1], self.blocks[begin : end + 1]
        if 2 * len(blocks) < len(self.blocks):  # a view would keep all the other rows alive
            vectors, blocks = vectors.copy(), blocks.copy()
        last = end >= len(self.actions)
        return Episode(
            self.first + begin,
            vectors,
            blocks,
            self.actions[begin:end],
            self.rewards[begin:end],
            self.ended and last,
            self.which,
            self.truncated and last,
        )

    def chosen(self) -> tuple[Array, IntArray]:
        """Vectors (T, k) and blocks (T,) of the actions taken."""
        rows = np.arange(len(self.actions))
        shared = self.vectors.shape[1] == 1
        vectors = self.vectors[: len(rows), 0] if shared else self.vectors[rows, self.actions]
        return vectors, self.blocks[rows, self.actions]


@final
class EpisodePlayer:
    """Chooses the actions of one episode, and remembers it until it is over.

    Args:
        address: Names the episode in error messages.
        spec: Sizes, horizon and reward range of the problem.
        featurizer: Computes the features of each observation.
        which: The number of its policy in the mixture.
        actor: Chooses the actions of that policy.
        draws: The random numbers of the episode.
        last: The number of steps that the episode takes unless the environment ends it.
        needs_next: True if the features after the last step are needed.
    """

    def __init__(
        self,
        address: EpisodeAddress,
        spec: Spec,
        featurizer: Featurizer,
        which: int,
        actor: Actor,
        draws: EpisodeDraws,
        last: int,
        needs_next: bool,
    ) -> None:
        self.address = address
        self.draws = draws
        self.actions: list[int] = []
        self.rewards: list[float] = []  # in the user's units
        self.observations: list[Any] = []
        self.over = False
        self._features: list[StepFeatures] = []  # one per step, and one more where `needs_next`
        self._ended = self._truncated = False
        self._which = which
        self._horizon = spec.horizon
        self._low, self._high, self._slack = spec.reward_min, spec.reward_max, spec.reward_slack
        self._featurizer, self._actor = featurizer, actor
        self._last, self._needs_next = last, needs_next

    def act(self, observation: Any) -> int:
        """The action to take at this observation, 0..n_actions-1."""
        h = len(self.actions)
        self.observations.append(observation)
        features = self._featurizer(h, observation, self.address, h)
        self._features.append(features)
        action = self._actor(h, observation, features, self.draws)
        self.actions.append(action)
        return action

    def observe(self, reward: Any, observation: Any, terminated: Any, truncated: Any = False) -> bool:
        """Take in what the action led to; True when the episode is over."""
        step = len(self.rewards)
        try:
            value = float(reward)
        except (TypeError, ValueError):
            raise self.address.fault(step, f"the reward is {reward!r}", "it must be a number") from None
        self.rewards.append(value if self._low <= value <= self._high else self._clipped(value, step))
        self._ended = terminated if terminated is False or terminated is True else self.flag("terminated", terminated)
        cut = truncated if truncated is False or truncated is True else self.flag("truncated", truncated)
        self.over = self._ended or step + 1 == self._last
        if self.over:
            self.observations.append(observation)
            if self._needs_next and not self._ended:
                self._look_ahead(observation)
        elif cut:
            self.cut(observation)
        return self.over

    def take_back(self) -> None:
        """Forget the newest action, which nothing has come of."""
        self.actions.pop()
        self.observations.pop()
        self._features.pop()

    def cut(self, observation: Any) -> None:
        """Cut the episode after the step just taken, which led to this observation."""
        self.over = self._truncated = True
        self.observations.append(observation)
        self._look_ahead(observation)

    def _look_ahead(self, observation: Any) -> None:
        """The features after the last step.

        Pooled steps are samples for every level, so the last level has features after it too.
        """
        step = len(self.rewards)
        self._features.append(self._featurizer(min(step, self._horizon - 1), observation, self.address, step))

    def episode(self) -> Episode:
        """The finished episode; its features are checked."""
        vectors, blocks = self._featurizer.stacked(self._features, self.address)
        return Episode(0, vectors, blocks, self.actions, self.rewards, self._ended, self._which, self._truncated)

    def flag(self, name: str, value: Any) -> bool:
        """True or False, however it is written, at the step just taken; a word such as "no" would count as True."""
        plain = value.item() if isinstance(value, (np.ndarray, np.generic)) and value.size == 1 else value
        if isinstance(plain, (bool, int, float)) and plain in (0, 1):
            return bool(plain)
        raise self.address.fault(len(self.rewards) - 1, f"{name} is {value!r}", "it must be True or False")

    def _clipped(self, value: float, step: int) -> float:
        """A reward outside of the declared range: clipped where rounding may be the cause, else refused."""
        low, high, slack = self._low, self._high, self._slack
        if low - slack <= value <= high + slack:
            return min(max(value, low), high)
        if value != value or value in (float("inf"), float("-inf")):
            raise self.address.fault(step, f"the reward is {value}", "rewards must be finite numbers")
        raise self.address.fault(
            step,
            f"the reward is {value}, outside of the declared range [{low}, {high}]",
            "declare a reward_range that holds all rewards",
        )
