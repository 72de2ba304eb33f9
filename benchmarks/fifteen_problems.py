"""The default learner beside the baselines on fifteen problems: `python -m benchmarks.fifteen_problems --help`.

Each baseline has one named setting for all problems. The score is the exact regret, or on classic control the mean
return of training as a share of the worst one possible; lower is better. The default learner should have the lowest
mean, or an interval that meets that of the lowest, on at least 12 problems, and never more than twice the best mean.
Two intervals can meet although the means differ for sure, so the ratio of the two means has an interval of its own.
A mean is over finished runs. Failed ones are counted beside it, and a problem on which a run of the default learner
failed is never met. A baseline that failed now and then keeps its mean, which flatters it, so it may still be the best.
Finished runs are kept in a SQLite file, so that a run that was stopped goes on, and more seeds can be added later.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table
from scipy.stats import bootstrap

import s4q
from s4q.comparing.results_file import PLAYING_CODE

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
    """The score of every finished run of a problem, by learner; lower is better."""
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


def failures(found: s4q.Comparison) -> dict[str, dict[str, Any]]:
    """How many runs of a learner failed, and why the last of them did, by learner."""
    result: dict[str, dict[str, Any]] = {}
    for one in found:
        if one["error"]:
            before = result.get(one["learner"], {"runs": 0})
            result[one["learner"]] = {"runs": before["runs"] + 1, "why": one["error"]}
    return result


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """The mean with its 95 % bootstrap interval, always with the same draws; a single value is its own interval."""
    mean = float(np.mean(values))
    return (mean, *_bootstrapped(np.mean, values)) if len(values) > 1 else (mean, mean, mean)


def ratio_interval(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float] | None:
    """The 95 % bootstrap interval of our mean over theirs; None where one of them has a single value."""
    if min(len(ours), len(theirs)) < 2:
        return None
    return _bootstrapped(lambda a, b, axis: np.mean(a, axis=axis) / np.mean(b, axis=axis), ours, theirs)


def _bootstrapped(statistic: Callable[..., Any], *samples: Sequence[float]) -> tuple[float, float]:
    rng, arrays = np.random.default_rng(0), tuple(np.array(sample) for sample in samples)
    found = bootstrap(arrays, statistic, n_resamples=2000, method="percentile", vectorized=True, rng=rng)
    return float(found.confidence_interval.low), float(found.confidence_interval.high)


def judged(
    by_learner: dict[str, list[float]], failed: dict[str, dict[str, Any]], before: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Where the default learner stands on a problem.

    Args:
        by_learner: Scores of the finished runs.
        failed: The failed runs, as `failures` gives them.
        before: An earlier judgement of the problem. Learners that did not play now are taken from it. None (default):
            there is none.

    Returns:
        `best` is None where no run of any learner finished. `over_the_best` is None where a run of the default learner
        failed, so that it has no mean of all seeds. `ratio` is the interval of that number; None where the default
        learner is the best.
    """
    runs = {one: len(by_learner.get(one, ())) + failed.get(one, {"runs": 0})["runs"] for one in {*by_learner, *failed}}
    seeds = min(runs.values())
    if before is not None:
        failed_before = before.get("failed", {})
        earlier = {one for one in (*before["scores"], *failed_before) if one not in runs}
        by_learner = by_learner | {one: kept for one, kept in before["scores"].items() if one in earlier}
        failed = failed | {one: kept for one, kept in failed_before.items() if one in earlier}
        seeds = min(seeds, before["seeds"]) if earlier else seeds
    intervals = {learner: interval(values) for learner, values in by_learner.items()}
    best = min(intervals, key=lambda learner: intervals[learner][0]) if intervals else None
    meets, over_the_best, ratio = False, None, None
    if best is not None and OURS in intervals and OURS not in failed:
        mean, low, high = intervals[OURS]
        meets = bool(low <= intervals[best][2] and intervals[best][1] <= high)
        over_the_best = mean / intervals[best][0]
        ratio = None if best == OURS else ratio_interval(by_learner[OURS], by_learner[best])
    return {
        "intervals": intervals,
        "best": best,
        "meets": meets,
        "over_the_best": over_the_best,
        "ratio": ratio,
        "scores": by_learner,
        "seeds": seeds,
        "failed": failed,
    }


def table(results: dict[str, Any]) -> Table:
    """A line a problem."""
    shown = Table(title="mean regret [95 % interval]; on classic control the share of the return that was missed")
    for header in (
        "problem",
        "K",
        "seeds",
        "s4q",
        "best",
        "its mean",
        "s4q / best",
        "best, or meets it",
        "failed runs",
    ):
        shown.add_column(header, justify="left" if header in ("problem", "best", "failed runs") else "right")
    for name, one in results.items():
        over, failed = one["over_the_best"], one.get("failed", {})
        shown.add_row(
            name,
            f"{one['episodes']:,}",
            f"{one['seeds']}",
            _mean_of(one, OURS),
            one["best"] or "none finished",
            _mean_of(one, one["best"]),
            "failed" if over is None else f"{over:.2f}{_range_of(one['ratio'])}",
            "yes" if one["meets"] else "no",
            ", ".join(f"{learner} {why['runs']}" for learner, why in failed.items()) or "none",
        )
    return shown


def _range_of(ends: Sequence[float] | None) -> str:
    return "" if ends is None else f" [{ends[0]:.2f}, {ends[1]:.2f}]"


def _mean_of(one: dict[str, Any], learner: str | None) -> str:
    if learner not in one["intervals"]:
        return "-"
    mean, low, high = (f"{number:.3g}" for number in one["intervals"][learner])
    return f"{mean} [{low}, {high}]"


def verdict(results: dict[str, Any]) -> list[str]:
    """Are both targets met? A problem on which a run of the default learner failed is met in neither."""
    good = sum(one["meets"] for one in results.values())
    ratios = {name: one["over_the_best"] for name, one in results.items()}
    most = max((ratio for ratio in ratios.values() if ratio is not None), default=None)
    lines = [
        f"best, or meets the best, on {good} of {len(results)} ({WANTED} of 15 wanted)",
        "no problem was finished" if most is None else f"at most {most:.2f} times the best mean ({MOST:g} wanted)",
    ]
    worse = [name for name, one in results.items() if one["ratio"] is not None and one["ratio"][0] > 1]
    lines.append(
        f"worse than the best for sure (the interval of the ratio is above 1): {', '.join(worse) or 'nowhere'}"
    )
    failed = [name for name, ratio in ratios.items() if ratio is None]
    if failed:
        lines.append(f"missed, because runs of {OURS} failed: {', '.join(failed)}")
    return lines


def figure(results: dict[str, Any], path: Path) -> None:
    """Every learner's mean over the best mean of the problem, a line a problem; no point where a run of it failed."""
    picture = Figure(figsize=(9, 5.5), layout="constrained")
    axes = picture.subplots()
    for number, learner in enumerate(LEARNERS):
        points = []
        for height, result in enumerate(reversed(results.values())):
            if learner in result["intervals"] and learner not in result.get("failed", {}):
                lowest = result["intervals"][result["best"]][0]
                points.append((max(result["intervals"][learner][0] / lowest, 1.0), height))
        ours = learner == OURS
        style = {"marker": "D", "s": 60, "color": "black", "zorder": 3} if ours else {"marker": "o", "s": 22}
        if points:
            axes.scatter(*zip(*points, strict=True), label=learner, **({"color": f"C{number % 10}"} | style))
    axes.axvline(MOST, color="0.6", lw=0.8, ls="--")
    axes.set_yticks(range(len(results)), list(reversed(results)))
    axes.set_xscale("log")
    axes.set_xlabel("mean regret over that of the best learner of the problem")
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
    picture.savefig(path, dpi=110)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="The default learner beside the baselines on fifteen problems.")
    parser.add_argument("--rows", nargs="*", default=[""], metavar="NAME_PART", help="only problems with such names")
    parser.add_argument(
        "--learners", nargs="+", default=list(LEARNERS), choices=list(LEARNERS), help=f"{OURS} always plays with them"
    )
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--control-seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0, help="to judge on seeds that nobody has looked at")
    parser.add_argument("--episodes", type=int, help="episodes of every run (default: those of the problem)")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--results", type=Path, default=Path("fifteen_problems.sqlite"), help="finished runs")
    parser.add_argument(
        "--json", type=Path, help="JSON file for means and intervals; rows and learners that do not play now are kept"
    )
    parser.add_argument("--figure", type=Path, help="PNG file")
    given = parser.parse_args(argv)
    console = Console(width=150)
    kept: dict[str, Any] = json.loads(given.json.read_text()) if given.json and given.json.exists() else {}
    if any("scores" not in one for one in kept.values()):
        parser.error(f"{given.json} is of an earlier version of this script; name another file")
    for row in ROWS:
        if not any(part in row.name for part in given.rows):
            continue
        found = s4q.compare(
            [row.problem],
            list(dict.fromkeys([OURS, *given.learners])),
            seeds=given.seeds if row.returns is None else given.control_seeds,
            first_seed=given.first_seed,
            episodes=given.episodes or row.episodes,
            processes=given.processes,
            results=given.results,
        )
        seconds = sum(one["cpu_seconds"] for one in found)
        episodes = given.episodes or row.episodes
        failed = failures(found)
        before = kept.get(row.name)
        same = before is not None and (before["episodes"], before.get("first_seed", 0)) == (episodes, given.first_seed)
        code, code_before = PLAYING_CODE, (before or {}).get("code", "unknown")
        if same and code != code_before and set((before or {})["scores"]) - {OURS, *given.learners}:
            console.print(f"{row.name}: learners that do not play now are kept as code {code_before} played them")
        judgement = judged(scores(row, found), failed, before if same else None)
        about = {"episodes": episodes, "first_seed": given.first_seed, "code": code, "cpu_seconds": round(seconds, 1)}
        kept[row.name] = {**about, **judgement}
        told = "".join(f"; {who}: {one['runs']} failed, {one['why']}" for who, one in failed.items())
        console.print(f"{row.name}: {seconds:.0f} CPU s{told}")
        if given.json:
            given.json.write_text(json.dumps(kept, indent=1) + "\n")
    results = {row.name: kept[row.name] for row in ROWS if row.name in kept}
    console.print(table(results))
    for line in verdict(results):
        console.print(line)
    if given.figure:
        figure(results, given.figure)


if __name__ == "__main__":
    main()
