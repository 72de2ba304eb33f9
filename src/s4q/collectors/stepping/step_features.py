"""The features of one observation, and the map that computes them one observation at a time.

EpisodePlayer calls the Featurizer at every step. Every observation is evaluated alone, because BLAS rounds a row
differently inside a batch. Nothing here may depend on which other episodes are being played.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple, final

import numpy as np

from s4q.collectors.seeding import EpisodeDraws
from s4q.core.blocks import Array, IntArray, Phi, States
from s4q.core.messages import FeatureMap, Spec
from s4q.core.spec import require_map, require_spec_fits
from s4q.features import Dense, Mixed, PerAction
from s4q.features.batches import UNIT
from s4q.features.layout import raw_batch

_MOST_REMEMBERED = 2**16


@final
@dataclass(frozen=True, eq=False, slots=True)
class EpisodeAddress:
    """Which episode of which request it is, for error messages."""

    env: str
    request_id: int
    episode: int
    seeded: EpisodeDraws | None  # holds the seed that the environment was reset with; None: it takes no seed

    def fault(self, step: int, what: str, cure: str) -> ValueError:
        """An error that names environment, episode and step, and how to see it again."""
        again = "" if self.seeded is None else f", reset with seed {self.seeded.env_seed}"
        return ValueError(
            f"{self.env}: episode {self.episode} of request {self.request_id}{again}, step {step}: {what}; {cure}"
        )


class StepFeatures(NamedTuple):
    """Features of one observation for every action. `key` is the observation where it is a whole number."""

    vectors: Array  # (n_actions, k), or (1, k) where all actions share one vector
    blocks: IntArray  # (n_actions,)
    key: int | None = None

    def phi(self) -> Phi:
        """The same features, as a batch of one."""
        shape = (1, len(self.blocks), self.vectors.shape[1])
        return Phi(np.broadcast_to(self.vectors, shape), self.blocks[None])


@final
class Featurizer:
    """Evaluates a feature map on one observation at a time; whole-number observations are remembered.

    Args:
        features: The map from observations to features.
        spec: Sizes of the problem.
        discrete: True if observations are whole numbers.
        raw: True if observations are neither arrays nor whole numbers. None (default): no space is known.
    """

    def __init__(self, features: FeatureMap, spec: Spec, discrete: bool, raw: bool | None = None) -> None:
        require_map(features)
        require_spec_fits(features, spec)
        self._features = features
        # e_a (x) psi(s): all actions share psi. Where psi is known to be right, psi alone costs two thirds.
        self._shared = bool(getattr(features, "same_for_all_actions", False))
        self._psi = features.state_features if isinstance(features, PerAction) and features.proven else None
        # Likewise a function of the user's: shape and norms are checked here; what is wrong, the map itself explains.
        self._function = features.source if isinstance(features, Dense) and callable(features.source) else None
        self._shapes = ((1 if self._shared else spec.n_actions, spec.block_dim), (spec.n_actions,))
        self._shape_of_batch = (1, spec.n_actions, spec.block_dim)
        self._every_block = np.arange(spec.n_actions)
        self._first_block = np.zeros(spec.n_actions, dtype=np.int64)
        self._n_blocks = spec.n_blocks
        self._discrete = discrete
        # Where no space is known, a dictionary has parts, and a tuple has if the features are made for parts.
        parts = (dict, tuple) if isinstance(features, Mixed) else (dict,)
        self._parts: tuple[type, ...] = parts if raw is None else (object,) if raw else ()
        self._stationary = bool(getattr(features, "stationary", False))
        self._seen: dict[tuple[int, int], StepFeatures] = {}

    def __call__(self, h: int, observation: Any, address: EpisodeAddress, step: int) -> StepFeatures:
        """The features at level h; `address` and `step` are named in the error if they are wrong."""
        key = None
        if self._discrete:
            key = int(observation)
            known = self._seen.get((0 if self._stationary else h, key))
            if known is not None:
                return known
        try:
            raw = isinstance(observation, self._parts)
            batch = raw_batch([observation]) if raw else np.array(observation)[None]
            vectors, blocks = self._evaluate(h, batch)
        except Exception as error:
            cure = "features take (h, states) and return Phi; check_features tries them on the observation space"
            what = f"the features raised {type(error).__name__} ({error}) at observation {observation!r}"
            raise address.fault(step, what, cure) from error
        if (vectors.shape, blocks.shape) != self._shapes:
            what = f"the features have shapes {vectors.shape} and {blocks.shape} for one observation"
            wanted, actions = self._shapes
            raise address.fault(step, what, f"they must be (n_actions, block_dim) = {wanted} and {actions}")
        features = StepFeatures(vectors, blocks, key)
        if key is not None:
            if len(self._seen) >= _MOST_REMEMBERED:
                self._seen.clear()
            self._seen[0 if self._stationary else h, key] = features
        return features

    def _evaluate(self, h: int, states: States) -> tuple[Array, IntArray]:
        if self._psi is not None:
            return self._psi(states), self._every_block
        if self._function is not None:
            batch = np.array(self._function(states), dtype=np.float64)  # a copy: it may use its buffer again
            if batch.shape == self._shape_of_batch:
                vectors = batch[0]
                if all(norm_sq <= UNIT * UNIT for norm_sq in np.vecdot(vectors, vectors).tolist()):  # no NaN passes
                    return vectors, self._first_block
        phi = self._features(h, states)
        return phi.vectors[0][:1] if self._shared else phi.vectors[0], phi.blocks[0]

    def stacked(self, steps: list[StepFeatures], address: EpisodeAddress) -> tuple[Array, IntArray]:
        """Vectors (T, n_actions or 1, k) and blocks (T, n_actions) of an episode, checked."""
        vectors = np.concatenate([step.vectors for step in steps], dtype=np.float64)
        vectors = vectors.reshape(len(steps), *self._shapes[0])
        blocks = np.concatenate([step.blocks for step in steps]).reshape(len(steps), -1)
        norms_sq = np.vecdot(vectors, vectors)
        if not norms_sq.max() <= UNIT**2:  # NaN fails here too
            norms = np.sqrt(norms_sq)
            step, action = (int(x) for x in np.argwhere(~(norms <= UNIT))[0])
            raise address.fault(
                step,
                f"the features of action {action} have norm {norms[step, action]:.6g}, above 1",
                "divide all features by a bound on their norm"
                if np.isfinite(norms[step, action])
                else "features must be finite",
            )
        if not 0 <= blocks.min() <= blocks.max() < self._n_blocks:
            step = int(np.argwhere((blocks < 0) | (blocks >= self._n_blocks))[0, 0])
            cure = f"they must lie in 0..{self._n_blocks - 1}"
            raise address.fault(step, f"blocks are {blocks[step].tolist()}", cure)
        return vectors, blocks.astype(np.int64, copy=False)
