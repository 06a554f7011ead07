"""Posterior predictive checks: does the fit, asked for answers like those seen, give answers like those seen?"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from bayes_irsl.diagnostics.predict import cell_blocks, cell_replicates, shares, take_draws
from bayes_irsl.diagnostics.tails import false_discovery, sum_tails
from bayes_irsl.diagnostics.verdicts import Check, some, worst

# Replicates cost about a microsecond each for the slowest likelihood.
MOST_CELLS, MOST_REPLICATES, FEWEST_ANSWERS = 400_000, 12_000_000, 5
# Loss of log density per answer (nats) below which a misfit of a subject does not matter.
NOTABLE_GAP = 0.02


@dataclass(frozen=True)
class Predictive:
    """Answers seen and D sets of replicated answers to the same questions, summed up.

    ``row_*`` (S,) and ``column_*`` (J,) are means over a subject's or an item's answers, replicates (D, S) and (D, J),
    NaN where there are none; ``histogram_*`` are counts of answers between ``edges``, exact 0 and 1 in the first and
    last bin; ``subject_gap`` (S,) is the log density of a subject's answers less that of replicates, per answer,
    ``subject_z`` the same standardised, and ``subject_p`` the probability of one so low.
    """

    n_cells: int
    row_n: np.ndarray
    row_seen: np.ndarray
    row_replicate: np.ndarray
    column_n: np.ndarray
    column_seen: np.ndarray
    column_replicate: np.ndarray
    edges: np.ndarray
    histogram_seen: np.ndarray
    histogram_replicate: np.ndarray
    subject_gap: np.ndarray
    subject_z: np.ndarray
    subject_p: np.ndarray


def replicate(fit: Any, seed: int = 0) -> Predictive:
    """Replicated answers for all answered cells, or for a random part of a very large table."""
    responses, rng = fit.responses, np.random.default_rng(seed)
    n_obs, s, j = responses.n_obs, responses.n_subjects, responses.n_items
    cells = np.arange(n_obs)
    if n_obs > MOST_CELLS:
        cells = np.sort(rng.choice(n_obs, MOST_CELLS, replace=False))
    draws = take_draws(fit, int(np.clip(MOST_REPLICATES // max(1, len(cells)), 30, 100)))
    share, d, edges = shares(fit), draws.size, histogram_edges(fit)
    row, column = np.zeros((d, s)), np.zeros((d, j))
    histogram = np.zeros((d, len(edges) - 1))
    surprise, variance, third = np.zeros(s), np.zeros(s), np.zeros(s)
    offset = np.arange(d)[:, None]
    for block, real in cell_blocks(cells, d):
        got = cell_replicates(draws, responses, block, share[block], rng)
        subject, item = responses.subject_index[block[:real]], responses.item_index[block[:real]]
        answer = got.share[:, :real]
        row += np.bincount((offset * s + subject).ravel(), answer.ravel(), d * s).reshape(d, s)
        column += np.bincount((offset * j + item).ravel(), answer.ravel(), d * j).reshape(d, j)
        for k in range(d):
            histogram[k] += _histogram(answer[k], edges)
        log_replicate = got.log_replicate[:, :real].astype(float)
        centre = log_replicate.mean(0)
        around = log_replicate - centre
        surprise += np.bincount(subject, got.log_seen[:, :real].mean(0, dtype=float) - centre, s)
        variance += np.bincount(subject, (around**2).mean(0) * d / max(1, d - 1), s)
        third += np.bincount(subject, (around**3).mean(0), s)
    subject, item = responses.subject_index[cells], responses.item_index[cells]
    row_n, column_n = np.bincount(subject, minlength=s), np.bincount(item, minlength=j)
    with np.errstate(invalid="ignore", divide="ignore"):
        enough = (row_n >= FEWEST_ANSWERS) & (variance > 0)
        z = np.where(enough, surprise / np.sqrt(variance), np.nan)
        p = np.where(enough, sum_tails(np.nan_to_num(z), np.nan_to_num(third / variance**1.5))[0], np.nan)
        return Predictive(
            len(cells),
            row_n,
            np.bincount(subject, share[cells], s) / row_n,
            row / row_n,
            column_n,
            np.bincount(item, share[cells], j) / column_n,
            column / column_n,
            edges,
            _histogram(share[cells], edges),
            histogram,
            surprise / row_n,
            z,
            p,
        )


def histogram_edges(fit: Any) -> np.ndarray:
    """Two bins for 0/1 answers; else exact 0, exact 1 and ten bins between them."""
    if fit.responses.kind == "binary":
        return np.array([0.0, 0.5, 1.0])
    return np.concatenate([[-1e-9, 1e-7], np.linspace(0.1, 0.9, 9), [1 - 1e-6, 1 + 1e-9]])


def _histogram(share: np.ndarray, edges: np.ndarray) -> np.ndarray:
    place = np.clip(np.searchsorted(edges, share, side="right") - 1, 0, len(edges) - 2)
    return np.bincount(place, minlength=len(edges) - 1).astype(float)


def predictive_checks(fit: Any, predictive: Predictive) -> list[Check]:
    """Row means, column means, distribution of the answers, and subjects that do not fit."""
    subjects, items = fit.responses.subjects.index, fit.responses.items.index
    part = (
        ""
        if predictive.n_cells == fit.responses.n_obs
        else (f" (a random {predictive.n_cells:,} of {fit.responses.n_obs:,} answers)")
    )
    return [
        means_check("row means", "subjects", subjects, predictive.row_seen, predictive.row_replicate, part),
        means_check("column means", "items", items, predictive.column_seen, predictive.column_replicate, part),
        distribution_check(predictive, part),
        person_check(subjects, predictive, part),
    ]


def means_check(
    name: str, what: str, labels: pd.Index, seen: np.ndarray, replicated: np.ndarray, part: str = ""
) -> Check:
    """Share of the observed means that lie inside their own 90 % posterior predictive interval.

    A fit that is right covers 90 % or more: more, because the answers seen have also been used to fit.
    """
    has = np.isfinite(seen)
    low, high = np.quantile(replicated[:, has], [0.05, 0.95], axis=0)
    slack = 1e-6
    inside = (seen[has] >= low - slack) & (seen[has] <= high + slack)
    n, k = int(has.sum()), int(inside.sum())
    share = k / max(1, n)
    # too few inside for chance, and by enough to matter
    surprising = stats.binom.cdf(k, n, 0.9) < 0.01
    verdict = "FAIL" if surprising and share < 0.7 else "REVIEW" if surprising else "PASS"
    table = pd.DataFrame({"seen": seen[has], "predicted": replicated[:, has].mean(0), "lower": low, "upper": high})
    table.index = labels[has]
    distance = np.maximum(low - seen[has], seen[has] - high)
    table = table.iloc[np.argsort(-distance, kind="stable")]
    return Check(
        f"predicted {name}",
        verdict,
        share,
        f"{k:,} of {n:,} {what} have their mean inside its 90 % posterior predictive interval ({share:.1%}){part}.",
        "The model cannot reproduce the averages: check the likelihood, and whether one ability is enough.",
        table,
    )


def distribution_check(predictive: Predictive, part: str = "") -> Check:
    """Histogram of the answers against replicated ones: chi-square discrepancy, and how much mass lies elsewhere."""
    seen, replicated = predictive.histogram_seen, predictive.histogram_replicate
    total = max(1.0, seen.sum())
    expected = replicated.mean(0)
    scale = np.maximum(expected, 0.5)
    p = float(np.mean(((replicated - expected) ** 2 / scale).sum(1) >= ((seen - expected) ** 2 / scale).sum()))
    moved = float(np.abs(seen - expected).sum() / 2 / total)
    verdict = "PASS" if p >= 0.05 or moved < 0.01 else worst(moved, 0.01, 0.1)
    low, high = np.quantile(replicated, [0.05, 0.95], axis=0) / total
    table = pd.DataFrame({"seen": seen / total, "predicted": expected / total, "lower": low, "upper": high})
    table.index = pd.Index(_bin_names(predictive.edges), name="answer")
    return Check(
        "distribution of answers",
        verdict,
        p,
        f"{moved:.1%} of the answers lie in other bins than predicted; posterior predictive p = {p:.2f}{part}.",
        "The likelihood does not have the shape of these answers: try precision='item', counts with their trials, or "
        "ordered-beta for exact 0 and 1.",
        table,
    )


def _bin_names(edges: np.ndarray) -> list[str]:
    if len(edges) == 3:
        return ["0", "1"]
    inner = [0.0, *edges[2:-2].tolist(), 1.0]
    return ["0", *(f"{a:.1g} to {b:.1g}" for a, b in pairwise(inner)), "1"]


def person_check(subjects: pd.Index, predictive: Predictive, part: str = "") -> Check:
    """Subjects whose answers are less likely than their ability allows (the l_z of Drasgow et al. 1985).

    The log density of a subject's answers is compared with that of replicated answers; flags control the false
    discovery rate at 5 % and ask for a loss that matters.
    """
    tested = np.isfinite(predictive.subject_p)
    table = pd.DataFrame(
        {
            "n_answers": predictive.row_n[tested],
            "gap": predictive.subject_gap[tested],
            "z": predictive.subject_z[tested],
            "p": predictive.subject_p[tested],
            "q": false_discovery(predictive.subject_p[tested]),
        },
        index=subjects[tested],
    )
    table["flagged"] = (table["q"] <= 0.05) & (table["gap"] <= -NOTABLE_GAP)
    table = table.sort_values("p", kind="stable")
    flagged = [str(label) for label in table.index[table["flagged"]]]
    share = len(flagged) / max(1, len(table))
    names = f": {some(flagged)}" if flagged else ""
    return Check(
        "subject fit",
        worst(share, 0.0, 0.5),
        len(flagged),
        f"{len(flagged):,} of {len(table):,} subjects with {FEWEST_ANSWERS} or more answers have answers unlikely at "
        f"their ability (false discovery rate 5 %){names}{part}.",
        "Look at what these subjects get right and wrong: contamination, broken prompts or another ability.",
        table,
    )
