"""The random numbers of an episode, addressed by its number, and the seeds of environments.

Collectors that step draw from here and from nowhere else. An episode has the same numbers whoever plays it, beside
which other episodes, and in what order; so nothing here may carry state from one episode to the next.
"""

from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np

from s4q.core.blocks import Array


@final
class EpisodeDraws:
    """The seed of an episode's environment, the number that picks its policy, and one number for each action.

    All are made from SeedSequence(seed, spawn_key=(request address, number of the episode within that request)).

    >>> a, b = EpisodeDraws(0, 3, 7, horizon=2), EpisodeDraws(0, 3, 7, horizon=2)
    >>> a.env_seed == b.env_seed, a.action(1) == b.action(1), EpisodeDraws(0, 3, 8, horizon=2).env_seed == a.env_seed
    (True, True, False)
    """

    __slots__ = ("_actions", "_horizon", "_policy", "_sequence", "env_seed", "narrow_env_seed")

    def __init__(self, seed: int, request_address: int, episode: int, horizon: int) -> None:
        self._sequence = np.random.SeedSequence(seed, spawn_key=(request_address, episode))
        self._horizon = horizon
        first, self._policy = self._sequence.generate_state(2, np.uint64).tolist()
        # 63 bits, the first of them 1, so that all are equally long. The others are random: some two of 10^6 episodes
        # share a seed with a chance below 10^12 / 2 / 2^62 = 1e-7. Within a request none do up to episode 2^32, since
        # each 32-bit word of the sequence is a one-to-one function of the last word of its address.
        self.env_seed: int = 2**62 + (first >> 2)
        # 31 bits: what any generator takes. Some 200 of 10^6 episodes share one with an earlier episode.
        self.narrow_env_seed: int = first >> 33
        self._actions: list[int] = []  # made when a policy asks, because most policies are deterministic

    @property
    def policy(self) -> float:
        """A number in [0, 1) that picks the policy of a mixture."""
        return _fraction(self._policy)

    def action(self, h: int) -> float:
        """A number in [0, 1) for the action at level h."""
        if not self._actions:
            self._actions = self._sequence.generate_state(2 + self._horizon, np.uint64)[2:].tolist()
        return _fraction(self._actions[h])


def _fraction(word: int) -> float:
    """64 random bits as a number in [0, 1)."""
    return (word >> 11) * 2.0**-53


def episode_numbers(seed: int, request_address: int, episodes: range, width: int) -> Array:
    """Numbers in [0, 1), (n, width), for consecutive episodes of one request; those of an episode are its own.

    Each episode has its own stretch of one Philox stream, so that many episodes cost one generator.

    >>> both, second = episode_numbers(0, 3, range(7, 9), 5), episode_numbers(0, 3, range(8, 9), 5)
    >>> bool((both[1] == second[0]).all()), bool((both[0] == both[1]).any())
    (True, False)
    """
    stretch = -(-width // 4)  # a step of the generator makes four numbers
    stream = np.random.Philox(np.random.SeedSequence(seed, spawn_key=(request_address,)))
    numbers = np.random.Generator(stream.advance(episodes.start * stretch)).random((len(episodes), 4 * stretch))
    return numbers[:, :width]


@final
class EnvSeeds:
    """Resets one environment, or a vector of them, with the seeds of episodes.

    Gymnasium takes wide seeds (63 bits); some environments hand theirs to generators that do not. An environment that
    raises at its first reset with wide seeds, works with narrow ones (31 bits) and raises again with the wide ones
    gets narrow ones from then on. All wide seeds have the same number of bits, so an environment refuses all of them
    or none: the decision depends on the environment alone, not on the episode or on a fault that passes.
    """

    def __init__(self) -> None:
        self._narrow: bool | None = None  # None: not known before the first reset

    def reset(self, episodes: Sequence[EpisodeDraws], reset: Callable[[list[int]], Any]) -> Any:
        """What `reset` returns for the seeds of these episodes."""
        if self._narrow is None:
            return self._first_reset(episodes, reset)
        if self._narrow:
            _narrow_seeds(episodes)
        return reset([draws.env_seed for draws in episodes])

    def _first_reset(self, episodes: Sequence[EpisodeDraws], reset: Callable[[list[int]], Any]) -> Any:
        wide = [draws.env_seed for draws in episodes]
        try:
            begun = reset(wide)
        except Exception as error:
            narrow = [draws.narrow_env_seed for draws in episodes]
            try:
                reset(narrow)
            except Exception:
                raise error from None  # the size of the seeds was not the cause
            try:
                begun = reset(wide)  # once more, since the first failure may have had another cause
            except Exception:
                self._narrow = True
                _narrow_seeds(episodes)
                return reset(narrow)
        self._narrow = False
        return begun


def _narrow_seeds(episodes: Sequence[EpisodeDraws]) -> None:
    for draws in episodes:
        draws.env_seed = draws.narrow_env_seed
