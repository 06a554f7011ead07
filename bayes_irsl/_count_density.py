"""Binomial and Beta-binomial log probabilities with their derivatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from scipy import special

from bayes_irsl._special import (
    NEAR,
    Fold,
    below,
    divergence,
    fold,
    high_low,
    namespace,
    shift,
    stirling,
    stirling_slope,
)

# Logits at which a success rate of exactly 0 or 1 is as good as reached.
_FAR_LOGIT = 200.0
# Logits beyond which the rarer side counts by its logarithm alone, by the bits of the float type: its
# probability gets squared on the way to a second derivative and must not vanish there.
_CLIP_LOGIT = {32: 30.0, 64: 200.0}


class CountData(NamedTuple):
    """Counts prepared by `binomial_data`: a pytree of arrays of one shape, to be gathered like y."""

    successes: Any
    trials: Any
    logit: Any
    logit_low: Any
    constant: Any


def binomial_data(y: ArrayLike, n: ArrayLike) -> CountData:
    """What `binomial` and `beta_binomial` need to know of the counts, computed once in float64.

    Parameters
    ----------
    y
        Successes, 0 <= y <= n.
    n
        Trials, broadcast against y; 0 trials have log probability 0.

    Returns
    -------
    CountData
        Both; the logit of y / n as the sum of a high and a low part (+-200 for 1 and 0); and the largest
        log probability the counts can have, log C(n, y) + y log(y/n) + (n - y) log(1 - y/n), NaN for
        impossible counts.
    """
    xp, dtype = namespace(y, n)
    hits, trials = xp.broadcast_arrays(xp.asarray(y, dtype=dtype), xp.asarray(n, dtype=dtype))
    possible = (hits >= 0) & (hits <= trials)
    hits, trials = xp.where(possible, hits, 0.0), xp.where(possible, trials, 0.0)
    inside = (hits > 0) & (hits < trials)
    hit, miss, total = (xp.where(inside, count, 1.0) for count in (hits, trials - hits, trials))
    edge = xp.where(hits > 0, _FAR_LOGIT, xp.where(trials > 0, -_FAR_LOGIT, 0.0))
    logit, low = high_low(xp.where(inside, xp.log(hit) - xp.log(miss), edge))
    gap: Callable[[Any], Any] = _stirling_on_host if xp is np else lambda x: stirling(jnp.log(x), x)
    best = gap(hit) + gap(miss) - gap(total) + xp.log(total / (hit * miss))
    best = xp.where(possible, xp.where(inside, best, 0.0), xp.nan)
    return CountData(*(a.astype(logit.dtype) for a in (hits, trials, logit, low, best)))


def _stirling_on_host(x: np.ndarray) -> np.ndarray:
    return x * np.log(x) - x - special.gammaln(x)


@jax.custom_jvp
def binomial_density(data: CountData, eta: Array) -> Array:
    density = data.constant - data.trials * _misfit(data, eta, fold(eta))
    return jnp.where(data.constant <= 0, density, jnp.nan)


@binomial_density.defjvp
def _binomial_jvp(primals, tangents):
    return binomial_density(*primals), _excess(*primals) * tangents[1]


def _misfit(data: CountData, logit: Array, parts: Fold) -> Array:
    """KL(y/n || p) for the coin p with this logit, folded in `parts`."""
    observed = fold(data.logit)
    step = -observed.sign * ((logit - data.logit) - data.logit_low)
    side = -observed.sign * parts.sign
    return divergence(observed, step, jnp.where(side > 0, parts.size, 0) + parts.tail)


@jax.custom_jvp
def _excess(data: CountData, eta: Array) -> Array:
    """y - n mu, relative to its own size where y/n is close to mu."""
    parts, observed = fold(eta), fold(data.logit)
    step = -observed.sign * ((eta - data.logit) - data.logit_low)
    close = data.trials * observed.sign * shift(observed.small, step)
    distant = data.successes * parts.rest - (data.trials - data.successes) * parts.mean
    return jnp.where(jnp.abs(step) < NEAR, close, distant)


@_excess.defjvp
def _excess_jvp(primals, tangents):
    data, eta = primals
    parts = fold(eta)
    return _excess(data, eta), -data.trials * parts.small * (1 - parts.small) * tangents[1]


class _Side(NamedTuple):
    """One side of a Beta-binomial: its Beta parameter before and after the counts, with logarithms."""

    log_prior: Array
    prior: Array
    log_pooled: Array
    pooled: Array


class _Pool(NamedTuple):
    parts: Fold
    step: Array
    divergence: Array
    logit: Array
    few: _Side
    many: _Side
    total: _Side


def _pool(data: CountData, eta: Array, log_phi: Array) -> _Pool:
    """Prior coin, pooled coin and the two sides, `few` being the side the prior coin makes less likely."""
    limit = _CLIP_LOGIT[max(jnp.finfo(eta.dtype).bits, 32)]
    clipped = jnp.clip(eta, -limit, limit)
    parts, phi = fold(clipped), jnp.exp(log_phi)
    flipped, misses = parts.sign > 0, data.trials - data.successes
    few_count = jnp.where(flipped, misses, data.successes)
    many_count = jnp.where(flipped, data.successes, misses)
    few, many = phi * parts.small, phi * (1 - parts.small)
    few_pooled, many_pooled, total = few + few_count, many + many_count, phi + data.trials
    surplus = -parts.sign * _excess(data, clipped)
    up = surplus >= 0
    scale = jnp.where(up, parts.small * many_pooled, (1 - parts.small) * few_pooled)
    step = jnp.where(up, 1, -1) * jnp.log1p(jnp.where(up, surplus, -surplus) / scale)
    pooled_logit = parts.sign * (parts.size - step)
    pooled = fold(pooled_logit)
    log_few_rate = jnp.where(flipped, pooled.log_rest, pooled.log_mean)
    log_many_rate = jnp.where(flipped, pooled.log_mean, pooled.log_rest)
    log_few = log_phi - parts.size - parts.tail - jnp.maximum(jnp.abs(eta) - limit, 0)
    log_total = jnp.log(total)
    return _Pool(
        parts,
        step,
        divergence(parts, step, -log_many_rate),
        pooled_logit,
        _Side(log_few, few, jnp.where(few_count > 0, log_total + log_few_rate, log_few), few_pooled),
        _Side(log_phi - parts.tail, many, log_total + log_many_rate, many_pooled),
        _Side(log_phi, phi, log_total, total),
    )


@jax.custom_jvp
def beta_binomial_density(data: CountData, eta: Array, log_phi: Array) -> Array:
    pool = _pool(data, eta, log_phi)
    few, many, total = pool.few, pool.many, pool.total
    density = (
        data.constant
        - total.prior * pool.divergence
        - data.trials * _misfit(data, pool.logit, fold(pool.logit))
        + (stirling(few.log_prior, few.prior) - stirling(few.log_pooled, few.pooled))
        + (below(stirling, log_phi, pool.parts.tail, many.prior) - stirling(many.log_pooled, many.pooled))
        - (stirling(log_phi, total.prior) - stirling(total.log_pooled, total.pooled))
    )
    return jnp.where(data.constant <= 0, density, jnp.nan)


def _beta_binomial_slopes(data: CountData, eta: Array, log_phi: Array) -> tuple[Array, Array]:
    """Derivatives in eta and log_phi."""
    pool = _pool(data, eta, log_phi)
    small, few, many, total = pool.parts.small, pool.few, pool.many, pool.total

    def loss(side: _Side, prior_slope: Array) -> Array:
        return prior_slope - stirling_slope(side.log_pooled, side.pooled) * side.prior / side.pooled

    few_loss = loss(few, stirling_slope(few.log_prior, few.prior))
    many_loss = loss(many, below(stirling_slope, log_phi, pool.parts.tail, many.prior))
    total_loss = loss(total, stirling_slope(log_phi, total.prior))
    inwards = few.prior * (1 - small) * pool.step + (1 - small) * few_loss - small * many_loss
    in_log_phi = few_loss + many_loss - total_loss - total.prior * pool.divergence
    possible = data.constant <= 0
    return jnp.where(possible, -pool.parts.sign * inwards, 0), jnp.where(possible, in_log_phi, 0)


@beta_binomial_density.defjvp
def _beta_binomial_jvp(primals, tangents):
    in_eta, in_log_phi = _beta_binomial_slopes(*primals)
    return beta_binomial_density(*primals), in_eta * tangents[1] + in_log_phi * tangents[2]
