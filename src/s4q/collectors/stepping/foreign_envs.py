"""Environments of other libraries, and observations that are pictures: what they are, and what to do about them.

`require_env` asks here first, so that a user of old gym or PettingZoo is told that, and not that a space is wrong.
"""

from typing import Any

import numpy as np


def advice_for(env: Any) -> str | None:
    """What an environment of another library is and how to use it; None for all others.

    >>> import gymnasium as gym
    >>> advice_for(gym.make("CartPole-v1")) is None
    True
    """
    families = {base.__module__.split(".")[0] for base in type(env).__mro__}
    spaces = {type(getattr(env, name, None)).__module__.split(".")[0] for name in ("action_space", "observation_space")}
    if "pettingzoo" in families or (hasattr(env, "possible_agents") and callable(getattr(env, "action_space", None))):
        return (
            "a PettingZoo environment, with several agents, and an Agent learns for one; write a gymnasium.Env that "
            "plays the other agents itself and shows the observations and rewards of one"
        )
    if "gym" in families:
        return (
            "an environment of the old package gym; if Gymnasium has it too, make it with gymnasium.make; else "
            '`pip install shimmy` and wrap it: gymnasium.make("GymV26Environment-v0", env=env), or '
            '"GymV21Environment-v0" where step returns four values'
        )
    if "gym" in spaces:
        return (
            "an environment with spaces of the old package gym; make them with gymnasium.spaces, and let reset return "
            "(observation, info) and step five values"
        )
    if hasattr(env, "action_spec") and hasattr(env, "observation_spec"):
        return (
            "a dm_env environment; `pip install shimmy` and wrap it, for example "
            "shimmy.DmControlCompatibilityV0(env), then discretise its actions"
        )
    return None


def picture_in(space: Any) -> Any:
    """The part of an observation space that is a picture: a Box of bytes, or a large one, with rows and columns.

    >>> from gymnasium.spaces import Box, Dict, Discrete
    >>> picture_in(Dict(direction=Discrete(4), image=Box(0, 255, (7, 7, 3), np.uint8))).shape
    (7, 7, 3)
    """
    shape, dtype = getattr(space, "shape", None), getattr(space, "dtype", None)
    if shape and hasattr(space, "low") and len(shape) >= 2 and (dtype == np.uint8 or np.prod(shape) >= 256):
        return space
    parts: Any = getattr(space, "spaces", ())
    inside = parts.values() if hasattr(parts, "values") else parts
    return next((found for found in map(picture_in, inside) if found is not None), None)


def require_no_picture(env: Any, space: Any, name: str) -> None:
    """Refuse default features for pictures, and say what to do instead.

    Args:
        env: The environment.
        space: The space of one observation.
        name: The name of the environment.
    """
    picture = picture_in(space)
    if picture is None:
        return
    inner = type(getattr(env, "unwrapped", env))
    if any(base.__module__.split(".")[0] == "minigrid" for base in inner.__mro__):
        raise ValueError(
            f"{name}: MiniGrid shows pictures {picture.shape} of cells, and there are no default features for "
            "pictures; number the places instead, which works where the grid is the same in every episode: "
            "grid = env.unwrapped; gymnasium.wrappers.TransformObservation(env, lambda _: "
            "int(grid.agent_pos[0] * grid.height + grid.agent_pos[1]) * 4 + int(grid.agent_dir), "
            "gymnasium.spaces.Discrete(4 * grid.width * grid.height)); or pass features=... of your own"
        )
    raise ValueError(
        f"{name}: the observations are pictures {picture.shape}, and there are no default features for pictures; show "
        "the numbers that matter instead (gymnasium.wrappers.TransformObservation), or pass features=..., such as "
        "features.FunctionFeatures of the output of a network that was trained before"
    )
