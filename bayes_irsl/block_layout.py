"""Subjects sorted into runs: the arrays that the algebra of :mod:`bayes_irsl.blocks` works on.

Runs of similar length lie together, padded; what all share, and a group's walk, pass through a few inducing points.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from bayes_irsl.covariates import Layout
from bayes_irsl.errors import InputError

Array = Any
Floats = npt.NDArray[np.floating]

INDUCING = 64
GROUP_INDUCING = 6
# Longest run that is one dense block.
LONGEST = 512


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


def by_group(b: Blocks, values: list[Array]) -> Array:
    """Sums over runs (G, ...) of values (R, ...)."""
    parts = [jax.ops.segment_sum(v, r.group, b.n_groups) for r, v in zip(b.runs, values, strict=True)]
    return sum(parts[1:], parts[0])


def by_subject(b: Blocks, values: tuple[Array, ...], n_subjects: int) -> Array:
    """Values (R, L, ...) back in the order of subjects (S, ...)."""
    out = jnp.zeros((n_subjects + 1, *values[0].shape[2:]))
    for r, v in zip(b.runs, values, strict=True):
        # Padding goes to a row of its own, which is left out.
        out = out.at[jnp.where(r.mask > 0, r.rows, n_subjects)].set(v)
    return out[:n_subjects]
