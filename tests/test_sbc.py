"""Ranks and simulation-based calibration: the check itself (fast), every model of the engine (slow)."""

from dataclasses import dataclass

import numpy as np
import pytest
import xarray as xr
from scipy import stats

import bayes_irsl as bi
from bayes_irsl.diagnostics.ranks import calibration_check, rank_p_values
from bayes_irsl.errors import InputError
from bayes_irsl.inference.sbc import ItemResponseTarget, simulation_based_calibration

# Next to 1 a double resolves 1e-16, and Beta answers of an easy question lie closer: under the default priors 4 % of
# simulated answers would be rounded, and rounded answers are no longer the model's (the check does see it: log
# likelihood p < 0.0005). Harder questions and a precision near 20 leave 0.1 %.
HARD = bi.ItemPriors(
    mean_intercept=bi.Normal(-1.0, 0.5),
    sd_intercept=bi.HalfNormal(0.7),
    sd_theta=bi.LogNormal(-0.3, 0.3),
    log_phi=bi.Normal(3.0, 0.5),
)


def dataset(rank, draws):
    names = [f"q{k}" for k in range(rank.shape[1])]
    return xr.Dataset({"rank": (("simulation", "quantity"), rank)}, {"quantity": names}, {"draws": draws})


def test_p_values_of_uniform_ranks_are_uniform():
    rank = np.random.default_rng(1).integers(0, 64, (200, 600))
    p = rank_p_values(rank, 63)
    assert stats.kstest(p, "uniform").pvalue > 0.01
    assert calibration_check(dataset(rank[:, :50], 63)).verdict == "PASS"


@pytest.mark.parametrize(
    ("shape", "column"), [((1.5, 1.0), "mean_rank"), ((0.5, 0.5), "spread"), ((2.0, 2.0), "spread")]
)
def test_wrong_ranks_fail_and_the_table_says_how(shape, column):
    """Biased, too narrow and too wide posteriors, of 200 simulations."""
    draws, rng = 63, np.random.default_rng(2)
    good = rng.integers(0, draws + 1, (200, 20))
    bad = np.floor(rng.beta(*shape, 200) * (draws + 1)).astype(int)
    check = calibration_check(dataset(np.column_stack([good, bad]), draws))
    assert check.verdict == "FAIL"
    assert check.table.index[0] == "q20"
    right = {"mean_rank": 0.5, "spread": 1.0}[column]
    assert abs(check.table[column].iloc[0] - right) > 0.04
    assert "q20" in check.detail


def test_p_value_by_hand():
    """One draw, three simulations, all ranks 0: P(all in one half) = 2 / 8 = 0.25."""
    assert rank_p_values(np.zeros((3, 1), int), 1)[0] == pytest.approx(0.25, abs=0.03)


def small(folder=None, **changes):
    settings = {"simulations": 12, "draws": 15, "thin": 1, "warmup": 40, "shard": 6, "seed": 5, "max_tree_depth": 4}
    target = ItemResponseTarget(bi.ItemResponse("bernoulli", curve="1pl"), 5, 4)
    return simulation_based_calibration(target, folder=folder, **(settings | changes))


def test_a_stopped_run_goes_on_and_gives_the_same_ranks(tmp_path):
    whole = small(tmp_path)
    assert whole["rank"].shape == (12, 5 + 4 + 4)
    assert int(whole["rank"].max()) <= 15
    files = sorted(tmp_path.iterdir())
    assert len(files) == 2
    kept = files[0].stat().st_mtime_ns
    files[1].unlink()
    xr.testing.assert_identical(small(tmp_path), whole)
    assert files[0].stat().st_mtime_ns == kept
    small(tmp_path, seed=6)
    assert len(list(tmp_path.iterdir())) == 4


def test_bad_arguments():
    with pytest.raises(InputError, match="simulations = 3"):
        small(simulations=3)


@dataclass(frozen=True)
class Tempered(ItemResponseTarget):
    """A sampler whose acceptance uses a log density 1.3 times the right one: draws lie too close together."""

    def potential(self, z, data):
        return 1.3 * super().potential(z, data)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("likelihood", "curve", "priors"),
    [
        ("bernoulli", "1pl", bi.ItemPriors()),
        ("bernoulli", "2pl", bi.ItemPriors()),
        ("bernoulli", "3pl", bi.ItemPriors()),
        ("binomial", "2pl", bi.ItemPriors()),
        ("beta-binomial", "2pl", bi.ItemPriors()),
        ("beta", "2pl", HARD),
        ("ordered-beta", "2pl", bi.ItemPriors()),
        ("zero-one-beta", "2pl", HARD),
    ],
)
def test_nuts_is_calibrated(likelihood, curve, priors):
    ranks = simulation_based_calibration(bi.ItemResponse(likelihood, curve=curve, priors=priors))
    check = calibration_check(ranks)
    assert check.verdict == "PASS", f"{check.detail}\n{check.table.head(8)}"


@pytest.mark.slow
def test_a_wrong_sampler_is_rejected():
    check = calibration_check(simulation_based_calibration(Tempered(bi.ItemResponse("bernoulli"))))
    assert check.verdict == "FAIL"


@pytest.mark.slow
def test_a_wrong_prior_is_rejected():
    """Intercepts are fitted as if they spread by 0.3, and come from the default prior."""
    wrong = bi.ItemResponse("bernoulli", priors=bi.ItemPriors(sd_intercept=bi.HalfNormal(0.3)))
    check = calibration_check(
        simulation_based_calibration(ItemResponseTarget(bi.ItemResponse("bernoulli"), fitted=wrong))
    )
    assert check.verdict == "FAIL"
    assert check.table.loc["sd_intercept[0]", "p"] < 0.001
