"""What each stabiliser of S3Q and S4Q is for: `python -m benchmarks.ablations --figure docs/ablations.png`.

Eight tables: the second-order step, the target network, policy replay, discounting in its place, the bonus and the
doubling epochs, Baird's star in short and in long runs, and the memory of experience replay. Numbers are exact values
of finite problems, except the bytes.
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_limits

import s4q
from s4q import FiniteMDP, UniformPolicy
from s4q.baselines import LiveTargetS3Q, NoReplayS4Q, QLearning, QRex, SgdS3Q, VarianceReducedS3Q
from s4q.collectors import CountCollector, EpisodeCollector, GymCollector

Curves = dict[str, tuple[list[float], list[float]]]  # x and y of each line of a plot


def empty(title: str, *headers: str) -> Table:
    """A table whose first column is text."""
    result = Table(title=title)
    for header in headers:
        result.add_column(header, justify="right" if result.columns else "left")
    return result


def rare_directions(dim: int = 14) -> FiniteMDP:
    """One step of mean reward 1/2 in one of `dim` states, each half as likely as the one before."""
    chances = 0.5 ** np.arange(1, dim + 1)
    chances[-1] *= 2
    return FiniteMDP(np.eye(dim)[:, None, :], np.full((dim, 1), 0.5), chances, horizon=1)


FITS: dict[str, Callable[[FiniteMDP, int], s4q.Learner]] = {
    "S3Q (second order)": lambda mdp, _: s4q.S3Q(mdp, UniformPolicy(1)),
    "SGD, last iterate": lambda mdp, seed: SgdS3Q(mdp, UniformPolicy(1), seed=seed),
    "SGD, averaged": lambda mdp, seed: SgdS3Q(mdp, UniformPolicy(1), average=True, seed=seed),
    "variance reduced": lambda mdp, seed: VarianceReducedS3Q(mdp, UniformPolicy(1), seed=seed),
}


def first_order(epochs: int = 14, seeds: int = 6) -> tuple[Table, Curves]:
    """Excess loss against samples where directions are rare."""
    mdp, curves = rare_directions(), Curves()
    sizes = 2.0 ** np.arange(1, epochs + 1)
    shown = [5, epochs // 2 + 2, epochs - 1]
    title = f"Excess loss of the fit, d = {mdp.dim}, each direction half as likely as the one before ({seeds} seeds)"
    table = empty(title, "fit", *(f"n = {sizes[i]:,.0f}" for i in shown), "slope of the last 8 epochs")
    for name, build in FITS.items():
        losses = np.zeros((seeds, epochs))
        for seed in range(seeds):
            learner, collector = build(mdp, seed), CountCollector(mdp, seed=seed)
            for epoch in range(epochs):
                q = s4q.run(learner, collector, 2 ** (epoch + 1)).q
                losses[seed, epoch] = mdp.start @ (q.theta[0, :, 0] - 0.5) ** 2
        mean = losses.mean(axis=0)
        slope = np.polyfit(np.log(sizes[-8:]), np.log(mean[-8:]), 1)[0]
        table.add_row(name, *(f"{mean[i]:.2e}" for i in shown), f"{slope:.2f}")
        curves[name] = (sizes.tolist(), mean.tolist())
    return table, curves


def live_targets(horizons: Sequence[int] = (2, 4, 8, 16), episodes: int = 600) -> tuple[Table, Curves]:
    """What the value of the first level lacks, where every step pays 1."""
    table = empty(f"Shortfall of Q at the first level, {episodes} episodes that pay 1 a step", "horizon", "S3Q", "live")
    plain, live = list[float](), list[float]()
    for horizon in horizons:
        mdp = FiniteMDP(np.ones((1, 1, 1)), [[1.0]], [1.0], horizon=horizon, reward_noise="none")
        for found, learner in (
            (plain, s4q.S3Q(mdp, UniformPolicy(1), ridge=1e-3)),
            (live, LiveTargetS3Q(mdp, UniformPolicy(1), ridge=1e-3)),
        ):
            q = s4q.run(learner, CountCollector(mdp, seed=0), episodes).q  # type: ignore[arg-type]
            found.append(1.0 - q.theta[0].item() / horizon)
        table.add_row(f"{horizon}", f"{plain[-1]:.2%}", f"{live[-1]:.2%}")
    points = [float(h) for h in horizons]
    return table, {"S3Q (target network)": (points, plain), "live targets": (points, live)}


WITHOUT: dict[str, Callable[[FiniteMDP], s4q.Learner]] = {
    "targets made again (experience replay)": lambda mdp: s4q.S4Q(mdp, "practical", memory="all", pool=False),
    "policy replay": lambda mdp: s4q.S4Q(mdp, "practical", memory="policies", pool=False),
    "no replay": lambda mdp: NoReplayS4Q(mdp, "practical", pool=False),
    "no replay, old sums halved a phase": lambda mdp: NoReplayS4Q(mdp, "practical", keep=0.5, pool=False),
}


def no_replay(powers: Sequence[int] = (3, 4, 5, 6)) -> tuple[Table, Curves]:
    """What Q promises beyond V*, and the regret, as episodes go by."""
    mdp = s4q.problems.river_swim(4, horizon=6)
    table = empty(
        f"RiverSwim (4, 6), practical constants, levels not pooled: promise minus V* ({mdp.v_star:.3f}), and regret",
        "learner",
        *(f"K = 1e{power}" for power in powers),
        f"regret at 1e{powers[-1]}",
        "bytes",
    )
    curves = Curves()
    for name, build in WITHOUT.items():
        learner, collector = build(mdp), CountCollector(mdp, seed=0)
        excess, regret, played, points = list[float](), 0.0, 0, list[float]()
        for power in powers:
            run = s4q.run(learner, collector, 10**power - played)
            played = 10**power
            regret += run.regret or 0.0
            excess.append((run.optimistic_value or 0.0) - mdp.v_star)
            points.append(float(played))
        table.add_row(name, *(f"{one:.4f}" for one in excess), f"{regret:.0f}", f"{run.nbytes:,}")
        curves[name] = (points, excess)
    return table, curves


SETTINGS: dict[str, dict[str, Any]] = {
    "practical": {"preset": "practical"},
    "practical, no bonus": {"preset": "practical", "bonus_width": 0.0},
    "realisable, a single epoch": {"preset": "realisable"},
    "realisable, doubling epochs, c = 4": {"preset": "realisable", "epochs": "doubling", "c_replay": 4.0},
}


def settings(powers: Sequence[int] = (4, 6, 8)) -> Table:
    """The two ablations that are settings: no bonus, and the paper's doubling epochs."""
    mdp = s4q.problems.river_swim()
    columns = [f"{what} at 1e{power}" for power in powers for what in ("regret", "gap")]
    table = empty(f"RiverSwim (6, 12), V* = {mdp.v_star:.4f}", "S4Q", *columns)
    for name, how in SETTINGS.items():
        cells = []
        for power in powers:
            run = s4q.run(s4q.S4Q(mdp, **how), CountCollector(mdp, seed=0), 10**power)
            cells += [f"{run.regret:,.3g}", f"{run.gap:.2g}"]
        table.add_row(name, *cells)
    return table


def forgetting(powers: Sequence[int] = (4, 6, 8, 10)) -> Table:
    """Two arms that pay 0.9 and 0.8: what is believed of the second, which is hardly played any more."""
    mdp = FiniteMDP(np.ones((1, 2, 1)), [[0.9, 0.8]], [1.0], horizon=1)
    columns = [f"{what} at 1e{power}" for power in powers for what in ("estimate", "promise")]
    table = empty("Two arms, 0.9 and 0.8: the second one (preset realisable, no replay)", "old sums", *columns)
    for keep, name in ((1.0, "kept"), (0.5, "halved a phase")):
        learner, collector, cells, played = NoReplayS4Q(mdp, keep=keep), CountCollector(mdp, seed=0), [name], 0
        for power in powers:
            s4q.run(learner, collector, 10**power - played)
            played = 10**power
            promise = learner.q.optimistic(0, mdp.features.level(0))[0, 1]
            cells += [f"{learner.q.theta[0, 1, 0]:.3f}", f"{promise:.3f}"]
        table.add_row(*cells)
    return table


STANDING, A_LEVEL = "Q-Rex, shared weights, a target that stands still for 50", "Q-learning, one parameter a level"
STARS: dict[str, Callable[[FiniteMDP], s4q.Learner]] = {
    "Q-learning, shared weights": lambda mdp: QLearning(mdp, 1.0, shared=True),
    "Q-Rex, shared weights, a new target after every episode": lambda mdp: QRex(mdp, 1.0, shared=True, target_every=1),
    STANDING: lambda mdp: QRex(mdp, 1.0, shared=True, target_every=50),
    A_LEVEL: lambda mdp: QLearning(mdp, 1.0),
    "S3Q": lambda mdp: s4q.S3Q(mdp, UniformPolicy(7)),
}


def baird(episodes: int = 100, parts: int = 5) -> tuple[Table, Curves]:
    """Largest parameter of learners on Baird's star under a uniform behaviour."""
    mdp, curves = s4q.problems.baird(), Curves()
    points = [float(episodes * (part + 1)) for part in range(parts)]
    columns = (f"{point:,.0f} episodes" for point in points)
    table = empty(f"Baird's star, V* = {mdp.v_star:.2f}, uniform behaviour: largest parameter", "learner", *columns)
    for name, build in STARS.items():
        learner, collector, sizes = build(mdp), EpisodeCollector(mdp, seed=0), list[float]()
        for _ in points:
            sizes.append(float(np.abs(s4q.run(learner, collector, episodes).q.theta).max()))
        table.add_row(name, *(f"{size:.3g}" for size in sizes))
        curves[name] = (points, sizes)
    return table, curves


def baird_in_the_long_run(powers: Sequence[int] = (3, 4), s3q_powers: Sequence[int] = (4, 6, 8)) -> Table:
    """A target that stands still beside one parameter a level, and the error of S3Q."""
    mdp = s4q.problems.baird()
    table = empty("Baird's star in the long run", "learner", "episodes", "largest parameter", "largest error of Q")
    cases = [(name, power) for name in (STANDING, A_LEVEL) for power in powers]
    for name, power in [*cases, *(("S3Q", power) for power in s3q_powers)]:
        collector = (CountCollector if name == "S3Q" else EpisodeCollector)(mdp, seed=0)
        q = s4q.run(STARS[name](mdp), collector, 10**power).q
        error = np.abs(mdp.q_values(q) - mdp.q_star)[mdp.reachable].max()
        table.add_row(name, f"{10**power:,}", f"{np.abs(q.theta).max():.3g}", f"{error:.2f}")
    return table


def memory(episodes: int = 100, parts: int = 3) -> Table:
    """Bytes that the memory of S4Q holds where states never repeat."""
    import gymnasium

    env = gymnasium.make("MountainCar-v0")
    features = s4q.features.PerAction(s4q.features.Fourier(env.observation_space, order=1), 3)
    spec = s4q.Spec.of(features, horizon=30, reward_range=(-1.0, 0.0), stationary=True)
    columns = [f"{episodes * (part + 1):,} episodes" for part in range(parts)]
    table = empty("Bytes of the memory, MountainCar cut at 30 steps, Fourier features of order 1", "memory", *columns)
    rows: dict[str, dict[str, Any]] = {
        "all steps (experience replay)": {"memory": "all"},
        "sketch of 200 kB": {"memory": "sketch", "memory_bytes": 200_000},
        "policies": {"memory": "policies"},
    }
    for name, how in rows.items():
        learner, collector = s4q.S4Q(spec, **how), GymCollector(env, features, spec, seed=0)
        cells = []
        for _ in range(parts):
            s4q.run(learner, collector, episodes)
            cells.append(f"{learner.memory.nbytes:,}")
        table.add_row(name, *cells)
    return table


@dataclass(frozen=True)
class Panel:
    """A plot of the figure."""

    title: str
    below: str  # label of the x axis
    beside: str  # label of the y axis
    curves: Curves
    scales: tuple[str, str] = ("log", "log")  # of x and y


def figure(panels: Sequence[Panel], path: Path) -> None:
    """Two plots in a row."""
    n_rows = (len(panels) + 1) // 2
    page = Figure(figsize=(11, 4.4 * n_rows), layout="constrained")
    for axes, panel in zip(page.subplots(n_rows, 2).flat, panels, strict=True):
        for name, (x, y) in panel.curves.items():
            axes.plot(x, y, "o-", ms=3, label=name)
        axes.set(title=panel.title, xlabel=panel.below, ylabel=panel.beside)
        axes.set(xscale=panel.scales[0], yscale=panel.scales[1])
        axes.legend(fontsize=8)
    page.savefig(path, dpi=90)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="What each stabiliser of S3Q and S4Q is for.")
    parser.add_argument("--figure", type=Path, help="write a PNG file with four plots")
    given = parser.parse_args(argv)
    console = Console(width=170)
    with threadpool_limits(limits=1):
        slopes, loss_curves = first_order()
        shortfalls, live_curves = live_targets()
        promises, replay_curves = no_replay()
        star, star_curves = baird()
        for table in (slopes, shortfalls, promises, forgetting(), settings(), star, baird_in_the_long_run(), memory()):
            console.print(table)
    if given.figure is not None:
        panels = (
            Panel("first-order step", "samples of the level", "excess loss", loss_curves),
            Panel("no target network", "horizon", "shortfall at the first level", live_curves, ("linear", "linear")),
            Panel("no policy replay", "episodes", "promise minus V*", replay_curves),
            Panel("Baird's star", "episodes", "largest parameter", star_curves, ("linear", "log")),
        )
        figure(panels, given.figure)


if __name__ == "__main__":
    main()
