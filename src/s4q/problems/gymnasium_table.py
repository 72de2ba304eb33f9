"""The exact FiniteMDP of a Gymnasium environment that exposes its table: FrozenLake, CliffWalking, Taxi.

Tests and benchmarks use it to know the exact values of an environment that an Agent learns by stepping. Gymnasium is
imported only when an id is given.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from s4q.core.blocks import Array
from s4q.core.validation import require_count
from s4q.problems.finite_mdp import FiniteMDP
from s4q.problems.grid_layout import GridLayout


def from_gymnasium(
    env: Any,
    horizon: int,
    *,
    features: ArrayLike | None = None,
    reward_range: tuple[float, float] | None = None,
    value_bound: ArrayLike | None = None,
    env_options: Mapping[str, Any] | None = None,
) -> FiniteMDP:
    """The FiniteMDP of an environment with a table, so that planning, regret and counts are exact.

    It reads `env.unwrapped.P` and `initial_state_distrib`. A state that is entered only by transitions that terminate
    is terminal. Where a state is entered both ways, terminating transitions go to one additional state.

    Args:
        env: An id such as "FrozenLake-v1", or an environment.
        horizon: Steps of an episode.
        features: Features as of FiniteMDP. None (default): one-hot pairs.
        reward_range: Lowest and highest reward of a step. None (default): those of the table, and the 0 after an end.
        value_bound: Bound on the return from any step on, in the env's units. None (default): the highest reward at
            every step left.
        env_options: Passed to `gymnasium.make` where env is an id. None (default): no options.

    >>> lake = from_gymnasium("FrozenLake-v1", horizon=50)
    >>> round(lake.v_star, 3), lake.n_states, int(lake.terminal.sum())
    (0.546, 16, 5)
    """
    require_count("horizon", horizon, "the number of steps of an episode")
    table, start, shape = _table_of(env, dict(env_options or {}))
    n_states, n_actions = len(table), len(table[0])
    ends, goes = np.zeros(n_states, dtype=np.bool_), np.zeros(n_states, dtype=np.bool_)
    for _, _, _, state, _, terminated in _entries(table):
        (ends if terminated else goes)[state] = True
    terminal = ends & ~goes & ~(start > 0)
    extra = bool(np.any(ends & ~terminal))
    size = n_states + extra
    transitions, rewards = np.zeros((size, n_actions, size)), np.zeros((size, n_actions, size))
    for s, a, p, state, reward, terminated in _entries(table):
        if s < n_states and not terminal[s]:
            arrived = n_states if terminated and not terminal[state] else state
            known = transitions[s, a, arrived] > 0
            if known and p > 0 and abs(rewards[s, a, arrived] - reward) > 1e-12:
                raise ValueError(
                    f"env has two rewards for state {s}, action {a}, next state {state}; a FiniteMDP holds one"
                )
            transitions[s, a, arrived] += p
            rewards[s, a, arrived] = reward
    mask = np.append(terminal, True) if extra else terminal
    transitions[mask] = np.eye(size)[mask][:, None, :]
    means = np.einsum("sat,sat->sa", transitions, rewards)
    return FiniteMDP(
        transitions / transitions.sum(axis=-1, keepdims=True),
        means,
        start=np.append(start, 0.0) if extra else start,
        features=features,
        horizon=horizon,
        reward_range=reward_range or (min(0.0, float(rewards.min())), max(0.0, float(rewards.max()))),
        value_bound=value_bound,
        reward_noise="none",
        terminal=mask,
        arrival_rewards=rewards,
        layout=GridLayout.rectangle(*shape, size) if shape is not None and shape[0] * shape[1] == n_states else None,
    )


def _entries(table: Any) -> Any:
    """(state, action, probability, next state, reward, terminated) of every cell."""
    for s in range(len(table)):
        for a in range(len(table[s])):
            for p, state, reward, terminated in table[s][a]:
                yield s, a, float(p), int(state), float(reward), bool(terminated)


def _table_of(env: Any, options: dict[str, Any]) -> tuple[Any, Array, tuple[int, int] | None]:
    """The table, the probabilities of the first state, and the rows and columns of a grid."""
    if isinstance(env, str):
        try:
            import gymnasium
        except ImportError:
            raise ImportError('from_gymnasium needs gymnasium; install it with: pip install "s4q[gym]"') from None
        made = gymnasium.make(env, **options)
        try:
            return _table_of(made, {})
        finally:
            made.close()
    inner = getattr(env, "unwrapped", env)
    table, start = getattr(inner, "P", None), getattr(inner, "initial_state_distrib", None)
    if table is None or start is None:
        raise ValueError(
            "env must expose its table as `unwrapped.P` and `unwrapped.initial_state_distrib`, as FrozenLake, "
            f"CliffWalking and Taxi do; {type(inner).__name__} does not"
        )
    return table, np.asarray(start, dtype=np.float64) / np.sum(start), _grid_of(inner)


def _grid_of(inner: Any) -> tuple[int, int] | None:
    """Rows and columns, where the env says them: FrozenLake has `desc`, CliffWalking `shape`."""
    shape = getattr(inner, "shape", None) or np.shape(getattr(inner, "desc", ()))
    return (int(shape[0]), int(shape[1])) if len(shape) == 2 else None
