"""Is this the problem that a file was learned on? What a file keeps of environment and features, and the comparison.

`Agent` writes the description into its files, and compares it when it loads one or is given another environment. Two
environments with the same spaces may be different problems, and so may two feature maps of the same sizes; a policy
that is read with the wrong ones acts without a word of warning. Nothing here plays an episode.
"""

import json
from typing import Any

import numpy as np

from s4q.collectors.stepping.env_facts import env_name, spaces_of
from s4q.collectors.stepping.wrappers import only_watches, single_envs
from s4q.core.messages import FeatureMap
from s4q.features import registry
from s4q.features.spaces import AS_GOOD_AS_INFINITE, bounds_of, gymnasium_spaces, sizes_of

_OBSERVATIONS = 8  # at which feature maps are compared
_MOST_NUMBERS = 10_000  # of an observation; features of larger ones are not compared by values
_SAME = 1e-6  # values of features differ by less between machines
_LOOKS = ("render_mode", "vectorization_mode", "disable_env_checker")  # arguments that change no episode


def description_of(env: Any, features: FeatureMap, horizon: int) -> dict[str, Any]:
    """What a file keeps of the problem, as JSON can hold it.

    Args:
        env: The environment, or a vector of them.
        features: The feature map.
        horizon: Steps of an episode.
    """
    return {
        "env": env_name(env),
        "made": _env_description(env),
        "features": registry.to_config(features),
        "probe": _probe(features, spaces_of(env)[0], horizon),
    }


def differences(kept: dict[str, Any], env: Any, features: FeatureMap, horizon: int) -> list[str]:
    """In which ways environment and features are not those that a file was learned with; empty if in none.

    Args:
        kept: What `description_of` returned for the file.
        env: The environment that is to be used.
        features: The feature map that is to be used.
        horizon: Steps of an episode.
    """
    now = json.loads(json.dumps(description_of(env, features, horizon)))
    try:
        return [*_env_differences(kept.get("made"), now["made"]), *_feature_differences(kept, now)]
    except (TypeError, ValueError, OverflowError):  # only a doctored file
        return ["the file does not describe its problem as files do"]


def _env_differences(had: Any, has: dict[str, Any]) -> list[str]:
    if not isinstance(had, dict):
        return []
    both_registered = had.get("id") is not None and has["id"] is not None
    if both_registered and had["id"] != has["id"]:
        return [f"the env was {had['id']} and is {has['id']}"]
    if not both_registered and had.get("class") != has["class"]:
        return [f"the env was a {had.get('class')} and is a {has['class']}"]
    found = []
    if both_registered and had.get("arguments") != has["arguments"]:
        found.append(
            f"the env was made with {_shown(had.get('arguments'))} and is made with {_shown(has['arguments'])}"
        )
    if had.get("wrappers") != has["wrappers"]:
        found.append(f"its wrappers were {_shown(had.get('wrappers'))} and are {_shown(has['wrappers'])}")
    return found


def _feature_differences(kept: dict[str, Any], now: dict[str, Any]) -> list[str]:
    had, has = kept.get("features"), now["features"]
    described = isinstance(had, dict) and not had.get("custom") and not has.get("custom")
    if described and had != has:
        return [f"the features were {_shown(had)} and are {_shown(has)}"]
    before, after = kept.get("probe"), now["probe"]
    if not isinstance(before, list):
        return []
    if after is None:
        return ["the features cannot be computed at observations where those of the file could"]
    if len(before) != len(after) or not np.allclose(before, after, rtol=0.0, atol=_SAME):
        return ["the features have other values than those of the file, at the same observations"]
    return []


def _shown(value: Any) -> str:
    text = "none" if value in (None, [], {}) else json.dumps(value)
    return text if len(text) <= 200 else f"{text[:200]}..."


def _env_description(env: Any) -> dict[str, Any]:
    """Id, class, arguments and wrappers of an environment; of a vector those of its first sub-environment."""
    around = _wrappers(env)
    with single_envs(env) as singles:
        single = singles[0] if singles else env
        inner = getattr(single, "unwrapped", single)
        spec = getattr(single, "spec", None)
        arguments = {name: value for name, value in (getattr(spec, "kwargs", None) or {}).items() if name not in _LOOKS}
        described: dict[str, Any] = {
            "id": None if spec is None else str(spec.id),
            "class": type(inner).__qualname__,
            "arguments": arguments,
            "wrappers": [*around, *(_wrappers(single) if single is not env else ())],
        }
    return dict(json.loads(json.dumps(described, default=_plain, sort_keys=True)))


def _wrappers(env: Any) -> list[str]:
    """The wrappers that do more than watch, the outermost first, with their arguments where they tell them."""
    names, layer, innermost = [], env, getattr(env, "unwrapped", env)
    while layer is not innermost and getattr(layer, "env", None) is not None:
        if not only_watches(layer):
            arguments = {
                name: value for name, value in (getattr(layer, "_saved_kwargs", None) or {}).items() if name != "env"
            }
            shown = json.dumps(arguments, default=_plain, sort_keys=True) if arguments else ""
            names.append(f"{type(layer).__name__}{shown}")
        layer = layer.env
    return names


def _plain(value: Any) -> Any:
    """What JSON can hold of a value: arrays as lists, of all else the name, which does not change from run to run."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return getattr(value, "__qualname__", None) or type(value).__qualname__


def _probe(features: FeatureMap, space: Any, horizon: int) -> list[float] | None:
    """One number for the features of each of a few observations, at the first and the last step.

    None where the map cannot be asked: for spaces of other kinds, and where it refuses an observation.
    """
    try:
        observations = _some_observations(space)
        if observations is None:
            return None
        numbers: list[float] = []
        for h in (0, horizon - 1):
            phi = features(h, observations)
            places = phi.blocks[..., None] * phi.vectors.shape[-1] + np.arange(phi.vectors.shape[-1])
            numbers += (phi.vectors * np.cos(1.3 * places + 0.5)).sum(axis=(1, 2)).tolist()
        return numbers if np.isfinite(numbers).all() else None
    except Exception:  # the map is the user's, and these observations need not occur
        return None


def _some_observations(space: Any) -> Any:
    """A few observations of a space, the same every time; None for spaces whose observations are no arrays."""
    spaces = gymnasium_spaces()
    numbers = np.random.default_rng(20221121)
    if isinstance(space, spaces.Box):
        low, high = bounds_of(space)
        if not 0 < len(low) <= _MOST_NUMBERS:
            return None
        below, above = np.abs(low) < AS_GOOD_AS_INFINITE, np.abs(high) < AS_GOOD_AS_INFINITE
        left = np.where(below, low, np.where(above, high - 2.0, -1.0))
        right = np.where(above, high, left + 2.0)
        made = left + numbers.random((_OBSERVATIONS, len(low))) * (right - left)
        return made.reshape(_OBSERVATIONS, *space.shape).astype(space.dtype)
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        sizes, starts = sizes_of(space)
        if len(sizes) > _MOST_NUMBERS:
            return None
        made = starts + (numbers.random((_OBSERVATIONS, len(sizes))) * sizes).astype(np.int64)
        return made.reshape(_OBSERVATIONS, *space.shape)
    return None
