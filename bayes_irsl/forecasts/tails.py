"""Which tail? Predictive scores of the alternatives, and what each of them makes of pass@k far out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike
from scipy.special import betaln, logsumexp, xlog1py, xlogy

from bayes_irsl._options import check_mass, check_seed, reals
from bayes_irsl.errors import InputError
from bayes_irsl.fitting import Fit, fit
from bayes_irsl.forecasts.curve_rates import count_table, curve_rates
from bayes_irsl.forecasts.passk import pass_at_k
from bayes_irsl.forecasts.scores import clustered_error
from bayes_irsl.repeated_fit import counts
from bayes_irsl.responses import Responses
from bayes_irsl.spec import ItemResponse, RepeatedSampling
from bayes_irsl.tails import TAILS, log_choose, with_never

Floats = npt.NDArray[np.floating]

# Draws of parameters that a predictive probability is averaged over.
DRAWS = 400
ALL = tuple(RepeatedSampling(tail, never) for tail in TAILS for never in (False, True))


def compare_tails(
    responses: Responses,
    specs: Sequence[RepeatedSampling | ItemResponse] = ALL,
    *,
    k: ArrayLike = (100, 10_000),
    seed: int = 0,
    mass: float = 0.9,
) -> pd.DataFrame:
    """Fit every tail to half of the samples, score it on the other half, and forecast from all of them.

    Where the scores of two tails are level and their pass@k is not, the answer rests on which of them is believed, and
    more samples of the questions that nothing has solved would tell.

    Parameters
    ----------
    responses
        Counts; cells with a single sample are used for fitting only.
    specs
        Alternatives; all tails, with and without a share that is never solved. An ItemResponse of counts may be among
        them: item curves that all subjects share.
    k, mass
        Of :func:`bayes_irsl.pass_at_k`.
    seed
        Of the split and the fits.

    Returns
    -------
    DataFrame
        One row a spec, subject, benchmark and k: ``gain``, the mean log predictive probability (nats a cell) of the
        other half's counts less the best spec's, with its standard error ``gain_se`` clustered by item, and the
        forecast ``mean``, ``lower``, ``upper`` of pass@k.
    """
    check_mass(mass)
    reals("k", k, "whole numbers of samples")
    specs = tuple(specs) if isinstance(specs, Sequence) else (specs,)
    wrong = [spec for spec in specs if not isinstance(spec, RepeatedSampling | ItemResponse)]
    if wrong or not specs:
        got = repr(wrong[0]) if wrong else "nothing"
        raise InputError(f"specs holds {got}: expected RepeatedSampling or ItemResponse")
    first, rest = halves(responses, check_seed(seed))
    scores, tables = [], []
    for spec in specs:
        scores.append(log_predictive(fit(spec, first, seed=seed, draws=DRAWS, progress=False), rest))
        found = pass_at_k(fit(spec, responses, seed=seed, progress=False), k, mass=mass, seed=seed)
        columns = {name: found[f"pass_at_k_{name}"] for name in ("mean", "lower", "upper")}
        table = pd.concat([v.to_series().rename(name) for name, v in columns.items()], axis=1).reset_index()
        tail, never = _name(spec, responses)
        tables.append(table.assign(tail=tail, never=never))
    values = np.stack(scores)
    best = values[values.mean(1).argmax()]
    item = rest.item_index
    for table, value in zip(tables, values, strict=True):
        table["gain"] = (value - best).mean()
        table["gain_se"] = clustered_error(value - best, item) if value is not best else 0.0
    order = ["tail", "never", "gain", "gain_se", "subject", "benchmark", "k", "mean", "lower", "upper"]
    return pd.concat(tables, ignore_index=True)[order]


def _name(spec: RepeatedSampling | ItemResponse, responses: Responses) -> tuple[str, bool]:
    """Tail, and whether it has a share that is never solved."""
    if isinstance(spec, RepeatedSampling):
        return spec.tail, spec.never
    resolved = spec.resolve(responses)
    return f"{resolved.curve} curves, {resolved.likelihood}", False


def halves(responses: Responses, seed: int) -> tuple[Responses, Responses]:
    """Samples of every cell dealt into two halves at random, the larger one first; single samples go there too."""
    c, n = counts(responses)
    rng = np.random.default_rng([seed, 41])
    second = np.floor(n / 2)
    hit = rng.hypergeometric(c.astype(int), (n - c).astype(int), second.astype(int))
    several = second > 0
    if not (n >= 3).any():
        raise InputError("no cell has three samples: half of them are held out, and a fit needs two of the rest")

    def of(successes: Floats, trials: Floats, kept: npt.NDArray[np.bool_]) -> Responses:
        long = pd.DataFrame(
            {
                "subject": np.asarray(responses.subjects.index)[responses.subject_index],
                "item": np.asarray(responses.items.index)[responses.item_index],
                "c": successes.astype(int),
                "n": trials.astype(int),
            }
        )[kept]
        facts = {"subjects": responses.subjects, "items": responses.items}
        return Responses.from_long(long, successes="c", trials="n", **facts)

    return of(c - hit, n - second, n - second > 0), of(hit.astype(float), second, several)


def log_predictive(fitted: Fit, rest: Responses) -> Floats:
    """Log probability (n_obs,) of further counts of the fitted subjects and items, given their own counts so far."""
    seen = fitted.responses
    posterior = fitted.tree.posterior.to_dataset().stack(sample=("chain", "draw")).transpose("sample", ...)
    row = np.asarray(seen.subjects.index.get_indexer(rest.subjects.index))[rest.subject_index]
    column = np.asarray(seen.items.index.get_indexer(rest.items.index))[rest.item_index]
    full = np.stack(count_table(seen, np.arange(seen.n_subjects), np.arange(seen.n_items)))
    trials = np.ones(rest.n_obs) if rest.trials is None else np.asarray(rest.trials, float)
    cells = np.stack([*full[:, row, column], np.asarray(rest.answer, float), trials], 1)
    if isinstance(fitted.spec, ItemResponse):
        return _on_curves(fitted, posterior, cells, row, column)
    return _on_tail(fitted.spec, posterior, cells, row, np.asarray(rest.items["benchmark"], dtype=str)[rest.item_index])


def _on_curves(
    fitted: Fit, posterior: xr.Dataset, cells: Floats, row: npt.NDArray[np.intp], column: npt.NDArray[np.intp]
) -> Floats:
    """For cells (c, n, more, trials): a binomial on the curve, or a beta-binomial around it with the counts so far."""
    r = fitted.responses
    names = tuple(dict.fromkeys(np.asarray(r.items["benchmark"], dtype=str).tolist()))
    curves = curve_rates(fitted, posterior, names, np.arange(r.n_items), False, fitted.seed)
    out = np.empty(len(cells))
    for s in np.unique(row):
        here = row == s
        c, n, more, trials = cells[here].T
        mu = np.clip(curves.mu(int(s))[:, column[here]], 1e-12, 1 - 1e-12)
        if curves.phi is None:
            found = xlogy(more, mu) + xlog1py(trials - more, -mu)
        else:
            phi = curves.phi(int(s))
            phi = phi[:, column[here]] if phi.shape[1] > 1 else phi
            alpha, beta = mu * phi + c, (1 - mu) * phi + n - c
            found = betaln(alpha + more, beta + trials - more) - betaln(alpha, beta)
        out[here] = logsumexp(found, axis=0) - np.log(len(found)) + log_choose(trials, more)
    return out


def _on_tail(
    spec: RepeatedSampling, posterior: xr.Dataset, cells: Floats, row: npt.NDArray[np.intp], benchmark: npt.NDArray[Any]
) -> Floats:
    """For cells (c, n, more, trials): P(both) / P(first), each with its parameters drawn given all that was seen."""
    tail, names = TAILS[spec.tail], posterior["benchmark"].to_numpy().astype(str).tolist()
    out = np.empty(len(cells))
    for s in np.unique(row):
        for name in np.unique(benchmark[row == s]):
            here, b = (row == s) & (benchmark == name), names.index(name)
            distinct, which = np.unique(cells[here], axis=0, return_inverse=True)
            location, shape = (posterior[v].to_numpy()[:, b, s] for v in ("location", "shape"))
            never = posterior["never"].to_numpy()[:, b, s] if spec.never else None
            total = distinct[:, :2] + distinct[:, 2:]
            both = tail.log_likelihood(location, shape, total[:, 0], total[:, 1])
            alone = tail.log_likelihood(location, shape, distinct[:, 0], distinct[:, 1])
            if never is not None:
                both = with_never(both, never, total[:, 0])
                alone = with_never(alone, never, distinct[:, 0])
            found = logsumexp(both - alone, axis=0) - np.log(len(both)) + _ways(distinct)
            out[here] = found[which.ravel()]
    return out


def _ways(cells: Floats) -> Floats:
    """log of C(n, c) C(m, d) / C(n + m, c + d) for rows (c, n, d, m): which of the successes came first."""
    c, n, d, m = cells.T
    return log_choose(n, c) + log_choose(m, d) - log_choose(n + m, c + d)
