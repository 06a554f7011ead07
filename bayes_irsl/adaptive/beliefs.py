"""A belief about correlated abilities: a normal prior, likelihoods on a grid, expectation propagation.

Abilities u (C,), the first K of them answered for, have p(u) = Normal(m, V) and each its likelihood on a grid:

    p(u | y)  ~  Normal(u; m, V) prod_k exp L_k(u_k).

Expectation propagation (Minka 2001; for such sites as in Rasmussen and Williams 2006, section 3.6) puts a normal in the
place of every likelihood; every ability's own marginal keeps the likelihood as it is, so that one ability alone is
exact. Several priors may stand beside one another, weighted by what they make of the answers.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

Array = Any
Floats = npt.NDArray[np.floating]

FINE = 41  # nodes of every marginal
_WIDE = 6.0  # half width of a marginal's window, in its sd
_MOST_SWEEPS, _SETTLED, _STEP = 40, 1e-4, 0.8
_LEAST = 1e-10


class Prior(NamedTuple):
    """M normal priors of C abilities: log_weight (M,), mean (M, C), covariance (M, C, C)."""

    log_weight: Floats
    mean: Floats
    covariance: Floats


class Posterior(NamedTuple):
    """Posterior under M priors; leading axes (M,) throughout.

    log_weight (M,): of the priors; evidence (M,): log probability of the answers; mean (M, C), covariance (M, C, C);
    at, weight (M, C, FINE): nodes and weights of every ability's own marginal; site (M, 2, K).
    """

    log_weight: Array
    evidence: Array
    mean: Array
    covariance: Array
    at: Array
    weight: Array
    site: Array


def posterior(prior: Prior, nodes: Floats, log_likelihood: Floats) -> Posterior:
    """Posterior from log likelihoods (K, G) of the first K abilities on the nodes (G,); to be run under x64."""
    return _posterior(jax.tree.map(jnp.asarray, prior), jnp.asarray(nodes), jnp.asarray(log_likelihood))


def posteriors(prior: Prior, nodes: Floats, log_likelihood: Floats) -> Posterior:
    """The same for S subjects: log likelihoods (S, K, G), results with a leading axis S; priors shared."""
    return _posteriors(jax.tree.map(jnp.asarray, prior), jnp.asarray(nodes), jnp.asarray(log_likelihood))


def _each(prior: Prior, nodes: Array, known: Array) -> Posterior:
    site = jnp.zeros((2, known.shape[0]))
    one = jax.vmap(_propagated, (0, 0, None, None, None))
    evidence, mean, covariance, at, weight, site = one(prior.mean, prior.covariance, nodes, known, site)
    total = prior.log_weight + evidence
    return Posterior(total - jax.nn.logsumexp(total), evidence, mean, covariance, at, weight, site)


_posterior = jax.jit(_each)
_posteriors = jax.jit(jax.vmap(_each, (None, None, 0)))


def _propagated(m0: Array, v0: Array, nodes: Array, known: Array, site: Array) -> tuple[Array, ...]:
    k = known.shape[0]
    told = (known != known[:, :1]).any(1)

    def sweep(state: tuple[Array, ...]) -> tuple[Array, ...]:
        site, mean, covariance, _, i = state
        variance = jnp.diagonal(covariance)[:k]
        cavity, usable = _cavity(site, mean[:k], variance)
        _, m, v, _, _ = _tilted(nodes, known, *cavity)
        wanted = jnp.stack([m / v - cavity[0] / cavity[1], 1 / v - 1 / cavity[1]])
        new = jnp.where(told & usable, site + _STEP * (wanted - site), site)
        new_mean, new_covariance, _ = _joined(m0, v0, new)
        moved = jnp.abs(new_mean - mean) / jnp.sqrt(jnp.diagonal(new_covariance) + _LEAST)
        return new, new_mean, new_covariance, moved.max(), i + 1

    mean, covariance, _ = _joined(m0, v0, site)
    state = (site, mean, covariance, jnp.inf, 0)
    site, mean, covariance, _, _ = jax.lax.while_loop(
        lambda s: (s[3] > _SETTLED) & (s[4] < _MOST_SWEEPS) & told.any(), sweep, state
    )
    mean, covariance, joint = _joined(m0, v0, site)
    variance = jnp.diagonal(covariance)
    cavity, _ = _cavity(site, mean[:k], variance[:k])
    total, _, _, at, weight = _tilted(nodes, known, *cavity)
    # What every likelihood adds beyond its normal stand-in.
    alone = _with_site(*cavity, site)
    evidence = joint + jnp.where(told, total - alone, 0.0).sum()
    rest = _normal_marginal(mean[k:], variance[k:])
    return (
        evidence,
        mean,
        covariance,
        jnp.concatenate([at, rest[0]]),
        jnp.concatenate([weight, rest[1]]),
        site,
    )


def _joined(m0: Array, v0: Array, site: Array) -> tuple[Array, Array, Array]:
    """Mean, covariance and log integral of the prior times the sites exp(nu u - tau u^2 / 2)."""
    k = site.shape[1]
    nu, tau = (jnp.zeros(len(m0)).at[:k].set(s) for s in site)
    solved = jnp.eye(len(m0)) + v0 * tau
    covariance = jnp.linalg.solve(solved, v0)
    covariance = (covariance + covariance.T) / 2
    pull = nu - tau * m0
    mean = m0 + covariance @ pull
    log_det = jnp.linalg.slogdet(solved)[1]
    return mean, covariance, m0 @ nu - 0.5 * (tau * m0) @ m0 + 0.5 * pull @ covariance @ pull - 0.5 * log_det


def log_integral(m0: Array, v0: Array, site: Array) -> Array:
    """Log integral of Normal(m0, v0) times the sites (2, K)."""
    return _joined(m0, v0, site)[2]


def _cavity(site: Array, mean: Array, variance: Array) -> tuple[tuple[Array, Array], Array]:
    """Mean and variance of every ability without its own site, and where there are such."""
    precision = 1 / (variance + _LEAST) - site[1]
    usable = precision > 1e-6
    precision = jnp.where(usable, precision, 1e-6)
    return ((mean / (variance + _LEAST) - site[0]) / precision, 1 / precision), usable


def _with_site(m: Array, v: Array, site: Array) -> Array:
    """Log integral of Normal(m, v) times each site."""
    nu, tau = site
    spread = 1 + v * tau
    return m * nu - 0.5 * tau * m**2 + 0.5 * (nu - tau * m) ** 2 * v / spread - 0.5 * jnp.log(jnp.abs(spread))


def _tilted(nodes: Array, known: Array, m: Array, v: Array) -> tuple[Array, ...]:
    """Log integral, mean and variance of Normal(m, v) exp(L); nodes and weights (K, FINE) of a window around it."""
    spacing = nodes[1] - nodes[0]
    m, v = m[:, None], v[:, None]
    rough = known - 0.5 * (nodes - m) ** 2 / v
    p = jax.nn.softmax(rough, axis=1)
    centre = (p * nodes).sum(1, keepdims=True)
    sd = jnp.sqrt((p * (nodes - centre) ** 2).sum(1, keepdims=True))
    half = _WIDE * jnp.maximum(sd, 0.35 * spacing)
    at = centre + half * jnp.linspace(-1, 1, FINE)
    height = _interpolated(nodes, known, at) - 0.5 * (at - m) ** 2 / v
    height = jnp.where((at < nodes[0]) | (at > nodes[-1]), -jnp.inf, height)
    peak = height.max(1, keepdims=True)
    weight = jnp.exp(height - peak)
    total = weight.sum(1, keepdims=True)
    step = half * 2 / (FINE - 1)
    log_integral = (jnp.log(total) + peak + jnp.log(step) - 0.5 * jnp.log(2 * jnp.pi * v))[:, 0]
    weight = weight / total
    mean = (weight * at).sum(1)
    return log_integral, mean, (weight * (at - mean[:, None]) ** 2).sum(1) + _LEAST, at, weight


def _interpolated(nodes: Array, values: Array, at: Array) -> Array:
    """Cubic interpolation (Lagrange, four nodes) of rows of values (K, G) at (K, n)."""
    place = jnp.clip((at - nodes[0]) / (nodes[1] - nodes[0]), 1.0, nodes.shape[0] - 2.0 - 1e-9)
    base = jnp.floor(place).astype(int)
    t = place - base
    weights = (
        -t * (t - 1) * (t - 2) / 6,
        (t + 1) * (t - 1) * (t - 2) / 2,
        -(t + 1) * t * (t - 2) / 2,
        (t + 1) * t * (t - 1) / 6,
    )
    return sum(w * jnp.take_along_axis(values, base + j - 1, axis=1) for j, w in enumerate(weights))


def _normal_marginal(mean: Array, variance: Array) -> tuple[Array, Array]:
    step = jnp.linspace(-1, 1, FINE) * _WIDE
    weight = jnp.broadcast_to(jax.nn.softmax(-0.5 * step**2), (len(mean), FINE))
    return mean[:, None] + jnp.sqrt(variance + _LEAST)[:, None] * step, weight


def as_expected(found: Posterior, nodes: Floats, k: int, mean: Floats, variance: Floats) -> Floats:
    """Log likelihood (G,) of an answer to come, with mean and variance (G,) given ability k, for choosing what follows.

    It leaves the ability's mean where it is and narrows it by as much as the answer is expected to.
    """
    q = np.exp(np.asarray(found.log_weight))
    at, weight = np.asarray(found.at[:, k]), q[:, None] * np.asarray(found.weight[:, k])
    centre = float((weight * at).sum())
    spread = float((weight * (at - centre) ** 2).sum())
    w = np.asarray(on_grid(nodes, at, weight, len(nodes))).sum(0)
    scatter = float(w @ (variance + mean**2) - (w @ mean) ** 2)
    gain = min(float(w @ (mean * (nodes - centre))) ** 2 / max(scatter, 1e-12), 0.99 * spread)
    return -0.5 * gain / (spread * (spread - gain)) * (nodes - centre) ** 2


@partial(jax.jit, static_argnames=("size",))
def on_grid(nodes: Array, at: Array, weight: Array, size: int) -> Array:
    """Weights (..., FINE) moved to the grid (..., size), shared between neighbours: what is linear stays exact."""
    place = jnp.clip((at - nodes[0]) / (nodes[1] - nodes[0]), 0.0, size - 1 - 1e-9)
    base = jnp.floor(place).astype(int)
    t = place - base

    def one(base: Array, low: Array, high: Array) -> Array:
        return jnp.zeros(size).at[base].add(low).at[base + 1].add(high)

    flat = [x.reshape(-1, x.shape[-1]) for x in (base, weight * (1 - t), weight * t)]
    return jax.vmap(one)(*flat).reshape(*at.shape[:-1], size)
