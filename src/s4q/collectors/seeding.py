"""The dice of one episode, addressed by its number: the same whoever plays it, beside whom, and in what order."""

from typing import final

import numpy as np


@final
class EpisodeDice:
    """All chance that an episode needs: the seed of its environment, the draw of its policy, one draw per action.

    Drawn from SeedSequence(seed, spawn_key=(request id, number of the episode within that id)).

    >>> a, b = EpisodeDice(0, 3, 7, horizon=2), EpisodeDice(0, 3, 7, horizon=2)
    >>> a.env_seed == b.env_seed, a.action(1) == b.action(1), EpisodeDice(0, 3, 8, horizon=2).env_seed == a.env_seed
    (True, True, False)
    """

    __slots__ = ("_actions", "_horizon", "_sequence", "env_seed", "mixture", "narrow_env_seed")

    def __init__(self, seed: int, request_id: int, episode: int, horizon: int) -> None:
        self._sequence = np.random.SeedSequence(seed, spawn_key=(request_id, episode))
        self._horizon = horizon
        first, second = self._sequence.generate_state(2, np.uint64).tolist()
        # 63 bits, the first of them 1, so that all are equally long. The others are random: some two of 10^6 episodes
        # share a seed with a chance below 10^12 / 2 / 2^62 = 1e-7. Within a request none do up to episode 2^32, since
        # each 32-bit word of the sequence is a one-to-one function of the last word of its address.
        self.env_seed: int = 2**62 + (first >> 2)
        # 31 bits: what any generator takes. Some 200 of 10^6 episodes share one with an earlier episode.
        self.narrow_env_seed: int = first >> 33
        self.mixture: float = _fraction(second)
        self._actions: list[int] = []  # made when a policy asks: most are deterministic

    def action(self, h: int) -> float:
        """A number in [0, 1) for the action at level h."""
        if not self._actions:
            self._actions = self._sequence.generate_state(2 + self._horizon, np.uint64)[2:].tolist()
        return _fraction(self._actions[h])


def _fraction(word: int) -> float:
    """64 random bits as a number in [0, 1)."""
    return (word >> 11) * 2.0**-53
