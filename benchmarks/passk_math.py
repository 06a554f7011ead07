"""pass@k of seven Pythia models on 128 MATH items from 20 to 500 samples, against what 10,000 samples say.

Random subsets of the samples of every cell; the truth is the unbiased estimate from all 10,000, for k up to 1,000.
Errors are of the logit of each model's mean pass@k, over log-spaced k. The best baseline of a subset is the one that
predicts it best from half of its samples, so it is chosen without the truth. Ours is the equal mixture of a tail by
model and of item curves with a Beta around them; each alone is printed beside it. Coverage is of 90 % intervals of the
given items; its standard error is over subsets and models.
"""

from __future__ import annotations

import argparse

import numpy as np
import pandas as pd
from _common import SHARED, clock, print_result, shared_data
from scipy.special import logit
from tqdm import tqdm

import bayes_irsl as bi
from bayes_irsl.baselines.passk import ESTIMATORS
from bayes_irsl.curves import pass_at_k_unbiased
from bayes_irsl.forecasts.scores import clustered_error

SAMPLES = 10_000
OURS = {"tail by model": bi.RepeatedSampling(), "item curves": bi.ItemResponse("beta-binomial")}
K = np.unique(np.round(np.logspace(0, 3, 16)))
# pass@k closer to 0 or 1 counts as this.
CLIP = 1e-5
BOOTSTRAPS = 1000


def error(estimate: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Absolute difference of logits (S, K)."""
    return np.abs(logit(np.clip(estimate, CLIP, 1 - CLIP)) - logit(np.clip(truth, CLIP, 1 - CLIP)))


def responses(c: np.ndarray, n: int) -> bi.Responses:
    items = pd.DataFrame({"benchmark": "MATH"}, index=pd.Index([f"q{j}" for j in range(c.shape[1])], name="item"))
    table = pd.DataFrame(c, columns=items.index, index=[f"m{i}" for i in range(len(c))])
    return bi.Responses.from_wide(table, trials=np.full(c.shape, n), items=items)


def chosen(c: np.ndarray, n: int, rng: np.random.Generator) -> str:
    """The baseline that predicts the subset's own pass@k, k up to n, best from half of its samples."""
    half = rng.hypergeometric(c, n - c, n // 2)
    k = np.unique(np.round(np.logspace(0, np.log10(n), 8)))
    truth = np.stack([pass_at_k_unbiased(n, c, v).mean(1) for v in k], 1)
    trials = np.full(c.shape, n // 2)
    scores = {name: error(method(half, trials, k), truth).mean() for name, method in ESTIMATORS.items()}
    return min(scores, key=scores.__getitem__)


def ratio_interval(result: pd.DataFrame, best: pd.Series) -> list[float]:
    """90 % interval of ours over the chosen baseline's error, whole models drawn anew (all subsets of one go along)."""
    rng = np.random.default_rng(0)
    ours = result[result["arm"] == "ours"].groupby(["n", "model"])["error"].mean().unstack()
    found = []
    for _ in range(BOOTSTRAPS):
        drawn = rng.choice(ours.columns, ours.shape[1])
        found.append(ours[drawn].to_numpy().mean() / best.unstack()[drawn].to_numpy().mean())
    return [round(float(v), 3) for v in np.quantile(found, [0.05, 0.95])]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--subsets", type=int, default=20)
    parser.add_argument("--samples", type=int, nargs="*", default=[20, 50, 100, 500])
    parser.add_argument("--first", type=int, default=0, help="number of the first subset")
    args = parser.parse_args()
    shared_data()
    table = pd.read_csv(SHARED / "pythia_monkeys" / "llmonkeys_math_pythia7_n10000.csv")
    full = table.pivot(index="model", columns="item", values="c").to_numpy()
    truth = np.stack([pass_at_k_unbiased(SAMPLES, full, k).mean(1) for k in K], 1)
    rows = []
    with clock() as spent:
        for n in args.samples:
            for seed in tqdm(range(args.first, args.first + args.subsets), desc=f"{n} samples"):
                rng = np.random.default_rng([seed, n])
                c = rng.hypergeometric(full, SAMPLES - full, n)
                found = {name: method(c, np.full(c.shape, n), K) for name, method in ESTIMATORS.items()}
                fits = [bi.fit(spec, responses(c, n), seed=seed, progress=False) for spec in OURS.values()]
                intervals = {}
                for name, fit in zip([*OURS, "ours"], [*fits, fits], strict=True):
                    draws = bi.pass_at_k(fit, K, seed=seed)["pass_at_k"].to_numpy()[:, :, 0]
                    found[name], intervals[name] = np.median(draws, 0), np.quantile(draws, [0.05, 0.95], axis=0)
                best = chosen(c, n, rng)
                for name, values in found.items():
                    off = error(values, truth)
                    for m in range(len(full)):
                        row = {"n": n, "seed": seed, "model": m, "arm": name, "error": off[m].mean(), "chosen": best}
                        if name in intervals:
                            low, high = intervals[name][:, m]
                            row["inside"] = ((low <= truth[m]) & (truth[m] <= high)).mean()
                            row["width"] = (logit(high.clip(CLIP)) - logit(low.clip(CLIP))).mean()
                        rows.append(row)
    result = pd.DataFrame(rows)
    table = result.pivot_table(index="arm", columns="n", values="error")
    print(f"\nmean absolute error of logit pass@k\n{table.round(3).to_string()}")
    ours = result[result["arm"] == "ours"]
    print(result.dropna(subset="inside").groupby(["arm", "n"])[["inside", "width"]].mean().round(3))
    print(result[result["arm"] == "ours"].groupby(["n", "chosen"]).size().rename("model-subsets"))
    of_chosen = result[result["arm"] == result["chosen"]].groupby(["n", "model"])["error"].mean()
    best = of_chosen.groupby("n").mean()
    of_bb = result[result["arm"] == "beta-binomial ML"].groupby(["n", "model"])["error"].mean()
    mean = result.pivot_table(index="n", columns="arm", values="error")
    keys = {}
    for n in args.samples:
        keys[f"ratio_bb_{n}"] = mean.loc[n, "ours"] / mean.loc[n, "beta-binomial ML"]
        keys[f"ratio_best_{n}"] = mean.loc[n, "ours"] / best[n]
        keys[f"coverage90_{n}"] = ours.loc[ours["n"] == n, "inside"].mean()
    laws = [arm for arm in mean.columns if arm not in ("ours", *OURS)]
    print_result(
        error_ratio_vs_hindsight=mean["ours"].mean() / mean[laws].min(axis=1).mean(),
        error_ratio_vs_beta_binomial_ml=mean["ours"].mean() / mean["beta-binomial ML"].mean(),
        error_ratio_vs_best_baseline=mean["ours"].mean() / best.mean(),
        interval90_vs_best_baseline=ratio_interval(result, of_chosen),
        interval90_vs_beta_binomial_ml=ratio_interval(result, of_bb),
        coverage90=ours["inside"].mean(),
        coverage90_se=clustered_error(ours["inside"].to_numpy(), (ours["seed"] * 10_000 + ours["n"]).to_numpy()),
        subsets=args.subsets,
        cpu_seconds=spent.cpu,
        **keys,
    )


if __name__ == "__main__":
    main()
