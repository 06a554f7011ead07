"""Forecasts over compute: the fan, single questions, where the variance comes from, and whether intervals held."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import xarray as xr

from bayes_irsl.errors import InputError
from bayes_irsl.plots import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PARTS = {
    "trend": style.BLUE,
    "group": style.GREEN,
    "subject": style.ORANGE,
    "items": style.PURPLE,
    "measuring": style.SKY,
}


def forecast_fan(
    forecast: xr.Dataset,
    seen: pd.DataFrame | None = None,
    held_out: pd.DataFrame | None = None,
    *,
    benchmark: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Accuracy against compute: mean, 50 % and 90 % bands by group, with the scores fitted and those held out.

    Parameters
    ----------
    forecast : Dataset
        From :func:`bayes_irsl.forecast`, kind "accuracy".
    seen, held_out : DataFrame, optional
        From :func:`bayes_irsl.forecasts.score_table.score_table`: columns compute, benchmark, score.
    benchmark : str, optional
        The first of the forecast by default.
    ax : Axes, optional

    Example
    -------
    >>> fan = bi.forecast(trend, params=sizes, tokens=3e11)
    >>> forecast_fan(fan, score_table(responses))
    """
    if "accuracy" not in forecast:
        raise InputError(f"this forecast holds {list(forecast.data_vars)}: a fan needs kind='accuracy'")
    names = forecast["benchmark"].to_numpy().astype(str).tolist()
    name = names[0] if benchmark is None else benchmark
    if name not in names:
        raise InputError(f"benchmark {name!r} is not in the forecast; there are {names}")
    chosen = forecast["accuracy"].sel(benchmark=name)
    order = np.argsort(chosen["compute"].to_numpy(), kind="stable")
    x = chosen["compute"].to_numpy()[order]
    ax = style.axes(ax)
    for k, pool in enumerate(chosen["pool"].to_numpy().astype(str)):
        draws = chosen.sel(pool=pool).transpose("draw", "compute").to_numpy()[:, order]
        colour = style.CYCLE[k % len(style.CYCLE)]
        q = np.quantile(draws, [0.05, 0.25, 0.75, 0.95], axis=0)
        ax.fill_between(x, q[0], q[3], color=colour, alpha=0.14, lw=0)
        ax.fill_between(x, q[1], q[2], color=colour, alpha=0.25, lw=0)
        several = chosen.sizes["pool"] > 1
        ax.plot(x, draws.mean(0), color=colour, lw=1.8, label=style.plain(pool, 28) if several else "forecast")
    for table, fill, what in ((seen, style.INK, "fitted"), (held_out, "white", "held out")):
        if table is not None:
            part = table[table["benchmark"] == name]
            ax.scatter(
                part["compute"], part["score"], s=26, color=fill, edgecolor=style.INK, lw=0.9, zorder=3, label=what
            )
    ax.set_xscale("log")
    style.legend(ax, loc="upper left")
    caption = "Line: posterior mean. Bands: 50 % and 90 % equal-tailed intervals of " + (
        "the score that an evaluation would show." if forecast.attrs.get("measured") else "the expected accuracy."
    )
    return style.label(ax, f"Forecast: {name}", caption, "training compute (FLOP)", "accuracy")


def item_forecasts(forecast: xr.Dataset, items: list[str] | None = None, *, ax: Axes | None = None) -> Axes:
    """Probability of a right answer to single questions against compute, with 90 % bands; at most six.

    ``forecast`` is of kind "item"; by default questions from the easiest to the hardest are shown.
    """
    if "probability" not in forecast:
        raise InputError(f"this forecast holds {list(forecast.data_vars)}: single questions need kind='item'")
    chosen = forecast["probability"].isel(pool=0)
    labels = chosen["item"].to_numpy().astype(str)
    if items is None:
        hardest = np.argsort(-chosen.mean(("draw", "compute")).to_numpy(), kind="stable")
        items = labels[hardest[np.unique(np.linspace(0, len(labels) - 1, 4).astype(int))]].tolist()
    if len(items) > len(style.CYCLE):
        raise InputError(f"{len(items)} curves in one plot: choose at most {len(style.CYCLE)}")
    order = np.argsort(chosen["compute"].to_numpy(), kind="stable")
    x = chosen["compute"].to_numpy()[order]
    ax = style.axes(ax)
    for k, item in enumerate(items):
        if item not in labels:
            raise InputError(f"item {item!r} is not in the forecast; there are {labels[:10].tolist()} ...")
        draws = chosen.sel(item=item).transpose("draw", "compute").to_numpy()[:, order]
        low, high = np.quantile(draws, [0.05, 0.95], axis=0)
        ax.fill_between(x, low, high, color=style.CYCLE[k], alpha=0.18, lw=0)
        ax.plot(x, draws.mean(0), color=style.CYCLE[k], lw=1.8, label=style.plain(item, 28))
    ax.set_xscale("log")
    ax.set_ylim(-0.03, 1.03)
    style.legend(ax, loc="upper left")
    caption = "Line: posterior mean. Band: 90 % equal-tailed interval."
    return style.label(ax, "Single questions", caption, "training compute (FLOP)", "probability of a right answer")


def variance_split(forecast: xr.Dataset, *, benchmark: str | None = None, ax: Axes | None = None) -> Axes:
    """Where the variance of each forecast comes from, in shares: what to evaluate or train next.

    ``forecast`` is of kind "accuracy"; its first group is shown.
    """
    if "variance_share" not in forecast:
        raise InputError(f"this forecast holds {list(forecast.data_vars)}: a split needs kind='accuracy'")
    name = str(forecast["benchmark"].to_numpy()[0]) if benchmark is None else benchmark
    share = forecast["variance_share"].isel(pool=0).sel(benchmark=name)
    x = np.arange(share.sizes["compute"])
    ax, base = style.axes(ax), np.zeros(len(x))
    for part, colour in PARTS.items():
        height = share.sel(part=part).to_numpy()
        ax.bar(x, height, 0.75, bottom=base, color=colour, label=part, edgecolor="white", lw=0.5)
        base = base + height
    ax.set_xticks(x, [f"{c:.1e}" for c in share["compute"].to_numpy()], rotation=45 if len(x) > 6 else 0, ha="center")
    ax.set_ylim(0, 1)
    ax.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    caption = (
        "Trend: more sizes or compute levels would shrink it. Group: more subjects of the group. Subject: nothing "
        "but training it. Items: more answers. Measuring: more questions."
    )
    return style.label(ax, f"Share of the variance: {name}", caption, "training compute (FLOP)", "share")


def interval_coverage(table: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Share of observations inside the 50 % and 90 % intervals of every arm, with 90 % intervals of its own.

    ``table`` comes from :func:`bayes_irsl.forward_validation`; the bars are of clustered standard errors.
    """
    from bayes_irsl.forecasts.evaluation import summarise

    found = summarise(table)
    ax = style.axes(ax)
    y = np.arange(len(found))[::-1]
    kinds: list[tuple[int, str, Any]] = [(50, style.BLUE, "o"), (90, style.VERMILION, "s")]
    for mass, colour, marker in kinds:
        mean, se = found[f"inside_{mass}"], found[f"inside_{mass}_se"].fillna(0)
        ax.axvline(mass / 100, color=colour, lw=1, ls=":")
        ax.errorbar(
            mean, y, xerr=1.645 * se, fmt=marker, color=colour, ms=5, lw=1.2, capsize=2, label=f"{mass} % intervals"
        )
    ax.set_yticks(y, [style.plain(a, 28) for a in found["arm"]])
    ax.set_xlim(0, 1)
    ax.set_ylim(-0.7, len(found) - 0.3)
    ax.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    caption = "Dotted: what an honest forecast reaches. Bars: 90 % intervals by standard errors clustered by run."
    return style.label(ax, "Did the intervals hold?", caption, "share of observations inside", "")
