"""Feature back ends: what the batch engine keeps of states. Features of any kind, or rows of a table.

`Rollout` and `BatchCollector` call them. A batch is what a back end keeps of the states at one level. A sample is a
batch with the actions taken. Arrays are those of the engine's module; Moments and Gram matrices are numpy's.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, final

import numpy as np

from s4q.collectors.batched.array_backends import Arrays
from s4q.core.blocks import Array, IntArray, Phi
from s4q.core.identity_cache import IdentityCache
from s4q.core.least_squares import Moments, gram_of
from s4q.core.messages import FeatureMap, Spec
from s4q.core.optimism import Known, QLevel, best_actions, is_lower, norms_sq, optimistic
from s4q.core.policies import Policy
from s4q.features import TableFeatures
from s4q.features.batches import UNIT

_ROWS, _CHUNK = 512, 2**15  # rows, or numbers, whitened at a time: features and product stay in the cache


@final
@dataclass(frozen=True, eq=False, slots=True)
class Best:
    """The greedy choice in each of n states."""

    actions: Any  # (n,)
    values: Any  # (n,): optimistic, unclipped
    norms_sq: Any | None = None  # (n,): in the metric of the bonus, where they came up; None: they did not


class FeatureBackend(Protocol):
    """Features of batches of states, as the engine needs them; see the module docstring."""

    def batch(self, h: int, states: Any) -> Any: ...
    def part(self, batch: Any, rows: slice) -> Any: ...
    def best(self, level: QLevel, batch: Any, seen_at: int) -> Best:
        """What a level of Q chooses on the features of level `seen_at`."""
        ...

    def probabilities(self, h: int, policy: Policy, batch: Any, states: Any) -> Array:
        """(n, n_actions), of any other policy, in numpy."""
        ...

    def sample(self, batch: Any, actions: Any) -> Any: ...
    def first(self, sample: Any, n: int) -> Any: ...
    def norms_sq(self, h: int, whitener: Array, sample: Any) -> Any: ...
    def gram(self, h: int, sample: Any) -> Array: ...
    def moments(self, h: int, sample: Any, targets: Any) -> Moments: ...
    def phi(self, h: int, batch: Any) -> Phi:
        """Features of a batch for every action, in numpy."""
        ...


@final
class MapBackend:
    """Any feature map: a batch is (vectors, blocks), a sample is those of the actions taken.

    vectors (n, n_actions, k), or (n, 1, k) where all actions of a state have the same vector; blocks (n, n_actions).
    """

    def __init__(self, features: FeatureMap, spec: Spec, arrays: Arrays) -> None:
        self._features, self._spec, self._arrays = features, spec, arrays
        self._checked = bool(getattr(features, "validates_output", False))  # checking twice costs a tenth of the work
        self._levels: IdentityCache[QLevel, tuple[QLevel, bool]] = IdentityCache(self._level, size=256 * spec.horizon)
        self._whiteners: IdentityCache[Array, tuple[Any, bool]] = IdentityCache(self._whitener, size=2)
        self._one_vector = bool(getattr(features, "same_for_all_actions", False))

    def batch(self, h: int, states: Any) -> tuple[Any, Any]:
        xp, spec = self._arrays.xp, self._spec
        phi = self._features(h, states)
        vectors, blocks = phi.vectors, phi.blocks
        shape = (states.shape[0], spec.n_actions, spec.block_dim)
        if vectors.shape != shape or blocks.shape != shape[:2]:
            raise ValueError(
                f"features at level {h} must have shapes (n, n_actions, block_dim) = {shape} and {shape[:2]}; got "
                f"{vectors.shape} and {blocks.shape}"
            )
        if self._one_vector:
            vectors = vectors[:, :1]
        if self._checked:
            return vectors, blocks
        norms = xp.vecdot(vectors, vectors)
        if not bool(xp.max(norms) <= UNIT**2):  # NaN fails here too
            row = int(np.argwhere(~(self._arrays.to_numpy(norms) <= UNIT**2))[0, 0])
            worst = float(self._arrays.to_numpy(norms)[row].max()) ** 0.5
            raise ValueError(
                f"features must have norm at most 1, but at level {h}, state {states[row]!r} the norm is {worst:.6g}; "
                "divide all features by a bound on their norm"
            )
        return vectors, blocks

    def part(self, batch: Any, rows: slice) -> tuple[Any, Any]:
        return batch[0][rows], batch[1][rows]

    def best(self, level: QLevel, batch: Any, seen_at: int) -> Best:
        del seen_at
        xp, (vectors, blocks) = self._arrays.xp, batch
        (n, n_actions), k = blocks.shape, vectors.shape[2]
        size = -(-n // max(1, n * n_actions // max(_ROWS, _CHUNK // k)))  # equal pieces, none smaller than that
        level, lower = self._levels(level)
        values, norms = [], []
        for i in range(0, n, size):
            here = vectors[i : i + size], blocks[i : i + size]
            norm_sq = None if level.whitener is None else norms_sq(xp, level.whitener, *here, lower)
            known = None if norm_sq is None else Known.of(xp, level, norm_sq)
            values.append(optimistic(xp, level, *here, known))
            norms.append(norm_sq)
        every = xp.concat(values, axis=0)
        actions, best = best_actions(xp, every)
        norms_of_all = None if level.whitener is None else xp.concat(norms, axis=0)
        return Best(actions, best, _picked(xp, norms_of_all, xp.arange(n) * n_actions + actions))

    def probabilities(self, h: int, policy: Policy, batch: Any, states: Any) -> Array:
        return np.asarray(policy.probabilities(h, self._arrays.to_numpy(states), self.phi(h, batch)))

    def sample(self, batch: Any, actions: Any) -> tuple[Any, Any]:
        xp, (vectors, blocks) = self._arrays.xp, batch
        n, n_actions = blocks.shape
        rows = xp.arange(n) * n_actions + actions
        taken = xp.take(xp.reshape(blocks, (-1,)), rows, axis=0)
        if vectors.shape[1] < n_actions:  # one vector for all actions
            return vectors[:, 0], taken
        k = vectors.shape[2]
        return xp.take(xp.reshape(vectors, (-1, k)), rows, axis=0), taken

    def first(self, sample: Any, n: int) -> tuple[Any, Any]:
        return sample[0][:n], sample[1][:n]

    def norms_sq(self, h: int, whitener: Array, sample: Any) -> Any:
        white, lower = self._whiteners(whitener)
        metric = white[h if len(whitener) > 1 else 0]
        return norms_sq(self._arrays.xp, metric, sample[0][:, None, :], sample[1][:, None], lower)[:, 0]

    def gram(self, h: int, sample: Any) -> Array:
        del h
        spec, xp = self._spec, self._arrays.xp
        if spec.block_dim == 1:
            squares = self._arrays.bincount(sample[1], spec.n_blocks, sample[0][:, 0] ** 2)
            return np.asarray(self._arrays.to_numpy(squares))[:, None, None]
        grams = np.zeros(spec.gram_shape)
        for block, vectors, _ in self._by_block(sample, None):
            product = xp.matmul(vectors.T, vectors)
            grams[block] = self._arrays.to_numpy((product + product.T) / 2)
        return grams

    def moments(self, h: int, sample: Any, targets: Any) -> Moments:
        spec, to_numpy = self._spec, self._arrays.to_numpy
        moment = np.zeros((2, spec.n_blocks, spec.block_dim))
        if spec.block_dim == 1:
            for i, y in enumerate((targets, targets**2)):
                sums = self._arrays.bincount(sample[1], spec.n_blocks, sample[0][:, 0] * y)
                moment[i, :, 0] = to_numpy(sums)
        else:
            for block, vectors, y in self._by_block(sample, targets):
                moment[0, block], moment[1, block] = to_numpy(vectors.T @ y), to_numpy(vectors.T @ y**2)
        total = float(self._arrays.xp.sum(targets**2))
        return Moments(self.gram(h, sample), moment[0], moment[1], total, int(targets.shape[0]))

    def _by_block(self, sample: Any, targets: Any | None) -> Any:
        """(block, vectors, targets) of each block that occurs."""
        xp, (vectors, blocks) = self._arrays.xp, sample
        if self._spec.n_blocks == 1:
            yield 0, vectors, targets
            return
        for block in xp.unique_values(blocks).tolist():
            rows = xp.nonzero(blocks == block)[0]
            yield block, xp.take(vectors, rows, axis=0), None if targets is None else xp.take(targets, rows, axis=0)

    def phi(self, h: int, batch: Any) -> Phi:
        del h
        vectors, blocks = self._arrays.to_numpy(batch[0]), self._arrays.to_numpy(batch[1])
        return Phi(np.broadcast_to(vectors, (*blocks.shape, vectors.shape[2])), blocks)

    def _whitener(self, host: Array) -> tuple[Any, bool]:
        """That of an Explore, and whether it is lower triangular."""
        array = self._arrays.from_numpy(host)
        return array, is_lower(array)

    def _level(self, host: QLevel) -> tuple[QLevel, bool]:
        """The same level with arrays of the engine's module, and whether its whitener is lower triangular."""

        def put(array: Any) -> Any:
            return None if array is None else self._arrays.from_numpy(array)

        theta, white, width, second = map(put, (host.theta, host.whitener, host.width, host.second))
        return replace(host, theta=theta, whitener=white, width=width, second=second), is_lower(white)


@final
class TableBackend:
    """Finitely many states: a batch is the states, a sample the pairs. Greedy actions are tabulated once per level."""

    def __init__(self, table: TableFeatures, arrays: Arrays) -> None:
        self._table, self._arrays = table, arrays
        self._n_actions, self._stationary = table.n_actions, table.stationary
        self._best: IdentityCache[QLevel, dict[int, tuple[Any, Any]]] = IdentityCache(
            lambda _: {}, size=256 * len(table.vectors)
        )
        self._norms: IdentityCache[Array, Any] = IdentityCache(self._norms_of, size=2)

    def batch(self, h: int, states: Any) -> Any:
        del h
        return states

    def part(self, batch: Any, rows: slice) -> Any:
        return batch[rows]

    def best(self, level: QLevel, batch: Any, seen_at: int) -> Best:
        known, key = self._best(level), 0 if self._stationary else seen_at
        if key not in known:
            table, put = level.optimistic(self._table.level(seen_at)), self._arrays.from_numpy
            actions, values = best_actions(np, table)
            known[key] = put(actions), put(values)
        actions, values = known[key]
        take = self._arrays.xp.take
        return Best(take(actions, batch, axis=0), take(values, batch, axis=0))

    def probabilities(self, h: int, policy: Policy, batch: Any, states: Any) -> Array:
        del states
        everywhere = policy.probabilities(h, np.arange(self._table.vectors.shape[1]), self._table.level(h))
        return np.asarray(np.take(np.asarray(everywhere), self._arrays.to_numpy(batch), axis=0))

    def sample(self, batch: Any, actions: Any) -> Any:
        return batch * self._n_actions + actions

    def first(self, sample: Any, n: int) -> Any:
        return sample[:n]

    def norms_sq(self, h: int, whitener: Array, sample: Any) -> Any:
        return self._arrays.xp.take(self._norms(whitener)[h], sample, axis=0)

    def gram(self, h: int, sample: Any) -> Array:
        vectors, blocks = self._pairs(h)
        counts = self._arrays.to_numpy(self._arrays.bincount(sample, len(blocks)))
        return gram_of(vectors, blocks, self._table.n_blocks, counts)

    def moments(self, h: int, sample: Any, targets: Any) -> Moments:
        vectors, blocks = self._pairs(h)
        sums = [self._arrays.bincount(sample, len(blocks), weights) for weights in (None, targets, targets**2)]
        counts, ys, squares = (self._arrays.to_numpy(one) for one in sums)
        # A pair seen c times with targets of sum y is one row of weight c and one of target y: sums of sums.
        first = Moments.of(vectors, blocks, ys, self._table.n_blocks).moment
        second = Moments.of(vectors, blocks, squares, self._table.n_blocks).moment
        gram = gram_of(vectors, blocks, self._table.n_blocks, counts)
        return Moments(gram, first, second, float(squares.sum()), int(targets.shape[0]))

    def phi(self, h: int, batch: Any) -> Phi:
        return self._table(h, self._arrays.to_numpy(batch))

    def _pairs(self, h: int) -> tuple[Array, IntArray]:
        """Vectors (S * A, k) and blocks (S * A,) of all pairs."""
        table = self._table
        return table.vectors[h].reshape(-1, table.block_dim), table.blocks[h].reshape(-1)

    def _norms_of(self, whitener: Array) -> Sequence[Any]:
        return [self._arrays.from_numpy(level.ravel()) for level in self._table.norms_sq(whitener)]


def _picked(xp: Any, values: Any | None, rows: Any) -> Any | None:
    """One entry of each row of values (n, n_actions)."""
    return None if values is None else xp.take(xp.reshape(values, (-1,)), rows, axis=0)
