"""A map under which items, abilities and trajectory are nearly independent standard normals, so that NUTS needs few
steps.

Deviations follow the data where these say much and the trend where they say little, and how far depends on the
hyperparameters: given these, abilities are their conditional mean + C M^-T u, with C C' = K the prior covariance in
units of the estimates' error and M M' = I + C' C, which has covariance (K^-1 + I)^-1. Item parameters follow abilities
by a regression read off the approximation, hyperparameters their own covariance. Sampling is exact whatever was read
off wrongly, because the density carries the map's determinant. Source: Hoffman et al. (2019), "NeuTra-lizing bad
geometry", with conditional normals in the place of a flow.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax.flatten_util import ravel_pytree
from jax.scipy.linalg import cho_solve, solve_triangular
from numpyro import handlers
from numpyro.infer.util import constrain_fn

from bayes_irsl import kernels
from bayes_irsl.inference.centring import SUFFIX
from bayes_irsl.kernels import Points
from bayes_irsl.models import trajectory as models
from bayes_irsl.priors import TrajectoryPriors

Array = Any
Floats = npt.NDArray[np.floating]
ABILITIES = "ability_free"
# Sites of the item program with one element an item, or an item but the last where they sum to zero.
ITEM_SITES = ("intercept", "log_a_deviation", "guessing_deviation", "log_phi_item")
# Share of its own variance that keeps a covariance of few draws from being singular.
RIDGE = 1e-4


class Names(NamedTuple):
    """Unconstrained parameters by part: of the trajectory, of every item, and the rest."""

    trend: tuple[str, ...]
    items: tuple[str, ...]
    rest: tuple[str, ...]


class Guide(NamedTuple):
    """Constants of the map, all on the scale of fitting.

    ``trend`` and ``rest`` are a mean and a Cholesky factor. ``estimate`` (A,) and ``whiten`` (A, D S) are deviations
    and how to get them, in units of ``error`` (A, A), a Cholesky factor. Items are ``items`` (J K) + ``slopes`` (J K, A
    + R) of the difference to ``centre`` + ``spread`` (J, K, K) of their own.
    """

    trend: tuple[Array, Array]
    rest: tuple[Array, Array]
    estimate: Array
    error: Array
    whiten: Array
    items: Array
    slopes: Array
    centre: Array
    spread: Array


def names_of(free: dict[str, Array], points: Points, priors: TrajectoryPriors) -> Names:
    """Which unconstrained parameter belongs where."""
    trend = {name for name, _, _ in models.hyperparameter_priors(points, priors)} | {"correlation_tril"}
    trend &= set(free)
    items = {name for name in free if name.removesuffix(SUFFIX) in ITEM_SITES}
    rest = set(free) - trend - items - {ABILITIES}
    return Names(*(tuple(sorted(part)) for part in (trend, items, rest)))


def guide(
    names: Names,
    free: dict[str, Array],
    mean: Floats,
    error: Floats,
    size: Floats,
    item_dimension: npt.NDArray[np.intp],
) -> Guide:
    """Read off draws (n, ...) by name of an approximation, and abilities (S, D) with errors (S, D, D).

    ``mean`` and ``error`` are for abilities with sd 1, ``size`` (n, D) are draws of their sd on the scale of fitting.
    """
    (s, d), n_items = mean.shape, len(item_dimension)
    basis = models.zero_sum_basis(s, d).astype(float)
    estimate, factor = _on_fitting_scale(mean, error, size, basis)
    abilities, rest = np.asarray(free[ABILITIES], float), _flat(free, names.rest)
    cause = np.concatenate([abilities, rest], 1)
    centred = cause - cause.mean(0)
    # A parameter that the last item lacks is nobody's: it stays at 0 and takes no part.
    valid = np.stack([np.arange(n_items) < np.shape(free[name])[1] for name in names.items], 1)
    table = np.zeros((len(cause), n_items, len(names.items)))
    for k, name in enumerate(names.items):
        table[:, : np.shape(free[name])[1], k] = free[name]
    slopes = np.zeros((n_items, len(names.items), cause.shape[1]))
    for dim in range(d):
        of_dimension = np.arange(dim * (s - 1), (dim + 1) * (s - 1))
        columns = np.concatenate([of_dimension, np.arange(abilities.shape[1], cause.shape[1])])
        chosen = item_dimension == dim
        y = table[:, chosen] - table[:, chosen].mean(0)
        x = centred[:, columns]
        gram = x.T @ x
        found = np.linalg.solve(gram + RIDGE * np.diag(np.diag(gram)), x.T @ y.reshape(len(y), -1))
        slopes[np.ix_(chosen, np.arange(len(names.items)), columns)] = found.T.reshape(*y.shape[1:], -1)
    left = table - table.mean(0) - np.einsum("nc,jkc->njk", centred, slopes)
    own = np.einsum("njk,njl->jkl", left, left) / len(left)
    own += np.eye(len(names.items)) * np.where(valid, 1e-10, 1.0)[:, None, :]
    read = Guide(
        _moments(_flat(free, names.trend)),
        _moments(_flat(free, names.rest)),
        np.linalg.solve(factor, estimate),
        factor,
        np.linalg.solve(factor, basis.T),
        table.mean(0).ravel(),
        slopes.reshape(-1, cause.shape[1]),
        cause.mean(0),
        np.linalg.cholesky(own),
    )
    return jax.tree.map(lambda v: jnp.asarray(v, jnp.float32), read)


def forward(
    u: dict[str, Array], g: Guide, names: Names, points: Points, subject: Array, priors: TrajectoryPriors
) -> tuple[dict[str, Array], Array]:
    """Unconstrained parameters from standard normals of the same shapes, and the log determinant but for a constant."""
    trend = _affine(u, names.trend, g.trend)
    rest = _affine(u, names.rest, g.rest)
    mean, prior, both = _given_trend(trend, g, points, subject, priors)
    abilities = g.error @ (mean + prior @ solve_triangular(both, u[ABILITIES], lower=True, trans="T"))
    cause = jnp.concatenate([abilities, ravel_pytree(rest)[0]]) - g.centre
    own, back = _by_item({name: u[name] for name in names.items}, g)
    moved = g.items + g.slopes @ cause + jnp.einsum("jkl,jl->jk", g.spread, own).ravel()
    determinant = jnp.log(jnp.diag(prior)).sum() - jnp.log(jnp.diag(both)).sum()
    return trend | rest | back(moved) | {ABILITIES: abilities}, determinant


def _on_fitting_scale(mean: Floats, error: Floats, size: Floats, basis: Floats) -> tuple[Floats, Floats]:
    """Deviations (A,) and the Cholesky factor of their error, of which a stretch that all abilities share is a part."""
    s, d = mean.shape
    deviations = mean * size.mean(0)
    found = np.zeros((d, s, d, s))
    at = np.arange(s)
    found[:, at, :, at] = error * size.mean(0)[:, None] * size.mean(0)
    stretch = np.cov(np.log(size).T).reshape(d, d)
    found += np.einsum("sd,te,de->dset", deviations, deviations, stretch)
    return basis.T @ deviations.T.ravel(), np.linalg.cholesky(basis.T @ found.reshape(d * s, d * s) @ basis)


def _given_trend(
    trend: dict[str, Array], g: Guide, points: Points, subject: Array, priors: TrajectoryPriors
) -> tuple[Array, Array, Array]:
    """Conditional mean of the deviations, Cholesky factors C of K and M of I + C' C, in units of their errors."""
    program = partial(models.hyperparameters, points, priors, level=False)
    values = constrain_fn(program, (), {}, trend)
    h = handlers.substitute(handlers.seed(program, 0), values)()
    mean = g.whiten @ kernels.trend(h, points)
    covariance = g.whiten @ kernels.prior_covariance(h, points, subject) @ g.whiten.T
    prior = jnp.linalg.cholesky(covariance)
    both = jnp.linalg.cholesky(jnp.eye(len(mean)) + prior.T @ prior)
    found = mean + prior @ cho_solve((both, True), prior.T @ (g.estimate - mean))
    return found, prior, both


def _by_item(values: dict[str, Array], g: Guide) -> tuple[Array, Any]:
    """Parameters (J, K) of items, and the way back from J K values."""
    n_items, k = g.spread.shape[:2]
    columns = [jnp.pad(v, (0, n_items - len(v))) for v in values.values()]

    def back(flat: Array) -> dict[str, Array]:
        table = flat.reshape(n_items, k)
        return {name: table[: len(v), i] for i, (name, v) in enumerate(values.items())}

    return jnp.stack(columns, 1), back


def _affine(u: dict[str, Array], names: tuple[str, ...], moments: tuple[Array, Array]) -> dict[str, Array]:
    flat, back = ravel_pytree({name: u[name] for name in names})
    return back(moments[0] + moments[1] @ flat)


def _moments(draws: Floats) -> tuple[Floats, Floats]:
    """Mean and Cholesky factor of the covariance of draws (n, p)."""
    covariance = np.cov(draws.T).reshape(draws.shape[1], -1)
    return draws.mean(0), np.linalg.cholesky(covariance + np.diag(RIDGE * np.diag(covariance) + 1e-12))


def _flat(free: dict[str, Array], names: tuple[str, ...]) -> Floats:
    """Draws (n, p) of the named parameters, in the order of ``ravel_pytree``."""
    n = len(free[ABILITIES])
    return np.concatenate([np.zeros((n, 0)), *(np.asarray(free[name], float).reshape(n, -1) for name in names)], 1)
