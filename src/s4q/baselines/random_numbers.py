"""The random numbers of a baseline that draws, such as PSRL.

A run has one seed, and the collector draws from it too. So what a learner draws carries a mark of its own: else the
noise of RLSVI and the episodes that follow it would be made of the same numbers.
"""

import numpy as np

_MARK = 0x6C6561726E6572  # "learner"; a collector's keys are numbers of requests and shards, which are never so large


def learner_rng(seed: int, *place: int) -> np.random.Generator:
    """A generator for one moment of a run. The same place gives the same numbers.

    Args:
        seed: Seed of the run.
        place: The moment: the episodes so far, and whatever else tells it from others.

    >>> [int(learner_rng(0, place).integers(100)) for place in (1, 1, 2)]
    [12, 12, 69]
    """
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(_MARK, *place)))
