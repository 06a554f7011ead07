"""What a fit says about its own answers: moments of cells and replicated answers, a block of cells at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bayes_irsl.answers import LIKELIHOODS
from bayes_irsl.curves import mean_logit, with_guessing
from bayes_irsl.responses import Responses
from bayes_irsl.spec import ItemResponse

BLOCK = 500_000
COUNTED = ("bernoulli", "binomial", "beta-binomial")
EDGED = ("ordered-beta", "zero-one-beta")


@dataclass(frozen=True)
class Draws:
    """Some posterior draws (D) of everything that a cell needs.

    theta (D, S, K) with K abilities a subject; a, b, logit_c (D, J), logit_c None without guessing; ``parameters`` of
    the likelihood (D, 1) or (D, J); ``dimension`` (J,) names the ability that an item draws on.
    """

    likelihood: str
    theta: np.ndarray
    a: np.ndarray
    b: np.ndarray
    logit_c: np.ndarray | None
    parameters: tuple[np.ndarray, ...]
    dimension: np.ndarray

    @property
    def size(self) -> int:
        return self.theta.shape[0]

    def ability(self, subject: np.ndarray, item: np.ndarray) -> np.ndarray:
        """Abilities at work in cells: (D, n)."""
        return self.theta[:, subject, self.dimension[item]]


class Moments(NamedTuple):
    """Of the answer as a share, (D, n) each: mean, variance, third central moment, and slope d mean / d logit."""

    mean: np.ndarray
    variance: np.ndarray
    third: np.ndarray
    slope: np.ndarray


class Replicates(NamedTuple):
    """Answers drawn from the fit for the cells that were answered, (D, n) each.

    ``share`` is the replicated answer as a share; the others are log densities of the answer seen and of the replicate.
    """

    share: np.ndarray
    log_seen: np.ndarray
    log_replicate: np.ndarray


def take_draws(fit: Any, size: int) -> Draws:
    """At most ``size`` draws of a fit, evenly spaced over its chains."""
    posterior = fit.tree["posterior"].dataset
    chains, length = posterior.sizes["chain"], posterior.sizes["draw"]
    kept = np.unique(np.linspace(0, chains * length - 1, min(size, chains * length)).round().astype(int))

    def values(name: str) -> np.ndarray:
        array = posterior[name].transpose("chain", "draw", ...).to_numpy()
        return array.reshape(chains * length, *array.shape[2:])[kept].astype(np.float32)

    likelihood = fit.spec.likelihood
    theta = values("theta")
    dimension = np.zeros(fit.responses.n_items, int)
    if theta.ndim == 2:
        theta = theta[:, :, None]
    else:
        names = {str(name): k for k, name in enumerate(posterior["dimension"].to_numpy())}
        dimension = np.array([names[str(name)] for name in fit.tree["constant_data"]["item_dimension"].to_numpy()])
    logit_c = None
    if "c" in posterior:
        c = np.clip(values("c").astype(float), 1e-12, 1 - 1e-6)
        logit_c = (np.log(c) - np.log1p(-c)).astype(np.float32)
    parameters = []
    for name in LIKELIHOODS[likelihood].parameters:
        value = np.log(values("phi")) if name == "log_phi" else values(name)
        parameters.append(value[:, None] if value.ndim == 1 else value)
    return Draws(likelihood, theta, values("a"), values("b"), logit_c, tuple(parameters), dimension)


def shares(fit: Any) -> np.ndarray:
    """Answers as shares in [0, 1], squeezed where the fit squeezed them: float32 (n_obs,)."""
    return shares_under(fit.spec, fit.responses)


def shares_under(spec: ItemResponse, responses: Responses) -> np.ndarray:
    """Any answers as shares, squeezed where the spec says so: (n_obs,)."""
    n = spec.squeeze if spec.likelihood == "beta" else None
    share = responses.rate
    return share if n is None else (share * (n - 1) + 0.5) / n


def cell_blocks(cells: np.ndarray, draws: int) -> Iterator[tuple[np.ndarray, int]]:
    """(cells, how many are real): blocks of one length, the last one padded so that nothing compiles twice."""
    length = max(1, min(BLOCK // draws, len(cells)))
    for start in range(0, len(cells), length):
        yield _padded(cells[start : start + length], length)


def item_blocks(responses: Responses, draws: int) -> Iterator[tuple[np.ndarray, int, slice]]:
    """(cells, how many are real, items): blocks that hold all answers of their items, padded to one length."""
    order, starts = (np.asarray(part) for part in responses.by_item())
    most = int(np.diff(starts).max(initial=1))
    length = min(max(BLOCK // draws, most), max(1, len(order)))
    first = 0
    while first < responses.n_items:
        last = max(first + 1, int(np.searchsorted(starts, starts[first] + length, side="right")) - 1)
        block = order[starts[first] : starts[last]]
        if len(block):
            yield *_padded(block, length), slice(first, last)
        first = last


def _padded(cells: np.ndarray, length: int) -> tuple[np.ndarray, int]:
    return np.pad(cells, (0, length - len(cells)), mode="edge"), len(cells)


def cell_logits(draws: Draws, responses: Responses, cells: np.ndarray) -> tuple[Any, ...]:
    """(theta, a, b, logit_c, trials, parameters) of cells, ready for the compiled functions below."""
    subject, item = responses.subject_index[cells], responses.item_index[cells]
    trials = np.ones(1, np.float32) if responses.trials is None else responses.trials[cells].astype(np.float32)
    logit_c = None if draws.logit_c is None else draws.logit_c[:, item]
    parameters = tuple(p if p.shape[1] == 1 else p[:, item] for p in draws.parameters)
    return draws.ability(subject, item), draws.a[:, item], draws.b[:, item], logit_c, trials, parameters


def cell_moments(draws: Draws, responses: Responses, cells: np.ndarray) -> Moments:
    """Moments of the answers in cells under every draw."""
    return Moments(*map(np.asarray, _moments(draws.likelihood, *cell_logits(draws, responses, cells))))


def curve_means(draws: Draws, items: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """Mean answer to items at abilities ``grid``, under every draw: (D, items, grid)."""
    shape = (draws.size, len(items), len(grid))
    theta = np.broadcast_to(np.asarray(grid, np.float32), shape)
    logit_c = None if draws.logit_c is None else draws.logit_c[:, items, None]
    parameters = tuple(p[:, :, None] if p.shape[1] == 1 else p[:, items, None] for p in draws.parameters)
    trials = np.ones(1, np.float32)
    a, b = draws.a[:, items, None], draws.b[:, items, None]
    return np.asarray(_moments(draws.likelihood, theta, a, b, logit_c, trials, parameters)[0])


def _final_logit(eta: Any, logit_c: Any) -> Any:
    return eta if logit_c is None else with_guessing(eta, logit_c)


@partial(jax.jit, static_argnames="likelihood")
def _moments(
    likelihood: str, theta: Any, a: Any, b: Any, logit_c: Any, trials: Any, parameters: Any
) -> tuple[Any, ...]:
    kind = LIKELIHOODS[likelihood]

    def mean(eta: Any) -> Any:
        return kind.mean(_final_logit(eta, logit_c), trials, *parameters)

    eta = mean_logit(theta, a, b)
    mu, slope = jax.jvp(mean, (eta,), (jnp.ones_like(eta),))
    eta = _final_logit(eta, logit_c)
    variance = jnp.broadcast_to(kind.variance(eta, trials, *parameters), mu.shape)
    third = jnp.broadcast_to(third_moment(likelihood, eta, trials, *parameters), mu.shape)
    return mu, variance, third, slope


def third_moment(likelihood: str, eta: Any, trials: Any, *parameters: Any) -> Any:
    """Third central moment of the answer as a share, (D, n).

    With r = 1 / (1 + phi), h = (1 - r) / trials: m (1 - m) (1 - 2 m) (h + r) (h + 2 r) / (1 + r); r = 0 for binomial
    answers, h = 0 for Beta ones.
    """
    m, rest = jax.nn.sigmoid(eta), jax.nn.sigmoid(-eta)
    r = 1 / (1 + jnp.exp(parameters[0])) if parameters else 0.0
    h = (1 - r) / trials if likelihood in COUNTED else 0.0
    inside = m * rest * (rest - m) * (h + r) * (h + 2 * r) / (1 + r)
    if likelihood not in EDGED:
        return inside
    zero, one = edge_masses(likelihood, eta, *parameters)
    within = 1 - zero - one
    mean = one + within * m
    gap = m - mean
    return within * (inside + 3 * m * rest * r * gap + gap**3) - zero * mean**3 + one * (1 - mean) ** 3


def edge_masses(likelihood: str, eta: Any, *parameters: Any) -> tuple[Any, Any]:
    """Probabilities of an exact 0 and an exact 1."""
    kind = LIKELIHOODS[likelihood]
    zero, one = (kind.prepare(np.asarray(edge, np.float32), None) for edge in (0.0, 1.0))
    return jnp.exp(kind.log_density(zero, eta, *parameters)), jnp.exp(kind.log_density(one, eta, *parameters))


def cell_replicates(
    draws: Draws, responses: Responses, cells: np.ndarray, share: np.ndarray, rng: np.random.Generator
) -> Replicates:
    """One replicated answer a cell and draw; ``share`` (n,) are the answers seen in the cells."""
    likelihood = draws.likelihood
    *_, trials, parameters = cell_logits(draws, responses, cells)
    eta, mean, zero, one = cell_latents(draws, responses, cells)
    answer = sample_answers(likelihood, np.asarray(mean), zero, one, trials, parameters, rng)
    counts = None if responses.trials is None else np.broadcast_to(trials, answer.shape)
    prepare = LIKELIHOODS[likelihood].prepare
    seen = prepare(share if counts is None else np.round(share * trials), None if counts is None else trials)
    log_seen = log_density(likelihood, seen, eta, parameters)
    log_replicate = log_density(likelihood, prepare(answer, counts), eta, parameters)
    return Replicates(answer / trials, np.asarray(log_seen), np.asarray(log_replicate))


def cell_latents(draws: Draws, responses: Responses, cells: np.ndarray) -> tuple[Any, Any, Any, Any]:
    """Logit and mean of the answer before edges, (D, n), and the probabilities of an exact 0 and an exact 1."""
    *curve, _, parameters = cell_logits(draws, responses, cells)
    return _latent(draws.likelihood, *curve, parameters)


@partial(jax.jit, static_argnames="likelihood")
def _latent(likelihood: str, theta: Any, a: Any, b: Any, logit_c: Any, parameters: Any) -> tuple[Any, ...]:
    eta = _final_logit(mean_logit(theta, a, b), logit_c)
    zero, one = edge_masses(likelihood, eta, *parameters) if likelihood in EDGED else (0.0, 0.0)
    return eta, jax.nn.sigmoid(eta), zero, one


@partial(jax.jit, static_argnames="likelihood")
def log_density(likelihood: str, data: Any, eta: Any, parameters: Any) -> Any:
    """Of prepared answers at the logits of their means."""
    return LIKELIHOODS[likelihood].log_density(data, eta, *parameters)


def sample_answers(
    likelihood: str,
    mean: np.ndarray,
    zero: Any,
    one: Any,
    trials: np.ndarray,
    parameters: tuple[np.ndarray, ...],
    rng: np.random.Generator,
) -> np.ndarray:
    """Answers as ``Responses`` holds them. NumPy's samplers: some twenty times faster on a CPU than JAX's."""
    if likelihood == "bernoulli":
        return (rng.random(mean.shape, np.float32) < mean).astype(np.float32)
    if parameters:
        phi = np.exp(parameters[0].astype(float))
        mean = np.clip(mean, 1e-7, 1 - 1e-7)
        mean = np.clip(rng.beta(mean * phi, (1 - mean) * phi), 1e-300, np.nextafter(1.0, 0.0))
    if likelihood in COUNTED:
        return rng.binomial(trials.astype(int), mean).astype(np.float32)
    u = rng.random(mean.shape, np.float32)
    return np.where(u < zero, 0.0, np.where(u > 1 - np.asarray(one), 1.0, mean))
