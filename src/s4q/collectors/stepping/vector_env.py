"""VectorCollector: a Gymnasium VectorEnv in any autoreset mode. One batch of episodes at a time, each with its seed."""

from collections.abc import Iterator
from typing import Any, final

import numpy as np

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
from s4q.core.blocks import Array
from s4q.core.messages import FeatureMap, Request, Shard, Spec


@final
class VectorCollector:
    """Answers requests by stepping a Gymnasium VectorEnv; the same bits as GymCollector on one of its envs.

    Sub-environments step side by side (in processes, if the VectorEnv does that); features and actions are worked out
    one observation at a time, so that neighbours cannot change a bit. Each batch begins with one seed per episode,
    and whatever a sub-environment does after its episode ended is ignored. The parameters are GymCollector's.
    """

    def __init__(self, env: Any, features: FeatureMap, spec: Spec, seed: int = 0, *, reset_early: bool = True) -> None:
        require_env(env, ("reset", "step", "num_envs", "single_action_space", "single_observation_space"))
        from gymnasium.vector import AutoresetMode

        self.env = env
        self.name = env_name(env)
        discrete = require_observations(env.single_observation_space, self.name)
        self._stepping = Stepping(self.name, features, spec, seed, discrete=discrete, reset_early=reset_early)
        self._first_action = first_action(env.single_action_space, spec, self.name)
        require_time(env, spec, self.name)
        self._seeds = EnvSeeds()
        mode = env.metadata.get("autoreset_mode")
        if mode is None:
            raise ValueError(f'{self.name}: env.metadata["autoreset_mode"] must say how finished episodes are reset')
        self._same_step = AutoresetMode(mode) is AutoresetMode.SAME_STEP
        self._disabled = AutoresetMode(mode) is AutoresetMode.DISABLED

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
            n = min(self.env.num_envs, shard.n_episodes - tally.n_episodes)
            players = [self._stepping.player(tally, ahead) for ahead in range(n)]
            try:
                self._batch(players)
            finally:
                for player in players:
                    check_observations(self.env.single_observation_space, player.observations, player.place)
            for player in players:
                tally.add(player)
                if tally.complete:  # an Explore has crossed: what was played ahead is left out
                    break
        return tally.answer()

    def _batch(self, players: list[Player]) -> None:
        """Play these episodes side by side; sub-environments without one idle along."""
        observations = self._reset(players)
        actions = np.full(self.env.num_envs, self._first_action, dtype=self.env.single_action_space.dtype)
        done = np.zeros(self.env.num_envs, dtype=np.bool_)
        while not all(player.over for player in players):
            if self._disabled and done.any():
                self.env.reset(options={"reset_mask": done})  # or the next step would be refused
            for i, player in enumerate(players):
                if not player.over:
                    actions[i] = self._first_action + player.act(observations[i])
            observations, rewards, terminated, truncated, info = self._step(players, actions)
            done = terminated | truncated
            for i, player in enumerate(players):
                if not player.over:
                    # With SAME_STEP the observation is already the start of another episode.
                    arrived = info["final_obs"][i] if self._same_step and done[i] else observations[i]
                    if not player.observe(rewards[i], arrived, bool(terminated[i])) and truncated[i]:
                        raise truncation(player.place, player.n_steps - 1, self.spec)

    def _reset(self, players: list[Player]) -> list[Any]:
        idle = self.env.num_envs - len(players)
        try:
            observations, _ = self._seeds.reset(players, lambda s: self.env.reset(seed=s + s[:1] * idle))
        except Exception as error:
            raise players[0].place.fault(
                0,
                f"env.reset(seed=[one per episode]) raised {type(error).__name__}: {error}",
                "correct the env; a vector class that takes one seed for all cannot be used here: make it with "
                'gymnasium.make_vec(..., vectorization_mode="sync"), or use CartPoleBatch for CartPole; envs in '
                "processes of their own must take seeds of 63 bits, or cut them: seed % 2**31",
            ) from error
        return self._split(observations)

    def _step(self, players: list[Player], actions: Any) -> tuple[list[Any], Any, Any, Any, Any]:
        try:
            observations, rewards, terminated, truncated, info = self.env.step(actions)
        except Exception as error:
            open_ones = [player for player in players if not player.over]
            numbers = ", ".join(str(player.place.episode) for player in open_ones)
            what = f"env.step raised {type(error).__name__}: {error} (playing episodes {numbers})"
            place, step = open_ones[0].place, open_ones[0].n_steps
            raise place.fault(step, what, "correct the env; nothing was learned from here on") from error
        return self._split(observations), rewards, terminated, truncated, info

    def _split(self, observations: Any) -> list[Any]:
        """One observation per sub-environment, copied: some environments write over them."""
        return [np.array(observations[i]) for i in range(self.env.num_envs)]
