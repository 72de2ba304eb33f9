"""A problem whose features are far from exact, but whose errors cost a learner nothing.

It shows that misspecification is not the same as regret: the tests and benchmarks of misspecified problems use it.
"""

from typing import Literal

import numpy as np

from s4q.core.blocks import Array
from s4q.core.validation import require_not_negative
from s4q.problems._low_rank import draw_linear_model
from s4q.problems.finite_mdp import FiniteMDP

Harmless = Literal["unvisited", "cancelling"]


def harmless_error(
    n_states: int = 20,
    n_actions: int = 4,
    dim: int = 5,
    horizon: int = 4,
    *,
    kind: Harmless = "cancelling",
    amount: float = 0.25,
    seed: int = 0,
) -> FiniteMDP:
    """A linear MDP plus an error in the rewards that does no harm to a learner.

    Features and moves are those of a `low_rank`; rewards without the error lie in [1/4, 3/4] of the largest, 1/H.

    "unvisited": there is one more action. Its features and moves are those of action 0, but it pays `amount` / H less.
    No linear function tells the two apart, ties go to the lower action, and the better policy takes that one too. So
    the pairs with the error are never visited.

    "cancelling": a state is one of the n_states and a coin, 2 n_states in all. The coin is fair, falls once before the
    start and stays. Levels 0, 2, 4, ... pay `amount` / H more on heads and less on tails, the others the other way
    round. Features do not see the coin. Along every episode the errors of two levels cancel. A value that read the
    coin would not be linear, so even without the error the problem is Bellman closed only.

    Args:
        n_states: Number of states, without the coin.
        n_actions: Number of actions, without the additional one.
        dim: Length of the features.
        horizon: Steps of an episode; must be even for "cancelling".
        kind: "cancelling" (default) or "unvisited".
        amount: Size of the error as a share of the largest reward, at most 1/4.
        seed: Seed of the problem.

    >>> facts = harmless_error().facts()
    >>> f"V* {facts.v_star:.4f}, uniform {facts.v_uniform:.4f}, chance {facts.chance:.1e}"
    'V* 0.6593, uniform 0.5701, chance 6.8e-03'
    >>> facts = harmless_error(kind="unvisited").facts()
    >>> f"V* {facts.v_star:.4f}, uniform {facts.v_uniform:.4f}, chance {facts.chance:.1e}"
    'V* 0.6593, uniform 0.5200, chance 1.0e-02'
    """
    require_not_negative("amount", amount, "a share of the largest reward")
    if amount > 0.25:
        raise ValueError(f"amount is a share of the largest reward of at most 1/4; got {amount!r}")
    if kind not in ("unvisited", "cancelling"):
        raise ValueError(f'kind must be "unvisited" or "cancelling"; got {kind!r}')
    model = draw_linear_model(n_states, n_actions, dim, horizon, seed)
    start = model.rng.dirichlet(np.ones(n_states))
    rewards = 0.25 / horizon + model.rewards / 2  # features sum to 1
    build = _with_a_worse_twin if kind == "unvisited" else _with_a_coin
    arrays = build(model.moves, rewards, start, model.phi, amount / horizon)
    return FiniteMDP(*arrays, reward_range=(0.0, 1.0 / horizon), well_specified=amount == 0)


def _with_a_worse_twin(
    moves: Array, rewards: Array, start: Array, phi: Array, error: float
) -> tuple[Array, Array, Array, Array]:
    twice = [np.concatenate([array, array[:, :, :1]], axis=2) for array in (moves, rewards, phi)]
    twice[1][:, :, -1] -= error
    return twice[0], twice[1], start, twice[2]


def _with_a_coin(
    moves: Array, rewards: Array, start: Array, phi: Array, error: float
) -> tuple[Array, Array, Array, Array]:
    if len(rewards) % 2:
        raise ValueError(f"horizon must be even for errors to cancel in pairs of levels; got {len(rewards)}")
    n_states = rewards.shape[1]  # state = coin * n_states + state without the coin
    both = np.zeros((*moves.shape[:1], 2, n_states, moves.shape[2], 2, n_states))
    both[:, 0, :, :, 0], both[:, 1, :, :, 1] = moves, moves
    sign = np.where(np.arange(len(rewards)) % 2 == 0, 1.0, -1.0)[:, None, None] * error
    return (
        both.reshape(len(moves), 2 * n_states, moves.shape[2], 2 * n_states),
        np.concatenate([rewards + sign, rewards - sign], axis=1),
        np.concatenate([start, start]) / 2,
        np.concatenate([phi, phi], axis=1),
    )
