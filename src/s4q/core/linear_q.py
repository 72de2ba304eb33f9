"""LinearQ: a linear value with an optional bonus, level by level. It is also its own greedy policy.

Learners make it, collectors play it, checkpoints hold it. It never changes: a new fit is a new LinearQ. The formula
of the value stands in `optimism`, not here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike

from s4q.core.blocks import Array, IntArray, Phi, States
from s4q.core.optimism import QLevel, best_actions, levels_without_bonus
from s4q.core.validation import finite_array, require_shape


@final
@dataclass(frozen=True, eq=False, repr=False)
class LinearQ:
    """Q_h(s, a) for h = 0..H-1, one QLevel each; the value at h = H is 0.

    Args:
        levels: One QLevel per level, all of the same shape. Levels may share arrays.

    >>> q = LinearQ.from_arrays(np.array([[[1.0], [2.0]]]), clip=[[0.0, 1.5]])  # H = 1, two blocks of length 1
    >>> phi = Phi(np.ones((1, 2, 1)), np.array([[0, 1]]))
    >>> q, q.optimistic(0, phi).tolist(), q.value(0, phi).tolist(), q.greedy(0, phi).tolist()
    (LinearQ(1 level, 2 blocks of 1), [[1.0, 2.0]], [1.5], [1])
    """

    levels: Sequence[QLevel]

    def __post_init__(self) -> None:
        levels = tuple(self.levels)
        if not levels or not all(isinstance(level, QLevel) for level in levels):
            raise ValueError("levels must hold a QLevel for each level; LinearQ.from_arrays makes one of arrays")
        shape = levels[0].theta.shape
        for h, level in enumerate(levels):
            if level.theta.shape != shape:
                require_shape(f"levels[{h}].theta", level.theta, shape, "that of the first level")
        object.__setattr__(self, "levels", levels)

    @classmethod
    def from_arrays(
        cls,
        theta: ArrayLike,
        whitener: ArrayLike | None = None,
        width: ArrayLike | None = None,
        clip: ArrayLike | None = None,
    ) -> "LinearQ":
        """A LinearQ from arrays whose first axis is the level.

        Args:
            theta: Parameters, (H, n_blocks, k).
            whitener: W with W Sigma W^T = I, (H, n_blocks, k, k). None (default) means no bonus.
            width: Width of the bonus, (H,) or (H, n_blocks). Goes with the whitener.
            clip: Lower and upper bound of each level, (H, 2). None (default) clips nothing.
        """
        thetas = finite_array("theta", theta)
        require_shape("theta", thetas, (None, None, None), "(H, n_blocks, k)")
        horizon, n_blocks, k = thetas.shape
        if (whitener is None) != (width is None):
            raise ValueError("whitener and width make the bonus together: give both, or neither for no bonus")
        whiteners: Any = [None] * horizon
        widths: Any = whiteners
        if whitener is not None and width is not None:
            whiteners, widths = finite_array("whitener", whitener), finite_array("width", width)
            require_shape("whitener", whiteners, (horizon, n_blocks, k, k), "(H, n_blocks, k, k)")
            if widths.shape != (horizon,):
                require_shape("width", widths, (horizon, n_blocks), "(H, n_blocks)")
        bounds = np.full((horizon, 2), (-inf, inf)) if clip is None else np.array(clip, dtype=np.float64)
        require_shape("clip", bounds, (horizon, 2), "(H, 2)")
        if whitener is None and bool(np.all(bounds[:, 0] <= bounds[:, 1])):
            thetas.setflags(write=False)
            return cls(levels_without_bonus(thetas, [(low, high) for low, high in bounds.tolist()]))
        rows = zip(thetas, whiteners, widths, bounds.tolist(), strict=True)
        return cls([QLevel(row, white, wide, (low, high)) for row, white, wide, (low, high) in rows])

    def __repr__(self) -> str:
        inside = repr(self.levels[0]).removeprefix("QLevel(")
        return f"LinearQ({self.horizon} level{'s' * (self.horizon > 1)}, {inside}"

    @property
    def horizon(self) -> int:
        """Number of levels, H."""
        return len(self.levels)

    @property
    def theta(self) -> Array:
        """The parameters of all levels, (H, n_blocks, k): a copy."""
        return np.stack([level.theta for level in self.levels])

    @cached_property
    def nbytes(self) -> int:
        """Bytes held by the parameters; an array that levels share counts once."""
        arrays: dict[int, int] = {id(array): array.nbytes for level in self.levels for array in level.arrays}
        numbers = sum(2 * (level.clip != (-inf, inf)) + 4 * (level.second is not None) for level in self.levels)
        return sum(arrays.values()) + 8 * numbers

    def without_bonus(self) -> "LinearQ":
        """The same parameters and clips, and no bonus.

        >>> LinearQ.from_arrays(np.ones((1, 2, 1)), np.ones((1, 2, 1, 1)), [0.5]).without_bonus()
        LinearQ(1 level, 2 blocks of 1)
        """
        return LinearQ([QLevel(level.theta, clip=level.clip) for level in self.levels])

    def same_as(self, other: "LinearQ") -> bool:
        """True if all parameters are equal, bit for bit."""
        return self.horizon == other.horizon and all(map(_same, self.levels, other.levels))

    def optimistic(self, h: int, phi: Phi) -> Array:
        """phi . theta + bonus at level h, unclipped, (n, n_actions)."""
        return self.levels[h].optimistic(phi)

    def q_values(self, h: int, phi: Phi) -> Array:
        """The clipped optimistic value of every action at level h, (n, n_actions)."""
        return self.levels[h].clipped(self.levels[h].optimistic(phi))

    def value(self, h: int, phi: Phi) -> Array:
        """max over actions of the clipped value at level h, (n,); 0 after the last level."""
        return np.zeros(len(phi.vectors)) if h == self.horizon else self.levels[h].value(phi)

    def greedy(self, h: int, phi: Phi) -> IntArray:
        """Best action per state at level h, (n,); see `QLevel.greedy`."""
        return self.levels[h].greedy(phi)

    def probabilities(self, h: int, states: States, phi: Phi) -> Array:
        """The greedy policy as probabilities, (n, n_actions); reads only the features."""
        del states
        return np.eye(phi.vectors.shape[1])[self.greedy(h, phi)]

    def probabilities_at_every_level(self, vectors: Array, blocks: IntArray) -> Array:
        """`probabilities` of a table of states at every level, (H, S, n_actions), bit for bit.

        Args:
            vectors: Features (H, S, n_actions, k).
            blocks: Their blocks, (H, S, n_actions).
        """
        horizon, n_states, n_actions, k = vectors.shape
        if self.horizon < horizon:
            raise IndexError(f"it has {self.horizon} level{'s' * (self.horizon > 1)}")
        levels = self.levels[:horizon]
        if k == 1 and all(level.whitener is None for level in levels):  # one look for all levels
            thetas = np.stack([level.theta[:, 0] for level in levels])
            values = vectors[..., 0] * thetas[np.arange(horizon)[:, None, None], blocks]
            greedy = best_actions(np, values.reshape(-1, n_actions))[0].reshape(horizon, n_states)
        else:
            phis = map(Phi, vectors, blocks)
            greedy = np.stack([level.greedy(phi) for level, phi in zip(levels, phis, strict=True)])
        return np.asarray(np.eye(n_actions)[greedy])


def _same(a: QLevel, b: QLevel) -> bool:
    if a.numbers != b.numbers or len(a.arrays) != len(b.arrays):
        return False
    return all(x is y or np.array_equal(x, y) for x, y in zip(a.arrays, b.arrays, strict=True))
