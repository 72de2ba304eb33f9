"""VectorCollector: a Gymnasium VectorEnv in any autoreset mode, one batch of episodes at a time, each with its seed.

Users make it, or Agent does; `run` calls it. It steps the environments and says what is wrong with them, and leaves
features, actions and sums to the others in this folder.
"""

from typing import Any, final

import numpy as np

from s4q.collectors.seeding import EnvSeeds
from s4q.collectors.stepping.env_facts import EnvFacts
from s4q.collectors.stepping.episode import Episode, EpisodePlayer
from s4q.collectors.stepping.observations import split_vector
from s4q.collectors.stepping.stepping_collector import EpisodePlayers, SteppingCollector
from s4q.collectors.stepping.sums import EpisodeSums
from s4q.core.messages import FeatureMap, Spec


@final
class VectorCollector(SteppingCollector):
    """Answers requests by stepping a Gymnasium VectorEnv; the same bits as GymCollector on one of its envs.

    Sub-environments step side by side (in processes, if the VectorEnv does that). Features and actions are computed
    one observation at a time, so the other sub-environments cannot change a bit. Each batch begins with one seed per
    episode, and what a sub-environment does after its episode ended is ignored.

    Args:
        env: The vector of environments. Its metadata must name the autoreset mode.
        features: The map from observations to features.
        spec: Sizes, horizon and declared reward range; `Spec.of` makes one.
        seed: Seed of all random numbers, the envs' included. 0 by default; None draws one and keeps it in `seed`.
        reset_early: True (default) if a regression episode is left after the level that is fitted.
    """

    def __init__(
        self, env: Any, features: FeatureMap, spec: Spec, seed: int | None = 0, *, reset_early: bool = True
    ) -> None:
        super().__init__(spec, seed, at_once=getattr(env, "num_envs", 1), reset_early=reset_early)
        facts = EnvFacts.of(env, spec, vector=True)
        from gymnasium.vector import AutoresetMode

        mode = env.metadata.get("autoreset_mode")
        if mode is None:
            raise ValueError(f'{facts.name}: env.metadata["autoreset_mode"] must say how finished episodes are reset')
        self.env = env
        self.name = facts.name
        self._actions, self._space = facts.actions, facts.space
        self._players = EpisodePlayers(facts.name, features, spec, self.seed, facts)
        self._seeds = EnvSeeds()
        self._same_step = AutoresetMode(mode) is AutoresetMode.SAME_STEP
        self._disabled = AutoresetMode(mode) is AutoresetMode.DISABLED

    def _play(self, sums: EpisodeSums[Any], episodes: range) -> list[Episode]:
        return self._players.play(sums, episodes, self._step)

    def _step(self, players: list[EpisodePlayer]) -> None:
        """Play these episodes side by side; sub-environments without an episode take action 0."""
        observations = self._reset(players)
        actions = self._actions.many(np.zeros(self.env.num_envs, dtype=np.int64))
        actions = actions.astype(self.env.single_action_space.dtype)
        done = np.zeros(self.env.num_envs, dtype=np.bool_)
        while not all(player.over for player in players):
            if self._disabled and done.any():
                self.env.reset(options={"reset_mask": done})  # or the next step would be refused
            for i, player in enumerate(players):
                if not player.over:
                    actions[i] = self._actions(player.act(observations[i]))
            try:
                seen, rewards, terminated, truncated, info = self.env.step(actions)
            except Exception as error:
                raise _step_failed(players, error) from error
            observations, done = self._split(seen), terminated | truncated
            for i, player in enumerate(players):
                if not player.over:
                    # With SAME_STEP the observation is already the start of another episode.
                    arrived = info["final_obs"][i] if self._same_step and done[i] else observations[i]
                    player.observe(rewards[i], arrived, bool(terminated[i]), bool(truncated[i]))

    def _reset(self, players: list[EpisodePlayer]) -> list[Any]:
        idle = self.env.num_envs - len(players)
        draws = [player.draws for player in players]
        try:
            observations, _ = self._seeds.reset(draws, lambda seeds: self.env.reset(seed=seeds + seeds[:1] * idle))
        except Exception as error:
            raise players[0].address.fault(
                0,
                f"env.reset(seed=[one per episode]) raised {type(error).__name__}: {error}",
                "correct the env; a vector class that takes one seed for all cannot be used here: make it with "
                'gymnasium.make_vec(..., vectorization_mode="sync"), or use CartPoleBatch for CartPole; envs in '
                "processes of their own must take seeds of 63 bits, or cut them: seed % 2**31",
            ) from error
        return self._split(observations)

    def _split(self, observations: Any) -> list[Any]:
        return split_vector(self._space, observations, self.env.num_envs)


def _step_failed(players: list[EpisodePlayer], error: Exception) -> ValueError:
    """The error of a step that raised; it names all episodes that were being played."""
    playing = [player for player in players if not player.over]
    numbers = ", ".join(str(player.address.episode) for player in playing)
    what = f"env.step raised {type(error).__name__}: {error} (playing episodes {numbers})"
    cure = "correct the env; nothing was learned from here on"
    return playing[0].address.fault(len(playing[0].rewards), what, cure)
