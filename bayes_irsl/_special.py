"""Special functions that keep their digits in float32: the pieces from which the likelihoods are built.

Log-gamma grows like ``x log x``; in a difference of several the growth cancels and takes the digits along. Everything
here is what is left after the growth is removed by hand, so nothing large is ever subtracted.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

_HALF_LOG_2PI = 0.9189385332046727
_BERNOULLI = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156, -3617 / 122400)
_SHIFT = 8


class Logistic(NamedTuple):
    """Sigmoid of a logit, its complement and the logarithms of both, each with full relative accuracy."""

    mean: Array
    rest: Array
    log_mean: Array
    log_rest: Array


@jax.custom_jvp
def logistic(eta: Array) -> Logistic:
    """mean = sigmoid(eta), rest = sigmoid(-eta), and their logarithms, from one exponential."""
    small = jnp.exp(-jnp.abs(eta))
    large_side = 1 / (1 + small)
    small_side = small * large_side
    tail = jnp.log1p(small)
    positive = eta >= 0
    return Logistic(
        jnp.where(positive, large_side, small_side),
        jnp.where(positive, small_side, large_side),
        jnp.minimum(eta, 0) - tail,
        jnp.minimum(-eta, 0) - tail,
    )


@logistic.defjvp
def _logistic_jvp(primals, tangents):
    out = logistic(*primals)
    (step,) = tangents
    spread = out.mean * out.rest * step
    return out, Logistic(spread, -spread, out.rest * step, -out.mean * step)


def _stirling_tail(x: Array, coefficients: tuple[float, ...]) -> Array:
    """Sum of coefficients[k] / x^(2k+1)."""
    inverse = 1 / x
    square = inverse * inverse
    total = jnp.full_like(x, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        total = total * square + coefficient
    return total * inverse


@jax.custom_jvp
def stirling(log_x: Array, x: Array) -> Array:
    """F(x) = x log x - x - log Gamma(x); grows only like log x. Differentiates in log_x: F' = stirling_slope."""
    shifted = jnp.where(x < _SHIFT, x + _SHIFT, x)
    far = 0.5 * jnp.log(shifted) - _HALF_LOG_2PI - _stirling_tail(shifted, _BERNOULLI)
    product = jnp.ones_like(x)
    near_x = jnp.where(x < _SHIFT, x, 1.0)
    for k in range(1, _SHIFT):
        product = product * (near_x + k)
    log_gamma_shifted = shifted * jnp.log(shifted) - shifted - far
    near = near_x * log_x - near_x - (log_gamma_shifted - jnp.log(product) - log_x)
    return jnp.where(x < _SHIFT, near, far)


@stirling.defjvp
def _stirling_jvp(primals, tangents):
    return stirling(*primals), stirling_slope(*primals) * tangents[0]


@jax.custom_jvp
def stirling_slope(log_x: Array, x: Array) -> Array:
    """R(x) = x (log x - digamma(x)), falling from 1 at x = 0 to 1/2. Differentiates in log_x: stirling_curvature."""
    shifted = jnp.where(x < _SHIFT, x + _SHIFT, x)
    far = 0.5 + _stirling_tail(shifted, tuple((2 * k + 1) * c for k, c in enumerate(_BERNOULLI)))
    near_x = jnp.where(x < _SHIFT, x, 1.0)
    digamma = jnp.log(shifted) - far / shifted
    for k in range(1, _SHIFT):
        digamma = digamma - 1 / (near_x + k)
    return jnp.where(x < _SHIFT, near_x * (log_x - digamma) + 1, far)


@stirling_slope.defjvp
def _stirling_slope_jvp(primals, tangents):
    return stirling_slope(*primals), stirling_curvature(*primals) * tangents[0]


def stirling_curvature(log_x: Array, x: Array) -> Array:
    """Q(x) = R(x) + x - x^2 trigamma(x), the derivative of R in log x."""
    shifted = jnp.where(x < _SHIFT, x + _SHIFT, x)
    far = -_stirling_tail(shifted, tuple((2 * k + 1) ** 2 * c for k, c in enumerate(_BERNOULLI)))
    slope_far = 0.5 + _stirling_tail(shifted, tuple((2 * k + 1) * c for k, c in enumerate(_BERNOULLI)))
    near_x = jnp.where(x < _SHIFT, x, 1.0)
    trigamma_above = (slope_far + shifted - far) / (shifted * shifted)
    for k in range(1, _SHIFT):
        trigamma_above = trigamma_above + 1 / (near_x + k) ** 2
    near = stirling_slope(log_x, x) - 1 + near_x - near_x * near_x * trigamma_above
    return jnp.where(x < _SHIFT, near, far)


@jax.custom_jvp
def divergence(eta: Array, delta: Array, tail: Array) -> Array:
    """KL(p || q) of two coins with logits eta and eta + delta; tail = -log max(q, 1 - q) is not differentiated.

    Differentiates in eta with eta + delta held: -p (1 - p) delta.
    """
    mean, rest, _, _ = logistic(eta)
    positive = eta >= 0
    small = jnp.where(positive, rest, mean)
    step = jnp.where(positive, -delta, delta)
    return jnp.log1p(small * jnp.expm1(step)) - small * step


@divergence.defjvp
def _divergence_jvp(primals, tangents):
    eta, delta, _ = primals
    mean, rest, _, _ = logistic(eta)
    return divergence(*primals), -mean * rest * delta * tangents[0]


def result_dtype() -> np.dtype:
    """The float type JAX computes in at this moment: float32, or float64 under enable_x64."""
    return np.dtype(jnp.result_type(float))
