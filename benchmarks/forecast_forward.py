"""Forward validation on every real set: fit what is small, forecast what is larger, ours and the laws of today.

Ours is one `AbilityTrajectory` with its default priors on every set: answers to items where there are any (an ability
per benchmark), scores of whole benchmarks elsewhere. The best baseline of a split is the law that forecasts the largest
fitted value from the smaller ones best, so it is chosen without looking ahead; the best in hindsight is printed too.
Ratios are of mean CRPS within a set; pooled, their geometric mean. Coverage is over all forecasts, its standard error
clustered by training run. With --folder every finished series is a file there and is not done again.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import _forward_sets as sets
import numpy as np
import pandas as pd
from _common import SHARED, clock, print_result, shared_data

import bayes_irsl as bi
from bayes_irsl.abilities import is_aggregate
from bayes_irsl.baselines.irsl import IrslLine
from bayes_irsl.baselines.scaling import LAWS
from bayes_irsl.forecasts.evaluation import Trajectory, forward_validation, summarise
from bayes_irsl.forecasts.scores import Transform, clustered_error

OURS = "trajectory"
COLUMNS = ["arm", "forecasts", "clusters", "crps", "inside_50", "inside_90", "width_50", "width_90", "log_score"]


def trajectory(name: str, draws: int, warmup: int) -> Trajectory:
    items = bi.ItemResponse(abilities="benchmark" if name == "pythia_term_frequency" else "one")
    return Trajectory(bi.AbilityTrajectory(items), {"draws": draws, "warmup": warmup})


def baselines(train: bi.Responses) -> dict[str, Any]:
    """The laws, and where there are answers to items IRSL's line."""
    return dict(LAWS) if is_aggregate(train) else {**LAWS, "IRSL line": IrslLine()}


def best_law(train: bi.Responses, by: str, transform: Transform | None) -> str:
    """The law that forecasts the subjects with the most of ``by`` from the others best."""
    values = train.subjects[by].to_numpy(float)
    last = np.unique(values)[-1:] if by == "params" else np.unique(values)[-max(2, len(values) // 4) :]
    inner = [("inner", train.select(subjects=values < last[0]), train.select(subjects=values >= last[0]))]
    table = forward_validation(inner, baselines(train), transform=transform, draws=400)
    return str(table.groupby("arm")["crps"].mean().idxmin())


def run_series(entry: sets.Set, splits: list[sets.Split], draws: int, warmup: int) -> pd.DataFrame:
    arms = {OURS: trajectory(entry.name, draws, warmup), **baselines(splits[0][1])}
    parts = []
    for split in splits:
        by = split[0].split()[0]
        chosen = best_law(split[1], by, entry.transform)
        parts.append(forward_validation([split], arms, transform=entry.transform).assign(chosen=chosen))
    return pd.concat(parts, ignore_index=True)


def ratios(table: pd.DataFrame) -> tuple[float, float, str]:
    """CRPS of ours over the chosen law's, over the best law's in hindsight, and that law."""
    mean = table.groupby("arm")["crps"].mean()
    chosen = table.loc[table["arm"] == table["chosen"], "crps"].mean()
    hindsight = mean.drop(OURS).idxmin()
    return mean[OURS] / chosen, mean[OURS] / mean[hindsight], str(hindsight)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="*", help="names of functions in _forward_sets.py; all by default")
    parser.add_argument("--every", type=int, default=1, help="take every so-manieth series of a set")
    parser.add_argument("--draws", type=int, default=400)
    parser.add_argument("--warmup", type=int, default=150)
    parser.add_argument("--folder", type=Path, help="keep finished series here, and go on from them")
    args = parser.parse_args()
    shared_data()
    done: dict[str, pd.DataFrame] = {}
    with clock() as spent:
        for entry in sets.load(SHARED, set(args.sets) if args.sets else None):
            parts = []
            for name, splits in entry.series[:: args.every]:
                path = None if args.folder is None else args.folder / f"{entry.name}-{name.replace(' ', '_')}.parquet"
                if path is not None and path.is_file():
                    part = pd.read_parquet(path)
                else:
                    part = run_series(entry, splits, args.draws, args.warmup).assign(series=name)
                    if path is not None:
                        path.parent.mkdir(parents=True, exist_ok=True)
                        part.to_parquet(path)
                parts.append(part)
            done[entry.name] = pd.concat(parts, ignore_index=True)
            shown = summarise(done[entry.name])[COLUMNS].round(3)
            chosen, hindsight, law = ratios(done[entry.name])
            print(f"\n{entry.name} ({entry.unit}): CRPS ratio {chosen:.2f} to the chosen law, {hindsight:.2f} to {law}")
            print(shown.to_string(index=False), flush=True)
    found = {name: ratios(table) for name, table in done.items()}
    ours = pd.concat([t[t["arm"] == OURS].assign(set=name) for name, t in done.items()], ignore_index=True)
    unit = (ours["set"] + ours["cluster"].astype(str)).to_numpy()
    keys = {f"crps_ratio_{name}": values[0] for name, values in found.items()}
    print_result(
        coverage90=ours["inside_90"].mean(),
        coverage90_se=clustered_error(ours["inside_90"].to_numpy(), unit),
        coverage50=ours["inside_50"].mean(),
        coverage50_se=clustered_error(ours["inside_50"].to_numpy(), unit),
        crps_ratio_vs_best_baseline=float(np.exp(np.mean([np.log(v[0]) for v in found.values()]))),
        crps_ratio_worst_set=max(v[0] for v in found.values()),
        crps_ratio_vs_hindsight=float(np.exp(np.mean([np.log(v[1]) for v in found.values()]))),
        forecasts=len(ours),
        clusters=len(set(unit)),
        cpu_seconds=spent.cpu,
        **keys,
    )


if __name__ == "__main__":
    main()
