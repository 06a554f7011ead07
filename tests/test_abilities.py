"""First stage of trajectories: normal summaries of what answers say of abilities."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy import stats
from scipy.special import expit, logit

import bayes_irsl as bi
from bayes_irsl.abilities import count_estimates, from_answers, from_item_draws, from_scores, is_aggregate
from bayes_irsl.errors import InputError
from bayes_irsl.forecasts.score_table import score_table


def draws_of(mean, covariance, n, rng):
    """Draws with exactly this mean and covariance."""
    z = rng.standard_normal((n, len(mean)))
    z = (z - z.mean(0)) @ np.linalg.inv(np.linalg.cholesky(np.cov(z.T, ddof=1).reshape(len(mean), -1))).T
    return mean + z @ np.linalg.cholesky(covariance).T


def test_the_prior_is_taken_out_again():
    """Normal likelihood times normal prior: the estimate and its error come back."""
    rng = np.random.default_rng(0)
    prior = np.array([[1.0, 0.5], [0.5, 1.0]])
    error = np.array([[0.3, 0.1], [0.1, 0.6]])
    estimate = np.array([1.2, -0.7])
    posterior = np.linalg.inv(np.linalg.inv(prior) + np.linalg.inv(error))
    mean = posterior @ np.linalg.solve(error, estimate)
    found = from_item_draws(draws_of(mean, posterior, 400, rng)[:, None], prior, ("x", "y"))
    np.testing.assert_allclose(found.mean[0], estimate, rtol=1e-6)
    np.testing.assert_allclose(found.error[0], error, rtol=1e-6)
    np.testing.assert_allclose(np.cov(found.draws[:, 0].T), error, rtol=1e-6)
    np.testing.assert_allclose(found.draws[:, 0].mean(0), estimate, rtol=1e-6)


def test_draws_keep_their_order():
    """Abilities of draw d stay those of draw d: the items of that draw belong to them."""
    rng = np.random.default_rng(1)
    theta = draws_of(np.array([0.4]), np.array([[0.05]]), 200, rng)
    found = from_item_draws(theta[:, None], np.eye(1), ("ability",))
    assert stats.spearmanr(found.draws[:, 0, 0], theta[:, 0]).statistic == pytest.approx(1.0)


def test_an_ability_without_answers_is_uninformative_but_finite():
    theta = draws_of(np.zeros(1), np.eye(1) * 1.02, 300, np.random.default_rng(2))
    found = from_item_draws(theta[:, None], np.eye(1), ("ability",))
    assert found.error[0, 0, 0] > 10
    assert np.isfinite(found.draws).all()


def test_the_noise_of_few_draws_is_no_estimate():
    """Prior draws whose mean is off by noise: the estimate must lie within a few of its own errors of nothing."""
    for seed in range(20):
        theta = np.random.default_rng(seed).standard_normal((400, 1, 1)) + 0.1
        found = from_item_draws(theta, np.eye(1), ("ability",))
        assert abs(found.mean[0, 0]) < 4 * found.error[0, 0, 0] ** 0.5


@pytest.mark.parametrize(("k", "n", "chance"), [(50, 100, 0.0), (990, 1000, 0.0), (60, 100, 0.25)])
def test_counts_agree_with_the_likelihood_around_its_top(k, n, chance):
    """Where the likelihood is nearly normal: maximum and curvature by hand."""
    mean, error = count_estimates(np.array([k]), np.array([n]), np.array([chance]))
    share = (k / n - chance) / (1 - chance)
    theta = logit(share)
    slope = (1 - chance) * share * (1 - share)
    information = n * slope**2 / ((k / n) * (1 - k / n))
    assert mean[0] == pytest.approx(theta, abs=0.35 * information**-0.5)
    assert error[0] == pytest.approx(1 / information, rel=0.15)


def test_none_right_is_low_and_vague():
    mean, error = count_estimates(np.array([0, 0]), np.array([50, 5000]), np.zeros(2))
    assert mean[1] < mean[0] < logit(1 / 50)
    assert (error > 0.5).all()


def test_scores_of_benchmarks_become_logits():
    table = pd.DataFrame({"subject": list("aabb"), "item": list("xyxy"), "k": [30, 0, 60, 5], "n": [100, 50, 100, 50]})
    r = bi.Responses.from_long(
        table, successes="k", trials="n",
        items=pd.DataFrame({"benchmark": ["x", "y"]}, index=pd.Index(["x", "y"], name="item")),
    )  # fmt: skip
    assert is_aggregate(r)
    found = from_scores(r, np.zeros(2), 500, np.random.default_rng(0))
    assert found.dimensions == ("x", "y")
    np.testing.assert_allclose(expit(found.mean[:, 0]), [0.3, 0.6], atol=0.01)
    np.testing.assert_allclose(found.draws.std(0), np.sqrt(np.einsum("sdd->sd", found.error)), rtol=0.15)


def test_a_score_at_its_floor_without_trials_is_refused():
    r = bi.Responses.from_wide(pd.DataFrame({"x": [0.25, 0.4]}, index=["a", "b"]))
    with pytest.raises(InputError, match=r"score 0\.25 of 'a' on .* not between its chance level 0\.25 and 1"):
        from_scores(r, np.array([0.25]), 10, np.random.default_rng(0))


def test_score_table_by_hand():
    r = bi.Responses.from_long(
        pd.DataFrame({"subject": list("aaab"), "item": list("xyzx"), "answer": [1, 0, 1, 1]}),
        subjects=pd.DataFrame(
            {"params": [1e9, 2e9], "tokens": [1e10, 1e10]}, index=pd.Index(["a", "b"], name="subject")
        ),
        items=pd.DataFrame(
            {"benchmark": ["m", "m", "w"], "chance": [0.25, 0.25, 0.5]}, index=pd.Index(list("xyz"), name="item")
        ),
    )
    found = score_table(r).set_index(["subject", "benchmark"])
    assert found.loc[("a", "m"), ["score", "answers", "chance"]].tolist() == [0.5, 2, 0.25]
    assert found.loc[("a", "w"), "score"] == 1
    assert found.loc[("b", "m"), "compute"] == 6 * 2e9 * 1e10
    assert ("b", "w") not in found.index


def test_few_answers_to_a_banks_items_are_summarised_as_the_bank_scores_them():
    """Draws of abilities would not do: their prior's sd is in doubt, and cannot be taken out again."""
    rng = np.random.default_rng(0)
    a, b = np.exp(0.3 * rng.standard_normal((50, 80))), rng.normal(0, 1, 80) + 0.2 * rng.standard_normal((50, 80))
    table = pd.DataFrame(
        np.full((6, 80), np.nan), index=[f"s{i}" for i in range(6)], columns=[f"q{j}" for j in range(80)]
    )
    for i in range(6):
        for j in rng.choice(80, 15, replace=False):
            table.iloc[i, j] = float(rng.random() < expit(i / 2 - 1 - b[0, j]))
    r = bi.Responses.from_wide(table)
    order = r.items.index.str[1:].astype(int)
    drawn = xr.Dataset({"a": (("sample", "item"), a[:, order]), "b": (("sample", "item"), b[:, order])})
    found = from_answers(drawn, r, "bernoulli", None, rng)
    bank = bi.ItemBank(a, b, pd.DataFrame(index=[f"q{j}" for j in range(80)]))
    scored = bi.score(bank, r, prior=(0.0, 3.0), benchmarks=False)
    # What the cavity Normal(0, 3) adds again to the estimates.
    precision = 1 / found.error[:, 0, 0] + 1 / 9
    assert found.mean[:, 0] / found.error[:, 0, 0] / precision == pytest.approx(scored["ability_mean"].values, abs=0.01)
    assert 1 / np.sqrt(precision) == pytest.approx(scored["ability_sd"].values, rel=0.01)
