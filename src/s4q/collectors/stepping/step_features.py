"""Looks: the features of one observation, taken one observation at a time so that company cannot change their bits."""

from dataclasses import dataclass
from typing import Any, NamedTuple, final

import numpy as np

from s4q.core.blocks import Array, IntArray, Phi, States
from s4q.core.messages import FeatureMap, Spec
from s4q.core.spec import require_map
from s4q.features import Dense, PerAction
from s4q.features.batches import UNIT

_MOST_REMEMBERED = 2**16


@final
@dataclass(frozen=True, slots=True)
class Place:
    """Where an episode is being played, for messages."""

    env: str
    request_id: int
    episode: int
    env_seed: int | None

    def fault(self, step: int, what: str, cure: str) -> ValueError:
        """An error that names environment, episode and step, and how to see it again."""
        again = "" if self.env_seed is None else f", reset with seed {self.env_seed}"
        return ValueError(
            f"{self.env}: episode {self.episode} of request {self.request_id}{again}, step {step}: {what}; {cure}"
        )


class Look(NamedTuple):
    """Features of one observation for every action. `key` is the observation where it is a whole number."""

    vectors: Array  # (n_actions, k), or (1, k) where all actions share one vector
    blocks: IntArray  # (n_actions,)
    key: int | None = None

    def phi(self) -> Phi:
        """The same features, as a batch of one."""
        shape = (1, len(self.blocks), self.vectors.shape[1])
        return Phi(np.broadcast_to(self.vectors, shape), self.blocks[None])


class Sights(NamedTuple):
    """The looks of an episode, one after the other."""

    vectors: Array  # (T, n_actions, k), or (T, 1, k) where all actions share one vector
    blocks: IntArray  # (T, n_actions)

    def chosen(self, steps: slice, actions: list[int]) -> tuple[Array, IntArray]:
        """Vectors (n, k) and blocks (n,) of the actions taken at these n steps."""
        vectors, blocks = self.vectors[steps], self.blocks[steps]
        rows = np.arange(len(actions))
        return vectors[:, 0] if vectors.shape[1] == 1 else vectors[rows, actions], blocks[rows, actions]


@final
class Eyes:
    """Evaluates a feature map on one observation at a time; whole-number observations are remembered."""

    def __init__(self, features: FeatureMap, spec: Spec, discrete: bool) -> None:
        require_map(features)
        for name in ("n_actions", "n_blocks", "block_dim"):
            mine, theirs = getattr(spec, name), getattr(features, name, None)
            if mine != theirs:
                raise ValueError(f"features and spec must be made for one problem, but {name} is {theirs} and {mine}")
        self._features = features
        # e_a (x) psi(s) of one state: psi alone will do, and costs two thirds.
        self._psi = features.state_features if isinstance(features, PerAction) and features.proven else None
        # Likewise a function of the user's: shape and norms are checked here; what is wrong, the map itself explains.
        self._function = features.source if isinstance(features, Dense) and callable(features.source) else None
        self._shape = (spec.n_actions, spec.block_dim)
        self._shape_of_psi = (1, spec.block_dim)
        self._shape_of_batch = (1, *self._shape)
        self._every_block = np.arange(spec.n_actions)
        self._first_block = np.zeros(spec.n_actions, dtype=np.int64)
        self._shape_of_blocks = (spec.n_actions,)
        self._n_blocks = spec.n_blocks
        self._discrete = discrete
        self._stationary = bool(getattr(features, "stationary", False))
        self._seen: dict[tuple[int, int], Look] = {}

    def __call__(self, h: int, observation: Any, place: Place, step: int) -> Look:
        """The features at level h; `place` and `step` say where, should they be wrong."""
        key = None
        if self._discrete:
            key = int(observation)
            look = self._seen.get((0 if self._stationary else h, key))
            if look is not None:
                return look
        try:
            vectors, blocks = self._see(h, np.array(observation)[None])
        except Exception as error:
            cure = "features take (h, states) and return Phi; check_features tries them on the observation space"
            what = f"the features raised {type(error).__name__} ({error}) at observation {observation!r}"
            raise place.fault(step, what, cure) from error
        shape = self._shape if self._psi is None else self._shape_of_psi
        if vectors.shape != shape or blocks.shape != self._shape_of_blocks:
            what = f"the features have shapes {vectors.shape} and {blocks.shape} for one observation"
            raise place.fault(step, what, f"they must be (n_actions, block_dim) = {shape} and {self._shape[:1]}")
        look = Look(vectors, blocks, key)
        if key is not None:
            if len(self._seen) >= _MOST_REMEMBERED:
                self._seen.clear()
            self._seen[0 if self._stationary else h, key] = look
        return look

    def _see(self, h: int, states: States) -> tuple[Array, IntArray]:
        if self._psi is not None:
            return self._psi(states), self._every_block
        if self._function is not None:
            batch = np.array(self._function(states), dtype=np.float64)  # a copy: it may use its buffer again
            if batch.shape == self._shape_of_batch:
                vectors = batch[0]
                if all(norm_sq <= UNIT * UNIT for norm_sq in np.vecdot(vectors, vectors).tolist()):  # no NaN passes
                    return vectors, self._first_block
        phi = self._features(h, states)
        return phi.vectors[0], phi.blocks[0]

    def pack(self, looks: list[Look], place: Place) -> Sights:
        """The looks of an episode in arrays, when it is over. Norms must be at most 1 and blocks in range."""
        vectors = np.concatenate([look.vectors for look in looks], dtype=np.float64)
        vectors = vectors.reshape(len(looks), -1, self._shape[1])
        blocks = np.concatenate([look.blocks for look in looks]).reshape(len(looks), -1)
        self._check(vectors, blocks, place)
        return Sights(vectors, blocks.astype(np.int64, copy=False))

    def _check(self, vectors: Array, blocks: IntArray, place: Place) -> None:
        norms_sq = np.vecdot(vectors, vectors)
        if not norms_sq.max() <= UNIT**2:  # NaN fails here too
            norms = np.sqrt(norms_sq)
            step, action = (int(x) for x in np.argwhere(~(norms <= UNIT))[0])
            raise place.fault(
                step,
                f"the features of action {action} have norm {norms[step, action]:.6g}, above 1",
                "divide all features by a bound on their norm"
                if np.isfinite(norms[step, action])
                else "features must be finite",
            )
        if not 0 <= blocks.min() <= blocks.max() < self._n_blocks:
            step = int(np.argwhere((blocks < 0) | (blocks >= self._n_blocks))[0, 0])
            raise place.fault(step, f"blocks are {blocks[step].tolist()}", f"they must lie in 0..{self._n_blocks - 1}")
