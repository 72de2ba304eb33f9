"""GymCollector: one Gymnasium environment, one episode after the other."""

from collections.abc import Iterator
from typing import Any, final

from s4q.collectors import sharding as shards
from s4q.collectors.stepping.engine import Stepping
from s4q.collectors.stepping.env_checks import (
    check_observations,
    env_name,
    first_action,
    require_env,
    require_observations,
    require_time,
    truncation,
)
from s4q.collectors.stepping.env_seeds import EnvSeeds
from s4q.collectors.stepping.one_episode import Player
from s4q.collectors.stepping.step_features import Place
from s4q.core.blocks import Array
from s4q.core.messages import FeatureMap, Request, Shard, Spec

_STEP = ("observation", "reward", "terminated", "truncated", "info")


@final
class GymCollector:
    """Answers requests by stepping a Gymnasium environment with a Discrete action space.

    features: of its observations. spec: horizon, sizes and the declared reward range. Every episode begins with
    `env.reset(seed=...)`, its seed made from `seed` and the number of the episode, so the same episodes come out of
    one env, of a vector of envs and of any number of workers. These seeds have 63 bits, or 31 for an env that refuses
    so many at its first reset. `terminated` ends an episode for good; `truncated` before the horizon is an error.
    reset_early: leave a regression episode after the level it is fitted to.
    """

    def __init__(self, env: Any, features: FeatureMap, spec: Spec, seed: int = 0, *, reset_early: bool = True) -> None:
        require_env(env)
        self.env = env
        self.name = env_name(env)
        discrete = require_observations(env.observation_space, self.name)
        self._stepping = Stepping(self.name, features, spec, seed, discrete=discrete, reset_early=reset_early)
        self._first_action = first_action(env.action_space, spec, self.name)
        require_time(env, spec, self.name)
        self._seeds = EnvSeeds()

    @property
    def spec(self) -> Spec:
        return self._stepping.spec

    @property
    def seed(self) -> int:
        return self._stepping.seed

    def shards(self, request: Request) -> Iterator[Shard]:
        """Fixed pieces, a pure function of the request."""
        return self._stepping.shards(request)

    def collect(self, request: Any) -> Any:
        """The whole answer: shards played in order and added up."""
        return shards.collect(self, request)

    def play(self, request: Any, shard: Shard, start: Array | None = None) -> Any:
        """The answer of one shard; `start` is an Explore's progress before it."""
        tally = self._stepping.tally(request, shard, start)
        while not tally.complete:
            player = self._stepping.player(tally)
            try:
                self._episode(player)
            finally:  # an observation outside of the space explains most other errors
                check_observations(self.env.observation_space, player.observations, player.place)
            tally.add(player)
        return tally.answer()

    def _episode(self, player: Player) -> None:
        step, first, horizon = self.env.step, self._first_action, self.spec.horizon
        try:
            begun = self._seeds.reset([player], lambda seeds: self.env.reset(seed=seeds[0]))
        except Exception as error:
            what = f"env.reset raised {type(error).__name__}: {error}"
            raise player.place.fault(0, what, "correct the env") from error
        place = player.place
        observation = _parts(place, 0, begun, ("observation", "info"))[0]
        while True:
            action = player.act(observation)
            try:
                happened = step(first + action)
            except Exception as error:
                what = f"env.step raised {type(error).__name__}: {error}"
                raise place.fault(player.n_steps, what, "correct the env; nothing was learned from here on") from error
            observation, reward, terminated, truncated, _ = _parts(place, player.n_steps, happened, _STEP)
            if player.observe(reward, observation, terminated):
                return
            if truncated is not False and player.flag("truncated", truncated) and player.n_steps < horizon:
                raise truncation(place, player.n_steps - 1, self.spec)


def _parts(place: Place, step: int, returned: Any, names: tuple[str, ...]) -> Any:
    """What env.reset or env.step returned, if it is all of these."""
    several = isinstance(returned, (tuple, list))
    if several and len(returned) == len(names):
        return returned
    method = "env.step" if names is _STEP else "env.reset"
    shown = f"{len(returned)} values" if several else f"a {type(returned).__name__}"
    raise place.fault(step, f"{method} returned {shown}", f"Gymnasium asks for ({', '.join(names)})")
