"""Stream: a learner in your own loop, for systems that call `act` and `observe` and cannot be reset early.

Users make it around a learner and a feature map. It plays and adds up episodes with the parts that GymCollector uses,
so the same episodes give the same bits. It must not step anything itself.
"""

from typing import Any, cast, final

from threadpoolctl import threadpool_limits

from s4q.collectors.stepping.episode import EpisodePlayer
from s4q.collectors.stepping.stepping_collector import EpisodePlayers, shards_of
from s4q.collectors.stepping.sums import EpisodeSums, RegressSums, ReturnSums, VisitSums
from s4q.core.messages import Asks, Evaluate, Explore, FeatureMap, Learner, Shard
from s4q.core.validation import drawn_seed
from s4q.running.interruption import interruption_held_back

_BUDGET = 2**40  # nobody knows how long a live system runs


@final
class Stream:
    """Steers a live system with a learner, one step at a time.

    Call `act(observation)` for the action to take, then `observe(reward, observation, terminated)` with what it led
    to; True means that the episode is over and the next `act` starts another. An episode runs for the horizon, unless
    the system ends it. `cut` ends an open episode before its time and keeps its steps; `drop` forgets it. The learner
    is told whenever a shard of episodes is full, so it lags a little behind. On the same episodes a GymCollector with
    reset_early=False gives the same bits. After an error the open episode is dropped; the next `act` starts it anew.
    Once a learner is done its policy goes on acting.

    Args:
        learner: S3Q, S4Q, or anything with `ask` and `tell`.
        features: map from observations to features.
        seed: Seed of the draws of policies and actions. 0 by default; None draws one and keeps it in `seed`.

    >>> import numpy as np, s4q
    >>> features = s4q.features.TableFeatures.one_hot(horizon=2, n_states=3, n_actions=2)
    >>> stream = Stream(s4q.S4Q(s4q.Spec.of(features, horizon=2, reward_range=(0, 1))), features)
    >>> stream.act(0), stream.observe(0.5, 1), stream.act(1), stream.observe(1.0, 2)
    (0, False, 0, True)
    """

    def __init__(self, learner: Learner, features: FeatureMap, seed: int | None = 0) -> None:
        if not callable(getattr(learner, "ask", None)) or isinstance(learner, type):
            raise ValueError(f"learner must be a learner, with a method `ask`; got {learner!r}")
        self.seed = drawn_seed(seed)
        self.learner = learner
        self.n_episodes = 0  # finished ones
        self._players = EpisodePlayers("stream", features, learner.spec, self.seed)
        self._sums: EpisodeSums[Any] | None = None
        self._player: EpisodePlayer | None = None
        self._waiting = False  # for `observe`
        self._arrived: Any = None  # the newest observation of the open episode

    def act(self, observation: Any) -> int:
        """The action to take, 0..n_actions-1.

        Args:
            observation: what the system shows now.
        """
        if self._waiting:
            raise ValueError("act was called twice in a row; call observe with what the last action led to")
        if self._player is None:
            self._sums = self._sums or self._next_sums()
            self._player = self._players.player(self._sums, self._sums.shard.index + self._sums.n_episodes)
        try:
            action = self._player.act(observation)
        except ValueError:
            self._player = None
            raise
        self._waiting = True
        return action

    def observe(self, reward: float, observation: Any, terminated: bool = False, truncated: bool = False) -> bool:
        """Take in what the last action led to; True when the episode is over.

        Args:
            reward: of this step.
            observation: what the system shows after it.
            terminated: True if the system ended the episode. Default: False.
            truncated: True if the episode goes on elsewhere or nowhere, though it has not ended: its steps are kept,
                and its return counts nowhere. Default: False.
        """
        if not self._waiting or self._player is None or self._sums is None:
            raise ValueError("observe was called without an action; call act first")
        self._waiting = False
        player, self._player = self._player, None
        if not player.observe(reward, observation, terminated, truncated):
            self._player, self._arrived = player, observation
            return False
        self._finish(player, self._sums)
        return True

    def cut(self) -> bool:
        """End the open episode where it is, as a system does that is switched off or taken over.

        Its steps are kept, the last one with the state it led to; its return counts nowhere. An action that was not
        yet answered by `observe` is forgotten. True if there was a step to keep; else nothing happens.
        """
        player, sums = self._player, self._sums
        if player is None or sums is None or not player.rewards:
            self.drop()
            return False
        waiting, self._waiting, self._player = self._waiting, False, None
        if waiting:
            player.take_back()
        player.cut(self._arrived)
        self._finish(player, sums)
        return True

    def drop(self) -> bool:
        """Forget the open episode, as if it had never begun. True if there was one."""
        there = self._player is not None
        self._player, self._waiting = None, False
        return there

    def _finish(self, player: EpisodePlayer, sums: EpisodeSums[Any]) -> None:
        """Add an episode that is over; tell the learner when its shard is full."""
        sums.add(player.episode())
        self.n_episodes += 1
        if sums.complete:
            self._sums = None
            self._tell(sums)

    def _next_sums(self) -> EpisodeSums[Any]:
        """Those of the learner's next request; of its policy alone when it asks for nothing more."""
        spec, request = self.learner.spec, self.learner.ask(_BUDGET)
        if request is None:
            return ReturnSums(Evaluate(0, self.learner.policy, _BUDGET), Shard(self.n_episodes, 1), spec)
        shard = next(iter(shards_of(request, spec)))
        if isinstance(request, Explore):
            return VisitSums(request, shard, spec, request.start())
        return RegressSums(request, shard, spec, reset_early=False)

    def _tell(self, sums: EpisodeSums[Any]) -> None:
        if isinstance(sums, ReturnSums):  # nothing was asked
            return
        # Bits depend on the number of threads.
        with threadpool_limits(limits=1), interruption_held_back() as interruption:
            self.learner.tell(cast(Asks[Any], sums.request), sums.answer())
        interruption.deliver()
