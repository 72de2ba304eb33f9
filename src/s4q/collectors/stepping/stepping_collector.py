"""What everyone who steps shares: shards, the players of episodes, and the loop that adds episodes up.

GymCollector, VectorCollector and EpisodeCollector are SteppingCollectors; EpisodePlayers makes the players for the
first two and for Stream. Nothing here knows how an environment is stepped.
"""

from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterator
from math import ceil
from typing import Any, final

from s4q.collectors.seeding import EpisodeDraws
from s4q.collectors.sharding import ShardedCollector, address, fixed_shards
from s4q.collectors.stepping.env_facts import EnvFacts
from s4q.collectors.stepping.episode import Episode, EpisodePlayer
from s4q.collectors.stepping.greedy_actor import Actor, actor_of
from s4q.collectors.stepping.step_features import EpisodeAddress, Featurizer
from s4q.collectors.stepping.sums import EpisodeSums, RegressSums, ReturnSums, VisitSums
from s4q.core.blocks import Array
from s4q.core.identity_cache import IdentityCache
from s4q.core.messages import (
    A,
    Evaluate,
    Explore,
    FeatureMap,
    Policy,
    Regress,
    Regression,
    Request,
    Returns,
    Shard,
    Spec,
    Visits,
)
from s4q.core.spec import require_spec
from s4q.core.validation import drawn_seed

_BUFFER = 2**22  # numbers held for one shard at most: 32 MB
_MOST_EPISODES = 256
_SHARDS_OF_A_PHASE = 8  # into which the episodes that a phase has at least are cut


def shards_of(request: Request, spec: Spec) -> Iterator[Shard]:
    """Shards of as many episodes as fit in the buffer, since their features are held until the shard is added up.

    Where steps are kept, those of all actions are held.

    Their size is part of what a seed means, so changing it changes every result.
    """
    vectors = spec.n_actions if isinstance(request, Explore) and request.keep else 1
    size = max(1, min(_MOST_EPISODES, _BUFFER // (spec.horizon * spec.block_dim * vectors)))
    if isinstance(request, Explore) and request.at_least > 1:  # all of these are needed, so workers share them
        size = min(size, ceil(request.at_least / _SHARDS_OF_A_PHASE))
    return fixed_shards(request, size)


class SteppingCollector(ShardedCollector):
    """Answers requests by playing their episodes one by one; subclasses say how a few of them are played.

    Args:
        spec: Sizes, horizon and reward range of the problem.
        seed: Seed of all random numbers. None draws one and keeps it in `seed`.
        at_once: The number of episodes that are played side by side. 1 by default.
        reset_early: True (default) if a regression episode is left after the level that is fitted.
    """

    def __init__(self, spec: Spec, seed: int | None, *, at_once: int = 1, reset_early: bool = True) -> None:
        require_spec(spec)
        self.spec = spec
        self.seed = drawn_seed(seed)
        self._at_once = at_once
        self._reset_early = reset_early

    @abstractmethod
    def _play(self, sums: EpisodeSums[Any], episodes: range) -> list[Episode]:
        """Play the episodes of these numbers of `sums.request`, from the first to the last."""

    def shards(self, request: Request) -> Iterator[Shard]:
        """The pieces of a request, in order: a pure function of the request."""
        return shards_of(request, self.spec)

    def _regress(self, request: Regress, shard: Shard) -> Regression:
        return self._add_up(RegressSums(request, shard, self.spec, self._reset_early))

    def _explore(self, request: Explore, shard: Shard, start: Array) -> Visits:
        return self._add_up(VisitSums(request, shard, self.spec, start))

    def _evaluate(self, request: Evaluate, shard: Shard) -> Returns:
        return self._add_up(ReturnSums(request, shard, self.spec))

    def _add_up(self, sums: EpisodeSums[A]) -> A:
        end = sums.shard.index + sums.shard.n_episodes
        while not sums.complete:
            first = sums.shard.index + sums.n_episodes
            for episode in self._play(sums, range(first, min(first + self._at_once, end))):
                sums.add(episode)
                if sums.complete:  # an Explore has crossed: what was played ahead is left out
                    break
        return sums.answer()


@final
class EpisodePlayers:
    """Makes the player of each episode: its random numbers, its policy and its features.

    Args:
        name: The name of the environment in error messages.
        features: The map from observations to features.
        spec: Sizes, horizon and reward range of the problem.
        seed: Seed of all random numbers.
        facts: What is known of the environment. None (default) means that no environment takes a seed or declares its
            observations.
    """

    def __init__(self, name: str, features: FeatureMap, spec: Spec, seed: int, facts: EnvFacts | None = None) -> None:
        self._name = name
        self._spec = spec
        self._seed = seed
        self._facts = facts
        discrete, raw = (False, None) if facts is None else (facts.numbers is not None, facts.raw)
        self._featurizer = Featurizer(features, spec, discrete, raw)
        self._actors: IdentityCache[Policy, Actor] = IdentityCache(actor_of, size=256)

    def play(
        self, sums: EpisodeSums[Any], episodes: range, step: Callable[[list[EpisodePlayer]], None]
    ) -> list[Episode]:
        """The episodes of these numbers, stepped by `step`."""
        players = [self.player(sums, episode) for episode in episodes]
        try:
            step(players)
        finally:  # an observation outside of the space explains most other errors
            if self._facts is not None:
                for player in players:
                    self._facts.check(player.observations, player.address)
        return [player.episode() for player in players]

    def player(self, sums: EpisodeSums[Any], episode: int) -> EpisodePlayer:
        """The player of the episode of this number."""
        request, spec, policies = sums.request, self._spec, sums.policies
        if episode == sums.shard.index:
            self._actors.keep_only(policies)  # an actor holds its policy and more
        draws = EpisodeDraws(self._seed, address(request), episode, spec.horizon)
        which = bisect_right(sums.cumulative_weights, draws.policy) if len(policies) > 1 else 0
        return EpisodePlayer(
            EpisodeAddress(self._name, request.id, episode, None if self._facts is None else draws),
            spec,
            self._featurizer,
            which,
            self._actors(policies[which]),
            draws,
            sums.last,
            episode < sums.next_needed_before,
        )
