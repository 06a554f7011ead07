"""Which question next: error, coverage and questions saved on recorded answers of real models.

Subjects are left out of the calibration by folds and tested as newcomers, the target being their accuracy on all
questions, which is known. All policies have the same estimator: curves averaged over the bank's posterior, departures
learned from each calibration (bi.departures). What is asked differs: by expected posterior variance (ours), Fisher
information at the posterior mean, or at random (three sessions a subject). Standard errors and intervals are over
subjects, by bootstrap where they are of ratios.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
import xarray as xr
from _common import clock, print_result
from heldout_cells import digit_mat, mmlu_pro, pythia

import bayes_irsl as bi

AT = (3, 5, 7, 10, 14, 20, 30, 50, 70, 100)
CELLS, POOLED = (5, 10, 20, 50, 100), (10, 20, 50, 100)
SETS = {
    "mmlu_pro": (mmlu_pro, bi.ItemResponse(), {}),
    "digit_mat": (digit_mat, bi.ItemResponse(precision="item"), {}),
    # Additions and multiplications are two kinds of question.
    "pythia": (pythia, bi.ItemResponse(), {"by": "category"}),
}
BOOTSTRAP = 4000


def rmse(square: np.ndarray) -> np.ndarray:
    """Root mean square over subjects, the last axis but one: (..., subject, asked) -> (..., asked)."""
    return np.sqrt(np.nanmean(square, axis=-2))


def squares(found: xr.Dataset, policy: str) -> np.ndarray:
    """Squared errors (subject, asked), repeats averaged."""
    error = (found["estimate"] - found["truth"]).sel(policy=policy)
    return (error**2).mean("repeat").transpose("subject", "asked").to_numpy()


def needed(curve: np.ndarray, goal: float) -> float:
    """Questions after which an error curve first is at the goal, straight in logarithms between what was noted."""
    below = np.flatnonzero(curve <= goal)
    if not below.size:
        return float(AT[-1]) * float(curve[-1] / goal) ** 2  # as if it went on like 1 / sqrt(n)
    i = int(below[0])
    if i == 0:
        return float(AT[0])
    x, y = np.log(AT[i - 1 : i + 1]), np.log(curve[i - 1 : i + 1])
    return float(np.exp(np.interp(-np.log(goal), -y, x)))


def compared(ours: np.ndarray, other: np.ndarray) -> tuple[float, np.ndarray]:
    """Questions of ours for the error of the other at 50, over 50; ratios of errors (asked,)."""
    a, b = rmse(ours), rmse(other)
    return needed(a, float(b[AT.index(50)])) / 50, a / b


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="+", choices=list(SETS), default=list(SETS))
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="keeps each set's sessions, and takes those that are there")
    args = parser.parse_args()
    every: dict[str, xr.Dataset] = {}
    with clock() as spent:
        for name in args.sets:
            load, spec, options = SETS[name]
            path = None if args.folder is None else args.folder / f"{name}-{args.folds}.nc"
            if path is not None and path.exists():
                with xr.open_dataset(path) as kept:
                    every[name] = kept.load()
                continue
            every[name] = bi.replay(load(), spec, at=AT, folds=args.folds, progress=True, **options)
            if path is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
                every[name].to_netcdf(path)
    for name, found in every.items():
        table = bi.replay_summary(found)
        shown = table[table["asked"].isin(CELLS)].pivot(index="policy", columns="asked")
        print(f"\n{name}: {int(table['subjects'].max())} subjects")
        print(shown[["rmse", "rmse_se", "sd", "coverage"]].round(3).to_string())
    rng = np.random.default_rng(0)
    pairs = {p: {n: (squares(f, "variance"), squares(f, p)) for n, f in every.items()} for p in ("random", "fisher")}

    def pooled(policy: str, rows: dict[str, np.ndarray] | None = None) -> tuple[float, float]:
        saved, ratio = [], []
        for name, (ours, other) in pairs[policy].items():
            pick = slice(None) if rows is None else rows[name]
            questions, errors = compared(ours[pick], other[pick])
            saved.append(np.log(questions))
            ratio.append(np.log(errors[[AT.index(n) for n in POOLED]]).mean())
        return float(np.exp(np.mean(saved))), float(np.exp(np.mean(ratio)))

    again = [{n: rng.integers(0, len(o), len(o)) for n, (o, _) in pairs["random"].items()} for _ in range(BOOTSTRAP)]
    worse = []
    for name, (ours, other) in pairs["random"].items():
        boot = np.stack([compared(ours[rows[name]], other[rows[name]])[1] for rows in again])
        low, high = np.quantile(boot, [0.05, 0.95], axis=0)
        questions, errors = compared(ours, other)
        cells = [(n, errors[AT.index(n)], low[AT.index(n)], high[AT.index(n)]) for n in CELLS]
        worse += [f"{name} at {n}" for n, _, lo, _ in cells if lo > 1]
        text = ", ".join(f"{n}: {r:.2f} [{lo:.2f}, {hi:.2f}]" for n, r, lo, hi in cells)
        against = compared(*pairs["fisher"][name])[0]
        print(f"{name}: questions / random's 50 {questions:.2f}, / Fisher's 50 {against:.2f}; RMSE / random's {text}")
    inside = []
    for found in every.values():
        held = (found["lower"] <= found["truth"]) & (found["truth"] <= found["upper"])
        part = held.sel(policy="variance", asked=list(POOLED)).isel(repeat=0)
        there = found["estimate"].sel(policy="variance", asked=list(POOLED)).isel(repeat=0).notnull()
        inside.append(pd.Series(part.where(there).mean("asked").to_numpy()).dropna())
    covered = pd.concat(inside)
    values = {}
    for policy in ("random", "fisher"):
        values[policy] = pooled(policy)
        boot = np.array([pooled(policy, rows) for rows in again[:1000]])
        low, high = np.quantile(boot, [0.05, 0.95], axis=0)
        print(
            f"against {policy}: questions {values[policy][0]:.3f} [{low[0]:.3f}, {high[0]:.3f}], "
            f"RMSE {values[policy][1]:.3f} [{low[1]:.3f}, {high[1]:.3f}]"
        )
    print(f"worse than random: {worse or 'nowhere'}; {spent.cpu:.0f} CPU s")
    print_result(
        questions_ratio_vs_random=values["random"][0],
        questions_ratio_vs_fisher=values["fisher"][0],
        rmse_ratio_vs_random=values["random"][1],
        worse_than_random_cells=len(worse),
        coverage90=float(covered.mean()),
        coverage90_se=float(covered.std() / np.sqrt(len(covered))),
        subjects=len(covered),
        cpu_seconds=spent.cpu,
    )


if __name__ == "__main__":
    main()
