"""Proper scores of predictive draws, coverage, decision accuracy, and standard errors of clustered means."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from numpy.typing import ArrayLike

from bayes_irsl.errors import InputError

Floats = npt.NDArray[np.floating]
Transform = Callable[[Floats], Floats]

LEVELS = (0.5, 0.9)
# Least sd of the kernel under the log score: no forecast is asked to be exact beyond this.
LEAST_BANDWIDTH = 1e-3


def score_draws(draws: Floats, observed: Floats, transform: Transform | None = None) -> dict[str, Floats]:
    """Scores of predictive draws (n, T) against what was observed (T,): crps, log_score, coverage, width, error."""
    if transform is not None:
        draws, observed = transform(draws), transform(observed)
    out: dict[str, Floats] = {
        "observed": observed,
        "mean": draws.mean(0),
        "crps": crps(draws, observed),
        "log_score": log_score(draws, observed),
    }
    for mass in LEVELS:
        low, high = np.quantile(draws, [(1 - mass) / 2, (1 + mass) / 2], axis=0)
        out[f"inside_{round(100 * mass)}"] = ((observed >= low) & (observed <= high)).astype(float)
        out[f"width_{round(100 * mass)}"] = high - low
    out["error"] = np.abs(out["mean"] - observed)
    return out


def crps(draws: Floats, observed: Floats) -> Floats:
    """Continuous ranked probability score (T,) of draws (n, T): E|X - y| - E|X - X'| / 2, from all pairs.

    Gneiting and Raftery 2007, equation 20; lower is better, in units of the score.
    """
    ordered = np.sort(draws, 0)
    n = len(draws)
    weight = (2 * np.arange(1, n + 1) - n - 1) / n**2
    return np.abs(draws - observed).mean(0) - weight @ ordered


def log_score(draws: Floats, observed: Floats) -> Floats:
    """Log density (T,) of a Gaussian kernel estimate of draws (n, T), Silverman's bandwidth; higher is better."""
    n = len(draws)
    quartiles = np.quantile(draws, [0.25, 0.75], axis=0)
    spread = np.minimum(draws.std(0), (quartiles[1] - quartiles[0]) / 1.34)
    width = np.maximum(0.9 * spread * n**-0.2, LEAST_BANDWIDTH)
    z = (draws - observed) / width
    top = (-0.5 * z**2).max(0)
    return top + np.log(np.exp(-0.5 * z**2 - top).mean(0)) - np.log(width * np.sqrt(2 * np.pi))


def clustered_error(values: Floats, cluster: npt.NDArray[Any]) -> float:
    """Standard error of a mean whose values are dependent within clusters; NaN for a single cluster."""
    codes, names = pd.factorize(cluster)
    sums = np.bincount(codes, values - values.mean(), len(names))
    g = len(names)
    return float(np.sqrt(np.sum(sums**2) * g / (g - 1)) / len(values)) if g > 1 else float("nan")


def decision_accuracy(predicted: ArrayLike, observed: ArrayLike) -> float:
    """Share of pairs that predictions (n,) order as the observations (n,) do; a tie on either side counts half."""
    x, y = np.asarray(predicted, float), np.asarray(observed, float)
    if x.shape != y.shape or x.ndim != 1 or len(x) < 2:
        raise InputError(f"predicted {x.shape} and observed {y.shape}: expected two arrays of one length, 2 or more")
    pairs = np.array(list(combinations(range(len(x)), 2)))
    product = np.sign(x[pairs[:, 0]] - x[pairs[:, 1]]) * np.sign(y[pairs[:, 0]] - y[pairs[:, 1]])
    return float(np.mean((product + 1) / 2))
