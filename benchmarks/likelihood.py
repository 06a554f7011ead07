"""Cost and accuracy of the Beta likelihood: 400 x 1,500 cells, float32, value and gradient.

The setting is a 2PL fit: eta = exp(log_a) theta + intercept, the sum of log densities over all cells, and
its gradient in theta, log_a, intercept and one log_phi per fit. All candidates share that code and differ
in the density only: ours, our Bernoulli, and NumPyro's BetaProportion as a user would write it. Timings are
interleaved; medians are shown.

Accuracy is checked apart, over means in (1e-6, 1 - 1e-6) and precisions in (0.05, 1e5), with answers drawn
from the Beta itself and freely; the reference is evaluated in float64 at the float32-rounded inputs.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from scipy import special

from bayes_irsl import likelihoods

SUBJECTS, ITEMS = 400, 1500
Density = Callable[[Any, jax.Array, jax.Array], jax.Array]


def plain(params: dict[str, jax.Array]) -> jax.Array:
    return jnp.exp(params["log_a"]) * params["theta"][:, None] + params["intercept"]


def as_product(params: dict[str, jax.Array]) -> jax.Array:
    """The same logits, written so that the gradients in theta and log_a are matrix-vector products."""
    return jnp.einsum("s,j->sj", params["theta"], jnp.exp(params["log_a"])) + params["intercept"]


def value_and_gradient(density: Density, logits: Callable[..., jax.Array]) -> Callable[..., Any]:
    def total(params: dict[str, jax.Array], data: Any) -> jax.Array:
        return density(data, logits(params), params["log_phi"]).sum()

    return jax.jit(jax.value_and_grad(total))


def numpyro_beta(y: jax.Array, eta: jax.Array, log_phi: jax.Array) -> jax.Array:
    return dist.BetaProportion(jax.nn.sigmoid(eta), jnp.exp(log_phi)).log_prob(y)


def simulate(seed: int) -> tuple[dict[str, jax.Array], dict[str, Any]]:
    rng = np.random.default_rng(seed)
    params = {
        "theta": rng.normal(size=SUBJECTS),
        "log_a": 0.3 * rng.normal(size=ITEMS),
        "intercept": rng.normal(size=ITEMS),
        "log_phi": np.log(20.0),
    }
    params = {name: jnp.asarray(value, dtype=jnp.float32) for name, value in params.items()}
    mean = np.asarray(jax.nn.sigmoid(plain(params)), dtype=np.float64)
    y = np.clip(rng.beta(20 * mean, 20 * (1 - mean)), 1e-6, 1 - 1e-6).astype(np.float32)
    data = {
        "beta": jax.tree.map(jnp.asarray, likelihoods.beta_data(y)),
        "bernoulli": jnp.asarray(rng.random(mean.shape) < mean, dtype=jnp.float32),
        "numpyro": jnp.asarray(y),
    }
    return params, data


def timings(logits: Callable[..., jax.Array], rounds: int, seed: int) -> dict[str, np.ndarray]:
    """Nanoseconds a cell for every candidate: (rounds, 2) with wall clock and CPU, medians of a turn's calls."""
    params, data = simulate(seed)
    densities: dict[str, Density] = {
        "beta": likelihoods.beta,
        "bernoulli": lambda y, eta, _: likelihoods.bernoulli(y, eta),
        "numpyro": numpyro_beta,
    }
    calls = {name: value_and_gradient(f, logits).lower(params, data[name]).compile() for name, f in densities.items()}
    warm, timed = {"numpyro": 1}, {"numpyro": 1}
    spent: dict[str, list[np.ndarray]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            for _ in range(warm.get(name, 5)):
                jax.block_until_ready(call(params, data[name]))
            turn = []
            for _ in range(timed.get(name, 15)):
                wall, cpu = time.perf_counter(), time.process_time()
                jax.block_until_ready(call(params, data[name]))
                turn.append((time.perf_counter() - wall, time.process_time() - cpu))
            spent[name].append(np.median(turn, axis=0))
    scale = 1e9 / (SUBJECTS * ITEMS)
    return {name: np.array(times) * scale for name, times in spent.items()}


def hard_cells(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Answers, logits (both by cell) and log precisions (by item), float32, over the whole range claimed."""
    rng = np.random.default_rng(seed)
    edge = np.log(1e6 - 1)
    eta = rng.uniform(-edge, edge, (SUBJECTS, ITEMS))
    moderate = rng.random(eta.shape) < 1 / 3
    eta = np.where(moderate, special.logit(rng.uniform(1e-6, 1 - 1e-6, eta.shape)), eta).astype(np.float32)
    log_phi = rng.uniform(np.log(0.05), np.log(1e5), ITEMS).astype(np.float32)
    mean, phi = special.expit(eta.astype(np.float64)), np.exp(log_phi.astype(np.float64))
    own = rng.gamma(mean * phi), rng.gamma((1 - mean) * phi)
    y = np.where(np.sum(own, axis=0) > 0, own[0] / np.maximum(np.sum(own, axis=0), 1e-300), 0.5)
    free = np.where(rng.random(eta.shape) < 0.5, rng.random(eta.shape), special.expit(rng.uniform(-20, 20, eta.shape)))
    y = np.where(rng.random(eta.shape) < 0.5, y, free).astype(np.float32)
    return np.where((y > 0) & (y < 1), y, np.float32(0.5)), eta, log_phi


def reference(y: np.ndarray, eta: np.ndarray, log_phi: np.ndarray) -> tuple[list[np.ndarray], float]:
    """Density and both derivatives by the textbook formula in float64; how far another formula is from it."""
    y, eta, log_phi = (np.asarray(array, dtype=np.float64) for array in (y, eta, log_phi))
    phi, mean, rest = np.exp(log_phi), special.expit(eta), special.expit(-eta)
    alpha, beta = mean * phi, rest * phi
    powers = (alpha - 1) * np.log(y) + (beta - 1) * np.log1p(-y)
    density = special.gammaln(phi) - special.gammaln(alpha) - special.gammaln(beta) + powers
    in_alpha = np.log(y) - special.digamma(alpha) + special.digamma(phi)
    in_beta = np.log1p(-y) - special.digamma(beta) + special.digamma(phi)
    derivatives = [alpha * rest * (in_alpha - in_beta), alpha * in_alpha + beta * in_beta]
    other = powers - special.betaln(alpha, beta)
    return [density, *derivatives], relative_error(other, density)


def relative_error(value: np.ndarray, true: np.ndarray) -> float:
    return float(np.max(np.abs(np.asarray(value, dtype=np.float64) - true) / (1 + np.abs(true))))


def accuracy(seed: int) -> dict[str, float]:
    """Largest errors with log_phi shared by a column and with a log_phi of its own for every cell."""
    y, eta, log_phi = hard_cells(seed)
    true, doubt = reference(y, eta, log_phi)
    data = likelihoods.beta_data(y)

    @jax.jit
    def density_and_derivatives(log_phi: jax.Array) -> tuple[jax.Array, ...]:
        density, along = jax.linearize(partial(likelihoods.beta, data), jnp.asarray(eta), log_phi)
        in_eta = along(jnp.ones_like(eta), jnp.zeros_like(log_phi))
        return density, in_eta, along(jnp.zeros_like(eta), jnp.ones_like(log_phi))

    errors: dict[str, float] = {"reference_self_error": doubt}
    for layout, precision in (("item", log_phi), ("cell", np.broadcast_to(log_phi, eta.shape))):
        found = density_and_derivatives(jnp.asarray(precision))
        for name, value, exact in zip(("density", "d_eta", "d_log_phi"), found, true, strict=True):
            errors[f"{name}_{layout}"] = relative_error(value, exact)
    return errors


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    errors = accuracy(args.seed)
    for name, error in errors.items():
        print(f"error {name:22s} {error:.2e}")
    result: dict[str, float] = {}
    for label, logits in (("", plain), ("_as_product", as_product)):
        spent = timings(logits, args.rounds, args.seed)
        for name, times in spent.items():
            wall, cpu = np.median(times, axis=0)
            print(f"{name:10s}{label:12s} {wall:7.2f} ns/cell wall {cpu:7.2f} CPU")
            result[f"{name}_cpu_ns{label}"] = cpu
        # Ratios within a round, whose candidates met the same load on the machine.
        speedup = np.median(spent["numpyro"] / spent["beta"], axis=0)
        cost = np.median(spent["beta"] / spent["bernoulli"], axis=0)
        for i, clock in enumerate(("", "_cpu")):
            result[f"speedup_vs_numpyro_beta{clock}{label}"] = speedup[i]
            result[f"cost_vs_bernoulli{clock}{label}"] = cost[i]
    result["max_rel_err_vs_float64"] = max(v for k, v in errors.items() if k != "reference_self_error")
    result["reference_self_error"] = errors["reference_self_error"]
    print("RESULT " + json.dumps({name: float(f"{value:.4g}") for name, value in result.items()}))


if __name__ == "__main__":
    main()
