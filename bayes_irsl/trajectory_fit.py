"""Trajectories fitted in two stages: abilities from answers or scores, then their course over compute."""

from __future__ import annotations

import json
import platform
from importlib.metadata import version
from typing import Any

import jax
import numpy as np
import numpy.typing as npt
import xarray as xr

from bayes_irsl.abilities import Estimated, chance_of, from_item_draws, from_scores, is_aggregate
from bayes_irsl.covariates import Layout, layout
from bayes_irsl.errors import InputError
from bayes_irsl.inference.staged import Estimates, staged
from bayes_irsl.inference.tree import PACKAGES
from bayes_irsl.item_fit import Run, fit_items
from bayes_irsl.responses import Responses
from bayes_irsl.spec import AbilityTrajectory

Floats = npt.NDArray[np.floating]

# Rows of the dense covariance that the trajectory stage factors at every step.
MOST_ROWS = 1500
# Which coordinate each hyperparameter runs over.
DIMS = {"level": "dimension", "slope": "dimension", "pull": "covariate", "bend": "covariate"}


def fit_trajectory(spec: AbilityTrajectory, responses: Responses, run: Run) -> xr.DataTree:
    """The posterior of abilities, items and trajectory as one tree."""
    place = layout(spec, responses.subjects)
    rng = np.random.default_rng([run.seed, 7])
    n = run.per_chain * run.chains
    if is_aggregate(responses):
        floor = chance_of(responses.items) if spec.chance == "floor" else np.zeros(responses.n_items)
        estimated = from_scores(responses, floor, n, rng)
        posterior, constant, diagnostics = _score_items(responses), _score_facts(responses, floor), {}
    else:
        items = Run(**{**run.__dict__, "method": "laplace"})
        _, tree = fit_items(spec.items, responses, items)
        estimated = _from_items(tree)
        posterior, constant = tree.posterior.to_dataset(), tree["constant_data"].to_dataset()
        diagnostics = {f"items_{k}": v for k, v in json.loads(tree.attrs["diagnostics"]).items()}
    estimates = _at_points(estimated, place)
    hypers, theta, stats = staged(
        estimates,
        spec.priors,
        seed=run.seed,
        chains=run.chains,
        draws=run.per_chain,
        warmup=run.warmup,
        target_accept=run.target_accept,
        max_tree_depth=run.max_tree_depth,
        progress=run.progress,
    )
    out = xr.DataTree.from_dict(
        {
            "posterior": _posterior(posterior, responses, estimated, place, hypers, theta, run),
            "sample_stats": _stats(stats, run),
            "observed_data": responses.to_xarray(),
            "constant_data": constant.assign(
                reference=("covariate", 10.0**place.reference, {"long_name": "covariates at which levels are stated"}),
            ).assign_coords(covariate=list(place.covariates)),
        }
    )
    facts = {
        "spec": {"kind": "AbilityTrajectory", **spec.to_dict()},
        "method": run.method,
        "seed": run.seed,
        "versions": {name: version(name) for name in PACKAGES} | {"python": platform.python_version()},
        "device": jax.default_backend(),
        "data_hash": responses.data_hash,
        "scale": f"logit of accuracy, chance level: {spec.chance}"
        if is_aggregate(responses)
        else "of the items' calibration",
        "diagnostics": diagnostics | {"diverging": int(stats["diverging"].sum())},
    }
    out.attrs = {name: json.dumps(value) for name, value in facts.items()}
    return out


def _from_items(tree: xr.DataTree) -> Estimated:
    posterior = tree.posterior.to_dataset()
    theta = posterior["theta"].stack(sample=("chain", "draw")).transpose("sample", "subject", ...).to_numpy()
    if "dimension" not in posterior["theta"].dims:
        return from_item_draws(theta[..., None].astype(float), np.ones((1, 1)), ("ability",))
    names = tuple(posterior["dimension"].to_numpy().astype(str).tolist())
    correlation = posterior["correlation"].mean(("chain", "draw")).to_numpy().astype(float)
    # Abilities are on the scale on which calibration subjects have sd 1.
    return from_item_draws(theta.astype(float), correlation, names)


def _at_points(estimated: Estimated, place: Layout) -> Estimates:
    """Estimates of the subjects that have covariates, dimension by dimension."""
    d, s = len(estimated.dimensions), len(place.used)
    if d * s > MOST_ROWS:
        raise InputError(
            f"{s} subjects x {d} abilities are {d * s} rows: this trajectory stage takes {MOST_ROWS}. Fit a part of "
            "the subjects (responses.select), for instance every other checkpoint, or fewer benchmarks at a time."
        )
    points, subject = place.points(d)
    error = np.zeros((d, s, d, s))
    rows = np.arange(s)
    error[:, rows, :, rows] = estimated.error[place.used]
    return Estimates(
        points=points,
        subject=subject,
        mean=estimated.mean[place.used].T.ravel(),
        error=error.reshape(d * s, d * s),
        draws=estimated.draws[:, place.used].swapaxes(1, 2).reshape(len(estimated.draws), d * s),
    )


def _posterior(
    items: xr.Dataset,
    responses: Responses,
    estimated: Estimated,
    place: Layout,
    hypers: dict[str, Floats],
    theta: Floats,
    run: Run,
) -> xr.Dataset:
    """Item draws as the first stage left them, abilities after the second, and the hyperparameters."""
    d, shape = len(estimated.dimensions), (run.chains, run.per_chain)
    everyone = estimated.draws.copy()
    everyone[:, place.used] = theta.reshape(len(theta), d, -1).swapaxes(1, 2)
    variables: dict[str, Any] = {}
    dims: tuple[str, ...] = ("chain", "draw", "subject", "dimension")
    if "dimension" not in items.get("theta", xr.DataArray()).dims and not is_aggregate(responses):
        everyone, dims = everyone[..., 0], dims[:3]
    variables["theta"] = (dims, everyone.reshape(*shape, *everyone.shape[1:]).astype(np.float32))
    for name, value in hypers.items():
        value = value.reshape(*shape, *value.shape[1:])
        if name == "correlation":
            variables[name] = (("chain", "draw", "dimension", "other_dimension"), value)
        elif name in DIMS:
            variables[name] = (("chain", "draw", DIMS[name]), value)
        elif value.ndim == 2:
            variables[name] = (("chain", "draw"), value)
    coords = {
        "chain": np.arange(run.chains),
        "draw": np.arange(run.per_chain),
        "subject": np.asarray(responses.subjects.index, dtype=str),
        "dimension": list(estimated.dimensions),
        "other_dimension": list(estimated.dimensions),
        "covariate": list(place.covariates),
    }
    kept = items.drop_vars([name for name in ("theta", "correlation", "sd_theta") if name in items])
    used = {dim for dims, _ in variables.values() for dim in dims}
    return (
        kept.drop_vars([c for c in coords if c in kept.coords and c in used])
        .assign(variables)
        .assign_coords({name: value for name, value in coords.items() if name in used})
    )


def _score_items(responses: Responses) -> xr.Dataset:
    """Benchmarks as items: their curve is the ability's own."""
    return xr.Dataset(coords={"item": np.asarray(responses.items.index, dtype=str)})


def _score_facts(responses: Responses, floor: Floats) -> xr.Dataset:
    benchmark = np.asarray(responses.items["benchmark"], dtype=str)
    return xr.Dataset(
        {
            "item_benchmark": ("item", benchmark),
            "item_dimension": ("item", benchmark),
            "item_floor": ("item", floor),
        },
        coords={"item": np.asarray(responses.items.index, dtype=str)},
    )


def _stats(stats: dict[str, np.ndarray], run: Run) -> xr.Dataset:
    named = {
        "lp": -stats["potential_energy"],
        "diverging": stats["diverging"],
        "n_steps": stats["num_steps"],
        "acceptance_rate": stats["accept_prob"],
        "energy": stats["energy"],
        "step_size": stats["step_size"],
    }
    coords = {"chain": np.arange(run.chains), "draw": np.arange(run.per_chain)}
    return xr.Dataset({k: (("chain", "draw"), v) for k, v in named.items()}, coords)
