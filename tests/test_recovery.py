"""Do 90 % intervals hold the truth nine times in ten? 200 x 200 tables, truth put on the calibration scale first."""

import numpy as np
import pytest

import bayes_irsl as bi
from bayes_irsl.simulate import to_calibration_scale

REPLICATES = 30
SETTINGS = {"laplace": {}, "svi": {}, "nuts": {"chains": 2, "draws": 500, "warmup": 200}}


@pytest.mark.slow
@pytest.mark.parametrize("likelihood", ["bernoulli", "beta"])
@pytest.mark.parametrize("method", SETTINGS)
def test_intervals_cover(method, likelihood):
    """Hard questions for Beta answers: on easy ones doubles round them to 1."""
    coverage = {name: [] for name in ("theta", "a", "b")}
    for k in range(REPLICATES):
        responses, truth = bi.simulate_responses(
            200,
            200,
            likelihood=likelihood,
            phi=20.0,
            mean_intercept={"bernoulli": 0.0, "beta": -1.5}[likelihood],
            seed=100 + k,
        )
        truth = to_calibration_scale(truth)
        fit = bi.fit(bi.ItemResponse(likelihood), responses, method=method, seed=k, **SETTINGS[method])
        for name, inside in coverage.items():
            draws = fit.tree.posterior[name].values.reshape(-1, 200)
            low, high = np.quantile(draws, [0.05, 0.95], axis=0)
            inside.append(np.mean((low <= truth[name].values) & (truth[name].values <= high)))
    for name, inside in coverage.items():
        error = np.std(inside, ddof=1) / np.sqrt(REPLICATES)
        print(f"{method} {likelihood} {name}: {np.mean(inside):.3f} (standard error {error:.3f})")
        assert error < 0.01
        assert 0.88 <= np.mean(inside) <= 0.92, f"{name}: {np.mean(inside):.3f}, standard error {error:.3f}"
