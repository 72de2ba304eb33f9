"""What feature maps need to know of Gymnasium spaces. Gymnasium is imported only when a space is looked at."""

from typing import Any

import numpy as np

from s4q.core.blocks import Array, IntArray


def gymnasium_spaces() -> Any:
    """The module gymnasium.spaces."""
    try:
        from gymnasium import spaces
    except ImportError:
        raise ImportError('spaces need gymnasium; install it with: pip install "s4q[gym]"') from None
    return spaces


def cure_of(space: Any) -> str:
    """What to do about an observation space that a feature map cannot take.

    >>> from gymnasium.spaces import Discrete, Tuple
    >>> cure_of(Tuple((Discrete(32), Discrete(2)))).split("wrap the env with ")[1]
    'gymnasium.wrappers.TransformObservation(env, np.array, gymnasium.spaces.MultiDiscrete([32, 2]))'
    """
    spaces = gymnasium_spaces()
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        return "whole numbers take features.OneHot"
    if isinstance(space, spaces.Box):
        return "arrays take features.PerAction of features.Fourier, Tiles, RBF or RandomFourier"
    if isinstance(space, spaces.Tuple) and all(isinstance(part, spaces.Discrete) for part in space.spaces):
        sizes, starts = [int(part.n) for part in space.spaces], [int(part.start) for part in space.spaces]
        start = f", start={starts}" if any(starts) else ""
        whole = f"gymnasium.spaces.MultiDiscrete({sizes}{start})"
        return f"wrap the env with gymnasium.wrappers.TransformObservation(env, np.array, {whole})"
    return "wrap the env with gymnasium.wrappers.FlattenObservation"


def bounds_of(space: Any) -> tuple[Array, Array]:
    """low and high of a Box, flat: (d,) each. Infinite bounds are returned as they are."""
    if not isinstance(space, gymnasium_spaces().Box):
        raise ValueError(f"space must be a Gymnasium Box; got {_name(space)}; {cure_of(space)}")
    return np.asarray(space.low, dtype=np.float64).ravel(), np.asarray(space.high, dtype=np.float64).ravel()


def sizes_of(space: Any) -> tuple[IntArray, IntArray]:
    """How many values each number of an observation takes, and the first of them: (m,) each; (1,) for Discrete."""
    spaces = gymnasium_spaces()
    if isinstance(space, spaces.Discrete):
        return np.array([space.n], dtype=np.int64), np.array([space.start], dtype=np.int64)
    if isinstance(space, spaces.MultiDiscrete):
        return np.asarray(space.nvec, dtype=np.int64).ravel(), np.asarray(space.start, dtype=np.int64).ravel()
    if isinstance(space, spaces.MultiBinary):
        sizes = np.full(int(np.prod(space.shape)), 2, dtype=np.int64)
        return sizes, np.zeros_like(sizes)
    raise ValueError(f"space must be Discrete, MultiDiscrete or MultiBinary; got {_name(space)}; {cure_of(space)}")


def n_actions_of(space: Any) -> int:
    """The number of actions of a Discrete space. Action i of s4q is the environment's `space.start + i`.

    >>> from gymnasium.spaces import Discrete
    >>> n_actions_of(Discrete(3, start=1))
    3
    """
    spaces = gymnasium_spaces()
    if isinstance(space, spaces.Discrete):
        return int(space.n)
    if isinstance(space, (spaces.MultiDiscrete, spaces.MultiBinary)):
        cure = "number the combinations with a wrapper (gymnasium.ActionWrapper) that makes them one Discrete"
    elif isinstance(space, spaces.Box):
        cure = "actions here are finitely many: choose a grid of them with gymnasium.wrappers.DiscretizeAction"
    else:
        cure = "make it one Discrete with a wrapper (gymnasium.ActionWrapper)"
    raise ValueError(f"action_space must be Discrete; got {_name(space)}; {cure}")


def _name(space: Any) -> str:
    return str(space) if hasattr(space, "sample") else type(space).__name__
