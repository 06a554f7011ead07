"""The kinds of answers: for each likelihood its data, density, moments and sampler, in one table.

Everything that needs to know how answers arise (models, Laplace, banks, checks) asks here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.nn import sigmoid

from bayes_irsl import likelihoods as lik

Array = Any


class Likelihood(NamedTuple):
    """How answers arise from the logit ``eta`` of their mean.

    Attributes
    ----------
    parameters
        Names of the further parameters, in the order in which the functions take them.
    prepare
        (answer, trials) as NumPy arrays -> pytree of arrays with the same leading shape, computed once on the host.
    log_density
        (data, eta, *parameters) -> log density of every answer.
    mean, variance
        (eta, trials, *parameters) -> of the answer as a share (successes over trials for counts).
    sample
        (key, eta, trials, *parameters) -> answers in the form that ``Responses`` holds them.
    """

    parameters: tuple[str, ...]
    prepare: Callable[[np.ndarray, np.ndarray | None], Any]
    log_density: Callable[..., Array]
    mean: Callable[..., Array]
    variance: Callable[..., Array]
    sample: Callable[..., Array]


def _plain(answer: np.ndarray, trials: np.ndarray | None) -> np.ndarray:
    return np.asarray(answer, np.float32)


def _counts(answer: np.ndarray, trials: np.ndarray | None) -> Any:
    n = np.ones_like(answer) if trials is None else trials
    return lik.binomial_data(answer, n)


def _mean(eta: Array, trials: Array, *parameters: Array) -> Array:
    return sigmoid(eta)


def _spread(eta: Array) -> Array:
    return sigmoid(eta) * sigmoid(-eta)


def _beta_shapes(eta: Array, log_phi: Array) -> tuple[Array, Array]:
    phi = jnp.exp(log_phi)
    return phi * sigmoid(eta), phi * sigmoid(-eta)


def _sample_beta(key: Array, eta: Array, trials: Array, log_phi: Array) -> Array:
    alpha, beta = _beta_shapes(eta, jnp.broadcast_to(log_phi, jnp.shape(eta)))
    draw = jax.random.beta(key, alpha, beta)
    tiny = jnp.finfo(draw.dtype).tiny
    return jnp.clip(draw, tiny, 1 - jnp.finfo(draw.dtype).epsneg)


def _sample_beta_binomial(key: Array, eta: Array, trials: Array, log_phi: Array) -> Array:
    first, second = jax.random.split(key)
    return jax.random.binomial(second, trials, _sample_beta(first, eta, trials, log_phi))


def _edges_ordered(eta: Array, cut_zero: Array, cut_one: Array) -> tuple[Array, Array]:
    return sigmoid(-eta - cut_zero), sigmoid(eta - cut_one)


def _edges_inflated(eta: Array, logit_boundary: Array, logit_one: Array) -> tuple[Array, Array]:
    edge = sigmoid(logit_boundary)
    return edge * sigmoid(-logit_one) + 0 * eta, edge * sigmoid(logit_one) + 0 * eta


def _with_edges(edges: Callable[..., tuple[Array, Array]]) -> tuple[Callable, Callable, Callable]:
    """Mean, variance and sampler of a Beta with point masses at 0 and 1."""

    def mean(eta: Array, trials: Array, log_phi: Array, *rest: Array) -> Array:
        zero, one = edges(eta, *rest)
        return one + (1 - zero - one) * sigmoid(eta)

    def variance(eta: Array, trials: Array, log_phi: Array, *rest: Array) -> Array:
        # Around the mean, so that what is nearly certain does not cancel.
        zero, one = edges(eta, *rest)
        m, inner = mean(eta, trials, log_phi, *rest), sigmoid(eta)
        within = _spread(eta) / (jnp.exp(log_phi) + 1) + (inner - m) ** 2
        return one * (1 - m) ** 2 + zero * m**2 + jnp.maximum(1 - zero - one, 0.0) * within

    def sample(key: Array, eta: Array, trials: Array, log_phi: Array, *rest: Array) -> Array:
        first, second = jax.random.split(key)
        zero, one = edges(eta, *rest)
        u = jax.random.uniform(first, jnp.shape(eta))
        return jnp.where(u < zero, 0.0, jnp.where(u > 1 - one, 1.0, _sample_beta(second, eta, trials, log_phi)))

    return mean, variance, sample


LIKELIHOODS: dict[str, Likelihood] = {
    "bernoulli": Likelihood(
        (),
        _plain,
        lik.bernoulli,
        _mean,
        lambda eta, trials: _spread(eta),
        lambda key, eta, trials: jax.random.bernoulli(key, sigmoid(eta)).astype(jnp.float32),
    ),
    "binomial": Likelihood(
        (),
        _counts,
        lambda data, eta: lik.binomial(data, None, eta),
        _mean,
        lambda eta, trials: _spread(eta) / trials,
        lambda key, eta, trials: jax.random.binomial(key, trials, sigmoid(eta)),
    ),
    "beta-binomial": Likelihood(
        ("log_phi",),
        _counts,
        lambda data, eta, log_phi: lik.beta_binomial(data, None, eta, log_phi),
        _mean,
        lambda eta, trials, log_phi: _spread(eta) / trials * (1 + (trials - 1) / (jnp.exp(log_phi) + 1)),
        _sample_beta_binomial,
    ),
    "beta": Likelihood(
        ("log_phi",),
        lambda answer, trials: lik.beta_data(answer),
        lik.beta,
        _mean,
        lambda eta, trials, log_phi: _spread(eta) / (jnp.exp(log_phi) + 1),
        _sample_beta,
    ),
    "ordered-beta": Likelihood(
        ("log_phi", "cut_zero", "cut_one"),
        lambda answer, trials: lik.beta_data(answer),
        lambda data, eta, log_phi, cut_zero, cut_one: lik.ordered_beta(data, eta, log_phi, -cut_zero, cut_one),
        *_with_edges(_edges_ordered),
    ),
    "zero-one-beta": Likelihood(
        ("log_phi", "logit_boundary", "logit_one"),
        lambda answer, trials: lik.beta_data(answer),
        lik.zero_one_beta,
        *_with_edges(_edges_inflated),
    ),
}
