"""Answers as a NumPyro distribution, so that one program both conditions on answers and simulates them."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from numpyro import distributions as dist
from numpyro.distributions import constraints

from bayes_irsl.answers import LIKELIHOODS
from bayes_irsl.cells import Cells


class AnswerDistribution(dist.Distribution):
    """Answers in cells: logits of the means ``eta`` (J, M), further parameters broadcastable to it.

    ``data`` are the observed answers as :class:`bayes_irsl.answers.Likelihood` prepares them: ``log_prob`` reads them
    instead of its argument, which is the same answers as a plain array. Padding contributes zero.
    """

    support = constraints.real
    pytree_data_fields = ("eta", "parameters", "cells", "data")
    pytree_aux_fields = ("likelihood",)

    def __init__(self, likelihood: str, eta: Any, parameters: tuple[Any, ...], cells: Cells, data: Any = None) -> None:
        self.likelihood, self.eta, self.parameters, self.cells, self.data = (
            likelihood,
            eta,
            parameters,
            cells,
            data,
        )
        shape = jnp.broadcast_shapes(jnp.shape(eta), jnp.shape(cells.mask) if cells.mask is not None else ())
        super().__init__(batch_shape=shape, validate_args=False)

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Any:
        shape = sample_shape + self.batch_shape
        trials = jnp.broadcast_to(self.cells.trials, shape)
        return LIKELIHOODS[self.likelihood].sample(key, jnp.broadcast_to(self.eta, shape), trials, *self.parameters)

    def log_prob(self, value: Any) -> Any:
        terms = LIKELIHOODS[self.likelihood].log_density(self.data, self.eta, *self.parameters)
        return terms if self.cells.mask is None else jnp.where(self.cells.mask, terms, 0.0)
