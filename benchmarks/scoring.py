"""Scoring one new subject: time a call, and agreement with NUTS on abilities and item parameters together.

The bank is what 28 calibration subjects leave of 12,032 items: per item the Gaussian posterior of (intercept,
log a), 200 draws of it. NUTS samples the same posterior with the item parameters as unknowns.
"""

from __future__ import annotations

import json
import time

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from numpyro import distributions as dist
from numpyro.diagnostics import effective_sample_size
from numpyro.infer import MCMC, NUTS
from scipy.special import expit

from bayes_irsl.bank import ItemBank
from bayes_irsl.responses import Responses
from bayes_irsl.scoring import score

N_ITEMS, N_DRAWS, N_ANSWERS, N_CALIBRATION, N_SUBJECTS = 12_032, 200, 50, 28, 8
MEAN, SD = np.array([0.3, 0.0]), np.array([1.4, 0.5])  # intercept, log a over the items


def calibrated_items(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """True (item, 2) intercepts and log slopes; mode and covariance of their posterior from few subjects."""
    truth = MEAN + SD * rng.standard_normal((N_ITEMS, 2))
    theta = rng.standard_normal(N_CALIBRATION)
    theta = (theta - theta.mean()) / theta.std()
    right = rng.random((N_ITEMS, N_CALIBRATION)) < expit(truth[:, :1] + np.exp(truth[:, 1:]) * theta)
    mode = np.tile(MEAN, (N_ITEMS, 1))
    for _ in range(60):
        slope = np.exp(mode[:, 1:])
        p = expit(mode[:, :1] + slope * theta)
        jacobian = np.stack([np.ones_like(p), slope * theta], -1)
        gradient = ((right - p)[..., None] * jacobian).sum(1) - (mode - MEAN) / SD**2
        fisher = np.einsum("js,jsk,jsl->jkl", p * (1 - p), jacobian, jacobian) + np.diag(1 / SD**2)
        mode = mode + 0.7 * np.linalg.solve(fisher, gradient[..., None])[..., 0]
    return truth, mode, np.linalg.inv(fisher)


def drawn_bank(mode: np.ndarray, covariance: np.ndarray, rng: np.random.Generator) -> ItemBank:
    """Bank of N_DRAWS draws of the items' posterior."""
    noise = rng.standard_normal((N_DRAWS, len(mode), 2))
    draws = mode + np.einsum("jkl,djl->djk", np.linalg.cholesky(covariance), noise)
    a = np.exp(draws[..., 1])
    return ItemBank.from_parameters(a, -draws[..., 0] / a)


def answers_of(theta: np.ndarray, truth: np.ndarray, rng: np.random.Generator) -> Responses:
    """N_ANSWERS answers of every subject to items chosen at random."""
    table = np.full((len(theta), N_ITEMS), np.nan)
    for row, ability in zip(table, theta, strict=True):
        asked = rng.choice(N_ITEMS, N_ANSWERS, replace=False)
        row[asked] = rng.random(N_ANSWERS) < expit(truth[asked, 0] + np.exp(truth[asked, 1]) * ability)
    return Responses.from_wide(table)


def joint(mode, tril, right):
    """Ability of a new subject and the parameters of the items that it answered."""
    theta = numpyro.sample("theta", dist.Normal(0, 1))
    z = numpyro.sample("z", dist.Normal(0, 1).expand([len(right), 2]).to_event(2))
    items = mode + jnp.einsum("jkl,jl->jk", tril, z)
    logits = items[:, 0] + jnp.exp(items[:, 1]) * theta
    numpyro.sample("answer", dist.Bernoulli(logits=logits).to_event(1), obs=right)


def monte_carlo(draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and sd of draws (chain, draw), and the Monte-Carlo error of each."""
    mean, sd = draws.mean(), draws.std()
    squares = (draws - mean) ** 2
    error = sd / np.sqrt(effective_sample_size(draws))
    error_sd = squares.std() / np.sqrt(effective_sample_size(squares)) / (2 * sd)
    return np.array([mean, sd]), np.array([error, error_sd])


def agreement(truth: np.ndarray, mode: np.ndarray, covariance: np.ndarray, rng: np.random.Generator) -> dict:
    """Differences of mean and sd from NUTS, in units of the Monte-Carlo error of both sides."""
    theta = np.linspace(-2.5, 2.5, N_SUBJECTS)
    responses = answers_of(theta, truth, rng)
    kernel = NUTS(joint)
    mcmc = MCMC(
        kernel,
        num_warmup=800,
        num_samples=5000,
        num_chains=4,
        chain_method="vectorized",
        progress_bar=False,
        jit_model_args=True,
    )
    z, ratios = [], []
    for subject in range(N_SUBJECTS):
        rows = responses.subject_index == subject
        asked = responses.item_index[rows]
        mcmc.run(
            jax.random.key(subject),
            mode[asked],
            np.linalg.cholesky(covariance[asked]),
            responses.answer[rows],
        )
        nuts, nuts_error = monte_carlo(np.asarray(mcmc.get_samples(group_by_chain=True)["theta"], float))
        alone = Responses.from_wide(responses.answer[rows][None])
        banks = (drawn_bank(mode[asked], covariance[asked], rng) for _ in range(40))
        scored = [score(bank, alone, benchmarks=False) for bank in banks]
        ours = np.array([[s["ability_mean"].item(), s["ability_sd"].item()] for s in scored])
        z.append((ours[0] - nuts) / np.hypot(nuts_error, ours.std(0, ddof=1)))
        ratios.append([ours[0, 1] / nuts[1], (ours.mean(0) - nuts)[0] / nuts[1]])
    z, ratios = np.abs(z), np.array(ratios)
    return {
        "max_z_mean": round(float(z[:, 0].max()), 2),
        "max_z_sd": round(float(z[:, 1].max()), 2),
        "sd_ratio_min": round(float(ratios[:, 0].min()), 3),
        "sd_ratio_max": round(float(ratios[:, 0].max()), 3),
        "max_mean_diff_in_sd_over_40_banks": round(float(np.abs(ratios[:, 1]).max()), 3),
        "agree": bool(z.max() < 3.0),
    }


def timing(bank: ItemBank, truth: np.ndarray, rng: np.random.Generator) -> dict:
    """Milliseconds a subject: one a call, and in one call of 200."""
    many = answers_of(rng.standard_normal(200), truth, rng)
    single = [many.select(subjects=[label]) for label in many.subjects.index[:60]]
    start = time.perf_counter()
    score(bank, single[0])
    first = time.perf_counter() - start
    times = []
    for one in single:
        start = time.perf_counter()
        score(bank, one)
        times.append(time.perf_counter() - start)
    score(bank, many)
    start = time.perf_counter()
    score(bank, many)
    batch = time.perf_counter() - start
    return {
        "ms_per_subject": round(1e3 * float(np.median(times)), 2),
        "ms_per_subject_p95": round(1e3 * float(np.quantile(times, 0.95)), 2),
        "ms_per_subject_in_batch_of_200": round(1e3 * batch / 200, 2),
        "first_call_seconds": round(first, 2),
    }


def main() -> None:
    rng = np.random.default_rng(0)
    truth, mode, covariance = calibrated_items(rng)
    bank = drawn_bank(mode, covariance, rng)
    spread = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2)).mean(0)
    print(f"posterior sd of an item's intercept {spread[0]:.2f}, of its log slope {spread[1]:.2f}")
    result = {**timing(bank, truth, rng), **agreement(truth, mode, covariance, rng)}
    result |= {
        "n_items": N_ITEMS,
        "bank_draws": N_DRAWS,
        "answers": N_ANSWERS,
        "subjects_compared": N_SUBJECTS,
    }
    print("RESULT " + json.dumps(result))


if __name__ == "__main__":
    main()
