"""A grid with a goal in the far corner, on which moves slip sideways; and what grids with a goal share."""

import numpy as np

from s4q.core.blocks import BoolArray
from s4q.core.validation import require_count
from s4q.problems.finite_mdp import FiniteMDP
from s4q.problems.grid_layout import GridLayout

MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))  # up, right, down, left: actions 0 to 3


def slippery_grid(size: int = 10, slip: float = 0.2, horizon: int = 40) -> FiniteMDP:
    """Walk from one corner of a square grid to the opposite one, on slippery ground.

    Actions 0 to 3 move up, right, down and left. A move goes to its left or its right with probability slip/2 each. A
    move off the grid stays. Entering the goal pays 1 and ends the episode; nothing else pays. A state is row * size +
    column. Start: state 0, the upper left corner. One-hot features. An episode pays at most once: value bound 1.

    Args:
        size: Rows, and columns, of the grid.
        slip: Probability that a move goes sideways.
        horizon: Steps of an episode. The shortest way takes 2 (size - 1).

    >>> facts = slippery_grid().facts()
    >>> f"V* {facts.v_star:.4f}, uniform {facts.v_uniform:.1e}, chance {facts.chance:.1e}"
    'V* 0.9999, uniform 2.6e-03, chance 2.4e-03'
    """
    require_count("size", size, "the number of rows and of columns", at_least=2)
    require_slip(slip)
    free = np.ones((size, size), dtype=np.bool_)
    return goal_grid(free, (1 - slip, slip / 2, 0.0, slip / 2), horizon)


def require_slip(slip: float) -> None:
    """A probability below 1."""
    if not (isinstance(slip, (int, float, np.number)) and 0 <= slip < 1):
        raise ValueError(f"slip is the probability that a move goes elsewhere, so it must lie in [0, 1); got {slip!r}")


def goal_grid(free: BoolArray, turns: tuple[float, float, float, float], horizon: int) -> FiniteMDP:
    """A grid of free cells and walls; from the first free cell to the last one, which pays 1 and ends the episode.

    States are the free cells in reading order. A move into a wall or off the grid stays.

    Args:
        free: (rows, columns), True where a cell is free.
        turns: Probabilities that a move goes ahead, to its right, back, to its left.
        horizon: Steps of an episode. Too few to reach the goal are refused.
    """
    require_count("horizon", horizon, "the number of steps of an episode")
    cells = [(int(row), int(column)) for row, column in np.argwhere(free)]
    state_at = {cell: state for state, cell in enumerate(cells)}
    n_states, goal = len(cells), len(cells) - 1
    transitions = np.zeros((n_states, 4, n_states))
    for state, (row, column) in enumerate(cells):
        for action in range(4):
            for turn, probability in enumerate(turns):
                down, right = MOVES[(action + turn) % 4]
                transitions[state, action, state_at.get((row + down, column + right), state)] += probability
    transitions[goal] = np.eye(n_states)[goal]
    pays = np.zeros((n_states, 4, n_states))
    pays[:goal, :, goal] = 1.0
    mdp = FiniteMDP(
        transitions,
        (transitions * pays).sum(axis=-1),
        start=np.eye(n_states)[0],
        horizon=horizon,
        value_bound=1.0,
        reward_noise="none",
        terminal=np.arange(n_states) == goal,
        arrival_rewards=pays,
        layout=GridLayout(len(free), len(free[0]), tuple(cells)),
    )
    if mdp.v_star == 0:
        raise ValueError(f"horizon is too short to reach the goal from the start; got {horizon}, give it more steps")
    return mdp
