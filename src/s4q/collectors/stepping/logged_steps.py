"""Logged steps: what somebody else recorded, as the transitions that a memory holds.

`Agent.learn_from` calls it. A log comes as arrays, as a list of steps, or as episodes in Minari's format, which is
known by its attributes, so that Minari need not be installed. Everything is checked before anything is learned. Nothing
here plays an environment.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from s4q.core.blocks import Array, BoolArray, IntArray, Phi
from s4q.core.messages import FeatureMap, Spec, Transitions
from s4q.core.transitions import one_where_shared
from s4q.features.batches import require_blocks, require_unit_norms
from s4q.features.layout import is_raw, raw_batch

_CHUNK = 4096  # steps whose features are computed at once
_COLUMNS = ("observations", "actions", "rewards", "next_observations", "terminated")
_OPTIONAL = ("truncated", "levels")
_ROW = ("observation", "action", "reward", "next_observation", "terminated")
_MINARI = ("observations", "actions", "rewards", "terminations")
_FORMS = (
    "transitions must be a dict of arrays (observations, actions, rewards, next_observations, terminated and, if "
    "known, levels or truncated), a list of steps (observation, action, reward, next_observation, terminated[, "
    "level]), or Minari's dataset or list of episodes"
)


@final
@dataclass(frozen=True, eq=False, slots=True)
class StepLog:
    """Steps as arrays. Actions are counted from 0, and rewards shifted to start at 0."""

    observations: NDArray[Any]  # (n, *shape), or (n,) objects where observations have parts
    actions: IntArray
    rewards: Array
    next_observations: NDArray[Any]  # of no meaning where the episode terminated
    terminated: BoolArray
    levels: IntArray | None  # None: not known
    n_episodes: int  # that they stand for

    def __len__(self) -> int:
        return len(self.actions)

    @property
    def visited(self) -> NDArray[Any]:
        """All observations that were seen, once or more often."""
        return np.concatenate([self.observations, self.next_observations[~self.terminated]])

    def pieces(self, features: FeatureMap, spec: Spec) -> Iterator[Transitions]:
        """The steps with their features, some thousand at a time.

        Args:
            features: The feature map.
            spec: The numbers of the problem.
        """
        for first in range(0, len(self), _CHUNK):
            yield self._piece(slice(first, first + _CHUNK), features, spec)

    def _piece(self, part: slice, features: FeatureMap, spec: Spec) -> Transitions:
        ended = self.terminated[part]
        n = len(ended)
        levels = np.zeros(n, dtype=np.int64) if self.levels is None else self.levels[part]
        going = np.flatnonzero(~ended)
        after = np.arange(n)  # an ended step leads nowhere
        after[going] = n + np.arange(len(going))
        states = np.concatenate([self.observations[part], self.next_observations[part][going]])
        # Pooled steps are samples for every level, so the last level has features after it too.
        at = np.concatenate([levels, np.minimum(levels[going] + 1, spec.horizon - 1)])
        vectors, blocks = _features(features, states, at, part.start)
        return Transitions(
            state_vectors=vectors,
            state_blocks=blocks,
            levels=levels,
            states=np.arange(n),
            actions=self.actions[part],
            rewards=self.rewards[part],
            next_states=after,
            ended=ended,
            weights=np.ones(n, dtype=np.int64),
        )


def _features(features: FeatureMap, states: NDArray[Any], levels: IntArray, first: int) -> tuple[Array, IntArray]:
    """Vectors (m, A or 1, k) and blocks (m, A) of states at their levels."""
    stationary = bool(getattr(features, "stationary", False))
    pieces: list[tuple[IntArray, Phi]] = []
    for h in [0] if stationary else np.unique(levels).tolist():
        rows = np.arange(len(states)) if stationary else np.flatnonzero(levels == h)
        try:
            phi = features(h, states[rows])
            require_unit_norms(phi.vectors, "divide all features by a bound on their norm")
            require_blocks(phi.blocks, features.n_blocks)
        except Exception as error:
            raise ValueError(
                f"the features refused an observation of the logged steps {first} to {first + _CHUNK - 1}: {error}; "
                "leave out such steps, or use features that take them"
            ) from error
        pieces.append((rows, phi))
    order = np.argsort(np.concatenate([rows for rows, _ in pieces]), kind="stable")
    tables = [one_where_shared(phi.vectors) for _, phi in pieces]
    vectors = tables[0] if len(tables) == 1 else np.concatenate(tables)[order]
    blocks = np.concatenate([phi.blocks for _, phi in pieces])[order]
    return np.ascontiguousarray(vectors, dtype=np.float64), np.ascontiguousarray(blocks, dtype=np.int64)


def read_log(transitions: Any, spec: Spec, space: Any, first_action: int, pool: bool) -> StepLog:
    """The steps of a log, checked.

    Args:
        transitions: The log: arrays, a list of steps, or Minari's format.
        spec: The numbers of the problem.
        space: Space of one observation.
        first_action: The environment's number of action 0.
        pool: True if steps need no level.
    """
    columns = _columns(transitions, is_raw(space))
    n = len(columns["actions"])
    if n == 0:
        raise ValueError("transitions holds no step; pass at least one")
    for name, column in columns.items():
        if len(column) != n:
            raise ValueError(
                f"transitions must have one entry a step in each column: {n} actions, {len(column)} {name}"
            )
    terminated = _flags("terminated", columns["terminated"])
    truncated = _flags("truncated", columns["truncated"]) if "truncated" in columns else None
    observations = _observations("observations", columns["observations"], space, np.ones(n, dtype=np.bool_))
    following = _observations("next_observations", columns["next_observations"], space, ~terminated)
    levels = columns.get("levels")
    if levels is not None:
        levels = _levels(levels)
    elif truncated is not None:
        levels = _levels_in_order(observations, following, terminated | truncated)
    if levels is not None and levels.max() >= spec.horizon:
        if not pool:
            late = int(np.argmax(levels >= spec.horizon))
            raise ValueError(
                f"step {late} of the log has level {levels[late]}, but the horizon is {spec.horizon}, with levels 0 to "
                f"{spec.horizon - 1}; leave out later steps, or make the agent with a longer horizon"
            )
        levels = None  # still samples of every level
    started = 0 if levels is None else int((levels == 0).sum())
    return StepLog(
        observations,
        _actions(columns["actions"], spec.n_actions, first_action),
        _rewards(columns["rewards"], spec),
        following,
        terminated,
        levels,
        max(started, int(terminated.sum()), ceil(n / spec.horizon)),
    )


def _columns(transitions: Any, raw: bool) -> dict[str, NDArray[Any]]:
    """The columns of a log in any of its forms. raw: observations have parts, and are kept as they are."""
    if callable(getattr(transitions, "iterate_episodes", None)):  # a dataset of Minari
        return _of_episodes(list(transitions.iterate_episodes()), raw)
    if isinstance(transitions, Mapping):
        unknown = [str(name) for name in transitions if name not in (*_COLUMNS, *_OPTIONAL)]
        missing = [name for name in _COLUMNS if transitions.get(name) is None]
        if unknown or missing:
            told = "; `dones` mixes ends with time limits, so pass `terminated`" if "dones" in unknown else ""
            raise ValueError(f"{_FORMS}; unknown: {', '.join(unknown) or 'none'}, missing: {missing}{told}")
        given = {name: column for name, column in transitions.items() if column is not None}
        return {name: _column(name, column, raw) for name, column in given.items()}
    if isinstance(transitions, (str, bytes)) or not isinstance(transitions, Iterable):
        raise ValueError(f"{_FORMS}; got {type(transitions).__name__}")
    rows = list(transitions)
    if rows and all(hasattr(rows[0], name) for name in _MINARI):
        return _of_episodes(rows, raw)
    return _of_rows(rows, raw)


def _of_rows(rows: list[Any], raw: bool) -> dict[str, NDArray[Any]]:
    """The columns of a list of steps."""
    plain = [_row(i, row) for i, row in enumerate(rows)]
    sizes = {len(row) for row in plain}
    if len(sizes) > 1:
        raise ValueError(f"{_FORMS}; some steps have a level and some have none")
    names = _COLUMNS if sizes == {5} else (*_COLUMNS, "levels")
    columns = zip(*plain, strict=True) if plain else [()] * len(names)
    return {name: _column(name, list(column), raw) for name, column in zip(names, columns, strict=False)}


def _row(i: int, row: Any) -> tuple[Any, ...]:
    """Five or six entries, in the order of the columns."""
    named = row if isinstance(row, Mapping) else row._asdict() if hasattr(row, "_asdict") else None
    if named is not None:  # another order is then no danger
        if not all(name in named for name in _ROW) or set(named) - {*_ROW, "level"}:
            raise ValueError(f"step {i} must have the fields {', '.join(_ROW)} and, if known, level; got {list(named)}")
        return tuple(named[name] for name in (*_ROW, "level") if name in named)
    if not isinstance(row, (tuple, list)) or len(row) not in (5, 6):
        shown = f"{len(row)} entries" if isinstance(row, (tuple, list)) else type(row).__name__
        raise ValueError(f"{_FORMS}; step {i} has {shown}")
    return tuple(row)


def _of_episodes(episodes: list[Any], raw: bool) -> dict[str, NDArray[Any]]:
    """The columns of episodes in Minari's format: one observation more than there are steps."""
    found: dict[str, list[Any]] = {name: [] for name in (*_COLUMNS, "levels")}
    for i, episode in enumerate(episodes):
        if not raw and isinstance(episode.observations, (Mapping, tuple)):
            raise ValueError(
                f"episode {i} has observations of several parts ({type(episode.observations).__name__}), but those of "
                "the env have none; pass a log of this environment"
            )
        observations, n = _column("observations", episode.observations, raw), len(episode.actions)
        if len(observations) != n + 1:
            raise ValueError(f"episode {i} has {n} actions, so it needs {n + 1} observations; got {len(observations)}")
        found["observations"].append(observations[:-1])
        found["next_observations"].append(observations[1:])
        found["levels"].append(np.arange(n))
        found["actions"].append(_array("actions", episode.actions))
        found["rewards"].append(_array("rewards", episode.rewards))
        found["terminated"].append(_array("terminations", episode.terminations))
    empty = [np.zeros(0)]
    return {name: np.concatenate(pieces or empty) for name, pieces in found.items()}


def _column(name: str, values: Any, raw: bool) -> NDArray[Any]:
    """One column; observations with parts become an array of objects, one a step."""
    if not (raw and name.endswith("observations")):
        return _array(name, values)
    try:
        return raw_batch(_step_by_step(name, values) if isinstance(values, (Mapping, tuple)) else list(values))
    except TypeError:  # a number where there should be an entry a step
        raise ValueError(f"{_FORMS}; {name} must have an entry a step, or an array for each part") from None


def _step_by_step(name: str, parts: Any) -> list[Any]:
    """The observations of a log that holds an array for each part of them."""
    if isinstance(parts, Mapping):
        columns = [_step_by_step(name, part) for part in parts.values()]
        return [dict(zip(parts, row, strict=True)) for row in zip(*_of_one_length(name, columns), strict=True)]
    if isinstance(parts, tuple):
        return list(zip(*_of_one_length(name, [_step_by_step(name, part) for part in parts]), strict=True))
    return list(parts)


def _of_one_length(name: str, columns: list[list[Any]]) -> list[list[Any]]:
    if len({len(column) for column in columns}) > 1:
        raise ValueError(f"{name} of the log must have one entry a step in each part; got {[*map(len, columns)]}")
    return columns


def _array(name: str, values: Any) -> NDArray[Any]:
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise ValueError(f"{name} of the log must be an array with an entry a step ({error})") from None
    if array.dtype.kind not in "biuf" or array.ndim == 0:
        raise ValueError(f"{name} of the log must be numbers, one entry a step; got dtype {array.dtype}")
    return array


def _observations(name: str, values: NDArray[Any], space: Any, needed: BoolArray) -> NDArray[Any]:
    """Observations of the environment's shape and within its bounds, wherever they are needed."""
    if is_raw(space):
        outside = next((i for i in np.flatnonzero(needed).tolist() if not _within(values[i], space)), None)
        if outside is not None:
            shown = values[outside]
            raise ValueError(f"{name} of the log: step {outside} has {shown}, which is not in the env's {space}")
        return values
    shape = tuple(space.shape or ())
    if values.shape[1:] != shape:
        raise ValueError(f"{name} of the log must have shape (steps, *{shape}) as the env's have; got {values.shape}")
    low, high = _bounds(space)
    wide = (len(values), -1)
    inside = ((values >= low) & (values <= high)).reshape(wide).all(axis=1) | ~needed  # no NaN is inside
    if not inside.all():
        i = int(np.argmin(inside))
        raise ValueError(f"{name} of the log: step {i} has {values[i].tolist()}, outside of the env's {space}")
    return values


def _within(observation: Any, space: Any) -> bool:
    """Is it of the space, part by part? What kind of numbers its arrays hold does not matter."""
    parts = getattr(space, "spaces", None)
    try:
        if isinstance(parts, Mapping):
            return set(observation) == set(parts) and all(_within(observation[key], one) for key, one in parts.items())
        if isinstance(parts, (tuple, list)):
            return len(observation) == len(parts) and all(map(_within, observation, parts))
        if is_raw(space):
            return bool(space.contains(observation))
        array = np.asarray(observation)
        low, high = _bounds(space)
        return array.shape == tuple(space.shape or ()) and bool(((array >= low) & (array <= high)).all())
    except (TypeError, KeyError, ValueError):
        return False


def _bounds(space: Any) -> tuple[Any, Any]:
    if hasattr(space, "low"):
        return space.low, space.high
    if hasattr(space, "nvec"):
        first = getattr(space, "start", np.zeros_like(space.nvec))
        return first, first + space.nvec - 1
    if hasattr(space, "start"):
        return int(space.start), int(space.start + space.n) - 1
    return 0, 1  # MultiBinary


def _flags(name: str, values: NDArray[Any]) -> BoolArray:
    if values.ndim != 1 or not np.isin(values, (0, 1)).all():
        raise ValueError(f"{name} of the log must be True or False, one a step; got shape {values.shape}")
    return values.astype(np.bool_)


def _actions(values: NDArray[Any], n_actions: int, first: int) -> IntArray:
    last = first + n_actions - 1
    if values.ndim != 1 or values.dtype.kind not in "iu":
        raise ValueError(f"actions of the log must be whole numbers, one a step; got {values.dtype}, {values.shape}")
    outside = (values < first) | (values > last)
    if outside.any():
        i = int(np.argmax(outside))
        raise ValueError(f"actions of the log must lie in {first}..{last}; step {i} has {values[i]}")
    return values.astype(np.int64) - first


def _rewards(values: NDArray[Any], spec: Spec) -> Array:
    """Shifted to start at 0; a reward that rounding put outside of the range is clipped, as a collector does."""
    if values.ndim != 1:
        raise ValueError(f"rewards of the log must be numbers, one a step; got shape {values.shape}")
    rewards = values.astype(np.float64)
    low, high, slack = spec.reward_min, spec.reward_max, spec.reward_slack
    inside = (rewards >= low - slack) & (rewards <= high + slack)
    if not inside.all():
        i = int(np.argmin(inside))
        raise ValueError(
            f"rewards of the log must lie in the declared reward_range [{low:g}, {high:g}]; step {i} has "
            f"{rewards[i]:g}; declare a range that holds all rewards"
        )
    return np.clip(rewards, low, high) - low


def _levels(values: NDArray[Any]) -> IntArray:
    if values.ndim != 1 or values.dtype.kind not in "iu" or values.min() < 0:
        raise ValueError(
            "levels of the log must be whole numbers of at least 0: the steps of the episode before this one"
        )
    return values.astype(np.int64)


def _levels_in_order(observations: NDArray[Any], following: NDArray[Any], over: BoolArray) -> IntArray:
    """The levels of steps that stand in the order in which they were taken, episode after episode."""
    going = np.flatnonzero(~over[:-1])
    if observations.dtype == object:
        pairs = zip(following[going], observations[going + 1], strict=True)
        differ = np.array([not _equal(*pair) for pair in pairs], dtype=np.bool_)
    else:
        differ = (following[going] != observations[going + 1]).reshape(len(going), -1).any(axis=1)
    if differ.any():
        i = int(going[np.argmax(differ)])
        raise ValueError(
            f"the log has no levels, so they are counted, but step {i + 1} does not begin where step {i} ended, and "
            f"step {i} is neither terminated nor truncated; pass the steps in order, or pass levels"
        )
    first = np.concatenate([[0], np.flatnonzero(over[:-1]) + 1])
    return np.asarray(np.arange(len(over)) - np.repeat(first, np.diff([*first, len(over)])))


def _equal(one: Any, other: Any) -> bool:
    """Are two observations with parts the same?"""
    if isinstance(one, Mapping):
        return all(_equal(part, other[key]) for key, part in one.items())
    if isinstance(one, tuple):
        return all(map(_equal, one, other))
    return bool(np.all(np.asarray(one) == np.asarray(other)))
