"""Complaints of users about items, reproduced number by number with real fits."""

import arviz as az
import numpy as np
import pandas as pd
import pytest
from fit_stand_in import biased_families, sigmoid

import bayes_irsl as bi
from bayes_irsl.diagnostics import diagnose
from bayes_irsl.diagnostics.families import family_table
from bayes_irsl.diagnostics.items import residuals
from bayes_irsl.diagnostics.predict import cell_moments, take_draws
from bayes_irsl.diagnostics.tables import item_table, most_discriminating


def stacked(fit, name):
    values = fit.tree.posterior[name].values
    return values.reshape(-1, *values.shape[2:])


def answered(rng, mean):
    return (rng.random(mean.shape) < mean).astype(float)


# --- guessing ---------------------------------------------------------------------------------------------------------


def check_guessing(fits):
    """BIN-04: b agrees over runs; c stays small, or the fit says that it has not converged."""
    b = np.stack([stacked(fit, "b").mean(0) for fit in fits])
    assert np.corrcoef(b)[np.triu_indices(len(fits), 1)].min() >= 0.98
    for fit in fits:
        c = np.median(stacked(fit, "c"), 0)
        assert np.mean(c < 0.15) > 0.5
        assert c.max() < 0.5


def guessing_fits(responses, seeds, **options):
    return [bi.fit(bi.ItemResponse(curve="3pl"), responses, seed=seed, **options) for seed in seeds]


def test_bin_04_a_guessing_model_is_stable_where_nobody_guesses():
    """BIN-04 in small: answers of a 2PL, five runs of a 3PL."""
    responses, _ = bi.simulate_responses(100, 8, curve="2pl", seed=1)
    check_guessing(guessing_fits(responses, range(5), draws=400))


@pytest.mark.slow
def test_bin_04_runs_of_1700_by_20():
    """BIN-04 at its size: 1,700 models x 20 items of a 2PL, two seeds; a fit that has not converged says so.

    Two and not five, because a run takes minutes and the mode that Laplace finds does not hang on the seed.
    """
    responses, _ = bi.simulate_responses(1700, 20, curve="2pl", seed=1)
    fits = guessing_fits(responses, (0, 1), draws=400)
    check_guessing(fits)
    for fit in fits:
        assert diagnose(fit)["optimiser"].verdict == ("PASS" if fit.diagnostics["converged"] else "FAIL")


@pytest.mark.slow
def test_bin_04_nuts_agrees_between_seeds():
    """BIN-04 by NUTS: b agrees between seeds, and c stays small where R-hat is small."""
    responses, _ = bi.simulate_responses(300, 12, curve="2pl", seed=1)
    fits = guessing_fits(responses, (0, 1), method="nuts", draws=1000)
    check_guessing(fits)
    assert all(float(az.rhat(fit.tree)["c"].max()) < 1.01 for fit in fits)


# --- items that say little --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def constant_items():
    """30 x 40 with an all-right and an all-wrong row; item 0 is solved by all, item 1 by nobody."""
    y = bi.simulate_responses(30, 40, sd_log_a=0.3, seed=4)[0].dense()[0].copy()
    y[0], y[1] = 1, 0
    y[:, 0], y[:, 1] = 1, 0
    return bi.Responses.from_wide(y)


def test_bin_07_items_that_all_or_none_solve(constant_items):
    """BIN-07: b finite and led by the prior, items named and barred, kept, and abilities do not hang on them.

    The text has -3.20 +- 0.81 and 3.27 +- 0.77 under a prior on b itself; ours is on the intercept, and the answers
    are other draws: within one of those sds, and sds within a factor of 1.5.
    """
    fit = bi.fit(bi.ItemResponse(), constant_items, seed=0, draws=2000)
    b = stacked(fit, "b")
    np.testing.assert_allclose(b[:, :2].mean(0), [-3.20, 3.27], atol=0.8)
    ratio = b[:, :2].std(0) / [0.81, 0.77]
    assert ((ratio > 1 / 1.5) & (ratio < 1.5)).all()
    assert (b[:, :2].std(0) > 2 * np.median(b.std(0))).all()
    check = diagnose(fit)["items without variation"]
    assert check.verdict == "REVIEW"
    assert list(check.table.index) == ["0", "1"]
    table = item_table(fit)
    assert len(table) == 40
    assert not {"0", "1"} & set(most_discriminating(table, 40).index)
    bank = bi.ItemBank.from_fit(fit)
    assert bank.n_items == 40
    assert "no variation: 2 items" in repr(bank)
    without = bi.fit(bi.ItemResponse(), constant_items.select(items=[str(j) for j in range(2, 40)]), seed=0, draws=2000)
    means = [pd.Series(stacked(f, "theta").mean(0)) for f in (fit, without)]
    # 0.9996 in the text; means of 2,000 draws change places with neighbours nearer than 0.02, at 0.0004 a change
    assert means[0].corr(means[1], method="spearman") >= 0.997


def single_answer():
    """200 subjects and 20 items as usual, and one subject who answered one item of its own, rightly."""
    rng = np.random.default_rng(0)
    table = np.full((201, 21), np.nan)
    table[:200, :20] = answered(rng, sigmoid(rng.normal(size=(200, 1)) - rng.normal(0, 2, 20)))
    table[200, 20] = 1
    priors = bi.ItemPriors(mean_intercept=0.0, sd_intercept=2.0, sd_theta=1.0)
    return bi.ItemResponse(curve="1pl", priors=priors), bi.Responses.from_wide(table)


def test_bin_13_an_item_with_a_single_answer():
    """BIN-13: theta ~ N(0, 1), b ~ N(0, 2), Rasch, one right answer: b has mean -1.130 and sd 1.650, ratio 0.83.

    Laplace draws such an item by importance resampling; 0.1 of the mean and 5 % of the sd are what it may lose.
    """
    fit = bi.fit(*single_answer(), seed=0, draws=8000)
    b = stacked(fit, "b")[:, 20]
    assert b.mean() == pytest.approx(-1.130, abs=0.1)
    assert b.std() == pytest.approx(1.650, rel=0.05)
    check = diagnose(fit)["prior-led items"]
    assert check.verdict == "REVIEW"
    assert list(check.table.index[check.table["prior_led"]]) == ["20"]
    assert check.table.loc["20", "sd_ratio"] == pytest.approx(0.825, rel=0.05)
    assert "20" in check.detail


def test_bin_13_by_nuts():
    """BIN-13 by NUTS, at 4 standard errors of 4,000 draws with an effective size of a quarter or more."""
    fit = bi.fit(*single_answer(), method="nuts", seed=0, draws=1000)
    b = stacked(fit, "b")[:, 20]
    assert b.mean() == pytest.approx(-1.130, abs=4 * 1.65 / np.sqrt(1000))
    assert b.std() == pytest.approx(1.650, rel=4 / np.sqrt(2 * 1000))


def test_bin_13_items_alike_are_not_prior_led():
    """BIN-13, the other way round: many answers to items of one difficulty, whose prior has become narrow."""
    rng = np.random.default_rng(0)
    y = answered(rng, np.repeat(sigmoid(1.2 * rng.normal(size=(100, 1))), 30, 1))
    fit = bi.fit(bi.ItemResponse(curve="1pl"), bi.Responses.from_wide(y), seed=0, draws=400)
    check = diagnose(fit)["prior-led items"]
    assert (check.table["sd_ratio"] > 0.75).any()
    assert check.verdict == "PASS"


# --- the sign of slopes -----------------------------------------------------------------------------------------------


def test_bin_12_slopes_of_both_signs_are_refused_and_named():
    """BIN-12: ten slopes from -2 to 2; a bank with positive ones has a strictly increasing expected score."""
    slopes = np.linspace(-2, 2, 10)
    with pytest.raises(bi.InputError, match=r"a of item '0', '1', '2', '3', '4' must be positive; got -2\. Recode"):
        bi.ItemBank.from_parameters(slopes, np.zeros(10))
    from bayes_irsl.curves import expected_score

    assert (np.diff(expected_score(np.linspace(-5, 5, 101), np.abs(slopes), np.zeros(10))) > 0).all()


def test_bin_12_items_with_a_wrong_key_are_named():
    """BIN-12 from answers: items that abler subjects fail cannot have a negative slope here, so the report names them.

    The slopes of the text leave the direction of the scale open: either end may be called able.
    """
    rng = np.random.default_rng(2)
    y = answered(rng, sigmoid(np.linspace(-2, 2, 10) * rng.normal(size=(120, 1))))
    fit = bi.fit(bi.ItemResponse(), bi.Responses.from_wide(y), seed=0, draws=200)
    assert (stacked(fit, "a") > 0).all()
    check = diagnose(fit)["direction of items"]
    named = set(check.table.index[check.table["flagged"]])
    assert check.verdict == "FAIL"
    # items with a slope of 1.1 or more in size
    assert set("012") <= named <= set("01234") or set("789") <= named <= set("56789")
    right = bi.simulate_responses(120, 10, seed=3)[0]
    good = bi.fit(bi.ItemResponse(), right, seed=0, draws=200)
    assert diagnose(good)["direction of items"].verdict == "PASS"


# --- families ---------------------------------------------------------------------------------------------------------


def two_families(bias, seed):
    rng, family, theta, shift = biased_families(bias, seed)
    responses = bi.Responses.from_wide(answered(rng, sigmoid(theta[:, None] + shift)))
    responses = responses.annotate(subjects=pd.DataFrame({"family": family}, index=responses.subjects.index))
    return bi.fit(bi.ItemResponse(curve="1pl"), responses, seed=0, draws=400)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_bin_15_a_difference_of_families_is_no_bias_of_items(seed):
    """BIN-15: two families of 500, 15 Rasch items with b = 0, one family lower by 0.8.

    Raw pass rates differ on every item; given ability about 1 of 15 may be flagged at 5 % (3 or more: p = 0.04).
    """
    fit = two_families(0.0, seed)
    answers = fit.responses.dense()[0]
    rates = np.stack([answers[:500].mean(0), answers[500:].mean(0)])
    np.testing.assert_allclose(rates.mean(1), [0.5, 0.34], atol=0.03)
    z = (rates[0] - rates[1]) / np.sqrt((rates * (1 - rates) / 500).sum(0))
    assert (z > 1.96).all()
    table = family_table(fit, residuals(fit))
    assert (table["p"] < 0.05).sum() <= 2
    assert not table["flagged"].any()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_bin_15_a_biased_item_is_the_top_flag(seed):
    """BIN-15: with a true bias of 1.0 on item 4 it must be the top flag, and the only one."""
    fit = two_families(1.0, seed)
    table = family_table(fit, residuals(fit))
    assert table["item"][0] == "4"
    assert list(table.loc[table["flagged"], "item"]) == ["4"]
    # its sd is about 0.14
    assert table["shift"][0] == pytest.approx(1.0, abs=0.4)


# --- several abilities ------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("n_subjects", [100, 500])
def test_bin_11_two_abilities_mix_with_few_and_with_many_answers(n_subjects):
    """BIN-11: two traits of correlation 0.6, 20 items each; R-hat below 1.01 with few and with many subjects.

    The text goes to 5,000 subjects, for which the start by Laplace needs a dense matrix of 10,000 x 10,000.
    """
    rng = np.random.default_rng(0)
    theta = rng.normal(size=(n_subjects, 2)) @ np.linalg.cholesky([[1, 0.6], [0.6, 1]]).T
    trait = np.repeat([0, 1], 20)
    y = answered(rng, sigmoid(np.exp(0.3 * rng.normal(size=40)) * (theta[:, trait] - rng.normal(size=40))))
    responses = bi.Responses.from_wide(y)
    responses = responses.annotate(items=pd.DataFrame({"trait": trait.astype(str)}, index=responses.items.index))
    fit = bi.fit(bi.ItemResponse(abilities="trait"), responses, method="nuts", seed=0, draws=1000)
    r_hat = az.rhat(fit.tree.posterior.dataset.drop_vars("correlation"))
    assert max(float(v.max()) for v in r_hat.data_vars.values()) < 1.01
    assert int(fit.tree.sample_stats.diverging.sum()) == 0
    correlation = stacked(fit, "correlation")[:, 0, 1]
    assert abs(correlation.mean() - 0.6) < 3 * np.hypot(correlation.std(), 0.64 / np.sqrt(n_subjects))


# --- scores out of n --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def two_sizes():
    """Shares right of 30 models that all have p = 0.7, of 10 questions (item 0) and of 1,000 (item 1)."""
    trials = np.array([10, 1000])
    return np.random.default_rng(0).binomial(trials, 0.7, (30, 2)), trials


def test_beta_08_counts_carry_their_weight(two_sizes):
    """BETA-08: 7 of 10 and 700 of 1,000 have sampling sds of 0.145 and 0.0145 when n is known."""
    counts, trials = two_sizes
    fit = bi.fit(bi.ItemResponse(likelihood="binomial"), bi.Responses.from_wide(counts, trials=trials), draws=400)
    draws = take_draws(fit, 100)
    sd = np.sqrt(cell_moments(draws, fit.responses, np.arange(60)).variance.mean(0).reshape(30, 2).mean(0))
    # p (1 - p) at 0.7 +- 0.03 moves these by 2 %, and so does the spread of abilities, which is learned
    np.testing.assert_allclose(sd, [0.145, 0.0145], rtol=0.05)


def test_beta_08_shares_need_a_precision_an_item(two_sizes):
    """BETA-08: without n the precisions are n - 1, 9 and 999; with an interval an item they are found."""
    counts, trials = two_sizes
    responses = bi.Responses.from_wide(counts / trials)
    own = bi.fit(bi.ItemResponse(likelihood="ordered-beta", precision="item"), responses, draws=1000)
    low, high = np.quantile(stacked(own, "phi"), [0.05, 0.95], axis=0)
    assert ((low < [9, 999]) & (high > [9, 999])).all()
