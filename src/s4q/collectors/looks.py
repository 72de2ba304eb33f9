"""Looks: the features of one observation, taken one observation at a time so that company cannot change their bits."""

from dataclasses import dataclass
from typing import Any, NamedTuple, final

import numpy as np

from s4q.blocks import Array, IntArray
from s4q.requests import FeatureMap, Spec

_MOST_REMEMBERED = 2**16
_NORM_SLACK = 1e-9


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

    vectors: Array  # (n_actions, k)
    blocks: IntArray  # (n_actions,)
    key: int | None = None


@final
class Eyes:
    """Evaluates a feature map on one observation at a time; whole-number observations are remembered."""

    def __init__(self, features: FeatureMap, spec: Spec, discrete: bool) -> None:
        for name in ("n_actions", "n_blocks", "block_dim"):
            mine, theirs = getattr(spec, name), getattr(features, name, None)
            if mine != theirs:
                raise ValueError(f"features and spec must be made for one problem, but {name} is {theirs} and {mine}")
        self._features = features
        self._shape = (spec.n_actions, spec.block_dim)
        self._n_blocks = spec.n_blocks
        self._discrete = discrete
        self._seen: dict[tuple[int, int], Look] = {}

    def __call__(self, h: int, observation: Any, place: Place, step: int) -> Look:
        """The features at level h; `place` and `step` say where, should they be wrong."""
        if not self._discrete:
            return self._look(h, observation, place, step, None)
        key = int(observation)
        look = self._seen.get((h, key))
        if look is None:
            look = self._look(h, observation, place, step, key)
            self.check([look], [step], place)
            if len(self._seen) >= _MOST_REMEMBERED:
                self._seen.clear()
            self._seen[h, key] = look
        return look

    def _look(self, h: int, observation: Any, place: Place, step: int, key: int | None) -> Look:
        try:
            phi = self._features(h, np.array(observation)[None])
            look = Look(phi.vectors[0], phi.blocks[0], key)
        except Exception as error:
            cure = "features take (h, states) and return Phi; check_features tries them on the observation space"
            what = f"the features raised {type(error).__name__} ({error}) at observation {observation!r}"
            raise place.fault(step, what, cure) from error
        if look.vectors.shape != self._shape or look.blocks.shape != self._shape[:1]:
            what = f"the features have shapes {look.vectors.shape} and {look.blocks.shape} for one observation"
            raise place.fault(step, what, f"they must be (n_actions, block_dim) = {self._shape} and {self._shape[:1]}")
        return look

    def check(self, looks: list[Look], steps: list[int], place: Place) -> None:
        """Norms at most 1 and blocks in range, at the end of an episode; remembered looks were checked once."""
        # Where all actions share one vector it is looked at once.
        vectors = np.array([look.vectors if look.vectors.strides[0] else look.vectors[:1] for look in looks])
        norms_sq = np.vecdot(vectors, vectors)
        if not norms_sq.max() <= (1 + _NORM_SLACK) ** 2:  # NaN fails here too
            norms = np.sqrt(norms_sq)
            i, action = (int(x) for x in np.argwhere(~(norms <= 1 + _NORM_SLACK))[0])
            raise place.fault(
                steps[i],
                f"the features of action {action} have norm {norms[i, action]:.6g}, above 1",
                "divide all features by a bound on their norm"
                if np.isfinite(norms[i, action])
                else "features must be finite",
            )
        blocks = np.array([look.blocks for look in looks])
        if not 0 <= blocks.min() <= blocks.max() < self._n_blocks:
            i = int(np.argwhere((blocks < 0) | (blocks >= self._n_blocks))[0, 0])
            raise place.fault(steps[i], f"blocks are {blocks[i].tolist()}", f"they must lie in 0..{self._n_blocks - 1}")
