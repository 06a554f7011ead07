"""Simulation-based calibration of repeated sampling: subjects with tails of their own, counts of a few samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp

from bayes_irsl.inference.hyperparameters import Potential
from bayes_irsl.inference.rates import Program, counts_of, grid, stacked
from bayes_irsl.models import repeated_sampling as models
from bayes_irsl.priors import Prior
from bayes_irsl.spec import RepeatedSampling
from bayes_irsl.tails import TAILS

Array = Any


@dataclass(frozen=True)
class RatesTarget:
    """``n_subjects`` with ``trials`` samples of ``n_items`` items each; to be run under x64, by importance sampling.

    ``fitted``, if given, is the spec that is fitted in the place of the one that simulates: a negative control.
    """

    spec: RepeatedSampling
    n_subjects: int = 4
    n_items: int = 25
    trials: int = 12
    fitted: RepeatedSampling | None = None

    @property
    def name(self) -> str:
        return repr(self)

    def simulate(self, key: Array, n: int) -> tuple[dict[str, Array], Any]:
        rng = np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel())
        spec, fitted = self.spec, self.fitted or self.spec
        z: dict[str, np.ndarray] = {}
        h: dict[str, np.ndarray] = {}
        for k, name in zip(jax.random.split(key, 16), models.hyperparameter_names(spec.never), strict=False):
            prior = getattr(spec.priors, name)
            h[name] = np.asarray(prior.distribution().sample(k, (2 * n,)), float)
            z[name] = np.log(h[name]) if prior.positive else h[name]
        shape = (2 * n, self.n_subjects)
        location = h["mean_location"][:, None] + h["sd_location"][:, None] * rng.standard_normal(shape)
        expected = h["mean_shape"][:, None] + h["tie"][:, None] * (location - h["mean_location"][:, None])
        of_shape = expected + h["sd_shape"][:, None] * rng.standard_normal(shape)
        never = np.full(shape, -np.inf)
        if spec.never:
            never = h["mean_never"][:, None] + h["sd_never"][:, None] * rng.standard_normal(shape)
        none, trials = np.zeros(self.n_items), np.full(self.n_items, float(self.trials))
        grids = []
        for i in range(n):
            for s in range(self.n_subjects):
                p = TAILS[spec.tail].draw(np.full(self.n_items, location[i, s]), of_shape[i, s], none, none, rng)
                gone = rng.uniform(size=self.n_items) < 1 / (1 + np.exp(-never[i, s]))
                counts = counts_of(rng.binomial(self.trials, np.where(gone, 0.0, p)).astype(float), trials)
                grids.append(grid(TAILS[fitted.tail], fitted.never, counts))
        data = jax.tree.map(lambda v: v.reshape(n, self.n_subjects, *v.shape[1:]), stacked(grids))
        kept = models.hyperparameter_names(fitted.never)
        return {k: jnp.asarray(v) for k, v in z.items() if k in kept}, data

    def potential(self, z: dict[str, Array], data: Any) -> Array:
        return self._fitted(z, data)

    def quantities(self, z: dict[str, Array], data: Any) -> dict[str, Array]:
        axes, step, values = data
        h = self._fitted.sites(z, data)
        fixed = {k: v for k, v in h.items() if isinstance(getattr(self._spec.priors, k), Prior)}
        found = (values + models.log_mass(h, axes, step)).reshape(len(values), -1)
        return fixed | {"log_likelihood": logsumexp(found, axis=1).sum()}

    @property
    def _spec(self) -> RepeatedSampling:
        return self.fitted or self.spec

    @property
    def _fitted(self) -> Potential:
        return Potential(self._spec.priors, Program(self._spec.never))
