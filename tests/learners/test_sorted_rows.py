"""SortedRows: targets and sums of held steps against plain loops, for each way in which it lays out the features."""

import numpy as np
import pytest

import s4q
from s4q.core.optimism import QLevel
from s4q.learners.shelf import Shelf
from s4q.learners.sorted_rows import SortedRows
from s4q.learners.state_table import StateTable

# Steps, states, length of a vector, vectors of a state. Tall ones are multiplied piece by piece.
LAYOUTS = {
    "one matrix for steps and next states": (60, 65, 5, 1),
    "one matrix, tall": (900, 950, 60, 1),
    "few next states": (300, 40, 5, 1),
    "a vector for every action": (60, 50, 5, 2),
    "one number": (60, 50, 1, 1),
    "the number 1": (60, 50, 1, 1),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("bonus", [False, True])
def test_targets_and_sums_equal_plain_loops(layout: str, bonus: bool) -> None:
    n, m, k, n_vectors = LAYOUTS[layout]
    rng = np.random.default_rng(3)
    spec = s4q.Spec(
        horizon=3,
        n_actions=2,
        n_blocks=2,
        block_dim=k,
        reward_min=0.0,
        reward_max=1.0,
        value_bound=(3.0, 2.0, 1.0),
        radius=(1.0, 1.0, 1.0),
        block_radius=(1.0, 1.0, 1.0),
        stationary=True,
        well_specified=True,
    )
    vectors = np.ones((m, 1, 1)) if layout == "the number 1" else rng.normal(size=(m, n_vectors, k)) / k
    table = StateTable(vectors, np.array([[0, 1]]))
    states, following = rng.permutation(m)[:n] if n <= m else rng.integers(m, size=n), rng.integers(m, size=n)
    following[0] = states[1]  # a next state from which a step leads, and surely one from which none does
    shelf = Shelf(
        states,
        rng.integers(2, size=n),
        following,
        rng.random(n),
        rng.random(n) < 0.1,
        rng.integers(1, 4, size=n).astype(float),
        np.zeros(spec.gram_shape),
    )
    target = QLevel(rng.normal(size=(2, k)), clip=(0.0, 2.0))
    if bonus:
        white = np.tril(rng.normal(size=(2, k, k)))
        more = {"noise": 0.3, "ceiling": 0.5, "ridge": 0.1, "kappa": 0.4, "lower_order": 0.2}
        target = QLevel(target.theta, white, np.array([0.3, 0.7]), (0.0, 2.0), rng.normal(size=(2, k)), **more)

    def value(state: int) -> float:
        best = -np.inf
        for action in range(2):
            phi = vectors[state, min(action, vectors.shape[1] - 1)]
            worth = float(phi @ target.theta[action])
            if bonus:
                norm = float(np.linalg.norm(target.whitener[action] @ phi))
                seen = max(norm**-2 - 0.1, 0.0)
                variance = min(max(float(phi @ target.second[action]) - worth**2, 0.0), 0.5)
                sigma = np.sqrt((seen * variance + 0.3) / max(seen, 1.0))
                worth += (target.width[action] + 0.4 * (sigma + 0.2 * norm)) * norm
            best = max(best, worth)
        return min(max(best, 0.0), 2.0)

    rows = SortedRows(spec, table, shelf)
    found = np.empty(n)
    found[rows._order] = rows.targets(0, target)
    want = [shelf.rewards[i] + (0.0 if shelf.ended[i] else value(int(following[i]))) for i in range(n)]
    np.testing.assert_allclose(found, want, rtol=1e-9, atol=1e-12)
    sums = np.zeros((2, 2, k))
    for i in range(n):
        phi = vectors[states[i], min(int(shelf.actions[i]), vectors.shape[1] - 1)]
        sums[0, shelf.actions[i]] += shelf.weights[i] * phi
        sums[1, shelf.actions[i]] += want[i] * phi
    made = rows.sums(np.stack([rows.weights, found[rows._order]]))
    np.testing.assert_allclose(made, sums, rtol=1e-9, atol=1e-10)
