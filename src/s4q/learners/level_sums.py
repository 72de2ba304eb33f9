"""LevelSums: do steps that are pooled really follow one law at every level? Sums that can tell, and the test on them.

S4Q adds the kept transitions of a pooled run to it, through `Signs`; `diagnose` asks it. Its size does not grow with
the episodes. It must not change what is learned.
"""

from dataclasses import dataclass, fields
from typing import Annotated, final

import numpy as np

from s4q.core.blocks import Array, IntArray
from s4q.core.factors import Factors
from s4q.core.messages import Spec, Transitions
from s4q.core.validation import require_shape

GROUPS = 16  # neighbouring levels share a group when there are more levels
FEWEST = 5  # steps of a group and block that may speak
SHRINKAGE = 30  # steps added to those of a group: one or two rare rewards must not decide
EXACT_SHARE = 0.06  # of the variance that exact features leave open, explained by the level: less is of no account
SHARE = 0.1  # the same for other features, which leave open more at some levels than at others
CHANCE = 1e-6  # that equal levels look so different, over all blocks
OUTCOMES = ("rewards", "ends of episodes", "next states")
_GOLDEN = 0.6180339887498949


@final
@dataclass(frozen=True, slots=True)
class LevelEffect:
    """What depends on the level, in which block, and how much of its left-over variance the level explains."""

    outcome: str
    block: int
    share: float


@final
@dataclass(eq=False, repr=False, slots=True)
class LevelSums:
    """Sums over kept steps by group of levels and by block, of three outcomes of a step.

    The outcomes are the reward, whether the episode ended, and a fixed number made of the next features. If all levels
    follow one law and the features are exact, then what the pooled fit of an outcome leaves over has mean 0 in every
    group of every block. `strongest` tests this block by block. For one-hot features it is the F test of one pair.

    What it does not see: a law that changes within a group of neighbouring levels only, steps that were not kept, and
    an effect whose mean over a block is 0.
    """

    counts: Annotated[Array, "g B"]
    features: Annotated[Array, "g B K"]  # sum of phi
    outcomes: Annotated[Array, "g B o"]  # sum of the outcomes
    moment: Annotated[Array, "B K o"]  # sum of phi times outcome
    squares: Annotated[Array, "B o"]

    @classmethod
    def of(cls, spec: Spec) -> "LevelSums":
        """Nothing seen yet."""
        groups, blocks, k, n = min(spec.horizon, GROUPS), spec.n_blocks, spec.block_dim, len(OUTCOMES)
        shapes = ((groups, blocks), (groups, blocks, k), (groups, blocks, n), (blocks, k, n), (blocks, n))
        return cls(*(np.zeros(shape) for shape in shapes))

    def check_restored(self) -> None:
        """Sums read from a file must be of these outcomes. They are copied: what was read cannot be written."""
        require_shape("squares", self.squares, (None, len(OUTCOMES)), "(n_blocks, 3)")
        for one in fields(self):
            setattr(self, one.name, getattr(self, one.name).copy())

    @property
    def nbytes(self) -> int:
        """Bytes held by the sums."""
        arrays = (self.counts, self.features, self.outcomes, self.moment, self.squares)
        return sum(array.nbytes for array in arrays)

    def add(self, kept: Transitions, horizon: int) -> None:
        """Add these steps, which still carry their levels. Its arrays are written, because a copy would cost more."""
        n_groups, n_blocks = self.counts.shape
        group, weights = kept.levels * n_groups // horizon, kept.weights.astype(np.float64)[:, None]
        seen, cells, blocks = _outcomes(kept, self.moment.shape[:2]), group * n_blocks + kept.blocks, kept.blocks
        weighted = weights * seen
        products = kept.vectors[:, :, None] * weighted[:, None, :]
        _add_at(self.counts, cells, weights)
        _add_at(self.features, cells, weights * kept.vectors)
        _add_at(self.outcomes, cells, weighted)
        _add_at(self.moment, blocks, products.reshape(len(blocks), -1))
        _add_at(self.squares, blocks, weighted * seen)

    def strongest(self, gram: Array, ridge: float, exact: bool) -> LevelEffect | None:
        """The outcome and block that most clearly depend on the level; None if none does.

        Args:
            gram: sum of phi phi^T of the same steps, (n_blocks, k, k).
            ridge: Added to its diagonal.
            exact: Are the features declared exact?
        """
        from scipy.special import betainc  # as in `factors.whitener`: `import s4q` stays light

        white = Factors(gram).whitener(ridge)
        theta = np.einsum("bji,bjo->bio", white, np.einsum("bjl,blo->bjo", white, self.moment))
        left = np.maximum(self.squares - np.einsum("bio,bio->bo", theta, self.moment), 0.0)
        enough = self.counts >= FEWEST
        n = np.where(enough, self.counts, 1.0)
        errors = np.where(enough[..., None], self.outcomes - np.einsum("gbi,bio->gbo", self.features, theta), 0.0)
        between = np.minimum((errors**2 / (n + SHRINKAGE)[..., None]).sum(axis=0), left)
        leverage = (np.einsum("bji,gbi->gbj", white, self.features) ** 2).sum(axis=-1)
        free = np.where(enough, np.maximum(1 - leverage / n, 0.0), 0.0).sum(axis=0)  # degrees of freedom
        within = self.counts.sum(axis=0) - gram.shape[-1] - free
        share = np.where(left > 1e-9 * self.squares, between / np.maximum(left, 1e-300), 0.0)
        usable = (free > 0.5) & (within > 1) & (enough.sum(axis=0) > 1)
        share = np.where(usable[:, None], share, 0.0)
        # The upper tail of the F law, as an incomplete beta function of the share.
        chance = betainc(np.where(usable, within, 1)[:, None] / 2, np.where(usable, free, 1)[:, None] / 2, 1 - share)
        clear = (share >= (EXACT_SHARE if exact else SHARE)) & (chance * share.size < CHANCE)
        if not clear.any():
            return None
        block, outcome = np.unravel_index(np.where(clear, share, 0.0).argmax(), share.shape)
        return LevelEffect(OUTCOMES[outcome], int(block), float(share[block, outcome]))


def _outcomes(kept: Transitions, shape: tuple[int, ...]) -> Array:
    """(n, 3): reward, end, and the next features of action 0 times fixed weights that no two features share."""
    weights = ((1 + np.arange(np.prod(shape))) * _GOLDEN % 1.0).reshape(shape)
    of_state = np.einsum("mk,mk->m", kept.state_vectors[:, 0], weights[kept.state_blocks[:, 0]])
    after = of_state[kept.next_states]
    return np.stack([kept.rewards, kept.ended.astype(np.float64), np.where(kept.ended, 0.0, after)], axis=1)


def _add_at(sums: Array, place: IntArray, values: Array) -> None:
    """Add the values (n, m) at their places, (n,): the sums are rows of m numbers."""
    if len(place):
        order = np.argsort(place, kind="stable")
        there, first = np.unique(place[order], return_index=True)
        sums.reshape(-1, values.shape[1])[there] += np.add.reduceat(values[order], first, axis=0)
