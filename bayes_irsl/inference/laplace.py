"""Laplace approximation with the model's own structure: items integrated out, abilities and hyperparameters Gaussian.

The mode is that of p(theta, h | y) with the items integrated by quadrature, found by Newton's method; the ability
variances are learned from E[theta theta' | y] rather than from the abilities' mode, because the joint mode of a
hierarchical model collapses variances when data are scarce. Cost: one pass over the answers an iteration, plus a
dense matrix over abilities. Source: nested Laplace (Tierney & Kadane 1986; Rue, Martino & Chopin 2009).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.linalg import cho_factor, cho_solve

from bayes_irsl.cells import Problem
from bayes_irsl.errors import InputError
from bayes_irsl.inference.hyper_marginals import Marginal, marginals, uncertain_scales
from bayes_irsl.inference.item_integrals import (
    Rule,
    Totals,
    cross_rule,
    integrate,
    item_modes,
    tensor_rule,
)
from bayes_irsl.inference.laplace_state import FreeAbilities, LaplaceState, start
from bayes_irsl.inference.structure import Item, Structure, structure

# A block's largest array has about this many numbers: small enough for cache and memory, large enough for throughput.
BLOCK_SIZE = 3_000_000
MERGE_SIZE = 2_000_000
MAX_ITERATIONS = 60
# No ability or hyperparameter moves further in one step (all are on logarithmic or unit scales).
RADIUS = 1.5
# Shares of the items' covariance in the Hessian, tried until the step is short enough.
TAUS = (1.0, 0.9, 0.5, 0.0)
# Newton steps of the abilities at a point where a hyperparameter's marginal is evaluated, from its neighbour's.
PROFILE_STEPS = 3


@dataclass(frozen=True)
class Block:
    """A fixed-shape group of items: which kept items, how many are real, and their answers on the device."""

    items: np.ndarray
    real: np.ndarray
    width: int


@dataclass(frozen=True)
class LaplaceFit:
    """Result: the state, Cholesky factor of the precision of u = (free theta, h), and how it went."""

    structure: Structure
    state: LaplaceState
    rule: Rule
    all_nodes: bool
    blocks: list[Block]
    precision_cholesky: np.ndarray
    skewed: list[Marginal]
    log_evidence: float
    diagnostics: dict[str, Any] = field(default_factory=dict)


def laplace(problem: Problem, progress: Callable[[int, float], None] | None = None) -> LaplaceFit:
    """Fit; ``progress(iteration, newton_decrement)`` is called after each pass over the answers."""
    s = structure(problem)
    rule, all_nodes = choose_rule(problem, s)
    blocks = make_blocks(problem, s, rule)
    state = start(problem, s)
    n_u = state.theta.size + s.n_hyper
    free = FreeAbilities(s.n_dimensions, problem.n_subjects, not s.anchored)
    best: Point | None = None
    best_state = state
    # A step that did not pay sets a radius, steps that did widen it until it binds no more.
    steps, radius, direction = 12, np.inf, np.zeros(n_u)
    decrement, converged, iteration, current = np.inf, False, 0, state
    for iteration in range(1, MAX_ITERATIONS + 1):
        totals, current = sweep(problem, s, blocks, rule, all_nodes, current, steps)
        point = evaluate(problem, s, free, current, totals, radius)
        steps = 3
        length = float(np.abs(direction).max())
        if best is not None and _worse(point, best, decrement) and min(radius, length) > 1e-3:
            radius = 0.3 * min(radius, length, RADIUS)
        elif best is not None and not np.isfinite(point.objective):
            break
        else:
            if best is not None:
                radius = 2 * radius
            best, best_state = point, current
            direction, decrement = point.step()
            length = float(np.abs(direction).max())
            if progress is not None:
                progress(iteration, decrement)
            if decrement < 1e-3 + 1e-6 * n_u:
                converged = True
                break
        current = _moved(best_state, best.sd, direction * min(1.0, min(radius, RADIUS) / max(length, 1e-9)))
    if best is None or not np.isfinite(best.objective):
        raise InputError("the log density is not finite at the start: check the answers for extreme or mixed scales")
    diagnostics = {
        "converged": converged,
        "n_iterations": iteration,
        "newton_decrement": float(decrement),
        "quadrature_nodes": len(rule.z),
    }
    skewed = _skewed_hypers(problem, s, free, blocks, rule, all_nodes, best_state, best)
    diagnostics["skewed_hyperparameters"] = len(skewed)
    return LaplaceFit(s, best_state, rule, all_nodes, blocks, best.cholesky, skewed, best.objective, diagnostics)


def _worse(point: Point, best: Point, decrement: float) -> bool:
    """Whether a step did not pay: neither a higher objective nor a smaller Newton decrement.

    Objectives alone mislead: they are taken with the abilities' sd of the step before.
    """
    lower = not point.objective > best.objective - 0.5 - 1e-6 * abs(best.objective)
    return lower and not (np.isfinite(point.objective) and point.step()[1] < decrement)


def _skewed_hypers(problem, s, free, blocks, rule, all_nodes, state, point) -> list[Marginal]:
    """Marginals of hyperparameters that are too uncertain to be normal."""
    lower = point.cholesky[point.n_theta :, point.n_theta :]
    covariance = cho_solve((lower, True), np.eye(s.n_hyper))
    chosen = uncertain_scales(s.is_log_scale, covariance)
    if not chosen.size:
        return []

    def profile(h: np.ndarray, start: LaplaceState | None) -> tuple[float, LaplaceState]:
        begun = start or state
        current, value = LaplaceState(begun.theta, begun.sd, h, begun.x), -np.inf
        for _ in range(PROFILE_STEPS):
            totals, current = sweep(problem, s, blocks, rule, all_nodes, current, 4)
            here = evaluate(problem, s, free, current, totals)
            value = here.log_marginal
            if not np.isfinite(value):
                break
            m = here.n_theta
            step = free.expand(cho_solve((here.cholesky[:m, :m], True), here.gradient[:m]))
            current = LaplaceState(current.theta + step.reshape(current.theta.shape), here.sd, h, current.x)
        return value, current

    return marginals(profile, state.h, chosen, covariance)


def choose_rule(problem: Problem, s: Structure) -> tuple[Rule, bool]:
    """Many nodes where items have few answers (and nodes are cheap), few where their posteriors are nearly normal."""
    most, cells = int(problem.counts.max()), float(problem.counts.sum())
    for n in (7, 5, 3):
        if most <= {7: 60, 5: 150, 3: 600}[n] and cells * n**s.n_item < 6e7:
            return tensor_rule(n, s.n_item), problem.n_subjects * s.n_dimensions <= 400
    return cross_rule(s.n_item), False


def make_blocks(problem: Problem, s: Structure, rule: Rule) -> list[Block]:
    """Items sorted by number of answers and cut into few different shapes, the last of each padded by repetition.

    Every shape costs a compilation, so a new one is begun only where padding would waste real memory.
    """
    order = np.argsort(-problem.counts, kind="stable")
    sorted_counts = problem.counts[order]
    n_u = problem.n_subjects * s.n_dimensions + s.n_hyper
    blocks, at = [], 0
    while at < len(order):
        width = problem.width(int(sorted_counts[at]))
        fits = 2 * sorted_counts[at:] > width
        if width * np.sum(~fits) < MERGE_SIZE:
            fits[:] = True
        group = order[at : at + int(fits.sum())]
        size = int(np.clip(BLOCK_SIZE // (len(rule.z) * (n_u + 4 * width)), 1, len(group)))
        size = -(-len(group) // -(-len(group) // size))
        for part in range(0, len(group), size):
            items = group[part : part + size]
            real = np.zeros(size, np.float32)
            real[: len(items)] = 1
            blocks.append(Block(np.resize(items, size), real, width))
        at += len(group)
    return blocks


def sweep(problem, s, blocks, rule, all_nodes, state, steps) -> tuple[Totals, LaplaceState]:
    """One pass over the answers: items' modes, then totals. Sums across blocks are kept in float64."""
    theta, h = state.abilities(), jnp.asarray(state.h, jnp.float32)
    x = state.x.copy()
    sums: list[np.ndarray] | None = None
    for block in blocks:
        cells, data = problem.cells(block.items, block.width)
        item = Item.batch(cells, data)
        modes = item_modes(s, jnp.asarray(x[block.items]), theta, h, cells, item, jnp.int32(steps))
        totals, _, _ = integrate(s, modes, theta, h, cells, item, jnp.asarray(block.real), rule, all_nodes)
        x[block.items] = modes
        parts = [
            np.asarray(t, np.float64).sum(0) if k == 0 else np.asarray(t, np.float64) for k, t in enumerate(totals)
        ]
        sums = parts if sums is None else [a + b for a, b in zip(sums, parts, strict=True)]
    assert sums is not None
    return Totals(*sums), LaplaceState(state.theta, state.sd, state.h, x)


@dataclass(frozen=True)
class Point:
    """Objective, gradient and precision in free coordinates at one place; log_marginal has abilities integrated out."""

    objective: float
    log_marginal: float
    gradient: np.ndarray
    cholesky: np.ndarray
    free: FreeAbilities
    n_theta: int
    sd: np.ndarray

    def step(self) -> tuple[np.ndarray, float]:
        """Newton step in (theta, h) and the Newton decrement."""
        step = cho_solve((self.cholesky, True), self.gradient)
        full = np.concatenate([self.free.expand(step[: self.n_theta]), step[self.n_theta :]])
        return full, float(step @ self.gradient)


def evaluate(
    problem: Problem,
    s: Structure,
    free: FreeAbilities,
    state: LaplaceState,
    totals: Totals,
    radius: float = np.inf,
) -> Point:
    """Assemble objective, gradient and precision from a sweep's totals and the priors.

    Where the Newton step would move something by more than ``radius``, the items' covariance (Louis' correction) is
    taken in by less: without it the step is that of an EM algorithm, which is short and climbs.
    """
    n = state.theta.size
    h = jnp.asarray(state.h, jnp.float32)
    tril = np.asarray(s.ability_tril(h), np.float64)
    inverse = np.linalg.inv(tril @ tril.T)
    prior_block = np.kron(inverse, np.eye(problem.n_subjects))
    h_theta = np.diag(totals.curvature_theta) - prior_block
    mean = np.asarray(s.ability_mean(h), np.float64)[:, None]
    gradient_theta = totals.gradient_theta - (inverse @ (state.theta - mean)).ravel()
    m = free.keep.size
    conditional = np.linalg.inv(_conditional_precision(-totals.curvature_theta.reshape(state.theta.shape), inverse))
    moment = state.theta @ state.theta.T + conditional.sum(0)
    sd = np.sqrt(np.einsum("sdd->ds", conditional))
    n_free = float(free.keep.size // free.d)
    g_h, h_h, cross_prior = (np.asarray(a, np.float64) for a in _hyper_terms(s, h, moment, state.theta, n_free))
    gradient = np.concatenate([free.restrict(gradient_theta), totals.gradient_h + g_h])
    cholesky = None
    for tau in TAUS:
        h_tt = free.restrict(free.restrict(-(h_theta + tau * totals.louis[:n, :n])).T)
        cross = -free.restrict(totals.cross + cross_prior + tau * totals.louis[:n, n:])
        h_hh = -(totals.hessian_h + h_h + tau * totals.louis[n:, n:])
        cholesky = _positive(h_tt, cross, h_hh)
        if cholesky is not None and np.abs(cho_solve((cholesky, True), gradient)).max() <= radius:
            break
    if cholesky is None:
        # A subject's answers curve the wrong way, as overdispersed ones can: its prior alone, and a step that climbs.
        clipped = np.diag(np.minimum(totals.curvature_theta, 0)) - prior_block
        cholesky = _positive(free.restrict(free.restrict(-clipped).T), 0 * cross, h_hh)
    if cholesky is None:
        return Point(-np.inf, -np.inf, np.zeros(1), np.eye(1), free, n, state.sd)
    total = jnp.asarray(state.theta.sum(1), jnp.float32)
    bound = s.log_prior_hyper(h) + s.log_prior_theta(h, jnp.asarray(state.moment, jnp.float32), total, n_free)
    value = float(totals.log_integral) + float(bound)
    objective, log_marginal = value + np.log(state.sd).sum(), value - np.log(np.diag(cholesky)[:m]).sum()
    return Point(objective, log_marginal, gradient, cholesky, free, m, sd)


def _positive(h_tt: np.ndarray, cross: np.ndarray, h_hh: np.ndarray) -> np.ndarray | None:
    """Cholesky factor of the precision, its hyperparameter block strengthened as far as needed; None if hopeless."""
    if _cholesky(h_tt) is None:
        return None
    for ridge in (0.0, 1e-3, 0.1, 1.0, 10.0):
        repaired = h_hh + ridge * np.diag(np.abs(np.diag(h_hh)) + 1.0)
        cholesky = _cholesky(np.block([[h_tt, cross], [cross.T, repaired]]))
        if cholesky is not None:
            return cholesky
    return _cholesky(np.block([[h_tt, 0 * cross], [0 * cross.T, np.diag(np.abs(np.diag(h_hh)) + 1.0)]]))


def _conditional_precision(curvature: np.ndarray, inverse: np.ndarray) -> np.ndarray:
    """Precision (S, D, D) of each subject's abilities given items and hyperparameters."""
    diagonal = np.einsum("ds,de->sde", np.maximum(curvature, 0), np.eye(len(inverse)))
    return diagonal + inverse


def _hyper_terms(s: Structure, h: Any, moment: np.ndarray, theta: np.ndarray, n: float) -> tuple[Any, ...]:
    """Gradient and Hessian in h of log p(h) + E log p(theta | h), and the latter's cross derivative."""
    return _hyper_terms_jit(s, h, jnp.asarray(moment, jnp.float32), jnp.asarray(theta, jnp.float32), jnp.float32(n))


def _expected_prior(s: Structure, h: Any, moment: Any, total: Any, n: Any) -> Any:
    return s.log_prior_hyper(h) + s.log_prior_theta(h, moment, total, n)


def _cross(s: Structure, h: Any, theta: Any) -> Any:
    def gradient(h):
        tril = s.ability_tril(h)
        return -jax.scipy.linalg.cho_solve((tril, True), theta - s.ability_mean(h)[:, None]).ravel()

    return jax.jacfwd(gradient)(h)


def _hyper_terms_impl(s: Structure, h: Any, moment: Any, theta: Any, n: Any) -> tuple[Any, ...]:
    total = theta.sum(1)
    g = jax.grad(_expected_prior, 1)(s, h, moment, total, n)
    hessian = jax.hessian(_expected_prior, 1)(s, h, moment, total, n)
    return g, hessian, _cross(s, h, theta)


_hyper_terms_jit = jax.jit(_hyper_terms_impl, static_argnames=("s",))


def _cholesky(matrix: np.ndarray) -> np.ndarray | None:
    try:
        return np.tril(cho_factor(matrix, lower=True)[0])
    except np.linalg.LinAlgError:
        return None


def _moved(state: LaplaceState, sd: np.ndarray, step: np.ndarray) -> LaplaceState:
    n = state.theta.size
    return LaplaceState(state.theta + step[:n].reshape(state.theta.shape), sd, state.h + step[n:], state.x)
