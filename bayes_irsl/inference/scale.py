"""From draws on the scale of fitting to the bank's scale: calibration subjects have mean 0 and sd 1 in every draw.

Anchored draws are on the scale of the anchoring bank already.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from bayes_irsl.cells import Problem
from bayes_irsl.inference.structure import Item, Structure
from bayes_irsl.priors import Prior

Floats = npt.NDArray[Any]


@dataclass(frozen=True)
class RawDraws:
    """Draws on the scale of fitting, subjects and items with answers only.

    theta (n, D, S); items by name (n, J); hypers by name (n, size) on their natural scale.
    """

    theta: Floats
    items: dict[str, Floats]
    hypers: dict[str, Floats]

    @classmethod
    def from_vectors(cls, s: Structure, theta: Floats, h: Floats, x: Floats) -> RawDraws:
        """From the vectors that the structure speaks of: theta (n, D, S), h (n, n_hyper), x (n, J, d)."""
        hypers = {k: np.asarray(v) for k, v in s.values(jnp.asarray(h, jnp.float32)).items()}
        if "correlation" in hypers:
            hypers["tril"] = np.asarray(jax.vmap(s.ability_tril)(jnp.asarray(h, jnp.float32)))
        return cls(theta, {name: x[..., k] for k, name in enumerate(s.item_names)}, hypers)

    def log_prior(self, s: Structure, problem: Problem) -> dict[str, Floats]:
        """Log prior density of abilities, item parameters and hyperparameters, by draw."""
        h = jnp.asarray(self._free(s), jnp.float32)
        moment = np.einsum("nds,nes->nde", self.theta, self.theta)
        sums = (jnp.asarray(v, jnp.float32) for v in (moment, self.theta.sum(-1)))
        n = float(problem.n_subjects - (not s.anchored))
        theta = jax.vmap(lambda h, m, t: s.log_prior_theta(h, m, t, n))(h, *sums)
        item = Item.known_facts(problem)
        x = jnp.stack([jnp.asarray(self.items[name], jnp.float32) for name in s.item_names], -1)
        parts = {
            "theta": theta,
            "items": _log_prior_items(s, x, h, item),
            "hypers": jax.vmap(s.log_prior_hyper)(h),
        }
        return {name: np.asarray(part) for name, part in parts.items()}

    def _free(self, s: Structure) -> Floats:
        parts = [np.log(self.hypers[name]) if prior.positive else self.hypers[name] for name, _, prior in s.free]
        return np.concatenate([p.reshape(len(self.theta), -1) for p in parts] or [np.zeros((len(self.theta), 0))], 1)


@partial(jax.jit, static_argnames=("s",))
def _log_prior_items(s: Structure, x: Any, h: Any, item: Item) -> Any:
    """Log prior of all items' parameters x (n, J, d) by draw."""

    def one(draw: tuple[Any, Any]) -> Any:
        x, h = draw
        return jax.vmap(lambda x, item: s.log_prior_item(x, h, item))(x, item).sum()

    return jax.lax.map(one, (x, h))


def to_bank_scale(
    problem: Problem, s: Structure, raw: RawDraws, seed: int
) -> dict[str, tuple[tuple[str, ...], Floats]]:
    """Named posterior variables (dims after "sample", values); subjects and items without answers get their priors."""
    rng = np.random.default_rng([seed, 1])
    r = problem.responses
    n = len(raw.theta)
    theta = rng.standard_normal((n, s.n_dimensions, r.n_subjects))
    if s.anchored:
        centre, size = np.zeros((n, s.n_dimensions)), np.ones((n, s.n_dimensions))
        theta = raw.hypers["mean_theta"][..., None] + raw.hypers["sd_theta"][..., None] * theta
    else:
        centre, size = raw.theta.mean(-1), raw.theta.std(-1)
    correlation = _correlation(s, raw)
    if correlation is not None:
        theta = np.linalg.cholesky(correlation + 1e-6 * np.eye(s.n_dimensions)) @ theta
    theta[:, :, problem.kept_subjects] = (raw.theta - centre[..., None]) / size[..., None]
    items, dimension = _all_items(problem, s, raw, rng)
    stretch = size[:, dimension]
    log_a = items.get("log_a", 0.0) + np.log(stretch)
    a = np.exp(log_a)
    intercept = items["intercept"] + a * (centre / size)[:, dimension]
    one = s.n_dimensions == 1
    out: dict[str, tuple[tuple[str, ...], Floats]] = {
        "theta": (("subject",), theta[:, 0]) if one else (("subject", "dimension"), theta.swapaxes(1, 2)),
        "a": (("item",), a),
        "b": (("item",), -intercept / a),
    }
    if "guessing_deviation" in items:
        out["c"] = (("item",), items["c"])
    if "log_phi" in items:
        out["phi"] = (("item",), np.exp(items["log_phi"]))
    elif "log_phi" in raw.hypers:
        out["phi"] = ((), np.exp(raw.hypers["log_phi"][:, 0]))
    if correlation is not None:
        out["correlation"] = (("dimension", "other_dimension"), correlation)
    for name, value in raw.hypers.items():
        if name in ("mean_intercept", "sd_intercept"):
            out[name] = (("benchmark",), value)
        elif name == "mean_log_a":
            continue
        elif name in ("mean_theta", "sd_theta"):
            out[name] = ((), (value / size)[:, 0]) if one else (("dimension",), value / size)
        elif name == "log_phi" and "log_phi" in items:
            out["mean_log_phi"] = ((), value[:, 0])
        elif name not in ("correlation", "tril", "log_phi", "anchor_error"):
            out[name] = ((), value[:, 0])
    mean_log_a = raw.hypers.get("mean_log_a", np.zeros((n, len(problem.benchmarks))))
    first = [int(np.flatnonzero(problem.benchmark == k)[0]) for k in range(len(problem.benchmarks))]
    out["mean_log_a"] = (("benchmark",), mean_log_a + np.log(size[:, problem.dimension[first]]))
    return {name: (dims, np.asarray(value, np.float32)) for name, (dims, value) in out.items()}


def _correlation(s: Structure, raw: RawDraws) -> Floats | None:
    if s.n_dimensions == 1:
        return None
    if s.dependence == "testlet":
        square = raw.hypers["sd_testlet"][:, 0, None, None] ** 2
        return (1 + square * np.eye(s.n_dimensions)) / (1 + square)
    tril = raw.hypers["tril"] / np.linalg.norm(raw.hypers["tril"], axis=-1, keepdims=True)
    return tril @ tril.swapaxes(1, 2)


def _all_items(
    problem: Problem, s: Structure, raw: RawDraws, rng: np.random.Generator
) -> tuple[dict[str, Floats], npt.NDArray[np.intp]]:
    """Item draws for every item of the responses; those without answers from the prior given the hyperparameters."""
    r, n = problem.responses, len(raw.theta)
    dimension = np.zeros(r.n_items, np.intp)
    benchmark = np.zeros(r.n_items, np.intp)
    lookup = {name: k for k, name in enumerate(problem.benchmarks)}
    by_dimension = {name: k for k, name in enumerate(problem.dimensions)}
    empty = np.setdiff1d(np.arange(r.n_items), problem.kept_items)
    for j in empty:
        row = r.items.iloc[j]
        benchmark[j] = lookup.get(str(row["benchmark"]), rng.integers(len(problem.benchmarks)))
        if s.n_dimensions > 1:
            dimension[j] = by_dimension.get(str(row[problem.spec.abilities]), 0)
    dimension[problem.kept_items] = problem.dimension
    hypers = {k: v for k, v in raw.hypers.items()}
    shape = (n, len(empty))
    prior = {
        "log_a": lambda: (
            _pick(hypers, "mean_log_a", benchmark[empty], n) + hypers["sd_log_a"] * rng.standard_normal(shape)
        ),
        "intercept": lambda: (
            hypers["mean_intercept"][:, benchmark[empty]]
            + hypers["sd_intercept"][:, benchmark[empty]] * rng.standard_normal(shape)
        ),
        "guessing_deviation": lambda: rng.standard_normal(shape),
        "log_phi": lambda: hypers["log_phi"] + hypers["sd_log_phi"] * rng.standard_normal(shape),
    }
    out = {}
    for name, kept in raw.items.items():
        full = np.empty((n, r.n_items), np.float32)
        full[:, problem.kept_items] = kept
        full[:, empty] = prior[name]()
        out[name] = full
    if "guessing_deviation" in out:
        out["c"] = _guessing(problem, s, out["guessing_deviation"])
    return out, dimension


def _guessing(problem: Problem, s: Structure, deviation: Floats) -> Floats:
    """c of every item; exactly the chance level where it is fixed."""
    centre, free = problem.guessing_of_all()
    logit = centre + free * s.sd_logit_guessing * deviation
    chance = 1 / (1 + np.exp(-centre))
    return np.where(free > 0, 1 / (1 + np.exp(-logit)), chance)


def _pick(hypers: dict[str, Floats], name: str, index: npt.NDArray[np.intp], n: int) -> Floats:
    return hypers[name][:, index] if name in hypers else np.zeros((n, len(index)))


def fixed_hypers(s: Structure) -> list[str]:
    """Names of hyperparameters that the spec fixes at a number."""
    return [name for name, _, prior in s.hypers if not isinstance(prior, Prior)]
