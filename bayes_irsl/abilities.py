"""The first stage of a trajectory: what the answers say of every ability, as normal estimates and matching draws."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import pandas as pd
import xarray as xr
from scipy.special import expit, logit

from bayes_irsl.answers import LIKELIHOODS
from bayes_irsl.curves import mean_logit, with_guessing
from bayes_irsl.errors import InputError
from bayes_irsl.responses import Responses

Floats = npt.NDArray[np.floating]

# Least share of the prior's precision that answers must add for an ability to count as observed; of posterior draws so
# many over their number, since the noise of their mean is divided by the square root of that share.
LEAST_INFORMATION = 1e-3
NOISE = 20.0
# Cavity under which the likelihood of a whole benchmark's score is summarised, and its grid.
CAVITY_MEAN, CAVITY_SD = 0.0, 3.0
GRID = np.linspace(-16.0, 12.0, 1401)
# The same for answers to the items of a bank; item draws that curves are averaged over, and answers worked on at once.
ANSWER_GRID = np.linspace(-12.0, 12.0, 481)
ITEM_DRAWS, ANSWERS = 100, 256
# Error of a score without trials: what is left over is the trajectory's to learn.
EXACT = 1e-3
# The same of a standardised log loss.
EXACT_LOSS = 1e-6


@dataclass(frozen=True)
class Estimated:
    """Normal summaries of the likelihood of abilities, S subjects by D dimensions, and draws that go with them.

    Attributes
    ----------
    dimensions : names.
    mean : float (S, D).
    error : float (S, D, D), covariance of a subject's estimates.
    draws : float (n, S, D), of the first stage, in the order of its draws of items.
    """

    dimensions: tuple[str, ...]
    mean: Floats
    error: Floats
    draws: Floats


def is_aggregate(responses: Responses) -> bool:
    """Whether every benchmark is one item: scores of whole benchmarks."""
    benchmark = responses.items["benchmark"]
    return bool(len(benchmark) == benchmark.nunique())


def from_item_draws(
    theta: Floats, prior: Floats, dimensions: tuple[str, ...], centre: Floats | float = 0.0
) -> Estimated:
    """Estimates from posterior draws of an item response fit, its prior of abilities taken out again.

    Parameters
    ----------
    theta : float (n, S, D)
        Draws.
    prior : float (D, D)
        Covariance of abilities in the item model, and ``centre`` (D,), their mean.
    """
    theta = theta - centre
    n, s, d = theta.shape
    mean = theta.mean(0)
    root, least = np.linalg.cholesky(prior), min(max(LEAST_INFORMATION, NOISE / n), 0.5)
    error, estimate, draws = np.empty((s, d, d)), np.empty((s, d)), np.empty_like(theta)
    for k in range(s):
        # In these coordinates the prior is the unit matrix and the posterior diagonal: precisions are subtracted.
        whitened = np.linalg.solve(root, (theta[:, k] - mean[k]).T)
        posterior, vectors = np.linalg.eigh(np.atleast_2d(whitened @ whitened.T / (n - 1)))
        basis = root @ vectors
        left = np.maximum(1 - posterior, least)
        error[k] = (basis * (posterior / left)) @ basis.T
        estimate[k] = basis @ (np.linalg.solve(basis, mean[k]) / left)
        draws[:, k] = estimate[k] + (basis @ (vectors.T @ whitened / np.sqrt(left)[:, None])).T
    return Estimated(dimensions, estimate + centre, error, draws + centre)


def from_answers(
    drawn: xr.Dataset, responses: Responses, likelihood: str, squeeze: int | None, rng: np.random.Generator
) -> Estimated:
    """Estimates of one ability from answers, each item's curve averaged over its draws.

    Parameters
    ----------
    drawn : Dataset
        Draws of the items, in the order of the responses, with dim "sample".
    """
    n = drawn.sizes["sample"]
    few = drawn.isel(sample=np.linspace(0, n - 1, min(n, ITEM_DRAWS)).round().astype(int))

    def column(name: str) -> Floats | None:
        if name not in few:
            return None
        value = few[name]
        return np.asarray(value.broadcast_like(few["b"]).transpose("item", "sample"), np.float32)

    a, b, c = np.asarray(column("a")), np.asarray(column("b")), column("c")
    names = ["phi" if name == "log_phi" else name for name in LIKELIHOODS[likelihood].parameters]
    rest = [np.asarray(column(name)) for name in names]
    rest = [np.log(x) if name == "phi" else x for name, x in zip(names, rest, strict=True)]
    answer = responses.answer.astype(float)
    answer = answer if squeeze is None else (answer * (squeeze - 1) + 0.5) / squeeze
    height = np.zeros((responses.n_subjects, len(ANSWER_GRID)))
    for start in range(0, responses.n_obs, ANSWERS):
        rows = slice(start, start + ANSWERS)
        j = responses.item_index[rows]
        trials = None if responses.trials is None else responses.trials[rows]
        data = LIKELIHOODS[likelihood].prepare(answer[rows], trials)
        floor = None if c is None else c[j]
        found = _averaged(data, a[j], b[j], floor, tuple(x[j] for x in rest), likelihood)
        np.add.at(height, responses.subject_index[rows], np.asarray(found, float))
    density = height - 0.5 * ((ANSWER_GRID - CAVITY_MEAN) / CAVITY_SD) ** 2
    mean, error = _without_cavity(density, ANSWER_GRID)
    draws = mean[:, None] + np.sqrt(error)[:, None] * rng.standard_normal((n, len(mean), 1))
    return Estimated(("ability",), mean[:, None], error[:, None, None], draws)


@partial(jax.jit, static_argnames=("likelihood",))
def _averaged(data: Any, a: Any, b: Any, c: Any, rest: tuple[Any, ...], likelihood: str) -> Any:
    """Log likelihood (n, G) of answers, averaged over draws."""
    eta = mean_logit(jnp.asarray(ANSWER_GRID, jnp.float32)[:, None], a[:, None], b[:, None])
    if c is not None:
        eta = with_guessing(eta, (jnp.log(c) - jnp.log1p(-c))[:, None])
    at = jax.tree.map(lambda x: x[:, None, None], data)
    terms = LIKELIHOODS[likelihood].log_density(at, jnp.clip(eta, -60.0, 60.0), *(p[:, None] for p in rest))
    return jax.nn.logsumexp(terms, axis=-1) - jnp.log(terms.shape[-1])


def with_losses(
    estimated: Estimated, losses: pd.DataFrame, used: npt.NDArray[np.intp], rng: np.random.Generator
) -> tuple[Estimated, xr.Dataset]:
    """Losses as further dimensions: minus the log of a loss, standardised over the ``used`` subjects; and its scale.

    Parameters
    ----------
    losses : (S, L), positive where they are known.
    """
    columns, means, sds = [], [], []
    for name in losses.columns:
        values = losses[name].to_numpy(float, na_value=np.nan)
        bad = np.flatnonzero(~np.isnan(values) & ~((values > 0) & np.isfinite(values)))
        if bad.size:
            i = bad[0]
            raise InputError(f"loss {name!r} of {losses.index[i]!r} is {values[i]:g}: expected a positive number")
        if name in estimated.dimensions:
            raise InputError(f"loss {name!r} has the name of an ability; there are {list(estimated.dimensions)}")
        value = -np.log(values)
        if np.isfinite(value[used]).sum() < 3 or np.nanstd(value[used]) == 0:
            raise InputError(f"loss {name!r} is known of fewer than three subjects with compute, or does not vary")
        columns.append(value)
        means.append(np.nanmean(value[used]))
        sds.append(np.nanstd(value[used]))
    mean = (np.stack(columns, 1) - means) / sds
    variance = np.where(np.isnan(mean), CAVITY_SD**2 / LEAST_INFORMATION, EXACT_LOSS)
    mean = np.nan_to_num(mean)
    draws = mean + np.sqrt(variance) * rng.standard_normal((len(estimated.draws), *mean.shape))
    s, d = estimated.mean.shape
    error = np.zeros((s, d + len(means), d + len(means)))
    error[:, :d, :d] = estimated.error
    error[:, range(d, d + len(means)), range(d, d + len(means))] = variance
    scale = xr.Dataset(
        {"loss_mean": ("loss_name", np.array(means)), "loss_sd": ("loss_name", np.array(sds))},
        {"loss_name": list(losses.columns)},
    )
    found = Estimated(
        (*estimated.dimensions, *losses.columns),
        np.concatenate([estimated.mean, mean], 1),
        error,
        np.concatenate([estimated.draws, draws], 2),
    )
    return found, scale


def from_scores(responses: Responses, chance: Floats, n_draws: int, rng: np.random.Generator) -> Estimated:
    """Estimates of logits of accuracy above a floor (J,) from scores of whole benchmarks.

    The likelihood of a count of right answers is summarised by the moments it gives a wide normal; a score without
    trials is taken as it is.
    """
    items = responses.items
    dimensions = tuple(np.asarray(items["benchmark"], dtype=str).tolist())
    s, d = responses.n_subjects, responses.n_items
    mean, variance = np.zeros((s, d)), np.full((s, d), CAVITY_SD**2 / LEAST_INFORMATION)
    rows, columns = responses.subject_index, responses.item_index
    c = chance[columns]
    if responses.trials is None:
        share = (responses.rate.astype(float) - c) / (1 - c)
        if responses.kind == "binary":
            raise InputError("every benchmark is one item with 0/1 answers: scores of benchmarks need their trials")
        bad = np.flatnonzero((share <= 0) | (share >= 1))
        if bad.size:
            i = bad[0]
            raise InputError(
                f"score {responses.rate[i]:g} of {responses.subjects.index[rows[i]]!r} on {dimensions[columns[i]]!r} "
                f"is not between its chance level {c[i]:g} and 1, where a logit has no value: give the counts "
                "(successes and trials), or leave the chance level out"
            )
        mean[rows, columns], variance[rows, columns] = logit(share), EXACT
    else:
        mean[rows, columns], variance[rows, columns] = count_estimates(responses.answer, responses.trials, c)
    error = np.einsum("sd,de->sde", variance, np.eye(d))
    draws = mean + np.sqrt(variance) * rng.standard_normal((n_draws, s, d))
    return Estimated(dimensions, mean, error, draws)


def chance_of(items: Any) -> Floats:
    """Chance level of every item, 0 where none is known."""
    if "chance" not in items.columns:
        return np.zeros(len(items))
    return np.nan_to_num(np.asarray(items["chance"], float))


def count_estimates(successes: Floats, trials: Floats, chance: Floats) -> tuple[Floats, Floats]:
    """Mean and variance (n,) of normal summaries of Binomial(trials, c + (1 - c) sigmoid(theta)) in theta."""
    mu = chance[:, None] + (1 - chance[:, None]) * expit(GRID)
    k, n = np.asarray(successes, float)[:, None], np.asarray(trials, float)[:, None]
    tail = np.log1p(-chance)[:, None] - np.logaddexp(0, GRID)
    density = k * np.log(mu) + (n - k) * tail - 0.5 * ((GRID - CAVITY_MEAN) / CAVITY_SD) ** 2
    return _without_cavity(density, GRID)


def _without_cavity(density: Floats, grid: Floats) -> tuple[Floats, Floats]:
    """Mean and variance (n,) of normal summaries of likelihoods, from log densities (n, G) under the cavity."""
    weight = np.exp(density - density.max(1, keepdims=True))
    weight /= weight.sum(1, keepdims=True)
    mean = weight @ grid
    # A grid step is the least that the moments can resolve.
    variance = np.maximum((weight * (grid - mean[:, None]) ** 2).sum(1), (grid[1] - grid[0]) ** 2 / 4)
    error = 1 / np.maximum(1 / variance - 1 / CAVITY_SD**2, LEAST_INFORMATION / CAVITY_SD**2)
    return error * (mean / variance - CAVITY_MEAN / CAVITY_SD**2), error
