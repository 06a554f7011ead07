"""Success rates that item curves give the subjects of a fit, and how closely each subject keeps to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import xarray as xr

from bayes_irsl.errors import InputError
from bayes_irsl.forecasts.new_scores import chosen, item_draws
from bayes_irsl.forecasts.own_precision import log_factors
from bayes_irsl.repeated_fit import counts
from bayes_irsl.responses import Responses

if TYPE_CHECKING:
    from bayes_irsl.fitting import Fit

Floats = npt.NDArray[np.floating]
Indices = npt.NDArray[np.intp]


class CurveRates(NamedTuple):
    """Rates ~ Beta(mu phi, (1 - mu) phi) before a subject's own counts, or mu itself where ``phi`` is None.

    ``mu`` of a subject's row (n, J); ``phi`` of a subject's row (n, J) or (n, 1); ``benchmark`` (J,) codes.
    """

    mu: Callable[[int], Floats]
    phi: Callable[[int], Floats] | None
    benchmark: Indices


def curve_rates(
    fit: Fit, posterior: xr.Dataset, benchmarks: tuple[str, ...], columns: Indices, population: bool, seed: int
) -> CurveRates:
    """Of a fit's items at ``columns``, which belong to ``benchmarks``; with ``population`` of new items instead."""
    likelihood = fit.spec.likelihood
    if likelihood not in ("binomial", "beta-binomial"):
        raise InputError(f"pass@k needs counts: likelihood 'binomial' or 'beta-binomial', not {likelihood!r}")
    theta = posterior["theta"].to_numpy().astype(float)
    theta = theta[..., None] if theta.ndim == 2 else theta
    draws = item_draws(fit, posterior, list(benchmarks), np.random.default_rng([seed, 32]) if population else None)
    order = np.arange(len(draws.labels)) if population else _order(draws.labels, fit.responses, columns)

    def mu(row: int) -> Floats:
        return draws.probabilities(theta[:, row][:, :, None, None])[:, 0, 0][:, order]

    common = concentration(posterior, likelihood)
    if common is None:
        return CurveRates(mu, None, draws.benchmark[order])
    factor = np.exp(_log_factors(fit, posterior, theta, common, seed))
    whole = common[:, columns] if common.shape[1] > 1 and not population else common.mean(1, keepdims=True)
    return CurveRates(mu, lambda row: whole * factor[:, [row]], draws.benchmark[order])


def concentration(posterior: xr.Dataset, likelihood: str) -> Floats | None:
    """phi (n, J) or (n, 1) of a beta-binomial, None of a binomial."""
    if likelihood == "binomial":
        return None
    phi = posterior["phi"].to_numpy().astype(float)
    return phi if phi.ndim == 2 else phi[:, None]


def count_table(r: Responses, rows: Indices, columns: Indices) -> tuple[Floats, Floats]:
    """Successes and trials (S, J) of some subjects and items, 0 where there are none."""
    c, n = counts(r)
    full = np.zeros((2, r.n_subjects, r.n_items))
    full[:, r.subject_index, r.item_index] = c, n
    part = full[:, rows][:, :, columns]
    return part[0], part[1]


def _log_factors(fit: Fit, posterior: xr.Dataset, theta: Floats, phi: Floats, seed: int) -> Floats:
    """Draws (n, S) of what every subject of the fit multiplies the precision by, in logs; whatever is asked."""
    r = fit.responses
    everything = item_draws(fit, posterior, list(chosen(fit, None)), None)
    order = _order(everything.labels, r, np.arange(r.n_items))

    def curves(row: int, at: Indices) -> Floats:
        return everything.probabilities(theta[:, row][:, :, None, None])[:, 0, 0][at][:, order]

    table = count_table(r, np.arange(r.n_subjects), np.arange(r.n_items))
    return log_factors(curves, phi, *table, np.random.default_rng([seed, 35]))


def _order(labels: list[str], r: Responses, columns: Indices) -> Indices:
    """Where the fit's items at ``columns`` stand among ``labels``."""
    place = {label: i for i, label in enumerate(labels)}
    return np.array([place[str(v)] for v in np.asarray(r.items.index)[columns]], np.intp)
