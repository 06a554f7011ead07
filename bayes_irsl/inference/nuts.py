"""NUTS on the NumPyro model, started from the Laplace approximation and preconditioned by its spread."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from numpyro.distributions.transforms import ZeroSumTransform
from numpyro.infer.util import constrain_fn, potential_energy

from bayes_irsl.cells import Problem
from bayes_irsl.inference.centring import partly_centred, shares_of, unconstrained
from bayes_irsl.inference.chains import Settings, run_chains, sampler_stats
from bayes_irsl.inference.scale import RawDraws
from bayes_irsl.inference.structure import Structure
from bayes_irsl.models import item_response as models
from bayes_irsl.spec import ItemResponse

Array = Any
CURVES = {"1pl": models.one_pl, "2pl": models.two_pl, "3pl": models.three_pl}


def model_of(spec: ItemResponse, n_dimensions: int, anchored: bool = False) -> Callable[..., None]:
    """The NumPyro model of a resolved spec, as a function of (cells, data)."""
    if anchored:
        abilities = models.anchored_ability
    elif n_dimensions == 1:
        abilities = models.one_ability
    elif spec.dependence == "testlet":
        abilities = models.testlet_abilities
    else:
        abilities = models.correlated_abilities
    return partial(
        models.item_response,
        abilities=abilities,
        curve=CURVES[spec.curve],
        likelihood=spec.likelihood,
        precision=spec.precision,
        priors=spec.priors,
    )


@dataclass(frozen=True)
class Potential:
    """Minus the log density of a spec's partly centred program; ``data`` is (cells, data, shares by site)."""

    spec: ItemResponse
    n_dimensions: int
    anchored: bool = False

    def __call__(self, z: dict[str, Array], data: tuple[Any, Any, dict[str, Array]]) -> Array:
        cells, answers, shares = data
        return potential_energy(self._program(shares), (cells, answers), {}, z)

    def sites(self, z: dict[str, Array], data: tuple[Any, Any, dict[str, Array]]) -> dict[str, Array]:
        """Values of the plain program's sites."""
        cells, answers, shares = data
        return constrain_fn(self._program(shares), (cells, answers), {}, z, return_deterministic=True)

    def _program(self, shares: dict[str, Array]) -> Callable[..., None]:
        return partly_centred(self.model, shares)

    @property
    def model(self) -> Callable[..., None]:
        """The plain program."""
        return model_of(self.spec, self.n_dimensions, self.anchored)


def nuts(
    problem: Problem,
    s: Structure,
    start: RawDraws,
    *,
    seed: int,
    chains: int,
    draws: int,
    warmup: int,
    target_accept: float,
    max_tree_depth: int,
    progress: bool,
) -> tuple[RawDraws, dict[str, np.ndarray]]:
    """Sample; ``start`` are draws of an approximation that set starting points, diagonal metric and centring."""
    potential = Potential(problem.spec, s.n_dimensions, s.anchored)
    cells, answers = problem.cells()
    free, shares = _unconstrained_start(potential, to_sites(problem, s, start), cells, answers)
    variance = ravel_pytree(jax.tree.map(lambda v: jnp.var(v, 0), free))[0]
    rng = np.random.default_rng([seed, 2])
    chosen = rng.choice(len(start.theta), chains, replace=len(start.theta) < chains)
    data = (cells, answers, shares)
    result = run_chains(
        potential,
        jax.tree.map(lambda v: v[chosen], free),
        jnp.maximum(variance, 1e-10),
        data,
        Settings(warmup, target_accept, max_tree_depth),
        key=jax.random.key(seed),
        draws=draws,
        progress=progress,
    )
    z = jax.tree.map(lambda v: v.reshape(-1, *v.shape[2:]), result.draws)
    return from_sites(problem, s, _sites(potential, z, data)), sampler_stats(result.stats)


@partial(jax.jit, static_argnames=("potential",))
def _unconstrained_start(
    potential: Potential, sites: dict[str, Array], cells: Any, answers: Any
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Draws by site as unconstrained parameters (n, ...), and how far each site is centred."""
    shares = shares_of(potential.model, (cells, answers), sites)
    return unconstrained(potential.model, shares, (cells, answers), sites), shares


@partial(jax.jit, static_argnames=("potential",))
def _sites(potential: Potential, z: dict[str, Array], data: Any) -> dict[str, Array]:
    return jax.lax.map(lambda z: potential.sites(z, data), z)


def as_modelled(s: Structure, raw: RawDraws) -> RawDraws:
    """The same draws with log discriminations that sum to zero, which fixes abilities' scale where no anchor does."""
    if s.anchored or "log_a" not in raw.items:
        return raw
    shift = raw.items["log_a"].mean(1, keepdims=True)
    items = raw.items | {"log_a": raw.items["log_a"] - shift}
    hypers = raw.hypers | {"sd_theta": raw.hypers["sd_theta"] * np.exp(shift)}
    return RawDraws(raw.theta * np.exp(shift)[:, :, None], items, hypers)


def to_sites(problem: Problem, s: Structure, raw: RawDraws) -> dict[str, Array]:
    """Draws as values of the model's sample sites, on its convention that log discriminations sum to zero."""
    raw = as_modelled(s, raw)
    sites: dict[str, Array] = {}
    theta, hypers = raw.theta, dict(raw.hypers)
    if s.anchored:
        sites |= {name: raw.items[name] for name in ("log_a",) if name in raw.items}
        sites |= {name: hypers[name] for name in ("mean_log_a",) if name in hypers}
    elif "log_a" in raw.items:
        log_a = raw.items["log_a"]
        if "mean_log_a" in hypers:
            mean = hypers["mean_log_a"] - hypers["mean_log_a"].mean(1, keepdims=True)
            log_a = log_a - mean[:, problem.benchmark]
            log_a = log_a - log_a.mean(1, keepdims=True)
            sites["mean_log_a"] = mean
        sites["log_a_deviation"] = log_a
    for name in ("intercept", "guessing_deviation"):
        if name in raw.items:
            sites[name] = raw.items[name]
    if "log_phi" in raw.items:
        sites["log_phi_item"] = raw.items["log_phi"]
    if s.n_dimensions == 1:
        sites["theta"] = theta[:, 0]
    else:
        sites["theta_free"] = np.asarray(ZeroSumTransform(1)._inverse(jnp.asarray(theta))).swapaxes(1, 2)
    for name, size, _ in s.free:
        if name == "mean_log_a":
            continue
        if name == "correlation":
            tril = hypers["tril"]
            sites["correlation_tril"] = tril / np.linalg.norm(tril, axis=-1, keepdims=True)
        else:
            by_plate = name in ("mean_intercept", "sd_intercept") or (name == "sd_theta" and s.n_dimensions > 1)
            sites[name] = hypers[name] if by_plate else hypers[name].reshape(len(theta), *([size] if size > 1 else []))
    return {name: jnp.asarray(value, jnp.float32) for name, value in sites.items()}


def from_sites(problem: Problem, s: Structure, samples: dict[str, Array]) -> RawDraws:
    """Values of the model's sites as raw draws: inverse of :func:`to_sites`."""
    v = {name: np.asarray(value) for name, value in samples.items()}
    theta = v["theta"][:, None] if s.n_dimensions == 1 else v["theta"].swapaxes(1, 2)
    items: dict[str, np.ndarray] = {}
    items |= {name: v[name] for name in ("intercept", "guessing_deviation") if name in s.item_names}
    n = len(theta)
    hypers = {}
    if "log_a" in s.item_names:
        mean = v["mean_log_a"] if "mean_log_a" in v else np.zeros((n, len(problem.benchmarks)))
        items["log_a"] = v["log_a"] if s.anchored else v["log_a_deviation"] + mean[:, problem.benchmark]
        if "mean_log_a" in v:
            hypers["mean_log_a"] = mean
    if "log_phi" in s.item_names:
        items["log_phi"] = v["log_phi_item"]
    for name, size, prior in s.hypers:
        if name == "correlation":
            hypers["tril"] = v["correlation_tril"]
            hypers["correlation"] = np.asarray(jax.vmap(_uncorrelate)(jnp.asarray(v["correlation_tril"])))
        elif name != "mean_log_a":
            hypers[name] = v[name].reshape(n, size) if name in v else np.full((n, size), prior)
    return RawDraws(theta, items, hypers)


def _uncorrelate(tril: Array) -> Array:
    from numpyro.distributions.transforms import CorrCholeskyTransform

    return CorrCholeskyTransform()._inverse(tril)
