"""Simulation-based calibration of repeated sampling: ranks are uniform, and wrong fits are told from right ones."""

import jax
import pytest

import bayes_irsl as bi
from bayes_irsl.diagnostics.ranks import calibration_check
from bayes_irsl.inference.sbc import simulation_based_calibration
from bayes_irsl.inference.sbc_rates import RatesTarget


def check(target, simulations=200):
    with jax.enable_x64(True):
        ranks = simulation_based_calibration(target, simulations=simulations, draws=63, shard=100, sampler="importance")
        return calibration_check(ranks)


def test_a_small_run_ranks_every_quantity():
    with jax.enable_x64(True):
        found = simulation_based_calibration(
            RatesTarget(bi.RepeatedSampling(), n_subjects=2, n_items=6, trials=4),
            simulations=10, draws=15, sampler="importance",
        )  # fmt: skip
    names = set(found["quantity"].to_numpy().tolist())
    assert names == {"mean_location", "sd_location", "mean_shape", "tie", "sd_shape", "log_likelihood"}
    assert found["rank"].shape == (10, 6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spec", "simulations"),
    [(bi.RepeatedSampling(), 200), (bi.RepeatedSampling(never=True), 100), (bi.RepeatedSampling("logit-student"), 100)],
    ids=["beta", "some never solved", "heavy-tailed"],
)
def test_ranks_are_uniform(spec, simulations):
    found = check(RatesTarget(spec), simulations)
    assert found.verdict == "PASS", found.detail


@pytest.mark.slow
@pytest.mark.parametrize(
    "fitted",
    [
        bi.RepeatedSampling(priors=bi.SamplingPriors(mean_shape=bi.Normal(0.5, 0.3))),
        bi.RepeatedSampling(priors=bi.SamplingPriors(sd_location=bi.LogNormal(1.5, 0.3))),
    ],
    ids=["tails too light", "subjects too far apart"],
)
def test_wrong_fits_fail(fitted):
    assert check(RatesTarget(bi.RepeatedSampling(), fitted=fitted)).verdict == "FAIL"
