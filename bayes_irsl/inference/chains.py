"""NUTS as two compiled functions, start and advance: many chains at once, on one data set or each on its own.

Nothing is compiled anew for a second run of the same shape, and a run is a loop over short stretches, so that it can
show progress. The sampler itself is NumPyro's.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.infer.hmc import HMCState, hmc
from tqdm.auto import tqdm

Array = Any
STRETCH = 50
STATS = ("potential_energy", "diverging", "num_steps", "accept_prob", "energy", "step_size")


class Settings(NamedTuple):
    """What shapes the compiled sampler.

    ``warmup`` transitions adapt the step size and, with ``adapt_metric``, the diagonal metric. With ``data_per_chain``
    every chain has its own data, stacked along the first axis of all their arrays.
    """

    warmup: int
    target_accept: float = 0.8
    max_tree_depth: int = 10
    adapt_metric: bool = False
    data_per_chain: bool = False


class Chains(NamedTuple):
    """Draws, a pytree like the start with leading (chain, draw), and statistics by name, (chain, draw)."""

    draws: Any
    stats: dict[str, np.ndarray]


def run_chains(
    potential: Callable[[Any, Any], Array],
    start: Any,
    inverse_metric: Array,
    data: Any,
    settings: Settings,
    *,
    key: Array,
    draws: int,
    thin: int = 1,
    progress: bool = False,
    description: str = "nuts",
) -> Chains:
    """Sample from exp(-potential(z, data)).

    Parameters
    ----------
    potential
        Hashable function of the unconstrained parameters (a pytree) and the data: minus the log density.
    start
        Starting points, a pytree with leading axis chain.
    inverse_metric
        Variances of the flattened parameters, (n,) for all chains or (chain, n).
    data
        Second argument of ``potential``.
    draws, thin
        Draws kept per chain, every ``thin``-th transition after warm-up.
    """
    chains = jax.tree.leaves(start)[0].shape[0]
    inverse_metric = jnp.broadcast_to(inverse_metric, (chains, jnp.shape(inverse_metric)[-1]))
    state = _start(potential, settings, start, inverse_metric, jax.random.split(key, chains), data)
    total = settings.warmup + draws * thin
    stretch = min(STRETCH, total)
    parts: list[tuple[Any, dict[str, np.ndarray]]] = []
    with tqdm(total=total, desc=description, disable=not progress, leave=False, unit="draw") as bar:
        for at in range(0, total, stretch):
            state, kept = _advance(potential, settings, stretch, state, inverse_metric, data)
            first = max(settings.warmup - at, 0)
            index = np.arange(first, min(stretch, total - at))
            index = index[(at + index - settings.warmup + 1) % thin == 0]
            parts.append(jax.tree.map(lambda v, index=index: np.asarray(v)[index], kept))
            bar.update(min(stretch, total - at))
            bar.set_postfix_str(_postfix(kept, at < settings.warmup))
    z, stats = jax.tree.map(lambda *v: np.concatenate(v).swapaxes(0, 1), *parts)
    return Chains(z, stats)


def sampler_stats(stats: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Statistics of the chains under ArviZ's names, (chain, draw)."""
    return {
        "lp": -stats["potential_energy"],
        "diverging": stats["diverging"],
        "n_steps": stats["num_steps"],
        "tree_depth": np.ceil(np.log2(stats["num_steps"] + 1)).astype(int),
        "acceptance_rate": stats["accept_prob"],
        "energy": stats["energy"],
        "step_size": stats["step_size"],
    }


def _postfix(kept: Any, warming_up: bool) -> str:
    steps, accept = (np.asarray(kept[1][k]) for k in ("num_steps", "accept_prob"))
    return f"{'warm-up, ' if warming_up else ''}{steps.mean():.0f} steps a draw, acceptance {accept.mean():.2f}"


def _kernel(potential: Any, settings: Settings, data: Any, z: Any, inverse_metric: Array, key: Array) -> Any:
    init, sample = hmc(potential_fn_gen=lambda data: partial(_swapped, potential, data), algo="NUTS")
    state = init(
        z,
        settings.warmup,
        inverse_mass_matrix=inverse_metric,
        adapt_mass_matrix=settings.adapt_metric,
        target_accept_prob=settings.target_accept,
        max_tree_depth=settings.max_tree_depth,
        model_args=(data,),
        rng_key=key,
    )
    return state, sample


def _swapped(potential: Any, data: Any, z: Any) -> Array:
    return potential(z, data)


@partial(jax.jit, static_argnames=("potential", "settings"))
def _start(potential: Any, settings: Settings, start: Any, inverse_metric: Array, keys: Array, data: Any) -> HMCState:
    def one(z: Any, inverse_metric: Array, key: Array, data: Any) -> HMCState:
        return _kernel(potential, settings, data, z, inverse_metric, key)[0]

    return jax.vmap(one, (0, 0, 0, 0 if settings.data_per_chain else None))(start, inverse_metric, keys, data)


@partial(jax.jit, static_argnames=("potential", "settings", "length"))
def _advance(
    potential: Any, settings: Settings, length: int, state: HMCState, inverse_metric: Array, data: Any
) -> tuple[HMCState, Any]:
    """``length`` transitions of all chains; states visited and statistics with leading (transition, chain)."""

    def one(state: HMCState, inverse_metric: Array, data: Any) -> HMCState:
        # init only sets up the kernel here; its own state is not used and is dropped by the compiler.
        _, sample = _kernel(potential, settings, data, state.z, inverse_metric, state.rng_key)
        return sample(state, model_args=(data,), model_kwargs={})

    step = jax.vmap(one, (0, 0, 0 if settings.data_per_chain else None))

    def body(state: HMCState, _: None) -> tuple[HMCState, Any]:
        state = step(state, inverse_metric, data)
        stats = {name: getattr(state, name) for name in STATS[:-1]} | {"step_size": state.adapt_state.step_size}
        return state, (state.z, stats)

    return jax.lax.scan(body, state, None, length=length)
