"""check_features: test a feature map on the observations of an environment.

Users call it before they learn. Nothing outside the environment draws a random number: spaces are copied before they
are seeded.
"""

from copy import deepcopy
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from s4q.core.blocks import Array, Phi, States
from s4q.core.messages import FeatureMap
from s4q.core.spec import require_map
from s4q.core.validation import require_count, require_finite, require_shape
from s4q.features.batches import require_blocks, require_unit_norms
from s4q.features.layout import is_raw, raw_batch
from s4q.features.spaces import n_actions_of

BATCH_GAP = 1e-9  # rounding of another batch size, and no more
SINGLES = 100  # observations that are also evaluated alone


@final
@dataclass(frozen=True, slots=True)
class FeatureReport:
    """What check_features measured. All its checks passed, else there would be no report."""

    n_sampled: int  # observations drawn from the space
    n_played: int  # observations met while playing
    n_actions: int
    n_blocks: int
    block_dim: int
    max_norm: float
    min_norm: float
    blocks_seen: int
    batch_gap: float  # largest difference between a state evaluated alone and in a batch
    n_distinct: int  # different features among the sampled observations, or among those met, at one level


def check_features(
    features: FeatureMap, env: Any, n: int = 1000, seed: int = 0, *, horizon: int | None = None
) -> FeatureReport:
    """Evaluate a map on observations drawn from the space and met while playing at random; refuse what is wrong.

    These are checked at the first, the middle and the last level: shapes, blocks in range, finite, norm at most 1, the
    same features when asked twice, the same alone as in a batch, the same at every level if declared stationary, not 0
    everywhere, and not the same for every action.

    Args:
        features: The feature map.
        env: A Gymnasium environment, which is reset and stepped; or a pair (observation_space, action_space).
        n: Number of observations drawn from the space, and of observations met while playing.
        seed: Seed of the spaces and of the environment, 0 by default.
        horizon: Number of levels. None (default): two where the map is declared stationary, else one.

    Returns:
        What was measured. A ValueError says which check failed.

    >>> from gymnasium.spaces import Box, Discrete
    >>> from s4q.features import Fourier, PerAction
    >>> space = Box(0, 1, (1,))
    >>> check_features(PerAction(Fourier(space, order=3), n_actions=2), (space, Discrete(2)), n=50).block_dim
    4
    """
    require_count("n", n, "the number of observations to check")
    require_count("seed", seed, "a seed of the spaces and the env", at_least=0)
    require_map(features)
    stationary = bool(getattr(features, "stationary", False))
    if horizon is None:
        horizon = min(2, getattr(features, "horizon", 2)) if stationary else 1
    require_count("horizon", horizon, "the number of levels")
    if not (isinstance(env, tuple) or hasattr(env, "observation_space")):
        raise ValueError(f"env must be a Gymnasium environment, or a pair of spaces; got {env!r}")
    playable = not isinstance(env, tuple)
    observation_space, action_space = (env.observation_space, env.action_space) if playable else env
    if hasattr(env, "num_envs"):
        raise ValueError("env must be a single environment; pass one of them, or (observation_space, action_space)")
    if features.n_actions != n_actions_of(action_space):
        raise ValueError(f"features have n_actions = {features.n_actions}, but the action space is {action_space}")
    sampled = _sampled(features, observation_space, n, seed)
    played = _played(env, action_space, n, seed) if playable else sampled[:0]
    levels = sorted({0, horizon // 2, horizon - 1})
    parts = [_check(features, h, states) for states in (sampled, played) if len(states) for h in levels]
    if stationary:
        for states in (sampled, played):
            _require_same(features, states, levels)
    _require_use(parts, features.n_actions)
    return FeatureReport(
        n_sampled=len(sampled),
        n_played=len(played),
        n_actions=features.n_actions,
        n_blocks=features.n_blocks,
        block_dim=features.block_dim,
        max_norm=max(float(part.norms.max()) for part in parts),
        min_norm=min(float(part.norms.min()) for part in parts),
        blocks_seen=len(set().union(*(part.blocks for part in parts))),
        batch_gap=max(part.batch_gap for part in parts),
        n_distinct=max(part.n_distinct for part in parts),
    )


@final
@dataclass(frozen=True, eq=False, slots=True)
class _Part:
    norms: Array
    blocks: set[int]
    batch_gap: float
    n_distinct: int
    actions_differ: bool


def _sampled(features: Any, space: Any, n: int, seed: int) -> States:
    """Observations drawn from the space, moved into the range that the map declares."""
    own = deepcopy(space)
    own.seed(seed)
    drawn = [own.sample() for _ in range(n)]
    if is_raw(space):
        return raw_batch(drawn)
    states = np.stack([np.asarray(one) for one in drawn])
    ranges = getattr(getattr(features, "state_features", features), "ranges", None)
    if ranges is None:
        return states
    return np.asarray(np.clip(ranges.rows(states), ranges.low, ranges.high).reshape(states.shape))


def _played(env: Any, action_space: Any, n: int, seed: int) -> States:
    """Observations met under random actions. Episode i starts with seed + i."""
    actions = deepcopy(action_space)
    actions.seed(seed)
    found: list[Any] = []
    raw = is_raw(env.observation_space)
    episode = 0
    while len(found) < n:
        observation, _ = env.reset(seed=seed + episode)
        found.append(deepcopy(observation) if raw else np.array(observation))
        over = False
        while not over and len(found) < n:
            observation, _, terminated, truncated, _ = env.step(actions.sample())
            found.append(deepcopy(observation) if raw else np.array(observation))  # an env may use its array again
            over = bool(terminated or truncated)
        episode += 1
    return raw_batch(found) if raw else np.stack(found)


def _check(features: FeatureMap, h: int, states: States) -> _Part:
    phi = _evaluated(features, h, states)
    again = _evaluated(features, h, states)
    if not (np.array_equal(phi.vectors, again.vectors) and np.array_equal(phi.blocks, again.blocks)):
        raise ValueError(f"features must be deterministic, but level {h} gave two answers for the same states")
    rows = np.unique(np.linspace(0, len(states) - 1, min(SINGLES, len(states))).astype(int))
    gap = 0.0
    for i in rows.tolist():
        alone = _evaluated(features, h, states[i : i + 1])
        gap = max(gap, float(np.abs(alone.vectors[0] - phi.vectors[i]).max()))
        if gap > BATCH_GAP or not np.array_equal(alone.blocks[0], phi.blocks[i]):
            raise ValueError(
                f"features must treat each state of a batch by itself, but state {_shown(states[i])} at level {h} "
                f"differs by {gap:.3g} when evaluated alone; do not normalise over the batch"
            )
    rows = np.concatenate([phi.vectors.reshape(len(states), -1), phi.blocks], axis=1)
    differ = bool((phi.vectors != phi.vectors[:, :1]).any() or (phi.blocks != phi.blocks[:, :1]).any())
    distinct = len(np.unique(rows, axis=0))
    return _Part(
        np.linalg.norm(phi.vectors, axis=-1), set(np.unique(phi.blocks).tolist()), gap, distinct, actions_differ=differ
    )


def _require_use(parts: list[_Part], n_actions: int) -> None:
    """Refuse features from which nothing can be learned."""
    if not any(part.norms.any() for part in parts):
        raise ValueError("features are 0 at every observation checked, so nothing can be learned from them")
    if n_actions > 1 and not any(part.actions_differ for part in parts):
        raise ValueError(
            "features are the same for every action at every observation checked, so no action can be preferred; "
            "put the action into them, for example with features.PerAction(...)"
        )


def _evaluated(features: FeatureMap, h: int, states: States) -> Phi:
    """phi_h of the states, with shapes, blocks and norms checked."""
    phi = features(h, states)
    if not isinstance(phi, Phi):
        raise ValueError(f"a feature map must return Phi(vectors, blocks); got {type(phi).__name__}")
    vectors, blocks = np.asarray(phi.vectors), np.asarray(phi.blocks)
    require_shape("vectors", vectors, (len(states), features.n_actions, features.block_dim), "(n, A, k)")
    require_shape("blocks", blocks, (len(states), features.n_actions), "(n, A)")
    require_blocks(blocks, features.n_blocks)
    require_finite("features", vectors)
    require_unit_norms(vectors, "divide all features by a bound on their norm")
    return phi


def _require_same(features: FeatureMap, states: States, levels: list[int]) -> None:
    """Refuse features that differ between levels, where they are declared stationary."""
    if len(states):
        first = features(levels[0], states)
        for h in levels[1:]:
            other = features(h, states)
            if not (np.array_equal(first.vectors, other.vectors) and np.array_equal(first.blocks, other.blocks)):
                raise ValueError(f"features are declared stationary, but levels {levels[0]} and {h} differ")


def _shown(state: Any) -> str:
    if isinstance(state, (dict, tuple)):
        return repr(state)
    return np.array2string(np.asarray(state), precision=6, threshold=8)
