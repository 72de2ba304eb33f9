"""Plots of a comparison: regret, or the mean return so far, against episodes, CPU time and bytes. Needs matplotlib."""

import re
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

_EPISODES, _REGRET, _RETURN, _CPU, _BYTES = range(5)
_AXES = ((_EPISODES, "episodes"), (_CPU, "CPU seconds"), (_BYTES, "bytes held by the learner"))


def plot_problem(rows: Sequence[Mapping[str, Any]], problem: str, directory: str | PathLike[str]) -> str:
    """A figure of three plots for one problem: a thin line for each run, a point at its end.

    Args:
        rows: The rows of a Comparison.
        problem: The name of the problem.
        directory: Where the PNG file is written; it is made if it does not exist.

    Returns:
        The name of the file.
    """
    here = [row for row in rows if row["problem"] == problem and row["curve"]]
    by_regret = any(row["regret"] is not None for row in here)
    figure = Figure(figsize=(15, 4.5), layout="constrained")
    learners = list(dict.fromkeys(row["learner"] for row in here))
    for axes, (column, label) in zip(figure.subplots(1, 3, sharey=True), _AXES, strict=True):
        for number, learner in enumerate(learners):
            color = f"C{number % 10}"
            for row in here:
                if row["learner"] == learner:
                    points = [p for p in row["curve"] if p[_REGRET if by_regret else _RETURN] is not None]
                    table = np.array([[p[column], p[_REGRET if by_regret else _RETURN]] for p in points], dtype=float)
                    if len(table):
                        axes.plot(*table.T, color=color, lw=0.7, alpha=0.6)
                        axes.plot(*table[-1], "o" if number < 10 else "s", color=color, ms=4)
            axes.plot([], [], "o-" if number < 10 else "s-", color=color, ms=4, label=learner)
        axes.set_xlabel(label)
        axes.set_xscale("log")
        if by_regret:
            axes.set_yscale("log")
    figure.axes[0].set_ylabel("regret" if by_regret else "mean return so far")
    figure.axes[-1].legend(fontsize=7)
    figure.suptitle(problem)
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{re.sub(r'[^A-Za-z0-9.-]+', '_', problem)}.png"
    figure.savefig(path, dpi=110)
    return str(path)
