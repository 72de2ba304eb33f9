"""The picture on the README's first screen: `python -m benchmarks.first_screen` writes docs/first_screen.png.

It draws the return of training episodes on MountainCar and CartPole: every run of `s4q.Agent(id)` with its defaults,
beside every run of DQN with the settings that were tuned for the environment. The runs are those of
`peers/results/control_study.json`, which `python peers/control_study.py` plays. Nothing is played here.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from matplotlib.figure import Figure

from s4q.report.drawing import BLUE, FAINT_BLUE, GREEN, ORANGE, label, plain_axes

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "peers" / "results" / "control_study.json"
PICTURE = ROOT / "docs" / "first_screen.png"
TITLES = {
    "MountainCar-v0": "MountainCar: -1 a step until the goal",
    "CartPole-v1": "CartPole: 1 a step until the pole falls",
}
SMOOTHED = 10  # episodes of the running mean
FAILED = -200.0  # return of an episode of MountainCar that never reaches the goal


@dataclass(frozen=True)
class Runs:
    """The returns of the training episodes of each run on one environment."""

    ours: list[list[float]]
    dqn: list[list[float]]


def read_runs(results: Path, env_id: str) -> Runs:
    """All runs of s4q and of the tuned DQN on an environment, by their seeds.

    Args:
        results: The file of `peers/control_study.py`.
        env_id: The environment.
    """
    known = json.loads(results.read_text())

    def returns(learner: str) -> list[list[float]]:
        return [run["returns"] for name, run in sorted(known.items()) if name.startswith(f"{env_id} {learner} ")]

    return Runs(returns("agent"), returns("dqn_tuned"))


def running_mean(values: Sequence[float], length: int = SMOOTHED) -> np.ndarray[Any, Any]:
    """The mean of the last `length` values at each place, fewer at the start.

    >>> running_mean([2.0, 4.0, 6.0], 2).tolist()
    [2.0, 3.0, 5.0]
    """
    sums = np.concatenate([[0.0], np.cumsum(values)])
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(ends - length, 0)
    return np.asarray((sums[ends] - sums[starts]) / (ends - starts))


def draw_panel(ax: Any, env_id: str, runs: Runs) -> None:
    """One environment: a thin line a run, and the mean of s4q's. A dot marks where runs were stopped.

    Args:
        ax: The Axes to draw on.
        env_id: The environment.
        runs: Its runs.
    """
    plain_axes(ax)
    for returns in runs.ours:
        ax.plot(range(1, len(returns) + 1), running_mean(returns), color=FAINT_BLUE, linewidth=1.0)
    shortest = min(map(len, runs.ours))
    mean = running_mean(np.mean([returns[:shortest] for returns in runs.ours], axis=0).tolist())
    ax.plot(range(1, shortest + 1), mean, color=BLUE, linewidth=2.2)
    ax.plot(shortest, mean[-1], "o", color=BLUE, markersize=4)
    for returns in runs.dqn:
        smooth = running_mean(returns)
        ax.plot(range(1, len(smooth) + 1), smooth, color=ORANGE, linewidth=1.4)
        ax.plot(len(smooth), smooth[-1], "o", color=ORANGE, markersize=4)
    solved = gym.spec(env_id).reward_threshold
    if solved is not None:
        ax.axhline(solved, color=GREEN, linewidth=1.2, linestyle=(0, (4, 3)))
    ax.set_xlim(1, 1.03 * max(map(len, [*runs.ours, *runs.dqn])))
    label(ax, "episodes of training", f"return, mean of {SMOOTHED} episodes", TITLES[env_id])


def draw(runs: dict[str, Runs], path: Path) -> None:
    """Write the picture.

    Args:
        runs: The runs, by environment.
        path: The file.
    """
    figure = Figure(figsize=(9.0, 3.8), layout="constrained", facecolor="white")  # a README is read on dark pages too
    panels = figure.subplots(1, len(runs), squeeze=False)[0]
    for ax, (env_id, found) in zip(panels, runs.items(), strict=True):
        draw_panel(ax, env_id, found)
    ours = [len(found.ours) for found in runs.values()]
    names = {
        f"s4q with its defaults, each of {_said(ours)} runs": {"color": FAINT_BLUE, "linewidth": 1.0},
        "s4q, the mean of these runs": {"color": BLUE, "linewidth": 2.2},
        "DQN with settings tuned for the environment, a line a run": {"color": ORANGE, "linewidth": 1.4},
        "what Gymnasium calls solved": {"color": GREEN, "linewidth": 1.2, "linestyle": (0, (4, 3))},
    }
    for name, style in names.items():
        panels[0].plot([], [], label=name, **style)
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=8.5)
    figure.savefig(path, dpi=150, metadata={"Software": None})


def _said(counts: Sequence[int]) -> str:
    """How many runs each panel has, once where it is the same number.

    >>> _said([5, 5]), _said([1, 2])
    ('5', '1 and 2')
    """
    return str(counts[0]) if len(set(counts)) == 1 else " and ".join(map(str, counts))


def first_success(returns: Sequence[float]) -> int | None:
    """The first episode of MountainCar that reached the goal, from 1; None where none did."""
    return next((n for n, one in enumerate(returns, start=1) if one > FAILED), None)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="The picture on the README's first screen.")
    parser.add_argument("--results", type=Path, default=RESULTS, help="the runs (default: those of the repository)")
    parser.add_argument("--out", type=Path, default=PICTURE, help="the file (default docs/first_screen.png)")
    given = parser.parse_args(argv)
    runs = {env_id: read_runs(given.results, env_id) for env_id in TITLES}
    draw(runs, given.out)
    print(given.out)
    for env_id, found in runs.items():
        for name, ones in (("s4q", found.ours), ("DQN", found.dqn)):
            last = [float(np.mean(returns[-50:])) for returns in ones]
            text = f"{env_id}, {name}: {len(ones)} runs of {min(map(len, ones))} to {max(map(len, ones))} episodes"
            text += f"; last 50 episodes {np.mean(last):.1f} ({min(last):.1f} to {max(last):.1f})"
            if env_id == "MountainCar-v0":
                text += f"; first success in episode {', '.join(str(first_success(returns)) for returns in ones)}"
            print(text)


if __name__ == "__main__":
    main()
