"""Grids, random tables, the stochastic lock and aggregated DeepSea, each against brute force or a closed form."""

from functools import cache

import numpy as np
import pytest
from small_problems import all_policies

import s4q
from s4q import problems
from s4q.cli.arguments import BUILDERS, named_problem
from s4q.problems import FiniteMDP


@pytest.mark.parametrize(
    "mdp",
    [
        problems.dense_random(),
        problems.dense_random(4, 3, 5, seed=7),
        problems.slippery_grid(),
        problems.slippery_grid(3, slip=0.0, horizon=4),
        problems.four_rooms(),
        problems.four_rooms(20, slip=0.0),
        problems.stochastic_lock(),
        problems.aggregated_deep_sea(),
        problems.aggregated_deep_sea(7, 3, stochastic=True),
    ],
)
def test_declared_bounds_hold_and_facts_are_consistent(mdp: FiniteMDP) -> None:
    for h in range(mdp.horizon):
        shifted = mdp.q_star[h] - (mdp.horizon - h) * mdp.spec.reward_min
        assert shifted[mdp.reachable[h]].max(initial=0) <= mdp.spec.value_bound[h] + 1e-9
    facts = mdp.facts()
    assert facts.v_uniform < facts.v_star
    assert 0 < facts.chance <= 1


def test_names_of_the_command_line_build_them() -> None:
    for name in ("dense_random", "slippery_grid", "four_rooms", "stochastic_lock", "aggregated_deep_sea"):
        assert BUILDERS[name] is getattr(problems, name)
        assert name in problems.__all__
        assert isinstance(named_problem(name), FiniteMDP)


def test_dense_random_is_what_it_says() -> None:
    mdp = problems.dense_random(seed=3)
    assert (mdp.n_states, mdp.n_actions, mdp.horizon, mdp.dim) == (15, 4, 10, 60)
    assert mdp.spec.stationary
    assert mdp.spec.well_specified
    assert mdp.reward_noise == "bernoulli"
    assert mdp.start[0] == 1
    assert mdp.spec.value_bound == tuple(range(10, 0, -1))
    # Dirichlet(0.1) over 15 states has E sum p^2 = (0.1 + 1)/(1.5 + 1); the uniform mean reward has mean 1/2.
    rows = np.stack([problems.dense_random(seed=seed).transitions[0] for seed in range(20)])
    assert (rows**2).sum(axis=-1).mean() == pytest.approx(0.44, abs=0.03)
    means = np.stack([problems.dense_random(seed=seed).rewards[0] for seed in range(20)])
    assert means.mean() == pytest.approx(0.5, abs=0.03)
    assert not np.array_equal(mdp.transitions, problems.dense_random(seed=4).transitions)
    np.testing.assert_array_equal(mdp.transitions, problems.dense_random(seed=3).transitions)


def test_dense_random_is_solved_by_the_best_of_all_policies() -> None:
    mdp = problems.dense_random(2, 2, 3, seed=1)
    values = []
    for table in all_policies(mdp):
        states, value = mdp.start, 0.0
        for h in range(mdp.horizon):
            pairs = states[:, None] * table[h]
            value += float((pairs * mdp.rewards[h]).sum())
            states = sum(pairs[s, a] * mdp.transitions[h, s, a] for s in range(2) for a in range(2))
        values.append(value)
    assert mdp.v_star == pytest.approx(max(values), abs=1e-12)


ARROWS = {0: (-1, 0), 1: (0, 1), 2: (1, 0), 3: (0, -1)}  # up, right, down, left


def walked_value(rows: tuple[str, ...], steps: int, law: dict[str, float]) -> float:
    """V* of a walk from the first "." to the last one, cell by cell and step by step; law: where a move goes."""
    cells = [(y, x) for y, row in enumerate(rows) for x, mark in enumerate(row) if mark == "."]
    turns = {"ahead": 0, "right": 1, "back": 2, "left": 3}

    @cache
    def best(cell: tuple[int, int], left: int) -> float:
        if left == 0:
            return 0.0
        values = []
        for action in range(4):
            value = 0.0
            for word, chance in law.items():
                y, x = ARROWS[(action + turns[word]) % 4]
                target = (cell[0] + y, cell[1] + x)
                target = target if target in cells else cell
                value += chance * (1.0 if target == cells[-1] else best(target, left - 1))
            values.append(value)
        return max(values)

    return best(cells[0], steps)


@pytest.mark.parametrize(("size", "slip", "horizon"), [(2, 0.3, 3), (3, 0.2, 6), (4, 0.5, 7)])
def test_slippery_grid_against_a_walk(size: int, slip: float, horizon: int) -> None:
    mdp = problems.slippery_grid(size, slip, horizon)
    sideways = {"ahead": 1 - slip, "right": slip / 2, "left": slip / 2}
    assert mdp.v_star == pytest.approx(walked_value(("." * size,) * size, horizon, sideways), abs=1e-12)
    assert mdp.spec.stationary
    assert mdp.terminal.tolist() == [False] * (size**2 - 1) + [True]


def test_slippery_grid_by_hand() -> None:
    # Right and then down; or the first step slips down, and then right.
    assert problems.slippery_grid(2, 0.4, 2).v_star == pytest.approx(0.6 * 0.6 + 0.2 * 0.6)
    assert problems.slippery_grid(5, 0.0, 8).v_star == 1.0
    for slip in (-0.1, 1.0, "no"):
        with pytest.raises(ValueError, match="slip"):
            problems.slippery_grid(slip=slip)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"horizon is too short to reach the goal.*got 7"):
        problems.slippery_grid(5, 0.0, 7)


def test_four_rooms_against_a_walk() -> None:
    """The map written once more, as Sutton, Precup and Singh draw it: with walls around it."""
    drawn = """
#############
#     #     #
#     #     #
#           #
#     #     #
#     #     #
## ####     #
#     ### ###
#     #     #
#     #     #
#           #
#     #     #
#############
"""
    rows = tuple(row.replace(" ", ".") for row in drawn.split("\n") if row)
    assert sum(row.count(".") for row in rows) == 104
    mdp = problems.four_rooms(24)
    ways = {"ahead": 2 / 3, "right": 1 / 9, "back": 1 / 9, "left": 1 / 9}
    assert mdp.n_states == 104
    assert mdp.v_star == pytest.approx(walked_value(rows, 24, ways), abs=1e-12)
    assert problems.four_rooms(20, slip=0.0).v_star == 1.0
    with pytest.raises(ValueError, match="horizon is too short"):
        problems.four_rooms(19)


@pytest.mark.parametrize(("horizon", "slip"), [(1, 0.3), (4, 0.0), (10, 0.1)])
def test_stochastic_lock(horizon: int, slip: float) -> None:
    mdp = problems.stochastic_lock(4, horizon, slip=slip, seed=2)
    facts = mdp.facts()
    assert facts.v_star == pytest.approx((1 - slip) ** (horizon - 1))
    assert facts.v_uniform == pytest.approx((1 - slip) ** (horizon - 1) / 4**horizon)
    assert mdp.dim == 12
    right = mdp.transitions[:, :2, :, 2] < 1
    assert (right.sum(axis=-1) == 1).all()  # one digit in each open state
    assert not np.array_equal(mdp.transitions, problems.stochastic_lock(4, horizon, slip=slip, seed=3).transitions)


def test_aggregated_deep_sea_is_deep_sea_with_fewer_features() -> None:
    plain, grouped = problems.deep_sea(7, seed=4), problems.aggregated_deep_sea(7, 3, seed=4)
    np.testing.assert_array_equal(plain.transitions, grouped.transitions)
    np.testing.assert_array_equal(plain.rewards, grouped.rewards)
    assert grouped.v_star == pytest.approx(0.99)
    assert grouped.dim == 6
    assert grouped.features.blocks[2].tolist() == [[0, 1]] * 3 + [[2, 3]] * 3 + [[4, 5]]
    assert not grouped.spec.well_specified
    exact = problems.aggregated_deep_sea(7, 1, seed=4)
    assert exact.spec.well_specified
    np.testing.assert_array_equal(exact.features.blocks, plain.features.blocks)
    assert exact.spec.radius == plain.spec.radius
    with pytest.raises(ValueError, match=r"group .*got 0"):
        problems.aggregated_deep_sea(group=0)


def test_a_best_policy_of_aggregated_deep_sea_reads_only_its_features() -> None:
    """At each level the best path is in one column, so a parameter per group and action can say what to do there."""
    mdp = problems.aggregated_deep_sea(6, 2, seed=1)
    theta = np.zeros((6, 6, 1))
    for h in range(6):
        theta[h, mdp.features.blocks[h, h, mdp.q_star[h, h].argmax()]] = 1.0
    assert mdp.value(s4q.LinearQ.from_arrays(theta)) == pytest.approx(mdp.v_star)
