"""Partially centred parameters: x ~ Normal(mean, sd) is right where data speak, x = mean + sd z where they do not.

Between them x = mean + sd^(1 - c) (z - c mean) with z ~ Normal(c mean, sd^c): c = 1 is the centred form, c = 0 the
other. The share c is I sd^2 / (1 + I sd^2) with I the information of the data on an element, read off an approximation,
and sd at the low end of what is believed of it, because the funnel is there. Source: Papaspiliopoulos, Roberts & Skold
(2007); Gorinova, Moore & Hoffman (2020).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
from numpyro import distributions as dist
from numpyro import handlers
from numpyro.infer.reparam import Reparam
from numpyro.infer.util import unconstrain_fn

Array = Any
SUFFIX = "_scaled"
# Quantile of the scale at which the share is computed.
SMALL = 0.1


class PartlyCentred(Reparam):
    """Reparametrises a Normal or ZeroSumNormal site; ``share`` is c, a number or one per element."""

    def __init__(self, share: Array) -> None:
        self.share = share

    def __call__(self, name: str, fn: Any, obs: Any) -> tuple[None, Array]:
        assert obs is None
        loc, scale, zero_sum = _location_and_scale(fn)
        if zero_sum:
            scaled = dist.ZeroSumNormal(scale**self.share, fn.event_shape)
        else:
            scaled = dist.Normal(self.share * loc, scale**self.share)
        z = numpyro.sample(name + SUFFIX, scaled)
        return None, loc + scale ** (1 - self.share) * (z - self.share * loc)


def partly_centred(model: Callable[..., Any], shares: dict[str, Array]) -> Callable[..., Any]:
    """The same program with the named sites reparametrised."""
    return handlers.reparam(model, {name: PartlyCentred(share) for name, share in shares.items()})


def shares_of(model: Callable[..., Any], arguments: tuple[Any, ...], draws: dict[str, Array]) -> dict[str, Array]:
    """c of every Normal and ZeroSumNormal site whose scale is learned, from draws by site (n, ...)."""

    def prior_variance(values: dict[str, Array]) -> dict[str, Array]:
        sites = _trace(model, arguments, values)
        return {name: _location_and_scale(sites[name]["fn"])[1] ** 2 for name in values if _hierarchical(sites[name])}

    shares = {}
    for name, variance in jax.vmap(prior_variance)(draws).items():
        left, prior = jnp.var(draws[name], 0), jnp.mean(variance, 0)
        if variance.ndim == 1:  # sums to zero: one scale, and one c keeps the elements exchangeable
            left = jnp.sum(left) / (left.size - 1)
        information = jnp.maximum(1 / left - 1 / prior, 0.0)
        small = jnp.quantile(variance, SMALL, 0)
        shares[name] = information * small / (1 + information * small)
    return shares


def unconstrained(
    model: Callable[..., Any], shares: dict[str, Array], arguments: tuple[Any, ...], draws: dict[str, Array]
) -> dict[str, Array]:
    """Draws by site of the plain program as unconstrained parameters of the reparametrised one."""
    reparametrised = partly_centred(model, shares)

    def one(values: dict[str, Array]) -> dict[str, Array]:
        sites, out = _trace(model, arguments, values), dict(values)
        for name, c in shares.items():
            loc, scale, _ = _location_and_scale(sites[name]["fn"])
            out[name + SUFFIX] = c * loc + (out.pop(name) - loc) / scale ** (1 - c)
        return unconstrain_fn(reparametrised, arguments, {}, out)

    return jax.vmap(one)(draws)


def _hierarchical(site: dict[str, Any]) -> bool:
    """Whether a site is a group of normals with one scale, not a vector of hyperparameters."""
    normal = isinstance(_unwrapped(site["fn"]), (dist.Normal, dist.ZeroSumNormal))
    return normal and not isinstance(site["fn"], dist.Independent) and jnp.size(site["value"]) > 1


def _trace(model: Callable[..., Any], arguments: tuple[Any, ...], values: dict[str, Array]) -> dict[str, Any]:
    program = handlers.substitute(handlers.seed(model, jax.random.key(0)), values)
    return handlers.trace(program).get_trace(*arguments)


def _location_and_scale(fn: Any) -> tuple[Array, Array, bool]:
    fn = _unwrapped(fn)
    if isinstance(fn, dist.ZeroSumNormal):
        return jnp.zeros(()), fn.scale, True
    return fn.loc, fn.scale, False


def _unwrapped(fn: Any) -> Any:
    while isinstance(fn, (dist.ExpandedDistribution, dist.Independent)):
        fn = fn.base_dist
    return fn
