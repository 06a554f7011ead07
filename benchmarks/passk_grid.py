"""pass@k of larger models than were sampled: the GSM8K grid of Pythia checkpoints, sizes up to a cut, then the others.

81 checkpoints (9 sizes, 9 numbers of tokens) x 130 problems, 128 to millions of samples each. Ours follows location and
tail exponent of the success rates over parameters and tokens. The laws beside it take observed pass@k as a score, k by
k, with a residual bootstrap; the best of them is named in hindsight. Scored against unbiased estimates, in decades of
pass@k; checkpoints without a success are left out of the score. Errors are clustered by size.
"""

from __future__ import annotations

import argparse

import numpy as np
import pandas as pd
from _common import SHARED, clock, print_result, shared_data
from tqdm import tqdm

import bayes_irsl as bi
from bayes_irsl.baselines.scaling import LAWS
from bayes_irsl.forecasts.scores import clustered_error, score_draws
from bayes_irsl.plots import observed_pass_at_k

K = (1, 10, 100)
LEAST = 1e-9
BOOTSTRAPS = 1000
# The two-step law needs losses, which this grid does not have.
BESIDE = {name: law for name, law in LAWS.items() if name != "two-step"}


def decades(p: np.ndarray) -> np.ndarray:
    return np.log10(np.maximum(p, LEAST))


def grid() -> bi.Responses:
    table = pd.read_parquet(SHARED / "pythia_monkeys" / "gsm8k_grid_counts.parquet").astype({"model": str, "item": str})
    subjects = table.drop_duplicates("model").set_index("model")[["params", "tokens"]].astype(float)
    subjects.index.name = "subject"
    subjects["run"] = subjects["params"].map("{:.0f}".format)
    subjects["compute"] = 6 * subjects["params"] * subjects["tokens"]
    items = pd.DataFrame({"benchmark": "gsm8k"}, index=pd.Index(table["item"].unique(), name="item"))
    long = table.rename(columns={"model": "subject"})[["subject", "item", "c", "n"]]
    return bi.Responses.from_long(long, successes="c", trials="n", subjects=subjects, items=items)


def ratio_interval(own: pd.DataFrame, law: pd.DataFrame) -> list[float]:
    """90 % interval of the ratio of mean CRPS, whole sizes drawn anew."""
    rng = np.random.default_rng(0)
    sums = [t.groupby("size")["crps"].sum() for t in (own, law)]
    picks = rng.integers(len(sums[0]), size=(BOOTSTRAPS, len(sums[0])))
    ratios = sums[0].to_numpy()[picks].sum(1) / sums[1].to_numpy()[picks].sum(1)
    return [round(float(v), 3) for v in np.quantile(ratios, [0.05, 0.95])]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=400)
    args = parser.parse_args()
    shared_data()
    rows = []
    with clock() as spent:
        for name, train, test in tqdm(bi.forward_splits(grid())):
            fit = bi.fit(bi.AbilityTrajectory(bi.RepeatedSampling()), train, draws=args.draws, progress=False)
            facts = test.subjects
            where = {"params": facts["params"].to_numpy(float), "tokens": facts["tokens"].to_numpy(float)}
            ours = bi.pass_at_k(fit, K, population=True, **where)["pass_at_k"].to_numpy()[:, 0, :, 0]
            seen, truth = (observed_pass_at_k(r, K) for r in (train, test))
            rng = np.random.default_rng(0)
            for i, k in enumerate(K):
                part = truth[truth["k"] == k].set_index("subject")["pass_at_k"].reindex(facts.index)
                table = seen[seen["k"] == k].rename(columns={"pass_at_k": "score"}).join(train.subjects, on="subject")
                table = table[table["score"] > 0].assign(answers=1e12, chance=0.0)
                laws = {arm: law(table, facts.reset_index(), rng, 1000) for arm, law in BESIDE.items()}
                kept = (part > 0).to_numpy()
                for arm, draws in {"ours": ours[:, :, i], **laws}.items():
                    scores = score_draws(draws[:, kept], part.to_numpy()[kept], decades)
                    rows.append(pd.DataFrame({"split": name, "k": k, "arm": arm, "size": facts["run"][kept]} | scores))
    result = pd.concat(rows, ignore_index=True)
    print(result.groupby(["k", "arm"])[["crps", "inside_50", "inside_90", "width_90"]].mean().round(3).to_string())
    crps = result.groupby("arm")["crps"].mean()
    best = crps.drop("ours").idxmin()
    own, law = (result[result["arm"] == a] for a in ("ours", best))
    print_result(
        best_baseline=best,
        crps_ratio=crps["ours"] / crps[best],
        crps_ratio_interval90=ratio_interval(own, law),
        coverage90=own["inside_90"].mean(),
        coverage90_se=clustered_error(own["inside_90"].to_numpy(), own["size"].to_numpy()),
        coverage50=own["inside_50"].mean(),
        coverage90_law=law["inside_90"].mean(),
        forecasts=len(own),
        sizes=int(own["size"].nunique()),
        cpu_seconds=spent.cpu,
    )


if __name__ == "__main__":
    main()
