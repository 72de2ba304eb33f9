"""What a Gymnasium environment says of itself, and what it must be before it is played.

GymCollector, VectorCollector and Agent ask here for names, spaces, horizon and reward range; the players of episodes
have observations checked. What an environment does not say is never guessed, and nothing here steps it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from s4q.collectors.stepping.action_numbers import ActionNumbers
from s4q.collectors.stepping.foreign_envs import advice_for
from s4q.collectors.stepping.observations import lies_in
from s4q.collectors.stepping.step_features import EpisodeAddress
from s4q.collectors.stepping.wrappers import single_envs, wrappers_that_may_change
from s4q.core.messages import FeatureMap, Spec
from s4q.core.validation import require_count
from s4q.features.layout import is_raw
from s4q.features.spaces import gymnasium_spaces, n_actions_of, sizes_of


@final
@dataclass(frozen=True, eq=False, slots=True)
class EnvFacts:
    """What a collector needs to know of an environment that fits its Spec."""

    name: str
    space: Any  # of one observation
    box: bool  # True if that is a Box
    numbers: range | None  # the observations, where they are whole numbers
    raw: bool  # True if an observation is neither an array nor a whole number
    actions: ActionNumbers  # the environment's own actions, by number

    @classmethod
    def of(cls, env: Any, spec: Spec, *, vector: bool = False) -> "EnvFacts":
        """The facts of an environment, or of a vector of them; one that cannot be played is refused."""
        if vector:
            require_env(env, ("reset", "step", "num_envs", "single_action_space", "single_observation_space"))
            space, actions = env.single_observation_space, env.single_action_space
        else:
            require_env(env)
            space, actions = env.observation_space, env.action_space
        name = env_name(env)
        _require_actions(actions, spec, name)
        _require_time(env, spec, name)
        spaces = gymnasium_spaces()
        discrete = isinstance(space, spaces.Discrete)
        numbers = range(int(space.start), int(space.start + space.n)) if discrete else None
        box = isinstance(space, spaces.Box)
        return cls(name, space, box, numbers, is_raw(space), ActionNumbers.of(actions))

    def check(self, observations: Sequence[Any], address: EpisodeAddress) -> None:
        """All observations of an episode must lie in the space that the environment declared."""
        space, numbers = self.space, self.numbers
        if numbers is not None and all(type(seen) is int and seen in numbers for seen in observations):
            return  # what most environments give, at a tenth of the cost of `contains`
        if self.box:
            try:
                seen = np.asarray(observations)
                if seen.shape[1:] == space.shape and bool(np.all((seen >= space.low) & (seen <= space.high))):
                    return
            except (TypeError, ValueError):
                pass  # of several shapes, or not numbers: found one by one below
        for step, observation in enumerate(observations):
            if not lies_in(space, observation):
                raise address.fault(
                    step,
                    f"observation {observation!r} lies outside of the env's observation_space {space}",
                    "correct the env's observations, or the bounds of its space",
                )


def env_name(env: Any) -> str:
    """The id it was made with, else its class."""
    spec = getattr(env, "spec", None)
    return str(spec.id) if spec is not None else type(getattr(env, "unwrapped", env)).__name__


def made_env(env: Any) -> Any:
    """The environment itself, or the one with this id.

    >>> env_name(made_env("CartPole-v1"))
    'CartPole-v1'
    """
    if not isinstance(env, str):
        return env
    try:
        import gymnasium
    except ImportError:
        raise ImportError(f'the id {env!r} needs gymnasium; install it with: pip install "s4q[gym]"') from None
    try:
        return gymnasium.make(env)
    except Exception as error:  # also those of its own code, such as a missing argument
        raise ValueError(
            f"env must be a Gymnasium environment, or the id of one; {env!r} cannot be made ({error}); ids of another "
            "package are known once it is imported"
        ) from None


def require_env(env: Any, methods: Sequence[str] = ("reset", "step")) -> None:
    """Something with spaces that can be reset and stepped."""
    advice = None if isinstance(env, type) else advice_for(env)
    if advice is not None:
        raise ValueError(f"env must be a Gymnasium environment; {type(env).__name__} is {advice}")
    for name in (*methods, "action_space", "observation_space"):
        if not hasattr(env, name) or isinstance(env, type):
            raise ValueError(f"env must be a Gymnasium environment, with `{name}`; got {env!r}")


def _require_actions(space: Any, spec: Spec, name: str) -> None:
    """As many actions as the Spec says; continuous actions are refused."""
    try:
        n_actions = n_actions_of(space)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    if n_actions != spec.n_actions:
        raise ValueError(f"{name}: the env has {n_actions} actions, but spec.n_actions is {spec.n_actions}")


def _require_time(env: Any, spec: Spec, name: str) -> None:
    """No time limit below the horizon, unless all levels are alike: the last levels would never be seen."""
    limit = time_limit(env)
    if limit is not None and limit < spec.horizon and not spec.stationary:
        raise ValueError(
            f"{name}: the env is truncated after {limit} steps, but the horizon is {spec.horizon}, so the steps after "
            f"{limit} would never be seen; make it with max_episode_steps={spec.horizon} or more, choose a horizon of "
            f"at most {limit}, or declare stationary=True if all steps are alike"
        )


def time_limit(env: Any) -> int | None:
    """The fewest steps after which a wrapper, or a sub-environment, says that it truncates; None where none says so.

    >>> import gymnasium as gym
    >>> time_limit(gym.make("FrozenLake-v1")), time_limit(gym.make("CliffWalking-v1"))
    (100, None)
    """
    limits: list[Any] = []
    with single_envs(env) as singles:
        for layer in (env, *singles):
            limits.append(getattr(getattr(layer, "spec", None), "max_episode_steps", None))
            while layer is not None:
                limits += [getattr(layer, field, None) for field in ("_max_episode_steps", "max_episode_steps")]
                layer = getattr(layer, "env", None)
    return min((int(limit) for limit in limits if isinstance(limit, int | np.integer)), default=None)


def is_vector(env: Any) -> bool:
    """True if it is several environments side by side."""
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
    """The declared range, else that of the environment's own table `P`; 0 is in it, as an ended episode earns 0.

    The table is trusted only where no wrapper may change rewards. Of a vector all sub-environments count.
    """
    if declared is not None:
        return declared
    rewards = _table_rewards(env)
    if rewards is None:
        raise ValueError(
            f"reward_range must be given, since {env_name(env)} does not say which rewards it pays and a range is "
            "never guessed from data; pass reward_range=(lowest, highest) of a single step"
        )
    changing = wrappers_that_may_change(env, "rewards")
    if changing:
        raise ValueError(
            f"reward_range must be given, since {', '.join(changing)} may change the rewards that {env_name(env)} has "
            f"in its table, which lie in [{min(rewards):g}, {max(rewards):g}]; pass reward_range=(lowest, highest) of "
            "a single step as you see it"
        )
    return min(0.0, *rewards), max(0.0, *rewards)


def _table_rewards(env: Any) -> set[float] | None:
    """The rewards in the tables of an environment, or of all those of a vector; None where one has no table."""
    rewards: set[float] = set()
    with single_envs(env) as singles:
        for single in singles:
            table = getattr(getattr(single, "unwrapped", single), "P", None)
            if not isinstance(table, dict):
                return None
            rewards |= {float(row[2]) for actions in table.values() for rows in actions.values() for row in rows}
    return rewards or None


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
