"""Covariance of thousands of abilities, written so that solving costs in proportion to their number.

    K = Z Z' + F F' + blockdiag(runs)

What all subjects share (drift, common curve, product) passes through its values at M inducing points and the product:
Z has M + 1 columns. A group has two effects, level and slope: F. What is left is a block a run: the run's level, what
fades along it, and what subjects have for themselves, with the part of the shared variance that the inducing points do
not carry (Snelson and Ghahramani 2006, "fully independent training conditional"). A group's random walk has a few
inducing points of its own, as columns of F. With every distinct coordinate among the inducing points K is the
covariance of :mod:`bayes_irsl.kernels` exactly. Across dimensions every part is multiplied by the same matrix, so that
blocks are Kronecker products before the errors of the estimates come in.

Rows of a run are (subject, dimension), the dimension running fastest.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular

from bayes_irsl import kernels
from bayes_irsl.block_layout import Blocks, Runs, by_group

Array = Any

# Beyond this ratio of standard deviations rounding errors show in a log density.
MOST_CONTRAST = 1e6
# Added to the covariance of inducing points, relative to its mean variance.
RELATIVE_JITTER = 1e-9


class Inverse(NamedTuple):
    """K^-1 = blockdiag(lower lower')^-1 - group group' (within groups) - common common', and log |K|.

    ``contrast`` is the largest ratio of standard deviations, of what subjects share over what they have for themselves,
    that a factor has met; differences lose twice as many digits.
    """

    lower: tuple[Array, ...]
    group: tuple[Array, ...]
    common: tuple[Array, ...]
    log_determinant: Array
    contrast: Array


def across_dimensions(h: dict[str, Array], n_dimensions: int) -> Array:
    """A (D, D) with A A' = covariance of dimensions, in units of the abilities."""
    if n_dimensions == 1:
        return h["slope"].reshape(1, 1)
    return h["slope"][:, None] * jnp.linalg.cholesky(h["correlation"])


def loadings(h: dict[str, Array], b: Blocks, coordinates: Array) -> tuple[Array, Array]:
    """Z (U, M [+ 1]) of one dimension in units of the slope at coordinates (U, C), and the variance (U,) it lacks."""
    x = kernels.bent(h, coordinates)
    u = kernels.bent(h, b.inducing)
    z, lacking = through(partial(kernels.smooth, h), u, x)
    if b.n_coordinates == 2:
        z = jnp.concatenate([z, h["sd_product"] * x.prod(1)[:, None]], 1)
    return z, lacking


def through(covariance: Callable[[Array, Array], Array], u: Array, x: Array) -> tuple[Array, Array]:
    """Loadings (U, M) at ``x`` (U, C) of a covariance that passes through ``u`` (M, C), and the variance it lacks."""
    within = covariance(u, u)
    within = within + RELATIVE_JITTER * jnp.trace(within) * jnp.eye(len(u)) / len(u)
    z = solve_triangular(jnp.linalg.cholesky(within), covariance(u, x), lower=True).T
    return z, jnp.maximum(jax.vmap(lambda x: covariance(x[None], x[None])[0, 0])(x) - (z**2).sum(1), 0)


def group_loadings(h: dict[str, Array], b: Blocks, coordinates: Array) -> tuple[Array, Array]:
    """F (U, 2 + N) of one dimension in units of the slope at coordinates (U, C), and the variance (U,) it lacks."""
    x = kernels.bent(h, coordinates)
    z, lacking = through(partial(kernels.group_walk, h), kernels.bent(h, b.group_inducing), x)
    size = h["sd_group_walk"] * kernels.fan(h, x)
    return jnp.concatenate([kernels.group_loadings(h, x), size[:, None] * z], 1), size**2 * lacking


def run_covariance(h: dict[str, Array], b: Blocks, r: Runs, lacking: Array) -> Array:
    """Covariance (R, L, L) of one dimension that is left when shared and group effects are out; padding unit."""
    diagonal = kernels.own_variance(h, r.compute_sd) + lacking
    covariance = jax.vmap(jnp.diag)(diagonal)
    if b.along_run:
        position = r.coordinates[..., -1]
        covariance = covariance + jax.vmap(lambda x: kernels.along_run(h, x, x))(position)
    return jax.vmap(kernels.masked)(covariance, r.mask)


def trend(h: dict[str, Array], r: Runs) -> Array:
    """Expected abilities (R, L, D), padding zero."""
    worth = kernels.decades_worth(h, r.coordinates, r.extra)
    return r.mask[..., None] * (h["level"] + kernels.steepness(h) * worth[..., None])


def kron(left: Array, right: Array) -> Array:
    """Kronecker products (R, L D, K E) of (R, L, K) and (D, E)."""
    out = left[:, :, None, :, None] * right[None, None, :, None, :]
    return out.reshape(left.shape[0], left.shape[1] * right.shape[0], -1)


def inverse(
    h: dict[str, Array], b: Blocks, errors: tuple[Array, ...] | None = None, shared_error: Array | None = None
) -> Inverse:
    """Of K plus errors, which are as for :func:`factored`."""
    half = factored(h, b, errors, shared_error)

    def back(values: tuple[Array, ...]) -> tuple[Array, ...]:
        return tuple(solve_triangular(f, v, lower=True, trans=1) for f, v in zip(half.lower, values, strict=True))

    return half._replace(group=back(half.group) if b.grouped else (), common=back(half.common))


def factored(
    h: dict[str, Array], b: Blocks, errors: tuple[Array, ...] | None = None, shared_error: Array | None = None
) -> Inverse:
    """What :func:`inverse` solves back: K^-1 = lower'^-1 (I - group group' - common common') lower^-1.

    ``errors`` (R, L, D, D) by entry of ``b.runs`` are every subject's own; of ``shared_error`` (D,), variances, all
    subjects of a group have the same. Padding counts as rows of unit variance.
    """
    a, shared, of_groups = across_dimensions(h, b.n_dimensions), *effects(h, b)
    found = [
        _whitened(h, b, r, a, shared, of_groups, None if errors is None else errors[i], shared_error)
        for i, r in enumerate(b.runs)
    ]
    log_determinant = sum((2 * _log_diagonal(lower) for lower, _, _ in found), jnp.zeros(()))
    contrast = jnp.zeros(())
    groups: list[Array] = [f for _, f, _ in found]
    commons: list[Array] = [z for _, _, z in found]
    if b.grouped:
        gram = by_group(b, [jnp.einsum("rik,ril->rkl", f, f) for f in groups])
        lower = jnp.linalg.cholesky(jnp.eye(gram.shape[-1]) + gram)
        log_determinant = log_determinant + 2 * _log_diagonal(lower)
        contrast = jnp.diagonal(lower, axis1=1, axis2=2).max()
        of_run = [lower[r.group] for r in b.runs]
        groups = [_right_solve(s, f) for s, f in zip(of_run, groups, strict=True)]
        taken = by_group(b, [jnp.einsum("rik,ril->rkl", f, z) for f, z in zip(groups, commons, strict=True)])
        commons = [z - f @ taken[r.group] for r, f, z in zip(b.runs, groups, commons, strict=True)]
        # Products of what was taken out with the loadings as they were: z' z - taken' taken.
        gram = sum(jnp.einsum("rik,ril->kl", z, z) for _, _, z in found)
        gram = gram - jnp.einsum("gki,gkj->ij", taken, taken)
    else:
        gram = sum(jnp.einsum("rik,ril->kl", z, z) for z in commons)
    lower = jnp.linalg.cholesky(jnp.eye(gram.shape[-1]) + gram)
    log_determinant = log_determinant + 2 * _log_diagonal(lower)
    contrast = jnp.maximum(contrast, jnp.diagonal(lower).max())
    commons = [_right_solve(jnp.broadcast_to(lower, (len(z), *lower.shape)), z) for z in commons]
    factors = tuple(lower for lower, _, _ in found)
    return Inverse(factors, tuple(groups) if b.grouped else (), tuple(commons), log_determinant, contrast)


def effects(h: dict[str, Array], b: Blocks) -> tuple[tuple[Array, Array], Array]:
    """At the distinct coordinates: Z (U, M [+ 1]) with the variance (U,) that it and F lack, and F (U, 2 + N)."""
    z, lacking = loadings(h, b, b.places)
    if not b.grouped:
        return (z, lacking), jnp.zeros((len(b.places), 0))
    f, more = group_loadings(h, b, b.places)
    return (z, lacking + more), f


def _whitened(
    h: dict[str, Array],
    b: Blocks,
    r: Runs,
    a: Array,
    shared: tuple[Array, Array],
    of_groups: Array,
    error: Array | None,
    shared_error: Array | None,
) -> tuple[Array, Array, Array]:
    """Cholesky factor of a run's block (R, L D, L D), and its group and shared loadings solved by it."""
    z, lacking = r.mask[..., None] * shared[0][r.place], shared[1][r.place]
    n, length, d = len(r.rows), r.rows.shape[1], b.n_dimensions
    run = kron(run_covariance(h, b, r, lacking), a @ a.T)
    run = jax.vmap(kernels.masked)(run, jnp.repeat(r.mask, d, 1))
    if error is not None:
        at = jnp.arange(length)
        spread = jnp.zeros((n, length, d, length, d)).at[:, at, :, at, :].set(jnp.moveaxis(error, 1, 0))
        run = run + spread.reshape(run.shape)
    lower = jnp.linalg.cholesky(run)
    if not b.grouped:
        return lower, jnp.zeros((n, length * d, 0)), solve_triangular(lower, kron(z, a), lower=True)
    of_group = kron(r.mask[..., None] * of_groups[r.place], a)
    if shared_error is not None:
        of_group = jnp.concatenate([of_group, kron(r.mask[..., None], jnp.diag(jnp.sqrt(shared_error)))], 2)
    both = solve_triangular(lower, jnp.concatenate([of_group, kron(z, a)], 2), lower=True)
    return lower, both[..., : of_group.shape[2]], both[..., of_group.shape[2] :]


def _right_solve(lower: Array, values: Array) -> Array:
    """values lower'^-1, (R, I, K)."""
    return solve_triangular(lower, values.swapaxes(1, 2), lower=True).swapaxes(1, 2)


def _log_diagonal(lower: Array) -> Array:
    return jnp.log(jnp.diagonal(lower, axis1=-2, axis2=-1)).sum()


def solve(inv: Inverse, b: Blocks, values: tuple[Array, ...]) -> tuple[Array, ...]:
    """K^-1 values, each (R, L D, k)."""
    common = sum(jnp.einsum("rik,ril->kl", y, v) for y, v in zip(inv.common, values, strict=True))
    out = [
        jax.scipy.linalg.cho_solve((lower, True), v) - y @ common
        for lower, y, v in zip(inv.lower, inv.common, values, strict=True)
    ]
    if b.grouped:
        group = by_group(b, [jnp.einsum("rik,ril->rkl", g, v) for g, v in zip(inv.group, values, strict=True)])
        out = [o - g @ group[r.group] for o, g, r in zip(out, inv.group, b.runs, strict=True)]
    return tuple(out)


def inverse_diagonal(inv: Inverse, b: Blocks) -> tuple[Array, ...]:
    """Diagonal (R, L D) of K^-1."""
    out = []
    for i, lower in enumerate(inv.lower):
        eye = jnp.broadcast_to(jnp.eye(lower.shape[-1]), lower.shape)
        diagonal = (solve_triangular(lower, eye, lower=True) ** 2).sum(1) - (inv.common[i] ** 2).sum(2)
        out.append(diagonal - (inv.group[i] ** 2).sum(2) if b.grouped else diagonal)
    return tuple(out)


def log_density(
    h: dict[str, Array],
    b: Blocks,
    errors: tuple[Array, ...],
    shared_error: Array | None,
    estimates: tuple[Array, ...],
) -> Array:
    """Log density of estimates (R, L, D) ~ Normal(trend, K + errors); errors as for :func:`inverse`.

    NaN for hyperparameters so far out that double precision cannot tell the density.
    """
    half = factored(h, b, errors, shared_error)
    apart = (column(e - trend(h, r)) for r, e in zip(b.runs, estimates, strict=True))
    white = [solve_triangular(lower, v, lower=True)[..., 0] for lower, v in zip(half.lower, apart, strict=True)]
    common = jnp.stack([jnp.einsum("rik,ri->k", y, v) for y, v in zip(half.common, white, strict=True)]).sum(0)
    quadratic = jnp.stack([(v**2).sum() for v in white]).sum() - (common**2).sum()
    if b.grouped:
        of_group = by_group(b, [jnp.einsum("rik,ri->rk", g, v) for g, v in zip(half.group, white, strict=True)])
        quadratic = quadratic - (of_group**2).sum()
    n = b.n_dimensions * sum(r.mask.sum() for r in b.runs)
    density = -0.5 * (quadratic + half.log_determinant + n * jnp.log(2 * jnp.pi))
    return jnp.where(half.contrast < MOST_CONTRAST, density, jnp.nan)


def column(values: Array) -> Array:
    """(R, L, D) as columns (R, L D, 1)."""
    return values.reshape(len(values), -1, 1)
