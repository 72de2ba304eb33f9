"""Comparisons: learners x problems x seeds, in parallel processes, resumable, with intervals and plots.

`s4q.compare` and the command `s4q compare` call it. It plays runs with `s4q.run` and knows no algorithm.
"""

from s4q.comparing.comparison import compare
from s4q.comparing.results import Comparison

__all__ = ["Comparison", "compare"]
