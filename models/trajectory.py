"""Ability over compute: a trend that bends, deviations that fade or persist, and what is measured of them.

``trajectory`` sees estimates of abilities with known errors; ``abilities_over_compute`` is the same prior in the place
of independent abilities in :func:`bayes_irsl.models.item_response.item_response`. The covariance functions are those
of :mod:`bayes_irsl.kernels`.
"""

import jax.numpy as jnp
import numpyro
from numpyro import distributions as dist

from bayes_irsl import kernels
from bayes_irsl.models.item_response import hyper


def trajectory(points, subject, mask, error, estimate=None, *, priors):
    """estimate ~ Normal(trend, covariance of abilities + error); rows where ``mask`` is 0 are padding."""
    h = hyperparameters(points, priors)
    covariance = kernels.prior_covariance(h, points, subject) + error
    covariance = jnp.outer(mask, mask) * covariance + jnp.diag(1 - mask)
    mean = mask * kernels.trend(h, points)
    numpyro.sample("estimate", dist.MultivariateNormal(mean, covariance_matrix=covariance), obs=estimate)


def abilities_over_compute(cells, _, *, points, subject, trend_priors):
    """theta (S,) or (S, D) ~ Normal(trend, covariance), taken from their mean: the scale of the items is theirs."""
    h = hyperparameters(points, trend_priors, level=False)
    covariance = kernels.prior_covariance(h, points, subject)
    free = numpyro.sample("ability", dist.MultivariateNormal(kernels.trend(h, points), covariance_matrix=covariance))
    table = free.reshape(points.n_dimensions, cells.n_subjects).T
    theta = numpyro.deterministic("theta", table - table.mean(0))
    return theta[:, 0] if points.n_dimensions == 1 else theta


def hyperparameters(points, priors, level=True):
    """Level and slope of every dimension, shape of the trend, sizes and lengths of the deviations (units of slope)."""
    n_coordinates, n_dimensions = points.coordinates.shape[1], points.n_dimensions
    h = {
        "level": hyper("level", priors.level if level else 0.0, n_dimensions),
        "slope": hyper("slope", priors.slope, n_dimensions),
        "pull": hyper("pull", priors.pull if n_coordinates > 1 else 1.0, n_coordinates),
        "bend": hyper("bend", priors.bend, n_coordinates),
    }
    names = ["sd_drift", "sd_own"]
    if n_coordinates > 1:
        names += ["length_drift", "sd_curve", "length_curve", "sd_product"]
    if points.grouped:
        names += ["sd_group_level", "sd_group_slope"]
    if points.along_run:
        names += ["sd_run", "sd_residual", "length_residual"]
    h |= {name: hyper(name, getattr(priors, name)) for name in names}
    if n_dimensions > 1:
        tril = numpyro.sample("correlation_tril", dist.LKJCholesky(n_dimensions, priors.lkj))
        h["correlation"] = numpyro.deterministic("correlation", tril @ tril.T)
    return h
