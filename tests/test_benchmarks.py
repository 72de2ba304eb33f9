"""The benchmarks of `practical`, of the tabular baselines and of classic control, with tiny sizes.

Their numbers are checked by hand, and each command is run once in this process.
"""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from benchmarks import (
    agents,
    collectors,
    control,
    control_memory,
    episodes_per_phase,
    few_levels,
    grouped_states,
    learn_cpu,
    memory,
    practical,
    tabular_baselines,
    unseen_families,
)
from benchmarks.runs import chosen
from rich.table import Table

import s4q


def cells(table: Table, line: int) -> dict[str, str]:
    """The cells of a line, by the name of their column."""
    return {str(column.header): list(column.cells)[line] for column in table.columns}


def row_of(name: str) -> practical.Row:
    return next(row for row in practical.ROWS if row.name == name)


def outcome(regret: float, solved: int = 3, gap: float = 0.0) -> practical.Outcome:
    return practical.Outcome(regret, solved, gap, best_gap=0.0, phases=1, nbytes=8, cpu_seconds=0.5)


def test_a_row_compares_the_same_seeds_at_every_scale() -> None:
    exact = [outcome(1.0), outcome(3.0), outcome(8.0)]
    line = practical.line(row_of("chain"), 10, {1.0: exact, 3.0: [outcome(2.0), outcome(6.2)], 10.0: exact})
    assert line[:4] == ["chain", "10", "4.0 (8.0)", "3 (3)"]
    assert line[6:12] == ["regret <= 20", "yes", "2.05 (2 seeds)", "NO", "1.00", "yes"]


@pytest.mark.parametrize(("solved", "met"), [(50, "yes"), (51, "NO")])
def test_deep_sea_must_be_solved_within_half_of_its_cells(solved: int, met: str) -> None:
    assert practical.line(row_of("DeepSea 10"), 500, {1.0: [outcome(1.0, 5), outcome(1.0, solved)]})[7] == met


def test_a_row_is_not_solved_in_its_last_episode() -> None:
    row = row_of("DeepSea 10, stochastic")
    assert row.target == row.episodes
    for solved, met in ((999, "yes"), (1000, "NO")):
        assert practical.line(row, row.episodes, {1.0: [outcome(1.0, solved)]})[7] == met


def test_kept_regrets_are_compared_by_their_geometric_mean() -> None:
    table = practical.against_table({"a": 8.0, "b": 1.0, "new": 5.0}, {"a": 2.0, "b": 2.0, "old": 7.0})
    found = [cells(table, line) for line in range(3)]
    assert [(one["ratio"], one["met"]) for one in found] == [("4.00", "NO"), ("0.50", "yes"), ("1.41", "NO")]
    assert table.row_count == 3


def test_practical_runs_and_keeps_mean_regrets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "regrets.json"
    file.write_text(json.dumps({"another row": 1.5}))
    size = ["--seeds", "2", "--episodes", "15", "--processes", "1"]
    practical.main(["--rows", "chain", "--scales", "1,3", "--tables", "rows", "--json", str(file), *size])
    shown = capsys.readouterr()
    mdp, regrets = s4q.problems.chain(), []
    for seed in range(2):
        learner = s4q.S4Q(mdp)
        regrets.append(s4q.run(learner, s4q.collectors.CountCollector(mdp, seed=seed), 15).regret or 0.0)
    assert json.loads(file.read_text()) == {"another row": 1.5, "chain": pytest.approx(sum(regrets) / 2)}
    runs = [json.loads(line) for line in shown.err.splitlines() if line.startswith("{")]
    assert [(run["scale"], run["seed"]) for run in runs] == [(1.0, 0), (1.0, 1), (3.0, 0), (3.0, 1)]
    assert [run["regret"] for run in runs[:2]] == regrets
    practical.main(["--rows", "chain", "--scales", "1", "--tables", "rows", "--against", str(file), *size])
    assert "geometric mean" in capsys.readouterr().out


def test_the_table_beside_the_rows(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(practical, "FLAT_ROWS", ("RiverSwim (6, 12)",))
    practical.main(["--tables", "flat", "--episodes", "2", "--processes", "1"])
    shown = capsys.readouterr().out
    assert all(text in shown for text in ("RiverSwim (6, 12)", "200"))


@pytest.mark.parametrize("row", practical.ROWS, ids=lambda row: row.name)
def test_every_problem_can_be_built(row: practical.Row) -> None:
    assert row.build(1).v_star > 0


def test_a_learner_is_measured_over_the_runs_in_which_it_is_not_stuck() -> None:
    made = tabular_baselines.Outcome
    theirs = [made(10.0, 0.0, 1.0), made(30.0, 0.01, 1.0), made(500.0, 0.011, 1.0), made(60.0, 0.2, 1.0)]
    ours = [made(regret, 0.0, 1.0) for regret in (8.0, 16.0, 40.0, 56.0)]
    line = tabular_baselines.line("UCBVI, c = 0.1", theirs, ours, held=True)
    mean, median, _, worst = line[1:5]
    assert (mean, median, worst) == ("150.0", "45.0", "500.0")
    assert line[6:13] == ["2 of 4", "1 of 4", "20.0", "0.20", "<= 1.6 yes", "1.50", "0.60"]
    assert tabular_baselines.line("PSRL", [replace(o, regret=29.0) for o in theirs], ours, held=True)[10] == "<= 1 NO"


def test_the_baselines_run_and_stuck_runs_are_played_again(capsys: pytest.CaptureFixture[str]) -> None:
    size = ["--problems", "2", "--seeds", "1", "--episodes", "3", "--processes", "1"]
    tabular_baselines.main(["--rows", "dense random", "--continue", "20", *size])
    shown = capsys.readouterr()
    runs = [json.loads(line) for line in shown.err.splitlines()]
    assert [run["learner"] for run in runs[:8]] == [name for name in tabular_baselines.LEARNERS for _ in range(2)]
    stuck = [run["problem"] for run in runs[:2] if run["gap"] > 0.01]
    assert stuck
    assert [run["problem"] for run in runs[8:]] == stuck
    assert {run["episodes"] for run in runs[8:]} == {20}


def test_s4q_can_run_alone(capsys: pytest.CaptureFixture[str]) -> None:
    tabular_baselines.main(["--rows", "dense", "--seeds", "1", "--episodes", "1", "--processes", "1", "--learners"])
    assert [json.loads(line)["learner"] for line in capsys.readouterr().err.splitlines()] == ["S4Q, practical"]


def test_only_stuck_runs_of_s4q_are_played_again() -> None:
    name, row = tabular_baselines.S4Q_NAME, tabular_baselines.DENSE.name
    gaps = {(name, 0): 0.01, (name, 1): 0.02, ("PSRL", 0): 0.5}
    outcomes = {
        tabular_baselines.Case(row, learner, 3, problem, seed=7): tabular_baselines.Outcome(1.0, gap, 1.0)
        for (learner, problem), gap in gaps.items()
    }
    table = tabular_baselines.continued_table(outcomes, 5, processes=1)
    assert table.row_count == 1
    assert list(cells(table, 0).values())[:6] == [row, "1", "7", "3", "2.00%", "1"]


def test_every_row_held_against_the_baselines_is_tabular() -> None:
    for row in tabular_baselines.ROWS:
        s4q.baselines.UCBVI(row.build(0))
    assert set(tabular_baselines.HELD_ROWS) <= {
        row.name for row in chosen(tabular_baselines.ROWS, tabular_baselines.USUAL)
    }


def test_control_counts_training_and_evaluation_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "control.json"
    size = ["--seeds", "1", "--episodes", "3", "--fresh", "2", "--processes", "1"]
    control.main(["--rows", "CartPole, Fourier 1", "MountainCar, Fourier 3", "--json", str(file), *size])
    assert "CartPole, Fourier 1" in capsys.readouterr().out
    kept = json.loads(file.read_text())
    [car], [pole] = kept["MountainCar, Fourier 3"], kept["CartPole, Fourier 1"]
    assert (car["best"], car["last"], car["first_success"]) == (-200.0, -200.0, None)
    assert 1 <= pole["last"] < 195


def test_control_notes_the_returns_of_whole_episodes() -> None:
    env: Any = control.EpisodeReturns(control.ROWS[-1].env())
    env.reset(seed=0)
    env.step(0)
    env.reset(seed=0)
    n, over = 0, False
    while not over:
        _, _, terminated, truncated, _ = env.step(0)
        n, over = n + 1, terminated or truncated
    assert (env.returns, env.finished) == ([1.0, float(n)], [False, True])


@pytest.mark.parametrize(("order", "n_features"), [(3, 48), (5, 108), (8, 243)])
def test_control_has_the_features_it_names(order: int, n_features: int) -> None:
    row = next(row for row in control.ROWS if row.name == f"MountainCar, Fourier {order}")
    features = row.features(row.env())
    assert features.n_blocks * features.block_dim == n_features


def test_a_name_that_no_row_has_is_refused() -> None:
    with pytest.raises(SystemExit, match="no row has 'chian'"):
        chosen(practical.ROWS, ["chain", "chian"])


@pytest.mark.slow
def test_the_price_of_memory_is_of_paired_seeds(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    def made(regret: float) -> memory.Outcome:
        return memory.Outcome(regret, gap=0.0, thinnings=1, phases=1, nbytes=8, cpu_seconds=0.5)

    row = memory.ROWS[0]
    shown = memory.line(row, [made(2.0), made(4.0)], [made(1.0), made(4.0)])
    assert shown[1:6] == ["3 (4)", "2 (4)", "1.20", "<= 1.2 yes", "1.50"]
    file = tmp_path / "regrets.json"
    size = ["--seeds", "1", "--episodes", "50", "--processes", "1"]
    memory.main(["--rows", "low_rank d=20", "--json", str(file), *size])
    assert "policy replay" in capsys.readouterr().out
    kept = json.loads(file.read_text())
    assert kept["low_rank d=20, default budget"][0] == kept["low_rank d=20, default budget"][1]  # nothing was dropped


def test_the_linear_mdp_is_one() -> None:
    mdp = memory.linear_mdp(4, seed=1)
    assert (mdp.n_states, mdp.n_actions, mdp.spec.dim, mdp.spec.stationary) == (100, 4, 8, False)
    flat = mdp.transitions[2].reshape(400, 100)
    features = mdp.features.vectors[2].reshape(400, 8)
    assert np.abs(features @ np.linalg.lstsq(features, flat, rcond=None)[0] - flat).max() < 1e-10
    assert mdp.v_star <= 1.0


def test_the_cpu_of_learning_is_measured_end_to_end(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    made = learn_cpu.Outcome(learn=3.0, alone=0.1, n_steps=1000, phases=2, mean_return=-1.0)
    assert learn_cpu.line(learn_cpu.ROWS[2], [made, replace(made, learn=1.0)])[-3:] == ["20.0 (30.0)", "<= 20", "yes"]
    file = tmp_path / "cpu.json"
    learn_cpu.main(["--rows", "Taxi", "--seeds", "1", "--episodes", "3", "--json", str(file)])
    assert "Taxi" in capsys.readouterr().out
    [kept] = json.loads(file.read_text())["Taxi H=50"]
    assert kept["n_steps"] == 150
    assert kept["learn"] > kept["alone"] > 0


def test_agents_are_judged_by_what_their_row_says(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """CliffWalking is deterministic, and 20 episodes are too few."""
    agents.main(
        [
            "--rows",
            "CliffWalking",
            "--seeds",
            "1",
            "--episodes",
            "20",
            "--fresh",
            "2",
            "--processes",
            "1",
            "--json",
            f"{tmp_path}/a",
        ]
    )
    printed = capsys.readouterr().out
    assert "CliffWalking-v1" in printed
    assert "NO" in printed
    made = agents.Outcome(-13.0, None, None, -20.0, -13.0, 10, 1000, 1.0)
    cliff = next(row for row in agents.ROWS if row.name == "CliffWalking-v1")
    assert agents.line(cliff, [made, replace(made, fresh=-13.0)])[2:7] == ["-13 (-13)", "", "", ">= -13", "yes"]
    hands = next(row for row in agents.ROWS if row.name == "Blackjack-v1")
    lucky = replace(made, fresh=0.5, exact=-0.2)
    assert agents.line(hands, [lucky])[6] == "NO"  # the exact value counts, not the luck of a thousand hands


@pytest.mark.slow
def test_the_exact_value_of_blackjack_is_that_of_play() -> None:
    """By play of our own, for a policy that draws below 17 (18 with a usable ace): 20,000 hands."""

    def act(hand: tuple[int, int, int], step: int) -> int:
        del step
        return int(hand[0] < (18 if hand[2] else 17))

    best, exact = agents.blackjack_values(act)
    assert exact < best < 0
    env = gym.make("Blackjack-v1")
    env.reset(seed=0)
    returns = []
    for _ in range(20_000):
        hand, _ = env.reset()
        over, step, reward = False, 0, 0.0
        while not over:
            hand, reward, over, _, _ = env.step(act(hand, step))
            step += 1
        returns.append(float(reward))
    assert abs(np.mean(returns) - exact) < 4 * np.std(returns) / np.sqrt(len(returns))
    sticks = agents.blackjack_values()[1]
    assert exact - sticks > 0.05  # planted: a policy that never draws is far off


def test_control_with_a_tenth_of_the_memory(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "tenth.json"
    size = ["--episodes", "12", "--seeds", "2", "--fresh", "3", "--processes", "1"]
    control_memory.main(["--rows", "CartPole", "--json", str(file), *size])
    [outcomes] = json.loads(file.read_text()).values()
    for one in outcomes:
        everything, tenth = one["step_bytes"]
        assert 0 < tenth <= everything // 10
    assert "CartPole-v1, Fourier 2, H = 500" in capsys.readouterr().out


def test_a_block_back_at_random_play_is_a_collapse() -> None:
    blocks = lambda *means: [value for mean in means for value in [mean] * 50]  # noqa: E731
    assert control_memory.collapses(blocks(-200, -200, -120, -110), -200.0) == 0
    assert control_memory.collapses(blocks(-200, -150, -200, -110, -200), -200.0) == 2
    assert control_memory.collapses(blocks(-200, -200), -200.0) == 0
    row, one = control_memory.ROWS[0], control_memory.Outcome((-110.0, -111.0), (0, 0), (50, 5), (1.0, 1.0))
    other = control_memory.Outcome((-110.0, -151.0), (0, 1), (50, 5), (1.0, 1.0))
    assert control_memory.line(row, [one, one])[4] == "NO"  # surely worse, by a little
    assert control_memory.line(row, [one, other])[3:6] == ["-21.0 ± 254.1", "yes", "0 and 1"]


def test_longer_phases_are_compared_seed_by_seed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    groups = [
        [episodes_per_phase.Outcome(regret, phases) for regret, phases in pairs]
        for pairs in ([(1.0, 9), (4.0, 11)], [(3.0, 5), (4.0, 5)], [(2.0, 2), (16.0, 2)], [(1.0, 1), (4.0, 1)])
    ]
    line = episodes_per_phase.line(episodes_per_phase.ROWS[0], 10, groups)
    assert line[1:] == ["10", "2", "10", "2.00 (3.00)", "5", "3.00 (4.00)", "2", "1.00 (1.00)", "1"]
    path = tmp_path / "kept.json"
    episodes_per_phase.main(["--rows", "river_swim", "--seeds", "1", "--episodes", "40", "--json", str(path)])
    assert "river_swim" in capsys.readouterr().out
    kept = json.loads(path.read_text())["river_swim(6, 12)"]
    assert kept[-1][0]["phases"] == 0 < kept[0][0]["phases"]


def test_products_of_batches_are_counted_as_they_are_done() -> None:
    """Against the multiplications and additions of every product, counted one by one."""
    n, n_actions, dim = 3, 2, 4
    features = collectors.dense_waves(n_actions, dim)
    spec = s4q.Spec.of(features, horizon=collectors.HORIZON, reward_range=(0, 1))
    triangle = sum(2 * (row + 1) for row in range(dim)) - dim  # a multiplication and an addition, the first apart
    exact = n * n_actions * (triangle + 2 * dim) + n * dim * (dim + 1)
    counted = collectors.flops(collectors.explore_request(spec, n), n, n_actions, dim) / collectors.HORIZON
    assert counted == pytest.approx(exact, rel=0.1)


def test_the_rules_for_groups_of_states_are_switched_off_and_on_again(capsys: pytest.CaptureFixture[str]) -> None:
    mdp = grouped_states.PROBLEMS["DeepSea 10, pairs"](0)
    assert grouped_states.grouped(s4q.problems.chain(), 2).spec.n_blocks == s4q.problems.chain().spec.n_blocks // 2
    both = grouped_states.regret(mdp, 0, 200, bonus=True, again=True)
    alone = [grouped_states.regret(mdp, 0, 200, bonus=bonus, again=not bonus) for bonus in (True, False)]
    assert both < 0.5 * min(alone)
    assert grouped_states.regret(mdp, 0, 200, bonus=True, again=True) == both
    grouped_states.main(["--rows", "chain", "--seeds", "1", "--episodes", "5"])
    assert "chain, pairs" in capsys.readouterr().out


def test_families_on_which_nothing_was_chosen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Cells, late losses and V* of some families by hand; and the command with a few episodes."""
    outcomes = [unseen_families.Outcome(regret, late) for regret, late in ((1.0, 0.0), (3.0, 0.2))]
    assert unseen_families.cell(outcomes) == "2 ± 1, 1 stuck"
    assert unseen_families.cell(outcomes[:1]) == "1"
    assert unseen_families.cell([unseen_families.Outcome(None, None)]) == "-"
    # 2 of the 8 lost from episode 60 on were lost in the last 10 of 100.
    curve = [SimpleNamespace(episodes=episodes, regret=regret) for episodes, regret in ((60, 4.0), (100, 12.0))]
    assert unseen_families.late_loss(SimpleNamespace(episodes=100, curve=curve)) == pytest.approx(0.2)
    arms = unseen_families.arms(3, 10, 3)
    assert arms.v_star == pytest.approx(3 * arms.rewards.max())
    contexts = unseen_families.contexts(3)
    assert contexts.v_star == pytest.approx(contexts.rewards[0].max(axis=1).mean())
    rooms = unseen_families.two_steps(3)
    paid = rooms.rewards[0, 1:].max(axis=1)
    assert rooms.v_star == pytest.approx(0.8 * paid.max() + 0.2 * paid.mean())
    best = 0.0  # of k steps left at the start: the rarest arm, then its pay for ever
    for k in range(1, 21):
        best = max(
            chance * (k - 1) * pay / 6000 + (1 - chance) * best
            for chance, pay in zip((1, 0.15, 0.1, 0.05, 0.03, 0.01), (50, 133, 300, 800, 1660, 6000), strict=True)
        )
    assert unseen_families.six_arms().v_star == pytest.approx(best)
    for row in unseen_families.ROWS:
        row.build(0)
    kept = tmp_path / "cells.json"
    unseen_families.main(
        ["--rows", "low_rank", "--seeds", "2", "--episodes", "3", "--processes", "1", "--json", str(kept)]
    )
    cells = json.loads(kept.read_text())["low_rank d=12"]
    assert cells["psrl"] == "-"
    assert "±" in cells["s4q"]
    assert "low_rank d=12" in capsys.readouterr().out


def test_the_bonus_of_few_levels(tmp_path: Path) -> None:
    """With one level the rule is a half, so that its cell is that of the half."""
    kept = tmp_path / "cells.json"
    few_levels.main(["--rows", "5 arms", "--seeds", "4", "--episodes", "300", "--processes", "1", "--json", str(kept)])
    cells = json.loads(kept.read_text())["5 arms"]
    assert cells["the rule"] == cells["0.5"] != cells["0.25"]
    for row in few_levels.ROWS:
        assert row.build(few_levels.FIRST_SEED).horizon <= 3
