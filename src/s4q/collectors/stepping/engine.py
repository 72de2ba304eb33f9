"""Stepping: what everyone who steps an environment shares. Shards, dice, players and tallies."""

from bisect import bisect_right
from collections.abc import Iterator
from typing import Any, final

import numpy as np

from s4q.collectors.draws import cumulative
from s4q.collectors.seeding import EpisodeDice
from s4q.collectors.sharding import address, fixed_shards
from s4q.collectors.stepping.greedy_actor import Actor, actor_of
from s4q.collectors.stepping.one_episode import Player
from s4q.collectors.stepping.return_sums import Scores
from s4q.collectors.stepping.step_features import Eyes, Place
from s4q.collectors.stepping.sums import Tally
from s4q.core.blocks import Array
from s4q.core.identity_cache import Memo
from s4q.core.messages import Evaluate, FeatureMap, Request, Shard, Spec
from s4q.core.policies import Policy
from s4q.core.validation import require_count

_BUFFER = 2**22  # numbers held for one shard at most: 32 MB
_MOST_EPISODES = 256


def shard_size(spec: Spec) -> int:
    """Episodes of a shard: as many as fit in the buffer, since their features are held until the shard is summed.

    Part of what a seed means, so changing it changes every result.
    """
    return max(1, min(_MOST_EPISODES, _BUFFER // (spec.horizon * spec.block_dim)))


@final
class Stepping:
    """Gives out players and tallies. name: of the environment, for messages. discrete: observations are whole numbers.

    reset_early: may a regression episode be left after the level it is fitted to?
    """

    def __init__(
        self, name: str, features: FeatureMap, spec: Spec, seed: int, *, discrete: bool, reset_early: bool
    ) -> None:
        if not isinstance(spec, Spec):
            raise ValueError(f"spec must be a Spec (Spec.of makes one); got {type(spec).__name__}")
        require_count("seed", seed, "an address in SeedSequence", at_least=0)
        self.spec = spec
        self.seed = seed
        self._name = name
        self._eyes = Eyes(features, spec, discrete)
        self._reset_early = reset_early
        self._actors: Memo[Policy, Actor] = Memo(actor_of, size=256)

    def shards(self, request: Request) -> Iterator[Shard]:
        """Fixed pieces, a pure function of the request."""
        return fixed_shards(request, shard_size(self.spec))

    def tally(self, request: Any, shard: Shard, start: Array | None) -> Tally | Scores:
        """An empty one."""
        tally: Tally | Scores
        if isinstance(request, Evaluate):
            tally = Scores(request, shard, self.spec)
        else:
            tally = Tally(request, shard, start, self.spec, self._reset_early)
        self._actors.keep_only(tally.policies[0])  # an actor holds its policy and more
        return tally

    def player(self, tally: Tally | Scores, ahead: int = 0, seeded: bool = True) -> Player:
        """Of the episode that is `ahead` of the next one to be tallied. seeded: the environment takes its seed."""
        number = tally.n_episodes + ahead
        request, episode = tally.request, tally.shard.index + number
        dice = EpisodeDice(self.seed, address(request), episode, self.spec.horizon)
        policies, weights = tally.policies
        which = bisect_right(cumulative(np.array(weights)).tolist(), dice.mixture) if len(policies) > 1 else 0
        return Player(
            Place(self._name, request.id, episode, dice.env_seed if seeded else None),
            self.spec,
            self._eyes,
            which,
            self._actors(policies[which]),
            dice,
            tally.last,
            tally.looks_after(number),
        )
