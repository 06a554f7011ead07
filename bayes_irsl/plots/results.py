"""What a fit has found: abilities, difficulties, discriminations, curves, and the answers themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from bayes_irsl.diagnostics.predict import curve_means, shares, take_draws
from bayes_irsl.diagnostics.tables import interval_name, item_table, subject_table
from bayes_irsl.errors import InputError
from bayes_irsl.plots import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def item_curves(
    fit: Any,
    items: Sequence[str] | None = None,
    *,
    mass: float = 0.9,
    groups: int = 6,
    ax: Axes | None = None,
) -> Axes:
    """Mean answer against ability for a few items, with the answers seen.

    Parameters
    ----------
    fit : Fit
    items : labels, optional
        At most six; by default an easy, a middling and a hard item among those with most answers.
    mass : float
        Of the equal-tailed bands.
    groups : int
        Groups of similar ability whose mean answers are drawn as dots.
    ax : Axes, optional
    """
    responses, draws = fit.responses, take_draws(fit, 200)
    labels = np.asarray(responses.items.index, str)
    chosen = _curves_worth_seeing(fit) if items is None else _positions(items, labels, "item")
    if len(chosen) > len(style.CYCLE):
        raise InputError(f"{len(chosen)} curves in one plot: choose at most {len(style.CYCLE)}")
    ability = (
        fit.tree["posterior"].dataset["theta"].mean(("chain", "draw")).to_numpy().reshape(responses.n_subjects, -1)
    )
    low, high = ability.min() - 0.5, ability.max() + 0.5
    grid = np.linspace(low, high, 121)
    mean = curve_means(draws, chosen, grid)
    lower, upper = np.quantile(mean, [(1 - mass) / 2, (1 + mass) / 2], axis=0)
    ax, share = style.axes(ax), shares(fit)
    for k, j in enumerate(chosen):
        colour = style.CYCLE[k]
        ax.fill_between(grid, lower[k], upper[k], color=colour, alpha=0.18, lw=0)
        ax.plot(grid, mean[:, k].mean(0), color=colour, lw=1.8, label=style.plain(labels[j], 28))
        cells = responses.item_index == j
        theta = ability[responses.subject_index[cells], draws.dimension[j]]
        seen = _grouped(theta, share[cells], groups)
        ax.scatter(
            seen[:, 0], seen[:, 1], s=34, color=colour, marker=style.MARKERS[k], edgecolor="white", lw=0.7, zorder=3
        )
    ax.set_ylim(-0.03, 1.03)
    style.legend(ax, loc="upper left")
    caption = (
        f"Line: posterior mean of the mean answer. Band: {interval_name(mass)} interval of the curve. Dots: mean of "
        f"the answers seen in up to {groups} groups of similar ability."
    )
    return style.label(ax, "Item curves", caption, "ability (calibration subjects: mean 0, sd 1)", "mean answer")


def _curves_worth_seeing(fit: Any) -> np.ndarray:
    table = item_table(fit)
    often = table["n_answers"] >= table["n_answers"].quantile(0.5)
    usable = np.flatnonzero(often & ~table["no_variation"])
    usable = usable if len(usable) else np.arange(len(table))
    order = usable[np.argsort(table["b"].to_numpy()[usable], kind="stable")]
    return order[np.unique(np.round(np.array([0.15, 0.5, 0.85]) * (len(order) - 1)).astype(int))]


def _grouped(theta: np.ndarray, share: np.ndarray, groups: int) -> np.ndarray:
    parts = [part for part in np.array_split(np.argsort(theta, kind="stable"), groups) if len(part)]
    return np.array([(theta[part].mean(), share[part].mean()) for part in parts]).reshape(-1, 2)


def _positions(labels: Sequence[str], known: np.ndarray, role: str) -> np.ndarray:
    place = pd.Index(known).get_indexer([str(label) for label in labels])
    if (place < 0).any():
        missing = [label for label, where in zip(labels, place, strict=True) if where < 0]
        raise InputError(f"no {role} {missing[0]!r}; the first ones are {list(known[:5])}")
    return place


def ability_forest(
    fit: Any,
    subjects: Sequence[str] | None = None,
    *,
    mass: float = 0.9,
    most: int = 40,
    ax: Axes | None = None,
) -> Axes:
    """Abilities of subjects, best on top, each with its interval; of many, ``most`` evenly spaced in rank."""
    table = subject_table(fit, mass)
    if subjects is not None:
        chosen = _positions(subjects, np.asarray(fit.responses.subjects.index, str), "subject")
        table = table.loc[table.index[chosen]] if "dimension" not in table else table.loc[list(map(str, subjects))]
    dimensions = list(dict.fromkeys(table["dimension"])) if "dimension" in table else [None]
    first = table if dimensions == [None] else table.groupby(level=0, sort=False)[["ability"]].mean()
    order = first.sort_values("ability", kind="stable").index
    shown = order
    if len(order) > most:
        shown = order[np.unique(np.linspace(0, len(order) - 1, most).round().astype(int))]
    ax = style.axes(ax, (7.0, 1.3 + 0.19 * len(shown)))
    for k, name in enumerate(dimensions):
        rows = (table if name is None else table[table["dimension"] == name]).loc[shown]
        height = np.arange(len(shown)) + (k - (len(dimensions) - 1) / 2) * 0.7 / len(dimensions)
        colour = style.CYCLE[k % len(style.CYCLE)]
        ax.hlines(height, rows["lower"], rows["upper"], color=colour, lw=1.6, alpha=0.6)
        marker = style.MARKERS[k % len(style.MARKERS)]
        ax.scatter(rows["ability"], height, s=18, color=colour, marker=marker, zorder=3, label=name)
    ax.set_yticks(np.arange(len(shown)), [style.plain(name, 34) for name in shown])
    ax.tick_params(axis="y", labelsize=8, length=0)
    ax.set_ylim(-0.8, len(shown) - 0.2)
    ax.grid(axis="x", color="#eeeeee")
    ax.set_axisbelow(True)
    if len(dimensions) > 1:
        style.legend(ax, loc="lower right")
    part = "" if len(shown) == len(order) else f" {len(shown)} of {len(order):,} subjects, evenly spaced in rank."
    caption = f"Dot: posterior mean. Line: {interval_name(mass)} interval.{part}"
    return style.label(ax, "Abilities", caption, "ability (calibration subjects: mean 0, sd 1)", "", room=0.55)


def wright_map(fit: Any, *, ax: Axes | None = None) -> Axes:
    """Abilities and difficulties on one scale: where are the questions, where are the subjects?"""
    posterior = fit.tree["posterior"].dataset
    theta = posterior["theta"].mean(("chain", "draw")).to_numpy().ravel()
    b = posterior["b"].mean(("chain", "draw")).to_numpy()
    low = min(theta.min(), np.quantile(b, 0.005))
    high = max(theta.max(), np.quantile(b, 0.995))
    edges = np.linspace(low - 0.1, high + 0.1, 31)
    ax = style.axes(ax)
    height, middle = np.diff(edges)[0] * 0.92, (edges[:-1] + edges[1:]) / 2
    sides = ((theta, -1, style.VERMILION, "subjects"), (b, 1, style.BLUE, "items"))
    for values, sign, colour, name in sides:
        counts = np.histogram(np.clip(values, edges[0], edges[-1]), edges)[0]
        width = sign * counts / max(1, counts.max())
        ax.barh(middle, width, height=height, color=colour, label=f"{name} ({len(values):,})")
    ax.axvline(0, color=style.INK, lw=0.8)
    ax.set_xlim(-1.1, 1.1)
    ax.set_xticks([-1, 0, 1], ["most subjects", "0", "most items"])
    style.legend(ax, loc="upper right")
    beyond = int(((b < edges[0]) | (b > edges[-1])).sum())
    tail = f" The last bars also count items beyond the ends ({beyond:,})." if beyond else ""
    caption = f"Posterior means, each side scaled to its longest bar.{tail}"
    return style.label(ax, "Subjects and items on one scale", caption, "", "ability, difficulty")


def heat_map(fit: Any, *, ax: Axes | None = None, most: tuple[int, int] = (300, 600)) -> Axes:
    """The answers, subjects sorted by ability and items by difficulty; a large table is averaged into blocks."""
    responses, posterior = fit.responses, fit.tree["posterior"].dataset
    theta = posterior["theta"].mean([d for d in posterior["theta"].dims if d != "subject"]).to_numpy()
    b = posterior["b"].mean(("chain", "draw")).to_numpy()
    row = _rank(-theta) * min(responses.n_subjects, most[0]) // responses.n_subjects
    column = _rank(b) * min(responses.n_items, most[1]) // responses.n_items
    shape = (min(responses.n_subjects, most[0]), min(responses.n_items, most[1]))
    place = row[responses.subject_index] * shape[1] + column[responses.item_index]
    count = np.bincount(place, minlength=shape[0] * shape[1])
    with np.errstate(invalid="ignore"):
        mean = (np.bincount(place, responses.rate, shape[0] * shape[1]) / count).reshape(shape)
    ax = style.axes(ax, (7.2, 3.8))
    ax.set_facecolor(style.MISSING)
    extent = (0, responses.n_items, responses.n_subjects, 0)
    image = ax.imshow(mean, aspect="auto", cmap="cividis", vmin=0, vmax=1, extent=extent, interpolation="nearest")
    bar = style.figure_of(ax).colorbar(image, ax=ax, pad=0.01, aspect=30)
    bar.set_label("mean answer", fontsize=9)
    bar.ax.tick_params(labelsize=8)
    blocks = "" if shape == (responses.n_subjects, responses.n_items) else " Neighbours are averaged."
    missing = " Grey: no answer." if (count == 0).any() else ""
    caption = f"Ablest subject on top, easiest item on the left, by posterior means.{blocks}{missing}"
    return style.label(ax, "Answers", caption, "items by difficulty", "subjects by ability")


def _rank(values: np.ndarray) -> np.ndarray:
    rank = np.empty(len(values), np.int64)
    rank[np.argsort(values, kind="stable")] = np.arange(len(values))
    return rank


def discriminations(fit: Any, *, mass: float = 0.9, ax: Axes | None = None) -> Axes:
    """Discriminations of all items in order of their posterior mean, each with its interval."""
    table = item_table(fit, mass).sort_values("a", kind="stable").reset_index()
    ax = style.axes(ax)
    place = np.arange(len(table))
    ax.fill_between(place, table["a_lower"], table["a_upper"], color=style.BLUE, alpha=0.25, lw=0, step="mid")
    ax.plot(place, table["a"], color=style.BLUE, lw=1.6, label="posterior mean")
    for flag, colour, marker in (("prior_led", style.ORANGE, "|"), ("no_variation", style.VERMILION, "x")):
        marked = table[table[flag]]
        if len(marked):
            name = f"{flag.replace('_', '-' if flag == 'prior_led' else ' ')} ({len(marked):,})"
            ax.scatter(marked.index, marked["a"], s=18, color=colour, marker=marker, lw=1, label=name, zorder=3)
    ax.set_yscale("log")
    ticks = np.outer(10.0 ** np.arange(-3, 4), [1, 2, 5]).ravel()
    low, high = ax.get_ylim()
    ax.set_yticks(ticks[(ticks >= low) & (ticks <= high)])
    ax.yaxis.set_major_formatter("{x:g}")
    ax.yaxis.set_minor_formatter("")
    style.legend(ax, loc="upper left")
    caption = f"Line: posterior mean. Band: {interval_name(mass)} interval of each item. Logarithmic scale."
    return style.label(ax, "Discriminations", caption, "items in order of discrimination", "discrimination a")
