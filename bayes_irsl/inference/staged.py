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
from numpyro.infer.util import constrain_fn, initialize_model, potential_energy

from bayes_irsl import kernels
from bayes_irsl.inference.chains import Settings, run_chains
from bayes_irsl.kernels import Points
from bayes_irsl.models import trajectory as models
from bayes_irsl.priors import TrajectoryPriors

Array = Any
# Rows are padded to a multiple of this, so that fits of nearly the same size share one compiled sampler.
BUCKET = 32


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
        data = _padded(estimates)
        potential = Potential(priors)
        keys = jax.random.split(jax.random.key(seed), 3)
        start = _start(potential, chains, keys[0], data)
        size = sum(int(np.prod(v.shape[1:])) for v in jax.tree.leaves(start))
        result = run_chains(
            potential,
            start,
            jnp.ones(size),
            data,
            Settings(warmup, target_accept, max_tree_depth, adapt_metric=True),
            key=keys[1],
            draws=draws,
            progress=progress,
            description="trajectory",
        )
        z = jax.tree.map(lambda v: jnp.asarray(v.reshape(-1, *v.shape[2:])), result.draws)
        hypers = _sites(potential, z, data)
        n = chains * draws
        first = jnp.asarray(np.resize(estimates.draws, (n, estimates.mean.size)))
        theta = _conditional(hypers, _arrays(estimates), jax.random.split(keys[2], n), first)
        return {k: np.asarray(v) for k, v in hypers.items()}, np.asarray(theta), result.stats


def _arrays(estimates: Estimates) -> tuple[Any, ...]:
    points = jax.tree.map(jnp.asarray, estimates.points)
    return points, *map(jnp.asarray, (estimates.subject, estimates.mean, estimates.error))


def _padded(e: Estimates) -> tuple[Any, ...]:
    """(points, subject, mask, error, estimate), rows padded with abilities of which nothing is said."""
    p = e.mean.size
    extra = -p % BUCKET

    def grow(v: Any) -> Array:
        return jnp.asarray(np.concatenate([v, np.zeros((extra, *np.shape(v)[1:]), np.asarray(v).dtype)]))

    error = np.zeros((p + extra, p + extra))
    error[:p, :p] = e.error
    mask = np.arange(p + extra) < p
    return jax.tree.map(grow, e.points), grow(e.subject), jnp.asarray(mask, float), jnp.asarray(error), grow(e.mean)


def _start(potential: Potential, chains: int, key: Array, data: tuple[Any, ...]) -> dict[str, Array]:
    """Starting points near the middle of the prior (uniform in (-1, 1) around it on the unconstrained scale)."""
    from numpyro.infer import init_to_median

    strategy = partial(init_to_median, num_samples=25)
    info = initialize_model(key, potential.model, init_strategy=strategy, model_args=data)
    centre = info.param_info.z
    leaves, tree = jax.tree.flatten(centre)
    keys = jax.random.split(key, len(leaves))
    spread = [
        leaf + 0.5 * jax.random.uniform(k, (chains, *leaf.shape), leaf.dtype, -1.0, 1.0)
        for k, leaf in zip(keys, leaves, strict=True)
    ]
    return jax.tree.unflatten(tree, spread)


@partial(jax.jit, static_argnames=("potential",))
def _sites(potential: Potential, z: dict[str, Array], data: tuple[Any, ...]) -> dict[str, Array]:
    return jax.lax.map(lambda z: potential.sites(z, data), z)


@jax.jit
def _conditional(hypers: dict[str, Array], data: tuple[Any, ...], keys: Array, first: Array) -> Array:
    """Abilities given hyperparameters and the first stage's draws (Matheron's rule), (n, P)."""
    points, subject, mean, error = data

    def one(args: tuple[dict[str, Array], Array, Array]) -> Array:
        h, key, draw = args
        covariance = kernels.prior_covariance(h, points, subject)
        prior = kernels.trend(h, points) + jnp.linalg.cholesky(covariance) @ jax.random.normal(key, mean.shape)
        lower = jnp.linalg.cholesky(covariance + error)
        return prior + covariance @ jax.scipy.linalg.cho_solve((lower, True), draw - prior)

    return jax.lax.map(one, (hypers, keys, first))
