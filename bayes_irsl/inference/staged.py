"""The trajectory stage: hyperparameters on the marginal likelihood, then abilities given them, draw by draw.

Estimates of abilities are normal around the abilities, so the abilities integrate out exactly and only a handful of
hyperparameters is left. Importance sampling around their mode takes a hundredth of the evaluations that NUTS needs;
where its weights are too uneven (many abilities, whose correlations are hyperparameters too), NUTS takes over.
Abilities come back by Matheron's rule from draws of the item stage, which keeps every draw's abilities and items
together. Up to :data:`DENSE_ROWS` abilities covariances are whole (:mod:`.dense`), beyond in blocks
(:mod:`bayes_irsl.blocks`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from bayes_irsl.block_layout import Blocks, blocks, by_subject
from bayes_irsl.covariates import Layout
from bayes_irsl.errors import InputError
from bayes_irsl.inference import block_draws, dense
from bayes_irsl.inference.hyperparameters import Effort, Potential, Sampler, draw_hyperparameters
from bayes_irsl.models import trajectory as models
from bayes_irsl.priors import Prior, TrajectoryPriors

Array = Any
Floats = npt.NDArray[np.floating]

DENSE_ROWS = 192
# Draws of abilities, in blocks, for every draw of hyperparameters: the factor is what costs.
REPEATS = 4


@dataclass(frozen=True)
class Estimates:
    """Abilities as the first stage leaves them, S subjects by D dimensions.

    Attributes
    ----------
    place : their covariates, groups and runs.
    mean : float (S, D), likelihood summary: estimate ~ Normal(ability, error).
    error : float (S, D, D).
    draws : float (n, S, D), draws of the first stage; what they deviate from ``mean`` by is distributed as the error.
    shared_error : float (D,), variances of errors that all subjects of a group have in common, or None.
    """

    place: Layout
    mean: Floats
    error: Floats
    draws: Floats
    shared_error: Floats | None = None


def staged(
    estimates: Estimates, priors: TrajectoryPriors, sampler: Sampler
) -> tuple[dict[str, np.ndarray], np.ndarray, dict[str, np.ndarray], dict[str, Any]]:
    """Hyperparameters (n, ...) by name, abilities (n, S, D), sampler statistics (chain, draw) and facts of the method.

    n = chains * draws. Where subjects' scatters differ hyperparameters are drawn by NUTS.
    """
    with jax.enable_x64(True):
        rng = np.random.default_rng([sampler.seed, 3])
        n, size = sampler.chains * sampler.draws, estimates.mean.size
        if estimates.place.scattered:
            # A scatter of every subject is too much for importance sampling, and for covariances in blocks.
            if size > DENSE_ROWS or sampler.method == "laplace":
                raise InputError(
                    f'scatter="student" with {size} abilities by method={sampler.method or "staged"!r}: it is for up '
                    f'to {DENSE_ROWS} and method="staged"; take scatter="normal"'
                )
            sampler = sampler._replace(method="nuts")
        form = _in_full(estimates, priors, rng) if size <= DENSE_ROWS else _by_run(estimates, priors)
        data, potential, conditional = form
        # Many data make posteriors near normal, and evaluations dear.
        effort = Effort() if size <= DENSE_ROWS else Effort(starts=1, enough=750, repeats=REPEATS)
        hypers, stats, facts = draw_hyperparameters(
            potential, lambda count: _start(estimates, priors, count, rng), data, sampler, "trajectory", effort
        )
        keys = jax.random.split(jax.random.split(jax.random.key(sampler.seed))[1], n)
        theta = conditional(hypers, keys, np.resize(estimates.draws, (n, *estimates.mean.shape)))
        return {k: np.asarray(v) for k, v in hypers.items()}, theta, stats, facts


Conditional = Callable[[dict[str, Array], Array, Floats], Floats]


def _in_full(e: Estimates, priors: TrajectoryPriors, rng: np.random.Generator) -> tuple[Any, Potential, Conditional]:
    """Data, potential and draws of abilities (n, S, D) with whole covariances; rows run dimension by dimension."""
    s, d = e.mean.shape
    points, subject = e.place.points(d)
    error = np.zeros((d, s, d, s))
    at = np.arange(s)
    error[:, at, :, at] = e.error
    # Draws of the first stage lack what groups share.
    extra = np.zeros((len(e.draws), d, s))
    if e.shared_error is not None:
        same = e.place.group[:, None] == e.place.group
        error += np.einsum("de,e,st->dset", np.eye(d), e.shared_error, same)
        moved = np.sqrt(e.shared_error) * rng.standard_normal((len(e.draws), len(e.place.groups), d))
        extra = moved[:, e.place.group].swapaxes(1, 2)
    rows = dense.padded_rows(d * s)
    data = (
        jax.tree.map(rows.grow, points),
        rows.grow(subject),
        rows.mask,
        rows.grow_square(error.reshape(d * s, d * s)),
        rows.grow(e.mean.T.ravel()),
    )

    def conditional(hypers: dict[str, Array], keys: Array, first: Floats) -> Floats:
        flat = rows.grow((first.swapaxes(1, 2) + np.resize(extra, (len(first), d, s))).reshape(len(first), -1).T).T
        theta = np.asarray(_conditional_in_full(hypers, keys, flat, data))[:, : d * s]
        return theta.reshape(-1, d, s).swapaxes(1, 2)

    return data, Potential(priors, models.trajectory), conditional


def _by_run(e: Estimates, priors: TrajectoryPriors) -> tuple[Any, Potential, Conditional]:
    """The same with covariances in blocks."""
    b = blocks(e.place, e.mean.shape[1])
    errors, means = (tuple(r.take(v) for r in b.runs) for v in (e.error, e.mean))
    shared = None if e.shared_error is None else jnp.asarray(e.shared_error)

    def conditional(hypers: dict[str, Array], keys: Array, first: Floats) -> Floats:
        fewer = once({name: np.asarray(value) for name, value in hypers.items()})
        return np.asarray(_conditional_by_run(fewer, keys, jnp.asarray(first), b, errors, shared))

    return (b, errors, shared, means), Potential(priors, models.trajectory_in_blocks), conditional


def _start(e: Estimates, priors: TrajectoryPriors, starts: int, rng: np.random.Generator) -> dict[str, Array]:
    """Unconstrained starting points (start, ...) around the priors' centres, levels at the estimates' means."""
    d = e.mean.shape[1]
    out: dict[str, Array] = {}
    for name, prior, size in models.hyperparameter_priors(e.place.points(d)[0], priors):
        if isinstance(prior, Prior):
            centre: Any = np.full(() if size is None else (size,), prior.centre)
            if name == "level":
                weight = 1 / np.diagonal(e.error, axis1=1, axis2=2)
                centre = (weight * e.mean).sum(0) / weight.sum(0)
            out[name] = jnp.asarray(centre + rng.uniform(-0.5, 0.5, (starts, *np.shape(centre))))
    if e.place.scattered:
        out["scatter"] = jnp.asarray(rng.uniform(-0.5, 0.5, (starts, len(e.mean))))
    if d > 1:
        out["correlation_tril"] = jnp.asarray(rng.uniform(-0.5, 0.5, (starts, d * (d - 1) // 2)))
    return out


@jax.jit
def _conditional_in_full(hypers: dict[str, Array], keys: Array, first: Array, data: tuple[Any, ...]) -> Array:
    return jax.lax.map(lambda v: dense.conditional_draw(v[0], data, v[1], v[2]), (hypers, first, keys))


@jax.jit
def _conditional_by_run(
    hypers: dict[str, Array],
    keys: Array,
    first: Array,
    b: Blocks,
    errors: tuple[Array, ...],
    shared: Array | None,
) -> Array:
    """Abilities (n, S, D); ``hypers`` (m, ...) serve n / m draws each."""

    def one(v: tuple[dict[str, Array], Array, Array]) -> Array:
        def given(draw: Array, key: Array) -> Array:
            first = tuple(r.take(draw) for r in b.runs)
            found = block_draws.conditional_draw(v[0], b, errors, shared, first, key)
            return by_subject(b, found, draw.shape[0])

        return jax.vmap(given)(v[1], v[2])

    m = hypers["slope"].shape[0]
    folded = jax.lax.map(one, (hypers, first.reshape(m, -1, *first.shape[1:]), keys.reshape(m, -1)))
    return folded.reshape(first.shape)


def once(hypers: dict[str, Floats]) -> dict[str, Floats]:
    """Hyperparameters (n, ...) without their repeats, (n / REPEATS, ...), where every one comes so often."""
    n = len(hypers["slope"])
    if n % REPEATS or any((v.reshape(-1, REPEATS, *v.shape[1:]) != v[::REPEATS, None]).any() for v in hypers.values()):
        return hypers
    return {name: v[::REPEATS] for name, v in hypers.items()}
