"""Response curves, information and pass@k: pure functions of arrays."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from bayes_irsl._special import logistic, stirling_curvature, stirling_slope
from bayes_irsl.errors import InputError


def mean_logit(theta: ArrayLike, a: ArrayLike, b: ArrayLike) -> Array:
    """Logit of the success rate without guessing: eta = a (theta - b)."""
    return jnp.asarray(a) * (jnp.asarray(theta) - b)


def with_guessing(eta: ArrayLike, logit_c: ArrayLike) -> Array:
    """Logit of c + (1 - c) sigmoid(eta), given the logit of c (-inf for c = 0)."""
    eta, logit_c = jnp.asarray(eta), jnp.asarray(logit_c)
    return jnp.logaddexp(logit_c, eta - logistic(logit_c).log_rest)


def response_curve(theta: ArrayLike, a: ArrayLike, b: ArrayLike, c: ArrayLike = 0.0) -> Array:
    """Success rate mu = c + (1 - c) sigmoid(a (theta - b))."""
    return c + (1 - jnp.asarray(c)) * jax.nn.sigmoid(mean_logit(theta, a, b))


def difficulty_from_intercept(a: ArrayLike, intercept: ArrayLike) -> Array:
    """Difficulty b = -intercept / a of an item written eta = a theta + intercept."""
    return -jnp.asarray(intercept) / a


def intercept_from_difficulty(a: ArrayLike, b: ArrayLike) -> Array:
    """Intercept -a b of an item written eta = a (theta - b)."""
    return -jnp.asarray(a) * b


def information(
    theta: ArrayLike,
    a: ArrayLike,
    b: ArrayLike,
    c: ArrayLike = 0.0,
    likelihood: str = "bernoulli",
    phi: ArrayLike | None = None,
    trials: ArrayLike = 1,
) -> Array:
    """Fisher information about theta in one answer."""
    eta, c = mean_logit(theta, a, b), jnp.asarray(c)
    mean, rest, _, log_rest = logistic(eta)
    # sigmoid(eta) / mu, which tends to 0 for c > 0 and to 1 for c = 0
    share = 1 / (1 + c * jnp.exp(jnp.minimum(-eta, 80.0)))
    mu, not_mu = mean / share, (1 - c) * rest
    slope = a * share
    if likelihood in ("bernoulli", "binomial"):
        return slope**2 * mu * not_mu * trials
    if phi is None:
        raise InputError(f"likelihood={likelihood!r} needs phi, got None")
    alpha, beta = mu * phi, not_mu * jnp.asarray(phi)
    near = not_mu**2 * (alpha + stirling_slope(jnp.log(alpha), alpha) - stirling_curvature(jnp.log(alpha), alpha))
    far = mu**2 * (beta + stirling_slope(jnp.log(beta), beta) - stirling_curvature(jnp.log(beta), beta))
    if likelihood == "beta":
        return slope**2 * (near + far)
    raise InputError(f"unknown likelihood {likelihood!r}")


def information_peak(a: ArrayLike, b: ArrayLike, c: ArrayLike = 0.0) -> Array:
    """Ability at which an item tells most: b + log((1 + sqrt(1 + 8 c)) / 2) / a."""
    return b + jnp.log((1 + jnp.sqrt(1 + 8 * jnp.asarray(c))) / 2) / a


def expected_score(
    theta: ArrayLike,
    a: ArrayLike,
    b: ArrayLike,
    c: ArrayLike = 0.0,
    items: Sequence[str] | None = None,
) -> Array:
    """Mean success rate over the items on the last axis of a, b, c."""
    if not isinstance(a, jax.core.Tracer) and np.any(np.asarray(a) < 0):
        where = sorted({int(i) for i in np.argwhere(np.asarray(a) < 0)[:, -1]})[:5]
        raise InputError(f"slopes must be positive: items {[items[i] if items is not None else i for i in where]}")
    return response_curve(jnp.asarray(theta)[..., None], a, b, c).mean(-1)


def pass_at_k_unbiased(n: ArrayLike, c: ArrayLike, k: ArrayLike) -> np.ndarray:
    """Unbiased estimate of the chance that k fresh samples hold a success, from c successes in n."""
    n, c, k = np.broadcast_arrays(*(np.asarray(v, dtype=np.float64) for v in (n, c, k)))
    bad = (k > n) | (k < 1) | (c < 0) | (c > n)
    if bad.any():
        raise InputError(f"k must lie in 1..n and c in 0..n, got k={k[bad][0]:g}, n={n[bad][0]:g}")
    fewer, more = np.minimum(c, k), np.maximum(c, k)
    log_fail = np.zeros(n.shape)
    step = 0
    while np.any(active := (step < fewer) & (log_fail > -50)):
        ratio = np.where(active, more / (n - step), 0.0)
        log_fail = log_fail + np.log1p(-np.minimum(ratio, 1 - 1e-300))
        log_fail = np.where(ratio >= 1, -np.inf, log_fail)
        step += 1
    return -np.expm1(log_fail)
