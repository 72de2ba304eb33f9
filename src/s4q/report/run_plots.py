"""Plots of a run: one function per question, each with Axes in and out.

`Run.plot`, `Agent.plot` and the page call them. They read the curve of a Run and nothing else; a plot whose numbers a
run does not have is refused with a ValueError that says why.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from s4q.core.blocks import Array
from s4q.report.drawing import (
    BLUE,
    FAINT_BLUE,
    GREEN,
    MUTED,
    ORANGE,
    PURPLE,
    label,
    legend,
    log_if_wide,
    new_axes,
    thinned,
    whole_ticks,
)
from s4q.running.accounting import Run
from s4q.running.curve import Point

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Bound = Callable[[int], float]


def played_points(run: Run) -> list[Point]:
    """The points of the curve, in order, each after more episodes than the one before."""
    points: list[Point] = []
    for point in run.curve:
        if point.episodes > (points[-1].episodes if points else 0):
            points.append(point)
        elif points and point.episodes == points[-1].episodes and point.mean_return is not None:
            points[-1] = point  # of two phases that ended together the later one stands
    return points


def plot_run(run: Run, ax: "Axes | None" = None, *, best_return: float | None = None) -> "Axes":
    """The mean return of every phase beside what its policy promised, against episodes.

    Args:
        run: The run.
        ax: The Axes to draw on. None (default): new ones.
        best_return: The best expected return, drawn as a line where it is known. None (default): no line.
    """
    points = [point for point in played_points(run) if point.mean_return is not None]
    if not points:
        raise ValueError("there is nothing to plot: the run has played no episode of a main loop")
    ax = new_axes() if ax is None else ax
    shown = thinned(points)
    episodes = _episodes(shown)
    promises = [(k, p.optimistic_value) for k, p in zip(episodes, shown, strict=True) if p.optimistic_value is not None]
    if promises:
        style = "o" if len(promises) < 3 else "-"
        ax.plot(
            *zip(*promises, strict=True),
            style,
            color=ORANGE,
            linewidth=1.3,
            markersize=4,
            label="promised by its policy",
        )
    returns = np.array([point.mean_return for point in shown], dtype=np.float64)
    style = "o" if len(shown) < 3 else "-"
    ax.plot(episodes, returns, style, color=BLUE, linewidth=1.6, markersize=4, label="mean return of a phase")
    if best_return is not None:
        ax.axhline(best_return, color=GREEN, linewidth=1.2, linestyle=(0, (4, 3)), label="best possible")
    log_if_wide(ax.xaxis, episodes)
    log_if_wide(ax.yaxis, [])
    _limit_promises(ax, [*returns.tolist(), *([] if best_return is None else [best_return])], promises)
    # Marks on the axis show where phases ended: few long ones at the end mean that the learner is sure.
    ax.plot(episodes, np.zeros(len(episodes)), "|", color=MUTED, markersize=5, transform=ax.get_xaxis_transform())
    label(ax, "episodes", "return of an episode")
    legend(ax)
    return ax


def _limit_promises(ax: "Axes", seen: list[float], promises: list[tuple[float, float]]) -> None:
    """Let early promises leave the picture where they would press all returns into a line."""
    low, high = min(seen), max(seen)
    span = max(high - low, 1e-9)
    if max((value for _, value in promises), default=high) > high + 2 * span:
        ax.set_ylim(low - 0.08 * span, high + 0.6 * span)


def plot_regret(
    run: Run, ax: "Axes | None" = None, *, bound: Bound | None = None, uniform_gap: float | None = None
) -> "Axes":
    """Exact regret against episodes, with a square root for scale.

    Args:
        run: A run on a FiniteMDP.
        ax: The Axes to draw on. None (default): new ones.
        bound: Upper bound on the regret after so many episodes, where a theorem gives one. None (default): no line.
        uniform_gap: What an episode of the uniform policy loses, drawn as a line. None (default): no line.
    """
    points = thinned(played_points(run))
    if not points or points[-1].regret is None:
        raise ValueError("regret is known only on a FiniteMDP, where the values of all policies are exact")
    ax = new_axes() if ax is None else ax
    episodes, regret = _episodes(points), np.array([point.regret for point in points], dtype=np.float64)
    if uniform_gap is not None and uniform_gap > 0:
        ax.plot(episodes, uniform_gap * episodes, color=MUTED, linewidth=1.4, linestyle=":", label="random actions")
    guide = regret[-1] * np.sqrt(episodes / episodes[-1])
    ax.plot(episodes, guide, color=GREEN, linewidth=1.1, linestyle=(0, (4, 3)), label="square root of the episodes")
    if bound is not None:
        bounds = [bound(int(k)) for k in episodes]
        ax.plot(episodes, bounds, color=PURPLE, linewidth=1.3, linestyle="-.", label="the bound of Theorem 1")
    ax.plot(episodes, regret, color=BLUE, linewidth=1.8, label="regret of the run")
    log_if_wide(ax.xaxis, episodes)
    log_if_wide(ax.yaxis, [*regret.tolist(), (uniform_gap or 0.0) * episodes[-1] or regret[-1]])
    label(ax, "episodes", "regret, all episodes")
    legend(ax)
    return ax


def plot_gap(run: Run, ax: "Axes | None" = None, *, certified: float | None = None) -> "Axes":
    """How far the policy of each phase is from the best one, against episodes.

    Args:
        run: A run on a FiniteMDP.
        ax: The Axes to draw on. None (default): new ones.
        certified: The gap that a certificate proves at the end, drawn as a line. None (default): no line.
    """
    points = thinned(played_points(run))
    if not points or points[-1].gap is None:
        raise ValueError("the gap is known only on a FiniteMDP, where the values of all policies are exact")
    ax = new_axes() if ax is None else ax
    episodes, gaps = _episodes(points), np.maximum(np.array([point.gap for point in points], dtype=np.float64), 0.0)
    ax.step(episodes, gaps, where="pre", color=BLUE, linewidth=1.5, label="gap of the phase's policy")
    if certified is not None:
        ax.axhline(certified, color=ORANGE, linewidth=1.3, linestyle=(0, (4, 3)), label="proved by the certificate")
    log_if_wide(ax.xaxis, episodes)
    # Gaps reach 0 exactly, which a logarithmic axis cannot show.
    log_if_wide(ax.yaxis, [])
    ax.set_ylim(bottom=0.0)
    label(ax, "episodes", "gap to the best return")
    legend(ax)
    return ax


def plot_episodes(run: Run, ax: "Axes | None" = None) -> "Axes":
    """Where the episodes went: new policies, replay of old ones, evaluations, random actions that measure ranges.

    Args:
        run: The run.
        ax: The Axes to draw on. None (default): new ones.
    """
    points = thinned(played_points(run))
    if not points:
        raise ValueError("there is nothing to plot: the run has played no episode")
    ax = new_axes() if ax is None else ax
    parts = {
        "new policies": ([point.main_episodes for point in points], BLUE),
        "replay of past policies": ([point.replay_episodes for point in points], ORANGE),
        "evaluations": ([point.evaluation_episodes for point in points], GREEN),
        "random, to measure ranges": ([point.warm_up_episodes for point in points], PURPLE),
    }
    episodes = _episodes(points)
    for name, (counts, colour) in parts.items():
        if counts[-1]:
            share = 100 * np.array(counts, dtype=np.float64) / episodes
            style = "o" if len(points) < 3 else "-"
            ax.plot(episodes, share, style, color=colour, linewidth=1.6, markersize=4, label=name)
    log_if_wide(ax.xaxis, episodes)
    ax.set_ylim(-3, 103)
    label(ax, "episodes", "% of the episodes so far")
    legend(ax)
    return ax


def plot_cpu(run: Run, ax: "Axes | None" = None) -> "Axes":
    """CPU seconds against episodes.

    Args:
        run: The run.
        ax: The Axes to draw on. None (default): new ones.
    """
    points = thinned(played_points(run))
    if not points:
        raise ValueError("there is nothing to plot: the run has played no episode")
    ax = new_axes() if ax is None else ax
    episodes, seconds = _episodes(points), [point.cpu_seconds for point in points]
    ax.plot(episodes, seconds, "o" if len(points) < 3 else "-", color=BLUE, linewidth=1.6, markersize=4)
    log_if_wide(ax.xaxis, episodes)
    log_if_wide(ax.yaxis, [])
    ax.set_ylim(bottom=0.0)
    label(ax, "episodes", "CPU seconds so far")
    return ax


def plot_memory(run: Run, ax: "Axes | None" = None, *, bytes_a_step: int | None = None) -> "Axes":
    """Bytes that the learner holds against episodes.

    Args:
        run: The run.
        ax: The Axes to draw on. None (default): new ones.
        bytes_a_step: What a learner that keeps every step would need for one, drawn for scale. None: no line.
    """
    points = thinned(played_points(run))
    if not points:
        raise ValueError("there is nothing to plot: the run has played no episode")
    ax = new_axes() if ax is None else ax
    episodes, held = _episodes(points), np.array([point.nbytes for point in points], dtype=np.float64)
    everything = np.array([point.steps for point in points], dtype=np.float64) * (bytes_a_step or 0)
    style = "o" if len(points) < 3 else "-"
    ax.plot(episodes, held, style, color=BLUE, linewidth=1.8, markersize=4, label="held by this learner")
    if bytes_a_step is not None:
        ax.plot(episodes, everything, color=MUTED, linewidth=1.4, linestyle=":", label="every step kept (LSVI-UCB)")
    log_if_wide(ax.xaxis, episodes)
    shown = [*held.tolist(), *(everything.tolist() if bytes_a_step else [])]
    if not log_if_wide(ax.yaxis, shown):
        ax.set_ylim(bottom=0.0)
    label(ax, "episodes", "bytes")
    legend(ax)
    return ax


def plot_phases(run: Run, ax: "Axes | None" = None) -> "Axes":
    """How long each phase was, in episodes of its policy.

    Args:
        run: The run.
        ax: The Axes to draw on. None (default): new ones.
    """
    points = played_points(run)
    ends = [point for point in points if point.phases]
    if not ends:
        raise ValueError("there is nothing to plot: no phase has ended")
    ax = new_axes() if ax is None else ax
    lengths = np.diff([0, *(point.main_episodes for point in ends)])
    numbers = np.arange(1, len(ends) + 1)
    if ends[-1] is run.curve[-1] and len(ends) > 1 and ends[-1].phases == ends[-2].phases:
        ax.bar(numbers[-1:], lengths[-1:], width=1.0, color=FAINT_BLUE, label="running")
        numbers, lengths = numbers[:-1], lengths[:-1]
    ax.bar(numbers, lengths, width=1.0 if len(numbers) > 60 else 0.8, color=BLUE, label="finished")
    if log_if_wide(ax.yaxis, np.maximum(lengths, 1).tolist()):
        ax.set_ylim(bottom=0.8)
    label(ax, "phase", "episodes of its policy")
    whole_ticks(ax.xaxis)
    return ax


def _episodes(points: list[Point]) -> Array:
    return np.array([point.episodes for point in points], dtype=np.float64)
