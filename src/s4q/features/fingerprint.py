"""Fingerprint: a few numbers by which a file knows a feature map again.

A file cannot hold a map that is the user's own code, so that the map must be passed again when the file is read.
Another map of the same size would turn a good policy into a bad one without any error. So files keep what the map made
of a few observations, and readers compare. `deployed_policy` and `running/same_problem` use it. Nothing here plays an
environment.
"""

from copy import deepcopy
from dataclasses import dataclass
from typing import Annotated, Any, final

import numpy as np

from s4q.core.blocks import Array
from s4q.core.messages import FeatureMap
from s4q.core.validation import require_finite, require_shape

_PROBES = 16  # observations that are compared
_SAME = 1e-7  # rounding of another BLAS, and no more
_LARGEST = 2.0**53  # whole numbers up to here are exact as floats
_GOLDEN = 0.6180339887498949


@final
@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Fingerprint:
    """What a feature map made of a few observations."""

    observations: Annotated[Array, "..."]  # (n, *shape) of one observation
    whole: bool  # they are whole numbers
    last_level: int  # maps that change with the level are compared at level 0 and at this one
    values: Annotated[Array, "n l a"]  # of each observation, level and action: the features times fixed weights

    @classmethod
    def of(cls, features: FeatureMap, space: Any, horizon: int) -> "Fingerprint":
        """The fingerprint of a map on observations of a Gymnasium space.

        Observations that the map refuses are left out: a space may be wider than what is ever seen. So are whole
        numbers that a float cannot hold exactly, because a file holds floats.

        Args:
            features: The feature map.
            space: The observation space, of arrays or whole numbers. It is copied before it is seeded.
            horizon: Number of levels.
        """
        copy = deepcopy(space)
        copy.seed(0)
        drawn = [np.asarray(copy.sample()) for _ in range(_PROBES)]
        whole = drawn[0].dtype.kind in "iub"
        last = 0 if getattr(features, "stationary", False) else horizon - 1
        kept, rows = [], []
        for one in drawn:
            if whole and any(abs(number) > _LARGEST for number in one.ravel().tolist()):  # Python's: none wraps
                continue
            observation = one.astype(np.int64 if whole else np.float64)
            try:
                rows.append(_values(features, observation, last))
            except Exception:
                continue
            kept.append(observation.astype(np.float64))
        shape, n_levels = drawn[0].shape, 1 + (last > 0)
        observations = np.stack(kept) if kept else np.zeros((0, *shape))
        values = np.stack(rows) if rows else np.zeros((0, n_levels, features.n_actions))
        return cls(observations, whole, last, values)

    def config(self) -> dict[str, Any]:
        """The numbers in a form that JSON can hold."""
        return {
            "observations": self.observations.tolist(),
            "whole": self.whole,
            "last_level": self.last_level,
            "values": self.values.tolist(),
        }

    @classmethod
    def from_config(cls, config: Any) -> "Fingerprint | None":
        """What `config` wrote; None where there is none. A ValueError says that it is doctored.

        Args:
            config: What `config` returned, or None.
        """
        if config is None:
            return None
        try:
            observations, values = (np.array(config[name], dtype=np.float64) for name in ("observations", "values"))
            return cls(observations, bool(config["whole"]), int(config["last_level"]), values)
        except (TypeError, LookupError, OverflowError) as error:
            raise ValueError(f"no fingerprint of features: {error}") from None

    def __post_init__(self) -> None:
        require_finite("observations of a fingerprint", self.observations)
        if self.whole and np.abs(self.observations).max(initial=0.0) > _LARGEST:
            raise ValueError(f"whole numbers of a fingerprint must lie within {_LARGEST:g}; doctored?")
        require_shape("values of a fingerprint", self.values, (len(self.observations), None, None), "one a probe")

    def difference(self, features: FeatureMap) -> str | None:
        """How a map differs from the one of this fingerprint; None if it does not.

        Args:
            features: The map to compare, of the same sizes.
        """
        for observation, values in zip(self.observations, self.values, strict=True):
            probe = observation.astype(np.int64) if self.whole else observation
            try:
                found = _values(features, probe, self.last_level)
            except Exception as error:
                return f"at observation {probe.tolist()} they raise {type(error).__name__} ({error})"
            if found.shape != values.shape or not np.allclose(found, values, rtol=0, atol=_SAME):
                return f"at observation {probe.tolist()} they have other values"
        return None


def _values(features: FeatureMap, observation: Any, last_level: int) -> Array:
    """The features of one observation times fixed weights, (levels, n_actions)."""
    weights = ((1 + np.arange(features.n_blocks * features.block_dim)) * _GOLDEN % 1.0) + 0.5
    weights = weights.reshape(features.n_blocks, features.block_dim)
    rows = []
    for h in [0, last_level] if last_level else [0]:
        phi = features(h, observation[None])
        rows.append((phi.vectors[0] * weights[phi.blocks[0]]).sum(axis=-1))
    values = np.stack(rows)
    require_finite("features", values)
    return values
