"""Which wrappers stand between a user and an environment, and which of them may change what is known of it.

What is known of an environment (its table `P`, a declared reward range, a declared horizon) describes the innermost
one. It holds for the user only if no wrapper on the way changes it. `env_facts` asks here before it trusts such a fact.
Nothing here steps an environment.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Literal

Change = Literal["rewards", "lengths"]

# Classes of Gymnasium whose `step` hands on the reward, terminated and truncated of the env inside. A wrapper is judged
# by the class that defines its `step`, so all wrappers built on ObservationWrapper are here, yours too. TimeLimit cuts
# episodes, but it says after how many steps; `time_limit` reads that.
_HARMLESS = {
    "Wrapper",
    "ObservationWrapper",
    "ActionWrapper",
    "OrderEnforcing",
    "PassiveEnvChecker",
    "Autoreset",
    "TimeLimit",
    "TimeAwareObservation",
    "FrameStackObservation",
    "RecordEpisodeStatistics",
    "RecordVideo",
    "RenderCollection",
    "HumanRendering",
    "ArrayConversion",
    "VectorWrapper",
    "VectorObservationWrapper",
    "VectorActionWrapper",
    "VectorizeTransformObservation",
    "DictInfoToList",
}
_HANDS_ON: dict[Change, set[str]] = {
    "rewards": _HARMLESS,
    "lengths": _HARMLESS | {"RewardWrapper", "NormalizeReward", "VectorRewardWrapper"},
}
# Wrappers of Gymnasium that change nothing that a learner sees.
_WATCHING = {
    "Wrapper",
    "OrderEnforcing",
    "PassiveEnvChecker",
    "Autoreset",
    "TimeLimit",
    "RecordEpisodeStatistics",
    "RecordVideo",
    "RenderCollection",
    "HumanRendering",
    "AddWhiteNoise",
    "ObstructView",
    "VectorWrapper",
    "DictInfoToList",
}


def wrappers_that_may_change(env: Any, what: Change) -> tuple[str, ...]:
    """The names of the wrappers that may change the rewards, or the lengths of episodes; the outermost first.

    Empty where all wrappers are known to change neither. A wrapper of your own that defines `step` may change both, as
    it may do anything. So may an environment whose class, or whose object, replaced the `step` of Gymnasium's own
    class. Of a vector all wrappers and all sub-environments are looked at. Those that live in other processes are made
    once more and closed again.

    Args:
        env: An environment or a vector of them.
        what: "rewards" or "lengths".

    >>> import gymnasium as gym
    >>> env = gym.make("FrozenLake-v1")
    >>> wrappers_that_may_change(env, "rewards")
    ()
    >>> wrappers_that_may_change(gym.wrappers.TransformReward(env, lambda reward: 2 * reward), "rewards")
    ('TransformReward',)
    """
    found = [*_replaced_steps(env, what)]
    with single_envs(env) as singles:
        for single in singles:
            if single is not env:
                found += _replaced_steps(single, what)
    return tuple(dict.fromkeys(found))


def only_watches(layer: Any) -> bool:
    """True if a wrapper surely leaves observations, actions, rewards and ends of episodes as they are.

    Args:
        layer: A wrapper; what is inside of it is not looked at.
    """
    if {"step", "reset"} & set(getattr(layer, "__dict__", {})):
        return False
    owners = [next((base for base in type(layer).__mro__ if name in vars(base)), None) for name in ("step", "reset")]
    return all(owner is not None and _of_gymnasium(owner) and owner.__name__ in _WATCHING for owner in owners)


@contextmanager
def single_envs(env: Any) -> Iterator[list[Any]]:
    """The environments of a vector, or the environment itself; none where a vector steps them all as one.

    Sub-environments in other processes cannot be looked at. Their functions, each once, make others, which are closed.
    """
    inner = getattr(env, "unwrapped", env)
    if not hasattr(inner, "num_envs"):
        yield [env]
        return
    held = getattr(inner, "envs", None)
    if held is not None:
        yield list(held)
        return
    made: list[Any] = []
    try:
        made.extend(make() for make in dict.fromkeys(getattr(inner, "env_fns", None) or ()))
        yield made
    finally:
        for one in made:
            with suppress(Exception):  # what it fails at was only made to be looked at
                one.close()


def _replaced_steps(env: Any, what: Change) -> Iterator[str]:
    """The layers of one environment, or of a vector, whose `step` may change what the innermost one returned."""
    innermost = getattr(env, "unwrapped", env)
    layer = env
    while layer is not innermost and getattr(layer, "env", None) is not None:
        if not _hands_on(layer, what):
            yield type(layer).__name__
        layer = layer.env
    if "step" in getattr(layer, "__dict__", {}) or _is_derived(type(layer)):
        yield type(layer).__name__


def _hands_on(layer: Any, what: Change) -> bool:
    """True if the wrapper's step is one of Gymnasium's that are known to change nothing of this kind."""
    if "step" in getattr(layer, "__dict__", {}):  # replaced in this very object
        return False
    owner = _owner_of_step(type(layer))
    return owner is not None and _of_gymnasium(owner) and owner.__name__ in _HANDS_ON[what]


def _is_derived(kind: type) -> bool:
    """True if a class built on one of Gymnasium's environments has a `step` of its own, which the table cannot know."""
    owner = _owner_of_step(kind)
    builds_on = any(base.__module__.startswith("gymnasium.envs.") for base in kind.__mro__)
    return builds_on and owner is not None and not _of_gymnasium(owner)


def _owner_of_step(kind: type) -> type | None:
    return next((base for base in kind.__mro__ if "step" in vars(base)), None)


def _of_gymnasium(kind: type) -> bool:
    return kind.__module__.split(".")[0] == "gymnasium"
