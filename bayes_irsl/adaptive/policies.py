"""Which question next: scores of all questions by a policy, and the choice under limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from bayes_irsl import _validate as check
from bayes_irsl.adaptive.gains import gains, gains_of_all
from bayes_irsl.adaptive.layout import _ANSWER_COUNTS, Known, Layout
from bayes_irsl.bank import ItemBank
from bayes_irsl.errors import InputError

Floats = npt.NDArray[np.floating]

POLICIES = ("variance", "fisher", "spanning", "fixed", "random")
_SPAN = (0.1, 0.9)  # quantiles of difficulty that a spanning set covers
_TIE = 1e-5


def expected_gains(layout: Layout, found: Known) -> Floats:
    """Expected reduction (J, options) of the target's variance."""
    own = layout.target.member[layout.order] if layout.bank.n_items <= _ANSWER_COUNTS else None
    out = np.empty((layout.bank.n_items, len(layout.options)))
    for i, option in enumerate(layout.options):
        out[layout.order, i] = gains(option, found.belief, own if layout.target.item is not None else None)
    return out


def gains_together(layout: Layout, found: list[Known]) -> Floats | None:
    """The same (S, J) for S subjects; None where it must be worked out one by one."""
    counts = layout.target.item is not None and layout.bank.n_items <= _ANSWER_COUNTS
    if counts or len(layout.options) > 1:
        return None
    out = np.empty((len(found), layout.bank.n_items), np.float32)
    out[:, layout.order] = gains_of_all(layout.options[0], [f.belief for f in found])
    return out


def fisher_information(layout: Layout, found: Known) -> Floats:
    """Fisher information (J, options) of averaged curves at the posterior mean of each question's general ability.

    I = mu'^2 / v: a^2 mu (1 - mu) for 0/1 answers, and of others what their mean tells.
    """
    nodes, f = layout.table.nodes, len(layout.facet.names)
    theta = np.exp(np.asarray(found.posterior.log_weight)) @ np.asarray(found.posterior.mean)[:, f:]
    dims = list(layout.bank.dimensions)
    of_facet = np.array([theta[dims.index(str(d))] for d in layout.facet.dimension])
    place = (of_facet[layout.facet.of_item[layout.order]] - nodes[0]) / (nodes[1] - nodes[0])
    at = np.clip(np.rint(place).astype(int), 1, len(nodes) - 2)
    rows, out = np.arange(len(at)), np.empty((layout.bank.n_items, len(layout.options)))
    for i, option in enumerate(layout.options):
        slope = (option.mean[rows, at + 1] - option.mean[rows, at - 1]) / (nodes[2] - nodes[0])
        variance = option.square[rows, at] - option.mean[rows, at] ** 2
        out[layout.order, i] = slope**2 / np.maximum(variance, 1e-9)
    return out


def spanning_order(bank: ItemBank, n: int) -> np.ndarray:
    """n questions, difficulties equally spaced between two quantiles, from the middle outwards; then the rest."""
    difficulty = bank.b.mean(0)
    n = min(n, bank.n_items)
    wanted = np.quantile(difficulty, _SPAN[0]) + np.ptp(np.quantile(difficulty, _SPAN)) * np.linspace(0, 1, n)
    free, chosen = np.ones(bank.n_items, bool), []
    for w in wanted[np.argsort(np.abs(np.arange(n) - (n - 1) / 2), kind="stable")]:
        j = int(np.where(free, np.abs(difficulty - w), np.inf).argmin())
        free[j] = False
        chosen.append(j)
    return np.array([*chosen, *np.flatnonzero(free)], int)


def best(score: Floats, allowed: np.ndarray, rng: np.random.Generator, among: int = 1) -> int:
    """Row of the best allowed score; at random among equals, or among so many of the best."""
    masked = np.where(allowed, score, -np.inf)
    top = masked.max()
    equal = np.flatnonzero(masked >= top - _TIE * abs(top))
    if among > len(equal):
        order = np.argsort(-masked, kind="stable")[:among]
        equal = order[np.isfinite(masked[order])]
    return int(rng.choice(equal))


def costs(bank: ItemBank, cost: Any) -> Floats:
    """Cost (J,) of every question: 1 each, a column of the bank's items, or numbers by label."""
    if cost is None:
        return np.ones(bank.n_items)
    if isinstance(cost, str):
        if cost not in bank.items:
            raise check.unknown([cost], bank.items.columns, "column of the bank's items")
        found = pd.Series(bank.items[cost])
    elif isinstance(cost, pd.Series | Mapping):
        given = pd.Series(cost)
        given.index = given.index.astype(str)
        missing = bank.items.index.difference(given.index)
        if len(missing):
            raise InputError(f"cost: no value for item {check.some(missing)}")
        found = given.loc[bank.items.index]
    else:
        raise InputError(f"cost = {type(cost).__name__}: expected a column of the bank's items, or numbers by item")
    return positive(found, "item")


def positive(given: pd.Series, what: str) -> Floats:
    """Costs as numbers (n,), or an error that names the first that is not positive."""
    values = pd.to_numeric(given, errors="coerce").to_numpy(float)
    bad = np.flatnonzero(~(np.isfinite(values) & (values > 0)))
    if bad.size:
        raise InputError(
            f"cost of {what} {str(given.index[bad[0]])!r}: {given.iloc[bad[0]]!r}; expected a positive number"
        )
    return values


def content_shares(bank: ItemBank, content: Mapping[str, float] | None, by: str, most: int | None) -> pd.Series | None:
    """Shares by value of a column, adding up to 1; InputError where they cannot be met."""
    if content is None:
        return None
    if by not in bank.items:
        raise check.unknown([by], bank.items.columns, "column of the bank's items")
    shares = pd.Series({str(k): v for k, v in content.items()}, dtype=float)
    if not len(shares) or not np.isfinite(shares).all() or (shares < 0).any() or shares.sum() <= 0:
        raise InputError(f"content = {dict(content)!r}: expected shares of at least 0, not all of them 0")
    have = bank.items[by].astype(str).value_counts()
    unknown = shares.index.difference(have.index)
    if len(unknown):
        raise check.unknown(unknown, have.index, f"value of {by!r}")
    shares = shares / shares.sum()
    if most is not None:
        need = np.floor(shares * most)
        short = need[need > have.reindex(shares.index)]
        if len(short):
            name = short.index[0]
            raise InputError(
                f"content: {name!r} is to have {shares[name]:.0%} of {most} questions, but the bank has only "
                f"{have[name]}; lower the share or max_items"
            )
    return shares


def due(labels: np.ndarray, shares: pd.Series, asked: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    """Questions of the value that is furthest behind its share, of those that have a question left."""
    counts = pd.Series(labels[asked]).value_counts().reindex(shares.index, fill_value=0)
    behind = shares * (len(asked) + 1) - counts
    for name in behind.sort_values(ascending=False, kind="stable").index:
        own = allowed & (labels == name) & (shares[name] > 0)
        if own.any():
            return own
    return np.zeros_like(allowed)
