"""Fits with known draws: answers simulated from known parameters, and a posterior that scatters around them."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import xarray as xr

from bayes_irsl.diagnostics.predict import sample_answers
from bayes_irsl.fitting import Fit
from bayes_irsl.responses import Responses
from bayes_irsl.spec import ItemResponse


def sigmoid(x):
    return 1 / (1 + np.exp(-np.asarray(x, float)))


def simulate(theta, a, b, likelihood="bernoulli", *, c=0.0, phi=20.0, trials=None, rng, shift=0.0):
    """Answers (subjects, items) drawn from the model; ``shift`` (subjects, items) is added to the logits."""
    mean = c + (1 - c) * sigmoid(np.asarray(a) * (np.asarray(theta)[:, None] - np.asarray(b)) + shift)
    log_phi = () if likelihood in ("bernoulli", "binomial") else (np.full((1, 1), np.log(phi)),)
    n = np.full((1, 1), 1 if trials is None else trials)
    return sample_answers(likelihood, mean, 0.0, 0.0, n, log_phi, rng)


def fit_of(
    table,
    theta,
    a,
    b,
    *,
    c=None,
    phi=None,
    noise=0.05,
    trials=None,
    subjects=None,
    items=None,
    spec=None,
    method="laplace",
    chains=4,
    draws=25,
    seed=0,
    extra=None,
    stats=None,
    attrs=None,
):
    """A Fit whose posterior draws are the given parameters and independent noise.

    Arrays with a leading axis of chains * draws are taken as the draws themselves. ``extra`` are further variables of
    the posterior (chain, draw, ...), as (dims, values).
    """
    rng = np.random.default_rng(seed)
    responses = table if isinstance(table, Responses) else Responses.from_wide(table, trials=trials)
    responses = responses.annotate(
        None if subjects is None else pd.DataFrame(subjects, index=responses.subjects.index),
        None if items is None else pd.DataFrame(items, index=responses.items.index),
    )
    spec = (spec or ItemResponse()).resolve(responses)
    n = chains * draws

    def scattered(value, positive=False):
        value = np.asarray(value, float)
        if value.ndim == 2 and len(value) == n:
            return value.reshape(chains, draws, *value.shape[1:])
        around = noise * rng.standard_normal((chains, draws, *value.shape))
        return value * np.exp(around) if positive else value + around

    data = {
        "theta": (("chain", "draw", "subject"), scattered(theta)),
        "b": (("chain", "draw", "item"), scattered(b)),
        "a": (("chain", "draw", "item"), scattered(np.broadcast_to(a, np.shape(b)), positive=True)),
    }
    if c is not None:
        c = np.broadcast_to(c, np.shape(b))
        data["c"] = (("chain", "draw", "item"), np.broadcast_to(c, (chains, draws, *c.shape)).copy())
    if phi is not None:
        data["phi"] = (("chain", "draw"), scattered(phi, positive=True))
    for name, (dims, values) in (extra or {}).items():
        data[name] = (("chain", "draw", *dims), values)
    coords = {
        "chain": np.arange(chains),
        "draw": np.arange(draws),
        "subject": np.asarray(responses.subjects.index, str),
        "item": np.asarray(responses.items.index, str),
        "benchmark": list(dict.fromkeys(responses.items["benchmark"])),
    }
    dimension = np.full(responses.n_items, "ability")
    groups = {
        "posterior": xr.Dataset(data, coords),
        "observed_data": responses.to_xarray(),
        "constant_data": xr.Dataset({"item_dimension": ("item", dimension)}, {"item": coords["item"]}),
    }
    if stats is not None:
        groups["sample_stats"] = xr.Dataset({k: (("chain", "draw"), v) for k, v in stats.items()})
    tree = xr.DataTree.from_dict(groups)
    facts = {
        "spec": {"kind": "ItemResponse", **spec.to_dict()},
        "method": method,
        "seed": seed,
        "versions": {"jax": "0", "python": "3"},
        "data_hash": responses.data_hash,
        "fixed": [],
        "diagnostics": {"converged": True, "n_iterations": 9, "newton_decrement": 1e-4},
        **(attrs or {}),
    }
    tree.attrs = {name: json.dumps(value) for name, value in facts.items()}
    return Fit(spec, responses, tree)


def ordinary_fit(n_subjects=60, n_items=40, *, seed=0, missing=0.0, likelihood="bernoulli", **options):
    """A fit that is right: the draws scatter around the parameters that made the answers."""
    rng = np.random.default_rng(seed)
    theta, b, a = (
        rng.normal(size=n_subjects),
        rng.normal(size=n_items),
        np.exp(0.3 * rng.normal(size=n_items)),
    )
    trials = 12 if likelihood in ("binomial", "beta-binomial") else None
    phi = 20.0 if "beta" in likelihood else None
    table = simulate(theta, a, b, likelihood, trials=trials, rng=rng).astype(float)
    table[rng.random(table.shape) < missing] = np.nan
    spec = replace(options.pop("spec", None) or ItemResponse(), likelihood=likelihood)
    options.setdefault("noise", 0.01)
    return fit_of(table, theta, a, b, phi=phi, trials=trials, spec=spec, seed=seed, **options)


def abilities_given_items(table, a, b, n, rng):
    """Posterior draws (n, subjects) of abilities with prior N(0, 1), items known, 0/1 answers: by quadrature."""
    grid = np.linspace(-5, 5, 301)
    logit = np.asarray(a) * (grid[:, None] - np.asarray(b))
    log_p = table @ -np.log1p(np.exp(-logit)).T + (1 - table) @ -np.log1p(np.exp(logit)).T - grid**2 / 2
    weight = np.exp(log_p - log_p.max(1, keepdims=True))
    cumulative = np.cumsum(weight, 1) / weight.sum(1, keepdims=True)
    u = rng.random((n, len(table)))
    return np.stack([grid[np.clip(np.searchsorted(cumulative[i], u[:, i]), 0, 300)] for i in range(len(table))], 1)


def biased_families(bias, seed):
    """BIN-15: generator, families of 1,000 subjects, abilities (B 0.8 lower), shifts of logits (item 4, for B)."""
    rng = np.random.default_rng(seed)
    family = np.repeat(["A", "B"], 500)
    theta = rng.normal(size=1000) - 0.8 * (family == "B")
    shift = np.zeros((1000, 15))
    shift[family == "B", 4] = -bias
    return rng, family, theta, shift
