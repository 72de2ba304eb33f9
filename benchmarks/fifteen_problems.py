"""The default learner beside the baselines on fifteen problems: `python -m benchmarks.fifteen_problems --help`.

Each baseline has one named setting for all problems. The score is the exact regret, or on classic control the mean
return of training as a share of the worst one possible; lower is better. The default learner should have the lowest
mean, or an interval that meets that of the lowest, on at least 12 problems, and never more than twice the best mean.
Finished runs are kept in a SQLite file, so that a run that was stopped goes on, and more seeds can be added later.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

import s4q

OURS = "s4q"
LEARNERS = (
    OURS,
    "lsvi_ucb_tuned",
    "rlsvi_tuned",
    "fitted_q_tuned",
    "q_learning_tuned",
    "sarsa_tuned",
    "replay_q_tuned",
    "q_rex_tuned",
    "ucb_q_tuned",
    "ucbvi_tuned",
    "psrl",
)
WANTED, MOST = 12, 2.0  # problems with the lowest mean or an interval that meets it; most over the best mean


@dataclass(frozen=True)
class Row:
    """A problem, its episodes, and for classic control the worst and the best return."""

    name: str
    problem: str
    episodes: int
    returns: tuple[float, float] | None = None


ROWS = (
    Row("chain", "chain", 2000),
    Row("DeepSea 20", "deep_sea:size=20", 1000),
    Row("DeepSea 10, stochastic", "deep_sea:size=10,stochastic=true", 1000),
    Row("lock A=10 H=10", "combination_lock", 1000),
    Row("RiverSwim 12", "river_swim:n_states=12,horizon=24", 2000),
    Row("FrozenLake 8x8", "FrozenLake8x8-v1:horizon=100,value_bound=1.0", 1000),
    Row("four rooms", "four_rooms", 500),
    Row("dense random, seed 0", "dense_random", 2000),
    Row("dense random, seed 1", "dense_random:seed=1", 2000),
    Row("low_rank d=10", "low_rank:dim=10", 1000),
    Row("bellman_closed", "bellman_closed", 1000),
    Row("perturbed_low_rank", "perturbed_low_rank", 1000),
    Row("DeepSea 10, columns in pairs", "aggregated_deep_sea", 1000),
    Row("CartPole", "CartPole-v1:horizon=200", 60, returns=(0.0, 200.0)),
    Row("MountainCar", "MountainCar-v0", 60, returns=(-200.0, 0.0)),
)


def scores(row: Row, found: s4q.Comparison) -> dict[str, list[float]]:
    """The score of every run of a problem, by learner; lower is better."""
    result: dict[str, list[float]] = {}
    for one in found:
        if one["error"]:
            continue
        score = one["regret"]
        if row.returns is not None:
            worst, best = row.returns
            score = (best - one["mean_return"]) / (best - worst)
        result.setdefault(one["learner"], []).append(float(score))
    return result


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """The mean with its 95 % bootstrap interval, always with the same draws."""
    array = np.array(values)
    draws = np.random.default_rng(0).integers(len(array), size=(2000, len(array)))
    low, high = np.quantile(array[draws].mean(axis=1), [0.025, 0.975])
    return float(array.mean()), float(low), float(high)


def judged(by_learner: dict[str, list[float]]) -> dict[str, Any]:
    """Where the default learner stands on a problem."""
    intervals = {learner: interval(values) for learner, values in by_learner.items()}
    best = min(intervals, key=lambda learner: intervals[learner][0])
    mean, low, high = intervals[OURS]
    return {
        "intervals": intervals,
        "best": best,
        "meets": bool(low <= intervals[best][2] and intervals[best][1] <= high),
        "over_the_best": mean / intervals[best][0],
        "seeds": min(len(values) for values in by_learner.values()),
    }


def table(results: dict[str, Any]) -> Table:
    """A line a problem."""
    shown = Table(title="mean regret [95 % interval]; on classic control the share of the return that was missed")
    for header in ("problem", "K", "seeds", "s4q", "best", "its mean", "s4q / best", "best, or meets it"):
        shown.add_column(header, justify="left" if header in ("problem", "best") else "right")
    for name, one in results.items():
        ours, others = ([f"{number:.3g}" for number in one["intervals"][learner]] for learner in (OURS, one["best"]))
        cells = [f"{ours[0]} [{ours[1]}, {ours[2]}]", one["best"], f"{others[0]} [{others[1]}, {others[2]}]"]
        verdict = f"{one['over_the_best']:.2f}", "yes" if one["meets"] else "no"
        shown.add_row(name, f"{one['episodes']:,}", f"{one['seeds']}", *cells, *verdict)
    return shown


def figure(results: dict[str, Any], path: Path) -> None:
    """Every learner's mean over the best mean of the problem, a line a problem."""
    picture = Figure(figsize=(9, 5.5), layout="constrained")
    axes = picture.subplots()
    learners = [one for one in LEARNERS if any(one in result["intervals"] for result in results.values())]
    for number, learner in enumerate(learners):
        points = []
        for height, result in enumerate(reversed(results.values())):
            if learner in result["intervals"]:
                lowest = result["intervals"][result["best"]][0]
                points.append((max(result["intervals"][learner][0] / lowest, 1.0), height))
        ours = learner == OURS
        style = {"marker": "D", "s": 60, "color": "black", "zorder": 3} if ours else {"marker": "o", "s": 22}
        axes.scatter(*zip(*points, strict=True), label=learner, **({"color": f"C{number % 10}"} | style))
    axes.axvline(MOST, color="0.6", lw=0.8, ls="--")
    axes.set_yticks(range(len(results)), list(reversed(results)))
    axes.set_xscale("log")
    axes.set_xlabel("mean regret over that of the best learner of the problem")
    axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
    picture.savefig(path, dpi=110)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="The default learner beside the baselines on fifteen problems.")
    parser.add_argument("--rows", nargs="*", default=[""], metavar="NAME_PART", help="only problems with such names")
    parser.add_argument("--learners", nargs="+", default=list(LEARNERS), choices=list(LEARNERS))
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--control-seeds", type=int, default=5)
    parser.add_argument("--episodes", type=int, help="episodes of every run (default: those of the problem)")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--results", type=Path, default=Path("fifteen_problems.sqlite"), help="finished runs")
    parser.add_argument("--json", type=Path, help="JSON file for the means and intervals; other rows in it are kept")
    parser.add_argument("--figure", type=Path, help="PNG file")
    given = parser.parse_args(argv)
    console = Console(width=150)
    kept: dict[str, Any] = json.loads(given.json.read_text()) if given.json and given.json.exists() else {}
    for row in ROWS:
        if not any(part in row.name for part in given.rows):
            continue
        found = s4q.compare(
            [row.problem],
            given.learners,
            seeds=given.seeds if row.returns is None else given.control_seeds,
            episodes=given.episodes or row.episodes,
            processes=given.processes,
            results=given.results,
        )
        seconds = sum(one["cpu_seconds"] for one in found)
        episodes = given.episodes or row.episodes
        kept[row.name] = {"episodes": episodes, "cpu_seconds": round(seconds, 1), **judged(scores(row, found))}
        failed = {one["learner"]: one["error"] for one in found if one["error"]}
        console.print(f"{row.name}: {seconds:.0f} CPU s" + "".join(f"; {who}: {why}" for who, why in failed.items()))
        if given.json:
            given.json.write_text(json.dumps(kept, indent=1) + "\n")
    results = {row.name: kept[row.name] for row in ROWS if row.name in kept}
    console.print(table(results))
    good = sum(one["meets"] for one in results.values())
    most = max(one["over_the_best"] for one in results.values())
    console.print(f"best, or meets the best, on {good} of {len(results)} ({WANTED} of 15 wanted)")
    console.print(f"at most {most:.2f} times the best mean ({MOST:g} wanted)")
    if given.figure:
        figure(results, given.figure)


if __name__ == "__main__":
    main()
