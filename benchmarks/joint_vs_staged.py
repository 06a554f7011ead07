"""Items and trajectory in one posterior, or one after the other: do forecasts differ, and what does each cost?

Pythia arithmetic at 16 shots, 42 checkpoints x 200 items, one ability, all sizes fitted; forecasts of accuracy at two
larger sizes and two numbers of tokens. Each fit is made twice: the second time everything is compiled. Differences are
in units of the joint posterior's sd; Monte-Carlo error alone gives about 0.1.
"""

from __future__ import annotations

import argparse

import arviz as az
import numpy as np
from _common import clock, print_result

import bayes_irsl as bi

PLACES = {"params": [2e10, 2e10, 5e10, 5e10], "tokens": [3e11, 1e12, 3e11, 1e12]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=750)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    responses = bi.load_dataset("pythia-arithmetic")
    spec = bi.AbilityTrajectory(bi.ItemResponse("beta-binomial"))
    found, seconds, fits = {}, {}, {}
    for method, draws in (("staged", 4 * args.draws), ("nuts", args.draws)):
        settings = {"method": method, "draws": draws, "progress": False}
        bi.fit(spec, responses, seed=args.seed + 1, **settings)
        with clock() as spent:
            fits[method] = bi.fit(spec, responses, seed=args.seed, **settings)
        seconds[method] = spent
        found[method] = bi.forecast(fits[method], **PLACES)["accuracy"].squeeze("pool").to_numpy()
        print(f"{method}: {spent.wall:.0f} s wall, {spent.cpu:.0f} CPU s after compile")
    staged, joint = found["staged"], found["nuts"]
    shift = np.abs(staged.mean(0) - joint.mean(0)) / joint.std(0)
    spread = [np.quantile(v, 0.95, axis=0) - np.quantile(v, 0.05, axis=0) for v in (staged, joint)]
    ratio = spread[0] / spread[1]
    posterior = fits["nuts"].tree.posterior.dataset
    r_hat = az.rhat(posterior)
    ess = az.ess(posterior)
    for i, place in enumerate(zip(*PLACES.values(), strict=True)):
        for k in range(staged.shape[2]):
            print(
                f"params {place[0]:.0e}, tokens {place[1]:.0e}: staged {staged[:, i, k].mean():.3f} (90 % width "
                f"{spread[0][i, k]:.3f}), joint {joint[:, i, k].mean():.3f} ({spread[1][i, k]:.3f})"
            )
    print_result(
        largest_standardised_difference=float(shift.max()),
        width_ratio_min=float(ratio.min()),
        width_ratio_max=float(ratio.max()),
        seconds_staged=seconds["staged"].wall,
        seconds_joint=seconds["nuts"].wall,
        cpu_seconds_staged=seconds["staged"].cpu,
        cpu_seconds_joint=seconds["nuts"].cpu,
        rhat_max=max(float(v.max()) for v in r_hat.data_vars.values()),
        ess_min=min(float(v.min()) for v in ess.data_vars.values()),
        divergences=int(fits["nuts"].tree.sample_stats["diverging"].sum()),
        steps=float(fits["nuts"].tree.sample_stats["n_steps"].mean()),
    )


if __name__ == "__main__":
    main()
