"""What a Gymnasium environment says of itself: horizon, reward range, spaces. What it does not say is never guessed."""

from typing import Any

from s4q.collectors.stepping.env_checks import env_name, require_env, time_limit
from s4q.core.messages import FeatureMap
from s4q.core.validation import require_count
from s4q.features.spaces import gymnasium_spaces, sizes_of


def is_vector(env: Any) -> bool:
    """Several environments side by side?"""
    return hasattr(env, "num_envs") and hasattr(env, "single_action_space")


def spaces_of(env: Any) -> tuple[Any, Any]:
    """Observation and action space of one environment."""
    require_env(env)
    if is_vector(env):
        return env.single_observation_space, env.single_action_space
    return env.observation_space, env.action_space


def horizon_of(env: Any, declared: int | None) -> int:
    """The declared horizon, else the environment's time limit."""
    if declared is not None:
        require_count("horizon", declared, "the number of steps of an episode")
        return int(declared)
    limit = time_limit(env)
    if limit is None:
        raise ValueError(
            f"horizon must be given, since {env_name(env)} has no time limit; pass horizon=..., the number of steps of "
            "an episode"
        )
    return limit


def reward_range_of(env: Any, declared: tuple[float, float] | None) -> tuple[float, float]:
    """The declared range, else that of the environment's own table `P`; 0 is in it, as an ended episode earns 0."""
    if declared is not None:
        return declared
    single = env.envs[0] if getattr(env, "envs", None) else env
    table = getattr(getattr(single, "unwrapped", single), "P", None)
    if not isinstance(table, dict):
        raise ValueError(
            f"reward_range must be given, since {env_name(env)} does not say which rewards it pays and a range is "
            "never guessed from data; pass reward_range=(lowest, highest) of a single step"
        )
    rewards = [float(row[2]) for actions in table.values() for rows in actions.values() for row in rows]
    return min(0.0, *rewards), max(0.0, *rewards)


def require_fit(features: FeatureMap, space: Any, name: str) -> None:
    """Features of whole-number observations must know the first and the last of them: a smaller table is found now.

    Boxes are left to the first step: their bounds may be wider than what is ever seen.
    """
    spaces = gymnasium_spaces()
    if not isinstance(space, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        return
    sizes, starts = sizes_of(space)
    for numbers in (starts, starts + sizes - 1):
        observation = numbers.reshape(space.shape)
        try:
            features(0, observation[None])
        except Exception as error:
            raise ValueError(
                f"{name}: the features do not fit the observation space {space}: they raised {type(error).__name__} "
                f"({error}) at observation {observation.tolist()}; make them for this env"
            ) from error
