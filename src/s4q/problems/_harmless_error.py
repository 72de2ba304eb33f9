"""Features that are far from exact, yet in ways that no learner has to pay for."""

from typing import Literal

import numpy as np

from s4q.core.blocks import Array
from s4q.core.validation import require_count
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
    """A linear MDP plus an error of `amount` (at most 1/4) times the largest reward, 1/H, that does no harm.

    unvisited: there is one more action. Its features are those of action 0 and so are its moves, but it pays `amount`
    less. No linear function tells the two apart, ties go to the lower action, and the better policy takes it too: the
    pairs with the error are never visited.
    cancelling: a state is one of the n_states and a coin, 2 n_states in all. The coin is fair, falls once before the
    start and stays. The first level, the third and so on pay `amount` more on heads and less on tails, the others the
    other way round; features see no coin. Along every episode the errors of two levels cancel (the horizon must be
    even). A value that read the coin would not be linear, so even without the error the problem is Bellman closed only.

    Features and moves are those of a `low_rank`; rewards without the error lie in [1/4, 3/4] of the largest.

    >>> facts = harmless_error().facts()
    >>> f"V* {facts.v_star:.4f}, uniform {facts.v_uniform:.4f}, chance {facts.chance:.1e}"
    'V* 0.6593, uniform 0.5701, chance 6.8e-03'
    >>> facts = harmless_error(kind="unvisited").facts()
    >>> f"V* {facts.v_star:.4f}, uniform {facts.v_uniform:.4f}, chance {facts.chance:.1e}"
    'V* 0.6593, uniform 0.5200, chance 1.0e-02'
    """
    require_count("n_states", n_states, "the number of states", at_least=2)
    require_count("seed", seed, "the seed of the problem", at_least=0)
    if not 0 <= amount <= 0.25:
        raise ValueError(f"amount is a share of the largest reward of at most 1/4; got {amount!r}")
    if kind not in ("unvisited", "cancelling"):
        raise ValueError(f'kind must be "unvisited" or "cancelling"; got {kind!r}')
    rng = np.random.default_rng(np.random.SeedSequence(seed))
    model = draw_linear_model(n_states, n_actions, dim, horizon, rng)
    start = rng.dirichlet(np.ones(n_states))
    rewards = 0.25 / horizon + np.einsum("hsad,hd->hsa", model.phi, model.theta) / 2  # features sum to 1
    moves = np.einsum("hsad,hdt->hsat", model.phi, model.mu)
    build = _with_a_worse_twin if kind == "unvisited" else _with_a_coin
    arrays = build(moves, rewards, start, model.phi, amount / horizon)
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
