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
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax.scipy.linalg import solve_triangular

from bayes_irsl import kernels
from bayes_irsl.covariates import Layout
from bayes_irsl.errors import InputError

Array = Any
Floats = npt.NDArray[np.floating]

INDUCING = 64
GROUP_INDUCING = 6
# Longest run that is one dense block.
LONGEST = 512
# Beyond this ratio of standard deviations rounding errors show in a log density.
MOST_CONTRAST = 1e6
# Added to the covariance of inducing points, relative to its mean variance.
RELATIVE_JITTER = 1e-9


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["rows", "mask", "place", "coordinates", "compute_sd", "group", "run", "extra"],
    meta_fields=[],
)
@dataclass(frozen=True)
class Runs:
    """R runs of up to L subjects.

    Attributes
    ----------
    rows : int32 (R, L), subjects; 0 where ``mask`` (R, L) is 0.0.
    place : int32 (R, L), rows of the distinct coordinates.
    coordinates : float (R, L, C), decades from the reference.
    compute_sd : float (R, L), decades.
    group, run : int32 (R,).
    extra : float (R, L, E), other covariates, or None.
    """

    rows: Array
    mask: Array
    place: Array
    coordinates: Array
    compute_sd: Array
    group: Array
    run: Array
    extra: Array | None

    def take(self, table: Any) -> Array:
        """Rows (R, L, ...) of a table by subject (S, ...), padding zero."""
        values = jnp.asarray(table)[self.rows]
        return values * self.mask.reshape(self.mask.shape + (1,) * (values.ndim - 2))


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["runs", "places", "inducing", "group_inducing"],
    meta_fields=["n_groups", "n_dimensions", "grouped", "along_run", "n_extra", "signed"],
)
@dataclass(frozen=True)
class Blocks:
    """All subjects of a fit by run.

    Attributes
    ----------
    runs : of similar length together.
    places : float (U, C), distinct coordinates; ``inducing`` (M, C), those that what all share passes through;
        ``group_inducing`` (N, C), those that the walk of a group does.
    """

    runs: tuple[Runs, ...]
    places: Array
    inducing: Array
    group_inducing: Array
    n_groups: int
    n_dimensions: int
    grouped: bool
    along_run: bool
    n_extra: int
    signed: bool

    @property
    def n_coordinates(self) -> int:
        return self.inducing.shape[1]

    @property
    def scattered(self) -> int:
        """Subjects whose scatter has a size of its own: none, in blocks."""
        return 0


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


def blocks(place: Layout, n_dimensions: int, inducing: int = INDUCING, group_inducing: int = GROUP_INDUCING) -> Blocks:
    """Sort subjects into runs; raises InputError where runs cross groups or are too long."""
    run = place.run if place.along_run else np.arange(len(place.used), dtype=np.int32)
    order = np.argsort(run, kind="stable")
    _, start, size = np.unique(run[order], return_index=True, return_counts=True)
    if size.max() > LONGEST:
        name = place.runs[run[order][start[size.argmax()]]]
        raise InputError(
            f"run {name!r} has {size.max():,} checkpoints: expected at most {LONGEST}. Neighbours say the same thing: "
            "fit every other one (responses.select), or residual='iid'."
        )
    if place.grouped and any(len(set(place.group[order[a : a + n]])) > 1 for a, n in zip(start, size, strict=True)):
        raise InputError("a run has subjects in several groups: give the runs names of their own in each group")
    length = 2 ** np.ceil(np.log2(size)).astype(int)
    places, at = np.unique(np.round(place.coordinates, 9), axis=0, return_inverse=True)
    found = []
    for widest in np.unique(length):
        chosen = np.flatnonzero(length == widest)
        column = np.arange(widest)
        mask = column < size[chosen, None]
        rows = np.where(mask, order[np.minimum(start[chosen, None] + column, len(order) - 1)], 0)
        found.append(
            Runs(
                rows=jnp.asarray(rows, jnp.int32),
                mask=jnp.asarray(mask, float),
                place=jnp.asarray(at.ravel()[rows], jnp.int32),
                coordinates=jnp.asarray(place.coordinates[rows]),
                compute_sd=jnp.asarray(place.compute_sd[rows]),
                group=jnp.asarray(place.group[rows[:, 0]]),
                run=jnp.asarray(run[rows[:, 0]]),
                extra=None if place.extra is None else jnp.asarray(place.extra[rows]),
            )
        )
    return Blocks(
        runs=tuple(found),
        places=jnp.asarray(places),
        inducing=jnp.asarray(spread_out(places, inducing)),
        group_inducing=jnp.asarray(spread_out(places, group_inducing)),
        n_groups=len(place.groups),
        n_dimensions=n_dimensions,
        grouped=place.grouped,
        along_run=place.along_run,
        n_extra=len(place.extras),
        signed=place.signed,
    )


def spread_out(distinct: Floats, most: int) -> Floats:
    """Up to ``most`` rows (M, C) of distinct ones: each the one farthest from those before it, the first the first."""
    if len(distinct) <= most:
        return distinct
    chosen = [0]
    away = np.full(len(distinct), np.inf)
    for _ in range(most - 1):
        away = np.minimum(away, ((distinct - distinct[chosen[-1]]) ** 2).sum(1))
        chosen.append(int(away.argmax()))
    return distinct[np.sort(chosen)]


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
    """Of K plus errors; padding counts as rows of unit variance.

    ``errors`` (R, L, D, D) by entry of ``b.runs`` are every subject's own; of ``shared_error`` (D,), variances, all
    subjects of a group have the same.
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
    factors = [lower for lower, _, _ in found]

    def back(values: list[Array]) -> tuple[Array, ...]:
        return tuple(solve_triangular(f, v, lower=True, trans=1) for f, v in zip(factors, values, strict=True))

    return Inverse(tuple(factors), back(groups) if b.grouped else (), back(commons), log_determinant, contrast)


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


def by_group(b: Blocks, values: list[Array]) -> Array:
    """Sums over runs (G, ...) of values (R, ...)."""
    parts = [jax.ops.segment_sum(v, r.group, b.n_groups) for r, v in zip(b.runs, values, strict=True)]
    return sum(parts[1:], parts[0])


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
    inv = inverse(h, b, errors, shared_error)
    apart = tuple(column(e - trend(h, r)) for r, e in zip(b.runs, estimates, strict=True))
    quadratic = sum((v * w).sum() for v, w in zip(apart, solve(inv, b, apart), strict=True))
    n = b.n_dimensions * sum(r.mask.sum() for r in b.runs)
    density = -0.5 * (quadratic + inv.log_determinant + n * jnp.log(2 * jnp.pi))
    return jnp.where(inv.contrast < MOST_CONTRAST, density, jnp.nan)


def column(values: Array) -> Array:
    """(R, L, D) as columns (R, L D, 1)."""
    return values.reshape(len(values), -1, 1)


def by_subject(b: Blocks, values: tuple[Array, ...], n_subjects: int) -> Array:
    """Values (R, L, ...) back in the order of subjects (S, ...)."""
    out = jnp.zeros((n_subjects + 1, *values[0].shape[2:]))
    for r, v in zip(b.runs, values, strict=True):
        # Padding goes to a row of its own, which is left out.
        out = out.at[jnp.where(r.mask > 0, r.rows, n_subjects)].set(v)
    return out[:n_subjects]
