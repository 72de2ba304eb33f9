"""A policy and its exact value on a grid: DeepSea, four rooms, the slippery grid, FrozenLake, CliffWalking.

`FiniteMDP.plot` and the page call it. Where a problem has no layout there is nothing to draw on.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from s4q.core.blocks import Array
from s4q.core.messages import Policy
from s4q.problems import FiniteMDP, GridLayout
from s4q.problems.planning import occupancies, policy_values
from s4q.report.drawing import INK, MUTED, figure_of, luminance, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Arrow = tuple[int, int, float, float]  # row, column, rows down, columns right
_GOAL, _END = "#0a7d5e", "#70757d"  # dark enough for white letters in both colour schemes
_BLOCKED = 0.03  # of a step: a shorter mean move is none
_RARE = 1e-3  # expected visits of a cell in an episode: with fewer it counts as not visited


def plot_policy(
    mdp: FiniteMDP, policy: Policy | None = None, level: int | None = None, ax: "Axes | None" = None
) -> "Axes":
    """What a policy does in every cell that it visits, over its exact value from there on.

    Args:
        mdp: A problem with a layout.
        policy: Any policy for it. None (default): an optimal one.
        level: The level to show. None (default): in each cell the level at which the policy is there most often.
        ax: The Axes to draw on. None (default): new ones.
    """
    layout = mdp.layout
    if layout is None:
        raise ValueError(
            "this problem is no grid, so its policy cannot be drawn; pass layout=GridLayout(...) to FiniteMDP if it is"
        )
    if level is not None and layout.row_is_level:
        raise ValueError(
            f"the rows of this grid are the levels, so all of them are shown; leave level out, got {level}"
        )
    if not (level is None or (isinstance(level, int) and 0 <= level < mdp.horizon)):
        raise ValueError(f"level must lie in 0..{mdp.horizon - 1}, or be None; got {level!r}")
    table = _greedy(mdp.q_star) if policy is None else mdp.policy_table(policy)
    values = (table * policy_values(mdp.transitions, mdp.rewards, table)).sum(axis=-1)  # (H, S)
    worth = np.full((layout.n_rows, layout.n_columns), np.nan)
    arrows: list[Arrow] = []
    moves = None if layout.row_is_level else mean_moves(mdp, layout)
    for h, state, (row, column) in _shown(mdp, layout, level, table):
        worth[row, column] = values[h, state]
        action = int(table[h, state].argmax())
        down, right = _falls(mdp, layout, h, state, action) if moves is None else moves[action]
        arrows.append((row, column, down, right))
    if ax is None:
        ax = new_axes((4.4, max(1.5, 3.7 * layout.n_rows / layout.n_columns)))
    _draw(ax, worth, arrows, _ends(mdp, layout))
    return ax


def mean_moves(mdp: FiniteMDP, layout: GridLayout) -> Array:
    """Where each action goes, (A, 2) as rows down and columns right: the commonest direction of its mean move.

    Near walls the mean move points elsewhere, so every free cell has a vote.
    """
    cells = np.array([(np.nan, np.nan) if cell is None else cell for cell in layout.cells], dtype=np.float64)
    known = ~np.isnan(cells[:, 0])
    votes: list[dict[tuple[int, int], int]] = [{} for _ in range(mdp.n_actions)]
    for state in np.flatnonzero(known & ~mdp.terminal).tolist():
        for action in range(mdp.n_actions):
            law = np.where(known, mdp.transitions[0, state, action], 0.0)
            mean = law @ (np.where(known[:, None], cells, 0.0) - cells[state])
            big = np.abs(mean) > _BLOCKED
            if big.sum() == 1:  # along one axis: away from walls
                way = (int(np.sign(mean[0]) * big[0]), int(np.sign(mean[1]) * big[1]))
                votes[action][way] = votes[action].get(way, 0) + 1
    return np.array([max(one.items(), key=lambda item: item[1])[0] if one else (0, 0) for one in votes], dtype=float)


def _greedy(q: Array) -> Array:
    return np.asarray(np.eye(q.shape[-1])[q.argmax(axis=-1)])


def _shown(
    mdp: FiniteMDP, layout: GridLayout, level: int | None, table: Array
) -> Iterator[tuple[int, int, tuple[int, int]]]:
    """(level, state, cell) of everything that is shown. A cell that the policy never visits stays empty."""
    visits = occupancies(mdp.transitions, mdp.start, table).sum(axis=-1)  # (H, S)
    for state, cell in enumerate(layout.cells):
        if cell is None or mdp.terminal[state]:
            continue
        if layout.row_is_level:
            yield from ((h, state, (h, cell[1])) for h in range(mdp.horizon) if mdp.reachable[h, state])
        elif level is not None:
            yield level, state, cell
        elif visits[:, state].sum() > _RARE:
            yield int(visits[:, state].argmax()), state, cell


def _falls(mdp: FiniteMDP, layout: GridLayout, h: int, state: int, action: int) -> tuple[float, float]:
    """One row down, to the likeliest column."""
    here, there = layout.cells[state], layout.cells[int(mdp.transitions[h, state, action].argmax())]
    return (0.8, 0.0) if here is None or there is None else (0.8, 0.8 * (there[1] - here[1]))


def _ends(mdp: FiniteMDP, layout: GridLayout) -> list[tuple[int, int, bool]]:
    """Row, column, and whether entering it pays the most, of the cells in which an episode ends."""
    into = None if mdp.arrival_rewards is None else mdp.arrival_rewards.max(axis=(0, 1, 2))
    best = 0.0 if into is None else float(into.max())
    return [
        (*cell, bool(into is not None and best > 0 and into[state] == best))
        for state, cell in enumerate(layout.cells)
        if cell is not None and mdp.terminal[state] and not layout.row_is_level
    ]


def _draw(ax: Any, worth: Array, arrows: list[Arrow], ends: list[tuple[int, int, bool]]) -> None:
    from matplotlib import colormaps
    from matplotlib.colors import Normalize

    n_rows, n_columns = worth.shape
    known = worth[~np.isnan(worth)]
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
    scale, colours = Normalize(low, high if high > low else low + 1.0), colormaps["viridis"]
    mesh = ax.pcolormesh(
        np.arange(n_columns + 1) - 0.5,
        np.arange(n_rows + 1) - 0.5,
        np.ma.masked_invalid(worth),
        cmap=colours,
        norm=scale,
    )
    for light in (True, False):
        some = [one for one in arrows if _is_dark(worth[one[0], one[1]], scale, colours) == light]
        still = [one for one in some if not (one[2] or one[3])]
        some = [one for one in some if one[2] or one[3]]
        paint = "#ffffff" if light else "#000000"
        if some:
            rows, columns, down, right = (np.array(values, dtype=float) for values in zip(*some, strict=True))
            ax.quiver(
                columns, rows, right, down, angles="xy", scale_units="xy", scale=1.7, pivot="mid", color=paint,
                width=0.032 / max(n_rows, n_columns) ** 0.75, headwidth=4.5, headlength=4, headaxislength=3.6,
            )  # fmt: skip
        if still:
            ax.plot([one[1] for one in still], [one[0] for one in still], "o", color=paint, markersize=2)
    for row, column, pays in ends:
        ax.fill_between([column - 0.5, column + 0.5], row - 0.5, row + 0.5, color=_GOAL if pays else _END, linewidth=0)
        ax.text(
            column,
            row,
            "goal" if pays else "end",
            ha="center",
            va="center",
            fontsize=min(8.0, 60 / n_columns),
            color="#ffffff",
        )
    ax.set_aspect("equal")
    ax.set_xlim(-0.5, n_columns - 0.5)
    ax.set_ylim(n_rows - 0.5, -0.5)
    ax.set_xticks([])
    ax.set_yticks([])
    ax.grid(visible=False)
    for side in ("left", "bottom"):
        ax.spines[side].set_visible(False)
    bar = figure_of(ax).colorbar(mesh, ax=ax, shrink=0.85, pad=0.02)
    bar.set_label("exact value from here on", color=INK, fontsize=9)
    bar.ax.tick_params(colors=MUTED, labelcolor=INK, labelsize=8)
    bar.outline.set_visible(False)


def _is_dark(value: float, scale: Any, colours: Any) -> bool:
    return bool(luminance(np.array(colours(scale(value)))) < 0.55)
