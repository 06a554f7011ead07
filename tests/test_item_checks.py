"""Checks of items: their curves, families, items that tell little, local dependence; negative controls."""

import numpy as np
import pytest
from fit_stand_in import abilities_given_items, biased_families, fit_of, ordinary_fit, sigmoid, simulate
from scipy import stats

from bayes_irsl.diagnostics import diagnose
from bayes_irsl.diagnostics.dependence import adjusted_q3, dependence_check
from bayes_irsl.diagnostics.families import family_codes, family_table
from bayes_irsl.diagnostics.items import (
    direction_check,
    information_checks,
    item_fit_check,
    item_fit_table,
    residuals,
)
from bayes_irsl.diagnostics.tables import item_table, most_discriminating
from bayes_irsl.spec import ItemResponse


def by_name(checks):
    return {check.name: check for check in checks}


# --- items ------------------------------------------------------------------------------------------------------------


def test_item_fit_is_calibrated_and_names_an_item_with_another_curve():
    rng = np.random.default_rng(4)
    theta, b, a = rng.normal(size=400), rng.normal(size=60), np.ones(60)
    table = simulate(theta, a, b, rng=rng)
    fit = fit_of(table, theta, a, b, noise=1e-3)
    null = item_fit_table(fit, residuals(fit))
    assert not null["flagged"].any()
    assert stats.kstest(null["p"], "uniform").pvalue > 0.01
    assert null["infit"].mean() == pytest.approx(1, abs=0.02)
    table[:, 17] = rng.random(400) < 0.5 + 0 * theta
    fit = fit_of(table, theta, a, b, noise=1e-3)
    check = item_fit_check(fit, residuals(fit))
    assert check.table.index[0] == "17"
    assert check.value == 1


def test_item_fit_allows_for_what_an_item_has_absorbed():
    """Item parameters drawn from their own posterior: without the law of total variance p would pile up at 1."""
    rng = np.random.default_rng(1)
    theta, b = rng.normal(size=200), rng.normal(size=150)
    table = simulate(theta, np.ones(150), b, rng=rng)
    grid = np.linspace(-4, 4, 401)
    mean = sigmoid(theta[:, None] - grid)
    log_p = table.T @ np.log(mean) + (1 - table.T) @ np.log1p(-mean) - grid**2 / 2
    weight = np.exp(log_p - log_p.max(1, keepdims=True))
    drawn = np.stack([rng.choice(grid, 100, p=w / w.sum()) for w in weight], 1)
    fit = fit_of(table, theta, np.ones(150), drawn, noise=1e-4)
    p = item_fit_table(fit, residuals(fit))["p"]
    assert 0.01 < (p < 0.05).mean() < 0.1
    assert stats.kstest(p, "uniform").pvalue > 0.01


def two_families(bias, seed):
    rng, family, theta, shift = biased_families(bias, seed)
    table = simulate(theta, np.ones(15), np.zeros(15), rng=rng, shift=shift)
    # calibrated without the bias; abilities from their posterior under one common prior
    drawn = abilities_given_items(table, np.ones(15), np.zeros(15), 100, rng)
    return fit_of(table, drawn, np.ones(15), np.zeros(15), subjects={"family": family}, noise=0.02)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_bin_15_a_difference_of_families_is_no_bias_of_items(seed):
    """BIN-15: raw pass rates differ on 15 of 15 items; given ability about 1 of 15 may be flagged at 5 %."""
    fit = two_families(0.0, seed)
    answers, _ = fit.responses.dense()
    gap = answers[:500].mean(0) - answers[500:].mean(0)
    assert (gap > 0.08).all()
    table = family_table(fit, residuals(fit))
    assert (table["p"] < 0.05).sum() <= 2
    assert not table["flagged"].any()


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_bin_15_a_biased_item_is_the_top_flag(seed):
    """BIN-15: with a true bias of 1.0 on item 4 it must be the top flag."""
    fit = two_families(1.0, seed)
    found = diagnose(fit)
    check = found["items across families"]
    table = check.table
    assert table["item"][0] == "4"
    assert list(table.loc[table["flagged"], "item"]) == ["4"]
    # family A finds it easier at equal ability
    assert table["shift"][0] == pytest.approx(1.0, abs=0.3)
    assert table["lower"][0] < table["shift"][0] < table["upper"][0]
    assert "4 for A" in check.detail


def test_families_need_enough_subjects():
    responses = ordinary_fit(12, 3, subjects={"family": ["a"] * 5 + ["b"] * 3 + ["c"] * 3 + [None]}).responses
    codes, names = family_codes(responses)
    assert names == ("a", "")
    assert codes.tolist() == [0] * 5 + [1] * 6 + [-1]
    one = ordinary_fit(12, 3, subjects={"family": ["a"] * 12}).responses
    assert family_codes(one)[1] == ()
    assert "items across families" in diagnose(ordinary_fit(12, 8)).skipped


def test_bin_07_items_without_variation_are_listed_and_barred():
    """BIN-07: item 0 solved by all and item 1 by none; their slopes come out high and may not lead the list."""
    rng = np.random.default_rng(0)
    theta, b, a = rng.normal(size=30), rng.normal(size=40), np.ones(40)
    table = simulate(theta, a, b, rng=rng)
    table[:, 0], table[:, 1] = 1, 0
    b[:2], a[:2] = (-3.2, 3.27), (1.78, 1.71)
    fit = fit_of(table, theta, a, b, noise=0.2)
    check = by_name(information_checks(fit))["items without variation"]
    assert check.verdict == "REVIEW"
    assert check.value == 2
    assert list(check.table.index) == ["0", "1"]
    summary = item_table(fit)
    assert summary["a"].idxmax() in ("0", "1")
    assert not {"0", "1"} & set(most_discriminating(summary, 40).index)


def test_bin_13_an_item_with_one_answer_is_led_by_its_prior():
    """BIN-13: posterior of b has mean -1.130 and sd 1.650 under a prior with sd 2: ratio 0.83."""
    rng = np.random.default_rng(0)
    theta, b = rng.normal(size=40), np.array([-1.13, 0.3, 0.5])
    table = simulate(theta, np.ones(3), b, rng=rng).astype(float)
    table[1:, 0], table[0, 0] = np.nan, 1
    draws = np.stack([rng.normal(-1.13, 1.65, 4000), rng.normal(0.3, 0.3, 4000), rng.normal(0.5, 0.3, 4000)], 1)
    hyper = {
        "mean_intercept": (("benchmark",), np.zeros((4, 1000, 1))),
        "sd_intercept": (("benchmark",), np.full((4, 1000, 1), 2.0)),
    }
    spec = ItemResponse(curve="1pl")
    fit = fit_of(table, theta, np.ones(3), draws, extra=hyper, draws=1000, noise=1e-3, spec=spec)
    check = by_name(information_checks(fit))["prior-led items"]
    assert check.verdict == "REVIEW"
    assert list(check.table.index[check.table["prior_led"]]) == ["0"]
    assert check.table.loc["0", "sd_ratio"] == pytest.approx(0.825, abs=0.03)


def test_cat_09_discriminations_that_are_high_by_chance_do_not_lead():
    """CAT-09: half the items have loose slopes; the list goes by what is sure, not by the posterior mean."""
    rng = np.random.default_rng(0)
    fit = ordinary_fit(40, 40, draws=250)
    log_a = rng.normal(0, np.where(np.arange(40) < 20, 0.5, 0.05), (1000, 40)) + np.where(np.arange(40) < 20, 0.2, 0.1)
    fit.tree["posterior"]["a"].values[:] = np.exp(log_a).reshape(4, 250, 40)
    summary = item_table(fit)
    assert set(summary.sort_values("a").index[-15:].astype(int)) <= set(range(20))
    assert set(most_discriminating(summary, 15).index.astype(int)) <= set(range(20, 40))


def test_items_that_fall_with_ability_are_named():
    """BIN-12: the correlation with ability by hand, and only the items with a wrong key flagged."""
    rng = np.random.default_rng(0)
    theta, b = rng.normal(size=200), np.zeros(6)
    table = simulate(theta, np.ones(6), b, rng=rng).astype(float)
    table[:, [1, 4]] = 1 - table[:, [1, 4]]
    table[::2, 4] = np.nan
    fit = fit_of(table, theta, np.ones(6), b, noise=0.0)
    check = direction_check(fit)
    assert set(check.table.index[check.table["flagged"]]) == {"1", "4"}
    assert check.verdict == "FAIL"
    assert check.table.loc["1", "correlation"] == pytest.approx(np.corrcoef(theta, table[:, 1])[0, 1], abs=1e-5)
    assert check.table.loc["4", "correlation"] == pytest.approx(
        np.corrcoef(theta[1::2], table[1::2, 4])[0, 1], abs=1e-5
    )
    assert check.table.loc["4", "n_answers"] == 100
    assert direction_check(ordinary_fit(200, 30)).verdict == "PASS"


# --- local dependence -------------------------------------------------------------------------------------------------


def test_adjusted_q3_by_hand():
    rng = np.random.default_rng(0)
    r = rng.normal(size=(12, 3)).astype(np.float32)
    mask = np.ones((12, 3), np.float32)
    mask[:3, 2] = 0
    r = r * mask
    got = np.asarray(adjusted_q3(r, mask))
    pairs = np.array([np.corrcoef(r[:, 0], r[:, 1])[0, 1], *(np.corrcoef(r[3:, k], r[3:, 2])[0, 1] for k in (0, 1))])
    assert np.allclose([got[0, 1], got[0, 2], got[1, 2]], pairs - pairs.mean(), atol=1e-5)
    assert np.isnan(np.diag(got)).all()


def test_copied_items_hang_together_and_independent_ones_do_not():
    rng = np.random.default_rng(0)
    theta, b = rng.normal(size=150), rng.normal(size=30)
    table = simulate(theta, np.ones(30), b, rng=rng)
    (check,), _ = dependence_check(fit_of(table, theta, np.ones(30), b))
    assert check.verdict == "PASS"
    table[:, 5], b[5] = table[:, 20], b[20]
    (check,), _ = dependence_check(fit_of(table, theta, np.ones(30), b))
    assert check.verdict == "REVIEW"
    assert check.table.loc[0, ["item", "other"]].tolist() == ["5", "20"]
    assert check.table["flagged"].sum() == 1
    _, skipped = dependence_check(ordinary_fit(6, 5))
    assert "local dependence" in skipped
