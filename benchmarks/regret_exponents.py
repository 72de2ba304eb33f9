"""Regret against K, H, d and the effective dimension d~, beside the exponents of Theorem 1; prints markdown.

python -m benchmarks.regret_exponents

Random linear problems with values in [0, 1], replay included in the regret, counted episodes. One quantity moves, the
others stand. A slope is that of log regret against the log of what moves, by least squares; "bound" is the slope of
H sqrt(K) [(sum d~)(sum (d + 1) d~)]^(1/2) on the same problems, with d~ computed; "exponent" that of H^2 d^1.5 sqrt K.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import log, sqrt
from typing import final

import numpy as np
from threadpoolctl import threadpool_limits

import s4q
from s4q.learners.presets import PresetName
from s4q.problems import FiniteMDP, low_rank, padded_features
from s4q.theory import effective_dims

SEEDS = 3
EPISODES = 10**6
PRESETS: tuple[PresetName, ...] = ("realisable", "practical")


@final
@dataclass(frozen=True)
class Sweep:
    """A family of problems along one quantity."""

    name: str
    values: tuple[int, ...]
    exponent: str  # of the bound, where it has one
    problem: Callable[[int, int], FiniteMDP]  # of the value and a seed
    episodes: int | None = EPISODES  # None: the value itself


SWEEPS = (
    Sweep("K", (10**4, 10**5, 10**6, 10**7), "0.5", lambda _, seed: low_rank(seed=seed), None),
    Sweep("H", (2, 4, 8, 16), "2", lambda horizon, seed: low_rank(horizon=horizon, seed=seed)),
    Sweep("d, all excited", (2, 4, 8, 16), "1.5", lambda d, seed: low_rank(60, 4, d, seed=seed)),
    Sweep("d, 3 excited", (6, 12, 24, 48), "0.5", lambda d, seed: padded_features(dim=3, padding=d - 3, seed=seed)),
)


@final
@dataclass(frozen=True)
class Point:
    """Means over seeds: of regret by preset, of phases by preset, of d~ over levels, of the bound's expression."""

    regret: dict[PresetName, float]
    phases: dict[PresetName, float]
    effective: float
    bound: float


def measure(sweep: Sweep, value: int) -> Point:
    found: list[tuple[list[float], list[float], float, float]] = []
    for seed in range(SEEDS):
        mdp, episodes = sweep.problem(value, seed), sweep.episodes or value
        runs = [
            s4q.run(s4q.S4Q(mdp, preset), s4q.collectors.CountCollector(mdp, seed=seed), episodes) for preset in PRESETS
        ]
        ridge = s4q.S4Q(mdp, "realisable").constants.ridge(1, 0)
        dims = np.array([dim.upper for dim in effective_dims(mdp, episodes / ridge)])
        bound = mdp.horizon * sqrt(episodes) * sqrt(float(dims.sum() * ((mdp.dim + 1) * dims).sum()))
        found.append(([run.regret or 0.0 for run in runs], [run.phases for run in runs], float(dims.mean()), bound))
    regrets, phases, effective, bounds = (np.mean([row[i] for row in found], axis=0) for i in range(4))
    names = PRESETS
    return Point(
        dict(zip(names, regrets.tolist(), strict=True)),
        dict(zip(names, phases.tolist(), strict=True)),
        float(effective),
        float(bounds),
    )


def slope(values: tuple[float, ...], results: list[float]) -> float:
    """Of log results against log values, by least squares."""
    return float(np.polyfit([log(v) for v in values], [log(r) for r in results], 1)[0])


def tables() -> str:
    """Two markdown tables: slopes, and the points behind them."""
    lines = [
        "| varied | from .. to | exponent | bound | `realisable` | `practical` | d~ |",
        "|---|---|---|---|---|---|---|",
    ]
    points = [
        "| varied | value | d~ | regret `realisable` | phases | regret `practical` | phases |",
        "|---|---|---|---|---|---|---|",
    ]
    for sweep in SWEEPS:
        found = [measure(sweep, value) for value in sweep.values]
        axis = tuple(float(v) for v in sweep.values)
        slopes = [slope(axis, [p.bound for p in found])]
        slopes += [slope(axis, [p.regret[preset] for p in found]) for preset in PRESETS]
        slopes.append(slope(axis, [p.effective for p in found]))
        shown = " | ".join(f"{x:.2f}" for x in slopes)
        lines.append(f"| {sweep.name} | {sweep.values[0]:,} .. {sweep.values[-1]:,} | {sweep.exponent} | {shown} |")
        for value, p in zip(sweep.values, found, strict=True):
            cells = " | ".join(f"{p.regret[name]:,.0f} | {p.phases[name]:.0f}" for name in PRESETS)
            points.append(f"| {sweep.name} | {value:,} | {p.effective:.1f} | {cells} |")
    return "\n".join([*lines, "", *points])


def main() -> None:
    with threadpool_limits(limits=1):
        print(tables())


if __name__ == "__main__":
    main()
