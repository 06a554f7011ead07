"""Success rates under repeated sampling, without a sampler: a grid a subject, and importance sampling of the rest.

Given what subjects have in common they are independent, and each has two or three parameters. Their likelihood, counts
integrated out, is tabulated on a grid laid around where it is; the hyperparameters' marginal likelihood is then a sum
over cells, and a subject's parameters are drawn cell by cell, and within one from the prior.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from numpyro import distributions as dist
from scipy.special import ndtr, ndtri

from bayes_irsl.inference.chains import Settings, run_chains, sampler_stats
from bayes_irsl.inference.hyperparameters import Potential, Sampler, draw_hyperparameters
from bayes_irsl.models import repeated_sampling as models
from bayes_irsl.priors import Prior, SamplingPriors
from bayes_irsl.spec import RepeatedSampling
from bayes_irsl.tails import DEGREES, TAILS, Tail, with_never

Array = Any
Floats = npt.NDArray[np.floating]

# Nodes an axis (location, shape, never), how many sd grids reach, and how often they are laid anew.
AXES = {False: (41, 41), True: (25, 25, 15)}
REACH, ROUNDS = 5.5, 4
# Under these a likelihood of the share that is never solved is summarised: logit.
NEVER_CAVITY = (-2.0, 2.0)
# Share of a grid's half-width beyond which draws are at its rim.
RIM = 0.95
# Least half-width of a grid, in steps of the last one: what is narrower was not resolved.
LEAST_STEPS = 2.0
# Draws times nodes worked on at a time.
CHUNK = 20_000_000

# Made when asked for: a distribution holds arrays, and an import starts no backend.
COUNTS: dict[str, Callable[[], Any]] = {
    "beta": lambda: models.beta_counts,
    "logit-normal": lambda: models.logit_counts(dist.Normal(0.0, 1.0)),
    "logit-logistic": lambda: models.logit_counts(dist.Logistic(0.0, 1.0)),
    "logit-student": lambda: models.logit_counts(dist.StudentT(DEGREES)),
}


class Counts(NamedTuple):
    """Distinct counts (U,) of one subject and how often each occurs."""

    successes: Floats
    trials: Floats
    times: Floats


class Grid(NamedTuple):
    """Cells of one subject: middles along each of P axes, sides (P,), and log likelihood (n_1, ..., n_P)."""

    axes: tuple[Floats, ...]
    step: Floats
    log_likelihood: Floats

    @property
    def nodes(self) -> Floats:
        """Middles (n_1 ... n_P, P), the last axis running fastest."""
        return np.stack(np.meshgrid(*self.axes, indexing="ij"), -1).reshape(-1, len(self.axes))


@dataclass(frozen=True)
class Program:
    """``rates_on_grids`` for a :class:`Potential`."""

    never: bool

    def __call__(self, axes: tuple[Array, ...], step: Array, log_likelihood: Array, *, priors: SamplingPriors) -> None:
        models.rates_on_grids(axes, step, log_likelihood, never=self.never, priors=priors)


def counts_of(successes: Floats, trials: Floats) -> Counts:
    """Counts (J,) by distinct value."""
    pairs, times = np.unique(np.stack([successes, trials], 1).astype(float), axis=0, return_counts=True)
    return Counts(pairs[:, 0], pairs[:, 1], times.astype(float))


def log_likelihood(tail: Tail, counts: Counts, nodes: Floats) -> Floats:
    """Log probability (G,) of a subject's counts at nodes (G, P)."""
    if not len(counts.times):
        return np.zeros(len(nodes))
    # The share that is never solved runs fastest, and the tail knows nothing of it.
    repeats = AXES[True][2] if nodes.shape[1] == 3 else 1
    few = nodes[::repeats]
    table = tail.log_likelihood(few[:, 0], few[:, 1], counts.successes, counts.trials)
    if nodes.shape[1] == 3:
        table = with_never(np.repeat(table, repeats, 0), nodes[:, 2], counts.successes)
    return table @ counts.times


def grid(tail: Tail, never: bool, counts: Counts) -> Grid:
    """A grid around where a wide normal times the likelihood is."""
    cavity = np.array([*tail.cavity, *([NEVER_CAVITY] if never else [])])
    centre, half = cavity[:, 0], 3.0 * cavity[:, 1]
    for left in reversed(range(ROUNDS)):
        axes = [np.linspace(c - h, c + h, n) for c, h, n in zip(centre, half, AXES[never], strict=True)]
        nodes = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, len(axes))
        step = np.array([a[1] - a[0] for a in axes])
        found = log_likelihood(tail, counts, nodes)
        if left:
            log_weight = found - 0.5 * (((nodes - cavity[:, 0]) / cavity[:, 1]) ** 2).sum(1)
            weight = np.exp(log_weight - log_weight.max())
            weight /= weight.sum()
            centre = weight @ nodes
            sd = np.sqrt(weight @ (nodes - centre) ** 2)
            half = np.maximum(REACH * sd, LEAST_STEPS * step)
    return Grid(tuple(axes), step, found.reshape([len(a) for a in axes]))


def stacked(grids: list[Grid]) -> tuple[tuple[Array, ...], Array, Array]:
    """Axes, sides and log likelihoods of several subjects, with a leading axis for them."""
    axes = tuple(jnp.asarray(np.stack(a)) for a in zip(*(g.axes for g in grids), strict=True))
    return (
        axes,
        jnp.asarray(np.stack([g.step for g in grids])),
        jnp.asarray(np.stack([g.log_likelihood for g in grids])),
    )


Found = tuple[dict[str, Floats], Floats, dict[str, np.ndarray], dict[str, Any]]


def quadrature(spec: RepeatedSampling, counts: list[Counts], sampler: Sampler) -> Found:
    """Hyperparameters (n,) by name, parameters (n, S, P) of subjects, statistics (chain, draw) and facts."""
    never, priors = spec.never, spec.priors
    grids = [grid(TAILS[spec.tail], never, c) for c in counts]
    with jax.enable_x64(True):
        data = stacked(grids)
        rng = np.random.default_rng([sampler.seed, 21])
        potential = Potential(priors, Program(never))
        hypers, stats, facts = draw_hyperparameters(
            potential, lambda count: start(priors, never, count, rng), data, sampler, "rates"
        )
        drawn = np.stack([_cell_draws(hypers, g, rng) for g in grids], 1)
        # What lies at a grid's rim may lie beyond: a prior far from what the counts say.
        reach = [RIM * np.ptp(g.nodes, axis=0) / 2 for g in grids]
        beyond = [abs(drawn[:, i] - g.nodes.mean(0)) > reach[i] for i, g in enumerate(grids)]
        facts["at_rim"] = float(np.max(np.mean(np.any(beyond, 2), 1)))
    return {k: np.asarray(v) for k, v in hypers.items()}, drawn, stats, facts


def start(priors: SamplingPriors | None, never: bool, count: int, rng: np.random.Generator) -> dict[str, Array]:
    """Unconstrained starting points (count,) by name around the priors' centres."""
    found = {name: getattr(priors, name) for name in models.hyperparameter_names(never)}
    return {
        name: jnp.asarray(prior.centre + rng.uniform(-0.3, 0.3, count))
        for name, prior in found.items()
        if isinstance(prior, Prior)
    }


def _cell_draws(hypers: dict[str, Array], g: Grid, rng: np.random.Generator) -> Floats:
    """Parameters (n, P) of one subject, a draw for every draw of the hyperparameters."""
    n, nodes = len(hypers["mean_location"]), g.nodes
    out = np.empty((n, len(g.axes)))
    rows = max(1, CHUNK // len(nodes))
    for at in range(0, n, rows):
        part = {k: v[at : at + rows] for k, v in hypers.items()}
        uniform = rng.uniform(size=len(part["mean_location"]))
        out[at : at + rows] = nodes[np.asarray(_choose(part, g.axes, g.step, g.log_likelihood, uniform))]
    h = {k: np.asarray(v) for k, v in hypers.items()}
    out[:, 0] = _within(out[:, 0], g.step[0], h["mean_location"], h["sd_location"], rng)
    out[:, 1] = _within(out[:, 1], g.step[1], models.expected_shape(h, out[:, 0]), h["sd_shape"], rng)
    if out.shape[1] == 3:
        out[:, 2] = _within(out[:, 2], g.step[2], h["mean_never"], h["sd_never"], rng)
    return out


def _within(middle: Floats, side: float, mean: Floats, sd: Floats, rng: np.random.Generator) -> Floats:
    """Normal draws (n,) given that they lie in cells; uniform ones where the cell is in the far tail."""
    sign = np.where(middle > mean, -1.0, 1.0)
    z, half = sign * (middle - mean) / sd, 0.5 * side / sd
    low, high = ndtr(z - half), ndtr(z + half)
    free = rng.uniform(size=len(middle))
    drawn = mean + sign * sd * ndtri(low + free * (high - low))
    return np.where(high - low > models.LEAST, drawn, middle + side * (free - 0.5))


@jax.jit
def _choose(
    hypers: dict[str, Array], axes: tuple[Array, ...], step: Array, log_likelihood: Array, uniform: Array
) -> Array:
    def one(h: dict[str, Array], u: Array) -> Array:
        share = jnp.cumsum(jax.nn.softmax((log_likelihood + models.log_mass(h, axes, step)).ravel()))
        return jnp.minimum(jnp.searchsorted(share, u), len(share) - 1)

    return jax.vmap(one)(hypers, uniform)


def nuts(spec: RepeatedSampling, counts: list[Counts], sampler: Sampler) -> Found:
    """The same by NUTS on the whole program: the reference."""
    tail, never, priors = spec.tail, spec.never, spec.priors
    cells = [(i, *cell) for i, c in enumerate(counts) for cell in zip(*c, strict=True) for _ in range(int(cell[2]))]
    table = np.array(cells, float).reshape(-1, 4)
    with jax.enable_x64(True):
        data = (jnp.asarray(table[:, 0], int), jnp.asarray(table[:, 2]), jnp.asarray(table[:, 1]))
        potential = Potential(priors, Whole(tail, never, len(counts)))
        rng = np.random.default_rng([sampler.seed, 22])
        first = start(priors, never, sampler.chains, rng)
        wide = {"location": TAILS[tail].cavity[0], "shape": TAILS[tail].cavity[1], "never": NEVER_CAVITY}
        for name in ("location", "shape", *(["never"] if never else [])):
            first[name] = jnp.asarray(wide[name][0] + rng.uniform(-0.3, 0.3, (sampler.chains, len(counts))))
        if tail != "beta":
            first["z"] = jnp.asarray(rng.uniform(-0.5, 0.5, (sampler.chains, len(table))))
        settings = Settings(sampler.warmup, sampler.target_accept, sampler.max_tree_depth, adapt_metric=True)
        size = sum(int(np.prod(v.shape[1:])) for v in first.values())
        found = run_chains(
            potential, first, jnp.ones(size), data, settings, key=jax.random.key(sampler.seed), draws=sampler.draws,
            progress=sampler.progress, description="rates",
        )  # fmt: skip
        z = jax.tree.map(lambda v: jnp.asarray(v.reshape(-1, *v.shape[2:])), found.draws)
        sites = {k: np.asarray(v) for k, v in _sites(potential, z, data).items()}
    names = ["location", "shape", *(["never"] if never else [])]
    drawn = np.stack([sites.pop(name) for name in names], -1)
    return {k: v for k, v in sites.items() if v.ndim == 1}, drawn, sampler_stats(found.stats), {}


@partial(jax.jit, static_argnames=("potential",))
def _sites(potential: Potential, z: dict[str, Array], data: tuple[Any, ...]) -> dict[str, Array]:
    return jax.vmap(lambda z: potential.sites(z, data))(z)


@dataclass(frozen=True)
class Whole:
    """``repeated_sampling`` for a :class:`Potential`."""

    tail: str
    never: bool
    n_subjects: int

    def __call__(self, subject: Array, trials: Array, successes: Array, *, priors: SamplingPriors) -> None:
        models.repeated_sampling(
            subject,
            trials,
            successes,
            n_subjects=self.n_subjects,
            counts=COUNTS[self.tail](),
            never=self.never,
            priors=priors,
        )
