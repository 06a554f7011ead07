"""Is the Laplace approximation right? Against NUTS on simulated Beta answers and on real 0/1 answers.

Sets: Beta-2PL, 200 x 500, phi = 20; 1,000 items of MMLU-Pro (few subjects, many items). Standard deviations, and the
5, 50 and 95 % quantiles of a and b, of the two posteriors; hyperparameters; CPU seconds after compilation. With
torch_measure: seconds of its maximum likelihood fit, and the error of the fitted means against the truth.
"""

from __future__ import annotations

import argparse

import numpy as np
from _common import clock, print_result
from _torch_measure import available, fit_all
from nuts import ours, worst

import bayes_irsl as bi

SD_OF = ("theta", "intercept", "log_a")
HYPERS = ("sd_intercept", "sd_log_a", "phi", "sd_theta")
LEVELS = (0.05, 0.5, 0.95)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nuts-draws", type=int, default=4000)
    parser.add_argument("--sets", nargs="+", default=["beta", "mmlu"])
    options = parser.parse_args()
    simulated, truth = bi.simulate_responses(200, 500, likelihood="beta", phi=20.0, seed=1)
    result: dict[str, float] = {}
    if "beta" in options.sets:
        result |= compare("beta", bi.ItemResponse("beta"), simulated, options.nuts_draws)
    if "mmlu" in options.sets:
        table = bi.load_dataset("mmlu-pro")
        chosen = np.sort(np.random.default_rng(0).choice(table.n_items, 1000, replace=False))
        result |= compare(
            "mmlu",
            bi.ItemResponse("bernoulli"),
            table.select(items=table.items.index[chosen]),
            options.nuts_draws,
        )
    summary = {
        name: pick(result[f"{name}_{which}"] for which in options.sets)
        for name, pick in {
            "sd_ratio_vs_nuts_median_low": min,
            "sd_ratio_vs_nuts_median_high": max,
            "sd_ratio_vs_nuts_5": min,
            "sd_ratio_vs_nuts_95": max,
            "quantile_match_share": min,
            "hyper_max_rel_diff": max,
        }.items()
    }
    medians = (summary["sd_ratio_vs_nuts_median_low"], summary["sd_ratio_vs_nuts_median_high"])
    summary["sd_ratio_vs_nuts_median"] = max(medians, key=lambda r: abs(np.log(r)))
    print_result(**summary, **result, **torch_measure(simulated, truth, result.get("cpu_seconds_beta")))


def compare(name: str, spec: bi.ItemResponse, responses: bi.Responses, draws: int) -> dict[str, float]:
    bi.fit(spec, responses, method="laplace", seed=0)  # compiles
    with clock() as spent:
        bi.fit(spec, responses, method="laplace", seed=0)
    laplace = bi.fit(spec, responses, method="laplace", seed=0, draws=8000)
    nuts = bi.fit(spec, responses, method="nuts", seed=0, draws=draws)
    ess, rhat = worst(ours(nuts))
    ours_flat, nuts_flat = flat(laplace), flat(nuts)
    out = {f"cpu_seconds_{name}": spent.cpu, f"nuts_min_ess_{name}": ess, f"nuts_rhat_{name}": rhat}
    ratios = {k: ours_flat[k].std(0) / nuts_flat[k].std(0) for k in SD_OF}
    for k, ratio in ratios.items():
        print(
            f"{name} {k:10s} sd ratio: median {np.median(ratio):.3f}, 5-95 % "
            f"{np.quantile(ratio, 0.05):.3f} to {np.quantile(ratio, 0.95):.3f}"
        )
    out[f"sd_ratio_vs_nuts_median_low_{name}"] = min(float(np.median(r)) for r in ratios.values())
    out[f"sd_ratio_vs_nuts_median_high_{name}"] = max(float(np.median(r)) for r in ratios.values())
    out[f"sd_ratio_vs_nuts_5_{name}"] = min(float(np.quantile(r, 0.05)) for r in ratios.values())
    out[f"sd_ratio_vs_nuts_95_{name}"] = max(float(np.quantile(r, 0.95)) for r in ratios.values())
    shares = []
    for k in ("a", "b"):
        apart = np.abs(np.quantile(ours_flat[k], LEVELS, axis=0) - np.quantile(nuts_flat[k], LEVELS, axis=0))
        match = (apart / nuts_flat[k].std(0) < 0.15).all(0)
        shares.append(float(match.mean()))
        noise = np.abs(np.quantile(nuts_flat[k][::2], LEVELS, axis=0) - np.quantile(nuts_flat[k][1::2], LEVELS, axis=0))
        noise_share = float((noise / nuts_flat[k].std(0) < 0.15).all(0).mean())
        print(
            f"{name} {k}: quantiles match for {shares[-1]:.3f} of items; two halves of NUTS match each other for "
            f"{noise_share:.3f}"
        )
    out[f"quantile_match_share_{name}"] = min(shares)
    hyper = {
        k: float(np.max(np.abs(ours_flat[k].mean(0) / nuts_flat[k].mean(0) - 1))) for k in HYPERS if k in nuts_flat
    }
    print(
        name,
        "relative difference of hyperparameters:",
        {k: round(v, 4) for k, v in hyper.items()},
        flush=True,
    )
    out[f"hyper_max_rel_diff_{name}"] = max(hyper.values())
    return out


def flat(fit: bi.Fit) -> dict[str, np.ndarray]:
    """Parameters with chain and draw joined."""
    p = fit.tree.posterior
    values = {name: p[name].values.reshape(-1, *p[name].shape[2:]) for name in p.data_vars}
    return values | {"log_a": np.log(values["a"]), "intercept": -values["a"] * values["b"]}


def torch_measure(responses: bi.Responses, truth: object, ours_cpu: float | None) -> dict[str, float | None]:
    """Ratio of CPU seconds to torch_measure's default maximum likelihood fit, and both errors of the means."""
    if not available() or ours_cpu is None:
        print(
            "torch_measure: skipped (install the [bench] extra, or name an interpreter that has it in "
            "BENCH_TORCH_PYTHON)"
        )
        return {"cpu_seconds_ratio_vs_torch_measure_mle": None}
    theirs = fit_all(responses.dense()[0], [{"model": "BetaTwoPL"}])[0]
    their_mean = 1 / (1 + np.exp(-theirs["a"] * (theirs["theta"][:, None] - theirs["b"])))
    seconds = float(theirs["cpu_seconds"])
    fit = bi.fit(bi.ItemResponse("beta"), responses, method="laplace", seed=0)
    p = {k: v for k, v in flat(fit).items() if k in ("theta", "a", "b")}
    mean = np.mean(
        [
            1 / (1 + np.exp(-a * (t[:, None] - b)))
            for t, a, b in zip(p["theta"][:200], p["a"][:200], p["b"][:200], strict=True)
        ],
        0,
    )
    true = 1 / (1 + np.exp(-truth["a"].values * (truth["theta"].values[:, None] - truth["b"].values)))
    return {
        "cpu_seconds_ratio_vs_torch_measure_mle": ours_cpu / seconds,
        "rmse_mean_ours": float(np.sqrt(np.mean((mean - true) ** 2))),
        "rmse_mean_torch_measure": float(np.sqrt(np.mean((their_mean - true) ** 2))),
        "cpu_seconds_torch_measure": seconds,
    }


if __name__ == "__main__":
    main()
