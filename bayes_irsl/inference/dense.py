"""Draws of a few hundred abilities, fitted and new, given hyperparameters: whole covariances, factored as they are.

Covariances are padded to a round size, so that fits of nearly the same size share compiled code. All of it in float64:
covariances of near subjects are nearly singular.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax.scipy.linalg import cho_solve, solve_triangular

from bayes_irsl import kernels
from bayes_irsl.kernels import Points

Array = Any
Floats = npt.NDArray[np.floating]

BUCKET = 64


@dataclass(frozen=True)
class Rows:
    """Rows of a covariance padded to a round number."""

    size: int
    padded: int

    @property
    def mask(self) -> Array:
        """1.0 for real rows, 0.0 for padding."""
        return jnp.asarray(np.arange(self.padded) < self.size, float)

    def grow(self, values: Any) -> Array:
        """Zeros after the first axis's values."""
        values = np.asarray(values)
        extra = np.zeros((self.padded - self.size, *values.shape[1:]), values.dtype)
        return jnp.asarray(np.concatenate([values, extra]))

    def grow_square(self, matrix: Floats) -> Array:
        """Zeros around a matrix."""
        return self.grow(np.asarray(self.grow(matrix.T)).T)


def padded_rows(size: int) -> Rows:
    """A multiple of :data:`BUCKET` that holds ``size`` rows."""
    return Rows(size, -(-size // BUCKET) * BUCKET)


def conditional_draw(h: dict[str, Array], data: tuple[Any, ...], first: Array, key: Array) -> Array:
    """Abilities (P,) given hyperparameters and a draw of the first stage (Matheron's rule).

    ``data`` is (points, subject, mask, error, estimate), as :func:`bayes_irsl.models.trajectory.trajectory` takes it.
    """
    points, subject, mask, error, _ = data
    covariance = kernels.masked(kernels.prior_covariance(h, points, subject), mask)
    prior = kernels.trend(h, points) + jnp.linalg.cholesky(covariance) @ jax.random.normal(key, first.shape)
    lower = jnp.linalg.cholesky(covariance + error)
    return prior + covariance @ cho_solve((lower, True), first - prior)


def predict(
    h: dict[str, Array],
    fitted: tuple[Points, Array],
    mask: Array,
    ability: Array,
    new: tuple[Points, Array],
    new_mask: Array,
    key: Array,
) -> tuple[Array, Array, dict[str, Array]]:
    """A draw (T,) at new points given fitted abilities (P,), its mean, and the parts of its variance.

    Points come with the subject of each; where masks are 0 they are padding.
    """
    (old, old_subject), (points, subject) = fitted, new
    lower = jnp.linalg.cholesky(kernels.masked(kernels.prior_covariance(h, old, old_subject), mask))
    between, within = kernels.parts(h, old, points), kernels.parts(h, points, points)
    solved = {k: solve_triangular(lower, mask[:, None] * v, lower=True) for k, v in between.items()}
    total = sum(solved.values(), jnp.zeros(()))
    residual = solve_triangular(lower, mask * (ability - kernels.trend(h, old)), lower=True)
    mean = kernels.trend(h, points) + total.T @ residual
    own = kernels.own_covariance(h, points, subject)
    covariance = kernels.masked(kernels.covariance(h, points, points) + own - total.T @ total, new_mask)
    left = {k: jnp.diag(v) - (solved[k] ** 2).sum(0) for k, v in within.items()}
    return normal_draw(mean, covariance, own, key), mean, variances(left, own)


def normal_draw(mean: Array, covariance: Array, own: Array, key: Array) -> Array:
    """A draw (T,); what rounding leaves of variances that are fully known must not be negative."""
    floor = kernels.JITTER * jnp.diag(own)
    return mean + jnp.linalg.cholesky(covariance + jnp.diag(floor)) @ jax.random.normal(key, mean.shape)


def variances(left: dict[str, Array], own: Array) -> dict[str, Array]:
    """Variances (T,) that are left of the parts of :func:`bayes_irsl.kernels.parts`: trend, group, run and subject."""
    zero = jnp.zeros(len(own))
    found = {name: jnp.maximum(value, 0) for name, value in left.items()}
    return {
        "trend": found["trend"],
        "group": found.get("group", zero),
        "subject": found.get("run", zero) + jnp.diag(own),
    }
