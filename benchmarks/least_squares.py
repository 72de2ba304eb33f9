"""Sums and one Cholesky factor against the paper's rank-one recursion: the same parameter, at what cost?"""

import numpy as np
from rich.table import Table

from benchmarks.clock import cpu_seconds
from s4q import Moments, StreamingLeastSquares
from s4q.core.least_squares import constrained_fit

N = 5000


def table() -> Table:
    result = Table(title=f"Least squares over {N:,} samples: sums against rank-one updates")
    for header in ("d", "sums, ms", "rank-one, ms", "ratio", "distance of the two (Sigma norm, relative)"):
        result.add_column(header, justify="right")
    for dim in (4, 16, 64):
        rng = np.random.default_rng(0)
        x = rng.normal(size=(N, dim)) / np.sqrt(dim) / 3
        y = rng.random(N)
        one = np.zeros(N, dtype=np.int64)

        def sums(x: np.ndarray = x, y: np.ndarray = y, one: np.ndarray = one) -> np.ndarray:
            return constrained_fit(Moments.of(x, one, y, 1), 1.0, 0.5)[0]

        def recursion(x: np.ndarray = x, y: np.ndarray = y, dim: int = dim) -> np.ndarray:
            fit = StreamingLeastSquares(dim, ridge=1.0)
            for a, b in zip(x, y, strict=True):
                fit.update(a, b)
            return fit.solve(radius=0.5)

        sigma = x.T @ x + np.eye(dim)
        off = sums() - recursion()
        distance = np.sqrt(off @ sigma @ off / (sums() @ sigma @ sums()))
        fast, slow = cpu_seconds(sums), cpu_seconds(recursion)
        result.add_row(f"{dim}", f"{fast * 1e3:.2f}", f"{slow * 1e3:.1f}", f"{slow / fast:.0f}", f"{distance:.0e}")
    return result
