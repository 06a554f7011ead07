"""Log densities of answers, given the logit `eta` of their mean.

Every function is elementwise with broadcasting, includes all constants, works in float32 and float64, has
analytic derivatives and can be differentiated twice in its parameters. Answers are data: there is no
derivative in them. An answer outside its range (NaN included) has log density NaN and finite derivatives,
so that ``jnp.where(mask, density, 0)`` is safe in value and gradient whatever fills the masked cells.

Parameters that many cells share (one `log_phi` per fit, or per item) are best passed in their small shape:
what depends on them alone is then computed once.

Each density ends in a ``where`` that tests the answer. Besides marking bad answers it keeps XLA's reduction
kernels on CPUs from swallowing the whole density, which makes them several times slower.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from bayes_irsl._beta_density import BetaData, beta_data, beta_density
from bayes_irsl._count_density import CountData, beta_binomial_density, binomial_data, binomial_density
from bayes_irsl._special import fold
from bayes_irsl.errors import InputError

__all__ = [
    "BetaData",
    "CountData",
    "bernoulli",
    "beta",
    "beta_binomial",
    "beta_data",
    "binomial",
    "binomial_data",
    "ordered_beta",
    "zero_one_beta",
]


def _parameters(data: Any, *parameters: ArrayLike) -> list[Array]:
    """Parameters as arrays of the common float type of themselves and the data."""
    arrays = [np.asarray(p) if isinstance(p, (list, tuple)) else p for p in parameters]
    dtype = jnp.result_type(*arrays, *data, jnp.float32)
    return [jnp.asarray(array, dtype=dtype) for array in arrays]


def bernoulli(y: ArrayLike, eta: ArrayLike) -> Array:
    """Log probability of a right (1) or wrong (0) answer.

    log p = y log mu + (1 - y) log(1 - mu), mu = sigmoid(eta); a fraction y counts as that share of a right
    answer.

    Parameters
    ----------
    y
        Answers in [0, 1].
    eta
        Logit of the success rate.
    """
    y = jnp.asarray(y)
    (eta,) = _parameters((y,), eta)
    return _bernoulli(y.astype(eta.dtype), eta)


@jax.custom_jvp
def _bernoulli(y: Array, eta: Array) -> Array:
    return jnp.where(jnp.abs(y - 0.5) <= 0.5, (y - (eta >= 0)) * eta - fold(eta).tail, jnp.nan)


@_bernoulli.defjvp
def _bernoulli_jvp(primals, tangents):
    y, eta = primals
    parts = fold(eta)
    slope = (y - (eta >= 0)) + parts.sign * parts.small
    return _bernoulli(y, eta), jnp.where(jnp.abs(y - 0.5) <= 0.5, slope, 0) * tangents[1]


def _count_data(y: ArrayLike | CountData, n: ArrayLike | None) -> CountData:
    if isinstance(y, CountData):
        return y
    if n is None:
        raise InputError("n: got None; counts need the number of trials, unless y comes from binomial_data(y, n)")
    return binomial_data(y, n)


def binomial(y: ArrayLike | CountData, n: ArrayLike | None, eta: ArrayLike) -> Array:
    """Log probability of y successes in n trials.

    log p = log C(n, y) + y log mu + (n - y) log(1 - mu), mu = sigmoid(eta); computed as the largest value
    it can take minus n KL(y/n || mu), which keeps its digits for many trials.

    Parameters
    ----------
    y, n
        Successes and trials; or y from `binomial_data`, and n None.
    eta
        Logit of the success rate.
    """
    data = _count_data(y, n)
    (eta,) = _parameters(data, eta)
    return binomial_density(data, eta)


def beta_binomial(y: ArrayLike | CountData, n: ArrayLike | None, eta: ArrayLike, log_phi: ArrayLike) -> Array:
    """Log probability of y successes in n trials whose success rate varies as Beta(mu phi, (1 - mu) phi).

    p = C(n, y) B(mu phi + y, (1 - mu) phi + n - y) / B(mu phi, (1 - mu) phi), mu = sigmoid(eta). The
    binomial is its limit for phi to infinity. Written with the pooled rate p1 = (mu phi + y) / (phi + n) as
    the largest binomial value minus phi KL(mu || p1) minus n KL(y/n || p1) plus bounded terms, so that
    nothing cancels.

    Parameters
    ----------
    y, n
        Successes and trials; or y from `binomial_data`, and n None.
    eta
        Logit of the mean success rate.
    log_phi
        Log of the concentration phi = alpha + beta; smaller means more overdispersed.
    """
    data = _count_data(y, n)
    eta, log_phi = _parameters(data, eta, log_phi)
    return beta_binomial_density(data, eta, log_phi)


def beta(y: ArrayLike | BetaData, eta: ArrayLike, log_phi: ArrayLike) -> Array:
    """Log density of a probability y under Beta(mu phi, (1 - mu) phi), mu = sigmoid(eta).

    log p = -log y - log(1 - y) - phi KL(mu || y) + F(mu phi) + F((1 - mu) phi) - F(phi), with
    F(x) = x log x - x - log Gamma(x): the terms of size phi log phi cancel on paper and not in the machine.

    Parameters
    ----------
    y
        Probabilities strictly between 0 and 1; or the result of `beta_data`.
    eta
        Logit of the mean.
    log_phi
        Log of the precision phi = alpha + beta.
    """
    data = y if isinstance(y, BetaData) else beta_data(y)
    eta, log_phi = _parameters(data, eta, log_phi)
    return beta_density(data, eta, log_phi)


def ordered_beta(
    y: ArrayLike | BetaData, eta: ArrayLike, log_phi: ArrayLike, cut_low: ArrayLike, cut_high: ArrayLike
) -> Array:
    """Log density of y in [0, 1] when one logit decides between exactly 0, a Beta inside, and exactly 1.

    P(0) = 1 - sigmoid(eta - cut_low); P(1) = sigmoid(eta - cut_high); between them the remaining
    probability times Beta(y | sigmoid(eta), phi). A density inside, a probability at 0 and 1.

    Parameters
    ----------
    y
        Answers in [0, 1]; or the result of `beta_data`.
    eta
        Logit of the mean of the answers inside.
    log_phi
        Log of their precision.
    cut_low, cut_high
        Cutpoints on the logit scale, cut_low < cut_high (else NaN inside).

    Notes
    -----
    R. Kubinec (2023), Ordered Beta Regression, Political Analysis 31, 519-536.
    """
    data = y if isinstance(y, BetaData) else beta_data(y)
    eta, log_phi, cut_low, cut_high = _parameters(data, eta, log_phi, cut_low, cut_high)
    above_low, above_high = fold(eta - cut_low), fold(eta - cut_high)
    between = above_low.log_mean + above_high.log_rest + jnp.log(-jnp.expm1(cut_low - cut_high))
    edge = jnp.where(data.y == 0, above_low.log_rest, above_high.log_mean)
    return jnp.where((data.y == 0) | (data.y == 1), edge, between + beta_density(data, eta, log_phi))


def zero_one_beta(
    y: ArrayLike | BetaData,
    eta: ArrayLike,
    log_phi: ArrayLike,
    logit_boundary: ArrayLike,
    logit_one: ArrayLike,
) -> Array:
    """Log density of y in [0, 1] when exact 0 and 1 arise on their own, apart from a Beta inside.

    P(0 or 1) = sigmoid(logit_boundary), P(1 given 0 or 1) = sigmoid(logit_one); else Beta(y | sigmoid(eta),
    phi). A density inside, a probability at 0 and 1.

    Parameters
    ----------
    y
        Answers in [0, 1]; or the result of `beta_data`.
    eta, log_phi
        Logit of the mean and log precision of the answers inside.
    logit_boundary, logit_one
        Logits of the two probabilities.

    Notes
    -----
    R. Ospina and S. L. P. Ferrari (2010), Inflated beta distributions, Statistical Papers 51, 111-126.
    """
    data = y if isinstance(y, BetaData) else beta_data(y)
    eta, log_phi, logit_boundary, logit_one = _parameters(data, eta, log_phi, logit_boundary, logit_one)
    boundary, one = fold(logit_boundary), fold(logit_one)
    edge = boundary.log_mean + jnp.where(data.y == 0, one.log_rest, one.log_mean)
    return jnp.where((data.y == 0) | (data.y == 1), edge, boundary.log_rest + beta_density(data, eta, log_phi))
