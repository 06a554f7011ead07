"""The prior predictive: exact means, cells that were not answered, and priors that miss what was seen."""

import numpy as np
import pytest

import bayes_irsl as bi
from bayes_irsl.errors import InputError


@pytest.mark.parametrize("missing", [0.0, 0.3, 0.8])
def test_shapes_and_symmetry(missing):
    """Priors are symmetric in right and wrong, so the expected mean is 1/2, whoever answered what."""
    responses, _ = bi.simulate_responses(30, 20, missing=missing, seed=1)
    out = bi.prior_predictive(bi.ItemResponse(), responses, draws=600)
    assert out["subject_mean"].shape == (600, 30)
    assert out["item_mean"].shape == (600, 20)
    # sd of the mean over draws is at most 0.5: 5 standard errors.
    assert float(out["mean"].mean()) == pytest.approx(0.5, abs=5 * 0.5 / np.sqrt(600))
    assert float(out["seen_mean"]) == pytest.approx(responses.rate.mean())
    label = responses.items.index[3]
    mine = responses.rate[responses.item_index == 3]
    assert float(out["seen_item_mean"].sel(item=label)) == pytest.approx(mine.mean())


def test_counts_are_shares_and_benchmarks_may_have_their_own_ability():
    responses, _ = bi.simulate_responses(10, 12, likelihood="beta-binomial", trials=7, n_benchmarks=2)
    out = bi.prior_predictive(bi.ItemResponse(abilities="benchmark"), responses, draws=50)
    assert 0 <= float(out["subject_mean"].min()) <= float(out["subject_mean"].max()) <= 1


def test_a_prior_that_misses_is_named():
    responses, _ = bi.simulate_responses(40, 40, mean_intercept=1.5, sd_intercept=0.5)
    narrow = bi.ItemPriors(mean_intercept=bi.Normal(-2.0, 0.1), sd_intercept=bi.HalfNormal(0.1))
    summary = bi.prior_predictive(bi.ItemResponse(priors=narrow), responses, draws=100).attrs["summary"]
    assert "OUTSIDE" in summary.splitlines()[0]
    assert (
        "OUTSIDE" not in bi.prior_predictive(bi.ItemResponse(), responses, draws=200).attrs["summary"].splitlines()[0]
    )
    with pytest.raises(InputError, match="draws = 3"):
        bi.prior_predictive(bi.ItemResponse(), responses, draws=3)
