"""Plots of a comparison: regret, or the mean return so far, against episodes, CPU time and bytes. Needs matplotlib."""

import re
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from s4q.report.drawing import log_if_wide, plain_name

_EPISODES, _REGRET, _RETURN, _CPU, _BYTES = range(5)
_AXES = ((_EPISODES, "episodes"), (_CPU, "CPU seconds"), (_BYTES, "most bytes held by the learner so far"))
_STYLES = ("-", (0, (6, 3)), (0, (2, 2)), (0, (6, 2, 1, 2)))


def plot_problems(rows: Sequence[Mapping[str, Any]], directory: str | PathLike[str]) -> list[str]:
    """A figure of each problem, a PNG file each.

    Args:
        rows: The rows of a Comparison.
        directory: Where the files are written; it is made if it does not exist.

    Returns:
        The names of the files.
    """
    folder, files = Path(directory), dict[str, str]()  # problems by the names of their files
    for problem in dict.fromkeys(row["problem"] for row in rows):
        name = stem = re.sub(r"[^\w.-]+", "_", problem).lstrip(".") or "problem"
        number = 2
        while name in files:
            name, number = f"{stem}_{number}", number + 1
        files[name] = problem
    written = []
    for name, problem in files.items():
        path = folder / f"{name}.png"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            figure_of_problem(rows, problem).savefig(path, dpi=110)
        except OSError as error:
            raise ValueError(f"{path} cannot be written: {error}; choose another folder or make room") from None
        written.append(str(path))
    return written


def figure_of_problem(rows: Sequence[Mapping[str, Any]], problem: str) -> Figure:
    """Three plots for one problem: a thin line for each run, a point at its end.

    Bytes go up and down, so a line shows the most of them so far. Learners that play alike lie on each other: their
    dashes and the sizes of their points differ.

    Args:
        rows: The rows of a Comparison.
        problem: The name of the problem.
    """
    every = [row for row in rows if row["problem"] == problem]
    here = [row for row in every if row["curve"]]
    score = _REGRET if any(row["regret"] is not None for row in here) else _RETURN
    learners = list(dict.fromkeys(row["learner"] for row in every))
    finished = {row["learner"] for row in here}
    figure = Figure(figsize=(17, max(4.5, 1.0 + 0.2 * len(learners))), layout="constrained")
    for axes, (column, label) in zip(figure.subplots(1, 3, sharey=True), _AXES, strict=True):
        shown = []
        for number, learner in enumerate(learners):
            color, mark, style = f"C{number % 10}", "osD^"[number // 10 % 4], _STYLES[number % len(_STYLES)]
            size = 4 + 4 * (len(learners) - 1 - number) / len(learners)
            for row in here:
                points = [[p[column], p[score]] for p in row["curve"] if p[score] is not None]
                if row["learner"] == learner and points:
                    along, scores = np.array(points, dtype=np.float64).T
                    along = np.maximum.accumulate(along)
                    axes.plot(along, scores, color=color, lw=0.9, alpha=0.7, linestyle=style)
                    axes.plot(along[-1], scores[-1], mark, color=color, ms=size)
                    shown += points
            name = plain_name(learner) if learner in finished else f"{plain_name(learner)} (failed)"
            axes.plot([], [], marker=mark, color=color, ms=size, linestyle=style, label=name)
        axes.set_xlabel(label)
        if not log_if_wide(axes.xaxis, [x for x, _ in shown]):
            axes.xaxis.set_major_locator(MaxNLocator(5))
        if score == _REGRET:
            log_if_wide(axes.yaxis, [y for _, y in shown])
    figure.axes[0].set_ylabel("regret" if score == _REGRET else "mean return so far")
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside right upper", fontsize=8, frameon=False)
    figure.suptitle(plain_name(problem))
    return figure
