"""Simulation-based calibration of the trajectory stage: runs with several checkpoints, estimates with errors."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import handlers
from numpyro.infer.util import unconstrain_fn

from bayes_irsl.inference.hyperparameters import Potential
from bayes_irsl.kernels import Points
from bayes_irsl.models.trajectory import trajectory
from bayes_irsl.priors import TrajectoryPriors

Array = Any


@dataclass(frozen=True)
class TrajectoryTarget:
    """``n_runs`` runs of different size with ``n_checkpoints`` each, in two coordinates; to be run under x64.

    Parameters
    ----------
    priors
        Of the simulation and the fit.
    n_dimensions, grouped
        Abilities per subject, and whether runs belong to two groups.
    error
        Standard deviation of the estimates.
    fitted
        Priors of the fit where they differ from the simulation's: a negative control.
    forget_runs
        Fit residuals as if every checkpoint stood by itself: a negative control.
    """

    priors: TrajectoryPriors = field(default_factory=TrajectoryPriors)
    n_runs: int = 5
    n_checkpoints: int = 5
    n_dimensions: int = 1
    grouped: bool = False
    error: float = 0.1
    fitted: TrajectoryPriors | None = None
    forget_runs: bool = False

    @property
    def name(self) -> str:
        return repr(self)

    def simulate(self, key: Array, n: int) -> tuple[dict[str, Array], Any]:
        potential, layout = Potential(self.priors, trajectory), self._layout()

        def one(key: Array) -> tuple[dict[str, Array], Array]:
            trace = handlers.trace(handlers.seed(potential.model, key)).get_trace(*layout)
            sampled = {k: v["value"] for k, v in trace.items() if v["type"] == "sample" and k != "estimate"}
            estimate = trace["estimate"]["value"]
            return unconstrain_fn(potential.model, (*layout, estimate), {}, sampled), estimate

        z, estimate = jax.vmap(one)(jax.random.split(key, 2 * n))
        if self.forget_runs:
            keep = {k for k in z if k not in ("sd_run", "sd_residual", "length_residual")}
            z = {k: v for k, v in z.items() if k in keep}
            layout = (replace(layout[0], along_run=False), *layout[1:])
        stacked = jax.tree.map(lambda v: jnp.broadcast_to(v, (n, *jnp.shape(v))), layout)
        return z, (*stacked, estimate[:n])

    def potential(self, z: dict[str, Array], data: Any) -> Array:
        return self._fitted(z, data)

    def quantities(self, z: dict[str, Array], data: Any) -> dict[str, Array]:
        sites = self._fitted.sites(z, data)
        program = handlers.substitute(handlers.seed(self._fitted.model, jax.random.key(0)), sites)
        trace = handlers.trace(program).get_trace(*data)
        free = {k: sites[k] for k, v in trace.items() if v["type"] == "sample" and k in z and k != "correlation_tril"}
        if "correlation" in sites:
            free["correlation"] = sites["correlation"][jnp.tril_indices(self.n_dimensions, -1)]
        return free | {"log_likelihood": trace["estimate"]["fn"].log_prob(data[-1])}

    @property
    def _fitted(self) -> Potential:
        return Potential(self.fitted or self.priors, trajectory)

    def _layout(self) -> tuple[Points, Array, Array, Array]:
        size, step = np.meshgrid(np.linspace(-1, 1, self.n_runs), np.linspace(-1, 1, self.n_checkpoints), indexing="ij")
        n, d = size.size, self.n_dimensions
        run = np.tile(np.repeat(np.arange(self.n_runs), self.n_checkpoints), d)
        points = Points(
            coordinates=jnp.asarray(np.tile(np.c_[size.ravel(), step.ravel()], (d, 1))),
            group=jnp.asarray(run % 2),
            run=jnp.asarray(run),
            dimension=jnp.asarray(np.repeat(np.arange(d), n)),
            compute_sd=jnp.zeros(n * d),
            n_dimensions=d,
            grouped=self.grouped,
            along_run=True,
        )
        return points, jnp.asarray(np.tile(np.arange(n), d)), jnp.ones(n * d), self.error**2 * jnp.eye(n * d)
