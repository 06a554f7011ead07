"""Items integrated out: for a block of items, log integral p(y_j | x, theta, h) p(x | h) dx and its derivatives.

Adaptive Gauss-Hermite quadrature around each item's mode (Naylor & Smith 1982; Pinheiro & Bates 1995). First
derivatives follow Fisher's identity, second ones Louis' (1982): expected complete-data derivative, and covariance of
the complete-data score under the item's posterior.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bayes_irsl.cells import Cells
from bayes_irsl.inference.structure import Item, Structure

Array = Any


class Rule(NamedTuple):
    """Quadrature nodes z (Q, d) and log weights (Q,) for integrals against the standard normal density."""

    z: Array
    log_weight: Array


def tensor_rule(n: int, d: int) -> Rule:
    """Product Gauss-Hermite rule with n nodes a dimension."""
    node, weight = np.polynomial.hermite_e.hermegauss(n)
    z = np.stack(np.meshgrid(*[node] * d, indexing="ij"), -1).reshape(-1, d)
    w = np.prod(np.stack(np.meshgrid(*[weight / weight.sum()] * d, indexing="ij"), -1).reshape(-1, d), -1)
    return Rule(z.astype(np.float32), np.log(w).astype(np.float32))


def cross_rule(d: int) -> Rule:
    """Nodes +-sqrt(d) along the axes, exact to degree 3: enough where the posterior is close to normal."""
    z = np.concatenate([np.eye(d), -np.eye(d)]) * np.sqrt(d)
    return Rule(z.astype(np.float32), np.full(2 * d, -np.log(2 * d), np.float32))


class Abilities(NamedTuple):
    """Abilities and their standard deviations, (S,) or (S, D); ``sd`` None where it is too small to matter.

    Items see the likelihood averaged over an ability's uncertainty (two nodes, exact to third order): with the mode
    alone, items would be fitted to abilities that have soaked up noise, and discriminations would come out too high.
    """

    mean: Array
    sd: Array | None

    def at(self, cells: Cells, n_items: int) -> Abilities:
        """In the places of cells: (J, M)."""

        def placed(values):
            taken = cells.take(values)
            return jnp.broadcast_to(taken, (n_items, taken.shape[1]))

        return Abilities(placed(self.mean), None if self.sd is None else placed(self.sd))

    def expected(self, function: Any, x: Array, theta: Array, *rest: Any) -> Array:
        """Average of function(x, theta, ...) over the uncertainty, centred at ``theta``."""
        if self.sd is None:
            return function(x, theta, *rest)
        return 0.5 * (function(x, theta + self.sd, *rest) + function(x, theta - self.sd, *rest))


class ItemPosterior(NamedTuple):
    """Approximate posterior of an item given theta and h: mode, scale and the first moments in scaled coordinates.

    x = mode + scale @ z, with E z = shift and Cov z = spread.
    """

    mode: Array
    scale: Array
    shift: Array
    spread: Array


class Totals(NamedTuple):
    """Sums over items of the log integrals and their derivatives in u = (theta flattened, h).

    ``louis`` is the sum of score covariances (n_u, n_u); the Hessian is complete-data Hessian plus louis.
    """

    log_integral: Array
    gradient_theta: Array
    curvature_theta: Array
    gradient_h: Array
    hessian_h: Array
    cross: Array
    louis: Array


@partial(jax.jit, static_argnames=("s",))
def item_modes(s: Structure, x: Array, theta: Abilities, h: Array, cells: Cells, item: Item, steps: Array) -> Array:
    """Modes of the items' parameters (J, d) by damped Newton steps from x."""
    places = theta.at(cells, x.shape[0])
    answer_h = h[h.shape[0] - s.n_answer :]
    fractions = jnp.array([1.0, 0.5, 0.2, 0.05])

    def one(x, t, item):
        def objective(x):
            return t.expected(s.log_likelihood_item, x, t.mean, answer_h, item) + s.log_prior_item(x, h, item)

        def step(_, x):
            gradient, hessian = jax.grad(objective)(x), jax.hessian(objective)(x)
            direction = _ascent(gradient, hessian, s.prior_moments(h, item)[1])
            tried = x + fractions[:, None] * direction
            value = jax.vmap(objective)(tried)
            best = jnp.argmax(jnp.where(jnp.isfinite(value), value, -jnp.inf))
            return jnp.where(value[best] >= objective(x), tried[best], x)

        return jax.lax.fori_loop(0, steps, step, x)

    return jax.vmap(one)(x, places, item)


@partial(jax.jit, static_argnames=("s", "all_nodes"))
def integrate(
    s: Structure,
    x: Array,
    theta: Abilities,
    h: Array,
    cells: Cells,
    item: Item,
    weight: Array,
    rule: Rule,
    all_nodes: bool,
) -> tuple[Totals, ItemPosterior, Array]:
    """Totals over a block of items at their modes x, the items' posteriors, and their score factors (J, d, n_u).

    ``weight`` (J,) is 1 for real items and 0 for padding. With ``all_nodes`` the score covariance uses every node,
    otherwise its part that is linear in the item's parameters.
    """
    places = theta.at(cells, x.shape[0])
    answer_h = h[h.shape[0] - s.n_answer :]
    one = partial(_integrate_one, s, h, answer_h, rule)
    value, posterior, p, scores = jax.vmap(one)(x, places, item)

    def expected(a):
        return jnp.einsum("jq,jq...->j...", p, a) * weight.reshape(-1, *[1] * (a.ndim - 2))

    g_theta, h_theta, cross, g_h, h_h = (expected(a) for a in scores)
    to_u = partial(_spread_over_subjects, cells=cells)
    score = jnp.concatenate([to_u(scores[0]), scores[3]], -1)
    centred = (score - jnp.einsum("jq,jqu->ju", p, score)[:, None]) * weight[:, None, None]
    z = rule.z - posterior.shift[:, None]
    linear = jnp.einsum("jq,jqd,jqu->jdu", p, z, centred)
    if all_nodes:
        factor = jnp.sqrt(p)[..., None] * centred
    else:
        lower = jnp.linalg.cholesky(posterior.spread)
        factor = jax.scipy.linalg.solve_triangular(lower, linear, lower=True)
    factor = factor.reshape(-1, factor.shape[-1])
    totals = Totals(
        value * weight,
        to_u(g_theta).sum(0),
        to_u(h_theta).sum(0),
        g_h.sum(0),
        h_h.sum(0),
        to_u(cross.swapaxes(1, 2)).sum(0).T,
        factor.T @ factor,
    )
    return totals, posterior, linear


def _integrate_one(s: Structure, h: Array, answer_h: Array, rule: Rule, x: Array, places: Abilities, item: Item):
    """log integral of one item, its posterior, node weights, and complete-data derivatives at the nodes."""
    n_prior = h.shape[0] - s.n_answer
    theta = places.mean

    def likelihood(x, t, w):
        return places.expected(s.log_likelihood_item, x, t, w, item)

    def joint(x):
        return likelihood(x, theta, answer_h) + s.log_prior_item(x, h, item)

    precision = positive(-jax.hessian(joint)(x), s.prior_moments(h, item)[1])
    scale = jnp.linalg.inv(jnp.linalg.cholesky(precision)).T
    nodes = x + rule.z @ scale.T

    def at_node(x):
        value, (g_t, g_w) = jax.value_and_grad(likelihood, (1, 2))(x, theta, answer_h)
        gradient = jax.grad(likelihood, (1, 2))
        _, (h_t, _) = jax.jvp(lambda t: gradient(x, t, answer_h), (theta,), (jnp.ones_like(theta),))

        def along(direction):
            return jax.jvp(lambda w: gradient(x, theta, w), (answer_h,), (direction,))[1]

        h_tw, h_ww = (
            jax.vmap(along)(jnp.eye(s.n_answer)) if s.n_answer else (jnp.zeros((0, theta.size)), jnp.zeros((0, 0)))
        )
        prior, g_h = jax.value_and_grad(s.log_prior_item, 1)(x, h, item)
        h_h = jax.hessian(s.log_prior_item, 1)(x, h, item)
        g_h = g_h.at[n_prior:].add(g_w)
        h_h = h_h.at[n_prior:, n_prior:].add(h_ww)
        cross = jnp.zeros((theta.size, h.size)).at[:, n_prior:].set(h_tw.T)
        return value + prior, (g_t, h_t, cross, g_h, h_h)

    values, scores = jax.vmap(at_node)(nodes)
    log_terms = values + rule.log_weight + 0.5 * jnp.sum(rule.z**2, -1)
    p = jax.nn.softmax(log_terms)
    log_det = jnp.sum(jnp.log(jnp.diagonal(jnp.linalg.cholesky(precision))))
    total = jax.nn.logsumexp(log_terms) - log_det + 0.5 * x.size * jnp.log(2 * jnp.pi)
    shift = p @ rule.z
    spread = jnp.einsum("q,qd,qe->de", p, rule.z - shift, rule.z - shift)
    return total, ItemPosterior(x, scale, shift, positive(spread, 0.05 * jnp.eye(x.size))), p, scores


def _spread_over_subjects(values: Array, cells: Cells) -> Array:
    """(J, ..., M) at the places -> (J, ..., D * S) at the abilities that they belong to."""
    s, d = cells.n_subjects, cells.n_dimensions
    inner = [1] * (values.ndim - 2)
    if cells.subject is None and d == 1:
        return values
    if cells.subject is None:
        one_hot = jax.nn.one_hot(cells.dimension, d, dtype=values.dtype).reshape(-1, *inner, d, 1)
        return (values[..., None, :] * one_hot).reshape(*values.shape[:-1], d * s)
    index = cells.subject + s * cells.dimension[:, None]
    return jax.vmap(lambda v, i: jnp.zeros((*v.shape[:-1], d * s), v.dtype).at[..., i].add(v))(values, index)


def positive(matrix: Array, floor: Array) -> Array:
    """The matrix where it is clearly positive definite, else its absolute eigenvalues plus the floor."""
    value, vector = jnp.linalg.eigh(matrix)
    repaired = (vector * jnp.abs(value)) @ vector.T + floor
    least = 0.1 * jnp.min(jnp.diagonal(floor))
    return jnp.where(value[0] > least, matrix, repaired)


def _ascent(gradient: Array, hessian: Array, floor: Array) -> Array:
    direction = jnp.linalg.solve(positive(-hessian, floor), gradient)
    return direction * jnp.minimum(1.0, 3.0 / jnp.maximum(jnp.max(jnp.abs(direction)), 1e-6))
