"""Does NUTS on our parametrisation, started and preconditioned by Laplace, mix at a fair price?

Beta-2PL, 200 x 500, phi = 20, 4 chains of 1,000 draws: gradients a draw of the worst parameter costs. Then 100 x 100
against the textbook program: NumPyro's own Beta, theta ~ N(0, 1), b, log a, default NUTS; both until R-hat < 1.01 (the
textbook at most ten batches of draws), compilation included.
"""

from __future__ import annotations

import argparse

import arviz as az
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from _common import clock, print_result
from numpyro import distributions as dist
from numpyro.infer import MCMC, NUTS

import bayes_irsl as bi

WATCHED = (
    "theta",
    "intercept",
    "log_a",
    "mean_intercept",
    "sd_intercept",
    "sd_log_a",
    "mean_log_a",
    "sd_theta",
    "phi",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--subjects", type=int, default=200)
    parser.add_argument("--items", type=int, default=500)
    parser.add_argument("--small", type=int, default=100, help="subjects and items of the comparison with the textbook")
    parser.add_argument("--textbook-draws", type=int, default=1000, help="a batch; at most ten until converged")
    options = parser.parse_args()
    responses, _ = bi.simulate_responses(options.subjects, options.items, likelihood="beta", phi=20.0, seed=1)
    spec = bi.ItemResponse("beta")
    with clock() as spent:
        fit = bi.fit(spec, responses, method="nuts", seed=0)
    ess, rhat = worst(ours(fit))
    steps = fit.tree.sample_stats.n_steps.values
    result = {
        "gradients_per_effective_draw": float(steps.sum() / ess),
        "gradients_per_draw": float(steps.mean()),
        "min_ess_bulk": ess,
        "rhat_max": rhat,
        "divergences": int(fit.tree.sample_stats.diverging.values.sum()),
        "cpu_seconds": spent.cpu,
    }
    print(result, flush=True)
    result |= against_textbook(options.small, options.textbook_draws)
    print_result(**result)


def ours(fit: bi.Fit) -> dict[str, np.ndarray]:
    """Watched parameters, (chain, draw, ...)."""
    p = fit.tree.posterior
    values = {name: p[name].values for name in p.data_vars}
    values["log_a"] = np.log(values["a"])
    values["intercept"] = -values["a"] * values["b"]
    return {name: values[name] for name in WATCHED if name in values}


def worst(values: dict[str, np.ndarray]) -> tuple[float, float]:
    """Smallest bulk ESS and largest R-hat."""
    data = az.convert_to_dataset({k: v.reshape(*v.shape[:2], -1) for k, v in values.items()})
    ess, rhat = az.ess(data), az.rhat(data)
    return min(float(ess[k].min()) for k in values), max(float(rhat[k].max()) for k in values)


def textbook(y=None, n_subjects=0, n_items=0):
    """The program that most people would write."""
    sd_b = numpyro.sample("sd_b", dist.HalfNormal(2.0))
    sd_a = numpyro.sample("sd_a", dist.HalfNormal(0.5))
    phi = numpyro.sample("phi", dist.LogNormal(3.0, 1.5))
    with numpyro.plate("subject", n_subjects):
        theta = numpyro.sample("theta", dist.Normal(0, 1))
    with numpyro.plate("item", n_items):
        b = numpyro.sample("b", dist.Normal(0, sd_b))
        a = numpyro.sample("a", dist.LogNormal(0, sd_a))
    mean = jax.nn.sigmoid(a * (theta[:, None] - b))
    numpyro.sample("y", dist.BetaProportion(jnp.clip(mean, 1e-6, 1 - 1e-6), phi), obs=y)


def against_textbook(n: int, batch: int) -> dict[str, float]:
    responses, _ = bi.simulate_responses(n, n, likelihood="beta", phi=20.0, seed=2)
    with clock() as our_time:
        fit = bi.fit(bi.ItemResponse("beta"), responses, method="nuts", seed=1)
    our_ess, our_rhat = worst(ours(fit))
    y = jnp.clip(jnp.asarray(responses.dense()[0], jnp.float32), 1e-37, 1 - 6e-8)
    sampler = MCMC(
        NUTS(textbook),
        num_warmup=1000,
        num_samples=batch,
        num_chains=4,
        chain_method="vectorized",
        progress_bar=False,
    )
    batches: list[dict[str, np.ndarray]] = []
    their_cpu = 0.0
    while True:
        with clock() as spent:
            sampler.run(jax.random.key(len(batches)), y, n, n)
            batches.append({k: np.asarray(v) for k, v in sampler.get_samples(group_by_chain=True).items()})
        their_cpu += spent.cpu
        sampler.post_warmup_state = sampler.last_state
        samples = {k: np.concatenate([part[k] for part in batches], 1) for k in batches[0]}
        samples["log_a"] = np.log(samples.pop("a"))
        ess, rhat = worst(samples)
        draws = batch * len(batches)
        print(f"textbook, {draws} draws: smallest ESS {ess:.0f}, R-hat {rhat:.3f}, {their_cpu:.0f} CPU s", flush=True)
        if rhat < 1.01 or draws >= 10 * batch:
            break
    return {
        "speedup_min_ess_per_s_vs_textbook": (our_ess / our_time.cpu) / (ess / their_cpu),
        "rhat_ours_small": our_rhat,
        "rhat_textbook": rhat,
        "cpu_seconds_ours_small": our_time.cpu,
        "cpu_seconds_textbook": their_cpu,
    }


if __name__ == "__main__":
    main()
