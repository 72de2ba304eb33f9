"""What all plots share: colours, new Axes, and the Axes of a plot as an SVG that a page can hold.

The plots of this folder call it. matplotlib is imported when something is drawn, because it is an optional extra. No
plot touches pyplot or changes matplotlib's settings for others.
"""

import io
import re
from collections.abc import Iterable, Sequence
from math import log10
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from s4q.core.blocks import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MISSING = 'plots and reports need matplotlib and jinja2; install them with: pip install "s4q[report]"'

# Every colour that a plot uses. A page replaces them by its own, so that they follow its colour scheme.
INK, MUTED, GRID = "#21252b", "#6a7078", "#dfe2e6"
BLUE, ORANGE, GREEN, PURPLE = "#0b6fb3", "#d1560a", "#0a8f6c", "#a8508c"
FAINT_BLUE = "#b9d6ea"
NAMES = {
    INK: "ink",
    MUTED: "muted",
    GRID: "grid",
    BLUE: "blue",
    ORANGE: "orange",
    GREEN: "green",
    PURPLE: "purple",
    FAINT_BLUE: "faint-blue",
}

_SIZE = (4.4, 2.7)  # inches: letters are readable where a phone shows the whole width
_LETTERS = 9.5  # points
_MOST_POINTS = 240  # of a line

RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
T = TypeVar("T")


def new_axes(size: tuple[float, float] = _SIZE) -> "Axes":
    """Axes on a Figure of their own, of which pyplot knows nothing.

    Args:
        size: Width and height in inches.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError(MISSING) from None
    ax = Figure(figsize=size, layout="constrained").subplots()
    figure_of(ax).set_facecolor("none")
    plain_axes(ax)
    return ax


def plain_axes(ax: "Axes") -> None:
    """Give Axes the look that all plots share: no frame, a faint grid.

    Args:
        ax: The Axes.
    """
    ax.set_facecolor("none")
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        ax.spines[side].set_color(MUTED)
    ax.tick_params(which="both", colors=MUTED, labelcolor=INK, labelsize=_LETTERS - 1)
    ax.grid(visible=True, color=GRID, linewidth=0.6)
    ax.set_axisbelow(True)


def figure_of(ax: "Axes") -> "Figure":
    """The Figure that Axes belong to."""
    figure: Any = ax.figure
    return figure  # type: ignore[no-any-return]


def label(ax: "Axes", x: str, y: str, title: str = "") -> None:
    """Name the axes, and the plot where it has a title."""
    ax.set_xlabel(x, color=INK, fontsize=_LETTERS)
    ax.set_ylabel(y, color=INK, fontsize=_LETTERS)
    if title:
        ax.set_title(title, color=INK, fontsize=_LETTERS + 1, loc="left")


def legend(ax: "Axes") -> None:
    """A legend without a frame, where there is more than one thing to name."""
    handles, _ = ax.get_legend_handles_labels()
    if len(handles) > 1:
        ax.legend(frameon=False, fontsize=_LETTERS - 1, labelcolor=INK)


def plain_name(name: str) -> str:
    """A name that matplotlib takes neither for a formula nor for a line that has no place in a legend.

    Args:
        name: The name.

    >>> plain_name("_cost in $")
    'cost in \\\\$'
    """
    return name.replace("$", r"\$").lstrip("_") or "_"


def log_if_wide(axis: Any, values: Iterable[float | None]) -> bool:
    """Make an axis logarithmic if its values are positive and the largest is 50 times the least; was it done?"""
    known = [value for value in values if value is not None]
    wide = bool(known) and min(known) > 0 and max(known) >= 50 * min(known)
    if wide:
        (axis.axes.set_xscale if axis.axis_name == "x" else axis.axes.set_yscale)("log")
        from matplotlib.ticker import LogLocator, NullLocator

        axis.set_major_locator(LogLocator(numticks=7))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(_power)  # matplotlib's own needs its typesetting, which takes most of the time
    else:
        axis.set_major_formatter(_short)
    return wide


def _short(value: float, _position: int | None = None) -> str:
    """A number as short as a tick needs it.

    >>> _short(2_500_000.0), _short(0.25), _short(-20_000.0)
    ('2.5e6', '0.25', '-20,000')
    """
    if abs(value) >= 1e5:
        power = int(log10(abs(value)) + 1e-12)
        return f"{value / 10**power:.3g}e{power}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.4g}"


def _power(value: float, _position: int | None = None) -> str:
    """A power of ten.

    >>> _power(1000.0), _power(0.1)
    ('10³', '10⁻¹')
    """
    return "10" + str(round(log10(value))).translate(RAISED) if value > 0 else ""


def whole_ticks(axis: Any) -> None:
    """Ticks at whole numbers only: levels and phases have no halves."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(integer=True, nbins=7))


def thinned(points: Sequence[T], most: int = _MOST_POINTS) -> list[T]:
    """At most so many of the points, evenly spread, the first and the last included.

    >>> thinned(range(10), 4)
    [0, 3, 6, 9]
    """
    if len(points) <= most:
        return list(points)
    return [points[i] for i in np.unique(np.linspace(0, len(points) - 1, most).round().astype(int)).tolist()]


def inline_svg(ax: "Axes", name: str, description: str) -> str:
    """The Figure of some Axes as an SVG element for a page: the same bytes every time, and colours of the page.

    Args:
        ax: What was drawn.
        name: A name that no other plot of the page has; identifiers are made from it.
        description: What it shows, for those who cannot see it.
    """
    from xml.sax.saxutils import quoteattr

    from matplotlib import rc_context

    text = io.StringIO()
    nothing = {"Date": None, "Creator": None, "Format": None, "Type": None}
    with rc_context({"svg.hashsalt": f"s4q {name}", "svg.fonttype": "none", "font.family": "sans-serif"}):
        figure_of(ax).savefig(text, format="svg", metadata=nothing)
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :]  # without the prologue, which HTML does not know
    svg = re.sub(r"\s*<metadata>.*?</metadata>", "", svg, flags=re.S)
    svg = re.sub(r"<!--.*?-->\s*", "", svg, flags=re.S)
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)  # names such as axes_1, which every plot has
    svg = re.sub(r"font: ([\d.]+)px [^;\"]*", r"font: \1px var(--letters)", svg)
    for colour, variable in NAMES.items():
        svg = svg.replace(colour, f"var(--{variable})")
    box = re.search(r'viewBox="([^"]*)"', svg)
    inside = svg[svg.index(">", svg.index("<svg")) + 1 :]
    view = box.group(1) if box else "0 0 360 209"
    opening = f'<svg xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="{view}" role="img"'
    return f"{opening} aria-label={quoteattr(description)}>{inside}".strip()


def luminance(colours: Array) -> Array:
    """How bright colours (..., 4) look, from 0 to 1: letters on dark ones must be light."""
    return np.asarray(colours[..., :3] @ np.array([0.299, 0.587, 0.114]))
