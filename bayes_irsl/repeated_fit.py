"""Repeated sampling fitted: from counts of successes to a tree of every subject's rates, benchmark by benchmark."""

from __future__ import annotations

import json
import platform
from importlib.metadata import version
from typing import Any

import jax
import numpy as np
import numpy.typing as npt
import xarray as xr

from bayes_irsl._validate import some
from bayes_irsl.abilities import LEAST_INFORMATION, Estimated
from bayes_irsl.errors import InputError
from bayes_irsl.inference.hyperparameters import Sampler
from bayes_irsl.inference.rates import Counts, counts_of, grid, nuts, quadrature
from bayes_irsl.inference.tree import PACKAGES, log_prior_of
from bayes_irsl.item_fit import Run
from bayes_irsl.responses import Responses
from bayes_irsl.spec import RepeatedSampling
from bayes_irsl.tails import TAILS

Floats = npt.NDArray[np.floating]

PARAMETERS = ("location", "shape", "never")
# What a trajectory follows of each benchmark.
RATE_DIMENSIONS = ("rate", "tail")


def fit_rates(spec: RepeatedSampling, responses: Responses, run: Run) -> xr.DataTree:
    """The posterior of every subject's location and shape as one tree."""
    assert spec.priors is not None
    successes, trials = counts(responses)
    of_item = np.asarray(responses.items["benchmark"], dtype=str)
    names = list(dict.fromkeys(of_item.tolist()))
    quick = run.method == "quadrature"
    sampler = Sampler(
        run.seed, run.chains, run.per_chain if quick else run.draws, run.warmup, run.target_accept,
        run.max_tree_depth, run.progress, "importance" if quick else "nuts",
    )  # fmt: skip
    how = quadrature if quick else nuts
    found = [how(spec, by_subject(responses, successes, trials, of_item == name), sampler) for name in names]
    shape = (run.chains, sampler.draws)
    variables: dict[str, Any] = {
        label: (
            ("chain", "draw", "benchmark", "subject"),
            np.stack([drawn[..., p] for _, drawn, *_ in found], 1).reshape(*shape, len(names), -1),
        )
        for p, label in enumerate(PARAMETERS[: found[0][1].shape[2]])
    }
    for label in found[0][0]:
        values = np.stack([h[label] for h, *_ in found], -1)
        variables[label] = (("chain", "draw", "benchmark"), values.reshape(*shape, -1))
    coords = {"chain": np.arange(run.chains), "draw": np.arange(sampler.draws)}
    labels = {"benchmark": names, "subject": np.asarray(responses.subjects.index, dtype=str)}
    posterior = xr.Dataset(variables, coords | labels)
    stats = {k: (("chain", "draw", "benchmark"), np.stack([s[k] for _, _, s, _ in found], -1)) for k in found[0][2]}
    facts = [f for *_, f in found]
    diagnostics: dict[str, Any] = {}
    if "pareto_k" in facts[0]:
        diagnostics = {
            "pareto_k": max(f["pareto_k"] for f in facts),
            "effective_draws": min(f["effective_draws"] for f in facts),
            "at_rim": max(f["at_rim"] for f in facts),
        }
    if "diverging" in stats:
        diagnostics["diverging"] = int(stats["diverging"][1].sum())
    out = xr.DataTree.from_dict(
        {
            "posterior": posterior,
            "sample_stats": xr.Dataset(stats, coords | {"benchmark": names}),
            "log_prior": log_prior_of(spec.priors, posterior),
            "observed_data": responses.to_xarray(),
            "constant_data": xr.Dataset(
                {"item_benchmark": ("item", of_item)}, {"item": np.asarray(responses.items.index, dtype=str)}
            ),
        }
    )
    attributes = {
        "spec": {"kind": "RepeatedSampling", **spec.to_dict()},
        "method": run.method,
        "seed": run.seed,
        "versions": {name: version(name) for name in PACKAGES} | {"python": platform.python_version()},
        "device": jax.default_backend(),
        "data_hash": responses.data_hash,
        "diagnostics": diagnostics,
    }
    out.attrs = {name: json.dumps(value) for name, value in attributes.items()}
    return out


def rate_estimates(spec: RepeatedSampling, responses: Responses, n_draws: int, rng: np.random.Generator) -> Estimated:
    """Normal summaries of what counts say of every subject's location and shape: the first stage of a trajectory.

    Dimensions are "<benchmark> rate" and "<benchmark> tail".
    """
    if spec.never:
        raise InputError("never=True: a trajectory follows location and shape only; leave it out")
    tail = TAILS[spec.tail]
    cavity = np.array(tail.cavity)
    prior = np.diag(1 / cavity[:, 1] ** 2)
    successes, trials = counts(responses)
    of_item = np.asarray(responses.items["benchmark"], dtype=str)
    names = list(dict.fromkeys(of_item.tolist()))
    s, d = responses.n_subjects, 2 * len(names)
    mean, error = np.zeros((s, d)), np.zeros((s, d, d))
    for b, name in enumerate(names):
        at = slice(2 * b, 2 * b + 2)
        for i, known in enumerate(by_subject(responses, successes, trials, of_item == name)):
            g = grid(tail, False, known)
            nodes = g.nodes
            log_weight = g.log_likelihood.ravel() - 0.5 * (((nodes - cavity[:, 0]) / cavity[:, 1]) ** 2).sum(1)
            weight = np.exp(log_weight - log_weight.max())
            weight /= weight.sum()
            centre = weight @ nodes
            away = nodes - centre
            posterior = np.linalg.inv((away.T * weight) @ away)
            # Where the likelihood says nothing, or curves the other way, next to no information is left.
            value, vector = np.linalg.eigh(posterior - prior)
            left = (vector * np.maximum(value, LEAST_INFORMATION)) @ vector.T
            error[i, at, at] = np.linalg.inv(left)
            mean[i, at] = error[i, at, at] @ (posterior @ centre - prior @ cavity[:, 0])
    lower = np.linalg.cholesky(error)
    draws = mean + np.einsum("sde,nse->nsd", lower, rng.standard_normal((n_draws, s, d)))
    dimensions = tuple(f"{name} {what}" for name in names for what in RATE_DIMENSIONS)
    return Estimated(dimensions, mean, error, draws)


def counts(responses: Responses) -> tuple[Floats, Floats]:
    """Successes and trials (n_obs,); raises InputError for answers that are no counts of repeated samples."""
    if responses.kind == "probability":
        raise InputError(
            "answers are probabilities: repeated sampling needs counts of successes and the number of samples; build "
            "the responses with successes= and trials="
        )
    trials = np.ones(responses.n_obs) if responses.trials is None else np.asarray(responses.trials, float)
    if trials.max() < 2:
        raise InputError(
            "every question was sampled once: how rates are spread over questions cannot be told from such answers, "
            "and pass@k is not pass@1 of the average question; take two samples or more of each"
        )
    return np.asarray(responses.answer, float), trials


def by_subject(responses: Responses, successes: Floats, trials: Floats, items: npt.NDArray[np.bool_]) -> list[Counts]:
    """Distinct counts of every subject on some items."""
    rows, kept = responses.subject_index, items[responses.item_index]
    empty = [str(responses.subjects.index[i]) for i in range(responses.n_subjects) if not (kept & (rows == i)).any()]
    if len(empty) == responses.n_subjects:
        raise InputError(f"no subject has answers to the chosen items; subjects are {some(empty)}")
    return [counts_of(successes[kept & (rows == i)], trials[kept & (rows == i)]) for i in range(responses.n_subjects)]
