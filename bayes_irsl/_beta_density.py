"""Beta log density with its derivatives."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from bayes_irsl._special import (
    Fold,
    below,
    divergence,
    fold,
    high_low,
    namespace,
    result_dtype,
    stirling,
    stirling_slope,
)


class BetaData(NamedTuple):
    """Probabilities prepared by `beta_data`: a pytree of arrays of one shape, to be gathered like y."""

    y: Any
    logit: Any
    logit_low: Any
    tail: Any


def beta_data(y: ArrayLike) -> BetaData:
    """What the Beta densities need to know of the answers, computed once in float64.

    Parameters
    ----------
    y
        Probabilities, any shape. 0 and 1 are kept for `ordered_beta` and `zero_one_beta`; under `beta`
        they, and everything else outside (0, 1), have log density NaN.

    Returns
    -------
    BetaData
        y; logit(y) as the sum of a high and a low part (one float32 is too coarse at precisions of 1e4 and
        more); tail = -log max(y, 1 - y), NaN outside (0, 1). Values being traced by JAX are prepared in
        JAX's precision.
    """
    xp, dtype = namespace(y)
    answers = xp.asarray(y, dtype=dtype)
    inside = (answers > 0) & (answers < 1)
    safe = xp.where(inside, answers, 0.5)
    logit, low = high_low(xp.log(safe) - xp.log1p(-safe))
    tail = xp.where(inside, -xp.log(xp.maximum(safe, 1 - safe)), xp.nan)
    limits = jnp.finfo(result_dtype())
    stored = xp.where(inside, xp.clip(answers, float(limits.tiny), 1 - float(limits.epsneg)), answers)
    return BetaData(stored.astype(logit.dtype), logit, low, tail.astype(logit.dtype))


class _BetaParts(NamedTuple):
    parts: Fold
    step: Array
    spread: Array
    log_few: Array
    few: Array
    many: Array


def _beta_parts(data: BetaData, eta: Array, log_phi: Array) -> _BetaParts:
    """Logit of y minus logit of mu, folded; phi KL(mu || y); and the two parameters of the Beta."""
    parts, phi = fold(eta), jnp.exp(log_phi)
    step = -parts.sign * ((data.logit - eta) + data.logit_low)
    tail = jnp.where(data.tail >= 0, data.tail, 0)
    far_tail = jnp.maximum(-parts.sign * data.logit, 0) + tail
    return _BetaParts(
        parts,
        step,
        phi * divergence(parts, step, far_tail),
        (log_phi - parts.size) - parts.tail,
        phi * parts.small,
        phi * (1 - parts.small),
    )


@jax.custom_jvp
def beta_density(data: BetaData, eta: Array, log_phi: Array) -> Array:
    at = _beta_parts(data, eta, log_phi)
    density = (
        (2 * data.tail + jnp.abs(data.logit))
        - at.spread
        + stirling(at.log_few, at.few)
        + (below(stirling, log_phi, at.parts.tail, at.many) - stirling(log_phi, jnp.exp(log_phi)))
    )
    return jnp.where(data.tail >= 0, density, jnp.nan)


def _beta_slopes(data: BetaData, eta: Array, log_phi: Array) -> tuple[Array, Array]:
    """Derivatives in eta and log_phi."""
    at = _beta_parts(data, eta, log_phi)
    small = at.parts.small
    few = stirling_slope(at.log_few, at.few)
    many = below(stirling_slope, log_phi, at.parts.tail, at.many)
    inwards = at.few * (1 - small) * at.step + (1 - small) * few - small * many
    in_log_phi = few + (many - stirling_slope(log_phi, jnp.exp(log_phi))) - at.spread
    return jnp.where(at.parts.sign > 0, -inwards, inwards), jnp.where(data.tail >= 0, in_log_phi, 0)


@beta_density.defjvp
def _beta_jvp(primals, tangents):
    in_eta, in_log_phi = _beta_slopes(*primals)
    return beta_density(*primals), in_eta * tangents[1] + in_log_phi * tangents[2]
