"""Draws from a Laplace fit: (theta, h) from their Gaussian, then each item given them.

An item's conditional posterior moves linearly with theta and h. Where it is visibly not normal (few answers), its draws
are resampled with exact importance weights among candidates from a wider normal (sampling/importance
resampling, Rubin 1988), so that skewed discriminations and difficulties keep their shape.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.linalg import solve_triangular

from bayes_irsl.cells import Cells, Problem
from bayes_irsl.inference.hyper_marginals import moved
from bayes_irsl.inference.item_integrals import ItemPosterior, integrate, positive
from bayes_irsl.inference.laplace import LaplaceFit
from bayes_irsl.inference.laplace_state import FreeAbilities
from bayes_irsl.inference.structure import Item, Structure

Array = Any
CANDIDATES = 8
WIDER = 1.25
# Past these an item's posterior is resampled: shift of the mean in sd, relative error of a variance.
SHIFT, SPREAD = 0.12, 0.25


def laplace_draws(problem: Problem, fit: LaplaceFit, n_draws: int, seed: int) -> dict[str, np.ndarray]:
    """Draws on the scale of fitting.

    theta (n, D, S); h (n, n_hyper); x (n, J, d); resampled (J,): which items were; log_density (n,) of the Gaussian.
    """
    s = fit.structure
    rng = np.random.default_rng(seed)
    free = FreeAbilities(s.n_dimensions, problem.n_subjects, not s.anchored)
    n_theta = free.keep.size
    noise = rng.standard_normal((fit.precision_cholesky.shape[0], n_draws))
    gaussian = solve_triangular(fit.precision_cholesky, noise, lower=True, trans="T").T
    drawn = moved(gaussian, fit.precision_cholesky, n_theta, fit.skewed) if fit.skewed else gaussian
    delta = np.concatenate([free.expand(drawn[:, :n_theta].T), drawn[:, n_theta:].T]).T
    theta = fit.state.theta.ravel() + delta[:, : fit.state.theta.size]
    h = fit.state.h + delta[:, fit.state.theta.size :]
    theta = theta.reshape(n_draws, s.n_dimensions, problem.n_subjects)
    x = np.empty((n_draws, problem.n_items, s.n_item), np.float32)
    rough = np.zeros(problem.n_items, bool)
    key = jax.random.key(seed)
    theta_cells = jnp.asarray(theta[:, 0] if s.n_dimensions == 1 else theta.swapaxes(1, 2), jnp.float32)
    state_theta = fit.state.abilities()
    h_mode = jnp.asarray(fit.state.h, jnp.float32)
    for number, block in enumerate(fit.blocks):
        cells, data = problem.cells(block.items, block.width)
        item = Item.batch(cells, data)
        modes = jnp.asarray(fit.state.x[block.items])
        _, posterior, linear = integrate(
            s, modes, state_theta, h_mode, cells, item, jnp.asarray(block.real), fit.rule, fit.all_nodes
        )
        block_key = jax.random.fold_in(key, number)
        n_real = int(block.real.sum())
        bad = np.array(_not_normal(posterior)) | bool(fit.skewed)
        bad[n_real:] = False
        if not bad[:n_real].all():
            drawn = _gaussian(block_key, posterior, linear, jnp.asarray(delta, jnp.float32))
            x[:, block.items[:n_real]] = np.asarray(drawn)[:, :n_real]
        if bad.any():
            rough[block.items[bad]] = True
            x[:, block.items[bad]] = _resample(
                s, block_key, np.flatnonzero(bad), posterior, linear, delta, theta_cells, h, h_mode, problem, block
            )
    log_density = np.log(np.diag(fit.precision_cholesky)).sum() - 0.5 * (noise**2 + np.log(2 * np.pi)).sum(0)
    return {"theta": theta, "h": h, "x": x, "resampled": rough, "log_density": log_density}


@jax.jit
def _gaussian(key: Array, posterior: ItemPosterior, linear: Array, delta: Array) -> Array:
    """x = mode + scale (shift + linear delta + spread^(1/2) noise) -> (n_draws, J, d)."""
    z = posterior.shift + jnp.einsum("jdu,nu->njd", linear, delta)
    noise = jax.random.normal(key, z.shape)
    z = z + jnp.einsum("jde,nje->njd", jnp.linalg.cholesky(posterior.spread), noise)
    return posterior.mode + jnp.einsum("jde,nje->njd", posterior.scale, z)


def _not_normal(posterior: ItemPosterior) -> Array:
    shift = jnp.max(jnp.abs(posterior.shift), -1)
    spread = jnp.max(jnp.abs(jnp.diagonal(posterior.spread, axis1=1, axis2=2) - 1), -1)
    return (shift > SHIFT) | (spread > SPREAD)


def _resample(s, key, bad, posterior, linear, delta, theta, h, h_mode, problem: Problem, block) -> np.ndarray:
    """Draws (n_draws, len(bad), d) of the items ``bad`` of a block, in chunks of one compiled shape."""
    n_draws = len(h)
    # A power of two, so that blocks share compiled shapes.
    chunk = 1 << int(np.log2(max(1, min(2 * len(bad) - 1, 4_000_000 // (CANDIDATES * block.width)))))
    out = np.empty((n_draws, len(bad), s.n_item), np.float32)
    for at in range(0, len(bad), chunk):
        part = np.resize(bad[at : at + chunk], chunk)
        cells, data = problem.cells(block.items[part], block.width)
        local = jax.tree.map(lambda a, part=part: a[part], (posterior, linear))
        drawn = _resample_chunk(
            s,
            jax.random.fold_in(key, at + 1),
            *local,
            jnp.asarray(delta, jnp.float32),
            theta,
            jnp.asarray(h, jnp.float32),
            h_mode,
            cells,
            Item.batch(cells, data),
        )
        real = min(chunk, len(bad) - at)
        out[:, at : at + real] = np.asarray(drawn)[:, :real]
    return out


@partial(jax.jit, static_argnames=("s",))
def _resample_chunk(
    s: Structure,
    key: Array,
    posterior: ItemPosterior,
    linear: Array,
    delta: Array,
    theta: Array,
    h: Array,
    h_mode: Array,
    cells: Cells,
    item: Item,
) -> Array:
    n_items = posterior.mode.shape[0]

    def one_draw(arguments):
        key, delta, theta, h = arguments
        places = cells.take(theta)
        places = jnp.broadcast_to(places, (n_items, places.shape[1]))
        answer_h = h[h.shape[0] - s.n_answer :]

        def one_item(key, posterior, linear, t, item):
            first, second = jax.random.split(key)
            centre, root = _conditional(s, posterior, linear, delta, h, h_mode, item)
            noise = WIDER * jax.random.normal(first, (CANDIDATES, s.n_item))
            x = centre + noise @ root.T
            log_q = -0.5 * jnp.sum(noise**2, -1) / WIDER**2
            log_p = jax.vmap(lambda x: s.log_likelihood_item(x, t, answer_h, item) + s.log_prior_item(x, h, item))(x)
            return x[jax.random.categorical(second, log_p - log_q)]

        keys = jax.random.split(key, n_items)
        return jax.vmap(one_item)(keys, posterior, linear, places, item)

    keys = jax.random.split(key, h.shape[0])
    return jax.lax.map(one_draw, (keys, delta, theta, h))


def _conditional(
    s: Structure, posterior: ItemPosterior, linear: Array, delta: Array, h: Array, h_mode: Array, item: Item
) -> tuple[Array, Array]:
    """Mean and a root of the covariance of a normal for an item given a draw of (theta, h).

    Abilities and answer parameters move the item linearly; its prior under the mode's hyperparameters is taken out of
    the posterior and that under the draw's put in.
    """
    n_h = h.shape[0]
    of_prior = jnp.arange(delta.shape[0]) - (delta.shape[0] - n_h)
    outside = (of_prior < 0) | (of_prior >= n_h - s.n_answer)
    mean = posterior.mode + posterior.scale @ (posterior.shift + linear @ jnp.where(outside, delta, 0.0))
    root = posterior.scale @ jnp.linalg.cholesky(posterior.spread)
    precision = jnp.linalg.inv(root @ root.T)
    old_mean, old = s.prior_moments(h_mode, item)
    new_mean, new = s.prior_moments(h, item)
    precision_new = positive(precision - old + new, new)
    mean = jnp.linalg.solve(precision_new, precision @ mean - old @ old_mean + new @ new_mean)
    return mean, jnp.linalg.inv(jnp.linalg.cholesky(precision_new)).T
