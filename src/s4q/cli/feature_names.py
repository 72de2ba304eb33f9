"""Feature maps by name, for `s4q train --features`: "fourier:order=3"."""

from typing import Any

from s4q.collectors.stepping.env_facts import spaces_of
from s4q.comparing.plan import settings_of
from s4q.features import RBF, Fourier, PerAction, RandomFourier, Tiles

FEATURES: dict[str, Any] = {"fourier": Fourier, "random_fourier": RandomFourier, "rbf": RBF, "tiles": Tiles}


def named_features(text: str, env: Any) -> PerAction:
    """Features of the observations of an environment, a copy for each action.

    Args:
        text: A name, with settings where it has some: "fourier:order=3", "tiles:n_tilings=8,tiles_per_dim=6".
        env: The environment.
    """
    name, _, settings = text.partition(":")
    if name not in FEATURES:
        raise ValueError(
            f"--features must be one of {', '.join(FEATURES)}, with settings such as fourier:order=3; got {text!r}"
        )
    space, actions = spaces_of(env)
    if not hasattr(actions, "n"):
        raise ValueError(f"--features needs an environment with Discrete actions; this one has {actions}")
    try:
        return PerAction(FEATURES[name](space, **settings_of(text, settings) if settings else {}), int(actions.n))
    except (TypeError, ValueError) as error:
        said = str(error).partition("__init__() ")[2] or str(error)
        raise ValueError(f"--features {text}: {said}") from None
