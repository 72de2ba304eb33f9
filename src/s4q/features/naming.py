"""How a map is written down: its name and parameters, or, when it holds the user's own code, its sizes."""

from typing import Any

SIZES = ("n_actions", "n_blocks", "block_dim", "dim")


def is_custom(features: Any) -> bool:
    """Does it hold something of the user's that no file can carry? A class that does not say is the user's own."""
    return bool(getattr(features, "custom", True))


def describe(features: Any) -> dict[str, Any]:
    """{"name", "parameters"} of a map of features, or {"name", "custom": True, sizes} of one with the user's code."""
    name = type(features).__name__
    if is_custom(features):
        sizes = {size: int(getattr(features, size)) for size in SIZES if hasattr(features, size)}
        return {"name": name, "custom": True} | sizes
    return {"name": name, "parameters": features.config()}
