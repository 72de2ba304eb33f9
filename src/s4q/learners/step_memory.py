"""StepMemory: S4Q keeps the steps themselves and refits them to every new target; no episode is ever replayed.

With `max_bytes=None` all steps are kept (`memory="all"`: least-squares value iteration with rare switching). With a
budget (`memory="sketch"`) the same happens, with the same bits, until the budget is reached. From then on a weighted
sample of the steps is kept. Gram matrices and counts stay exact. Sums of targets are exact for the values under which
the steps came; where the values have changed since, the sample corrects them. `sketch` holds the formulas.
"""

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Annotated, final

import numpy as np

from s4q.core.blocks import Array
from s4q.core.codec import AnySize
from s4q.core.factors import Factors, whitener
from s4q.core.least_squares import Moments, elliptical_norm_sq, gram_of
from s4q.core.linear_q import LinearQ
from s4q.core.messages import Spec, Transitions
from s4q.core.optimism import QLevel
from s4q.core.validation import require_shape
from s4q.learners.one_hot_fit import OneHotFits, one_hot_fits
from s4q.learners.presets import Constants
from s4q.learners.shelf import Shelf
from s4q.learners.sketch import THINNED_TO, allowances, inclusion_probabilities, systematic_sample, tiny_ridge
from s4q.learners.sorted_rows import SortedRows
from s4q.learners.state_table import StateTable


@final
@dataclass(frozen=True, eq=False, slots=True)
class SettledSums:
    """Sums of one level over all steps that ever came and are settled, with the targets of one value."""

    target: QLevel | None = None  # that value: Qtar of the level after; None means 0
    sums: Annotated[Array, "t B K"] | None = None  # estimates of the sums of phi y and phi y^2; None: nothing settled


@final
@dataclass(eq=False, repr=False)
class StepMemory:
    """Steps of all main loops, per level, or all on one shelf with `pool`.

    >>> import s4q
    >>> memory = StepMemory(s4q.problems.chain(3, 2).spec, pool=False, max_bytes=10_000)
    >>> memory.n_episodes, memory.held_bytes
    (0, 0)
    """

    spec: Spec
    pool: bool
    max_bytes: AnySize | None  # None: all steps are kept
    n_episodes: int = 0
    n_thinnings: int = 0
    states: StateTable = field(init=False)
    shelves: list[Shelf] = field(init=False)
    levels: list[SettledSums] = field(init=False)  # H of them

    def __post_init__(self) -> None:
        self.states = StateTable.empty(self.spec.n_actions, self.spec.block_dim)
        self.shelves = [Shelf.empty(self.spec) for _ in range(1 if self.pool else self.spec.horizon)]
        self.levels = [SettledSums()] * self.spec.horizon

    def check_restored(self) -> None:
        """Steps read from a file must be of this problem, and fit."""
        n_shelves = 1 if self.pool else self.spec.horizon
        if len(self.shelves) != n_shelves or len(self.levels) != self.spec.horizon:
            raise ValueError(f"a memory of this problem has {n_shelves} shelves and {self.spec.horizon} levels")
        if len({id(shelf) for shelf in self.shelves}) < n_shelves:
            raise ValueError("each level of a memory must have its own steps")
        if self.states.blocks.max(initial=0) >= self.spec.n_blocks:
            raise ValueError(f"blocks of held states must lie in 0..{self.spec.n_blocks - 1}")
        for h, one in enumerate(self.levels):
            if (one.sums is None) != (self._shelf(h).settled is None):
                raise ValueError(f"level {h} of a memory needs sums if its steps were thinned, and else none")
            if one.sums is not None:
                require_shape("sums", one.sums, (2, *self.spec.theta_shape[1:]), "(2, n_blocks, k)")
            if one.target is not None:
                require_shape("theta", one.target.theta, self.spec.theta_shape[1:], "(n_blocks, k)")
        for shelf in self.shelves:
            self._check_shelf(shelf)
        if self.max_bytes is not None and self.held_bytes > self.max_bytes:
            raise ValueError(f"a memory of {self.max_bytes} bytes cannot hold {self.held_bytes}")

    def _check_shelf(self, shelf: Shelf) -> None:
        ends = {"states": len(self.states), "next_states": len(self.states), "actions": self.spec.n_actions}
        for name, end in ends.items():
            if getattr(shelf, name).max(initial=-1) >= end:  # a file holds no negative ones
                raise ValueError(f"{name} of held steps must lie in 0..{end - 1}")
        if len(shelf) and shelf.weights.min() <= 0:
            raise ValueError("weights of held steps must be positive")
        shelf.rows_known()  # refuses steps that repeat

    def require_fit(self, constants: Constants) -> None:
        """Refuse a memory of another problem or budget, or where the constants want policies.

        Args:
            constants: Of the S4Q whose memory it is.
        """
        if self.spec != constants.spec or self.pool != constants.pool:
            raise ValueError("the parts of an S4Q must be of one problem, and agree whether steps are pooled")
        if constants.memory == "policies" or self.max_bytes != constants.memory_bytes:
            raise ValueError(
                f'the memory of this S4Q must be "{constants.memory}" with {constants.memory_bytes} bytes, but it '
                f"holds steps within {self.max_bytes} bytes"
            )

    @property
    def sampled_steps(self) -> float | None:
        """Steps held for a level, on average, once steps were dropped; None if none was."""
        return sum(map(len, self.shelves)) / len(self.shelves) if self.n_thinnings else None

    def __repr__(self) -> str:
        rows, came = sum(map(len, self.shelves)), sum(shelf.n_samples for shelf in self.shelves)
        budget = "" if self.max_bytes is None else f" of {self.max_bytes:,}"
        kept = f"a sample of {rows:,} steps" if self.n_thinnings else f"{rows:,} different steps"
        return f"StepMemory({kept} stand for all {came:,}, {self.held_bytes:,}{budget} bytes)"

    @property
    def keeps_steps(self) -> bool:
        """True: a main loop must return its steps."""
        return True

    @property
    def policies(self) -> list[LinearQ]:
        """No policy is held, only steps."""
        return []

    @property
    def held_bytes(self) -> int:
        """Bytes held by steps and the features of their states: what the budget bounds."""
        if not len(self.states):
            return 0
        return self.states.nbytes + sum(shelf.nbytes for shelf in self.shelves)

    @property
    def nbytes(self) -> int:
        """All bytes held: Gram matrices and sums, whose size never changes, included."""
        fixed = sum(shelf.gram.nbytes for shelf in self.shelves)
        fixed += sum(one.sums.nbytes for one in self.levels if one.sums is not None)
        return self.held_bytes + fixed

    @property
    def grams(self) -> Array:
        """Exact sums of phi phi^T behind the fits: one a level, or one with pooled steps, (H or 1, n_blocks, k, k)."""
        return np.stack([shelf.gram for shelf in self.shelves])

    def append(self, policy: LinearQ, n_episodes: int) -> None:
        """The steps of the phase are here already. The arguments are those of Memory."""

    def add(self, kept: Transitions | None, n_episodes: int) -> None:
        """Take the steps of so many episodes. Beyond the budget some are dropped.

        Args:
            kept: All steps of the episodes.
            n_episodes: Their number.
        """
        if kept is None:
            raise ValueError("kept is None, but a memory of steps needs the steps of all episodes")
        self.n_episodes += n_episodes
        if not len(kept.states):
            return
        # No target looks beyond the last level. Such steps lead nowhere, so that equal ones are equal.
        last = kept.ended if self.pool else kept.ended | (kept.levels == self.spec.horizon - 1)
        following = np.where(last, kept.states, kept.next_states)
        occur, where = np.unique(np.concatenate([kept.states, following]), return_inverse=True)
        rows = self.states.add(kept.state_vectors[occur], kept.state_blocks[occur])[where]
        states, following = rows[: len(kept.states)], rows[len(kept.states) :]
        actions, rewards = np.asarray(kept.actions, dtype=np.int64), np.asarray(kept.rewards, dtype=np.float64)
        vectors, blocks = self.states.chosen(states, actions)
        for h, shelf in enumerate(self.shelves):
            here = slice(None) if self.pool else np.flatnonzero(kept.levels == h)
            counts = kept.weights[here]
            if len(counts):
                shelf.gram = shelf.gram + gram_of(vectors[here], blocks[here], self.spec.n_blocks, counts)
                shelf.n_samples += int(counts.sum())
                columns = (states[here], actions[here], following[here], rewards[here], kept.ended[here])
                shelf.add(columns, counts)
        while self.max_bytes is not None and self.held_bytes > self.max_bytes:
            self._thin(THINNED_TO * self.max_bytes / self.held_bytes)

    def source(self) -> "HeldFit":
        """The samples of one new fit of all levels; `settle` it when it is finished."""
        return HeldFit(self)

    def _shelf(self, level: int) -> Shelf:
        return self.shelves[0 if self.pool else level]

    def _thin(self, share: float) -> None:
        """Drop all but this share of the steps, and the states that none of the others needs."""
        sizes = [len(shelf) for shelf in self.shelves]
        for number, allowed in enumerate(allowances(sizes, int(share * sum(sizes)))):
            if allowed < sizes[number]:
                self._settle_new(number)
                self._sample(number, allowed)
        self.n_thinnings += 1
        used = np.zeros(len(self.states), dtype=np.bool_)
        for shelf in self.shelves:
            used[shelf.states] = used[shelf.next_states] = True
        rows = self.states.keep(used)
        for shelf in self.shelves:
            shelf.renumber(rows)

    def _settle_new(self, number: int) -> None:
        """Add to the sums what came since the last fit, with the values of that fit."""
        shelf = self.shelves[number]
        new = shelf.weights if shelf.settled is None else shelf.weights - shelf.settled
        which = np.flatnonzero(new)
        rows = SortedRows(self.spec, self.states, shelf, which)
        for level in range(self.spec.horizon) if self.pool else [number]:
            before = self.levels[level]
            old = rows.targets(level, before.target)
            sums = rows.sums(rows.picked(new) * np.stack([old, old**2]))
            self.levels[level] = SettledSums(before.target, sums if before.sums is None else before.sums + sums)
        shelf.settled = shelf.weights

    def _sample(self, number: int, n_kept: int) -> None:
        """Keep a sample of the rows of a shelf: each with its probability p, and its weight divided by p."""
        shelf = self.shelves[number]
        blocks = self.states.chosen_blocks(shelf.states, shelf.actions)
        order = np.argsort(blocks, kind="stable")  # by block, then arrival
        vectors, blocks = self.states.chosen(shelf.states[order], shelf.actions[order])
        leverages = elliptical_norm_sq(vectors, blocks, whitener(shelf.gram, tiny_ridge(shelf.gram)))
        chances = inclusion_probabilities(shelf.weights[order], leverages, n_kept)
        kept, weights = np.zeros(len(shelf), dtype=np.bool_), np.zeros(len(shelf))
        kept[order] = systematic_sample(chances, self._offset(number))
        weights[order] = shelf.weights[order] / chances
        shelf.keep(kept, weights)

    def _offset(self, number: int) -> float:
        """Uniform in [0, 1). The exact Gram matrix is the seed: runs with other episodes have other offsets."""
        digest = blake2b(self.shelves[number].gram.tobytes(), digest_size=16).digest()
        seed = np.random.SeedSequence(int.from_bytes(digest, "big"), spawn_key=(number, self.n_thinnings))
        return float(np.random.default_rng(seed).random())


@final
class HeldFit:
    """The samples of a memory for one fit of all levels, from the last to the first. It changes nothing in the memory.

    Args:
        memory: What is held.
    """

    def __init__(self, memory: StepMemory) -> None:
        self._memory = memory
        self.levels = list(memory.levels)  # the sums with the targets of this fit
        self._rows: SortedRows | None = None
        self._factors: Factors | None = None
        self._no_squares = np.full(memory.spec.theta_shape[1:], np.nan)  # nobody can mistake them for sums

    @property
    def grams(self) -> Array:
        """Exact sums of phi phi^T behind the fits."""
        return self._memory.grams

    def settle(self) -> None:
        """From now on the sums of the memory are those with the targets of this fit, which is finished."""
        self._memory.levels = list(self.levels)
        for shelf in self._memory.shelves:
            if shelf.settled is not None:
                shelf.settled = shelf.weights

    def all_levels(self, constants: Constants, ridge: Array) -> OneHotFits | None:
        """The fits of all levels in one go, where that can be done. The arguments are those of HeldSamples."""
        memory = self._memory
        shelf, spec = memory.shelves[0], memory.spec
        simple = memory.pool and spec.block_dim == 1 and spec.well_specified and shelf.settled is None
        if not simple or constants.preset != "practical" or np.ptp(ridge) > 0:
            return None
        self._rows = self._rows or SortedRows(spec, memory.states, shelf)
        if not self._rows.one_hot:
            return None
        kappa = constants.standard_errors()
        fits = one_hot_fits(spec, self._rows, shelf.gram, shelf.n_samples, ridge=float(ridge[0]), kappa=kappa)
        self.levels = [SettledSums(target) for target in (*fits.levels[1:], None)]
        return fits

    def moments(self, level: int, target: QLevel | None) -> Moments:
        """The sums a fit of `level` needs. The arguments are those of HeldSamples."""
        memory, shelf = self._memory, self._memory._shelf(level)
        if self._rows is None or not memory.pool:
            self._rows = SortedRows(memory.spec, memory.states, shelf)
        if self._factors is None or not memory.pool:
            self._factors = Factors(shelf.gram)
        rows, new, before = self._rows, self._rows.targets(level, target), memory.levels[level]
        if shelf.settled is None:
            weighted = rows.weights * new
            if memory.spec.well_specified:
                scales = np.empty((2, len(new)))
                scales[0], scales[1] = weighted, weighted * new
                moment, moment_sq = rows.sums(scales)
            else:  # only the bonus of exact features reads the squares
                (moment,), moment_sq = rows.sums(weighted[None]), self._no_squares
            self.levels[level], sum_y2 = SettledSums(target), float(weighted @ new)
        else:
            old = rows.targets(level, before.target)
            sums, sum_y2 = rows.corrected(before.sums, new, old)
            (moment, moment_sq), self.levels[level] = sums, SettledSums(target, sums)
        return Moments(shelf.gram, moment, moment_sq, sum_y2, shelf.n_samples, self._factors)
