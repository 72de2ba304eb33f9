"""The picture of classic control, from the file that `control_study.py` writes: `python peers/control_figures.py`.

`control_study.png` has the three environments: the return of training against episodes, steps and CPU seconds, and the
bytes held at the end. `python -m benchmarks.first_screen` draws s4q beside DQN from the same file, for the README.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from control_study import GOOD, NAMES, RESULTS, WINDOW

DOCS = Path(__file__).parent.parent / "docs"
COLORS = {
    "agent": "#d62728",
    "sarsa": "#7f7f7f",
    "dqn_tuned": "#1f77b4",
    "dqn_untuned": "#9ec9e8",
    "ppo_tuned": "#2ca02c",
    "ppo_untuned": "#a1d99b",
}


def smooth(returns: Sequence[float]) -> np.ndarray:
    """The mean of the last 20 episodes, or of all where there are fewer."""
    sums = np.cumsum(np.concatenate([[0.0], returns]))
    ends = np.arange(1, len(returns) + 1)
    begins = np.maximum(ends - WINDOW, 0)
    return np.asarray((sums[ends] - sums[begins]) / (ends - begins))


def runs_of(results: dict[str, Any], env_id: str, learner: str) -> list[dict[str, Any]]:
    """The runs of a learner on an environment that finished an episode."""
    found = [run for key, run in results.items() if key.startswith(f"{env_id} {learner} ")]
    return [run for run in found if run["returns"]]


def lines(axes: Any, results: dict[str, Any], env_id: str, x: str, learners: Sequence[str], width: float) -> None:
    """A line a run."""
    for learner in learners:
        runs = runs_of(results, env_id, learner)
        for run in runs:
            along = {
                "episodes": np.arange(1, len(run["returns"]) + 1),
                "steps": np.cumsum(run["lengths"]),
                "CPU seconds": np.maximum(run["cpu"], 0.01),
            }[x]
            axes.plot(along, smooth(run["returns"]), color=COLORS[learner], lw=width, alpha=0.85)
        if runs:
            axes.plot([], [], color=COLORS[learner], lw=2, label=f"{NAMES[learner]} ({len(runs)})")
    axes.axhline(GOOD[env_id], color="0.7", lw=0.8, ls="--")
    axes.set_xscale("log")
    axes.set_xlabel(x)


def study(results: dict[str, Any], path: Path) -> None:
    """All environments, all measures."""
    envs = [env_id for env_id in GOOD if any(key.startswith(env_id) for key in results)]
    figure = Figure(figsize=(15, 3.6 * len(envs) + 0.4), layout="constrained")
    grid = figure.subplots(len(envs), 4, squeeze=False)
    for row, env_id in zip(grid, envs, strict=True):
        for axes, x in zip(row, ("episodes", "steps", "CPU seconds"), strict=False):
            lines(axes, results, env_id, x, list(NAMES), 1.0)
        row[0].set_ylabel(f"{env_id}: mean of {WINDOW} returns")
        held = {one: [run["bytes"] for run in runs_of(results, env_id, one)] for one in NAMES}
        shown = {one: float(np.mean(numbers)) for one, numbers in held.items() if numbers}
        row[3].barh([NAMES[one] for one in shown], list(shown.values()), color=[COLORS[one] for one in shown])
        row[3].set_xscale("log")
        row[3].set_xlim(1e3, 1e8)
        row[3].set_xlabel("bytes held at the end")
        row[3].tick_params(axis="y", labelsize=7)
        row[3].invert_yaxis()
    # One legend above all plots: inside one it would hide lines.
    figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=len(NAMES), fontsize=9)
    figure.savefig(path, dpi=100)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="The picture of classic control.")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--folder", type=Path, default=DOCS)
    given = parser.parse_args(argv)
    results = json.loads(given.results.read_text())
    given.folder.mkdir(parents=True, exist_ok=True)
    study(results, given.folder / "control_study.png")


if __name__ == "__main__":
    main()
