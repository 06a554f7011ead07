"""Pairs of items whose answers hang together beyond ability: Yen's Q3 against replicated answers."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from bayes_irsl.diagnostics.predict import cell_blocks, cell_moments, cell_replicates, shares, take_draws
from bayes_irsl.diagnostics.verdicts import Check, some, worst

MOST_ITEMS, MOST_SUBJECTS, DRAWS = 300, 2_000, 40
# Adjusted Q3 above this is the usual rule (Christensen, Makransky & Horton 2017).
NOTABLE = 0.2


def dependence_check(fit: Any, seed: int = 0) -> tuple[list[Check], dict[str, str]]:
    """Correlations of residuals between items, flagged where larger than independent answers ever produce."""
    items, subjects = _chosen(fit, seed)
    if len(items) < 3 or len(subjects) < 8:
        return [], {"local dependence": "needs 3 items that vary and 8 subjects"}
    found, limit = residual_correlations(fit, subjects, items, seed)
    first, second = np.triu_indices(len(items), 1)
    q3 = found[first, second]
    labels = np.asarray(fit.responses.items.index, str)[items]
    table = pd.DataFrame({"item": labels[first], "other": labels[second], "q3": q3}).dropna()
    table["flagged"] = (table["q3"] > limit) & (table["q3"] > NOTABLE)
    table = table.sort_values("q3", ascending=False, kind="stable", ignore_index=True)
    flagged = table[table["flagged"]]
    share, line = len(flagged) / max(1, len(table)), max(limit, NOTABLE)
    pairs = some([f"{r.item} with {r.other} ({r.q3:.2f})" for r in flagged.head(5).itertuples()])
    blind = f"; with {len(subjects):,} subjects only near copies would show" if line > 0.7 else ""
    among = "" if len(items) == fit.responses.n_items else f" among {len(items):,} of {fit.responses.n_items:,} items"
    return [
        Check(
            "local dependence",
            worst(share, 0.0, 0.05),
            len(flagged),
            f"{len(flagged):,} of {len(table):,} pairs of items{among} hang together beyond ability: adjusted Q3 above "
            f"{line:.2f}, the larger of {NOTABLE} and the 95 % point of the largest pair among independent answers"
            f"{f' ({pairs})' if len(flagged) else ''}{blind}.",
            "Items that share a text or are near copies count double: keep one of them, or use testlets or one ability "
            "per category.",
            table.head(1000),
        )
    ], {}


def _chosen(fit: Any, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Items with enough variation (at random where they are many) and the subjects that answered them."""
    responses, rng = fit.responses, np.random.default_rng(seed)
    j = responses.n_items
    rate = responses.rate.astype(float)
    n = np.bincount(responses.item_index, minlength=j)
    total = np.bincount(responses.item_index, rate, j)
    square = np.bincount(responses.item_index, rate**2, j)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = total / n
        # a pair of items on which only one or two subjects differ correlates by accident
        varied = (n >= 8) & (n * mean * (1 - mean) >= 3) & (square - total * mean > 1e-9)
    items = np.flatnonzero(varied)
    if len(items) > MOST_ITEMS:
        items = np.sort(rng.choice(items, MOST_ITEMS, replace=False))
    subjects = np.unique(responses.subject_index[np.isin(responses.item_index, items)])
    if len(subjects) > MOST_SUBJECTS:
        subjects = np.sort(rng.choice(subjects, MOST_SUBJECTS, replace=False))
    return items, subjects


def residual_correlations(fit: Any, subjects: np.ndarray, items: np.ndarray, seed: int) -> tuple[np.ndarray, float]:
    """Adjusted Q3 of pairs (items, items), averaged over draws, and the 95 % point of the largest replicated one."""
    responses, rng, share = fit.responses, np.random.default_rng(seed), shares(fit)
    draws = take_draws(fit, DRAWS)
    row = np.full(responses.n_subjects, -1)
    column = np.full(responses.n_items, -1)
    row[subjects], column[items] = np.arange(len(subjects)), np.arange(len(items))
    cells = np.flatnonzero((row[responses.subject_index] >= 0) & (column[responses.item_index] >= 0))
    seen, replicated = np.empty((2, draws.size, len(cells)), np.float32)
    at = 0
    for block, real in cell_blocks(cells, draws.size):
        moments = cell_moments(draws, responses, block)
        answers = cell_replicates(draws, responses, block, share[block], rng).share
        seen[:, at : at + real] = (share[block] - moments.mean)[:, :real]
        replicated[:, at : at + real] = (answers - moments.mean)[:, :real]
        at += real
    place = row[responses.subject_index[cells]], column[responses.item_index[cells]]
    mask = np.zeros((len(subjects), len(items)), np.float32)
    mask[place] = 1
    table = np.zeros_like(mask)
    total, largest = np.zeros((len(items), len(items))), []
    for k in range(draws.size):
        table[place] = seen[k]
        total += np.asarray(adjusted_q3(table, mask))
        table[place] = replicated[k]
        largest.append(float(jnp.nanmax(adjusted_q3(table, mask))))
    return total / draws.size, float(np.quantile(largest, 0.95))


@jax.jit
def adjusted_q3(residual: jax.Array, mask: jax.Array) -> jax.Array:
    """Correlations of residuals (subjects, items) less their mean, over the subjects that answered both items.

    Both are 0 where ``mask`` is 0. NaN on the diagonal and for pairs with fewer than 8 subjects in common.
    """
    n = mask.T @ mask
    mean = (residual.T @ mask) / n
    cross = (residual.T @ residual) / n - mean * mean.T
    variance = ((residual**2).T @ mask) / n - mean**2
    q3 = cross / jnp.sqrt(variance * variance.T)
    usable = (n >= 8) & jnp.isfinite(q3) & ~jnp.eye(n.shape[0], dtype=bool)
    q3 = jnp.where(usable, q3, jnp.nan)
    return q3 - jnp.nanmean(q3)
