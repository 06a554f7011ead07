"""Which of 20 data recipes is better at the target, from small models only: ours, the two-step law, and IRSL's line.

Suites of DataDecide's shape (`_decide_simulators.py`): 25 recipes, 10 benchmarks, 50 questions of each. Five recipes
are known at all sizes, which is what calibrates the questions; the other twenty, 190 pairs, up to 20M, 150M or 750M
parameters. Decision accuracy is the share of pairs ordered as the expected accuracies at 1B on 1,000 questions are.

Ours is one `AbilityTrajectory` a benchmark on p(correct) of the last checkpoints, pooled over recipes, for the
population of questions. The two-step law is fitted to each recipe as Item Response Scaling Laws do, on accuracy and on
p(correct); the gain is over the better of the two at each size. "largest" ranks by p(correct) at the largest size seen.
The expected calibration error of prob_better is over pairs in ten bins of the favoured side's probability, pooled over
everything. Standard errors are clustered by replicate. With --folder every finished replicate is kept there.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import _decide_arms as arms
import _decide_simulators as sim
import numpy as np
import pandas as pd
from _common import clock, print_result
from tqdm import tqdm

from bayes_irsl.forecasts.scores import clustered_error, decision_accuracy

CUTS = {"20M": 2, "150M": 5, "750M": 8}
# What the paper reports of the two-step law, means over benchmarks, by cut: on accuracy and on p(correct).
REPORTED = {"accuracy": (0.58, 0.63, 0.76), "p(correct)": (0.63, 0.74, 0.77)}
BINS, BOOTSTRAPS = 10, 200


def replicate(number: int) -> pd.DataFrame:
    """One row a benchmark, cut, arm and pair of recipes: how the arm orders it, and how surely (ours only)."""
    world, suites = sim.simulate(number)
    first, second = np.triu_indices(sim.RECIPES - sim.TRAINING, 1)
    rows = []
    for suite in suites:
        truth = suite.truth[sim.TRAINING :]
        for cut, n_sizes in CUTS.items():
            predicted, sure = arms.all_arms(suite, n_sizes, seed=number)
            for arm, values in predicted.items():
                facts = {"replicate": number, "world": world, "benchmark": suite.benchmark.name, "cut": cut, "arm": arm}
                accuracy = decision_accuracy(values, truth)
                rows.append(pd.DataFrame({**facts, "accuracy": [accuracy]}))
            won = (truth[first] > truth[second]).astype(float)
            facts = {"replicate": number, "world": world, "benchmark": suite.benchmark.name, "cut": cut}
            rows.append(pd.DataFrame({**facts, "arm": "pair", "probability": sure, "won": won}))
    return pd.concat(rows, ignore_index=True)


def calibration(pairs: pd.DataFrame) -> tuple[float, pd.DataFrame]:
    """Expected calibration error, and the table by bin of the favoured side's probability."""
    p, won = pairs["probability"].to_numpy(), pairs["won"].to_numpy()
    p, won = np.where(p < 0.5, 1 - p, p), np.where(p < 0.5, 1 - won, won)
    part = pd.DataFrame({"bin": np.minimum(((p - 0.5) * 2 * BINS).astype(int), BINS - 1), "said": p, "came": won})
    table = part.groupby("bin").agg(said=("said", "mean"), came=("came", "mean"), pairs=("came", "size"))
    return float((table["pairs"] * (table["said"] - table["came"]).abs()).sum() / len(part)), table


def bootstrap(pairs: pd.DataFrame) -> list[float]:
    """90 % interval of the expected calibration error, whole replicates drawn anew."""
    rng = np.random.default_rng(0)
    by = {number: part for number, part in pairs.groupby("replicate")}
    found = [
        calibration(pd.concat([by[n] for n in rng.choice(list(by), len(by))], ignore_index=True))[0]
        for _ in range(BOOTSTRAPS)
    ]
    return [round(float(v), 4) for v in np.quantile(found, [0.05, 0.95])]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicates", type=int, default=50)
    parser.add_argument("--folder", type=Path, help="keep finished replicates here, and go on from them")
    parser.add_argument("--only", type=int, nargs=2, help="first replicate and step, to share the work among processes")
    args = parser.parse_args()
    parts = []
    with clock() as spent:
        numbers = range(args.replicates)[args.only[0] :: args.only[1]] if args.only else range(args.replicates)
        for number in tqdm(numbers):
            path = None if args.folder is None else args.folder / f"replicate-{number:03d}.parquet"
            if path is not None and path.is_file():
                parts.append(pd.read_parquet(path))
                continue
            parts.append(replicate(number))
            if path is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
                parts[-1].to_parquet(path)
    table = pd.concat(parts, ignore_index=True)
    arms_only, pairs = table[table["arm"] != "pair"], table[table["arm"] == "pair"]
    mean = arms_only.pivot_table(index="cut", columns="arm", values="accuracy", sort=False)
    print("\ndecision accuracy\n", mean.round(3).to_string())
    print(
        arms_only.pivot_table(index=["cut", "world"], columns="arm", values="accuracy", sort=False).round(3).to_string()
    )
    ece, bins = calibration(pairs)
    interval = bootstrap(pairs)
    print("\nprob_better of the favoured side\n", bins.round(3).to_string())
    laws = ["two-step on accuracy", "two-step on p(correct)"]
    keys = {}
    for cut in CUTS:
        best = mean.loc[cut, laws].idxmax()
        by_suite = arms_only[arms_only["cut"] == cut].pivot_table(
            index=["replicate", "benchmark"], columns="arm", values="accuracy"
        )
        gain = (by_suite["ours"] - by_suite[best]).to_numpy()
        keys[f"gain_{cut}"] = float(gain.mean())
        keys[f"gain_{cut}_se"] = clustered_error(gain, by_suite.index.get_level_values("replicate").to_numpy())
        keys[f"gain_{cut}_vs_accuracy_law"] = float((by_suite["ours"] - by_suite[laws[0]]).mean())
        keys[f"gain_{cut}_vs_irsl"] = float((by_suite["ours"] - by_suite["IRSL line"]).mean())
    off = [abs(mean.loc[c, f"two-step on {m}"] - REPORTED[m][i]) for m in REPORTED for i, c in enumerate(CUTS)]
    print_result(
        accuracy_gain_vs_two_step=min(keys[f"gain_{cut}"] for cut in CUTS),
        ece_of_prob_better=ece,
        ece_interval90=interval,
        largest_distance_from_reported_law=max(off),
        replicates=int(table["replicate"].nunique()),
        cpu_seconds=spent.cpu,
        **keys,
    )


if __name__ == "__main__":
    main()
