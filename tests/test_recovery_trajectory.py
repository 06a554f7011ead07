"""Recovery with coverage: level, slope and correlation of trajectories that were drawn from known values."""

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

import bayes_irsl as bi
from bayes_irsl import kernels
from bayes_irsl.covariates import layout

REPLICATES = 24
NAMES = ["first", "second"]
TRUTH = {
    "level": [0.2, -0.8], "slope": [0.7, 0.45], "pull": [1.0], "bend": [0.15], "sd_drift": 0.15, "sd_own": 0.1,
    "sd_run": 0.15, "sd_residual": 0.15, "length_residual": 0.4, "correlation": [[1.0, 0.7], [0.7, 1.0]],
}  # fmt: skip


def drawn(rng):
    """Ten runs of three checkpoints: counts of two benchmarks, of 1,000 answers each."""
    compute = (np.logspace(19, 22, 10)[:, None] * np.array([0.3, 0.6, 1.0])).ravel()
    names = [f"m{i}" for i in range(30)]
    facts = pd.DataFrame({"compute": compute, "run": np.repeat([f"r{i}" for i in range(10)], 3)}, index=names)
    points, subject = layout(bi.AbilityTrajectory(), facts).points(2)
    with jax.enable_x64(True):
        h = {k: jnp.asarray(v) for k, v in TRUTH.items()}
        mean, covariance = (
            np.asarray(f) for f in (kernels.trend(h, points), kernels.prior_covariance(h, points, subject))
        )
    theta = rng.multivariate_normal(mean, covariance).reshape(2, 30).T
    rows = [
        (s, b, rng.binomial(1000, expit(theta[i, k])), 1000) for i, s in enumerate(names) for k, b in enumerate(NAMES)
    ]
    long = pd.DataFrame(rows, columns=["subject", "item", "k", "n"])
    items = pd.DataFrame({"benchmark": NAMES}, index=pd.Index(NAMES, name="item"))
    facts.index.name = "subject"
    return bi.Responses.from_long(long, successes="k", trials="n", subjects=facts, items=items)


@pytest.mark.slow
def test_intervals_of_level_slope_and_correlation_cover():
    rng = np.random.default_rng(0)
    inside, middles = {k: [] for k in ("level", "slope", "correlation")}, []
    for seed in range(REPLICATES):
        posterior = bi.fit(bi.AbilityTrajectory(), drawn(rng), seed=seed, draws=250).tree.posterior
        for name, found in inside.items():
            low, high = posterior[name].quantile([0.05, 0.95], ("chain", "draw")).to_numpy()
            truth = np.array(TRUTH[name])
            kept = np.ones(2, bool) if name != "correlation" else np.array([[False, True], [False, False]])
            found.append(((low <= truth) & (truth <= high))[kept].mean())
        middles.append(posterior["correlation"].median(("chain", "draw")).to_numpy()[0, 1])
    pooled = np.mean([np.mean(v) for v in inside.values()])
    # 24 replicates of five quantities, those of one replicate dependent: standard error some .03.
    assert 0.82 <= pooled <= 0.98, {k: np.mean(v) for k, v in inside.items()}
    assert min(np.mean(v) for v in inside.values()) >= 0.75, {k: np.mean(v) for k, v in inside.items()}
    assert np.mean(middles) > 0.35  # the prior's median is 0
