"""GymCollector: one Gymnasium environment, one episode after the other.

Users make it, or Agent does; `run` calls it. It steps the environment and says what is wrong with it, and leaves
features, actions and sums to the others in this folder.
"""

from typing import Any, final

from s4q.collectors.seeding import EnvSeeds
from s4q.collectors.stepping.env_facts import EnvFacts
from s4q.collectors.stepping.episode import Episode, EpisodePlayer
from s4q.collectors.stepping.stepping_collector import EpisodePlayers, SteppingCollector
from s4q.collectors.stepping.sums import EpisodeSums
from s4q.core.messages import FeatureMap, Spec

_RESET = ("observation", "info")
_STEP = ("observation", "reward", "terminated", "truncated", "info")


@final
class GymCollector(SteppingCollector):
    """Answers requests by stepping a Gymnasium environment with finitely many actions.

    Every episode begins with `env.reset(seed=...)`. The seed is made from `seed` and the number of the episode, so the
    same episodes come out of one env, of a vector of envs and of any number of workers. These seeds have 63 bits, or
    31 for an env that refuses so many at its first reset. `terminated` ends an episode for good. `truncated` before the
    horizon cuts it: its steps are data, the last one with its next state, and its return counts nowhere.

    Args:
        env: The environment. Its actions are Discrete, MultiDiscrete or MultiBinary.
        features: The map from observations to features.
        spec: Sizes, horizon and declared reward range; `Spec.of` makes one.
        seed: Seed of all random numbers, the env's included. 0 by default; None draws one and keeps it in `seed`.
        reset_early: True (default) if a regression episode is left after the level that is fitted.
    """

    def __init__(
        self, env: Any, features: FeatureMap, spec: Spec, seed: int | None = 0, *, reset_early: bool = True
    ) -> None:
        super().__init__(spec, seed, reset_early=reset_early)
        facts = EnvFacts.of(env, spec)
        self.env = env
        self.name = facts.name
        self._actions = facts.actions
        self._players = EpisodePlayers(facts.name, features, spec, self.seed, facts)
        self._seeds = EnvSeeds()

    def _play(self, sums: EpisodeSums[Any], episodes: range) -> list[Episode]:
        return self._players.play(sums, episodes, self._step)

    def _step(self, players: list[EpisodePlayer]) -> None:
        (player,) = players
        step, own_action, address = self.env.step, self._actions, player.address
        try:
            happened = self._seeds.reset([player.draws], lambda seeds: self.env.reset(seed=seeds[0]))
        except Exception as error:
            raise address.fault(0, f"env.reset raised {type(error).__name__}: {error}", "correct the env") from error
        if not isinstance(happened, (tuple, list)) or len(happened) != len(_RESET):
            raise address.fault(0, *_wrong_parts("env.reset", happened, _RESET))
        observation = happened[0]
        while True:
            action = player.act(observation)
            h = len(player.rewards)
            try:
                happened = step(own_action(action))
            except Exception as error:
                what = f"env.step raised {type(error).__name__}: {error}"
                raise address.fault(h, what, "correct the env; nothing was learned from here on") from error
            if not isinstance(happened, (tuple, list)) or len(happened) != len(_STEP):
                raise address.fault(h, *_wrong_parts("env.step", happened, _STEP))
            observation, reward, terminated, truncated, _ = happened
            if player.observe(reward, observation, terminated, truncated):
                return


def _wrong_parts(method: str, returned: Any, names: tuple[str, ...]) -> tuple[str, str]:
    """What is wrong with what env.reset or env.step returned, and the cure."""
    shown = f"{len(returned)} values" if isinstance(returned, (tuple, list)) else f"a {type(returned).__name__}"
    return f"{method} returned {shown}", f"Gymnasium asks for ({', '.join(names)})"
