"""Plots of runs, and the report: one self-contained HTML page about a run. Needs `pip install "s4q[report]"`.

`s4q report` writes the page from a checkpoint; `write_report` writes it from Python. No learner and no collector
imports this package.
"""

from s4q.report.grid_plots import plot_policy
from s4q.report.learner_plots import plot_bonus, plot_information, plot_memory_contents
from s4q.report.page import render, write_report
from s4q.report.run_plots import plot_cpu, plot_episodes, plot_gap, plot_memory, plot_phases, plot_regret, plot_run
from s4q.report.run_source import LoggedCurve, RunSource, run_of
from s4q.report.value_plots import Ranges, plot_value

__all__ = [
    "LoggedCurve",
    "Ranges",
    "RunSource",
    "plot_bonus",
    "plot_cpu",
    "plot_episodes",
    "plot_gap",
    "plot_information",
    "plot_memory",
    "plot_memory_contents",
    "plot_phases",
    "plot_policy",
    "plot_regret",
    "plot_run",
    "plot_value",
    "render",
    "run_of",
    "write_report",
]
