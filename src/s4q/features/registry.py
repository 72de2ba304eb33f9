"""Feature maps by name and parameters: what a file can say of them, so that nothing in a file is ever run.

A map that holds the user's own code (a function, a transformer) is written down by its sizes alone and must be passed
again when a file is loaded.
"""

from collections.abc import Callable as Function
from typing import Any

from s4q.features.dense import Dense
from s4q.features.fourier import Fourier
from s4q.features.function_features import FunctionFeatures
from s4q.features.naming import describe
from s4q.features.one_hot import OneHot
from s4q.features.per_action import PerAction
from s4q.features.random_fourier import RandomFourier
from s4q.features.rbf import RBF
from s4q.features.scikit_learn import Sklearn
from s4q.features.table import TableFeatures
from s4q.features.tiles import Tiles

_CLASSES: dict[str, type] = {}
_BUILDERS: dict[str, Function[..., Any]] = {}


def register(cls: type, build: Function[..., Any] | None = None) -> None:
    """Let files name this class. Its `config()` gives the parameters that `build` (the class itself) takes.

    A class of your own needs `custom = False`, and a `config()` that JSON can write down.
    """
    name = cls.__name__
    if _CLASSES.get(name, cls) is not cls:
        raise ValueError(f"the name {name} is taken by {_CLASSES[name].__module__}; rename your class")
    _CLASSES[name] = cls
    _BUILDERS[name] = build or cls


def registered() -> dict[str, type]:
    """The classes a file can name."""
    return dict(_CLASSES)


def to_config(features: Any) -> dict[str, Any]:
    """{"name", "parameters"}; or {"name", "custom": True} with the sizes, when it holds the user's own code.

    >>> to_config(OneHot(3, n_actions=2))
    {'name': 'OneHot', 'parameters': {'space': [3], 'n_actions': 2, 'start': [0]}}
    """
    config = describe(features)
    known = _CLASSES.get(config["name"]) is type(features)
    if "parameters" in config and not known:
        raise ValueError(
            f"{config['name']} is not a class that files can name; call features.registry.register({config['name']}), "
            "or leave out `custom = False` so that it is passed again on load"
        )
    if isinstance(features, PerAction) and "parameters" in config:
        to_config(features.state_features)
    return config


def from_config(config: dict[str, Any]) -> Any:
    """The map that `to_config` wrote down, with the same bits.

    >>> from_config(to_config(OneHot(3, n_actions=2))).n_blocks
    6
    """
    if not isinstance(config, dict) or not isinstance(config.get("name"), str):
        raise ValueError(f"a feature map is written as a dict with its name and parameters; got {config!r:.80}")
    name, parameters = config["name"], config.get("parameters")
    if config.get("custom"):
        raise ValueError(
            f"the feature map {name} holds code of your own, which no file carries; pass the map again: features=..."
        )
    if name not in _BUILDERS:
        raise ValueError(
            f"there is no feature map called {name!r}; known are {', '.join(sorted(_BUILDERS))} (your own class needs "
            "features.registry.register first)"
        )
    if not isinstance(parameters, dict) or not all(isinstance(key, str) for key in parameters):
        raise ValueError(f"the parameters of {name} must be a dict; got {type(parameters).__name__}")
    try:
        return _BUILDERS[name](**parameters)
    except TypeError as error:
        raise ValueError(f"the parameters of {name} are not those it takes: {error}") from None


def _per_action(state_features: dict[str, Any], n_actions: int) -> PerAction:
    return PerAction(from_config(state_features), n_actions)


for _cls in (OneHot, Dense, Fourier, Tiles, RBF, RandomFourier, Sklearn, FunctionFeatures):
    register(_cls)
register(PerAction, _per_action)
register(TableFeatures, TableFeatures.from_lists)
