"""Adaptive tests: the target as answers come in, and policies against one another on recorded answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from bayes_irsl.errors import InputError
from bayes_irsl.plots import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SHOWN = {
    "rmse": "root mean squared error",
    "coverage": "share of 90 % intervals that hold the truth",
    "width": "mean width of the 90 % interval",
}


def adaptive_trace(trace: pd.DataFrame, truth: float | None = None, *, ax: Axes | None = None) -> Axes:
    """The target after every answer: posterior mean and equal-tailed interval.

    Parameters
    ----------
    trace : DataFrame
        From ``test.trace(state)``.
    truth : float, optional
        A line to compare with, where it is known.

    Example
    -------
    >>> adaptive_trace(test.trace(state), truth=0.62)
    """
    if not {"mean", "lower", "upper"} <= set(trace):
        raise InputError(f"this table has columns {list(trace)}: pass what test.trace(state) gives")
    ax = style.axes(ax)
    n = trace.index.to_numpy()
    ax.fill_between(n, trace["lower"], trace["upper"], color=style.BLUE, alpha=0.2, lw=0, step="post")
    ax.step(n, trace["mean"], where="post", color=style.BLUE, lw=1.8)
    right = "answer" in trace and trace["answer"].notna().any()
    if right and trace["answer"].dropna().isin([0, 1]).all():
        low, high = ax.get_ylim()
        for value, place, colour in ((1, high, style.GREEN), (0, low, style.VERMILION)):
            at = n[(trace["answer"] == value).to_numpy()]
            ax.scatter(at, np.full(len(at), place), marker="|", s=30, color=colour, clip_on=False)
    if truth is not None:
        ax.axhline(truth, color=style.INK, lw=1, ls="--")
    marks = " Ticks: right (above) and wrong (below) answers." if right else ""
    dashes = " Dashed: the truth." if truth is not None else ""
    return style.label(
        ax, "What is known after every answer", f"Mean and equal-tailed interval.{marks}{dashes}", "answers", "target"
    )


def replay_curves(summary: pd.DataFrame, value: str = "rmse", *, ax: Axes | None = None) -> Axes:
    """Policies on recorded answers: error, coverage or width against the number of questions.

    Parameters
    ----------
    summary : DataFrame
        From :func:`bayes_irsl.replay_summary`.
    value : "rmse", "coverage" or "width"

    Example
    -------
    >>> replay_curves(bi.replay_summary(bi.replay(responses)))
    """
    if value not in _SHOWN or not {"policy", "asked", value} <= set(summary):
        raise InputError(f"value = {value!r}: expected one of {list(_SHOWN)}, in a table that bi.replay_summary gives")
    ax = style.axes(ax)
    for i, (policy, part) in enumerate(summary.groupby("policy", sort=False)):
        x, y = part["asked"].to_numpy(), part[value].to_numpy()
        colour = style.CYCLE[i % len(style.CYCLE)]
        if f"{value}_se" in part:
            half = 1.645 * part[f"{value}_se"].to_numpy()
            ax.fill_between(x, np.maximum(y - half, 0), y + half, color=colour, alpha=0.15, lw=0)
        ax.plot(x, y, color=colour, marker=style.MARKERS[i % len(style.MARKERS)], ms=4, lw=1.6, label=str(policy))
    ax.set_xscale("log")
    ticks = np.unique(summary["asked"])
    ax.set_xticks(ticks, [str(t) for t in ticks])
    ax.minorticks_off()
    if value == "coverage":
        ax.axhline(0.9, color=style.INK, lw=1, ls="--")
        ax.set_ylim(0, 1.02)
    else:
        ax.set_ylim(bottom=0)
    ax.legend(frameon=False, fontsize=8)
    bands = "Bands: +- 1.645 standard errors over subjects." if f"{value}_se" in summary else "Means over subjects."
    return style.label(
        ax, "Which question next", f"{bands} All policies have the same estimator.", "questions", _SHOWN[value]
    )
