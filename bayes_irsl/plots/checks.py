"""What a fit gets wrong: seen against predicted answers, and chains against one another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import stats

from bayes_irsl.diagnostics.predictive import Predictive, distribution_check, means_check, replicate
from bayes_irsl.diagnostics.sampler import free_draws
from bayes_irsl.errors import InputError
from bayes_irsl.plots import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def ppc_means(
    fit: Any,
    of: str = "subjects",
    *,
    predictive: Predictive | None = None,
    most: int = 1500,
    ax: Axes | None = None,
) -> Axes:
    """Observed mean answer of every subject (or item) against its posterior predictive interval.

    Parameters
    ----------
    fit : Fit
    of : "subjects" | "items"
    predictive : Predictive, optional
        Replicated answers where they have been made already, by ``diagnostics.replicate(fit)``.
    most : int
        Intervals to draw; of more, the worst and a random part of the rest.
    ax : Axes, optional
    """
    if of not in ("subjects", "items"):
        raise InputError(f"of = {of!r}: expected 'subjects' or 'items'")
    found = replicate(fit) if predictive is None else predictive
    if of == "subjects":
        check = means_check("row means", of, fit.responses.subjects.index, found.row_seen, found.row_replicate)
    else:
        check = means_check("column means", of, fit.responses.items.index, found.column_seen, found.column_replicate)
    table = check.table
    outside = (table["seen"] < table["lower"] - 1e-6) | (table["seen"] > table["upper"] + 1e-6)
    part = ""
    if len(table) > most:
        rng = np.random.default_rng(0)
        kept = np.sort(
            np.r_[np.arange(most // 5), rng.choice(np.arange(most // 5, len(table)), most - most // 5, False)]
        )
        table, outside = table.iloc[kept], outside.iloc[kept]
        part = f" {most:,} of {len(check.table):,} are drawn, all of the worst."
    ax = style.axes(ax)
    ax.axhline(0, color=style.INK, lw=0.8, zorder=0)
    fade = float(np.clip(30 / max(1, len(table)), 0.15, 0.8))
    for where, colour, name, marker, alpha in (
        (~outside, style.BLUE, "inside", "o", fade),
        (outside, style.VERMILION, "outside", "X", 0.9),
    ):
        rows = table[where]
        if len(rows):
            ax.vlines(
                rows["seen"],
                rows["lower"] - rows["seen"],
                rows["upper"] - rows["seen"],
                color=colour,
                alpha=alpha,
            )
            middle = rows["predicted"] - rows["seen"]
            ax.scatter(rows["seen"], middle, s=14, color=colour, marker=marker, alpha=max(alpha, 0.4), label=name)
    style.legend(ax, loc="upper left")
    caption = (
        f"Dot: posterior predictive mean minus the mean seen. Line: 90 % equal-tailed predictive interval; "
        f"{check.value:.0%} of the {of} have 0 inside theirs.{part}"
    )
    return style.label(ax, f"Mean answers of {of}", caption, "mean answer seen", "predicted minus seen")


def ppc_distribution(fit: Any, *, predictive: Predictive | None = None, ax: Axes | None = None) -> Axes:
    """Histogram of the answers seen, with the interval of replicated answers in each bin."""
    found = replicate(fit) if predictive is None else predictive
    table = distribution_check(found).table
    ax = style.axes(ax)
    place = np.arange(len(table))
    ax.bar(place, table["seen"], color=style.SKY, width=0.85, label="seen")
    error = np.abs(np.array([table["predicted"] - table["lower"], table["upper"] - table["predicted"]]))
    ax.errorbar(
        place,
        table["predicted"],
        error,
        fmt="o",
        ms=4,
        color=style.INK,
        capsize=4,
        lw=1.4,
        label="predicted",
        zorder=3,
    )
    ax.set_xticks(place, table.index, rotation=0 if len(table) < 4 else 45, ha="center" if len(table) < 4 else "right")
    style.legend(ax)
    caption = "Bars: answers seen. Dots: posterior predictive mean. Whiskers: 90 % equal-tailed predictive interval."
    return style.label(ax, "Distribution of the answers", caption, "answer", "share of answers")


def ranks(fit: Any, parameter: str | None = None, *, ax: Axes | None = None) -> Axes:
    """Ranks of a parameter's draws, chain by chain: level if the chains agree (Vehtari et al. 2021).

    Parameters
    ----------
    fit : Fit
    parameter : str, optional
        Such as "b[item 7]" or "sd_intercept[arithmetic]"; by default the one whose chains differ most.
    ax : Axes, optional
    """
    values, name = _one_parameter(fit, parameter)
    chains, length = values.shape
    rank = stats.rankdata(values).reshape(values.shape)
    bins = int(np.clip(length // 20, 5, 20))
    edges = np.linspace(0, chains * length, bins + 1)
    expected = length / bins
    spread = 1.645 * np.sqrt(expected * (1 - 1 / bins))
    ax = style.axes(ax)
    ax.axhspan(expected - spread, expected + spread, color=style.FAINT, alpha=0.18, lw=0)
    ax.axhline(expected, color=style.FAINT, lw=0.8)
    for k in range(chains):
        counts = np.histogram(rank[k], edges)[0]
        ax.stairs(counts, edges, color=style.CYCLE[k % len(style.CYCLE)], lw=1.5, label=f"chain {k}")
    ax.set_ylim(0, None)
    style.legend(ax, ncols=min(4, chains), loc="lower left")
    caption = "Grey band: 90 % interval of a count if draws were independent and all chains alike."
    return style.label(ax, f"Ranks of {name}", caption, "rank among all draws", "draws")


def trace(fit: Any, parameter: str | None = None, *, ax: Axes | None = None) -> Axes:
    """Draws of a parameter in order, one line a chain; see :func:`ranks` for the choice of the parameter."""
    values, name = _one_parameter(fit, parameter)
    ax = style.axes(ax, (6.4, 3.0))
    for k, chain in enumerate(values):
        ax.plot(chain, color=style.CYCLE[k % len(style.CYCLE)], lw=0.6, alpha=0.8, label=f"chain {k}")
    style.legend(ax, ncols=min(4, len(values)), loc="upper right")
    return style.label(ax, f"Draws of {name}", "One line a chain; no intervals.", "draw", "value")


def _one_parameter(fit: Any, parameter: str | None) -> tuple[np.ndarray, str]:
    draws, labels = free_draws(fit)
    if parameter is not None:
        found = np.flatnonzero(labels == parameter)
        if not len(found):
            raise InputError(
                f"no free parameter {parameter!r}; there are, for instance, {[str(x) for x in labels[:5]]}"
            )
        return draws[:, :, found[0]], parameter
    with np.errstate(invalid="ignore", divide="ignore"):
        apart = draws.mean(1).var(0) / draws.var(1).mean(0)
    worst = int(np.nanargmax(apart)) if np.isfinite(apart).any() else 0
    return draws[:, :, worst], str(labels[worst])
