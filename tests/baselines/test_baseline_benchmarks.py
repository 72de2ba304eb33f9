"""The benchmarks of baselines and ablations, with tiny sizes."""

from pathlib import Path
from typing import Any

import pytest
from benchmarks import ablations, baseline_settings

import s4q
from s4q.baselines import LEARNERS
from s4q.comparing.cells import Cell, built
from s4q.comparing.plan import read_plan

BENCHMARKS = Path(__file__).parent.parent.parent / "benchmarks"


def test_a_setting_is_scored_by_its_regret_over_the_best_of_each_problem() -> None:
    def row(problem: str, learner: str, regret: float) -> dict[str, Any]:
        costs = {"mean_return": 0.0, "gap": 0.0, "phases": 1, "nbytes": 8, "cpu_seconds": 1.0, "learner_seconds": 1.0}
        return {
            "problem": problem,
            "learner": learner,
            "episodes": 9,
            "regret": regret,
            "error": "",
            "seed": 0,
            **costs,
        }

    found = s4q.Comparison([row("p", "a", 2.0), row("p", "b", 8.0), row("q", "a", 9.0), row("q", "b", 1.0)], {})
    assert baseline_settings.scores(found) == pytest.approx({"a": 3.0, "b": 2.0})
    chosen = [str(cell) for cell in baseline_settings.table("x", found).columns[-1].cells]
    assert chosen == ["", "yes"]


def test_every_setting_of_the_grid_can_be_built_on_some_problem() -> None:
    for learner, grid in baseline_settings.GRIDS.items():
        plan = baseline_settings.PROBLEMS[:1]
        names = [baseline_settings.named(learner, settings) for settings in grid]
        assert len(s4q.compare(plan, names, seeds=1, episodes=1, processes=1)) == len(grid)


def test_the_plan_of_eight_learners_leaves_nobody_out() -> None:
    plan = read_plan(BENCHMARKS / "eight_learners.toml")
    assert (len(plan.learners), len(plan.problems), plan.seeds, plan.episodes) == (8, 4, 5, 5000)
    for problem in plan.problems:
        for learner in plan.learners:
            built(Cell(problem, learner, 0, 1))


def test_both_settings_of_every_baseline_are_played() -> None:
    plan = read_plan(BENCHMARKS / "untuned_and_tuned.toml")
    wanted = [name for name, one in LEARNERS.items() if one.kind in ("untuned", "tuned")]
    assert [one.what for one in plan.learners] == ["s4q", *wanted]


def test_the_tables_of_ablations(tmp_path: Path) -> None:
    losses, curves = ablations.first_order(epochs=9, seeds=1)
    assert losses.row_count == 4
    assert all(len(x) == len(y) == 9 for x, y in curves.values())
    shortfalls, live = ablations.live_targets(horizons=(2, 3), episodes=20)
    assert shortfalls.row_count == 2
    panels = [ablations.Panel("a", "b", "c", curves), ablations.Panel("d", "e", "f", live, ("linear", "log"))]
    ablations.figure(panels, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes()[:4] == b"\x89PNG"
    assert ablations.no_replay(powers=(1, 2))[0].row_count == 4
    assert ablations.forgetting(powers=(1, 2)).row_count == 2
    off = ablations.settings(powers=(3,))
    regrets = [float(str(cell)) for cell in off.columns[1].cells]
    assert regrets[1] > 50 > 2 > regrets[0]  # without a bonus the far end is never found
    assert ablations.baird(episodes=2, parts=2)[0].row_count == 5
    assert ablations.baird_in_the_long_run(powers=(1,), s3q_powers=(2,)).row_count == 3
    assert ablations.memory(episodes=2, parts=2).row_count == 3
