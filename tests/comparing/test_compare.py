"""`s4q.compare`: rows against single runs, environments, and what is left out."""

import json
from pathlib import Path

import pytest
from comparisons import SMALL, invoked
from typer.testing import CliRunner

import s4q
from s4q.cli import app
from s4q.comparing.comparison import compare_plan
from s4q.comparing.plan import read_plan
from s4q.comparing.report_page import render


def test_rows_are_those_of_single_runs() -> None:
    found = s4q.compare([SMALL, "low_rank"], ["s4q", "rlsvi"], seeds=2, episodes=20, processes=1)
    assert [(row["problem"], row["learner"], row["seed"]) for row in found] == [
        (problem, learner, seed) for problem in (SMALL, "low_rank") for learner in ("s4q", "rlsvi") for seed in (0, 1)
    ]
    for row in found:
        mdp = s4q.problems.chain(3, 3) if row["problem"] == SMALL else s4q.problems.low_rank()
        learner = s4q.S4Q(mdp) if row["learner"] == "s4q" else s4q.baselines.RLSVI(mdp, seed=row["seed"])
        run = s4q.run(learner, s4q.collectors.EpisodeCollector(mdp, seed=row["seed"]), 20)
        for name in ("regret", "mean_return", "gap", "phases", "steps", "nbytes"):
            assert row[name] == getattr(run, name), name
        assert 0 < row["learner_seconds"] < row["cpu_seconds"]
        episodes, regret, mean, cpu, nbytes = row["curve"][-1]
        assert (episodes, regret, nbytes) == (20, run.regret, run.nbytes)
        assert mean == pytest.approx(run.mean_return)
        assert 0 < cpu <= row["cpu_seconds"]


def test_a_learner_that_does_not_suit_a_problem_is_left_out_there() -> None:
    found = s4q.compare([SMALL, "low_rank"], ["psrl", "s4q"], seeds=1, episodes=10, processes=1)
    assert [(row["problem"], row["learner"]) for row in found] == [(SMALL, "psrl"), (SMALL, "s4q"), ("low_rank", "s4q")]
    assert list(found.refused) == [("low_rank", "psrl")]
    assert "psrl: not played" in str(found.tables()[1].caption)
    assert repr(found) == "Comparison(3 runs, 0 failed, 1 pairs refused)"


def test_a_run_that_fails_does_not_stop_the_others() -> None:
    found = s4q.compare([SMALL], ["q_learning:step_size=50.0", "s4q"], seeds=1, episodes=300, processes=1)
    failed, fine = found.rows
    assert "QLearning has diverged" in failed["error"]
    assert fine["error"] == ""
    lines = found.summary()
    assert [(one["runs"], one["failed"], one["best"]) for one in lines] == [(0, 1, False), (1, 0, True)]
    assert "1 of 1 runs failed; seed 0: QLearning has diverged" in str(found.tables()[0].caption)


def test_a_problem_that_no_learner_suits_is_said(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=r"^low_rank is not played, because no learner suits it: psrl: problem must"):
        found = s4q.compare([SMALL, "low_rank"], ["psrl", "ucbvi"], seeds=1, episodes=3, processes=1)
    assert (found.problems, found.not_played) == ([SMALL], ["low_rank"])
    assert "low_rank was not played, because no learner suits it." in render(found)
    said = invoked("-p", SMALL, "-p", "low_rank", "-l", "psrl", "--seeds", "1", "--episodes", "3", "-q").stderr
    assert said.startswith("note: low_rank is not played, because no learner suits it")


def test_environments_of_gymnasium() -> None:
    """FrozenLake has a table, so that its regret is exact. MountainCar has none: its score is the mean return."""
    car = {"problem": "MountainCar-v0", "reward_range": [-1, 0], "horizon": 30, "order": 1, "name": "car"}
    found = s4q.compare(["FrozenLake-v1:horizon=8", car], ["s4q", "sarsa"], seeds=2, episodes=3, processes=1)
    lake, hill = ([row for row in found if row["problem"] == problem] for problem in found.problems)
    exact = s4q.problems.from_gymnasium("FrozenLake-v1", horizon=8)
    assert all(0 < row["regret"] <= 3 * exact.v_star + 1e-12 for row in lake)
    assert all(row["regret"] is None and row["mean_return"] == -30 for row in hill)
    assert {one["score"] for one in found.summary() if one["problem"] == "car"} == {"mean_return"}
    assert "mean return" in str(found.tables()[1].columns[1].header)


def test_seeds_begin_with_the_first_one(tmp_path: Path) -> None:
    """Alike from Python, from a file and from the flag; each seed's run is the same wherever the seeds begin."""
    later = s4q.compare([SMALL], ["s4q"], seeds=2, first_seed=3, episodes=20, processes=1)
    assert [row["seed"] for row in later] == [3, 4]
    whole = s4q.compare([SMALL], ["s4q"], seeds=5, episodes=20, processes=1)
    assert [row["regret"] for row in later] == [row["regret"] for row in whole][3:]
    path = tmp_path / "plan.toml"
    path.write_text(f"problems = ['{SMALL}']\nlearners = ['s4q']\nseeds = 2\nepisodes = 20\nfirst_seed = 2\n")
    line = ["compare", str(path), "--first-seed", "3", "--json", "--processes", "1"]
    shown = json.loads(CliRunner().invoke(app, line).stdout)
    assert [(row["seed"], row["regret"]) for row in shown] == [(row["seed"], row["regret"]) for row in later]
    assert [row["seed"] for row in compare_plan(read_plan(path), processes=1)] == [2, 3]


def test_arguments_of_an_environment() -> None:
    calm = {"problem": "FrozenLake-v1", "horizon": 6, "env_kwargs": {"is_slippery": False, "map_name": "4x4"}}
    text = 'FrozenLake-v1:horizon=6,env_kwargs={is_slippery=false, map_name="4x4"}'
    found = s4q.compare([calm, text, "FrozenLake-v1:horizon=6"], ["psrl"], seeds=1, episodes=200, processes=1)
    regrets = [row["regret"] for row in found]
    assert regrets[0] == regrets[1] != regrets[2]
    assert [row["mean_return"] + row["regret"] / 200 for row in found][:2] == pytest.approx([1.0, 1.0])
