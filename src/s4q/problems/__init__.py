"""Problems with exact values: FiniteMDP, and one builder per known problem.

Everything public is imported here. A problem is played by a collector; learners see only its `spec`.
"""

from s4q.problems._aggregated_deep_sea import aggregated_deep_sea
from s4q.problems._baird import baird
from s4q.problems._chain import chain
from s4q.problems._combination_lock import combination_lock
from s4q.problems._deep_sea import deep_sea
from s4q.problems._dense_random import dense_random
from s4q.problems._four_rooms import four_rooms
from s4q.problems._harmless_error import harmless_error
from s4q.problems._low_rank import bellman_closed, low_rank, padded_features, perturbed_low_rank
from s4q.problems._river_swim import river_swim
from s4q.problems._slippery_grid import slippery_grid
from s4q.problems._stochastic_lock import stochastic_lock
from s4q.problems.finite_mdp import Facts, FiniteMDP
from s4q.problems.grid_layout import GridLayout
from s4q.problems.gymnasium_table import from_gymnasium

__all__ = [
    "Facts",
    "FiniteMDP",
    "GridLayout",
    "aggregated_deep_sea",
    "baird",
    "bellman_closed",
    "chain",
    "combination_lock",
    "deep_sea",
    "dense_random",
    "four_rooms",
    "from_gymnasium",
    "harmless_error",
    "low_rank",
    "padded_features",
    "perturbed_low_rank",
    "river_swim",
    "slippery_grid",
    "stochastic_lock",
]
