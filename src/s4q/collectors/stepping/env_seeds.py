"""Seeds of environments: wide ones, and narrow ones for environments that refuse those."""

from collections.abc import Callable, Sequence
from typing import Any, final

from s4q.collectors.stepping.one_episode import Player


@final
class EnvSeeds:
    """Resets one environment, or a vector of them, with the seeds of episodes.

    Gymnasium takes wide seeds (63 bits); some environments hand theirs to generators that do not. One that raises at
    its first reset with wide seeds, works with narrow ones (31 bits) and raises again with the wide ones gets narrow
    ones for good. All wide seeds have the same number of bits, so an environment refuses all of them or none: what is
    decided depends on the environment alone, not on the episode or on a fault that passes.
    """

    def __init__(self) -> None:
        self._narrow: bool | None = None  # not known before the first reset

    def reset(self, players: Sequence[Player], reset: Callable[[list[int]], Any]) -> Any:
        """What `reset` returns for the seeds of these players."""
        if self._narrow is None:
            return self._first_reset(players, reset)
        if self._narrow:
            for player in players:
                player.take_narrow_seed()
        return reset([player.env_seed for player in players])

    def _first_reset(self, players: Sequence[Player], reset: Callable[[list[int]], Any]) -> Any:
        try:
            begun = reset([player.env_seed for player in players])
        except Exception as error:
            narrow = [player.narrow_env_seed for player in players]
            try:
                reset(narrow)
            except Exception:
                raise error from None  # it was not the size
            begun = self._again(players, reset)
            if begun is None:
                self._narrow = True
                for player in players:
                    player.take_narrow_seed()
                return reset(narrow)
        self._narrow = False
        return begun

    def _again(self, players: Sequence[Player], reset: Callable[[list[int]], Any]) -> Any:
        """The wide seeds once more, since the first failure may have had another cause; None if they fail again."""
        try:
            return reset([player.env_seed for player in players])
        except Exception:
            return None
