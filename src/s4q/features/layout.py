"""Layout: where the whole numbers and the real numbers of an observation stand, whatever its space is made of.

Features of mixtures (Dict and Tuple spaces, and what is inside of them) and the measuring of ranges read observations
with it. A layout is plain numbers and names, so a file can hold it and reading an observation needs no Gymnasium.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, final

import numpy as np

from s4q.core.blocks import Array, IntArray, States
from s4q.features.batches import whole_numbers
from s4q.features.spaces import bounds_of, gymnasium_spaces, sizes_of


@final
@dataclass(frozen=True, slots=True)
class Leaf:
    """A part of an observation that is an array or a number.

    Args:
        path: Keys and positions that lead to it. Empty for an observation that has no parts.
        sizes: Number of values of each whole number, row by row. Empty for a Box.
        start: First value of each whole number.
        dim: Number of real numbers of a Box; 0 for whole numbers.
    """

    path: tuple[str | int, ...]
    sizes: tuple[int, ...]
    start: tuple[int, ...]
    dim: int

    def of(self, observation: Any) -> Any:
        """This part of an observation."""
        for key in self.path:
            observation = observation[key]
        return observation

    @property
    def name(self) -> str:
        """How errors call it."""
        return "the observation" + "".join(f"[{key!r}]" for key in self.path)


@final
@dataclass(frozen=True, slots=True)
class Layout:
    """The parts of an observation, in the order of its space.

    >>> from gymnasium.spaces import Box, Dict, Discrete
    >>> layout = Layout.of(Dict({"where": Box(0, 1, (2,)), "lamp": Discrete(3)}))
    >>> layout.sizes, layout.dim
    ((3,), 2)
    >>> [part.tolist() for part in layout.split([{"where": np.zeros(2), "lamp": 1}])]
    [[[1]], [[0.0, 0.0]]]
    """

    leaves: tuple[Leaf, ...]

    @classmethod
    def of(cls, space: Any) -> "Layout":
        """The layout of a Gymnasium space; one with parts that have no fixed number of numbers is refused."""
        return cls(tuple(_leaves(space, ())))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of values of every whole number."""
        return tuple(size for leaf in self.leaves for size in leaf.sizes)

    @property
    def start(self) -> tuple[int, ...]:
        """First value of every whole number."""
        return tuple(first for leaf in self.leaves for first in leaf.start)

    @property
    def dim(self) -> int:
        """Number of real numbers."""
        return sum(leaf.dim for leaf in self.leaves)

    @property
    def has_parts(self) -> bool:
        """True if an observation is a dictionary or a tuple."""
        return any(leaf.path for leaf in self.leaves)

    def split(self, observations: Sequence[Any] | States) -> tuple[IntArray, Array]:
        """The whole numbers (n, m) and the real numbers (n, d) of a batch of observations."""
        n = len(observations)
        whole: list[IntArray] = [np.zeros((n, 0), dtype=np.int64)]
        real: list[Array] = [np.zeros((n, 0))]
        for leaf in self.leaves:
            try:
                width = len(leaf.sizes) or leaf.dim
                parts = np.array([np.asarray(leaf.of(one)) for one in observations]).reshape(n, -1 if n else width)
            except (KeyError, IndexError, TypeError, ValueError) as error:
                raise ValueError(
                    f"{leaf.name} cannot be read ({type(error).__name__}: {error}); pass observations as the "
                    "environment returns them"
                ) from None
            if parts.shape[1] != width:
                raise ValueError(f"{leaf.name} must have {width} numbers; got {parts.shape[1]}")
            if leaf.sizes:
                whole.append(whole_numbers(parts, f"in {leaf.name}"))
            else:
                real.append(parts.astype(np.float64))
        return np.concatenate(whole, axis=1), np.concatenate(real, axis=1)

    def config(self) -> list[dict[str, Any]]:
        """The leaves, in a form that JSON can hold."""
        return [
            {name: list(v) if isinstance(v, tuple) else v for name, v in asdict(one).items()} for one in self.leaves
        ]

    @classmethod
    def from_config(cls, leaves: list[dict[str, Any]]) -> "Layout":
        """The layout that `config` described.

        Args:
            leaves: What `config` returned.
        """
        return cls(
            tuple(Leaf(tuple(one["path"]), tuple(one["sizes"]), tuple(one["start"]), int(one["dim"])) for one in leaves)
        )


def is_raw(space: Any) -> bool:
    """True if an observation of this space is not an array or a whole number."""
    spaces = gymnasium_spaces()
    return not isinstance(space, spaces.Discrete | spaces.Box | spaces.MultiDiscrete | spaces.MultiBinary)


def raw_batch(observations: Sequence[Any]) -> States:
    """Observations with parts as an array of objects, (n,)."""
    batch = np.empty(len(observations), dtype=object)
    for i, observation in enumerate(observations):
        batch[i] = observation
    return batch


def bounds_of_parts(space: Any) -> tuple[Array, Array]:
    """Lower and upper bounds of all real numbers of a space, in the order of its Layout. Infinity stays."""
    parts = [bounds_of(_inside(space, leaf.path)) for leaf in Layout.of(space).leaves if leaf.dim]
    if not parts:
        return np.zeros(0), np.zeros(0)
    lows, highs = zip(*parts, strict=True)
    return np.concatenate(lows), np.concatenate(highs)


def _inside(space: Any, path: tuple[str | int, ...]) -> Any:
    for key in path:
        space = space[key]
    return space


def _leaves(space: Any, path: tuple[str | int, ...]) -> list[Leaf]:
    spaces = gymnasium_spaces()
    if isinstance(space, spaces.Dict):
        return [leaf for key, part in space.spaces.items() for leaf in _leaves(part, (*path, key))]
    if isinstance(space, spaces.Tuple):
        return [leaf for i, part in enumerate(space.spaces) for leaf in _leaves(part, (*path, i))]
    if isinstance(space, spaces.Box):
        return [Leaf(path, (), (), int(np.prod(space.shape)))]
    if isinstance(space, (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)):
        sizes, start = sizes_of(space)
        return [Leaf(path, tuple(sizes.tolist()), tuple(start.tolist()), 0)]
    raise ValueError(
        f"observations have a part {space}{f' at {list(path)}' if path else ''}, which has no fixed number of numbers; "
        "wrap the env with gymnasium.wrappers.TransformObservation, which makes a Box or a Discrete of it"
    )
