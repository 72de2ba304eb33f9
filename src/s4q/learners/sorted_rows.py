"""SortedRows: the steps of a shelf as a fit needs them.

The memory of steps makes one for each fit, and when it settles what came since the last one. Rows are sorted by block
once, every state is evaluated once for a target, and the sums of a level are a product per block. It changes nothing.
"""

from typing import Any, final

import numpy as np

from s4q.core.blocks import Array, IntArray, Phi
from s4q.core.factors import Factors
from s4q.core.least_squares import elliptical_norm_sq, gram_of, rows_by_block, sums_by_block
from s4q.core.messages import Spec
from s4q.core.optimism import Known, QLevel, same_metric
from s4q.core.tall_products import by_columns, pieces
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
        order = np.argsort(table.chosen_blocks(states, actions), kind="stable")
        self._order = order if which is None else which[order]
        states, actions = states[order], actions[order]
        self.blocks = table.chosen_blocks(states, actions)
        self._where = list(rows_by_block(self.blocks, spec.n_blocks)) if spec.block_dim > 1 else None
        self.weights, self.rewards, self.ended = map(self.picked, (shelf.weights, shelf.rewards, shelf.ended))
        following = self.picked(shelf.next_states)
        self._phi, self.following, self.vectors = _features(table, states, actions, following)
        ones = spec.block_dim == 1 and bool((self._phi.vectors == 1.0).all())
        self.one_hot = ones and bool((self.vectors == 1.0).all())
        self._known: list[tuple[QLevel, Known]] = []  # of the next states, in the metric of a level
        self._grams: tuple[Factors, Factors] | None = None  # of all steps, and of the sample

    @property
    def next_blocks(self) -> IntArray:
        """Blocks of every action in the states that rows lead to, (m, n_actions); `following` (n,) points into them."""
        return self._phi.blocks

    def picked(self, column: Any) -> Any:
        """A column of the shelf, in the order of these rows."""
        return column[self._order]

    def targets(self, level: int, target: QLevel | None) -> Array:
        """y of every row, (n,), for a fit of `level`; each state is evaluated once."""
        after = np.zeros(len(self.rewards)) if target is None else self._values(target).take(self.following)
        return regression_targets(self._spec, level, self.rewards, self.ended, after)

    def sums(self, scales: Array) -> Array:
        """sum of scale phi for each of m scales (m, n), (m, n_blocks, k)."""
        return sums_by_block(self.vectors, scales, self.blocks, self._spec.n_blocks, self._where)

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
            norms_sq = target.whitener[:, 0, 0] ** 2 if self.one_hot else _norms_sq(self._phi, target.whitener)
            found = Known.of(np, target, norms_sq)
            self._known = [*self._known[-1:], (target, found)]
        return target.value_of_units(self._phi.blocks, found) if self.one_hot else target.value(self._phi, found)


def _features(
    table: StateTable, states: IntArray, actions: IntArray, following: IntArray
) -> tuple[Phi, IntArray, Array]:
    """Features of the next states, where each row finds its own among them (n,), and the vectors of the rows (n, k).

    Args:
        table: The states.
        states: The state of each row, (n,).
        actions: Its action, (n,).
        following: Its next state, (n,).
    """
    n, k = len(states), table.vectors.shape[2]
    reached, where = np.unique(following, return_inverse=True)
    if k == 1 or table.vectors.shape[1] > 1 or 2 * len(reached) < n:
        most = 2 * len(reached) > len(table)  # then it is quicker to evaluate all states than to copy some
        vectors = by_columns(n, k, lambda some: table.chosen(states[some], actions[some])[0])
        return table.phi(None if most else reached), following if most else where, vectors
    # Nearly every state is one that a step leads from, so one matrix serves for the rows and for the next states. It
    # ends with the states from which no step is held.
    place = np.full(len(table), -1)
    place[states] = np.arange(n)
    others = reached[place[reached] < 0]
    place[others] = n + np.arange(len(others))
    every = np.concatenate([states, others])
    vectors = by_columns(len(every), k, lambda some: table.vectors[every[some], 0])
    return Phi(vectors[:, None], table.blocks_of(every)), place[following], vectors[:n]


def _norms_sq(phi: Phi, whitener: Array) -> Array:
    """Squared norms of phi in the metric of a whitener, (n, n_actions), with the columns of a value: contiguous."""
    norms_sq = np.empty(phi.blocks.shape, order="F" if phi.vectors.shape[1] == 1 and phi.vectors.shape[2] > 1 else "C")
    for rows in pieces(phi.vectors[:, 0]):  # the images of all vectors at once would be larger than the memory
        norms_sq[rows] = elliptical_norm_sq(phi.vectors[rows], phi.blocks[rows], whitener)
    return norms_sq
