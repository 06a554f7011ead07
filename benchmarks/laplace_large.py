"""2,000 x 20,000 Beta-2PL, 40 million cells: seconds, memory, and coverage of 90 % intervals of theta and b.

Questions are hard (mean p(correct) about 0.2), as where probabilities are worth modelling: next to 1 a double holds
nothing closer than 1e-16, which Beta answers of precision 20 reach on easy questions, and rounded answers are no longer
the model's.
"""

from __future__ import annotations

import argparse

import numpy as np
from _common import clock, peak_gb, print_result

import bayes_irsl as bi
from bayes_irsl.simulate import to_calibration_scale


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--subjects", type=int, default=2000)
    parser.add_argument("--items", type=int, default=20_000)
    options = parser.parse_args()
    responses, truth = bi.simulate_responses(
        options.subjects, options.items, likelihood="beta", phi=20.0, mean_intercept=-2.0, seed=3
    )
    print(*responses.notes, sep="\n")
    truth = to_calibration_scale(truth)
    with clock() as spent:
        fit = bi.fit(bi.ItemResponse("beta"), responses, method="laplace", seed=0, draws=400)
    p = fit.tree.posterior
    result = {"seconds": spent.wall, "cpu_seconds": spent.cpu, "peak_gb": peak_gb(), "cells": responses.n_obs}
    for name in ("theta", "a", "b"):
        low, high = np.quantile(p[name].values.reshape(-1, p[name].shape[-1]), [0.05, 0.95], axis=0)
        inside = (low <= truth[name].values) & (truth[name].values <= high)
        result[f"coverage90_{name}"] = float(inside.mean())
        result[f"mean_width_{name}"] = float((high - low).mean())
    print(fit.diagnostics)
    print_result(**result)


if __name__ == "__main__":
    main()
