"""Policy: what was learned, ready for use. It is one small file, and needs neither environment nor learner.

`Agent.policy` makes it, and programs that only act read it again with `Policy.load`. It holds the values of every
level, the feature map and what it takes to speak in the environment's numbers. It learns nothing and plays nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from os import PathLike
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from s4q.collectors.stepping.greedy_actor import GreedyActor, best_action
from s4q.collectors.stepping.step_features import EpisodeAddress, Featurizer
from s4q.core.blocks import Array, IntArray
from s4q.core.codec import Packed, pack, unpack
from s4q.core.linear_q import LinearQ
from s4q.core.messages import FeatureMap, Spec
from s4q.core.optimism import best_actions
from s4q.core.spec import require_map, require_spec, require_spec_fits
from s4q.core.validation import require_kind, require_shape
from s4q.core.version import __version__
from s4q.features import registry
from s4q.features.fingerprint import Fingerprint
from s4q.features.unmeasured import Unmeasured
from s4q.running import archive
from s4q.running.archive import CheckpointError, refusal

_SCHEMA = 1
_DTYPES = tuple(np.dtype(f"{sign}{size}").str for sign in "iu" for size in (1, 2, 4, 8))  # of actions
_NOBODY = EpisodeAddress("policy", 0, 0, None)  # the features ask whom to name in an error


@final
@dataclass(frozen=True, eq=False, slots=True)
class _Saved:
    """What a file holds."""

    q: LinearQ
    spec: Spec
    fingerprint: Fingerprint | None
    about: Mapping[str, Any] = field(default_factory=dict)  # what JSON can hold


@final
class Policy:
    """A learned policy: `act` says what to do, `q_values` what each action promises.

    Users get one from `agent.policy` or `Policy.load`. Values are optimistic, as those of the learner: they are what
    the policy promises, bonus included, in the units of the environment's rewards.

    Args:
        q: The values of every level, such as `run.best`.
        features: The feature map they were learned with.
        spec: The numbers of the problem, such as `learner.spec`.
        actions: The environment's own action for each number 0..n_actions-1: whole numbers, (n_actions,), or arrays of
            them, (n_actions, ...). None (default): the numbers themselves.
        observation_shape: Shape of one observation. () by default, for whole numbers. None for observations with parts,
            such as dictionaries; a batch is then a list of them.
        env: Name of the environment, for error messages. Empty by default.
        space: The observation space. Files then know the features again by a few of its observations. None (default):
            by their sizes alone.

    >>> import s4q
    >>> mdp = s4q.problems.chain(n_states=4, horizon=5)
    >>> run = s4q.run(s4q.S4Q(mdp), s4q.collectors.CountCollector(mdp, seed=0), episodes=1_000)
    >>> policy = Policy(run.best, mdp.features, mdp.spec)
    >>> policy.act(0, step=0), policy.act([0, 1, 2], step=1).tolist(), policy.q_values(0).shape
    (1, [1, 1, 1], (2,))
    """

    def __init__(
        self,
        q: LinearQ,
        features: FeatureMap,
        spec: Spec,
        *,
        actions: ArrayLike | None = None,
        observation_shape: tuple[int, ...] | None = (),
        env: str = "",
        space: Any = None,
    ) -> None:
        require_kind("q", q, LinearQ, " (an S4Q's `best` or `policy`)")
        require_spec(spec)
        require_map(features)
        require_spec_fits(features, spec)
        require_shape("q.theta", q.theta, spec.theta_shape, "(H, n_blocks, k) of the spec")
        self.q = q
        self.features = features
        self.spec = spec
        self.actions: NDArray[np.int64] = np.arange(spec.n_actions) if actions is None else np.array(actions)
        if self.actions.dtype.kind not in "iu" or len(self.actions) != spec.n_actions:
            raise ValueError(f"actions must be whole numbers, one entry for each of {spec.n_actions}; got {actions!r}")
        self.observation_shape = None if observation_shape is None else tuple(int(n) for n in observation_shape)
        self.env = str(env)
        self._space = space
        self._fingerprint: Fingerprint | None = None  # made when first saved, or read
        self._featurizers = [Featurizer(features, spec, discrete=whole) for whole in (False, True)]
        self._actor = GreedyActor(q)
        self._numbers: list[Any] = self.actions.tolist() if self.actions.ndim == 1 else list(self.actions)
        self._shifts = [(spec.horizon - h) * spec.reward_min for h in range(spec.horizon)]  # as Spec.to_user_units

    @property
    def horizon(self) -> int:
        """Steps of an episode. After them the policy starts over, as at the first step."""
        return self.spec.horizon

    @property
    def n_actions(self) -> int:
        """Number of actions."""
        return self.spec.n_actions

    @property
    def nbytes(self) -> int:
        """Bytes of its parameters."""
        return self.q.nbytes

    def __repr__(self) -> str:
        of = f"of {self.env}, " if self.env else ""
        return f"Policy({of}{self.n_actions} actions, {self.horizon} steps, {self.features!r})"

    def act(self, observation: ArrayLike, step: ArrayLike) -> Any:
        """The environment's action to take, or an array of actions for a batch.

        Args:
            observation: One observation, or a batch with one more axis; a list of those with parts.
            step: Steps taken so far in the episode: a number, or one for each observation of a batch. It has no
                default, because a policy that is always asked about its first step plays badly without any sign.
        """
        array = self._as_array(observation)
        if array.shape == self.observation_shape and type(step) is int and step >= 0:  # one observation, no arrays
            return self._numbers[best_action(self._values_of_one(array, step % self.spec.horizon))]
        batch, levels, single = self._batch(array, step)
        chosen = np.zeros(len(batch), dtype=np.int64)
        for _, rows, values in self._values_by_level(batch, levels):
            chosen[rows] = best_actions(np, values)[0]
        return self._numbers[int(chosen[0])] if single else self.actions[chosen]

    def q_values(self, observation: ArrayLike, step: ArrayLike = 0) -> Array:
        """What each action promises from this step on, in the user's units: (n_actions,), or (n, n_actions).

        The value of an action is clipped to what is possible, so the best may tie; `act` compares them unclipped.

        Args:
            observation: As of `act`.
            step: As of `act`; 0 by default.
        """
        array = self._as_array(observation)
        if array.shape == self.observation_shape and type(step) is int and step >= 0:
            h = step % self.spec.horizon
            (low, high), shift = self.q.levels[h].clip, self._shifts[h]
            return np.array([min(max(value, low), high) + shift for value in self._values_of_one(array, h)])
        batch, levels, single = self._batch(array, step)
        promised = np.zeros((len(batch), self.n_actions))
        for h, rows, values in self._values_by_level(batch, levels):
            promised[rows] = self.q.levels[h].clipped(values) + self._shifts[h]
        return promised[0] if single else promised

    def save(self, path: str | PathLike[str]) -> None:
        """Write the policy to one file, at once or not at all. A good file that was there becomes `<path>.previous`.

        Features of this library are described in the file. Those that hold your own code are not, because a file never
        carries code: pass them to `load`, which compares what they make of a few observations.

        Args:
            path: The file to write.
        """
        if isinstance(self.features, Unmeasured):
            raise ValueError("the ranges of these features are not measured yet, so the policy cannot act; learn first")
        if self._fingerprint is None and self._space is not None and self.observation_shape is not None:
            self._fingerprint = Fingerprint.of(self.features, self._space, self.horizon)
        about = {
            "features": registry.to_config(self.features),
            "actions": self.actions.tolist(),
            "dtype": self.actions.dtype.str,
            "observation_shape": None if self.observation_shape is None else list(self.observation_shape),
            "env": self.env,
        }
        packed = pack(_Saved(self.q, self.spec, self._fingerprint, about))
        manifest = {"format": "s4q policy", "schema": _SCHEMA, "s4q": __version__, "objects": packed.objects}
        try:
            archive.write(Path(path), manifest, packed.arrays)
        except OSError as error:
            raise CheckpointError(f"{path} cannot be written: {error}; choose another place or make room") from error

    @classmethod
    def load(cls, path: str | PathLike[str], features: FeatureMap | None = None) -> "Policy":
        """The policy of a file that `save` wrote. Nothing in the file is executed, and no environment is needed.

        Args:
            path: The file to read.
            features: The feature map, needed only where it holds your own code. None (default): the one of the file.
        """
        found, config, numbers = _read(Path(path))
        if features is not None:
            made, whose = features, "the features that were passed"
        elif isinstance(config, dict) and config.get("custom"):
            raise ValueError(
                f"{path}: the feature map {config.get('name')} holds code of your own, which no file carries; pass the "
                f"map again: s4q.Policy.load({str(path)!r}, features=...)"
            )
        else:
            made, whose = _rebuilt(Path(path), config), "the features that this version of s4q makes"
        try:
            policy = cls(found.q, made, found.spec, **numbers)
        except (ValueError, OverflowError) as error:
            raise ValueError(f"{path}: {whose} do not fit the policy: {error}") from None
        policy._fingerprint = found.fingerprint
        other = None if found.fingerprint is None else found.fingerprint.difference(made)
        if other is not None:
            raise ValueError(
                f"{path}: {whose} are not those the policy was learned with: {other}; pass the same feature map, or "
                "save the policy again"
            )
        return policy

    def _as_array(self, observation: Any) -> NDArray[Any]:
        """An array, or for observations with parts an array of objects: of no axis for one, of one axis for a list."""
        if self.observation_shape is not None:
            return np.asarray(observation)
        several = isinstance(observation, (list, np.ndarray))
        batch = np.empty(len(observation) if several else (), dtype=object)
        batch[...] = None
        for i, one in enumerate(observation if several else ()):
            batch[i] = one
        if not several:
            batch[()] = observation
        return batch

    def _values_of_one(self, observation: NDArray[Any], h: int) -> list[float]:
        # The features of a whole number are computed once.
        featurizer = self._featurizers[observation.ndim == 0 and observation.dtype.kind in "iu"]
        try:
            values = self._actor.values(h, featurizer(h, observation, _NOBODY, 0))
        except ValueError as error:
            raise self._fault(observation, error.__cause__ or error) from error.__cause__
        if not isfinite(sum(values)):
            raise self._fault(observation, ValueError("the features are not finite"))
        return values

    def _values_by_level(self, batch: NDArray[Any], levels: IntArray) -> "list[tuple[int, IntArray, Array]]":
        """The unclipped values of a batch: for each level that occurs its rows and their values."""
        found = []
        for h in np.unique(levels).tolist():
            rows = np.flatnonzero(levels == h)
            try:
                values = self.q.optimistic(h, self.features(h, batch[rows]))
            except ValueError as error:
                raise self._fault(batch, error) from error
            if not np.isfinite(values).all():
                raise self._fault(batch, ValueError("the features are not finite"))
            found.append((h, rows, values))
        return found

    def _fault(self, observation: NDArray[Any], cause: BaseException) -> ValueError:
        shown = np.array2string(observation, threshold=8)
        whose = self.env or "the environment"
        return ValueError(f"observation {shown}: {cause}; pass an observation as {whose} gives it")

    def _batch(self, array: NDArray[Any], step: ArrayLike) -> tuple[NDArray[Any], IntArray, bool]:
        """A batch of observations, the level of each, and whether it stands for a single one."""
        shape = self.observation_shape or ()
        single = array.shape == shape
        if not single and array.shape[1:] != shape:
            raise ValueError(
                f"observation must have the shape {shape} of the env's observations, or a first axis more for a batch "
                f"of them; got {array.shape}"
            )
        batch = array[None] if single else array
        steps = np.asarray(step)
        if steps.size not in (1, len(batch)) or steps.dtype.kind not in "iu" or (steps < 0).any():
            raise ValueError(
                "step must be the number of steps taken so far in the episode, a whole number of at least 0, or one "
                f"for each of {len(batch)} observations; got {step!r}"
            )
        return batch, np.broadcast_to(steps.reshape(-1) % self.horizon, (len(batch),)), single


_BROKEN = (ValueError, TypeError, ArithmeticError, RecursionError, MemoryError)  # what a doctored file may cause


def _read(path: Path) -> tuple[_Saved, Any, dict[str, Any]]:
    """What a file holds, the description of its features, and the numbers that Policy takes."""
    manifest, arrays = archive.read(path, _SCHEMA, "s4q", "policy")
    objects = manifest.get("objects")
    try:
        if set(manifest) != {"format", "schema", "s4q", "objects", "arrays"} or not isinstance(objects, list):
            raise ValueError("its manifest does not describe a policy")
        found = unpack(Packed(objects, arrays), _Saved)
        return found, found.about.get("features"), _numbers(found.about)
    except _BROKEN as error:
        raise refusal(path, str(error) or type(error).__name__, "policy") from None


def _rebuilt(path: Path, config: Any) -> Any:
    try:
        return registry.from_config(config)
    except _BROKEN as error:
        raise refusal(path, str(error) or type(error).__name__, "policy") from None


def _numbers(about: Mapping[str, Any]) -> dict[str, Any]:
    shape, actions, env = about.get("observation_shape"), about.get("actions"), about.get("env")
    dtype = about.get("dtype")
    plain = shape is None or (isinstance(shape, list) and all(type(n) is int and n >= 0 for n in shape))
    if not plain or not isinstance(actions, list) or dtype not in _DTYPES:
        raise ValueError("its actions and observations are not described as they must be")
    return {
        "actions": np.array(actions, dtype=dtype),
        "observation_shape": None if shape is None else tuple(shape),
        "env": env if isinstance(env, str) else "",
    }
