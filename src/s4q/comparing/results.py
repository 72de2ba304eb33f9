"""Comparison: the rows of a comparison, a summary with intervals, tables and plots."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np
from numpy.typing import ArrayLike

from s4q.comparing.cells import rounding_of_regret
from s4q.core.blocks import Array

if TYPE_CHECKING:
    from rich.table import Table

_RESAMPLES = 2000
_LEFT_OUT_IF_NARROW = ("mean", "return", "policies", "learner CPU s")
_BEST = "best: the interval meets that of the best learner."
_COLUMNS = ("learner", "score", "mean", "return", "end gap", "policies", "bytes", "learner CPU s", "CPU s", "best")
# How often in 100 a 95 % interval misses, by the number of seeds: it is at most from the lowest to the highest run.
_MISSES = {2: 50, 3: 25, 4: 12}


@final
@dataclass(frozen=True, slots=True)
class Interval:
    """The interquartile mean of some numbers, with a 95 % bootstrap interval where there are several."""

    iqm: float
    low: float | None
    high: float | None

    def __str__(self) -> str:
        return f"{self.iqm:.4g}" if self.low is None else f"{self.iqm:.4g} [{self.low:.4g}, {self.high:.4g}]"


def interval(values: ArrayLike) -> Interval:
    """The mean of the middle half of the values, and its percentile bootstrap interval, always with the same draws.

    Args:
        values: Numbers, one a seed.

    >>> interval([1.0, 2.0, 3.0, 10.0]).iqm, interval([1.0]).low
    (2.5, None)
    """
    from scipy.stats import bootstrap, trim_mean

    array = np.asarray(values, dtype=np.float64)

    def iqm(sample: Array, axis: int = -1) -> Array:
        return np.asarray(trim_mean(sample, 0.25, axis=axis))

    middle = float(iqm(array))
    if len(array) < 2:
        return Interval(middle, None, None)
    found = bootstrap(
        (array,), iqm, n_resamples=_RESAMPLES, method="percentile", vectorized=True, rng=np.random.default_rng(0)
    ).confidence_interval
    return Interval(middle, float(found.low), float(found.high))


@final
@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """What a comparison found. `compare` makes it.

    Args:
        rows: A dict a run: problem, learner, seed, episodes, and the fields of an `Outcome`: regret, mean_return,
            scored_episodes, truncated_episodes, gap, phases, steps, nbytes, cpu_seconds, learner_seconds, curve and
            error. A point of a curve is (episodes, regret, mean return so far, CPU seconds, bytes).
        refused: Why a learner was not played on a problem, by (problem, learner).
    """

    rows: Sequence[Mapping[str, Any]]
    refused: Mapping[tuple[str, str], str]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return iter(self.rows)

    def __repr__(self) -> str:
        failed = sum(bool(row["error"]) for row in self.rows)
        return f"Comparison({len(self.rows)} runs, {failed} failed, {len(self.refused)} pairs refused)"

    @property
    def columns(self) -> list[str]:
        """Names of the values of a row."""
        return list(self.rows[0]) if self.rows else []

    @property
    def problems(self) -> list[str]:
        """The problems that were played, in their order."""
        return list(dict.fromkeys(row["problem"] for row in self.rows))

    @property
    def not_played(self) -> list[str]:
        """The problems that no learner suits; `refused` says why."""
        played = set(self.problems)
        return [one for one in dict.fromkeys(problem for problem, _ in self.refused) if one not in played]

    def to_dataframe(self) -> Any:
        """The rows as a pandas DataFrame."""
        try:
            pandas = import_module("pandas")
        except ImportError:
            raise ImportError("to_dataframe needs pandas; install it with: pip install pandas") from None
        return pandas.DataFrame([dict(row) for row in self.rows])

    def summary(self) -> list[dict[str, Any]]:
        """A dict for each problem and learner: the score (regret, or the mean return), its interval, and the costs.

        `best` is True where the interval of the score meets that of the best learner of the problem. A learner with
        failed runs is not ranked, nor one whose returns are known of some episodes only.
        """
        found: list[dict[str, Any]] = []
        for problem in self.problems:
            groups: dict[str, list[Mapping[str, Any]]] = {}
            for row in self.rows:
                if row["problem"] == problem:
                    groups.setdefault(row["learner"], []).append(row)
            found += _marked([_summed(problem, learner, rows) for learner, rows in groups.items()])
        return found

    def tables(self, *, narrow: bool = False) -> "list[Table]":
        """A table for each problem, the best learner first, those that are not ranked last.

        `rich.console.Console().print` shows them.

        Args:
            narrow: True leaves out the columns that matter least, for windows of 80 columns. False by default.
        """
        from rich.table import Table
        from rich.text import Text

        tables, summary = [], self.summary()
        for problem in self.problems:
            lines = [one for one in summary if one["problem"] == problem]
            by_regret = any(one["score"] == "regret" for one in lines)
            first, shown, played = lines[0], list[int](), any(one["runs"] for one in lines)
            seeds = first["runs"] + first["failed"]
            title = f"{problem}: {first['episodes']:,} episodes, {seeds} seed{'s' * (seeds != 1)}"
            table = Table(
                title=Text(title, style="table.title"),  # Text: brackets in a name are no markup
                caption=Text("\n".join([_BEST] * played + self.notes(problem)), style="table.caption"),
                caption_justify="left",
            )
            score = f"{'regret' if by_regret else 'mean return' if played else 'score'}, IQM [95 %]"
            rows = [_cells(one) for one in in_order(lines)]
            for i, name in enumerate(_COLUMNS):
                empty = name != "best" and all(row[i] == "-" for row in rows)
                if empty or (narrow and name in _LEFT_OUT_IF_NARROW) or (name == "return" and not by_regret):
                    continue  # where returns are the score, the column "mean" has them
                shown.append(i)
                # Folded, not cut: half a number in a narrow window would be a wrong one. Names are folded first.
                table.add_column(
                    score if name == "score" else name,
                    justify="left" if name in ("learner", "best") else "right",
                    overflow="fold",
                    no_wrap=narrow and name != "learner",
                )
            for row in rows:
                table.add_row(*[Text(row[i]) for i in shown])
            tables.append(table)
        return tables

    def notes(self, problem: str) -> list[str]:
        """What to know of the table of a problem, a sentence each: few seeds, learners not played, failed runs.

        Args:
            problem: The name of the problem.
        """
        here = [row for row in self.rows if row["problem"] == problem]
        seeds, finished = len({row["seed"] for row in here}), [row for row in here if not row["error"]]
        notes = []
        if seeds == 1 and finished:
            notes.append("one seed has no interval: who is best may be luck")
        if seeds in _MISSES and finished:
            misses = f"misses the true value about {_MISSES[seeds]} times in 100, not 5"
            notes.append(f"{seeds} seeds are few: a 95 % interval of {seeds} {misses}")
        notes += [f"{learner}: not played, {why}" for (where, learner), why in self.refused.items() if where == problem]
        if finished and all(row["regret"] == 0 for row in finished):
            notes.append("no run lost anything, whatever it played: nobody is better here")
        groups: dict[str, list[Mapping[str, Any]]] = {}
        for row in here:
            groups.setdefault(row["learner"], []).append(row)
        for learner, rows in groups.items():
            failed = [row for row in rows if row["error"]]
            if failed:
                last = failed[-1]
                notes.append(
                    f"{learner}: {len(failed)} of {len(rows)} runs failed; seed {last['seed']}: {last['error']}"
                )
            partly = [row for row in rows if not row["error"] and _is_partly_scored(row)]
            if partly:
                notes.append(f"{learner}: not ranked, because {_why_partly(partly[-1])}")
        return [f"{note}." for note in notes]

    def plot(self, directory: str | PathLike[str]) -> list[str]:
        """Plots of regret (or return) against episodes, CPU and bytes, a file for each problem; needs matplotlib.

        Args:
            directory: Where the PNG files are written; it is made if it does not exist.

        Returns:
            The names of the files.
        """
        try:
            from s4q.comparing.plots import plot_problems
        except ImportError:
            raise ImportError('plots need matplotlib; install it with: pip install "s4q[plot]"') from None
        return plot_problems(self.rows, directory)

    def report(self, path: str | PathLike[str]) -> Path:
        """Write one HTML page about the comparison; needs `pip install "s4q[report]"`.

        Args:
            path: The file to write.

        Returns:
            The path of the file.
        """
        from s4q.comparing.report_page import write_comparison

        return write_comparison(path, self)


def _is_partly_scored(row: Mapping[str, Any]) -> bool:
    """Is the score a mean return, and that of a part of the episodes only?"""
    return row["regret"] is None and row["scored_episodes"] < row["episodes"]


def _why_partly(row: Mapping[str, Any]) -> str:
    cut, reasons = row["truncated_episodes"], []
    if cut:
        reasons.append(
            f"{cut:,} of {row['episodes']:,} episodes were cut before the horizon and their returns are not known; "
            "give the problem a horizon of at most the time limit of the environment"
        )
    if row["scored_episodes"] + cut < row["episodes"]:
        reasons.append("it replays old policies and the returns of those episodes are not known")
    why = "; and ".join(reasons)
    if not row["scored_episodes"]:
        return why
    return f"{why}; its mean return is that of {row['scored_episodes']:,} of {row['episodes']:,} episodes"


def _summed(problem: str, learner: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    done = [row for row in rows if not row["error"]]
    score = "regret" if any(row["regret"] is not None for row in done) else "mean_return"
    values = [row[score] for row in done if row[score] is not None]
    found = interval(values) if values else None

    def mean(column: str) -> float | None:
        known = [row[column] for row in done if row[column] is not None]
        return float(np.mean(known)) if known else None

    return {
        "problem": problem,
        "learner": learner,
        "episodes": rows[0]["episodes"],
        "runs": len(done),
        "failed": len(rows) - len(done),
        "ranked": len(done) == len(rows) and not any(map(_is_partly_scored, done)),
        "score": score,
        "iqm": None if found is None else found.iqm,
        "low": None if found is None else found.low,
        "high": None if found is None else found.high,
        "mean": float(np.mean(values)) if values else None,
        **{column: mean(column) for column in ("mean_return", "gap", "phases", "nbytes")},
        **{column: mean(column) for column in ("learner_seconds", "cpu_seconds")},
    }


def _marked(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The lines of one problem, each with `best`."""
    known = [one for one in lines if one["ranked"]]
    if known:
        sign = 1.0 if known[0]["score"] == "regret" else -1.0
        winner = min(known, key=lambda one: sign * one["iqm"])
        rounding = max(rounding_of_regret(one["episodes"], one["mean_return"]) for one in known)
        for one in known:
            low, high = (one["iqm"] if one[end] is None else one[end] for end in ("low", "high"))
            other_low, other_high = (winner["iqm"] if winner[end] is None else winner[end] for end in ("low", "high"))
            one["best"] = bool(low <= other_high + rounding and other_low <= high + rounding)
    return [{"best": False, **one} for one in lines]


def in_order(lines: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Lines of one problem as they are shown: the best first, those that are not ranked last.

    Args:
        lines: Lines of `Comparison.summary`.
    """

    def place(one: Mapping[str, Any]) -> tuple[bool, bool, float]:
        score = 0.0 if one["iqm"] is None else one["iqm"]
        return not one["ranked"], one["iqm"] is None, score if one["score"] == "regret" else -score

    return sorted(lines, key=place)


def _cells(one: Mapping[str, Any]) -> list[str]:
    def number(value: float | None, form: str) -> str:
        return "-" if value is None else format(value, form)

    if not one["runs"]:
        return [one["learner"], "failed", *["-"] * 7, ""]
    shown = "-" if one["iqm"] is None else str(Interval(one["iqm"], one["low"], one["high"]))
    return [
        one["learner"],
        f"{shown} ({one['runs']} of {one['runs'] + one['failed']} runs)" if one["failed"] else shown,
        number(one["mean"], ".4g"),
        number(one["mean_return"], ".4g"),
        number(one["gap"], ".4g"),
        number(one["phases"], ".0f"),
        number(one["nbytes"], ",.0f"),
        number(one["learner_seconds"], ".2f"),
        number(one["cpu_seconds"], ".2f"),
        "yes" if one["best"] else "",
    ]
