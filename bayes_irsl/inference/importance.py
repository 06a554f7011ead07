"""A posterior of a few hyperparameters by importance sampling around its mode: for densities that cost a lot.

Adaptive multiple importance sampling (Cornuet and others 2012): rounds of draws from multivariate t distributions, the
first at the mode with the curvature there, each next with the mean and covariance that all draws so far give. Every
draw is weighted by the density over the mixture of all rounds; rounds end when the weights are worth enough equal ones.
What is kept are fresh draws from the last distribution, weighted by themselves, their largest weights smoothed (Vehtari
and others 2024), and resampled. The shape k of the weights' tail says whether it worked: up to 0.7 it did.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from arviz_stats.base import array_stats
from jax.flatten_util import ravel_pytree
from scipy.optimize import minimize
from tqdm.auto import tqdm

Array = Any
Floats = npt.NDArray[np.floating]
Potential = Callable[[Any, Any], Array]

DEGREES = 5
ROUND = 500
MOST_ROUNDS = 16
# Last proposals: their variances over those found, and how many are tried.
WIDER, TRIES = 1.2, 3
# Step of the differences that give the curvature, in units of the unconstrained parameters (logs, mostly).
STEP = 1e-3
NO_WEIGHT = 700.0
# Tails of weights up to this are sampled well.
GOOD = 0.7


class Weighted(NamedTuple):
    """Unconstrained draws, a pytree with leading axis draw, and their log densities; tail and worth of the weights."""

    draws: Any
    log_density: Floats
    pareto_k: float
    effective: float


def importance_sample(
    potential: Potential,
    starts: Any,
    data: Any,
    *,
    draws: int,
    seed: int,
    enough: int = 2000,
    progress: bool = False,
    description: str = "hyperparameters",
) -> Weighted:
    """Sample from exp(-potential(z, data)); to be run under x64.

    Parameters
    ----------
    potential
        Hashable function of the unconstrained parameters (a pytree) and the data: minus the log density.
    starts
        Starting points of the search for the mode, a pytree with leading axis start; the best mode is taken.
    data
        Second argument of ``potential``.
    draws
        Draws to keep; they may repeat.
    enough
        Weights worth so many equal ones end the rounds; the last proposal is drawn from twice as often.
    """
    rng, back = np.random.default_rng([seed, 17]), _back(starts)

    def log_density(x: Floats) -> Floats:
        return _densities(potential, back, x, data)

    with tqdm(total=MOST_ROUNDS, desc=description, disable=not progress, leave=False, unit="round") as bar:
        bar.set_postfix_str("mode")
        rounds = _adapted(mode(potential, starts, data), log_density, enough, rng, bar)
        # Draws that have shaped their own proposal, or ended the rounds, favour the middle: the last are fresh.
        for _ in range(TRIES):
            centre, covariance = rounds[-1][0], WIDER * rounds[-1][1]
            x = _t_draws(centre, covariance, 2 * enough, rng)
            density = log_density(x)
            weight, k = _smoothed(density - _t_density(x, centre, covariance))
            if k <= GOOD:
                break
            rounds.append(_moments(x, weight, rounds[0][1]))
    at = (rng.uniform() + np.arange(draws)) / draws
    chosen = rng.permutation(np.minimum(np.searchsorted(np.cumsum(weight), at), len(weight) - 1))
    return Weighted(jax.vmap(back)(jnp.asarray(x[chosen])), density[chosen], k, float(1 / (weight**2).sum()))


Proposal = tuple[Floats, Floats]


def _adapted(
    first: Proposal, log_density: Callable[[Floats], Floats], enough: int, rng: np.random.Generator, bar: Any
) -> list[Proposal]:
    """Centres and covariances of the rounds, the last being what all draws of all rounds give."""
    rounds = [first]
    x, density = _t_draws(*first, 0, rng), np.zeros(0)
    for _ in range(MOST_ROUNDS):
        new = _t_draws(*rounds[-1], ROUND, rng)
        x, density = np.concatenate([x, new]), np.concatenate([density, log_density(new)])
        weight, k = _smoothed(density - np.logaddexp.reduce([_t_density(x, *r) for r in rounds], 0))
        effective = 1 / (weight**2).sum()
        rounds.append(_moments(x, weight, first[1]))
        bar.update()
        bar.set_postfix_str(f"{effective:.0f} effective draws")
        if effective >= enough and k <= GOOD:
            break
    return rounds


def normal_sample(potential: Potential, starts: Any, data: Any, *, draws: int, seed: int) -> Weighted:
    """Draws of the normal at the mode with the curvature there, as they are: for too many parameters to weight.

    Arguments as of :func:`importance_sample`.
    """
    centre, covariance = mode(potential, starts, data)
    free = np.random.default_rng([seed, 17]).standard_normal((draws, len(centre)))
    x, back = centre + free @ np.linalg.cholesky(covariance).T, _back(starts)
    return Weighted(jax.vmap(back)(jnp.asarray(x)), _densities(potential, back, x, data), np.nan, np.nan)


def mode(potential: Potential, starts: Any, data: Any) -> tuple[Floats, Floats]:
    """The best of the modes that the starts lead to, and the inverse of the curvature there, of the flat parameters."""
    back = _back(starts)

    def slope(x: Floats) -> tuple[float, Floats]:
        value, gradient = _slope(potential, back(jnp.asarray(x)), data)
        found = np.asarray(ravel_pytree(gradient)[0])
        # A step of the line search may leave what can be factored; it is too far then.
        return (float(value), found) if np.isfinite(value) and np.isfinite(found).all() else (1e10, 0 * found)

    flat = np.asarray(jax.vmap(lambda z: ravel_pytree(z)[0])(starts))
    best = min((minimize(slope, x, jac=True) for x in flat), key=lambda f: f.fun)
    return best.x, _covariance(lambda x: slope(x)[1], best.x)


def _back(starts: Any) -> Callable[[Array], Any]:
    """From a flat vector to the parameters, as one of the starts has them."""
    return ravel_pytree(jax.tree.map(lambda v: v[0], starts))[1]


@partial(jax.jit, static_argnames=("potential",))
def _slope(potential: Potential, z: Any, data: Any) -> tuple[Array, Any]:
    return jax.value_and_grad(potential)(z, data)


@partial(jax.jit, static_argnames=("potential",))
def _density(potential: Potential, z: Any, data: Any) -> Array:
    return jax.lax.map(lambda z: -potential(z, data), z)


def _densities(potential: Potential, back: Callable[[Array], Any], x: Floats, data: Any) -> Floats:
    """Log density at every row of x; what cannot be computed has none."""
    whole = np.resize(x, (-(-len(x) // ROUND) * ROUND, x.shape[1]))
    parts = [jax.vmap(back)(jnp.asarray(part)) for part in whole.reshape(-1, ROUND, x.shape[1])]
    found = np.concatenate([np.asarray(_density(potential, part, data)) for part in parts])[: len(x)]
    return np.where(np.isfinite(found), found, -np.inf)


def _covariance(gradient: Callable[[Floats], Floats], mode: Floats) -> Floats:
    """Inverse curvature at the mode by central differences of the gradient; directions without any get unit spread."""
    steps = STEP * np.eye(len(mode))
    curvature = np.stack([(gradient(mode + s) - gradient(mode - s)) / (2 * STEP) for s in steps])
    value, vector = np.linalg.eigh((curvature + curvature.T) / 2)
    return (vector / np.where(value > 0.05, value, 1.0)) @ vector.T


def _t_draws(centre: Floats, covariance: Floats, size: int, rng: np.random.Generator) -> Floats:
    lower = np.linalg.cholesky(covariance)
    scale = np.sqrt(DEGREES / rng.chisquare(DEGREES, size))
    return centre + scale[:, None] * (rng.standard_normal((size, len(centre))) @ lower.T)


def _t_density(x: Floats, centre: Floats, covariance: Floats) -> Floats:
    """Log density of the multivariate t, up to a constant that all rounds share."""
    lower = np.linalg.cholesky(covariance)
    away = np.linalg.solve(lower, (x - centre).T)
    spread = np.log(np.diag(lower)).sum()
    return -0.5 * (DEGREES + len(centre)) * np.log1p((away**2).sum(0) / DEGREES) - spread


def _smoothed(log_ratio: Floats) -> tuple[Floats, float]:
    """Weights that sum to one, their largest smoothed, and the shape of their tail."""
    if not np.isfinite(log_ratio).any():
        return np.full(len(log_ratio), 1 / len(log_ratio)), np.inf
    # ArviZ takes minus the log ratios, as leave-one-out has them; what has no density at all gets no weight.
    log_weight, k = array_stats.psislw(np.minimum(log_ratio.max() - log_ratio, NO_WEIGHT))
    return np.exp(np.asarray(log_weight)), float(k)


def _moments(x: Floats, weight: Floats, curvature: Floats) -> tuple[Floats, Floats]:
    """Weighted mean and covariance, the latter drawn to the curvature's where few draws carry the weight."""
    mean = weight @ x
    away = x - mean
    effective = 1 / (weight**2).sum()
    share = effective / (effective + 2 * x.shape[1])
    return mean, share * (away.T * weight) @ away + (1 - share) * curvature
