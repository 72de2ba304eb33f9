"""The report of a comparison: one HTML file with the look of the report of a run. Needs `pip install "s4q[report]"`.

`s4q compare` writes it beside its results, and `Comparison.report` from Python. The numbers are those of
`Comparison.summary`; nothing is played.
"""

from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from s4q.comparing.results import in_order
from s4q.core.blocks import Array
from s4q.report.drawing import (
    BLUE,
    GREEN,
    INK,
    ORANGE,
    PURPLE,
    figure_of,
    inline_svg,
    label,
    log_if_wide,
    new_axes,
    plain_name,
)
from s4q.report.html_files import rendered, write_page
from s4q.report.sentences import count
from s4q.running.live_progress import byte_count

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from s4q.comparing.results import Comparison

_EPISODES, _REGRET, _RETURN, _BYTES = 0, 1, 2, 4  # columns of a kept curve
_COLOURS, _STYLES = (BLUE, ORANGE, GREEN, PURPLE), ("-", (0, (4, 2)), (0, (1, 1.2)), (0, (5, 1, 1, 1)))
_WIDTHS = (1.6, 0.7)
Look = tuple[str, Any, float]  # colour, line style, width
_GRID = 60  # points of a mean curve


def write_comparison(path: str | PathLike[str], found: "Comparison", command: str | None = None) -> Path:
    """Write the report of a comparison to one file.

    Args:
        path: The file to write.
        found: The comparison.
        command: The command that repeats it. None (default): not said.

    Returns:
        The path of the file.
    """
    return write_page(path, render(found, command))


def render(found: "Comparison", command: str | None = None) -> str:
    """The whole page as text.

    Args:
        found: The comparison.
        command: The command that repeats it. None (default): not said.
    """
    if not found.rows:
        raise ValueError("there is nothing to report: the comparison has no runs")
    summary = found.summary()
    learners = list(dict.fromkeys(row["learner"] for row in found.rows))
    by_place = {(one["problem"], one["learner"]): one for one in summary}
    failed = sum(bool(row["error"]) for row in found.rows)
    first = found.rows[0]
    tiles = [
        ("problems", str(len(found.problems)), ""),
        ("learners", str(len(learners)), ""),
        ("seeds", str(len({row["seed"] for row in found.rows})), "of each"),
        ("episodes", count(first["episodes"]), "of a run"),
        ("runs", f"{len(found.rows):,}", f"{failed} failed" if failed else "none failed"),
    ]
    overview = [
        {
            "learner": learner,
            "cells": [_overview_cell(by_place.get((problem, learner))) for problem in found.problems],
            "best_on": f"{_n_best(summary, learner)} of {len(found.problems)}",
        }
        for learner in sorted(learners, key=lambda one: -_n_best(summary, one))
    ]
    return rendered(
        "comparison.html",
        headline=headline(summary),
        meaning=_meaning(summary),
        tiles=tiles,
        overview=overview,
        overview_notes=[
            _overview_note(len({row["seed"] for row in found.rows})),
            *(f"{problem} was not played, because no learner suits it." for problem in found.not_played),
        ],
        problems=[_problem(found, problem, i, summary, learners) for i, problem in enumerate(found.problems)],
        command=command,
    )


def _overview_note(seeds: int) -> str:
    if seeds == 1:
        return "Of one seed, so there is no interval. Bold: the best, which may be luck."
    return "IQM over the seeds; in brackets its 95 % interval. Bold: best, or not to be told from the best."


def headline(summary: Sequence[Mapping[str, Any]]) -> str:
    """Who was best, in one sentence.

    Args:
        summary: The lines of `Comparison.summary`.
    """
    learners = list(dict.fromkeys(one["learner"] for one in summary))
    n_problems = len({one["problem"] for one in summary})
    most = max(_n_best(summary, learner) for learner in learners)
    leaders = [learner for learner in learners if _n_best(summary, learner) == most]
    if not most:
        finished = any(one["runs"] for one in summary)
        return "No learner can be ranked." if finished else "No run was finished, so nothing can be compared."
    who = leaders[0] if len(leaders) == 1 else f"{', '.join(leaders[:-1])} and {leaders[-1]}"
    verb, each = ("is", "") if len(leaders) == 1 else ("are", " each")
    where = "the one problem" if n_problems == 1 else f"{most} of {n_problems} problems"
    return f"{who} {verb} best, or not to be told from the best, on {where}{each}."


def _meaning(summary: Sequence[Mapping[str, Any]]) -> str:
    scores = {one["score"] for one in summary}
    if scores == {"regret"}:
        return "The score is the regret: what all episodes together fell short of the best policy. Less is better."
    if scores == {"mean_return"}:
        return "The score is the mean return of a run's episodes, those of its beginning included. More is better."
    return (
        "The score is the regret where the best policy is known: less is better. Else it is the mean return: more is."
    )


def _n_best(summary: Sequence[Mapping[str, Any]], learner: str) -> int:
    return sum(bool(one["best"]) for one in summary if one["learner"] == learner)


def _overview_cell(one: Mapping[str, Any] | None) -> dict[str, Any]:
    if one is None:
        return {"text": "not played", "best": False}
    return {"text": _interval(one) if one["runs"] else "failed", "best": one["best"]}


def _interval(one: Mapping[str, Any]) -> str:
    if one["iqm"] is None:
        return "not known"
    return f"{one['iqm']:.4g}" if one["low"] is None else f"{one['iqm']:.4g} [{one['low']:.4g}, {one['high']:.4g}]"


def _problem(
    found: "Comparison", problem: str, number: int, summary: Sequence[Mapping[str, Any]], learners: Sequence[str]
) -> dict[str, Any]:
    """What the page shows of one problem."""
    lines = [one for one in summary if one["problem"] == problem]
    by_regret = any(one["score"] == "regret" for one in lines)
    finished = [one for one in in_order(lines) if one["runs"]]
    rows = [row for row in found.rows if row["problem"] == problem and row["curve"]]
    score = "regret" if by_regret else "mean return so far"
    pictures = list(_pictures(rows, finished, score, number, learners)) if finished else []
    first = finished[0] if finished and finished[0]["ranked"] else None
    nobody = "No learner can be ranked; the notes say why." if finished else "No run was finished."
    return {
        "name": problem,
        "anchor": f"problem-{number}",
        "sentence": f"{first['learner']} has the best IQM: {_interval(first)}." if first else nobody,
        "pictures": pictures,
        "columns": ("learner", f"{'regret' if by_regret else 'mean return'}, IQM [95 %]", "mean", "mean return",
                    "end gap", "policies", "bytes", "learner CPU s", "CPU s", "runs", "best"),
        "rows": [_row(one) for one in in_order(lines)],
        "notes": found.notes(problem),
    }  # fmt: skip


def _row(one: Mapping[str, Any]) -> list[str]:
    def number(name: str, form: str) -> str:
        return "" if one[name] is None else format(one[name], form)

    runs = f"{one['runs']}" + (f", {one['failed']} failed" if one["failed"] else "")
    forms = (("mean", ".4g"), ("mean_return", ".4g"), ("gap", ".4g"), ("phases", ",.0f"), ("nbytes", ",.0f"))
    cells = [number(name, form) for name, form in (*forms, ("learner_seconds", ".3g"), ("cpu_seconds", ".3g"))]
    return [one["learner"], _interval(one) if one["runs"] else "failed", *cells, runs, "yes" if one["best"] else ""]


def _pictures(
    rows: Sequence[Mapping[str, Any]],
    ranked: Sequence[Mapping[str, Any]],
    score: str,
    number: int,
    learners: Sequence[str],
) -> Iterator[dict[str, str]]:
    column = _REGRET if score == "regret" else _RETURN
    looks = {one: (_COLOURS[i % 4], _STYLES[i // 4 % 4], _WIDTHS[i // 16 % 2]) for i, one in enumerate(learners)}
    better = "Lower is better." if score == "regret" else "Higher is better."
    known = [one for one in ranked if one["iqm"] is not None]
    if known:
        said = f"The mean over the seeds; the band is from the lowest to the highest seed. {better}"
        title = f"{score.capitalize()} against episodes"
        yield _picture(f"curve-{number}", title, plot_curves(rows, column, score, looks), said)
        said = f"IQM over the seeds, with its 95 % interval. {better}"
        name = "regret" if score == "regret" else "mean return"
        ends = [(one["learner"], one["iqm"], one["low"], one["high"]) for one in known]
        yield _picture(f"end-{number}", "At the end", plot_ends(ends, name, looks), said)
    held = sorted(ranked, key=lambda one: one["nbytes"] or 0)
    least, most = (byte_count(one["nbytes"] or 0) for one in (held[0], held[-1]))
    said = f"{held[0]['learner']} holds least at the end, {least}; {held[-1]['learner']} most, {most}."
    if least == most:
        said = f"All hold {most} at the end." if len(held) > 1 else f"It holds {most} at the end."
    yield _picture(f"bytes-{number}", "Bytes held by the learner", plot_curves(rows, _BYTES, "bytes", looks), said)
    costs = sorted((one["learner_seconds"] or 0.0, one["learner"]) for one in ranked)
    said = "The mean over the seeds, of the learner alone: the problem is not counted. Lower is better."
    ax = plot_ends([(learner, cost, None, None) for cost, learner in costs], "CPU seconds of a run", looks)
    yield _picture(f"cpu-{number}", "CPU time of the learner", ax, said)


def _picture(name: str, title: str, ax: "Axes", text: str) -> dict[str, str]:
    return {"name": name, "title": title, "svg": inline_svg(ax, name, f"{title}. {text}"), "text": text}


def plot_curves(rows: Sequence[Mapping[str, Any]], column: int, name: str, looks: Mapping[str, Look]) -> "Axes":
    """A number of the kept curves against episodes: a mean line and a band for each learner.

    Args:
        rows: The runs of one problem.
        column: Which number of a curve.
        name: What it is.
        looks: Colour, line style and line width of each learner.
    """
    named = {row["learner"] for row in rows}  # not those that failed
    longest = max(map(len, named))
    n_columns = 3 if longest <= 12 else 2 if longest <= 26 else 1
    ax = new_axes((4.4, 3.0 + 0.17 * -(-len(named) // n_columns)))
    shown: list[float] = []
    episodes = [float(point[_EPISODES]) for row in rows for point in row["curve"]]
    for learner, (colour, style, width) in looks.items():
        tables = [_table(row["curve"], column) for row in rows if row["learner"] == learner]
        tables = [table for table in tables if len(table)]
        if not tables:
            continue
        grid = np.geomspace(max(table[0, 0] for table in tables), min(table[-1, 0] for table in tables), _GRID)
        lines = np.array([np.interp(grid, table[:, 0], table[:, 1]) for table in tables])
        mean = lines.mean(axis=0)
        ax.plot(grid, mean, color=colour, linestyle=style, linewidth=width, label=plain_name(learner))
        if len(lines) > 1:
            ax.fill_between(grid, lines.min(axis=0), lines.max(axis=0), color=colour, alpha=0.15, linewidth=0)
        shown += [float(mean.min()), float(mean.max())]
    log_if_wide(ax.xaxis, episodes)
    log_if_wide(ax.yaxis, shown)
    label(ax, "episodes", name)
    figure_of(ax).legend(
        loc="outside upper left", ncols=n_columns, frameon=False, fontsize=8, handlelength=2.4, labelcolor=INK
    )
    return ax


def _table(curve: Sequence[Sequence[float | None]], column: int) -> Array:
    """Episodes and a number of a curve, (n, 2); moments at which it is not known are left out."""
    return np.array(
        [[p[_EPISODES], p[column]] for p in curve if p[column] is not None and p[_EPISODES]], dtype=np.float64
    )


def plot_ends(
    ends: Sequence[tuple[str, float, float | None, float | None]], name: str, looks: Mapping[str, Look]
) -> "Axes":
    """A number at the end of the runs of each learner, with its interval where there is one.

    Args:
        ends: Learner, number, and the ends of its interval, from top to bottom.
        name: What the number is.
        looks: Colour, line style and line width of each learner.
    """
    ax = new_axes((4.4, max(2.2, 0.7 + 0.27 * len(ends))))
    for i, (learner, value, low, high) in enumerate(ends):
        colour = looks[learner][0]
        if low is not None and high is not None:
            ax.plot([low, high], [i, i], color=colour, linewidth=2.2, solid_capstyle="butt")
        ax.plot([value], [i], "o", color=colour, markersize=5)
    log_if_wide(ax.xaxis, [value for _, value, _, _ in ends])
    ax.set_yticks(range(len(ends)), [plain_name(learner) for learner, _, _, _ in ends])
    ax.set_ylim(len(ends) - 0.5, -0.5)
    label(ax, name, "")
    return ax
