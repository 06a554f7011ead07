"""Ability over compute: a trend that bends, deviations that fade or persist, and what is measured of them.

``trajectory`` sees estimates of abilities with known errors; ``abilities_over_compute`` is the same prior in the place
of independent abilities in :func:`bayes_irsl.models.item_response.item_response`. The covariance functions are those
of :mod:`bayes_irsl.kernels`.
"""

import numpyro
from bayes_irsl.models.item_response import hyper
from numpyro import distributions as dist

from bayes_irsl import kernels


def trajectory(points, subject, mask, error, estimate=None, *, priors):
    """estimate ~ Normal(trend, covariance of abilities + error); rows where ``mask`` is 0 are padding."""
    h = hyperparameters(points, priors)
    covariance = kernels.masked(kernels.prior_covariance(h, points, subject) + error, mask)
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
    h = {
        name: hyper(name, prior, size)
        for name, prior, size in hyperparameter_priors(points, priors)
        if level or name != "level"
    }
    h.setdefault("level", 0.0 * h["slope"])
    n_dimensions = points.n_dimensions
    if n_dimensions > 1:
        tril = numpyro.sample("correlation_tril", dist.LKJCholesky(n_dimensions, priors.lkj))
        h["correlation"] = numpyro.deterministic("correlation", tril @ tril.T)
    return h


def hyperparameter_priors(points, priors):
    """(name, prior or number, size or None for one) of all hyperparameters but the correlation."""
    n_coordinates = points.coordinates.shape[1]
    found = [
        ("level", priors.level, points.n_dimensions),
        ("slope", priors.slope, points.n_dimensions),
        ("pull", priors.pull if n_coordinates > 1 else 1.0, n_coordinates),
        ("bend", priors.bend, n_coordinates),
    ]
    names = ["sd_drift", "sd_own"]
    if n_coordinates > 1:
        names += ["length_drift", "sd_curve", "length_curve", "sd_product"]
    if points.grouped:
        names += ["sd_group_level", "sd_group_slope"]
    if points.along_run:
        names += ["sd_run", "sd_residual", "length_residual"]
    return found + [(name, getattr(priors, name), None) for name in names]
