"""Items and trajectory in one posterior by NUTS: the prior of abilities is their course over compute.

Started from the two stages: item parameters and abilities from Laplace's draws, hyperparameters from the trajectory
stage's, and sampled through the map that these make (:mod:`bayes_irsl.inference.guide`). The mean ability, which moves
nothing, is integrated out and drawn afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from numpyro.infer.util import constrain_fn, potential_energy

from bayes_irsl import kernels
from bayes_irsl.cells import Problem
from bayes_irsl.inference.centring import partly_centred, shares_of, unconstrained
from bayes_irsl.inference.chains import Settings, run_chains, sampler_stats
from bayes_irsl.inference.guide import Names, forward, guide, names_of
from bayes_irsl.inference.nuts import CURVES, as_modelled, from_sites, to_sites
from bayes_irsl.inference.scale import RawDraws
from bayes_irsl.inference.structure import Structure
from bayes_irsl.kernels import Points
from bayes_irsl.models import item_response as item_models
from bayes_irsl.models import trajectory as models
from bayes_irsl.priors import Prior, TrajectoryPriors
from bayes_irsl.spec import ItemResponse

Array = Any
Floats = npt.NDArray[np.floating]

# Sites of the item program that say what the trajectory says instead.
REPLACED = ("theta", "theta_free", "sd_theta", "correlation_tril")


@dataclass(frozen=True)
class JointPotential:
    """Minus the log density of the map's u; ``data`` is (cells, answers, shares by site, points, subject, guide)."""

    items: ItemResponse
    priors: TrajectoryPriors
    names: Names

    def __call__(self, u: dict[str, Array], data: tuple[Any, ...]) -> Array:
        z, determinant = self._mapped(u, data)
        return potential_energy(self._program(data), data[:2], {}, z) - determinant

    def sites(self, u: dict[str, Array], data: tuple[Any, ...]) -> dict[str, Array]:
        """Values of the plain program's sites."""
        return constrain_fn(self._program(data), data[:2], {}, self._mapped(u, data)[0], return_deterministic=True)

    def _mapped(self, u: dict[str, Array], data: tuple[Any, ...]) -> tuple[dict[str, Array], Array]:
        _, _, _, points, subject, g = data
        return forward(u, g, self.names, points, subject, self.priors)

    def _program(self, data: tuple[Any, ...]) -> Any:
        _, _, shares, points, subject, _ = data
        return partly_centred(_model(self.items, self.priors, points, subject), shares)


def _model(items: ItemResponse, priors: TrajectoryPriors, points: Points, subject: Array) -> Any:
    """The NumPyro program, a function of (cells, answers)."""
    return partial(
        item_models.item_response,
        abilities=partial(models.abilities_over_compute, points=points, subject=subject, trend_priors=priors),
        curve=CURVES[items.curve],
        likelihood=items.likelihood,
        precision=items.precision,
        priors=items.priors,
    )


def joint(
    problem: Problem,
    s: Structure,
    start: RawDraws,
    points: Points,
    subject: npt.NDArray[np.int32],
    hypers: dict[str, Floats],
    estimates: tuple[Floats, Floats],
    priors: TrajectoryPriors,
    *,
    seed: int,
    chains: int,
    draws: int,
    warmup: int,
    target_accept: float,
    max_tree_depth: int,
    progress: bool,
) -> tuple[RawDraws, dict[str, Floats], dict[str, np.ndarray]]:
    """Draws on the scale of fitting, hyperparameters of the trajectory in units of the bank's scale, and statistics.

    ``start`` and ``hypers`` are draws of the two stages, ``estimates`` abilities (S, D) with errors (S, D, D) as the
    second stage has seen them: for abilities with mean 0 and sd 1.
    """
    points = jax.tree.map(lambda v: jnp.asarray(v, jnp.float32 if np.asarray(v).dtype.kind == "f" else None), points)
    place = jnp.asarray(subject)
    cells, answers = problem.cells()
    start = as_modelled(s, start)
    sites = {k: v for k, v in to_sites(problem, s, start).items() if k not in REPLACED}
    sites |= _trajectory_sites(start, hypers, points, priors)
    model = _model(problem.spec, priors, points, place)
    shares = shares_of(model, (cells, answers), sites)
    free = unconstrained(model, shares, (cells, answers), sites)
    potential = JointPotential(problem.spec, priors, names_of(free, points, priors))
    g = guide(potential.names, free, *estimates, start.theta.std(-1), problem.dimension)
    data = (cells, answers, shares, points, place, g)
    rng = np.random.default_rng([seed, 4])
    begin = {k: jnp.asarray(rng.standard_normal((chains, *v.shape[1:])), jnp.float32) for k, v in free.items()}
    result = run_chains(
        potential,
        begin,
        jnp.ones(sum(int(np.prod(v.shape[1:])) for v in begin.values())),
        data,
        Settings(warmup, target_accept, max_tree_depth),
        key=jax.random.key(seed),
        draws=draws,
        progress=progress,
        description="items and trajectory",
    )
    u = jax.tree.map(lambda v: jnp.asarray(v.reshape(-1, *v.shape[2:])), result.draws)
    found = {k: np.asarray(v) for k, v in _sites(potential, u, data).items()}
    with jax.enable_x64(True):
        keys = jax.random.split(jax.random.key(seed + 1), len(found["slope"]))
        shape = {name: found[name] for name, _, _ in models.hyperparameter_priors(points, priors) if name in found}
        shape |= {"correlation": found["correlation"]} if "correlation" in found else {}
        double = jax.tree.map(lambda v: jnp.asarray(np.asarray(v, float)), shape)
        means = np.asarray(_means(double, jnp.asarray(found["ability_free"], float), points, place, keys))
    return *_split(problem, s, found, shape, means), sampler_stats(result.stats)


@partial(jax.jit, static_argnames=("potential",))
def _sites(potential: JointPotential, u: dict[str, Array], data: Any) -> dict[str, Array]:
    return jax.lax.map(lambda u: potential.sites(u, data), u)


def _trajectory_sites(
    start: RawDraws, hypers: dict[str, Floats], points: Points, priors: TrajectoryPriors
) -> dict[str, Array]:
    """Abilities and hyperparameters as sites, on the scale of fitting."""
    n, size = len(start.theta), start.theta.std(-1)
    rows = np.resize(np.arange(len(next(iter(hypers.values())))), n)
    basis = models.zero_sum_basis(start.theta.shape[2], start.theta.shape[1])
    sites: dict[str, Floats] = {"ability_free": start.theta.reshape(n, -1) @ basis}
    for name, prior, _ in models.hyperparameter_priors(points, priors):
        if isinstance(prior, Prior) and name != "level":
            sites[name] = hypers[name][rows]
    if "slope" in sites:
        sites["slope"] = sites["slope"] * size
    if points.n_dimensions > 1:
        sites["correlation_tril"] = np.linalg.cholesky(hypers["correlation"][rows])
    return {name: jnp.asarray(value, jnp.float32) for name, value in sites.items()}


@jax.jit
def _means(hypers: dict[str, Array], free: Array, points: Points, subject: Array, keys: Array) -> Array:
    """Mean abilities (n, D) given their deviations: what the program has integrated out."""
    d = points.n_dimensions
    s = points.size // d
    across = models.zero_sum_basis(s, d).astype(float)
    along = np.kron(np.eye(d), np.ones((s, 1))) / s

    def one(args: tuple[dict[str, Array], Array, Array]) -> Array:
        h, z, key = args
        h = h | {"level": jnp.zeros(d)}
        covariance, mean = kernels.prior_covariance(h, points, subject), kernels.trend(h, points)
        between = jnp.linalg.solve(across.T @ covariance @ across, across.T @ covariance @ along).T
        left = along.T @ covariance @ along - between @ across.T @ covariance @ along
        expected = along.T @ mean + between @ (z - across.T @ mean)
        return expected + jnp.linalg.cholesky(left) @ jax.random.normal(key, (d,))

    return jax.lax.map(one, (hypers, free, keys))


def _split(
    problem: Problem, s: Structure, found: dict[str, Floats], shape: dict[str, Floats], means: Floats
) -> tuple[RawDraws, dict[str, Floats]]:
    """Item draws as the structure knows them, and the trajectory's hyperparameters on the scale of the bank."""
    d = means.shape[1]
    theta = found["theta"] if d > 1 else found["theta"][..., None]
    size = theta.std(1)
    raw = from_sites(problem, s, found | {"sd_theta": size if d > 1 else size[:, 0]})
    return raw, shape | {"slope": found["slope"] / size, "level": -means / size}
