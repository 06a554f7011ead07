"""A handful of hyperparameters whose likelihood is marginal: importance sampling, and NUTS where that falls short."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from numpyro.infer.util import constrain_fn, potential_energy

from bayes_irsl.inference.chains import Settings, run_chains, sampler_stats
from bayes_irsl.inference.importance import GOOD, importance_sample, normal_sample

Array = Any
Floats = npt.NDArray[np.floating]
# Unconstrained starting points (start, ...) by name, so many of them.
Starts = Callable[[int], dict[str, Array]]


@dataclass(frozen=True)
class Potential:
    """Minus the log density of a program's parameters; data are the program's arguments."""

    priors: Any
    program: Callable[..., Any]

    def __call__(self, z: dict[str, Array], data: tuple[Any, ...]) -> Array:
        return potential_energy(self.model, data, {}, z)

    def sites(self, z: dict[str, Array], data: tuple[Any, ...]) -> dict[str, Array]:
        """Parameters on their natural scales, fixed ones included."""
        return constrain_fn(self.model, data, {}, z, return_deterministic=True)

    @property
    def model(self) -> Any:
        return partial(self.program, priors=self.priors)


class Sampler(NamedTuple):
    """How hyperparameters are drawn: ``chains`` times ``draws``; the rest is of NUTS.

    ``method`` is "importance", "nuts" or "laplace"; None for the first, and the second where it falls short.
    """

    seed: int
    chains: int
    draws: int
    warmup: int
    target_accept: float
    max_tree_depth: int
    progress: bool
    method: str | None = None


class Effort(NamedTuple):
    """Of importance sampling: starts of the search for the mode, enough effective draws, and repeats of every draw."""

    starts: int = 2
    enough: int = 2000
    repeats: int = 1


def draw_hyperparameters(
    potential: Potential,
    starts: Starts,
    data: tuple[Any, ...],
    sampler: Sampler,
    description: str,
    effort: Effort = Effort(),  # noqa: B008
) -> tuple[dict[str, Array], dict[str, np.ndarray], dict[str, Any]]:
    """Draws (chains draws, ...) by name on natural scales, statistics (chain, draw) and facts; to be run under x64."""
    shape = (sampler.chains, sampler.draws)
    n, method = sampler.chains * sampler.draws, sampler.method
    facts: dict[str, Any] = {}
    if method == "laplace":
        found = normal_sample(potential, starts(1), data, draws=n, seed=sampler.seed)
        z, stats = found.draws, {"lp": found.log_density.reshape(shape)}
    elif method != "nuts":
        found = importance_sample(
            potential,
            starts(effort.starts),
            data,
            draws=-(-n // effort.repeats),
            seed=sampler.seed,
            enough=effort.enough,
            progress=sampler.progress,
        )
        z = jax.tree.map(lambda v: jnp.repeat(v, effort.repeats, 0)[:n], found.draws)
        stats = {"lp": np.repeat(found.log_density, effort.repeats)[:n].reshape(shape)}
        facts = {"pareto_k": found.pareto_k, "effective_draws": found.effective}
        if method is None and not found.pareto_k <= GOOD:
            method = "nuts"
    if method == "nuts":
        start = starts(sampler.chains)
        result = run_chains(
            potential,
            start,
            jnp.ones(sum(int(np.prod(v.shape[1:])) for v in start.values())),
            data,
            Settings(sampler.warmup, sampler.target_accept, sampler.max_tree_depth, adapt_metric=True),
            key=jax.random.split(jax.random.key(sampler.seed))[0],
            draws=sampler.draws,
            progress=sampler.progress,
            description=description,
        )
        z = jax.tree.map(lambda v: jnp.asarray(v.reshape(-1, *v.shape[2:])), result.draws)
        stats = sampler_stats(result.stats)
    return _sites(potential, z, data), stats, facts


@partial(jax.jit, static_argnames=("potential",))
def _sites(potential: Potential, z: dict[str, Array], data: tuple[Any, ...]) -> dict[str, Array]:
    return jax.vmap(lambda z: potential.sites(z, data))(z)
