"""Which model predicts answers that it has not seen? Log scores and intervals of hidden answers, side by side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import betainc, betaincc, expit, logsumexp

from bayes_irsl.baselines.answers import SMALLEST, interval
from bayes_irsl.baselines.normal import normal_table
from bayes_irsl.diagnostics.predict import (
    Draws,
    cell_blocks,
    cell_latents,
    cell_logits,
    cell_replicates,
    shares_under,
    take_draws,
)
from bayes_irsl.errors import InputError
from bayes_irsl.responses import Responses
from bayes_irsl.spec import ItemResponse

NORMAL = "normal"


class Predicted(NamedTuple):
    """Of hidden answers, (n,) each: log predictive probability, ends of the 90 % interval, and the answer seen."""

    log_score: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    seen: np.ndarray


def compare_held_out(
    responses: Responses,
    specs: Mapping[str, ItemResponse],
    *,
    fraction: float = 0.1,
    seed: int = 0,
    method: str = "laplace",
    draws: int = 400,
    width: float = 0.01,
) -> pd.DataFrame:
    """Fit each spec to some of the answers and see how well it predicts the others.

    log score of an answer = log mean_d p(answer | posterior draw d). Probabilities are scored as intervals of
    ``width`` ([0, w), [w, 2w), ..., [1 - w, 1]), so that densities and point masses at 0 and 1 compare.

    Parameters
    ----------
    responses : Responses
    specs : mapping of name to ItemResponse
        Probabilities are also predicted by a Normal with an sd an item (row "normal"), by point estimates.
    fraction : float
        Share of the answers that is hidden, at random.
    seed, method, draws
        Of the split and the fits, as in :func:`bayes_irsl.fit`.
    width : float
        1 / width is a whole number.

    Returns
    -------
    DataFrame
        A row a model: mean log score; its gain over "normal" (else over the first spec) and the standard error of that,
        clustered by subject and by item; share of hidden answers inside their 90 % equal-tailed predictive
        intervals, and the intervals' mean width.

    Raises
    ------
    InputError
        No specs, a spec called "normal", or what :func:`bayes_irsl.fit` refuses.
    """
    from bayes_irsl.fitting import fit

    if not specs or NORMAL in specs:
        raise InputError(f'specs has the names {list(specs)}: expected one or more, none of them "{NORMAL}"')
    rest, hidden = responses.holdout(fraction, seed)
    predicted = {}
    for name, spec in specs.items():
        fitted = fit(spec, rest, method=method, seed=seed, draws=draws)
        predicted[name] = predict_hidden(fitted, hidden, seed=seed, draws=draws, width=width)
    if responses.kind == "probability":
        table = normal_table(rest)
        predicted[NORMAL] = Predicted(table.log_score(hidden, width), *table.interval(hidden), hidden.answer)
    base = predicted.get(NORMAL, next(iter(predicted.values()))).log_score
    rows = {name: _row(p, base, hidden) for name, p in predicted.items()}
    out = pd.DataFrame.from_dict(rows, orient="index").rename_axis("model")
    out.attrs = {"n_hidden": hidden.n_obs, "interval": "equal-tailed, 90%"}
    return out


def predict_hidden(fit: Any, hidden: Responses, *, seed: int = 0, draws: int = 400, width: float = 0.01) -> Predicted:
    """Log scores and intervals of answers that the fit has not seen, of its own subjects and items."""
    taken, rng = take_draws(fit, draws), np.random.default_rng(seed)
    seen = shares_under(fit.spec, hidden)
    parts = []
    for block, real in cell_blocks(np.arange(hidden.n_obs), taken.size):
        got = cell_replicates(taken, hidden, block, seen[block], rng)
        log_p = got.log_seen
        if hidden.kind == "probability":
            low, high = interval(hidden.answer[block], width)
            log_p = interval_log_masses(taken, hidden, block, *squeezed_ends(fit.spec, low, high))
        log_score = logsumexp(log_p.astype(float), axis=0) - np.log(taken.size)
        lower, upper = np.quantile(got.share, [0.05, 0.95], axis=0)
        parts.append(np.stack([log_score, lower, upper])[:, :real])
    log_score, lower, upper = np.concatenate(parts, 1)
    return Predicted(log_score, lower, upper, seen)


def squeezed_ends(spec: ItemResponse, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ends of intervals after the squeeze of a spec; 0 and 1 stay, so that nothing lies outside all intervals."""
    if spec.likelihood != "beta" or spec.squeeze is None:
        return low, high
    n = spec.squeeze
    return np.where(low <= 0, 0.0, (low * (n - 1) + 0.5) / n), np.where(high >= 1, 1.0, (high * (n - 1) + 0.5) / n)


def interval_log_masses(
    draws: Draws, responses: Responses, cells: np.ndarray, low: np.ndarray, high: np.ndarray
) -> np.ndarray:
    """Log probability of the interval of each cell under each draw, (D, n); the first and last hold the edges."""
    eta, _, zero, one = (np.asarray(v, float) for v in cell_latents(draws, responses, cells))
    *_, parameters = cell_logits(draws, responses, cells)
    phi = np.exp(parameters[0].astype(float))
    alpha, beta = phi * expit(eta), phi * expit(-eta)
    below = betainc(alpha, beta, high) - betainc(alpha, beta, low)
    above = betaincc(alpha, beta, low) - betaincc(alpha, beta, high)
    inside = (1 - zero - one) * np.where(expit(eta) < low, above, below)
    return np.log(np.maximum(inside + np.where(low <= 0, zero, 0) + np.where(high >= 1, one, 0), SMALLEST))


def _row(predicted: Predicted, base: np.ndarray, hidden: Responses) -> dict[str, float]:
    gain = predicted.log_score - base
    slack = 1e-6
    inside = (predicted.seen >= predicted.lower - slack) & (predicted.seen <= predicted.upper + slack)
    return {
        "log_score": float(predicted.log_score.mean()),
        "gain": float(gain.mean()),
        "gain_se": crossed_mean(gain, hidden.subject_index, hidden.item_index)[1],
        "inside": float(inside.mean()),
        "width": float((predicted.upper - predicted.lower).mean()),
    }


def crossed_mean(values: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> tuple[float, float]:
    """Mean of ``values`` and its standard error when values share rows and columns.

    V = V_rows + V_columns - V_cells, each a sum over clusters of squared sums of residuals, with G / (G - 1).
    Rows and columns are integer labels; repeated cells (several splits) count as one cluster.
    Source: Cameron, Gelbach and Miller (2011), Robust inference with multiway clustering.
    """
    mean = float(np.mean(values))
    cells = rows.astype(np.int64) * (int(columns.max()) + 1) + columns
    parts = [_cluster_variance(values - mean, labels) for labels in (rows, columns, cells)]
    return mean, float(np.sqrt(max(parts[0] + parts[1] - parts[2], parts[0], parts[1])))


def _cluster_variance(residuals: np.ndarray, labels: np.ndarray) -> float:
    _, cluster = np.unique(labels, return_inverse=True)
    sums = np.bincount(cluster, weights=residuals)
    return float(sums @ sums) * len(sums) / max(len(sums) - 1, 1) / len(residuals) ** 2
