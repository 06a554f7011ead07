"""Which checkpoint to ask which question: variance of a forecast after the same cost, by what is chosen for.

Simulated runs: abilities along a line with scatter over three decades of compute, the six smallest models evaluated
before (20 questions each) and 18 that may be asked now, at a cost a question that grows with their parameters. The
forecast is of the accuracy of a model with ten times the compute of the largest. Ours asks the (checkpoint, question)
pairs that shrink the forecast's variance most for their cost; the others the pairs that tell most of each checkpoint's
own ability for its cost, and pairs at random. Variances are geometric means over simulations.
"""

from __future__ import annotations

import argparse

import numpy as np
import pandas as pd
from _common import clock, print_result

import bayes_irsl as bi

QUESTIONS, OLD, NEW, ASKED_BEFORE = 300, 6, 18, 20


def simulated(seed: int) -> tuple[bi.ItemBank, bi.Responses, pd.DataFrame, np.ndarray, np.ndarray]:
    """Bank, answers so far, all checkpoints (the last is the model to forecast), abilities, answers of everyone."""
    rng = np.random.default_rng(seed)
    a, b = np.exp(0.3 * rng.standard_normal(QUESTIONS)), rng.normal(0.3, 1.3, QUESTIONS)
    draws = 50
    bank = bi.ItemBank(
        a * np.exp(0.15 * rng.standard_normal((draws, QUESTIONS))),
        b + 0.2 * rng.standard_normal((draws, QUESTIONS)),
        pd.DataFrame({"benchmark": "quiz"}, index=[f"q{i}" for i in range(QUESTIONS)]),
        scale_id=f"simulated {seed}",
    )
    n = OLD + NEW
    compute = np.append(10 ** np.sort(rng.uniform(20, 23, n)), 1e24)
    x = np.log10(compute) - 21.5
    theta = rng.normal(0.0, 0.3) + rng.normal(0.6, 0.15) * x + 0.2 * rng.standard_normal(n + 1)
    y = rng.random((n + 1, QUESTIONS)) < 1 / (1 + np.exp(-a * (theta[:, None] - b)))
    names = [f"model {i}" for i in range(n + 1)]
    table = pd.DataFrame({"compute": compute, "price": np.sqrt(compute / 1e21)}, index=names)
    seen = np.full((OLD, QUESTIONS), np.nan)
    for i in range(OLD):
        pick = rng.choice(QUESTIONS, ASKED_BEFORE, replace=False)
        seen[i, pick] = y[i, pick]
    wide = pd.DataFrame(seen, index=names[:OLD], columns=bank.items.index)
    responses = bi.Responses.from_wide(wide, subjects=table.iloc[:OLD], items=bank.items[["benchmark"]])
    return bank, responses, table, theta, y


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--simulations", type=int, default=12)
    parser.add_argument("--questions", type=float, default=300.0, help="budget, in questions to the median checkpoint")
    args = parser.parse_args()
    policies = ("variance", "ability", "random")
    rows = []
    with clock() as spent:
        for seed in range(args.simulations):
            bank, responses, table, theta, y = simulated(seed)
            trend = bi.fit(bi.AbilityTrajectory(), responses, anchor=bank, seed=0, progress=False)
            new = table.iloc[OLD:-1]
            budget = args.questions * float(new["price"].median())
            p = 1 / (1 + np.exp(-bank.a.mean(0) * (theta[-1] - bank.b.mean(0))))
            for policy in policies:
                plan = bi.AdaptiveForecast(
                    bank, trend, new, {"compute": 1e24}, cost="price", policy=policy, stop=bi.Stop(max_cost=budget)
                )
                state = plan.start(seed)
                before = plan.result(state)
                while pairs := plan.next(state, 8):
                    for name, item in pairs:
                        value = int(y[table.index.get_loc(name), bank.items.index.get_loc(item)])
                        state = plan.answer(state, (name, item), value)
                after = plan.result(state)
                inside = bool(after["lower"] <= p.mean() <= after["upper"])
                ratio = float(after["sd"] / before["sd"]) ** 2
                rows.append((seed, policy, float(after["sd"]) ** 2, ratio, inside, len(state.answers)))
                print(rows[-1], flush=True)
    found = pd.DataFrame(rows, columns=["seed", "policy", "variance", "left", "inside", "asked"])
    print(found.groupby("policy")[["left", "inside", "asked"]].mean().round(3).to_string())
    logs = np.log(found.pivot(index="seed", columns="policy", values="variance"))
    values: dict[str, float] = {}
    for other in policies[1:]:
        gap = logs["variance"] - logs[other]
        values[f"ratio_vs_{other if other == 'random' else 'ability_target'}"] = float(np.exp(gap.mean()))
        half = 1.645 * gap.std() / np.sqrt(len(gap))
        print(
            f"against {other}: {np.exp(gap.mean()):.3f} "
            f"[{np.exp(gap.mean() - half):.3f}, {np.exp(gap.mean() + half):.3f}]"
        )
    ours = found[found["policy"] == "variance"]
    print_result(**values, coverage90=float(ours["inside"].mean()), simulations=args.simulations, cpu_seconds=spent.cpu)


if __name__ == "__main__":
    main()
