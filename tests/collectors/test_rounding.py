"""Sums that meet a threshold up to rounding, and values that tie up to rounding, in every collector."""

import numpy as np
import pytest
from small_envs import MDPEnv

import s4q
from s4q.collectors import BatchCollector, CountCollector, EpisodeCollector, GymCollector
from s4q.collectors.batched.finite_tables import FiniteBatch
from s4q.core.messages import Explore
from s4q.core.optimism import best_actions

ONE = s4q.FiniteMDP(np.ones((1, 1, 1)), [[0.5]], [1.0], horizon=2)  # every episode adds 1 at each of two levels
MAKERS = {
    "episodes": lambda mdp: EpisodeCollector(mdp, seed=1),
    "counts": lambda mdp: CountCollector(mdp, seed=1),
    "batches": lambda mdp: BatchCollector(FiniteBatch(mdp), mdp.features, mdp.spec, seed=1),
    "gym": lambda mdp: GymCollector(MDPEnv(mdp), mdp.features, mdp.spec, seed=1),
}


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize(
    ("threshold", "n"), [(5.0, 5), (5.0 + 1e-12, 5), (5.0 + 1e-6, 6), (5.0 - 1e-6, 5), (4.0 + 1e-12, 4), (0.5, 1)]
)
def test_a_sum_that_falls_short_by_rounding_has_reached_the_threshold(kind, threshold, n):
    q = s4q.LinearQ.from_arrays(np.zeros((2, 1, 1)))
    request = Explore(0, q, np.ones((2, 1, 1, 1)), (threshold, 0.0), 100, 0)
    assert MAKERS[kind](ONE).collect(request).n_episodes == n
    pooled = Explore(0, q, np.ones((1, 1, 1, 1)), (2 * threshold, 0.0), 100, 0, pool=True)
    assert MAKERS[kind](ONE).collect(pooled).n_episodes == n


TWO = s4q.FiniteMDP(np.ones((1, 3, 1)), [[0.1, 0.5, 0.9]], [1.0], horizon=1, reward_noise="none")


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize(
    ("theta", "action"), [((0.3, 0.3 + 1e-15, 0.1), 0), ((0.3, 0.3 + 1e-9, 0.1), 1), ((-0.3 - 1e-14, -0.4, -0.3), 0)]
)
def test_values_that_differ_by_rounding_are_a_tie(kind, theta, action):
    q = s4q.LinearQ.from_arrays(np.array(theta).reshape(1, 3, 1))
    request = Explore(0, q, np.ones((1, 3, 1, 1)), (np.inf, 0.0), 4, 0)
    answer = MAKERS[kind](TWO).collect(request)
    assert answer.grams[0, :, 0, 0].tolist() == [4.0 * (a == action) for a in range(3)]
    assert best_actions(np, np.array([theta]))[0].tolist() == [action]
