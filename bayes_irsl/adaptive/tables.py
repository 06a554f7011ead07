"""A bank as tables over a grid of abilities: mean and variance of every answer, averaged over the draws of its items.

Answers y (shares of right ones) enter a likelihood by their mean mu and variance v alone (quasi-likelihood, Wedderburn
1974): with n = mu (1 - mu) / v, the samples that an answer is worth,

    d log L / d theta = n d/dtheta (y log mu + (1 - y) log(1 - mu)).

For 0/1 answers that is their likelihood. For counts and probabilities a subject's mean over questions comes out right
where the form of the scatter does not hold for it, which a Beta density, led by log y and log(1 - y), does not give.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from bayes_irsl.answers import LIKELIHOODS
from bayes_irsl.bank import ItemBank
from bayes_irsl.quadrature import Curves, bucket, column, device_curves, logits

Array = Any
Floats = npt.NDArray[np.floating]

SPACING, REACH = 0.1, 10.0  # of nodes, in logits and at most; of the grid beyond prior means, in their sd
_NODES = (61, 401)  # fewest and most nodes
_CHUNK = 32
_LEAST = 1e-6  # of a mean and of what it lacks to one


class Tables(NamedTuple):
    """Curves of J items on G equidistant abilities ``nodes``: ``mean``, ``variance`` (J, G) of answers as shares.

    The variance holds the scatter of an answer, what the bank does not know of its item, and what the ``residual``
    (r, s) adds: r m + s^2 m^2, m = mu (1 - mu).
    """

    nodes: Floats
    mean: Floats
    variance: Floats
    residual: tuple[float, float]


def grid(mean: Any, sd: Any) -> Floats:
    """Equidistant abilities that span all prior means +- REACH sd, widely enough for unusual subjects."""
    low, high = np.min(np.subtract(mean, REACH * np.asarray(sd))), np.max(np.add(mean, REACH * np.asarray(sd)))
    return np.linspace(low, high, int(np.clip(np.ceil((high - low) / SPACING) + 1, *_NODES)))


def tables(
    bank: ItemBank, nodes: Floats, trials: int | None = None, residual: tuple[float, float] = (0.0, 0.0)
) -> Tables:
    """Tables of a bank's items; kept with the bank.

    Parameters
    ----------
    bank : ItemBank
    nodes : (G,)
    trials : int, optional
        Samples behind a new answer; the bank's own number by item where it is not given.
    residual : (r, s)
        Further variance r m + s^2 m^2 of an answer, m = mu (1 - mu); not of 0/1 answers, which have none.
    """
    key = ("tables", trials, residual, nodes.tobytes())
    if key not in bank.memo:
        n = np.full(bank.n_items, trials) if trials is not None else np.maximum(column(bank, "trials"), 1)
        bank.memo[key] = Tables(nodes, *of_items(bank, np.arange(bank.n_items), n, nodes, residual), residual)
    return bank.memo[key]


def answer_curve(bank: ItemBank, table: Tables, item: int, share: float, trials: int | None) -> Floats:
    """Log quasi-likelihood (G,) of one answer, largest value 0."""
    mean, variance = table.mean[item], table.variance[item]
    if trials is not None and trials != int(bank.items["trials"].iloc[item]):
        mean, variance = (
            x[0] for x in of_items(bank, np.array([item]), np.array([trials]), table.nodes, table.residual)
        )
    found = quasi_likelihood(mean, variance, share)
    return found - found.max()


def quasi_likelihood(mean: Floats, variance: Floats, share: Any) -> Floats:
    """Log quasi-likelihood (..., G) of answers ``share`` (...), means and variances (..., G); 0 at the first node."""
    mean = np.clip(np.asarray(mean, float), _LEAST, 1 - _LEAST)
    worth = mean * (1 - mean) / np.maximum(np.asarray(variance, float), 1e-12)
    worth = (worth[..., 1:] + worth[..., :-1]) / 2
    share = np.asarray(share, float)[..., None]
    steps = worth * (share * np.diff(np.log(mean)) + (1 - share) * np.diff(np.log1p(-mean)))
    return np.concatenate([np.zeros((*steps.shape[:-1], 1)), np.cumsum(steps, -1)], -1)


def of_items(
    bank: ItemBank, items: np.ndarray, trials: np.ndarray, nodes: Floats, residual: tuple[float, float] = (0.0, 0.0)
) -> tuple[Floats, Floats]:
    """Means and variances (n, G) of answers to the items at positions (n,), with so many trials (n,)."""
    size = bucket(len(items), 2, least=_CHUNK)
    fill = np.concatenate([np.arange(len(items)), np.zeros(size - len(items), int)])
    at = jnp.asarray(items[fill].reshape(-1, _CHUNK), jnp.int32)
    n = jnp.asarray(trials[fill].reshape(-1, _CHUNK), jnp.float32)
    found = _sweep(device_curves(bank), at, n, jnp.asarray(nodes, jnp.float32), bank.likelihood)
    mean, variance = (np.asarray(x).reshape(size, -1)[: len(items)] for x in found)
    if bank.likelihood != "bernoulli":
        variance = variance + further(mean, residual)
    return mean, variance


def further(mean: Floats, residual: tuple[float, float]) -> Floats:
    """Variance r m + s^2 m^2, m = mu (1 - mu)."""
    m = mean * (1 - mean)
    return residual[0] * m + residual[1] ** 2 * m**2


@partial(jax.jit, static_argnames=("name",))
def _sweep(curves: Curves, item: Array, trials: Array, nodes: Array, name: str) -> tuple[Array, Array]:
    """Means and variances (n, CHUNK, G), averaged over draws, chunk by chunk."""
    kind = LIKELIHOODS[name]

    def one(piece: tuple[Array, Array]) -> tuple[Array, Array]:
        item, trials = piece
        drawn = jax.tree.map(lambda x: x[item], curves)
        eta = logits(drawn, nodes[:, None])
        rest = tuple(p[:, None] for p in drawn.parameters)
        m = kind.mean(eta, trials[:, None, None], *rest)
        mean = m.mean(-1)
        if name == "bernoulli":
            return mean, mean * (1 - mean)
        return mean, kind.variance(eta, trials[:, None, None], *rest).mean(-1) + m.var(-1)

    return jax.lax.map(one, (item, trials))
