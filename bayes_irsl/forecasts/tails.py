"""Which tail? Predictive scores of the alternatives, and what each of them makes of pass@k far out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd
from numpy.typing import ArrayLike
from scipy.special import logsumexp

from bayes_irsl.errors import InputError
from bayes_irsl.fitting import Fit, fit
from bayes_irsl.forecasts.passk import pass_at_k
from bayes_irsl.forecasts.scores import clustered_error
from bayes_irsl.repeated_fit import counts
from bayes_irsl.responses import Responses
from bayes_irsl.spec import RepeatedSampling
from bayes_irsl.tails import TAILS, log_choose, with_never

Floats = npt.NDArray[np.floating]

# Draws of parameters that a predictive probability is averaged over.
DRAWS = 400
ALL = tuple(RepeatedSampling(tail, never) for tail in TAILS for never in (False, True))


def compare_tails(
    responses: Responses,
    specs: Sequence[RepeatedSampling] = ALL,
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
        Alternatives; all tails, with and without a share that is never solved.
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
    first, rest = halves(responses, seed)
    scores, tables = [], []
    for spec in specs:
        if not isinstance(spec, RepeatedSampling):
            raise InputError(f"specs holds {spec!r}: expected RepeatedSampling")
        scores.append(log_predictive(fit(spec, first, seed=seed, draws=DRAWS, progress=False), rest))
        found = pass_at_k(fit(spec, responses, seed=seed, progress=False), k, mass=mass, seed=seed)
        columns = {name: found[f"pass_at_k_{name}"] for name in ("mean", "lower", "upper")}
        table = pd.concat([v.to_series().rename(name) for name, v in columns.items()], axis=1).reset_index()
        tables.append(table.assign(tail=spec.tail, never=spec.never))
    values = np.stack(scores)
    best = values[values.mean(1).argmax()]
    item = rest.item_index
    for table, value in zip(tables, values, strict=True):
        table["gain"] = (value - best).mean()
        table["gain_se"] = clustered_error(value - best, item) if value is not best else 0.0
    order = ["tail", "never", "gain", "gain_se", "subject", "benchmark", "k", "mean", "lower", "upper"]
    return pd.concat(tables, ignore_index=True)[order]


def halves(responses: Responses, seed: int) -> tuple[Responses, Responses]:
    """Samples of every cell dealt into two halves at random, the larger one first; single samples go there too."""
    c, n = counts(responses)
    rng = np.random.default_rng([seed, 41])
    second = np.floor(n / 2)
    hit = rng.hypergeometric(c.astype(int), (n - c).astype(int), second.astype(int))
    several = second > 0
    if not several.any():
        raise InputError("no cell has two samples: there is nothing to score on")

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
    spec, seen = fitted.spec, fitted.responses
    tail = TAILS[spec.tail]
    full = np.zeros((2, seen.n_subjects, seen.n_items))
    full[:, seen.subject_index, seen.item_index] = counts(seen)
    posterior = fitted.tree.posterior.to_dataset().stack(sample=("chain", "draw")).transpose("sample", ...)
    names = posterior["benchmark"].to_numpy().astype(str).tolist()
    of_item = np.asarray(rest.items["benchmark"], dtype=str)
    code = np.array([names.index(v) for v in of_item])
    row = np.asarray(seen.subjects.index.get_indexer(rest.subjects.index))[rest.subject_index]
    column = np.asarray(seen.items.index.get_indexer(rest.items.index))[rest.item_index]
    c, n = full[0, row, column], full[1, row, column]
    more, trials = counts(rest)
    out = np.empty(rest.n_obs)
    for s in np.unique(row):
        for b in np.unique(code[rest.item_index][row == s]):
            here = (row == s) & (code[rest.item_index] == b)
            cells = np.stack([c[here], n[here], more[here], trials[here]], 1)
            distinct, which = np.unique(cells, axis=0, return_inverse=True)
            location, shape = (posterior[name].to_numpy()[:, b, s] for name in ("location", "shape"))
            never = posterior["never"].to_numpy()[:, b, s] if spec.never else None
            # P(both) / P(first), each with its parameters drawn given all that was seen.
            total = distinct[:, :2] + distinct[:, 2:]
            both = tail.log_likelihood(location, shape, total[:, 0], total[:, 1])
            alone = tail.log_likelihood(location, shape, distinct[:, 0], distinct[:, 1])
            if never is not None:
                both = with_never(both, never, total[:, 0])
                alone = with_never(alone, never, distinct[:, 0])
            ways = _ways(distinct)
            found = logsumexp(both - alone, axis=0) - np.log(len(both)) + ways
            out[here] = found[which.ravel()]
    return out


def _ways(cells: Floats) -> Floats:
    """log of C(n, c) C(m, d) / C(n + m, c + d) for rows (c, n, d, m): which of the successes came first."""
    c, n, d, m = cells.T
    return log_choose(n, c) + log_choose(m, d) - log_choose(n + m, c + d)
