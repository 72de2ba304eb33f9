"""The array module of the batch engine, and the few things that no array standard has: random draws and counting.

Another module (CuPy, PyTorch, JAX) is an object with the methods of `Arrays`. numpy is the default.
"""

from typing import Any, Protocol, final

import numpy as np

from s4q.core.blocks import Array


class Arrays(Protocol):
    """An array module that follows the array API (2022.12 and `take`), with what that lacks."""

    @property
    def xp(self) -> Any: ...
    def generator(self, sequence: np.random.SeedSequence) -> Any:
        """A random generator for simulators of this module."""
        ...

    def uniform(self, rng: Any, n: int) -> Any:
        """n numbers in [0, 1)."""
        ...

    def bincount(self, index: Any, size: int, weights: Any | None = None) -> Any:
        """(size,): how often each index occurs, or the sum of its weights; float64."""
        ...

    def from_numpy(self, array: Any) -> Any: ...
    def to_numpy(self, array: Any) -> Any: ...


@final
class NumpyArrays:
    """numpy itself.

    >>> NumpyArrays().bincount(np.array([1, 1]), 3).tolist()
    [0.0, 2.0, 0.0]
    """

    @property
    def xp(self) -> Any:
        return np

    def generator(self, sequence: np.random.SeedSequence) -> np.random.Generator:
        return np.random.default_rng(sequence)

    def uniform(self, rng: np.random.Generator, n: int) -> Array:
        return rng.random(n)

    def bincount(self, index: Any, size: int, weights: Any | None = None) -> Array:
        return np.bincount(index, weights, minlength=size).astype(np.float64, copy=False)

    def from_numpy(self, array: Any) -> Any:
        return array

    def to_numpy(self, array: Any) -> Any:
        return array
