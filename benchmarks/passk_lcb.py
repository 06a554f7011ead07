"""LiveCodeBench with ten samples a question: from five of them, the other five.

Execution (37 models x 479 questions) and repair (17 x 713). Log score: of the number of successes among the other five,
cell by cell, in nats. Coverage: 90 % intervals of every model's share of questions that the other five solve at least
once. Ours are the tails of every subject (no items), a beta-binomial item response model (items shared, every subject
with its own scatter), and both pooled; baselines turn their point estimates into binomials. Models with other than ten
samples are left out. Errors are clustered by model.
"""

from __future__ import annotations

import argparse

import numpy as np
import pandas as pd
from _common import SHARED, clock, print_result, shared_data
from scipy.special import betaln, expit, xlog1py, xlogy
from tqdm import tqdm

import bayes_irsl as bi
from bayes_irsl.baselines.passk import beta_over_items
from bayes_irsl.forecasts.pooled_rates import pooled
from bayes_irsl.forecasts.rates import Rates, given_rates
from bayes_irsl.forecasts.scores import clustered_error
from bayes_irsl.forecasts.tails import log_predictive
from bayes_irsl.tails import log_choose

SAMPLES, SEEN = 10, 5
# Least distance of a plugged-in rate from 0 and 1.
LEAST = 1e-3
TASKS = ("execution", "repair")
OURS = {"subject tails": bi.RepeatedSampling(), "item response": bi.ItemResponse("beta-binomial")}


def table(task: str) -> tuple[np.ndarray, list[str]]:
    """Successes of ten (S, J) of the models that have them everywhere, and their names."""
    folder = SHARED / "livecodebench"
    answers = pd.read_parquet(folder / "item_pass1_percent.parquet").astype({"model": str, "task": str})
    counts = answers[answers["task"] == task].pivot_table(index="model", columns="item", values="pass1", observed=True)
    counts = (counts / 100 * SAMPLES).dropna()
    whole = (np.abs(counts - counts.round()) < 1e-6).all(axis=1)
    several = (counts.round() % SAMPLES != 0).any(axis=1)  # one sample a question gives none or all
    kept = counts[whole & several].round().astype(int)
    return kept.to_numpy(), list(kept.index)


def responses(c: np.ndarray, names: list[str]) -> bi.Responses:
    frame = pd.DataFrame(c, index=names).add_prefix("q")
    items = pd.DataFrame({"benchmark": "lcb"}, index=pd.Index(frame.columns, name="item"))
    return bi.Responses.from_wide(frame, trials=np.full(c.shape, SEEN), items=items)


def log_binomial(rest: np.ndarray, p: np.ndarray) -> np.ndarray:
    """Log probability of successes among the other five at rates."""
    n = SAMPLES - SEEN
    return log_choose(n, rest) + xlogy(rest, p) + xlog1py(n - rest, -p)


def ours(r: bi.Responses, left: bi.Responses, seed: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Log score of every cell (S, J), and draws (n, S) of the share of questions that the rest solve, by model."""
    rng, out, every = np.random.default_rng([seed, 1]), {}, []
    for name, spec in OURS.items():
        fit = bi.fit(spec, r, seed=seed, draws=400, progress=False)
        every.append(given_rates(fit, None, None, False, seed))
        out[name] = (log_predictive(fit, left).reshape(r.n_subjects, -1), shares_solved(every[-1], rng))
    scores = np.logaddexp(*(score for score, _ in out.values())) - np.log(2)
    return out | {"pooled": (scores, shares_solved(pooled(every, None), rng))}


def shares_solved(rates: Rates, rng: np.random.Generator) -> np.ndarray:
    """Draws (n, S) of the share of questions that the other samples solve at least once."""
    solved = []
    for s in range(rates.n_subjects):
        p = rates.subject(s).p
        solved.append((rng.uniform(size=p.shape) < 1 - (1 - p) ** (SAMPLES - SEEN)).mean(1))
    return np.stack(solved, 1)


def baselines(c: np.ndarray, r: bi.Responses, rest: np.ndarray, seed: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """The same from point estimates: plug-in, beta-binomial by maximum likelihood, binomial item response."""
    n, rng = SAMPLES - SEEN, np.random.default_rng([seed, 2])
    out = {}
    share = (c + 0.5) / (SEEN + 1)
    fit = bi.fit(bi.ItemResponse("binomial"), r, seed=seed, draws=200, progress=False)
    point = {k: fit.tree.posterior[k].mean(("chain", "draw")).to_numpy() for k in ("theta", "a", "b")}
    # Nobody who plugs rates in means that what is not expected cannot happen.
    curve = np.clip(expit(point["a"] * (point["theta"][:, None] - point["b"])), LEAST, 1 - LEAST)
    for name, p in (("plug-in", share), ("IRSL plug-in", curve)):
        draws = rng.uniform(size=(400, *p.shape)) < 1 - (1 - p) ** n
        out[name] = (log_binomial(rest, p), draws.mean(2))
    scores, solved = [], []
    for seen, left in zip(c.astype(float), rest, strict=True):
        alpha, beta = beta_over_items(seen, np.full(len(seen), float(SEEN)))
        a, b = alpha + seen, beta + SEEN - seen
        scores.append(log_choose(n, left) + betaln(a + left, b + n - left) - betaln(a, b))
        p = rng.beta(a, b, (400, len(seen)))
        solved.append((rng.uniform(size=p.shape) < 1 - (1 - p) ** n).mean(1))
    out["beta-binomial ML"] = (np.stack(scores), np.stack(solved, 1))
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--subsets", type=int, default=4)
    args = parser.parse_args()
    shared_data()
    rows = []
    with clock() as spent:
        for task in TASKS:
            full, names = table(task)
            for seed in tqdm(range(args.subsets), desc=task):
                rng = np.random.default_rng([seed, len(names)])
                c = rng.hypergeometric(full, SAMPLES - full, SEEN)
                rest, r = full - c, responses(c, names)
                found = ours(r, responses(rest, names), seed) | baselines(c, r, rest, seed)
                truth = (rest > 0).mean(1)
                for arm, (scores, solved) in found.items():
                    low, high = np.quantile(solved, [0.05, 0.95], axis=0)
                    facts = {"task": task, "seed": seed, "arm": arm, "model": names}
                    values = {"log_score": scores.mean(1), "width": high - low}
                    values |= {"inside": (low <= truth) & (truth <= high), "error": np.abs(solved.mean(0) - truth)}
                    rows.append(pd.DataFrame(facts | values))
    result = pd.concat(rows, ignore_index=True)
    result["inside"] = result["inside"].astype(float)
    print(result.groupby(["task", "arm"])[["log_score", "inside", "width", "error"]].mean().round(4).to_string())
    arms = result.pivot_table(index=["task", "seed", "model"], columns="arm", values="log_score")
    laws = [a for a in arms.columns if a not in (*OURS, "pooled")]
    best = arms[laws].mean().idxmax()
    gain = (arms["item response"] - arms[best]).to_numpy()
    own = result[result["arm"] == "item response"]
    print_result(
        log_score_gain_vs_best_baseline=gain.mean(),
        log_score_gain_se=clustered_error(gain, arms.index.get_level_values("model").to_numpy()),
        best_baseline=best,
        coverage90=own["inside"].mean(),
        coverage90_se=clustered_error(own["inside"].to_numpy(), own["model"].to_numpy()),
        log_score_gain_pooled=(arms["pooled"] - arms[best]).mean(),
        coverage90_pooled=result.loc[result["arm"] == "pooled", "inside"].mean(),
        coverage90_subject_tails=result.loc[result["arm"] == "subject tails", "inside"].mean(),
        coverage90_best_baseline=result.loc[result["arm"] == best, "inside"].mean(),
        models=int(result["model"].nunique()),
        cpu_seconds=spent.cpu,
    )


if __name__ == "__main__":
    main()
