"""How sharp are the choices of `practical`? `python -m benchmarks.sensitivity` writes docs/sensitivity.png and a table.

Regret against width, ridge, trigger, replay fraction and budget, each moved over two decades while the others
stay; and the data-scaled width against simpler ones, on problems that were not used to choose it.
"""

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from rich.console import Console
from rich.table import Table

import s4q
from benchmarks.practical import random_mdp
from s4q.core.optimism import QLevel
from s4q.learners import presets
from s4q.learners.widths import data_scale, standard_errors, with_data_scaled_bonus
from s4q.problems import FiniteMDP

FACTORS = (0.1, 0.3, 1.0, 3.0, 10.0)
SEEDS = 4

PROBLEMS: dict[str, tuple[Callable[[int], FiniteMDP], int]] = {
    "chain": (lambda _: s4q.problems.chain(), 5000),
    "RiverSwim (6, 12)": (lambda _: s4q.problems.river_swim(6, 12), 5000),
    "DeepSea 10, stochastic": (lambda seed: s4q.problems.deep_sea(10, stochastic=True, seed=seed), 1000),
    "random MDP": (lambda seed: random_mdp(100 + seed), 5000),
}
FRESH: dict[str, tuple[Callable[[int], FiniteMDP], int]] = {
    "chain (15, 20)": (lambda _: s4q.problems.chain(15, 20), 3000),
    "RiverSwim (8, 20)": (lambda _: s4q.problems.river_swim(8, 20), 5000),
    "DeepSea 14, stochastic": (lambda seed: s4q.problems.deep_sea(14, stochastic=True, seed=50 + seed), 2000),
    "lock A=5 H=12": (lambda seed: s4q.problems.combination_lock(5, 12, seed=50 + seed), 1000),
    "CliffWalking H=40": (lambda _: s4q.problems.from_gymnasium("CliffWalking-v1", 40), 3000),
    "random MDP": (lambda seed: random_mdp(500 + seed), 3000),
    "bellman_closed": (lambda seed: s4q.problems.bellman_closed(seed=50 + seed), 10_000),
}


def regret(mdp: FiniteMDP, episodes: int, seed: int, **options: Any) -> float:
    run = s4q.run(s4q.S4Q(mdp, **options), s4q.collectors.CountCollector(mdp, seed=seed), episodes)
    return run.regret or 0.0


def moved(name: str, constant: str, factor: float, seed: int) -> float:
    """Regret with one constant of the preset multiplied."""
    build, episodes = PROBLEMS[name]
    mdp = build(seed)
    if constant == "trigger":
        usual = presets.Constants.threshold

        def longer(self: presets.Constants, phase: int, replaying: bool = False) -> tuple[float, float]:
            first, slope = usual(self, phase, replaying)
            return factor * first, factor * slope

        with patch.object(presets.Constants, "threshold", longer):
            return regret(mdp, episodes, seed)
    default = {
        "bonus_width": standard_errors(data_scale(mdp.spec.well_specified, mdp.spec.block_dim), mdp.horizon),
        "ridge": 1e-6,
        "c_replay": 0.25,
        "memory_bytes": 10_000,
    }
    value = default[constant] * factor
    options = {constant: int(value) if constant == "memory_bytes" else value}
    return regret(mdp, episodes, seed, **options | ({"memory": "policies"} if constant == "c_replay" else {}))


def with_level_residual_bonus(fit: QLevel, moments: Any, *, exact: bool, **constants: Any) -> QLevel:
    """A simpler scale, that of features that are not exact: one residual for the whole level."""
    del exact
    return with_data_scaled_bonus(fit, moments, exact=False, **constants)


def scaled(name: str, scale: str, seed: int) -> float:
    """Regret with one of the widths, everything else as in `practical`."""
    build, episodes = FRESH[name]
    mdp = build(seed)
    if scale == "one term, 0.1 v":
        widths = [0.1 * v for v in mdp.spec.value_bound]
        options = {
            "ridge": 0.01,
            "bonus_width": widths,
            "trigger": mdp.dim / 4,
            "memory": "sketch",
        }
        return regret(mdp, episodes, seed, preset="realisable", **options)
    if scale == "residual of the level":
        with patch.object(presets, "with_data_scaled_bonus", with_level_residual_bonus):
            return regret(mdp, episodes, seed)
    return regret(mdp, episodes, seed)


def scale_table(pool: ProcessPoolExecutor) -> Table:
    scales = ("per direction (practical)", "residual of the level", "one term, 0.1 v")
    result = Table(
        title=f"Regret by the scale of the width, problems not used to choose it ({SEEDS} seeds: mean, worst)"
    )
    for header in ("problem", "K", *scales):
        result.add_column(header, justify="right")
    for name, (_, episodes) in FRESH.items():
        cells = []
        for scale in scales:
            values = list(pool.map(partial(scaled, name, scale), range(SEEDS)))
            cells.append(f"{np.mean(values):.1f} ({max(values):.1f})")
        result.add_row(name, f"{episodes:,}", *cells)
    return result


def draw(pool: ProcessPoolExecutor, target: Path) -> None:
    import matplotlib.pyplot as plt

    labels = {
        "bonus_width": "width (default 0.25 standard errors)",
        "ridge": "ridge (default 1e-6)",
        "trigger": "trigger (default d/16)",
        "c_replay": "replay fraction c (default 0.25, memory policies)",
        "memory_bytes": "budget (10,000 bytes here)",
    }
    figure, axes = plt.subplots(1, 5, figsize=(17, 3.6), sharey=True, layout="constrained")
    for axis, (constant, label) in zip(axes, labels.items(), strict=True):
        for name in PROBLEMS:
            mean = [np.mean(list(pool.map(partial(moved, name, constant, f), range(SEEDS)))) for f in FACTORS]
            axis.plot(FACTORS, np.array(mean) / mean[FACTORS.index(1.0)], marker="o", ms=3, label=name)
        axis.set(xscale="log", yscale="log", xlabel=f"factor on {label}")
        axis.axhline(1.0, color="0.8", lw=0.8, zorder=0)
        axis.grid(alpha=0.25)
    axes[0].set_ylabel("regret / regret at the default")
    axes[-1].legend(fontsize=7)
    figure.savefig(target, dpi=110)


def main() -> None:
    root = Path(__file__).parent.parent
    with ProcessPoolExecutor(2) as pool:
        Console(width=130).print(scale_table(pool))
        draw(pool, root / "docs" / "sensitivity.png")


if __name__ == "__main__":
    main()
