"""Abilities of new subjects given those of the fitted ones, draw by draw: conditional normals."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import xarray as xr

from bayes_irsl.block_layout import Blocks, blocks
from bayes_irsl.covariates import Layout
from bayes_irsl.forecasts.places import Places
from bayes_irsl.inference import block_draws, dense
from bayes_irsl.inference.dense import padded_rows
from bayes_irsl.inference.staged import DENSE_ROWS, once
from bayes_irsl.priors import TrajectoryPriors

Array = Any
Floats = npt.NDArray[np.floating]


def new_abilities(
    posterior: xr.Dataset, place: Layout, where: Places, priors: TrajectoryPriors, seed: int
) -> tuple[Floats, dict[str, Floats]]:
    """Draws (n, D, G, T) of abilities at new places, and the parts of their variance.

    Parameters
    ----------
    posterior
        Posterior of a trajectory with chain and draw stacked as ``sample``, which comes first.

    Returns
    -------
    draws, and {"trend", "group", "subject"} to variances (D, G, T): the trend's with the uncertainty of its
    hyperparameters, the subject's with its run's.
    """
    theta = posterior["theta"].to_numpy().astype(float)[:, place.used]
    theta = theta[..., None] if theta.ndim == 2 else theta
    n, s, d = theta.shape
    shape = (d, len(where.pools), len(where.coordinates))
    hypers = {name: posterior[name].to_numpy().astype(float) for name in hyperparameters(posterior)}
    if place.scattered:
        # New subjects have scatters of their own, after those of the fitted ones.
        places = len(where.pools) * len(where.coordinates)
        half = priors.df / 2
        sizes = 1 / np.random.default_rng([seed, 12]).gamma(half, 1 / half, (n, places))
        hypers["scatter"] = np.concatenate([hypers["scatter"][:, place.used], sizes], 1)
    with jax.enable_x64(True):
        new = where.points(place, d)
        size = new[1].size
        new_rows = padded_rows(size)
        new = jax.tree.map(new_rows.grow, new)
        rest = (new, new_rows.mask, jax.random.split(jax.random.key(seed), n))
        if s * d <= DENSE_ROWS:
            rows = padded_rows(s * d)
            flat = rows.grow(theta.swapaxes(1, 2).reshape(n, -1).T).T
            draws, mean, variances = _in_full(hypers, *rest, flat, jax.tree.map(rows.grow, place.points(d)), rows.mask)
        else:
            draws, mean, variances = _by_run(once(hypers), *rest, jnp.asarray(theta), blocks(place, d))
        parts = {name: np.asarray(value)[:size].reshape(shape) for name, value in variances.items()}
        parts["trend"] = parts["trend"] + np.var(np.asarray(mean)[:, :size], axis=0).reshape(shape)
        return np.asarray(draws)[:, :size].reshape(n, *shape), parts


def hyperparameters(posterior: xr.Dataset) -> list[str]:
    """Names of the trajectory's hyperparameters among the variables of a posterior."""
    return [name for name in (*TrajectoryPriors.__dataclass_fields__, "scatter", "correlation") if name in posterior]


Drawn = tuple[Array, Array, dict[str, Array]]


@jax.jit
def _in_full(
    hypers: dict[str, Array], new: Any, new_mask: Array, keys: Array, theta: Array, fitted: Any, mask: Array
) -> Drawn:
    def one(v: tuple[dict[str, Array], Array, Array]) -> Drawn:
        return dense.predict(v[0], fitted, mask, v[1], new, new_mask, v[2])

    return _averaged(jax.lax.map(one, (hypers, theta, keys)))


@jax.jit
def _by_run(hypers: dict[str, Array], new: Any, new_mask: Array, keys: Array, theta: Array, b: Blocks) -> Drawn:
    """Draws (n, T) at abilities (n, S, D); ``hypers`` (m, ...) serve n / m draws each."""

    def one(v: tuple[dict[str, Array], Array, Array]) -> Drawn:
        def given(ability: Array, key: Array) -> Drawn:
            return block_draws.predict(v[0], b, tuple(r.take(ability) for r in b.runs), new, new_mask, key)

        return jax.vmap(given)(v[1], v[2])

    m = hypers["slope"].shape[0]
    folded = jax.lax.map(one, (hypers, theta.reshape(m, -1, *theta.shape[1:]), keys.reshape(m, -1)))
    return _averaged(jax.tree.map(lambda v: v.reshape(-1, *v.shape[2:]), folded))


def _averaged(found: Drawn) -> Drawn:
    draws, mean, variances = found
    return draws, mean, {name: value.mean(0) for name, value in variances.items()}
