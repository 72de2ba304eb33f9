"""SortedRows: the steps of a shelf as a fit needs them.

The memory of steps makes one for each fit, and when it settles what came since the last one. Rows are sorted by block
once, every state is evaluated once for a target, and the sums of a level are a product per block. It changes nothing.
"""

from typing import Any, final

import numpy as np

from s4q.core.blocks import Array, IntArray
from s4q.core.factors import Factors
from s4q.core.least_squares import elliptical_norm_sq, gram_of, sums_by_block
from s4q.core.messages import Spec
from s4q.core.optimism import Known, QLevel, same_metric
from s4q.core.transitions import regression_targets
from s4q.learners.shelf import Shelf
from s4q.learners.sketch import extrapolated, sum_of_squares
from s4q.learners.state_table import StateTable


@final
class SortedRows:
    """Rows of a shelf sorted by block, so that their sums are a product per block. Lives as long as one fit.

    Args:
        spec: The problem.
        table: The states.
        shelf: The steps.
        which: The rows (n,); None (default) means all.
    """

    def __init__(self, spec: Spec, table: StateTable, shelf: Shelf, which: IntArray | None = None) -> None:
        self._spec, self._shelf = spec, shelf
        states, actions = (
            (shelf.states, shelf.actions) if which is None else (shelf.states[which], shelf.actions[which])
        )
        order = np.argsort(table.chosen(states, actions)[1], kind="stable")
        self._order = order if which is None else which[order]
        self.vectors, self.blocks = table.chosen(states[order], actions[order])
        self.weights, self.rewards, self.ended = map(self.picked, (shelf.weights, shelf.rewards, shelf.ended))
        following = self.picked(shelf.next_states)
        reached, where = np.unique(following, return_inverse=True)
        most = 2 * len(reached) > len(table)  # then it is quicker to evaluate all states than to copy some
        self._phi, self._following = table.phi(None if most else reached), following if most else where
        self._known: list[tuple[QLevel, Known]] = []  # of the next states, in the metric of a level
        self._grams: tuple[Factors, Factors] | None = None  # of all steps, and of the sample

    def picked(self, column: Any) -> Any:
        """A column of the shelf, in the order of these rows."""
        return column[self._order]

    def targets(self, level: int, target: QLevel | None) -> Array:
        """y of every row, (n,), for a fit of `level`; each state is evaluated once."""
        after = np.zeros(len(self.rewards)) if target is None else self._values(target)[self._following]
        return regression_targets(self._spec, level, self.rewards, self.ended, after)

    def sums(self, scales: Array) -> Array:
        """sum of scale phi for each of m scales (m, n), (m, n_blocks, k)."""
        return sums_by_block(self.vectors, scales, self.blocks, self._spec.n_blocks)

    def corrected(self, before: Array | None, new: Array, old: Array) -> tuple[Array, float]:
        """Sums of phi y and phi y^2 over all steps that ever came, (2, n_blocks, k), and of y^2, with new targets.

        Args:
            before: The same sums with the old targets, without what came since.
            new: The new target of every row, (n,).
            old: Its old target, (n,).
        """
        shelf, weights = self._shelf, self.weights
        settled = 0.0 if shelf.settled is None else self.picked(shelf.settled)
        new_powers, old_powers = np.stack([new, new**2]), np.stack([old, old**2])
        scales = [
            weights * new_powers - settled * old_powers,
            weights * (new_powers - old_powers),
            (weights * new)[None],
        ]
        sums = self.sums(np.concatenate(scales))
        if self._grams is None:
            sampled = gram_of(self.vectors, self.blocks, self._spec.n_blocks, weights)
            self._grams = Factors(shelf.gram), Factors(sampled)
        whole, sample = self._grams
        # m + S_w(f) + (G - G_s) b; rows that came since the last fit bring their whole target.
        after = (
            (0.0 if before is None else before) + sums[:2] + extrapolated(whole.gram, sample.gram, sums[2:4], sample)
        )
        scale = shelf.n_samples / max(float(weights.sum()), 1.0)  # weights are at least 1
        squares = scale * float(weights @ new_powers[1])
        return after, sum_of_squares(whole.gram, after[0], scale * sample.gram, scale * sums[4], squares, whole)

    def _values(self, target: QLevel) -> Array:
        if target.whitener is None:
            return target.value(self._phi)
        found = next((known for level, known in self._known if same_metric(level, target)), None)
        if found is None:  # with pooled steps all levels of a fit share one metric
            norms_sq = elliptical_norm_sq(self._phi.vectors, self._phi.blocks, target.whitener)
            found = Known.of(np, target, norms_sq)
            self._known = [*self._known[-1:], (target, found)]
        return target.value(self._phi, found)
