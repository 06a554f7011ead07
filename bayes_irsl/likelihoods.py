"""Log densities of answers given the logit of their mean: elementwise, broadcasting, twice differentiable."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from scipy import special

from bayes_irsl._special import divergence, logistic, result_dtype, stirling

_FAR_LOGIT = 200.0


class BetaData(NamedTuple):
    """Probabilities prepared for `beta`: built by `beta_data`, sliced and gathered field by field like any pytree."""

    y: ArrayLike
    logit: ArrayLike
    logit_low: ArrayLike
    tail: ArrayLike


class CountData(NamedTuple):
    """Counts prepared for `binomial` and `beta_binomial`: built by `binomial_data`."""

    successes: ArrayLike
    trials: ArrayLike
    logit: ArrayLike
    logit_low: ArrayLike
    entropy: ArrayLike
    constant: ArrayLike


def _on_host(*arrays: ArrayLike) -> bool:
    return not any(isinstance(array, jax.core.Tracer) for array in arrays)


def beta_data(y: ArrayLike) -> BetaData:
    """Logit of y as a high and a low part, and -log max(y, 1 - y), computed once in float64."""
    if _on_host(y):
        xp, dtype = np, result_dtype()
        y = np.asarray(y, dtype=np.float64)
    else:
        xp, dtype = jnp, jnp.result_type(y)
    inside = (y > 0) & (y < 1)
    safe = xp.where(inside, y, 0.5)
    logit = xp.log(safe) - xp.log1p(-safe)
    tail = xp.where(inside, -xp.log(xp.maximum(safe, 1 - safe)), xp.nan)
    high = logit.astype(dtype)
    info = np.finfo(dtype)
    stored = xp.where(inside, xp.clip(y, info.tiny, 1 - info.epsneg), y)
    return BetaData(stored.astype(dtype), high, (logit - high).astype(dtype), tail.astype(dtype))


def binomial_data(y: ArrayLike, n: ArrayLike) -> CountData:
    """Everything about counts that does not depend on a parameter, computed once in float64."""
    dtype = result_dtype()
    y, n = np.broadcast_arrays(np.asarray(y, dtype=np.float64), np.asarray(n, dtype=np.float64))
    valid = (y >= 0) & (y <= n)
    y, n = np.where(valid, y, 0.0), np.where(valid, n, 0.0)
    misses = n - y
    inside = (y > 0) & (misses > 0)
    p = np.where(inside, y / np.where(inside, n, 1.0), 0.5)
    logit = np.where(inside, special.logit(p), np.where(n > 0, np.where(y > 0, _FAR_LOGIT, -_FAR_LOGIT), 0.0))
    entropy = np.where(inside, special.entr(p) + special.entr(1 - p), 0.0)
    constant = -np.log1p(n) - special.betaln(y + 1, misses + 1) - n * entropy
    constant = np.where(valid, constant, np.nan)
    high = logit.astype(dtype)
    low = (logit - high).astype(dtype)
    return CountData(
        y.astype(dtype), n.astype(dtype), high, low, entropy.astype(dtype), constant.astype(dtype)
    )


def bernoulli(y: ArrayLike, eta: ArrayLike) -> Array:
    """Log probability of a 0/1 answer: y log mu + (1 - y) log(1 - mu), mu = sigmoid(eta)."""
    parts = logistic(jnp.asarray(eta))
    return jnp.where(jnp.asarray(y) > 0.5, parts.log_mean, parts.log_rest)


def binomial(y: ArrayLike | CountData, n: ArrayLike | None, eta: ArrayLike) -> Array:
    """Log probability of y successes in n trials."""
    data = y if isinstance(y, CountData) else binomial_data(y, n)
    parts = logistic(jnp.asarray(eta))
    misses = data.trials - data.successes
    return (
        data.constant
        + data.trials * data.entropy
        + data.successes * parts.log_mean
        + misses * parts.log_rest
    )


def beta_binomial(
    y: ArrayLike | CountData, n: ArrayLike | None, eta: ArrayLike, log_phi: ArrayLike
) -> Array:
    """Log probability of y successes in n trials whose success rate is Beta(mu phi, (1 - mu) phi)."""
    data = y if isinstance(y, CountData) else binomial_data(y, n)
    eta, log_phi = jnp.asarray(eta), jnp.asarray(log_phi)
    parts, phi = logistic(eta), jnp.exp(log_phi)
    alpha, rest = phi * parts.mean, phi * parts.rest
    misses = data.trials - data.successes
    lg = jax.scipy.special.gammaln
    return (
        data.constant
        + data.trials * data.entropy
        + (lg(alpha + data.successes) - lg(alpha))
        + (lg(rest + misses) - lg(rest))
        - (lg(phi + data.trials) - lg(phi))
    )


def beta(y: ArrayLike | BetaData, eta: ArrayLike, log_phi: ArrayLike) -> Array:
    """Log density of a probability y under Beta(mu phi, (1 - mu) phi), mu = sigmoid(eta)."""
    data = y if isinstance(y, BetaData) else beta_data(y)
    eta, log_phi = jnp.asarray(eta), jnp.asarray(log_phi)
    parts, phi = logistic(eta), jnp.exp(log_phi)
    delta = (data.logit - eta) + data.logit_low
    kl = divergence(eta, delta, data.tail)
    return (
        (2 * data.tail + jnp.abs(data.logit))
        - phi * kl
        + stirling(log_phi + parts.log_mean, phi * parts.mean)
        + stirling(log_phi + parts.log_rest, phi * parts.rest)
        - stirling(log_phi, phi)
    )


def _log_sigmoid(x: Array) -> Array:
    return logistic(x).log_mean


def ordered_beta(
    y: ArrayLike | BetaData, eta: ArrayLike, log_phi: ArrayLike, cut_low: ArrayLike, cut_high: ArrayLike
) -> Array:
    """Log density of y in [0, 1] when one logit decides between exact 0, a Beta inside and exact 1."""
    data = y if isinstance(y, BetaData) else beta_data(y)
    above_low, above_high = jnp.asarray(eta - cut_low), jnp.asarray(eta - cut_high)
    inside = (
        _log_sigmoid(above_low)
        + _log_sigmoid(-above_high)
        + jnp.log(-jnp.expm1(jnp.asarray(cut_low - cut_high)))
        + beta(data, eta, log_phi)
    )
    at_zero, at_one = _log_sigmoid(-above_low), _log_sigmoid(above_high)
    return jnp.where(data.y == 0, at_zero, jnp.where(data.y == 1, at_one, inside))


def zero_one_beta(
    y: ArrayLike | BetaData,
    eta: ArrayLike,
    log_phi: ArrayLike,
    logit_boundary: ArrayLike,
    logit_one: ArrayLike,
) -> Array:
    """Log density of y in [0, 1]: a boundary with its own probability, else a Beta."""
    data = y if isinstance(y, BetaData) else beta_data(y)
    boundary, one = jnp.asarray(logit_boundary), jnp.asarray(logit_one)
    inside = _log_sigmoid(-boundary) + beta(data, eta, log_phi)
    at_zero = _log_sigmoid(boundary) + _log_sigmoid(-one)
    at_one = _log_sigmoid(boundary) + _log_sigmoid(one)
    return jnp.where(data.y == 0, at_zero, jnp.where(data.y == 1, at_one, inside))
