"""Observations of any Gymnasium space: tried against it, copied, and put into batches.

Collectors and Agent use it. Arrays and whole numbers are batched with one more axis. Observations with parts (Dict,
Tuple) and all others are batched as an array of objects, each as the environment returned it, so that a feature map of
the user's sees the raw observation.
"""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import numpy as np

from s4q.core.blocks import States
from s4q.features.layout import is_raw, raw_batch
from s4q.features.spaces import gymnasium_spaces


def lies_in(space: Any, observation: Any) -> bool:
    """True if an observation has the shape and the bounds of its space; any dtype is taken."""
    spaces = gymnasium_spaces()
    try:
        if isinstance(space, spaces.Dict):
            if not isinstance(observation, Mapping) or set(observation) != set(space.spaces):
                return False
            return all(lies_in(part, observation[key]) for key, part in space.spaces.items())
        if isinstance(space, spaces.Tuple):
            if not isinstance(observation, (tuple, list)) or len(observation) != len(space.spaces):
                return False
            return all(lies_in(part, one) for part, one in zip(space.spaces, observation, strict=True))
        if isinstance(space, spaces.Box):
            array = np.asarray(observation, dtype=np.float64)
            return array.shape == space.shape and bool(np.all((array >= space.low) & (array <= space.high)))
        return bool(space.contains(observation))
    except Exception:
        return False


def split_vector(space: Any, observations: Any, n: int) -> list[Any]:
    """One observation per sub-environment of a vector, copied: some environments write over them.

    Args:
        space: The space of one observation.
        observations: What the vector returned.
        n: The number of sub-environments.
    """
    if not is_raw(space):
        return [np.array(observations[i]) for i in range(n)]
    from gymnasium.vector.utils import batch_space, iterate

    return [deepcopy(one) for one in iterate(batch_space(space, n), observations)]


def batch_of(space: Any, observation: Any) -> tuple[States, bool]:
    """A batch of observations, and True if it was a single one that was passed.

    Args:
        space: The space of one observation.
        observation: One observation, or a batch of them: with one more axis, or for observations with parts a list of
            them, or what a vector of environments returns.
    """
    if not is_raw(space):
        array = np.asarray(observation)
        shape = space.shape or ()
        if array.shape == shape:
            return array[None], True
        if array.shape[1:] != shape:
            raise ValueError(
                f"observation must have the shape {shape} of the env's observations, or a first axis more for a "
                f"batch of them; got {array.shape}"
            )
        return array, False
    if lies_in(space, observation):
        return raw_batch([observation]), True
    if isinstance(observation, (list, tuple, np.ndarray)) and all(lies_in(space, one) for one in observation):
        return raw_batch(list(observation)), False
    try:
        split = split_vector(space, observation, _length(observation))
        if all(lies_in(space, one) for one in split):
            return raw_batch(split), False
    except Exception:
        pass  # not what a vector returns: explained below
    raise ValueError(
        f"observation must lie in the env's observation_space {space}, or be a list of such observations, or what a "
        f"vector of environments returns; got {observation!r:.200}"
    )


def _length(batch: Any) -> int:
    """The number of observations that a vector returned."""
    if isinstance(batch, Mapping):
        return _length(next(iter(batch.values())))
    return _length(batch[0]) if isinstance(batch, tuple) else len(batch)
