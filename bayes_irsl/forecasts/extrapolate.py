"""Abilities of new subjects given those of the fitted ones, draw by draw: conditional normals."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import xarray as xr

from bayes_irsl import kernels
from bayes_irsl.covariates import Layout
from bayes_irsl.forecasts.places import Places
from bayes_irsl.inference.staged import padded_rows
from bayes_irsl.priors import TrajectoryPriors

Array = Any
Floats = npt.NDArray[np.floating]


def new_abilities(posterior: xr.Dataset, place: Layout, where: Places, seed: int) -> tuple[Floats, dict[str, Floats]]:
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
    n, d = len(theta), theta.shape[2]
    shape = (d, len(where.pools), len(where.coordinates))
    hypers = {name: posterior[name].to_numpy().astype(float) for name in hyperparameters(posterior)}
    with jax.enable_x64(True):
        fitted, new = place.points(d), where.points(place, d)
        size = new[1].size
        rows, new_rows = padded_rows(fitted[1].size), padded_rows(size)
        draws, mean, variances = _draw(
            jax.tree.map(jnp.asarray, hypers),
            rows.grow(theta.swapaxes(1, 2).reshape(n, -1).T).T,
            jax.tree.map(rows.grow, fitted),
            rows.mask,
            jax.tree.map(new_rows.grow, new),
            new_rows.mask,
            jax.random.split(jax.random.key(seed), n),
        )
        parts = {name: np.asarray(value)[:size].reshape(shape) for name, value in variances.items()}
        parts["trend"] = parts["trend"] + np.var(np.asarray(mean)[:, :size], axis=0).reshape(shape)
        return np.asarray(draws)[:, :size].reshape(n, *shape), parts


def hyperparameters(posterior: xr.Dataset) -> list[str]:
    """Names of the trajectory's hyperparameters among the variables of a posterior."""
    return [name for name in (*TrajectoryPriors.__dataclass_fields__, "correlation") if name in posterior]


@jax.jit
def _draw(
    hypers: dict[str, Array], theta: Array, fitted: Any, mask: Array, new: Any, new_mask: Array, keys: Array
) -> tuple[Array, Array, Any]:
    (old, old_subject), (points, subject) = fitted, new

    def one(args: tuple[dict[str, Array], Array, Array]) -> tuple[Array, Array, dict[str, Array]]:
        h, ability, key = args
        lower = jnp.linalg.cholesky(kernels.masked(kernels.prior_covariance(h, old, old_subject), mask))
        between, within = kernels.parts(h, old, points), kernels.parts(h, points, points)
        solved = {
            k: jax.scipy.linalg.solve_triangular(lower, mask[:, None] * v, lower=True) for k, v in between.items()
        }
        total = sum(solved.values(), jnp.zeros(()))
        apart = mask * (ability - kernels.trend(h, old))
        residual = jax.scipy.linalg.solve_triangular(lower, apart, lower=True)
        mean = kernels.trend(h, points) + total.T @ residual
        own = kernels.own_covariance(h, points, subject)
        covariance = kernels.masked(kernels.covariance(h, points, points) + own - total.T @ total, new_mask)
        # What rounding leaves of variances that are fully known must not be negative.
        floor = kernels.JITTER * jnp.diag(own)
        draw = mean + jnp.linalg.cholesky(covariance + jnp.diag(floor)) @ jax.random.normal(key, mean.shape)
        left = {k: jnp.maximum(jnp.diag(v) - (solved[k] ** 2).sum(0), 0) for k, v in within.items()}
        zero = jnp.zeros_like(mean)
        return (
            draw,
            mean,
            {
                "trend": left["trend"],
                "group": left.get("group", zero),
                "subject": left.get("run", zero) + jnp.diag(own),
            },
        )

    draws, mean, variances = jax.lax.map(one, (hypers, theta, keys))
    return draws, mean, {name: value.mean(0) for name, value in variances.items()}
