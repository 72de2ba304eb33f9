"""The settings called "tuned" beside others: `python -m benchmarks.baseline_settings --help`.

Every baseline plays a grid of settings on four small problems. A setting is scored by its regret over that of the best
setting of the same baseline, as a geometric mean over the problems (the interquartile mean over seeds on each). The
lowest score wins: one setting for all problems. Its seeds are from 100 on; comparisons are judged on those from 0 on.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import s4q

TABLES = ["chain:n_states=6,horizon=6", "deep_sea:size=6", "river_swim"]
PROBLEMS = [*TABLES, "low_rank"]
TABULAR = ("ucb_q", "ucbvi")
GREEDY: dict[str, Any] = {"epsilon": 0.0, "optimistic": True}
GRIDS: dict[str, list[dict[str, Any]]] = {
    "lsvi_ucb_tuned": [{"beta": beta} for beta in (0.03, 0.1, 0.3, 1.0)],
    "rlsvi_tuned": [{"sigma": sigma} for sigma in (0.03, 0.1, 0.3, 1.0)],
    "fitted_q_tuned": [{"epsilon": epsilon} for epsilon in (0.01, 0.02, 0.05, 0.1, 0.3)],
    "q_learning": [{"step_size": step, **how} for step in (0.1, 0.5, 0.9) for how in ({}, GREEDY)],
    "sarsa": [{"step_size": step, **how} for step in (0.03, 0.1, 0.5) for how in ({}, GREEDY)],
    "replay_q": [{"step_size": step, **how} for step in (0.03, 0.1, 0.5) for how in ({}, GREEDY)],
    # A target copied before every episode, and buffers of one, would be Q-learning.
    "q_rex": [
        {"step_size": step, "target_every": every, "buffer_episodes": size, **GREEDY}
        for step in (0.1, 0.5, 0.9)
        for every, size in ((2, 1), (5, 1), (1, 2), (1, 5))
    ],
    "ucb_q": [{"c": c} for c in (0.0003, 0.001, 0.003, 0.01, 0.1, 1.0)],
    "ucbvi": [{"c": c} for c in (0.03, 0.1, 0.3, 1.0)],
}


def named(learner: str, settings: dict[str, Any]) -> dict[str, Any]:
    """An entry of a comparison."""
    shown = ", ".join(f"{key}={value}" for key, value in settings.items())
    return {"name": f"{learner}, {shown}", "learner": learner, **settings}


def scores(found: s4q.Comparison) -> dict[str, float]:
    """Geometric mean over problems of the regret over the lowest regret of the problem, by learner."""
    lines = found.summary()
    ratios: dict[str, list[float]] = {}
    for problem in found.problems:
        here = [one for one in lines if one["problem"] == problem]
        lowest = min(one["iqm"] for one in here)
        for one in here:
            ratios.setdefault(one["learner"], []).append(one["iqm"] / lowest)
    return {learner: float(np.exp(np.mean(np.log(ones)))) for learner, ones in ratios.items()}


def table(learner: str, found: s4q.Comparison) -> Table:
    """A line for each setting of a baseline."""
    result = Table(title=f"{learner}: regret (IQM over seeds), {found.rows[0]['episodes']:,} episodes")
    for header in ("setting", *found.problems, "over the best", "chosen"):
        result.add_column(header, justify="left" if header == "setting" else "right")
    found_scores = scores(found)
    best = min(found_scores.values())
    for name, score in found_scores.items():
        lines = {one["problem"]: one["iqm"] for one in found.summary() if one["learner"] == name}
        cells = [f"{lines[problem]:.1f}" if problem in lines else "-" for problem in found.problems]
        result.add_row(name, *cells, f"{score:.2f}", "yes" if score == best else "")
    return result


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Settings of the baselines on four small problems.")
    parser.add_argument("--learners", nargs="+", default=list(GRIDS), choices=list(GRIDS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=100)
    parser.add_argument("--episodes", type=int, default=1000)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--results", type=Path, help="SQLite file of finished runs, to go on later")
    given = parser.parse_args(argv)
    console = Console(width=150)
    for learner in given.learners:
        found = s4q.compare(
            TABLES if learner in TABULAR else PROBLEMS,
            [named(learner, settings) for settings in GRIDS[learner]],
            seeds=given.seeds,
            first_seed=given.first_seed,
            episodes=given.episodes,
            processes=given.processes,
            results=given.results,
        )
        console.print(table(learner, found))


if __name__ == "__main__":
    main()
