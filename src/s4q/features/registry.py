"""Feature maps by name and parameters, so that a file can describe a map without holding code.

`Agent.save` and `Agent.load` call it. A map that holds the user's own code (a function, a transformer) is written down
by its sizes alone, and must be passed again when a file is loaded. Nothing in a file is ever executed.
"""

from collections.abc import Callable as Function
from typing import Any

_SIZES = ("n_actions", "n_blocks", "block_dim", "dim")
_CLASSES: dict[str, type] = {}
_BUILDERS: dict[str, Function[..., Any]] = {}


def register(cls: type, build: Function[..., Any] | None = None) -> None:
    """Let files name a class of feature maps.

    Args:
        cls: The class. It needs `custom = False`, and a method `config()` that returns parameters JSON can hold.
        build: Function that makes a map from these parameters. None (default): the class itself.
    """
    name = cls.__name__
    if _CLASSES.get(name, cls) is not cls:
        raise ValueError(f"the name {name} is taken by {_CLASSES[name].__module__}; rename your class")
    _CLASSES[name] = cls
    _BUILDERS[name] = build or cls


def registered() -> dict[str, type]:
    """The classes that a file can name."""
    return dict(_CLASSES)


def is_custom(features: Any) -> bool:
    """True if the map holds code of the user's, which no file can carry. A class without `custom` is the user's own."""
    return bool(getattr(features, "custom", True))


def to_config(features: Any) -> dict[str, Any]:
    """A description of a map that JSON can hold.

    Args:
        features: A feature map, or features of a state.

    Returns:
        {"name", "parameters"}; or {"name", "custom": True} and the sizes where the map holds the user's own code.

    >>> from s4q.features import OneHot
    >>> to_config(OneHot(3, n_actions=2))
    {'name': 'OneHot', 'parameters': {'space': [3], 'n_actions': 2, 'start': [0]}}
    """
    name = type(features).__name__
    if is_custom(features):
        sizes = {size: int(getattr(features, size)) for size in _SIZES if hasattr(features, size)}
        return {"name": name, "custom": True} | sizes
    known = _CLASSES.get(name) is type(features)
    if not known:
        raise ValueError(
            f"{name} is not a class that files can name; call features.registry.register({name}), "
            "or leave out `custom = False` so that it is passed again on load"
        )
    return {"name": name, "parameters": features.config()}


def from_config(config: dict[str, Any]) -> Any:
    """The map that `to_config` described, with the same bits.

    Args:
        config: What `to_config` returned.

    >>> from s4q.features import OneHot
    >>> from_config(to_config(OneHot(3, n_actions=2))).n_blocks
    6
    """
    if not isinstance(config, dict) or not isinstance(config.get("name"), str):
        raise ValueError(f"a feature map must be a dict with its name and parameters; got {config!r:.80}")
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
