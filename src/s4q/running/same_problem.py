"""Is this the problem that a file was learned on? What a file keeps of environment and features, and the comparison.

`Agent` writes the description into its files, and compares it when it loads one or is given another environment. Two
environments with the same spaces may be different problems, and so may two feature maps of the same sizes; a policy
that is read with the wrong ones acts without a word of warning. Nothing here plays an episode.
"""

import json
from typing import Any

import numpy as np

from s4q.collectors.stepping.env_facts import env_name, spaces_of, time_limit
from s4q.collectors.stepping.wrappers import only_watches, single_envs
from s4q.core.messages import FeatureMap
from s4q.features import registry
from s4q.features.fingerprint import Fingerprint
from s4q.features.layout import is_raw

_MOST_NUMBERS = 1_000  # of an observation; features of larger ones are not compared by values
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
        "steps": _longest_episode(env, horizon),
        "features": registry.to_config(features),
        "fingerprint": _fingerprint(features, spaces_of(env)[0], horizon),
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
        found = [*_env_differences(kept.get("made"), now["made"]), *_feature_differences(kept, now, features)]
        had, has = kept.get("steps"), now["steps"]
        if had is not None and had != has:
            found.append(f"its episodes had up to {had} steps and have up to {has}")
        return found
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


def _feature_differences(kept: dict[str, Any], now: dict[str, Any], features: FeatureMap) -> list[str]:
    had, has = kept.get("features"), now["features"]
    described = isinstance(had, dict) and not had.get("custom") and not has.get("custom")
    if described and had != has:
        return [f"the features were {_shown(had)} and are {_shown(has)}"]
    fingerprint = Fingerprint.from_config(kept.get("fingerprint"))
    other = None if fingerprint is None else fingerprint.difference(features)
    return [] if other is None else [f"the features are not those of the file: {other}"]


def _fingerprint(features: FeatureMap, space: Any, horizon: int) -> dict[str, Any] | None:
    """What the map makes of a few observations; None where they are no arrays, or large ones, or all are refused."""
    if is_raw(space) or np.prod(space.shape or ()) > _MOST_NUMBERS:
        return None
    made = Fingerprint.of(features, space, horizon)
    return made.config() if len(made.observations) else None


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


def _longest_episode(env: Any, horizon: int) -> int:
    """Steps after which an episode is over: the horizon, or a time limit below it. A longer limit changes nothing."""
    limit = time_limit(env)
    return horizon if limit is None else min(limit, horizon)


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
