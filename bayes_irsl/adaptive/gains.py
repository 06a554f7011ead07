"""How much a question is expected to shrink the variance of a target: the variance of the target's posterior mean.

By the law of total variance E[Var(T | y)] = Var(T) - Var(E[T | y]). For a question on the ability u_k, answered with
mean mu(u_k) and variance v(u_k),

    Var(E[T | y]) >= Cov(T, y)^2 / Var(y),   Cov(T, y) = Cov(A_k, mu),   Var(y) = E[v] + Var(mu),

A_k(x) = E[T | u_k = x], all over the marginal of u_k by quadrature. For 0/1 answers the two are equal; otherwise it is
what the best linear use of the answer gives. The target is a sum of functions of single abilities, T = sum_k g_k(u_k);
other abilities follow u_k as in a normal, their g taken to second order.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from bayes_irsl.adaptive.beliefs import Posterior, on_grid

Array = Any
Floats = npt.NDArray[np.floating]

_LEAST = 1e-12


class Believed(NamedTuple):
    """Mean and variance of the target; on the grid, every answered ability's weights (K, G) and these times
    A_k less the mean."""

    mean: float
    variance: float
    weight: Floats
    pull: Floats


def believed(posterior: Posterior, nodes: Floats, values: Floats) -> Believed:
    """What is believed of sum_k g_k(u_k), values (C, G) being g on the nodes; to be run under x64."""
    k = posterior.site.shape[-1]
    mean, variance, weight, pull = _believed(posterior, jnp.asarray(nodes), jnp.asarray(values), k)
    return Believed(float(mean), float(variance), np.asarray(weight, np.float32), np.asarray(pull, np.float32))


def several_believed(posterior: Posterior, nodes: Floats, values: Floats) -> list[Believed]:
    """The same for S subjects; leading axes S."""
    k = posterior.site.shape[-1]
    parts = [np.asarray(x) for x in _several(posterior, jnp.asarray(nodes), jnp.asarray(values), k)]
    return [
        Believed(float(m), float(v), w.astype(np.float32), p.astype(np.float32))
        for m, v, w, p in zip(*parts, strict=True)
    ]


def _moments(posterior: Posterior, nodes: Array, values: Array, k: int) -> tuple[Array, ...]:
    def linear(row: Array, at: Array) -> Array:
        return jnp.interp(at, nodes, row)

    def one(mean: Array, covariance: Array, at: Array, weight: Array) -> tuple[Array, ...]:
        g = jax.vmap(linear)(values, at)
        own = (weight * at).sum(1, keepdims=True)
        variance = jnp.maximum((weight * (at - own) ** 2).sum(1, keepdims=True), _LEAST)
        z = (at - own) / jnp.sqrt(variance)
        level = (weight * g).sum(1)
        slope = (weight * g * z).sum(1) / jnp.sqrt(variance[:, 0])
        bend = (weight * g * (z**2 - 1)).sum(1) / (2 * variance[:, 0])
        spread = (weight * (g - level[:, None]) ** 2).sum(1)
        total = level.sum()
        off = covariance * (1 - jnp.eye(len(mean)))
        both = slope @ off @ slope + 2 * bend @ off**2 @ bend
        # A_k(x): the ability's own part, and what the others follow.
        share = off / (jnp.diagonal(covariance) + _LEAST)
        away = at - own
        follow = (slope @ share)[:, None] * away + (bend @ share**2)[:, None] * (away**2 - variance)
        mean_given = g - level[:, None] + follow
        return total, spread.sum() + both, mean_given

    total, within, mean_given = jax.vmap(one)(posterior.mean, posterior.covariance, posterior.at, posterior.weight)
    q = jnp.exp(posterior.log_weight)
    mean = q @ total
    variance = q @ (within + (total - mean) ** 2)
    away = mean_given + (total - mean)[:, None, None]
    weight = q[:, None, None] * posterior.weight
    size = nodes.shape[0]
    moved = [on_grid(nodes, posterior.at[:, :k], w[:, :k], size).sum(0) for w in (weight, weight * away)]
    return mean, variance, *moved


_believed = jax.jit(_moments, static_argnums=3)
_several = jax.jit(
    lambda posterior, nodes, values, k: jax.vmap(lambda p, v: _moments(p, nodes, v, k))(posterior, values),
    static_argnums=3,
)


class Candidates(NamedTuple):
    """Questions sorted by ability: mean, second moment of answers (J, G); starts (K + 1,) of every ability."""

    mean: Floats
    square: Floats
    starts: np.ndarray


def gains_of_all(questions: Candidates, beliefs: list[Believed]) -> Floats:
    """Expected reductions (S, J) for S subjects, answers themselves not counted as parts of the target."""
    weight = np.stack([b.weight for b in beliefs])
    pull = np.stack([b.pull for b in beliefs])
    out = np.zeros((len(beliefs), len(questions.mean)), np.float32)
    for k in range(len(questions.starts) - 1):
        rows = slice(questions.starts[k], questions.starts[k + 1])
        if rows.start == rows.stop:
            continue
        mean, n = questions.mean[rows], len(beliefs)
        both = mean @ np.concatenate([weight[:, k], pull[:, k]]).T
        first, pulled = both[:, :n], both[:, n:]
        whole = np.maximum(weight[:, k].sum(1), _LEAST)
        second = first if questions.square is questions.mean else questions.square[rows] @ weight[:, k].T
        moved = pulled - first * (pull[:, k].sum(1) / whole)
        out[:, rows] = (moved**2 / np.maximum(second - first**2 / whole, _LEAST)).T
    return out


def gains(questions: Candidates, belief: Believed, own: Floats | None = None) -> Floats:
    """Expected reduction (J,) of the target's variance by the answer to each question.

    ``own`` (J,): weight with which the answer itself is part of the target, as in the accuracy on the bank's questions.
    """
    out = np.zeros(len(questions.mean))
    for k in range(len(questions.starts) - 1):
        rows = slice(questions.starts[k], questions.starts[k + 1])
        if rows.start == rows.stop:
            continue
        weight, pull = belief.weight[k], belief.pull[k]
        mean = questions.mean[rows]
        first, pulled = (mean @ np.stack([weight, pull], 1)).T
        # Sums to what the marginal holds within the grid.
        whole = max(float(weight.sum()), _LEAST)
        both = pulled - first * float(pull.sum()) / whole
        second = first if questions.square is questions.mean else questions.square[rows] @ weight
        variance = np.maximum(second - first**2 / whole, _LEAST)
        if own is not None:
            # What the question itself adds is no longer to be guessed from the ability, but known.
            expected = np.maximum((mean * mean) @ weight - first**2 / whole, 0.0)
            both = both + own[rows] * (variance - expected)
        out[rows] = both**2 / variance
    return out
