"""Draws of thousands of abilities, fitted and new, given hyperparameters: the algebra of blocks at work."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from bayes_irsl import kernels
from bayes_irsl.block_layout import Blocks, Runs, by_group
from bayes_irsl.blocks import (
    across_dimensions,
    column,
    effects,
    group_loadings,
    inverse,
    loadings,
    run_covariance,
    solve,
    trend,
)
from bayes_irsl.inference.dense import normal_draw, variances
from bayes_irsl.kernels import Points

Array = Any


def prior_draw(h: dict[str, Array], b: Blocks, key: Array) -> tuple[Array, ...]:
    """Abilities (R, L, D) from their prior given hyperparameters."""
    a, d = across_dimensions(h, b.n_dimensions), b.n_dimensions
    of_shared, of_group, of_run = jax.random.split(key, 3)
    shared = jax.random.normal(of_shared, (len(b.inducing) + (b.n_coordinates == 2), d))
    (z, lacking), f = effects(h, b)
    of_groups = jax.random.normal(of_group, (b.n_groups, f.shape[1], d))
    out = []
    for r, k in zip(b.runs, jax.random.split(of_run, len(b.runs)), strict=True):
        lower = jnp.linalg.cholesky(run_covariance(h, b, r, lacking[r.place]))
        free = (z @ shared)[r.place] + lower @ jax.random.normal(k, (*r.rows.shape, d))
        if b.grouped:
            free = free + f[r.place] @ of_groups[r.group]
        out.append(trend(h, r) + r.mask[..., None] * (free @ a.T))
    return tuple(out)


def conditional_draw(
    h: dict[str, Array],
    b: Blocks,
    errors: tuple[Array, ...],
    shared_error: Array | None,
    first: tuple[Array, ...],
    key: Array,
) -> tuple[Array, ...]:
    """Abilities (R, L, D) given hyperparameters and draws of the first stage, by Matheron's rule.

    prior + K (K + E)^-1 (first - prior) = first - E (K + E)^-1 (first - prior), with ``first`` ~ Normal(estimate, E):
    what groups share of E is added here, the rest is in the draws.
    """
    key, other = jax.random.split(key)
    if shared_error is not None:
        moved = jnp.sqrt(shared_error) * jax.random.normal(other, (b.n_groups, b.n_dimensions))
        first = tuple(f + r.mask[..., None] * moved[r.group][:, None] for f, r in zip(first, b.runs, strict=True))
    prior = prior_draw(h, b, key)
    apart = tuple(column(f - p) for f, p in zip(first, prior, strict=True))
    weights = [
        w.reshape(f.shape) for w, f in zip(solve(inverse(h, b, errors, shared_error), b, apart), first, strict=True)
    ]
    out = [f - jnp.einsum("rlde,rle->rld", e, w) for f, e, w in zip(first, errors, weights, strict=True)]
    if shared_error is not None:
        of_group = shared_error * by_group(
            b, [(r.mask[..., None] * w).sum(1) for r, w in zip(b.runs, weights, strict=True)]
        )
        out = [o - r.mask[..., None] * of_group[r.group][:, None] for o, r in zip(out, b.runs, strict=True)]
    return tuple(out)


def predict(
    h: dict[str, Array], b: Blocks, theta: tuple[Array, ...], places: tuple[Points, Array], mask: Array, key: Array
) -> tuple[Array, Array, dict[str, Array]]:
    """A draw (T,) at new points given fitted abilities (R, L, D), its mean, and the parts of its variance.

    ``places`` are points with the subject (T,) of each; where ``mask`` (T,) is 0 they are padding. New points know the
    fitted ones through the inducing points, and each other in full: beyond the data they share what lies ahead.
    """
    new, subject = places
    a = across_dimensions(h, b.n_dimensions)
    between = a @ a.T
    (z, _), f = effects(h, b)
    z_new, _ = loadings(h, b, new.coordinates)
    f_new = group_loadings(h, b, new.coordinates)[0] if b.grouped else f
    found = [_shared(h, b, r, (z[r.place], f[r.place]), new, (z_new, f_new), between) for r in b.runs]
    names = list(found[0])
    values = tuple(jnp.concatenate([f[name] for name in names], 2) for f in found)
    solved = solve(inverse(h, b), b, values)

    def part(arrays: tuple[Array, ...], k: int) -> list[Array]:
        return [v[..., k * new.size : (k + 1) * new.size] for v in arrays]

    def summed(arrays: tuple[Array, ...]) -> list[Array]:
        return [v.reshape(*v.shape[:2], len(names), new.size).sum(2) for v in arrays]

    apart, total = [column(t - trend(h, r)) for r, t in zip(b.runs, theta, strict=True)], summed(solved)
    mean = kernels.trend(h, new) + sum(jnp.einsum("rit,riu->t", s, v) for s, v in zip(total, apart, strict=True))
    of_dimensions = between[new.dimension][:, new.dimension]
    same = (subject[:, None] == subject[None, :]) * of_dimensions
    own = same * kernels.own_variance(h, new.compute_sd)[:, None]
    within = kernels.parts(h, new, new)
    known = sum(jnp.einsum("rit,riu->tu", v, s) for v, s in zip(summed(values), total, strict=True))
    covariance = kernels.masked(sum(within.values()) + own - known, mask)
    left = {
        name: jnp.diag(within[name])
        - sum((v * s).sum((0, 1)) for v, s in zip(part(values, k), part(solved, k), strict=True))
        for k, name in enumerate(names)
    }
    return normal_draw(mean, covariance, own, key), mean, variances(left, own)


def _shared(
    h: dict[str, Array],
    b: Blocks,
    r: Runs,
    fitted: tuple[Array, Array],
    new: Points,
    ahead: tuple[Array, Array],
    between: Array,
) -> dict[str, Array]:
    """Covariances (R, L D, T) of fitted abilities and new ones, by what they come from.

    ``fitted`` and ``ahead`` are their loadings on what all share and on what groups do.
    """
    found = {"trend": fitted[0] @ ahead[0].T}
    if b.grouped:
        same = (r.group[:, None] == new.group)[:, None, :]
        found["group"] = same * (fitted[1] @ ahead[1].T)
    if b.along_run:
        same = (r.run[:, None] == new.run)[:, None, :]
        position = r.coordinates[..., -1]
        found["run"] = same * jax.vmap(lambda x: kernels.along_run(h, x, new.position))(position)
    across = between[:, new.dimension]
    return {
        name: ((r.mask[..., None] * v)[:, :, None, :] * across).reshape(len(r.rows), -1, new.size)
        for name, v in found.items()
    }
