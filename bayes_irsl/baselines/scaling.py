"""Scaling laws as they are fitted today, each with a spread so that its predictive distribution can be scored.

Every law takes a table of scores of one benchmark (:func:`bayes_irsl.forecasts.score_table.score_table`) and the
subjects to predict, and returns draws of their scores (n, T). The spread of the regressions is a residual bootstrap on
the logit scale: refit to resampled residuals, inflated for the coefficients spent, and add one.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.optimize import least_squares
from scipy.special import expit, logit

from bayes_irsl.baselines.two_step import two_step
from bayes_irsl.errors import InputError

Floats = npt.NDArray[np.floating]
Law = Callable[[pd.DataFrame, pd.DataFrame, np.random.Generator, int], Floats]

# Pseudo-answers that keep the logit of a score of 0 or 1 finite where the number of answers is unknown.
UNKNOWN_ANSWERS = 2000.0
STARTS = 24


def logistic_compute(train: pd.DataFrame, test: pd.DataFrame, rng: np.random.Generator, n: int) -> Floats:
    """Straight line in log10 compute on the logit of the accuracy."""
    return expit(bootstrapped_line(train, logits(train), test, ["compute"], rng, n))


def params_tokens(train: pd.DataFrame, test: pd.DataFrame, rng: np.random.Generator, n: int) -> Floats:
    """Least squares of the logit on log10 parameters, log10 tokens and their product."""
    a, b = (_design(t, ["params", "tokens"]) for t in (train, test))
    centre = a[:, 1:].mean(0)
    a, b = (np.c_[x, np.prod(x[:, 1:] - centre, 1)] for x in (a, b))
    return expit(_bootstrap(a, logits(train), b, rng, n))


def power_law(train: pd.DataFrame, test: pd.DataFrame, rng: np.random.Generator, n: int) -> Floats:
    """score = ceiling - (ceiling - floor) exp(-(C / C0)^rate), floor = chance level, ceiling learned: least squares."""
    x, new = (np.log10(t["compute"].to_numpy(float)) for t in (train, test))
    floor, y = train["chance"].to_numpy(float), train["score"].to_numpy(float)
    low, high = float(floor.mean()), max(float(y.max()), float(floor.mean()) + 0.02)

    def curve(p: Floats, at: Floats) -> Floats:
        return low + (p[0] - low) * -np.expm1(-(10.0 ** np.clip(p[2] * (at - p[1]), -30, 30)))

    def fitted(scores: Floats, starts: Floats) -> Floats:
        bounds = ([low + 1e-3, x.min() - 5, 0.01], [1.0, x.max() + 15, 5.0])
        found = [
            least_squares(lambda p: curve(p, x) - scores, np.clip(s, *np.array(bounds)), bounds=bounds) for s in starts
        ]
        return min(found, key=lambda r: r.cost).x

    starts = np.c_[
        rng.uniform(min(high, 0.99), 1.0, STARTS),
        rng.uniform(x.min(), x.max() + 2, STARTS),
        rng.uniform(0.1, 2, STARTS),
    ]
    best = fitted(y, starts)
    residual = (y - curve(best, x)) * np.sqrt(len(y) / max(len(y) - 3, 1))
    out = np.empty((n, len(test)))
    refits = min(n, 50)
    curves = [curve(fitted(curve(best, x) + rng.choice(residual, len(y)), best[None]), new) for _ in range(refits)]
    for i in range(n):
        out[i] = curves[i % refits] + rng.choice(residual, len(test))
    return np.clip(out, 0, 1)


def last_value(train: pd.DataFrame, test: pd.DataFrame, rng: np.random.Generator, n: int) -> Floats:
    """The score of the most compute seen in the same group (all subjects where none is named), plus past errors.

    Past errors: of carrying each subject's score to the next one with more compute.
    """
    column = next((c for c in ("family", "run") if c in train and train[c].notna().all()), None)
    ordered = train.sort_values("compute")
    y = logits(ordered)
    own = np.zeros(len(train), object) if column is None else ordered[column].to_numpy(object)
    groups = {g: y[own == g] for g in dict.fromkeys(own.tolist())}
    errors = np.concatenate([np.diff(values) for values in groups.values()])
    if not errors.size:
        errors = np.diff(y) if len(y) > 1 else np.zeros(1)
    asked = [0] * len(test) if column is None or column not in test else test[column].tolist()
    base = np.array([groups[g][-1] if g in groups else y[-1] for g in asked])
    return expit(base + rng.choice(errors, (n, len(test))))


def same_step(train: pd.DataFrame, test: pd.DataFrame, rng: np.random.Generator, n: int) -> Floats:
    """The score of the largest size seen at the same number of tokens, plus past errors of going up one size."""
    for table in (train, test):
        _design(table, ["params", "tokens"])
    sizes = np.sort(train["params"].unique())
    if len(sizes) < 2:
        raise InputError(f"{len(sizes)} size in the table: the same step of the largest size needs two or more")
    y, tokens = logits(train), np.log10(train["tokens"].to_numpy(float))

    def curve(size: float, at: Floats) -> Floats:
        rows = np.flatnonzero(train["params"].to_numpy() == size)
        rows = rows[np.argsort(tokens[rows])]
        return np.interp(at, tokens[rows], y[rows])

    errors = []
    for small, large in pairwise(sizes):
        rows = train["params"].to_numpy() == large
        errors.append(y[rows] - curve(small, tokens[rows]))
    base = curve(sizes[-1], np.log10(test["tokens"].to_numpy(float)))
    return expit(base + rng.choice(np.concatenate(errors), (n, len(test))))


LAWS: dict[str, Law] = {
    "logistic in compute": logistic_compute,
    "power law": power_law,
    "params x tokens": params_tokens,
    "same step": same_step,
    "last value": last_value,
    "two-step": two_step,
}


def logits(table: pd.DataFrame) -> Floats:
    """Logits of scores, half an answer added to each side."""
    answers = table["answers"].fillna(UNKNOWN_ANSWERS).to_numpy(float)
    return logit((table["score"].to_numpy(float) * answers + 0.5) / (answers + 1))


def bootstrapped_line(
    train: pd.DataFrame, y: Floats, test: pd.DataFrame, columns: list[str], rng: np.random.Generator, n: int
) -> Floats:
    """Draws (n, T) of what least squares of ``y`` on log10 of ``columns`` predicts, residuals bootstrapped."""
    return _bootstrap(_design(train, columns), y, _design(test, columns), rng, n)


def _design(table: pd.DataFrame, columns: list[str]) -> Floats:
    absent = [c for c in columns if c not in table or table[c].isna().any()]
    if absent:
        raise InputError(f"column {absent[0]!r} is missing or has gaps: this law needs {columns} of every subject")
    return np.c_[np.ones(len(table)), np.log10(table[columns].to_numpy(float))]


def _bootstrap(x: Floats, y: Floats, new: Floats, rng: np.random.Generator, n: int) -> Floats:
    fitted = x @ np.linalg.lstsq(x, y, rcond=None)[0]
    rank = np.linalg.matrix_rank(x)
    residual = (y - fitted) * np.sqrt(len(y) / max(len(y) - rank, 1))
    resampled = fitted[:, None] + rng.choice(residual, (len(y), n))
    slopes = np.linalg.lstsq(x, resampled, rcond=None)[0]
    return (new @ slopes).T + rng.choice(residual, (n, len(new)))
