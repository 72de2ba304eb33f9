"""Four rooms with doors between them: Sutton, Precup and Singh (1999), "Between MDPs and semi-MDPs"."""

import numpy as np

from s4q.problems._slippery_grid import goal_grid, require_slip
from s4q.problems.finite_mdp import FiniteMDP

ROOMS = (  # the walls around it left out
    ".....#.....",
    ".....#.....",
    "...........",
    ".....#.....",
    ".....#.....",
    "#.####.....",
    ".....###.##",
    ".....#.....",
    ".....#.....",
    "...........",
    ".....#.....",
)


def four_rooms(horizon: int = 40, slip: float = 1 / 3) -> FiniteMDP:
    """Walk from the upper left corner of four rooms to the lower right corner, through two doors.

    The 11 x 11 cells hold 104 free ones. Actions 0 to 3 move up, right, down and left. A move goes in one of the three
    other directions with probability slip/3 each. A move into a wall stays. Entering the goal pays 1 and ends the
    episode; nothing else pays. One-hot features. An episode pays at most once: value bound 1.

    Args:
        horizon: Steps of an episode. The shortest way takes 20.
        slip: Probability that a move goes in another direction. 1/3 is that of the paper, 0 means never.

    >>> facts = four_rooms().facts()
    >>> f"V* {facts.v_star:.4f}, uniform {facts.v_uniform:.1e}, chance {facts.chance:.1e}"
    'V* 0.7168, uniform 4.3e-05, chance 4.0e-05'
    """
    require_slip(slip)
    free = np.array([[cell == "." for cell in row] for row in ROOMS])
    return goal_grid(free, (1 - slip, slip / 3, slip / 3, slip / 3), horizon)
