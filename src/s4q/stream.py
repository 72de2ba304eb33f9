"""Stream: a learner in your own loop, for systems that call `act` and `observe` and cannot be reset early."""

from typing import Any, final

from threadpoolctl import threadpool_limits

from s4q.collectors.stepping.engine import Stepping
from s4q.collectors.stepping.one_episode import Player
from s4q.collectors.stepping.return_sums import Scores
from s4q.collectors.stepping.sums import Tally
from s4q.core.messages import Evaluate, Explore, FeatureMap, Learner, Shard
from s4q.running.interruption import interruption_held_back

_BUDGET = 2**40  # nobody knows how long a live system runs


@final
class Stream:
    """Steers a live system with a learner, one step at a time.

    Call `act(observation)` for the action to take, then `observe(reward, observation, terminated)` with what it led
    to; True means that the episode is over and the next `act` starts another. An episode runs for the horizon, unless
    the system ends it. The learner is told whenever a shard of episodes is full, so it lags a little behind. On the
    same episodes a GymCollector with reset_early=False gives the same bits. After an error the open episode is
    dropped; the next `act` starts it anew. Once a learner is done its policy goes on acting.

    >>> import numpy as np, s4q
    >>> features = s4q.features.TableFeatures.one_hot(horizon=2, n_states=3, n_actions=2)
    >>> stream = Stream(s4q.S4Q(s4q.Spec.of(features, horizon=2, reward_range=(0, 1))), features)
    >>> stream.act(0), stream.observe(0.5, 1), stream.act(1), stream.observe(1.0, 2)
    (0, False, 0, True)
    """

    def __init__(self, learner: Learner, features: FeatureMap, seed: int = 0) -> None:
        if not callable(getattr(learner, "ask", None)) or isinstance(learner, type):
            raise ValueError(f"learner must be a learner, with a method `ask`; got {learner!r}")
        self.learner = learner
        self.n_episodes = 0  # finished ones
        self._stepping = Stepping("stream", features, learner.spec, seed, discrete=False, reset_early=False)
        self._tally: Tally | Scores | None = None
        self._player: Player | None = None
        self._waiting = False  # for `observe`

    def act(self, observation: Any) -> int:
        """The action to take, 0..n_actions-1."""
        if self._waiting:
            raise ValueError("act was called twice in a row; call observe with what the last action led to")
        if self._player is None:
            self._tally = self._tally or self._next_tally()
            self._player = self._stepping.player(self._tally, seeded=False)
        try:
            action = self._player.act(observation)
        except ValueError:
            self._player = None
            raise
        self._waiting = True
        return action

    def observe(self, reward: float, observation: Any, terminated: bool = False) -> bool:
        """What the last action led to; True when the episode is over."""
        if not self._waiting or self._player is None or self._tally is None:
            raise ValueError("observe was called without an action; call act first")
        self._waiting = False
        player, self._player = self._player, None
        if not player.observe(reward, observation, terminated):
            self._player = player
            return False
        self._tally.add(player)
        self.n_episodes += 1
        if self._tally.complete:
            tally, self._tally = self._tally, None
            self._tell(tally)
        return True

    def _next_tally(self) -> Tally | Scores:
        """Of the learner's next request; of its policy alone when it asks for nothing more."""
        request = self.learner.ask(_BUDGET)
        if request is None:
            evaluation = Evaluate(0, self.learner.policy, _BUDGET)
            return self._stepping.tally(evaluation, Shard(self.n_episodes, 1), None)
        shard = next(iter(self._stepping.shards(request)))
        start = request.start() if isinstance(request, Explore) else None
        return self._stepping.tally(request, shard, start)

    def _tell(self, tally: Tally | Scores) -> None:
        if isinstance(tally, Tally):
            # Bits depend on the number of threads.
            with threadpool_limits(limits=1), interruption_held_back() as interruption:
                self.learner.tell(tally.request, tally.answer())
            interruption.deliver()
