"""SVI: a Gaussian with independent parts in the coordinates of the Laplace approximation.

Mean-field guides in the model's own coordinates understate standard deviations, because items and abilities are
correlated. In coordinates where the Laplace approximation is a standard normal that correlation is gone, and what is
left for the guide to learn is where Laplace is off.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from numpyro import distributions as dist
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal
from scipy.linalg import solve_triangular
from tqdm.auto import tqdm

from bayes_irsl.cells import Cells, Problem
from bayes_irsl.errors import InputError
from bayes_irsl.inference.item_integrals import ItemPosterior, integrate
from bayes_irsl.inference.laplace import LaplaceFit
from bayes_irsl.inference.laplace_state import FreeAbilities
from bayes_irsl.inference.scale import RawDraws
from bayes_irsl.inference.structure import Item, Structure

Array = Any
CHUNK = 100
# Stop when the ELBO, averaged over a chunk, has gained less than this many standard errors for PATIENCE chunks.
GAIN, PATIENCE = 1.0, 4


class Guide(NamedTuple):
    """The trained guide: location and standard deviation of every whitened coordinate."""

    location: np.ndarray
    scale: np.ndarray


class Whitening(NamedTuple):
    """Affine map from independent standard coordinates w to (theta, h, x): the Laplace approximation's own."""

    centre_u: Array
    root_u: Array
    posterior: ItemPosterior
    linear: Array

    def __call__(self, w: Array, s: Structure, n_theta: int) -> tuple[Array, Array, Array]:
        m = self.root_u.shape[1]
        delta = self.root_u @ w[:m]
        noise = w[m:].reshape(-1, s.n_item)
        p = self.posterior
        z = p.shift + self.linear @ delta + jnp.einsum("jde,je->jd", jnp.linalg.cholesky(p.spread), noise)
        u = self.centre_u + delta
        return (
            u[:n_theta].reshape(s.n_dimensions, -1),
            u[n_theta:],
            p.mode + jnp.einsum("jde,je->jd", p.scale, z),
        )


def svi(
    problem: Problem,
    laplace: LaplaceFit,
    *,
    seed: int,
    draws: int,
    chains: int,
    progress: bool,
    max_steps: int,
    start: Guide | None = None,
) -> tuple[RawDraws, dict[str, np.ndarray], dict[str, Any], Guide]:
    """Train until the ELBO stops improving, then draw; returns draws, sample_stats, diagnostics and the guide.

    ``start`` is the guide of an earlier run on the same answers, which this one goes on from.
    """
    s = laplace.structure
    cells, data = problem.cells()
    item = Item.batch(cells, data)
    whitening = whiten(problem, laplace, cells, item)
    n_theta, n = laplace.state.theta.size, whitening.root_u.shape[1] + problem.n_items * s.n_item
    trainer = _trainer(s, n_theta, problem.n_subjects, n)
    losses, params, reason = _train(
        trainer,
        (whitening, cells, item),
        seed,
        progress,
        max_steps,
        None
        if start is None
        else {"w_auto_loc": jnp.asarray(start.location), "w_auto_scale": jnp.asarray(start.scale)},
    )
    w = trainer.guide.sample_posterior(jax.random.key(seed + 1), params, sample_shape=(draws,))["w"]
    theta, h, x = _unwhitened(whitening, w, s, n_theta)
    location, scale = np.asarray(params["w_auto_loc"]), np.asarray(params["w_auto_scale"])
    log_density = np.asarray(dist.Normal(location, scale).log_prob(w).sum(-1))
    diagnostics = {
        "converged": reason == "no further gain",
        "stopped": reason,
        "n_iterations": len(losses) * CHUNK,
        "elbo": float(-losses[-1]),
        "largest_shift_from_laplace_in_sd": float(np.abs(location).max()),
        "scale_ratio_to_laplace": [float(q) for q in np.quantile(scale, [0.05, 0.5, 0.95])],
    }
    raw = RawDraws.from_vectors(s, np.asarray(theta), np.asarray(h), np.asarray(x))
    stats = {"log_approximation": log_density.reshape(chains, -1)}
    return raw, stats, diagnostics, Guide(location, scale)


@lru_cache(maxsize=8)
def _trainer(s: Structure, n_theta: int, n_subjects: int, n: int) -> SVI:
    """Model and guide of ``n`` whitened coordinates; kept, so that fits of one shape share compiled programs."""

    def model(whitening: Whitening, cells: Cells, item: Item) -> None:
        w = numpyro.sample("w", dist.ImproperUniform(dist.constraints.real_vector, (), (n,)))
        theta, h, x = whitening(w, s, n_theta)
        numpyro.factor("joint", log_joint(s, theta, h, x, cells, item, n_subjects))

    guide = AutoNormal(model, init_loc_fn=numpyro.infer.init_to_value(values={"w": jnp.zeros(n)}), init_scale=1.0)
    return SVI(model, guide, numpyro.optim.Adam(0.01), Trace_ELBO(4))


@partial(jax.jit, static_argnames=("svi",))
def _chunk(svi: SVI, state: Any, arguments: tuple[Any, ...]) -> tuple[Any, Array]:
    return jax.lax.scan(lambda state, _: svi.update(state, *arguments), state, None, length=CHUNK)


@partial(jax.jit, static_argnames=("s", "n_theta"))
def _unwhitened(whitening: Whitening, w: Array, s: Structure, n_theta: int) -> tuple[Array, Array, Array]:
    return jax.lax.map(lambda w: whitening(w, s, n_theta), w)


def _train(
    svi: SVI,
    arguments: tuple[Any, ...],
    seed: int,
    progress: bool,
    max_steps: int,
    init_params: dict[str, Array] | None,
) -> tuple[list[float], dict[str, Array], str]:
    state = svi.init(jax.random.key(seed), *arguments, init_params=init_params)
    losses: list[float] = []
    best, waited, reason = np.inf, 0, f"{max_steps} steps done"
    with tqdm(total=max_steps, desc="svi", disable=not progress, leave=False, unit="step") as bar:
        for _ in range(-(-max_steps // CHUNK)):
            new, loss = _chunk(svi, state, arguments)
            loss = np.asarray(loss)
            if not np.isfinite(loss).all():
                if not losses:
                    raise InputError(
                        "the ELBO is not finite at the Laplace approximation: use method='nuts' on these answers"
                    )
                reason = "not finite: went back to the last good step"
                break
            state = new
            losses.append(float(loss.mean()))
            error = float(loss.std()) / np.sqrt(CHUNK)
            waited = 0 if losses[-1] < best - GAIN * error else waited + 1
            best = min(best, losses[-1])
            bar.update(CHUNK)
            bar.set_postfix_str(f"ELBO {-losses[-1]:.1f}")
            if waited >= PATIENCE:
                reason = "no further gain"
                break
    return losses, svi.get_params(state), reason


def whiten(problem: Problem, laplace: LaplaceFit, cells: Cells, item: Item) -> Whitening:
    """The affine map of a Laplace fit, items in the problem's order."""
    s, state = laplace.structure, laplace.state
    free = FreeAbilities(s.n_dimensions, problem.n_subjects, not s.anchored)
    m = free.keep.size
    root = solve_triangular(laplace.precision_cholesky, np.eye(len(laplace.precision_cholesky)), lower=True, trans="T")
    root = np.concatenate([free.expand(root[:m]), root[m:]])
    _, posterior, linear = integrate(
        s,
        jnp.asarray(state.x),
        state.abilities(),
        jnp.asarray(state.h, jnp.float32),
        cells,
        item,
        jnp.ones(problem.n_items, jnp.float32),
        laplace.rule,
        False,
    )
    centre = np.concatenate([state.theta.ravel(), state.h])
    return Whitening(jnp.asarray(centre, jnp.float32), jnp.asarray(root, jnp.float32), posterior, linear)


def log_joint(s: Structure, theta: Array, h: Array, x: Array, cells: Cells, item: Item, n_subjects: int) -> Array:
    """log p(y, x, theta, h) in the structure's convention; theta (D, S)."""
    arranged = theta[0] if s.n_dimensions == 1 else theta.T
    places = cells.take(arranged)
    places = jnp.broadcast_to(places, (x.shape[0], places.shape[1]))
    answer_h = h[h.shape[0] - s.n_answer :]

    def one(x: Array, t: Array, item: Item) -> Array:
        return s.log_likelihood_item(x, t, answer_h, item) + s.log_prior_item(x, h, item)

    n = jnp.float32(n_subjects if s.anchored else n_subjects - 1)
    prior = s.log_prior_hyper(h) + s.log_prior_theta(h, theta @ theta.T, theta.sum(1), n)
    return prior + jax.vmap(one)(x, places, item).sum()
