"""What a Gymnasium environment must be before it is played, and what its observations must be after."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from s4q.collectors.stepping.step_features import Place
from s4q.core.messages import Spec
from s4q.features.spaces import cure_of, gymnasium_spaces


def env_name(env: Any) -> str:
    """The id it was made with, else its class."""
    spec = getattr(env, "spec", None)
    return str(spec.id) if spec is not None else type(getattr(env, "unwrapped", env)).__name__


def require_env(env: Any, methods: Sequence[str] = ("reset", "step")) -> None:
    """Something with spaces that can be reset and stepped."""
    for name in (*methods, "action_space", "observation_space"):
        if not hasattr(env, name) or isinstance(env, type):
            raise ValueError(f"env must be a Gymnasium environment, with `{name}`; got {env!r}")


def first_action(space: Any, spec: Spec, name: str) -> int:
    """The environment's number of action 0; continuous and composite actions are refused."""
    if not isinstance(space, gymnasium_spaces().Discrete):
        raise ValueError(
            f"{name}: actions must be finitely many, a Discrete space, since the policy takes an argmax over them; "
            f"got {space}; wrap the env so that each number stands for one action"
        )
    if int(space.n) != spec.n_actions:
        raise ValueError(f"{name}: the env has {space.n} actions, but spec.n_actions is {spec.n_actions}")
    return int(space.start)


def require_observations(space: Any, name: str) -> bool:
    """Arrays or whole numbers; True when they are whole numbers."""
    spaces = gymnasium_spaces()
    if isinstance(space, spaces.Discrete):
        return True
    if not isinstance(space, spaces.Box | spaces.MultiDiscrete | spaces.MultiBinary):
        raise ValueError(
            f"{name}: observations must be arrays or whole numbers (Box, Discrete, MultiDiscrete, MultiBinary); got "
            f"{space}; {cure_of(space)}"
        )
    return False


def time_limit(env: Any) -> int | None:
    """The fewest steps after which a wrapper, or a sub-environment, says that it truncates; None where none says so.

    >>> import gymnasium as gym
    >>> time_limit(gym.make("FrozenLake-v1")), time_limit(gym.make("CliffWalking-v1"))
    (100, None)
    """
    limits: list[Any] = []
    for layer in (env, *(getattr(env, "envs", None) or ())):
        limits.append(getattr(getattr(layer, "spec", None), "max_episode_steps", None))
        while layer is not None:
            limits += [getattr(layer, field, None) for field in ("_max_episode_steps", "max_episode_steps")]
            layer = getattr(layer, "env", None)
    return min((int(limit) for limit in limits if isinstance(limit, int | np.integer)), default=None)


def require_time(env: Any, spec: Spec, name: str) -> None:
    """No time limit below the horizon: a truncation is no part of the problem that is learned."""
    limit = time_limit(env)
    if limit is not None and limit < spec.horizon:
        raise ValueError(
            f"{name}: the env is truncated after {limit} steps, but the horizon is {spec.horizon}; make it with "
            f"max_episode_steps={spec.horizon} or more, or choose a horizon of at most {limit}"
        )


def truncation(place: Place, step: int, spec: Spec) -> ValueError:
    """The error of an episode that was cut."""
    return place.fault(
        step,
        f"the env truncated the episode before the horizon {spec.horizon}",
        "a cut is no end of the problem: raise the env's time limit, or return terminated=True where it truly ends",
    )


def check_observations(space: Any, observations: Sequence[Any], place: Place) -> None:
    """All observations of an episode, in the space that the env declared."""
    box = isinstance(space, gymnasium_spaces().Box)
    if box:
        try:
            seen = np.asarray(observations)
            if seen.shape[1:] == space.shape and bool(np.all((seen >= space.low) & (seen <= space.high))):
                return
        except (TypeError, ValueError):
            pass  # of several shapes, or not numbers: found one by one below
    for step, observation in enumerate(observations):
        try:
            inside = _in_box(space, observation) if box else bool(space.contains(observation))
        except Exception:
            inside = False
        if not inside:
            raise place.fault(
                step,
                f"observation {observation!r} lies outside of the env's observation_space {space}",
                "correct the env's observations, or the bounds of its space",
            )


def _in_box(space: Any, observation: Any) -> bool:
    """Bounds and shape; the dtype is the env's own affair."""
    array = np.asarray(observation, dtype=np.float64)
    return array.shape == space.shape and bool(np.all((array >= space.low) & (array <= space.high)))
