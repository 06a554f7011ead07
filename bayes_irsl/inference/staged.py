"""The trajectory stage: hyperparameters by NUTS on the marginal likelihood, then abilities given them, draw by draw.

Estimates of abilities are normal around the abilities, so the abilities integrate out exactly and NUTS sees a handful
of hyperparameters whose priors are its metric. Abilities come back by Matheron's rule from draws of the item stage,
which keeps every draw's abilities and items together. All of it in float64: covariances of near subjects are nearly
singular.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from numpyro.infer.util import constrain_fn, potential_energy

from bayes_irsl import kernels
from bayes_irsl.inference.chains import Settings, run_chains
from bayes_irsl.kernels import Points
from bayes_irsl.models import trajectory as models
from bayes_irsl.priors import Prior, TrajectoryPriors

Array = Any
Floats = npt.NDArray[np.floating]

BUCKET = 64


@dataclass(frozen=True)
class Estimates:
    """Abilities as the first stage leaves them, one row an ability.

    Attributes
    ----------
    points : Points (P).
    subject : int (P,), rows of one subject share a number.
    mean : float (P,), likelihood summary: estimate ~ Normal(ability, error).
    error : float (P, P).
    draws : float (n, P), draws of the first stage; what they deviate from ``mean`` by is distributed as the error.
    """

    points: Points
    subject: np.ndarray
    mean: np.ndarray
    error: np.ndarray
    draws: np.ndarray


@dataclass(frozen=True)
class Potential:
    """Minus the log density of the hyperparameters; data are (points, subject, mask, error, estimate)."""

    priors: TrajectoryPriors

    def __call__(self, z: dict[str, Array], data: tuple[Any, ...]) -> Array:
        return potential_energy(self.model, data, {}, z)

    def sites(self, z: dict[str, Array], data: tuple[Any, ...]) -> dict[str, Array]:
        """Hyperparameters on their natural scales, fixed ones included."""
        return constrain_fn(self.model, data, {}, z, return_deterministic=True)

    @property
    def model(self) -> Any:
        return partial(models.trajectory, priors=self.priors)


def staged(
    estimates: Estimates,
    priors: TrajectoryPriors,
    *,
    seed: int,
    chains: int,
    draws: int,
    warmup: int,
    target_accept: float,
    max_tree_depth: int,
    progress: bool,
) -> tuple[dict[str, np.ndarray], np.ndarray, dict[str, np.ndarray]]:
    """Hyperparameters (n, ...) by name, abilities (n, P) and sampler statistics (chain, draw); n = chains * draws."""
    with jax.enable_x64(True):
        rows = padded_rows(estimates.mean.size)
        data = (
            jax.tree.map(rows.grow, estimates.points),
            rows.grow(estimates.subject),
            rows.mask,
            rows.grow_square(estimates.error),
            rows.grow(estimates.mean),
        )
        potential = Potential(priors)
        rng = np.random.default_rng([seed, 3])
        start = _start(estimates, priors, chains, rng)
        size = sum(int(np.prod(v.shape[1:])) for v in start.values())
        key, other = jax.random.split(jax.random.key(seed))
        result = run_chains(
            potential,
            start,
            jnp.ones(size),
            data,
            Settings(warmup, target_accept, max_tree_depth, adapt_metric=True),
            key=key,
            draws=draws,
            progress=progress,
            description="trajectory",
        )
        z = jax.tree.map(lambda v: jnp.asarray(v.reshape(-1, *v.shape[2:])), result.draws)
        hypers = _sites(potential, z, data)
        n = chains * draws
        first = rows.grow(np.resize(estimates.draws, (n, estimates.mean.size)).T).T
        theta = _conditional(hypers, data, jax.random.split(other, n), first)
        return (
            {k: np.asarray(v) for k, v in hypers.items()},
            np.asarray(theta)[:, : estimates.mean.size],
            result.stats,
        )


@dataclass(frozen=True)
class Rows:
    """Rows of a covariance padded to a round number, so that fits of nearly the same size share compiled code."""

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


def _start(e: Estimates, priors: TrajectoryPriors, chains: int, rng: np.random.Generator) -> dict[str, Array]:
    """Unconstrained starting points (chain, ...) around the priors' centres, levels at the estimates' means."""
    d = e.points.n_dimensions
    out: dict[str, Array] = {}
    for name, prior, size in models.hyperparameter_priors(e.points, priors):
        if isinstance(prior, Prior):
            centre: Any = np.full(() if size is None else (size,), prior.centre)
            if name == "level":
                centre = np.bincount(e.points.dimension, e.mean, d) / np.bincount(e.points.dimension, minlength=d)
            out[name] = jnp.asarray(centre + rng.uniform(-0.5, 0.5, (chains, *np.shape(centre))))
    if d > 1:
        out["correlation_tril"] = jnp.asarray(rng.uniform(-0.5, 0.5, (chains, d * (d - 1) // 2)))
    return out


@partial(jax.jit, static_argnames=("potential",))
def _sites(potential: Potential, z: dict[str, Array], data: tuple[Any, ...]) -> dict[str, Array]:
    return jax.lax.map(lambda z: potential.sites(z, data), z)


@jax.jit
def _conditional(hypers: dict[str, Array], data: tuple[Any, ...], keys: Array, first: Array) -> Array:
    """Abilities given hyperparameters and the first stage's draws (Matheron's rule), (n, P)."""
    points, subject, mask, error, mean = data

    def one(args: tuple[dict[str, Array], Array, Array]) -> Array:
        h, key, draw = args
        covariance = kernels.masked(kernels.prior_covariance(h, points, subject), mask)
        prior = kernels.trend(h, points) + jnp.linalg.cholesky(covariance) @ jax.random.normal(key, mean.shape)
        lower = jnp.linalg.cholesky(covariance + error)
        return prior + covariance @ jax.scipy.linalg.cho_solve((lower, True), draw - prior)

    return jax.lax.map(one, (hypers, keys, first))
