"""Trajectory of 6,612 checkpoints: seconds, and whether intervals of abilities and forecasts hold.

DataDecide's shape: 25 recipes x 9 sizes, 221 runs with 30 checkpoints each, one benchmark of 500 questions, counts.
Abilities are drawn from the model with every distinct coordinate kept, so that what the fit's fewer inducing points
leave out counts against it; hyperparameters are drawn around the centres of their priors.
"""

from __future__ import annotations

import argparse
import json

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from _common import clock, print_result
from bayes_irsl.models.trajectory import hyperparameter_priors
from scipy.special import expit

import bayes_irsl as bi
from bayes_irsl.block_layout import blocks, by_subject
from bayes_irsl.covariates import layout
from bayes_irsl.inference.block_draws import prior_draw

SIZES = np.array([4, 20, 60, 90, 150, 300, 530, 750, 1000]) * 1e6
CHECKPOINTS, SUBJECTS, QUESTIONS = 30, 6612, 500
SPEC = bi.AbilityTrajectory(pool="family")


def subjects() -> pd.DataFrame:
    shares = np.geomspace(4, 100, CHECKPOINTS)
    rows = [(f"recipe {g}", f"recipe {g}, {n:.0e}", n, n * t) for g in range(25) for n in SIZES for t in shares]
    table = pd.DataFrame(rows[:SUBJECTS], columns=["family", "run", "params", "tokens"])
    return table.set_index(pd.Index([f"checkpoint {i}" for i in range(SUBJECTS)], name="subject"))


def simulate(table: pd.DataFrame, seed: int) -> np.ndarray:
    """True abilities (S,)."""
    place, rng = layout(SPEC, table), np.random.default_rng(seed)
    with jax.enable_x64(True):
        every = blocks(place, 1, inducing=len(table), group_inducing=len(table))
        h = {
            name: jnp.asarray(
                (np.exp(prior.centre) if prior.positive else 0.0) * np.exp(0.3 * rng.standard_normal(n or ()))
            )
            for name, prior, n in hyperparameter_priors(every, bi.TrajectoryPriors())
            if isinstance(prior, bi.Prior)
        }
        return np.asarray(by_subject(every, prior_draw(h, every, jax.random.key(seed)), len(table)))[:, 0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    table, rng = subjects(), np.random.default_rng(args.seed)
    theta = simulate(table, args.seed)
    known = rng.permutation(SUBJECTS) >= 20
    counts = pd.DataFrame({"subject": table.index, "item": "benchmark", "n": QUESTIONS})
    counts["k"] = rng.binomial(QUESTIONS, expit(theta))
    items = pd.DataFrame({"benchmark": ["benchmark"]}, index=pd.Index(["benchmark"], name="item"))
    everyone = bi.Responses.from_long(counts, successes="k", trials="n", subjects=table, items=items)
    responses = everyone.select(subjects=known)
    with clock() as spent:
        fit = bi.fit(SPEC, responses, seed=0, progress=False)
    low, high = fit.tree.posterior["theta"].quantile([0.05, 0.95], ("chain", "draw")).to_numpy()[..., 0]
    out = table[~known]
    with clock() as ahead:
        inside = []
        for name, row in out.iterrows():
            found = bi.forecast(
                fit, params=row["params"], tokens=row["tokens"], pool=row["family"], run=row["run"], kind="ability"
            )
            true = theta[table.index.get_loc(name)]
            inside.append(bool(found["ability_lower"].squeeze() <= true <= found["ability_upper"].squeeze()))
    facts = json.loads(fit.tree.attrs["diagnostics"])
    print_result(
        seconds=spent.wall,
        cpu_seconds=spent.cpu,
        coverage90_theta=float(np.mean((low <= theta[known]) & (theta[known] <= high))),
        coverage90_left_out=float(np.mean(inside)),
        left_out=len(inside),
        seconds_a_forecast=ahead.wall / len(inside),
        pareto_k=facts["pareto_k"],
        effective_draws=facts["effective_draws"],
        subjects=responses.n_subjects,
    )


if __name__ == "__main__":
    main()
