"""pass@k on the axes that tell: the fan far beyond the samples taken, and the tail of the rates behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import xarray as xr

from bayes_irsl.curves import pass_at_k_unbiased
from bayes_irsl.errors import InputError
from bayes_irsl.plots import style
from bayes_irsl.repeated_fit import counts
from bayes_irsl.responses import Responses

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST = len(style.CYCLE)


def passk_fan(
    forecast: xr.Dataset,
    observed: pd.DataFrame | None = None,
    *,
    benchmark: str | None = None,
    subjects: list[str] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """pass@k against k, both on log axes: mean, 50 % and 90 % bands of each subject, and unbiased estimates.

    Parameters
    ----------
    forecast : Dataset
        From :func:`bayes_irsl.pass_at_k`, kind "benchmark".
    observed : DataFrame, optional
        From :func:`observed_pass_at_k`: subject, benchmark, k, pass_at_k. Filled up to the samples taken.
    subjects : list of str, optional
        At most six; by default from the weakest to the strongest.

    Example
    -------
    >>> passk_fan(bi.pass_at_k(fit, np.logspace(0, 4, 25).round()), observed_pass_at_k(responses))
    """
    if "k" not in forecast.dims or "benchmark" not in forecast.dims:
        raise InputError(f"this forecast has dimensions {tuple(forecast.dims)}: a fan needs benchmarks and k")
    rows = "subject" if "subject" in forecast.dims else "compute"
    name = str(forecast["benchmark"].to_numpy()[0]) if benchmark is None else benchmark
    chosen = forecast["pass_at_k"].sel(benchmark=name)
    chosen = chosen if rows == "subject" else chosen.isel(pool=0)
    labels = _shown(chosen, rows, subjects)
    ax = style.axes(ax)
    k = chosen["k"].to_numpy()
    for i, label in enumerate(labels):
        draws = chosen.sel({rows: label}).transpose("draw", "k").to_numpy()
        colour = style.CYCLE[i]
        q = np.quantile(draws, [0.05, 0.25, 0.75, 0.95], axis=0)
        ax.fill_between(k, q[0], q[3], color=colour, alpha=0.14, lw=0)
        ax.fill_between(k, q[1], q[2], color=colour, alpha=0.25, lw=0)
        text = str(label) if rows == "subject" else f"{label:.1e} FLOP"
        ax.plot(k, np.median(draws, 0), color=colour, lw=1.8, label=style.plain(text, 28))
        if observed is not None and rows == "subject":
            part = observed[(observed["subject"] == label) & (observed["benchmark"] == name)]
            ax.scatter(part["k"], part["pass_at_k"], s=16, color=colour, edgecolor=style.INK, lw=0.6, zorder=3)
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_ylim(max(1e-6, float(chosen.quantile(0.01).item()) / 2), 1.3)
    ax.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    dots = " Dots: unbiased estimates." if observed is not None else ""
    caption = "Line: posterior median. Bands: 50 % and 90 % equal-tailed intervals." + dots
    return style.label(ax, f"pass@k: {name}", caption, "samples k", "pass@k", room=0.62)


def _shown(chosen: xr.DataArray, rows: str, subjects: list[str] | None) -> list[Any]:
    """Rows to draw: those asked for, or up to six from the weakest to the strongest."""
    if subjects is not None:
        if len(subjects) > MOST:
            raise InputError(f"{len(subjects)} subjects in one plot: choose at most {MOST}")
        return list(subjects)
    labels, order = chosen[rows].to_numpy().tolist(), np.argsort(chosen.mean(("draw", "k")).to_numpy())
    return [labels[i] for i in order[np.unique(np.linspace(0, len(order) - 1, MOST).round().astype(int))]]


def observed_pass_at_k(responses: Responses, k: Any = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)) -> pd.DataFrame:
    """Unbiased estimates up to the fewest samples that a subject took of an item of the benchmark.

    Returns
    -------
    DataFrame
        subject, benchmark, k, pass_at_k, items (how many were sampled), of (how many the benchmark has).
    """
    c, n = counts(responses)
    of_item = np.asarray(responses.items["benchmark"], dtype=str)
    table = pd.DataFrame(
        {
            "subject": np.asarray(responses.subjects.index, dtype=str)[responses.subject_index],
            "benchmark": of_item[responses.item_index],
            "c": c,
            "n": n,
        }
    )
    size = pd.Series(of_item).value_counts()
    rows = []
    for (subject, benchmark), part in table.groupby(["subject", "benchmark"], sort=False):
        for value in k:
            if value <= part["n"].min():
                found = pass_at_k_unbiased(part["n"], part["c"], value).mean()
                rows.append((subject, benchmark, value, found, len(part), int(size[benchmark])))
    return pd.DataFrame(rows, columns=["subject", "benchmark", "k", "pass_at_k", "items", "of"])


def tail_plot(
    forecast: xr.Dataset, *, benchmark: str | None = None, subjects: list[str] | None = None, ax: Axes | None = None
) -> Axes:
    """1 - pass@k against k on log axes: a straight line is a power law, and its slope the exponent of the tail.

    ``forecast`` is that of :func:`passk_fan`, with k over some decades.
    """
    if "k" not in forecast.dims or "subject" not in forecast.dims:
        raise InputError(f"this forecast has dimensions {tuple(forecast.dims)}: a tail needs subjects and k")
    name = str(forecast["benchmark"].to_numpy()[0]) if benchmark is None else benchmark
    chosen = forecast["pass_at_k"].sel(benchmark=name)
    ax = style.axes(ax)
    for i, label in enumerate(_shown(chosen, "subject", subjects)):
        draws = 1 - chosen.sel(subject=label).transpose("draw", "k").to_numpy()
        low, middle, high = np.quantile(draws, [0.05, 0.5, 0.95], axis=0)
        ax.fill_between(chosen["k"], low, high, color=style.CYCLE[i], alpha=0.16, lw=0)
        ax.plot(chosen["k"], middle, color=style.CYCLE[i], lw=1.8, label=style.plain(label, 28))
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    caption = "Line: posterior median. Band: 90 % equal-tailed interval. Straight is a power law."
    return style.label(ax, f"What is left unsolved: {name}", caption, "samples k", "1 - pass@k", room=0.62)
