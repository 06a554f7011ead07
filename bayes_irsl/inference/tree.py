"""The one shape of every result: an xarray DataTree with chain and draw, whatever the method."""

from __future__ import annotations

import json
import platform
from importlib.metadata import version
from typing import Any

import jax
import numpy as np
import xarray as xr

from bayes_irsl.cells import Problem
from bayes_irsl.inference.scale import RawDraws, fixed_hypers, to_bank_scale
from bayes_irsl.inference.structure import Structure
from bayes_irsl.priors import Prior

PACKAGES = ("jax", "numpyro", "arviz", "xarray", "numpy", "scipy")


def build_tree(
    problem: Problem,
    s: Structure,
    raw: RawDraws,
    stats: dict[str, np.ndarray],
    *,
    chains: int,
    method: str,
    seed: int,
    diagnostics: dict[str, Any],
) -> xr.DataTree:
    """Groups posterior, sample_stats, log_prior, observed_data, constant_data; root attributes are JSON text."""
    r = problem.responses
    coords = {
        "subject": np.asarray(r.subjects.index, dtype=str),
        "item": np.asarray(r.items.index, dtype=str),
        "benchmark": np.asarray(problem.benchmarks, dtype=str),
        "dimension": np.asarray(problem.dimensions, dtype=str),
        "other_dimension": np.asarray(problem.dimensions, dtype=str),
    }
    variables = to_bank_scale(problem, s, raw, seed)
    log_prior: dict[str, tuple[tuple[str, ...], np.ndarray]] = {
        name: ((), value) for name, value in raw.log_prior(s, problem).items()
    }
    named_stats = {name: (("chain", "draw"), value) for name, value in stats.items()}
    if problem.spec.abilities == "one":
        dimension = np.zeros(r.n_items, int)
    else:
        labels = np.asarray(r.items[problem.spec.abilities], dtype=str)
        dimension = np.array([list(problem.dimensions).index(v) if v in problem.dimensions else 0 for v in labels])
    constant = {
        "n_answers_item": ("item", np.bincount(r.item_index, minlength=r.n_items)),
        "n_answers_subject": ("subject", np.bincount(r.subject_index, minlength=r.n_subjects)),
        "item_benchmark": ("item", np.asarray(r.items["benchmark"], dtype=str)),
        "item_dimension": ("item", np.asarray(problem.dimensions, dtype=str)[dimension]),
        "calibration_subject": (
            "subject",
            np.isin(np.arange(r.n_subjects), problem.kept_subjects).astype(np.int8),
        ),
    }
    tree = xr.DataTree.from_dict(
        {
            "posterior": _by_chain(variables, coords, chains),
            "sample_stats": xr.Dataset(named_stats, _chain_coords(chains, len(raw.theta) // chains)),
            "log_prior": _by_chain(log_prior, {}, chains),
            "observed_data": r.to_xarray(),
            "constant_data": xr.Dataset(constant, {k: coords[k] for k in ("item", "subject")}),
        }
    )
    facts = {
        "spec": {"kind": "ItemResponse", **problem.spec.to_dict()},
        "method": method,
        "seed": seed,
        "versions": {name: version(name) for name in PACKAGES} | {"python": platform.python_version()},
        "device": jax.default_backend(),
        "precision": str(jax.numpy.zeros(()).dtype),
        "data_hash": r.data_hash,
        "scale": f"{problem.scale} in every draw"
        if problem.anchor is None
        else f"of the anchoring bank: {problem.scale}",
        "anchored_on": problem.scale_id,
        "fixed": fixed_hypers(s),
        "diagnostics": diagnostics,
    }
    tree.attrs = {name: json.dumps(value) for name, value in facts.items()}
    return tree


def log_prior_of(priors: Any, posterior: xr.Dataset) -> xr.Dataset:
    """Log prior density of every hyperparameter that has a prior in ``priors``, by draw; further dimensions summed."""
    found = {}
    for name in priors.__dataclass_fields__:
        prior = getattr(priors, name)
        if name in posterior and isinstance(prior, Prior):
            value = posterior[name]
            density = np.asarray(prior.distribution().log_prob(value.to_numpy().astype(np.float32)))
            found[name] = xr.DataArray(density, value.coords, value.dims).sum(value.dims[2:])
    return xr.Dataset(found)


def _chain_coords(chains: int, draws: int) -> dict[str, np.ndarray]:
    return {"chain": np.arange(chains), "draw": np.arange(draws)}


def _by_chain(
    variables: dict[str, tuple[tuple[str, ...], np.ndarray]], coords: dict[str, np.ndarray], chains: int
) -> xr.Dataset:
    draws = len(next(iter(variables.values()))[1]) // chains
    data = {
        name: (("chain", "draw", *dims), value.reshape(chains, draws, *value.shape[1:]))
        for name, (dims, value) in variables.items()
    }
    used = {dim for dims, _ in variables.values() for dim in dims}
    return xr.Dataset(data, _chain_coords(chains, draws) | {k: v for k, v in coords.items() if k in used})
