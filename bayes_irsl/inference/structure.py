"""The model as a sum over items: what Laplace needs to know of an item response spec, as pure functions.

Unknowns are abilities theta (D, S), hyperparameters h (a flat vector on the unconstrained scale) and, per item, a short
vector x of item parameters. Given theta and h the items are independent:

    log p(theta, h, x | y) = log p(h) + log p(theta | h) + sum_j [log p(x_j | h) + sum_s log p(y_sj | x_j, theta_s, h)]

Here the scale is fixed by the prior of log a alone (mean zero), which keeps items independent; draws are put on the
bank's scale afterwards, so this is the model of ``models/item_response.py`` up to that convention. Anchored, the scale
is that of the known items, and the abilities' mean and the log discriminations' are learned.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import distributions as dist
from numpyro.distributions.transforms import CorrCholeskyTransform

from bayes_irsl.answers import LIKELIHOODS
from bayes_irsl.cells import Anchor, Cells, Problem
from bayes_irsl.curves import with_guessing
from bayes_irsl.models.item_response import MEAN_THETA, PRIOR_OF
from bayes_irsl.priors import Normal, Prior
from bayes_irsl.spec import ItemResponse

Array = Any


@dataclass(frozen=True)
class Structure:
    """Static description: hashable, so that compiled functions are shared by fits of the same shape.

    Attributes
    ----------
    item_names : parameters of an item, in order.
    hypers : (name, length, prior or number) of the hyperparameters; those with a number are not in h.
    answer_hypers : names of those that enter the likelihood itself; they come last in h.
    """

    likelihood: str
    dependence: str
    n_dimensions: int
    item_names: tuple[str, ...]
    hypers: tuple[tuple[str, int, Prior | float], ...]
    answer_hypers: tuple[str, ...]
    sd_mean_log_a: float
    sd_logit_guessing: float
    lkj: float
    anchored: bool = False

    @property
    def n_item(self) -> int:
        return len(self.item_names)

    @property
    def free(self) -> tuple[tuple[str, int, Prior], ...]:
        return tuple((name, size, prior) for name, size, prior in self.hypers if isinstance(prior, Prior))

    @property
    def n_hyper(self) -> int:
        return sum(size for _, size, _ in self.free)

    @property
    def n_answer(self) -> int:
        """How many of the last entries of h enter the likelihood."""
        return sum(size for name, size, _ in self.free if name in self.answer_hypers)

    def start(self) -> np.ndarray:
        """Central values of h."""
        return np.concatenate([np.full(size, prior.centre) for _, size, prior in self.free] or [np.zeros(0)])

    def values(self, h: Array) -> dict[str, Array]:
        """Hyperparameters by name on their natural scale; h (..., n_hyper) -> each (..., size)."""
        out, at = {}, 0
        for name, size, prior in self.hypers:
            if isinstance(prior, Prior):
                part = h[..., at : at + size]
                out[name] = jnp.exp(part) if prior.positive else part
                at += size
            else:
                out[name] = jnp.full((*h.shape[:-1], size), prior)
        return out

    def log_prior_hyper(self, h: Array) -> Array:
        """log p(h), Jacobians included."""
        total, at = jnp.zeros(()), 0
        for name, size, prior in self.free:
            part = h[at : at + size]
            if name == "correlation":
                transform = CorrCholeskyTransform()
                tril = transform(part)
                total += dist.LKJCholesky(self.n_dimensions, self.lkj).log_prob(tril)
                total += transform.log_abs_det_jacobian(part, tril)
            else:
                total += prior.log_density_free(part).sum()
            at += size
        return total

    def ability_tril(self, h: Array) -> Array:
        """Cholesky factor (D, D) of the covariance of a subject's abilities."""
        v = self.values(h)
        if self.n_dimensions == 1:
            return v["sd_theta"].reshape(1, 1)
        if self.dependence == "testlet":
            square = v["sd_testlet"][0] ** 2
            tril = jnp.linalg.cholesky((1 + square * jnp.eye(self.n_dimensions)) / (1 + square))
        else:
            tril = CorrCholeskyTransform()(v["correlation"])
        return v["sd_theta"][:, None] * tril

    def ability_mean(self, h: Array) -> Array:
        """Mean (D,) of a subject's abilities: zero unless anchored."""
        return self.values(h)["mean_theta"] if self.anchored else jnp.zeros(self.n_dimensions)

    def log_prior_theta(self, h: Array, moment: Array, total: Array, n: Array) -> Array:
        """log p(theta | h) of n independent subjects from sum_s theta_s theta_s' (D, D) and sum_s theta_s (D,)."""
        tril, mean = self.ability_tril(h), self.ability_mean(h)
        moment = moment - jnp.outer(mean, total) - jnp.outer(total, mean) + n * jnp.outer(mean, mean)
        solved = jax.scipy.linalg.solve_triangular(tril, moment, lower=True)
        solved = jax.scipy.linalg.solve_triangular(tril, solved.T, lower=True)
        return -n * jnp.log(jnp.diagonal(tril)).sum() - 0.5 * jnp.trace(solved)

    def item_prior(self, h: Array, benchmark: Array) -> tuple[Array, Array]:
        """Prior mean and standard deviation (d,) of an item's parameters."""
        v = self.values(h)
        mean, sd = [], []
        for name in self.item_names:
            if name == "log_a":
                mean.append(v["mean_log_a"][benchmark] if "mean_log_a" in v else jnp.zeros(()))
                sd.append(v["sd_log_a"][0])
            elif name == "intercept":
                mean.append(v["mean_intercept"][benchmark])
                sd.append(v["sd_intercept"][benchmark])
            elif name == "guessing_deviation":
                mean.append(jnp.zeros(()))
                sd.append(jnp.ones(()))
            else:
                mean.append(v["log_phi"][0])
                sd.append(v["sd_log_phi"][0])
        return jnp.stack(mean), jnp.stack(sd)

    def log_prior_item(self, x: Array, h: Array, item: Item) -> Array:
        """log p(x_j | h), or what the bank says of an item that it knows."""
        mean, sd = self.item_prior(h, item.benchmark)
        value = jnp.sum(-0.5 * ((x - mean) / sd) ** 2 - jnp.log(sd))
        if item.anchor is not None:
            anchor = item.anchor.given(self.values(h)["anchor_error"])
            z = jax.scipy.linalg.solve_triangular(anchor.tril, x - anchor.mean, lower=True)
            banked = -0.5 * jnp.sum(z**2) - jnp.sum(jnp.log(jnp.diagonal(anchor.tril)))
            value = jnp.where(anchor.known, banked, value)
        return value - 0.5 * len(self.item_names) * jnp.log(2 * jnp.pi)

    def prior_moments(self, h: Array, item: Item) -> tuple[Array, Array]:
        """Mean (d,) and precision (d, d) of the prior of an item's parameters."""
        mean, sd = self.item_prior(h, item.benchmark)
        precision = jnp.diag(1 / sd**2)
        if item.anchor is None:
            return mean, precision
        anchor = item.anchor.given(self.values(h)["anchor_error"])
        banked = jax.scipy.linalg.cho_solve((anchor.tril, True), jnp.eye(self.n_item))
        return jnp.where(anchor.known, anchor.mean, mean), jnp.where(anchor.known, banked, precision)

    @property
    def is_log_scale(self) -> np.ndarray:
        """Which entries of h are logs of positive hyperparameters (n_hyper,)."""
        return np.concatenate([np.full(size, prior.positive) for _, size, prior in self.free] or [np.zeros(0, bool)])

    def log_likelihood_item(self, x: Array, theta: Array, answer_h: Array, item: Item) -> Array:
        """sum over places of log p(y | x_j, theta); theta (M,) abilities in the places."""
        by_name = dict(zip(self.item_names, x, strict=True))
        eta = theta * jnp.exp(by_name["log_a"]) if "log_a" in by_name else theta
        eta = eta + by_name["intercept"]
        if "guessing_deviation" in by_name:
            logit_c = item.logit_centre + item.guessing_free * self.sd_logit_guessing * by_name["guessing_deviation"]
            eta = with_guessing(eta, logit_c)
        terms = LIKELIHOODS[self.likelihood].log_density(item.data, eta, *self._answer_parameters(by_name, answer_h))
        return jnp.sum(terms if item.mask is None else jnp.where(item.mask, terms, 0.0))

    def _answer_parameters(self, by_name: dict[str, Array], answer_h: Array) -> list[Array]:
        lookup, at = {}, 0
        for name, _, prior in self.hypers:
            if name in self.answer_hypers:
                if isinstance(prior, Prior):
                    lookup[name] = jnp.exp(answer_h[at]) if prior.positive else answer_h[at]
                    at += 1
                else:
                    lookup[name] = jnp.asarray(prior)
        return [by_name.get(name, lookup.get(name)) for name in LIKELIHOODS[self.likelihood].parameters]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Item:
    """What is known of an item besides its parameters; batched over items by vmap."""

    data: Any
    mask: Array | None
    benchmark: Array
    logit_centre: Array
    guessing_free: Array
    anchor: Anchor | None

    @classmethod
    def batch(cls, cells: Cells, data: Any) -> Item:
        return cls(data, cells.mask, cells.benchmark, cells.logit_centre, cells.guessing_free, cells.anchor)

    @classmethod
    def known_facts(cls, problem: Problem) -> Item:
        """All kept items without their answers."""
        facts = (problem.benchmark, problem.logit_centre, problem.guessing_free, problem.anchor)
        return cls(None, None, *jax.tree.map(jnp.asarray, facts))


def item_names(spec: ItemResponse) -> tuple[str, ...]:
    """Parameters of an item, in the order that structures and anchors keep."""
    by_item = spec.precision == "item" and "log_phi" in LIKELIHOODS[spec.likelihood].parameters
    names = [] if spec.curve == "1pl" else ["log_a"]
    return (*names, "intercept", *["guessing_deviation"] * (spec.curve == "3pl"), *["log_phi"] * by_item)


def structure(problem: Problem) -> Structure:
    """The structure of a problem's spec."""
    spec, priors = problem.spec, problem.spec.priors
    k, d = len(problem.benchmarks), len(problem.dimensions)
    parameters = LIKELIHOODS[spec.likelihood].parameters
    names, anchored = item_names(spec), problem.anchor is not None
    by_item = "log_phi" in names
    hypers: list[tuple[str, int, Prior | float]] = [
        ("mean_intercept", k, priors.mean_intercept),
        ("sd_intercept", k, priors.sd_intercept),
        ("sd_theta", d, priors.sd_theta),
    ]
    if anchored:
        hypers += [("mean_theta", d, MEAN_THETA), ("anchor_error", 2, Normal(0.0, 1.0))]
    if spec.curve != "1pl":
        hypers.append(("sd_log_a", 1, priors.sd_log_a))
        if problem.benchmarks_share or anchored:
            hypers.append(("mean_log_a", k, Normal(0.0, priors.sd_mean_log_a)))
    if d > 1 and spec.dependence == "testlet":
        hypers.append(("sd_testlet", 1, Prior("HalfNormal", (1.0,))))
    elif d > 1:
        hypers.append(("correlation", d * (d - 1) // 2, Normal(0.0, 1.0)))
    if by_item:
        hypers += [("log_phi", 1, priors.log_phi), ("sd_log_phi", 1, priors.sd_log_phi)]
    answer = tuple(name for name in parameters if not (by_item and name == "log_phi"))
    hypers += [(name, 1, getattr(priors, PRIOR_OF.get(name, name))) for name in answer]
    return Structure(
        likelihood=spec.likelihood,
        dependence=spec.dependence,
        n_dimensions=d,
        item_names=names,
        hypers=tuple(hypers),
        answer_hypers=answer,
        sd_mean_log_a=priors.sd_mean_log_a,
        sd_logit_guessing=priors.sd_logit_guessing,
        lkj=priors.lkj,
        anchored=anchored,
    )
