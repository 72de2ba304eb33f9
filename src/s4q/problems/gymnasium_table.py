"""The exact FiniteMDP of a Gymnasium environment that exposes its table: FrozenLake, CliffWalking, Taxi."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from s4q.core.blocks import Array
from s4q.core.validation import require_count
from s4q.problems.finite_mdp import FiniteMDP


def from_gymnasium(
    env: Any,
    horizon: int,
    *,
    features: ArrayLike | None = None,
    reward_range: tuple[float, float] | None = None,
    value_bound: ArrayLike | None = None,
    env_options: Mapping[str, Any] | None = None,
) -> FiniteMDP:
    """Read `env.unwrapped.P` and `initial_state_distrib`; exact planning, regret and counts then work on it.

    env: an id such as "FrozenLake-v1" (made with `env_options`) or an environment. A state that is entered only by
    transitions that terminate is terminal; where a state is entered both ways, terminating transitions go to one more
    state. reward_range: of the table, with the 0 that follows an end, unless declared. value_bound: of the return
    from any step on, in the env's units.

    >>> lake = from_gymnasium("FrozenLake-v1", horizon=50)
    >>> round(lake.v_star, 3), lake.n_states, int(lake.terminal.sum())
    (0.546, 16, 5)
    """
    require_count("horizon", horizon, "the number of steps of an episode")
    table, start = _table_of(env, dict(env_options or {}))
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
                    f"env pays state {s}, action {a}, next state {state} in two ways; no table can say that"
                )
            transitions[s, a, arrived] += p
            rewards[s, a, arrived] = reward
    mask = np.append(terminal, True) if extra else terminal
    transitions[mask] = np.eye(size)[mask][:, None, :]
    means = np.einsum("sat,sat->sa", transitions, rewards)
    low, high = reward_range or (min(0.0, float(rewards.min())), max(0.0, float(rewards.max())))
    return FiniteMDP(
        transitions / transitions.sum(axis=-1, keepdims=True),
        means,
        start=np.append(start, 0.0) if extra else start,
        features=features,
        horizon=horizon,
        reward_range=(low, high),
        value_bound=value_bound,
        reward_noise="none",
        terminal=mask,
        arrival_rewards=rewards,
    )


def _entries(table: Any) -> Any:
    """(state, action, probability, next state, reward, terminated) of every cell."""
    for s in range(len(table)):
        for a in range(len(table[s])):
            for p, state, reward, terminated in table[s][a]:
                yield s, a, float(p), int(state), float(reward), bool(terminated)


def _table_of(env: Any, options: dict[str, Any]) -> tuple[Any, Array]:
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
    return table, np.asarray(start, dtype=np.float64) / np.sum(start)
