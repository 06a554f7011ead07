"""One look for all plots: colours that colour-blind readers tell apart, and a caption that says what a band is."""

from __future__ import annotations

import sys
import textwrap
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito (2008)
BLUE, VERMILION, GREEN, ORANGE, PURPLE, SKY = "#0072B2", "#D55E00", "#009E73", "#E69F00", "#CC79A7", "#56B4E9"
CYCLE = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY)
MARKERS = ("o", "s", "^", "D", "v", "P")
INK, FAINT, MISSING = "#222222", "#767676", "#dddddd"


def axes(ax: Axes | None, size: tuple[float, float] = (6.4, 4.2)) -> Axes:
    """The axes given, or those of a new figure that belongs to nobody (no pyplot state)."""
    if ax is None:
        from matplotlib.figure import Figure

        ax = Figure(figsize=size, layout="constrained").subplots()
        _show_in_notebooks()
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(FAINT)
    ax.tick_params(colors=INK, labelsize=9)
    return ax


def _show_in_notebooks() -> None:
    """Have IPython, where it runs, draw figures that pyplot does not know of."""
    if "IPython" in sys.modules and (shell := sys.modules["IPython"].get_ipython()) is not None:
        from IPython.core.pylabtools import select_figure_formats

        select_figure_formats(shell, {"png"})


def label(ax: Axes, title: str, caption: str, x: str, y: str, room: float = 0.85) -> Axes:
    """Axis labels, a title, and under it the caption; ``room`` is the share of the figure's width right of the axis."""
    ax.set_xlabel(x, color=INK, fontsize=10)
    ax.set_ylabel(y, color=INK, fontsize=10)
    # before layout a lone pair of axes spans 0.775 of its figure
    width = figure_of(ax).get_size_inches()[0] * min(1.0, ax.get_position().width / 0.775)
    lines = textwrap.wrap(caption, max(30, int(width * room * 16.5)))
    ax.set_title(plain(title), loc="left", color=INK, fontsize=11, fontweight="bold", pad=8 + 11 * len(lines))
    ax.annotate(
        "\n".join(lines),
        (0, 1),
        (0, 5),
        xycoords="axes fraction",
        textcoords="offset points",
        fontsize=8,
        color=FAINT,
        va="bottom",
        linespacing=1.2,
    )
    return ax


def figure_of(ax: Axes) -> Figure:
    """The whole figure that the axes belong to, also where it has parts."""
    figure = ax.get_figure(root=True)
    assert figure is not None
    return figure


def plain(text: str, most: int = 60) -> str:
    """A name as plot text: cut where it is long, and no dollar sign that would start a formula."""
    text = str(text)
    text = text if len(text) <= most else f"{text[: most - 1]}…"
    return text.replace("$", r"\$")


def legend(ax: Axes, **options: Any) -> None:
    """A legend without a frame."""
    ax.legend(frameon=False, fontsize=8, **options)
