"""Warm start: logged steps enter the memory of an S4Q before its first episode, and its first policy is fitted to them.

`S4Q.learn_from` calls it. The steps are samples like any others: the same steps give the same fit whether they were
played or logged. They are no episodes of the run: they cost no regret and have no returns.
"""

from dataclasses import dataclass
from typing import final

from s4q.learners.presets import Constants


@final
@dataclass(frozen=True, slots=True)
class WarmStart:
    """What an S4Q was given before its first episode."""

    n_steps: int = 0
    n_without_level: int = 0  # of these, steps of which nobody knows when in an episode they were taken
    directions_seen: int = 0  # see `learning_progress`

    def check_restored(self) -> None:
        """Counts read from a file must agree."""
        if self.n_without_level > self.n_steps:
            raise ValueError(f"of {self.n_steps} logged steps, {self.n_without_level} cannot be without a level")


def require_warm_start(constants: Constants, n_episodes: int, levels_known: bool) -> None:
    """Refuse logged steps where they cannot be used.

    Args:
        constants: Of the S4Q.
        n_episodes: Episodes it has learned from.
        levels_known: True if each step carries its level.
    """
    if constants.memory == "policies":
        raise ValueError(
            'learn_from needs a memory that holds steps, and memory="policies" holds policies, which replay what they '
            'need; pass memory="all" or memory="sketch" (with a proven preset its guarantee is then void)'
        )
    if n_episodes:
        raise ValueError(
            f"learn_from takes steps before the first episode, and {n_episodes:,} episodes were played; make a new "
            "learner and call learn_from first"
        )
    if not (levels_known or constants.pool):
        raise ValueError(
            "each logged step must carry its level (how many steps of its episode came before it), because steps of "
            "other levels are no samples of a level; pass levels, or whole episodes, or stationary=True if nothing "
            "depends on the step"
        )
