"""Ability over compute: a trend that bends, deviations that fade or persist, and what is measured of them.

``trajectory`` and ``trajectory_in_blocks`` see estimates of abilities with known errors; ``abilities_over_compute`` is
the same prior in the place of independent abilities in :func:`bayes_irsl.models.item_response.item_response`. The
covariance functions are those of :mod:`bayes_irsl.kernels`.
"""

import numpy as np
import numpyro
from bayes_irsl.models.item_response import hyper
from numpyro import distributions as dist
from scipy.linalg import helmert

from bayes_irsl import kernels
from bayes_irsl.blocks import log_density


def trajectory(points, subject, mask, error, estimate=None, *, priors):
    """estimate ~ Normal(trend, covariance of abilities + error); rows where ``mask`` is 0 are padding."""
    h = hyperparameters(points, priors)
    covariance = kernels.masked(kernels.prior_covariance(h, points, subject) + error, mask)
    mean = mask * kernels.trend(h, points)
    numpyro.sample("estimate", dist.MultivariateNormal(mean, covariance_matrix=covariance), obs=estimate)


def trajectory_in_blocks(blocks, errors, shared_error, estimates, *, priors):
    """The same for thousands of abilities, with the covariance and errors of :mod:`bayes_irsl.blocks`."""
    h = hyperparameters(blocks, priors)
    numpyro.factor("estimate", log_density(h, blocks, errors, shared_error, estimates))


def abilities_over_compute(cells, _, *, points, subject, trend_priors):
    """theta (S,) or (S, D) = deviations from their means of abilities ~ Normal(trend, covariance).

    The means are integrated out: deviations have coordinates z = Q' ability, with Q an orthonormal basis of what sums
    to zero over subjects, dimension by dimension.
    """
    h = hyperparameters(points, trend_priors, level=False)
    basis = zero_sum_basis(cells.n_subjects, points.n_dimensions)
    covariance = basis.T @ kernels.prior_covariance(h, points, subject) @ basis
    mean = basis.T @ kernels.trend(h, points)
    free = numpyro.sample("ability_free", dist.MultivariateNormal(mean, covariance_matrix=covariance))
    table = (basis @ free).reshape(points.n_dimensions, cells.n_subjects)
    return numpyro.deterministic("theta", table[0] if points.n_dimensions == 1 else table.T)


def zero_sum_basis(n_subjects, n_dimensions):
    """Orthonormal columns (D S, D (S - 1)): vectors that sum to zero over subjects in every dimension."""
    return np.kron(np.eye(n_dimensions), helmert(n_subjects).T).astype(np.float32)


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
    if points.scattered:
        size = dist.InverseGamma(priors.df / 2, priors.df / 2).expand([points.scattered])
        h["scatter"] = numpyro.sample("scatter", size.to_event(1))
    return h


def hyperparameter_priors(points, priors):
    """(name, prior or number, size or None for one) of all hyperparameters but the correlation."""
    n_coordinates = points.n_coordinates
    found = [
        ("level", priors.level, points.n_dimensions),
        ("slope", priors.slope, points.n_dimensions),
        ("pull", priors.pull if n_coordinates > 1 else 1.0, n_coordinates),
        ("bend", priors.bend, n_coordinates),
    ]
    if points.n_extra:
        found.append(("effect", priors.effect, points.n_extra))
    if points.signed:
        found.append(("direction", priors.direction, points.n_dimensions))
    names = ["sd_drift", "sd_own"]
    if n_coordinates > 1:
        names += ["length_drift", "sd_curve", "length_curve", "sd_product"]
    if points.grouped:
        names += ["sd_group_level", "sd_group_slope", "fan_group", "sd_group_walk"]
    if points.along_run:
        names += ["sd_run", "sd_residual", "length_residual"]
    return found + [(name, getattr(priors, name), None) for name in names]
