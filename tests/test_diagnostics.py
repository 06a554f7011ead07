"""Checks of a fit: hand-computed values, negative controls, and the users' cases that fall here."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from fit_stand_in import fit_of, ordinary_fit, sigmoid, simulate
from scipy import stats

from bayes_irsl import plots
from bayes_irsl.diagnostics import Check, Diagnostics, boundary_sensitivity, diagnose, predict, replicate
from bayes_irsl.diagnostics.boundary import boundary_check
from bayes_irsl.diagnostics.items import residuals
from bayes_irsl.diagnostics.predictive import means_check, person_check, predictive_checks
from bayes_irsl.diagnostics.sampler import sampler_checks
from bayes_irsl.diagnostics.tables import item_table, subject_table
from bayes_irsl.diagnostics.tails import false_discovery, normal_score, sum_tails, two_sided
from bayes_irsl.diagnostics.verdicts import worst
from bayes_irsl.errors import InputError
from bayes_irsl.report.sections import asked
from bayes_irsl.responses import Responses
from bayes_irsl.spec import ItemResponse


def by_name(checks):
    return {check.name: check for check in checks}


# --- verdicts ---------------------------------------------------------------------------------------------------------


def test_verdict_is_the_worst_of_all_and_every_line_has_a_remedy():
    checks = Diagnostics(
        (Check("one", "PASS", 1.0, "fine."), Check("two", "REVIEW", 0.5, "so so.", "look <again>.")),
        {"three": "no families"},
    )
    assert checks.verdict == "REVIEW"
    assert Diagnostics((*checks, Check("x", "FAIL", 0, "bad.", "stop."))).verdict == "FAIL"
    assert Diagnostics(()).verdict == "PASS"
    frame = checks.to_frame()
    assert list(frame.columns) == ["verdict", "value", "detail", "remedy"]
    assert frame.loc["two", "remedy"] == "look <again>."
    assert "look <again>." in repr(checks)
    assert "not made: three (no families)" in repr(checks)
    assert "&lt;again&gt;" in checks._repr_html_()
    assert "<again>" not in checks._repr_html_()
    assert "one" in checks
    with pytest.raises(InputError, match="no families"):
        checks["three"]
    with pytest.raises(InputError, match="GOOD"):
        Check("x", "GOOD", 0, "")


@pytest.mark.parametrize(
    ("value", "review", "fail", "expected"),
    [
        (1.005, 1.01, 1.05, "PASS"),
        (1.02, 1.01, 1.05, "REVIEW"),
        (1.06, 1.01, 1.05, "FAIL"),
        (np.inf, 1.01, 1.05, "FAIL"),
        (np.nan, 1.01, 1.05, "FAIL"),
        (450, 400, 100, "PASS"),
        (399, 400, 100, "REVIEW"),
        (99, 400, 100, "FAIL"),
    ],
)
def test_thresholds_work_in_both_directions(value, review, fail, expected):
    assert worst(value, review, fail) == expected


# --- tails ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "p", "k"), [(30, 0.04, 6), (28, 0.96, 21), (200, 0.02, 14), (50, 0.5, 40)])
def test_skewed_tails_follow_the_binomial_where_the_normal_does_not(n, p, k):
    mean, sd = n * p, np.sqrt(n * p * (1 - p))
    skew = (1 - 2 * p) / sd
    upper = k > mean
    edge = k - 0.5 if upper else k + 0.5
    exact = stats.binom.sf(k - 1, n, p) if upper else stats.binom.cdf(k, n, p)
    got = sum_tails((edge - mean) / sd, skew)[1 if upper else 0]
    assert 0.3 < got / exact < 3
    assert two_sided((edge - mean) / sd, skew) == pytest.approx(2 * got)


def test_tails_without_skewness_are_normal_and_scores_invert_them():
    z = np.array([-3.0, -1.0, 0.0, 1.0, 3.0])
    assert np.allclose(sum_tails(z, 0.0)[0], stats.norm.cdf(z))
    assert np.allclose(normal_score(z, 0.0), z)
    for skew in (-0.8, 0.4):
        lower, upper = sum_tails(z, skew)
        assert np.allclose(lower + upper, 1)
        assert np.allclose(stats.norm.cdf(normal_score(z, skew)), lower, atol=1e-9)


def test_false_discovery_by_hand_and_untested_stay_untested():
    # p (.01, .02, .03, .5): q = p m / rank, made monotone
    assert np.allclose(false_discovery([0.01, 0.5, 0.03, 0.02]), [0.04, 0.5, 0.04, 0.04])
    q = false_discovery([0.01, np.nan, 0.04])
    assert np.allclose(q[[0, 2]], [0.02, 0.04])
    assert np.isnan(q[1])


# --- prediction -------------------------------------------------------------------------------------------------------


def one_cell(likelihood, theta, a, b, *, phi=None, edges=(), c=None, trials=None):
    """Draws with one draw of one cell, and responses to go with it."""
    parameters = [] if phi is None else [np.log(phi)]
    parameters = tuple(np.full((1, 1), v, np.float32) for v in [*parameters, *edges])
    logit_c = None if c is None else np.full((1, 1), np.log(c / (1 - c)), np.float32)
    value = np.ones((1, 1), np.float32)
    draws = predict.Draws(
        likelihood, theta * value[:, :, None], a * value, b * value, logit_c, parameters, np.zeros(1, int)
    )
    table = np.array([[1.0 if trials is None else 1]])
    return draws, Responses.from_wide(table, trials=trials)


def counts_distribution(n, mean, phi):
    k = np.arange(n + 1)
    p = stats.binom.pmf(k, n, mean) if phi is None else stats.betabinom.pmf(k, n, mean * phi, (1 - mean) * phi)
    return k / n, p


@pytest.mark.parametrize(("n", "phi"), [(1, None), (5, None), (4, 3.0), (12, 40.0)])
def test_moments_of_counts_by_enumeration(n, phi):
    likelihood = "beta-binomial" if phi else "binomial"
    draws, responses = one_cell(likelihood, 0.7, 1.5, -0.2, phi=phi, c=0.2, trials=n)
    mean = 0.2 + 0.8 * sigmoid(1.5 * 0.9)
    values, p = counts_distribution(n, mean, phi)
    got = predict.cell_moments(draws, responses, np.array([0]))
    centred = values - mean
    assert float(got.mean[0, 0]) == pytest.approx(mean, rel=1e-5)
    assert float(got.variance[0, 0]) == pytest.approx((p * centred**2).sum(), rel=1e-4)
    assert float(got.third[0, 0]) == pytest.approx((p * centred**3).sum(), rel=1e-3, abs=1e-6)
    assert float(got.slope[0, 0]) == pytest.approx(0.8 * sigmoid(1.35) * sigmoid(-1.35), rel=1e-4)


def test_moments_of_a_beta_answer():
    draws, responses = one_cell("beta", 0.7, 1.5, -0.2, phi=6.0)
    mean = sigmoid(1.35)
    exact = stats.beta(mean * 6, (1 - mean) * 6)
    got = predict.cell_moments(draws, responses, np.array([0]))
    assert float(got.variance[0, 0]) == pytest.approx(exact.var(), rel=1e-4)
    assert float(got.third[0, 0]) == pytest.approx(float(exact.stats("s")) * exact.var() ** 1.5, rel=1e-3)


@pytest.mark.parametrize(
    ("likelihood", "edges", "zero", "one"),
    [
        # BETA-04: eta = 0.4, cutpoints -2 and 2.5, phi = 10: mean 0.592675
        ("ordered-beta", (2.0, 2.5), sigmoid(-2.4), sigmoid(-2.1)),
        ("zero-one-beta", (-1.0, 0.3), sigmoid(-1.0) * sigmoid(-0.3), sigmoid(-1.0) * sigmoid(0.3)),
    ],
)
def test_moments_of_answers_with_edges(likelihood, edges, zero, one):
    draws, responses = one_cell(likelihood, 0.4, 1.0, 0.0, phi=10.0, edges=edges)
    inside = stats.beta(10 * sigmoid(0.4), 10 * sigmoid(-0.4))
    mean = one + (1 - zero - one) * inside.mean()

    def central(k):
        within = inside.expect(lambda y: (y - mean) ** k)
        return zero * (-mean) ** k + one * (1 - mean) ** k + (1 - zero - one) * within

    got = predict.cell_moments(draws, responses, np.array([0]))
    if likelihood == "ordered-beta":
        assert mean == pytest.approx(0.592675, abs=1e-6)
    assert float(got.mean[0, 0]) == pytest.approx(mean, rel=1e-5)
    assert float(got.variance[0, 0]) == pytest.approx(central(2), rel=1e-4)
    assert float(got.third[0, 0]) == pytest.approx(central(3), rel=2e-3, abs=1e-6)


@pytest.mark.parametrize("likelihood", ["bernoulli", "binomial", "beta-binomial", "beta"])
def test_replicates_have_the_moments_and_the_log_density_of_answers_seen(likelihood):
    fit = ordinary_fit(6, 4, likelihood=likelihood, noise=1e-6, draws=1000)
    draws = predict.take_draws(fit, 4000)
    cells = np.arange(24)
    got = predict.cell_replicates(draws, fit.responses, cells, predict.shares(fit), np.random.default_rng(0))
    moments = predict.cell_moments(draws, fit.responses, cells)
    assert np.allclose(got.share.mean(0), moments.mean.mean(0), atol=0.035)
    assert np.allclose(got.share.var(0), moments.variance.mean(0), rtol=0.25, atol=2e-3)
    if likelihood == "bernoulli":
        y, mean = fit.responses.answer, moments.mean[0].astype(float)
        assert np.allclose(got.log_seen[0], np.log(np.where(y == 1, mean, 1 - mean)), atol=1e-4)


def test_blocks_cover_every_answer_once_and_do_not_change_results(monkeypatch):
    fit = ordinary_fit(23, 17, missing=0.4)
    whole = residuals(fit), replicate(fit)
    monkeypatch.setattr(predict, "BLOCK", 3000)
    seen = [cells[:real] for cells, real, _ in predict.item_blocks(fit.responses, 100)]
    assert len(seen) > 3
    assert sorted(np.concatenate(seen)) == list(range(fit.responses.n_obs))
    parts = residuals(fit), replicate(fit)
    assert np.allclose(whole[0].group_difference, parts[0].group_difference, atol=1e-5)
    assert np.allclose(whole[0].group_covariance, parts[0].group_covariance, atol=1e-5)
    assert np.allclose(whole[1].row_seen, parts[1].row_seen)
    assert np.allclose(whole[1].histogram_seen, parts[1].histogram_seen)


# --- sampler ----------------------------------------------------------------------------------------------------------


def nuts_fit(**options):
    options = {"method": "nuts", "draws": 200, "noise": 0.3, **options}
    return ordinary_fit(8, 5, **options)


def test_good_chains_pass():
    stats_ = {
        "diverging": np.zeros((4, 200), bool),
        "energy": np.random.default_rng(1).normal(size=(4, 200)),
        "tree_depth": np.full((4, 200), 4),
    }
    checks, skipped = sampler_checks(nuts_fit(stats=stats_))
    names = ["moving parameters", "R-hat", "bulk ESS", "tail ESS", "divergences", "E-BFMI", "tree depth"]
    assert [c.name for c in checks] == names
    assert {c.verdict for c in checks} == {"PASS"}
    assert skipped == {}


def test_az_01_declared_anchor_is_listed_and_left_out():
    """AZ-01 (i): an anchor that is fixed on purpose is listed as constant and excluded from the maximum."""
    anchor = {"anchor": ((), np.zeros((4, 200)))}
    checks = by_name(sampler_checks(nuts_fit(extra=anchor, attrs={"fixed": ["anchor"]}))[0])
    assert checks["moving parameters"].verdict == "PASS"
    assert "anchor" in checks["moving parameters"].detail
    assert np.isfinite(checks["R-hat"].value)
    assert checks["R-hat"].verdict == "PASS"
    undeclared = by_name(sampler_checks(nuts_fit(extra=anchor))[0])
    assert undeclared["moving parameters"].verdict == "FAIL"
    assert "anchor" in undeclared["moving parameters"].detail


def test_az_01_stuck_chains_fail():
    """AZ-01 (ii): two chains stuck at 0 and at 1 fail hard. (iii): all stuck at one value in a free site fail."""
    apart = np.zeros((4, 200))
    apart[1::2] = 1
    checks = by_name(sampler_checks(nuts_fit(extra={"x": ((), apart)}))[0])
    assert checks["moving parameters"].verdict == "FAIL"
    same = by_name(sampler_checks(nuts_fit(extra={"x": ((), np.full((4, 200), 0.5))}))[0])
    assert same["moving parameters"].verdict == "FAIL"
    assert "not declared fixed" in same["moving parameters"].detail
    one = np.random.default_rng(0).normal(size=(4, 200))
    one[2] = 0.1
    assert by_name(sampler_checks(nuts_fit(extra={"x": ((), one)}))[0])["moving parameters"].verdict == "FAIL"


def test_disagreeing_slow_and_broken_chains_fail():
    rng = np.random.default_rng(0)
    shifted = rng.normal(size=(4, 200)) + np.array([0, 0, 0, 3.0])[:, None]
    checks = by_name(sampler_checks(nuts_fit(extra={"x": ((), shifted)}))[0])
    assert checks["R-hat"].verdict == "FAIL"
    assert "(x)" in checks["R-hat"].detail
    slow = np.cumsum(rng.normal(size=(4, 200)), 1)
    assert by_name(sampler_checks(nuts_fit(extra={"x": ((), slow)}))[0])["bulk ESS"].verdict == "FAIL"
    broken = rng.normal(size=(4, 200))
    broken[0, 7] = np.nan
    got = by_name(sampler_checks(nuts_fit(extra={"x": ((), broken)}))[0])
    assert got["moving parameters"].verdict == "FAIL"
    assert "not finite" in got["moving parameters"].detail
    assert np.isfinite(got["R-hat"].value)


def test_divergences_energy_and_depth():
    rng = np.random.default_rng(0)
    diverging = np.zeros((4, 200), bool)
    diverging[0, :3] = True
    stats_ = {
        "diverging": diverging,
        "energy": np.cumsum(rng.normal(size=(4, 200)), 1),
        "tree_depth": np.full((4, 200), 10),
    }
    checks = by_name(sampler_checks(nuts_fit(stats=stats_))[0])
    assert checks["divergences"].verdict == "REVIEW"
    assert checks["divergences"].value == 3
    assert checks["E-BFMI"].verdict == "FAIL"
    assert checks["tree depth"].verdict == "REVIEW"
    stats_["diverging"] = rng.random((4, 200)) < 0.2
    assert by_name(sampler_checks(nuts_fit(stats=stats_))[0])["divergences"].verdict == "FAIL"


def test_screen_finds_the_bad_parameter_among_thousands():
    fit = ordinary_fit(20, 900, method="nuts", draws=60, noise=0.3, seed=3)
    fit.tree["posterior"]["b"].values[:, :, 777] += np.arange(4)[:, None] * 3.0
    check = by_name(sampler_checks(fit)[0])["R-hat"]
    assert check.verdict == "FAIL"
    assert "b[777]" in check.detail
    assert "quick screen" in check.detail


def test_correlations_of_a_dimension_with_itself_are_no_stuck_parameters():
    rng = np.random.default_rng(0)
    r = np.tile(np.eye(2), (4, 200, 1, 1))
    r[..., 0, 1] = r[..., 1, 0] = rng.uniform(0.2, 0.6, (4, 200))
    fit = nuts_fit(extra={"correlation": (("dimension", "other_dimension"), r)})
    assert by_name(sampler_checks(fit)[0])["moving parameters"].verdict == "PASS"


def test_laplace_is_judged_by_its_optimiser():
    fit = ordinary_fit(8, 5)
    checks, skipped = sampler_checks(fit)
    assert by_name(checks)["optimiser"].verdict == "PASS"
    assert "R-hat, ESS" in skipped
    bad = ordinary_fit(8, 5, attrs={"diagnostics": {"converged": False, "n_iterations": 60, "newton_decrement": 18.0}})
    check = by_name(sampler_checks(bad)[0])["optimiser"]
    assert check.verdict == "FAIL"
    assert "60 iterations" in check.detail


# --- fit to the answers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("likelihood", ["bernoulli", "binomial", "beta-binomial", "beta"])
def test_a_right_fit_passes_every_check(likelihood):
    families = {"family": np.resize(["x", "y", "z"], 60)}
    found = diagnose(ordinary_fit(likelihood=likelihood, missing=0.2, subjects=families))
    bad = [repr(c) for c in found if c.verdict != "PASS"]
    assert found.verdict == "PASS", bad
    assert "items across families" in found


def test_a_broken_posterior_fails():
    rng = np.random.default_rng(0)
    theta, b = rng.normal(size=80), rng.normal(size=50)
    table = simulate(theta, np.ones(50), b, rng=rng)
    good = by_name(predictive_checks(f := fit_of(table, theta, np.ones(50), b), replicate(f)))
    assert {c.verdict for c in good.values()} == {"PASS"}
    shifted = fit_of(table, theta, np.ones(50), b + 1.0)
    bad = by_name(predictive_checks(shifted, replicate(shifted)))
    assert bad["predicted row means"].verdict == "FAIL"
    assert bad["predicted column means"].verdict in ("REVIEW", "FAIL")
    assert bad["distribution of answers"].verdict == "FAIL"


def test_share_of_means_inside_by_hand():
    replicated = np.tile(np.linspace(0, 1, 101)[:, None], 4)
    check = means_check(
        "row means", "subjects", pd.Index(list("abcd")), np.array([0.5, 0.04, 0.96, np.nan]), replicated
    )
    assert check.value == pytest.approx(1 / 3)
    assert list(check.table.index[:2]) == ["b", "c"]
    assert check.table.loc["a", "lower"] == pytest.approx(0.05)


def test_a_beta_on_answers_with_two_humps_is_found_out():
    """A likelihood of the wrong shape reproduces all means, and the distribution of answers says no."""
    rng = np.random.default_rng(0)
    theta, b = rng.normal(size=80), rng.normal(size=50)
    mean = sigmoid(theta[:, None] - b)
    humps = np.where(rng.random(mean.shape) < mean, rng.beta(40, 4, mean.shape), rng.beta(4, 40, mean.shape))
    variance = np.mean((humps - mean) ** 2 / (mean * (1 - mean)))
    fit = fit_of(humps, theta, np.ones(50), b, phi=1 / variance - 1)
    checks = by_name(predictive_checks(fit, replicate(fit)))
    assert checks["distribution of answers"].verdict == "FAIL"
    assert checks["predicted row means"].verdict != "FAIL"


def test_counts_that_scatter_more_than_binomial_are_found_out():
    rng = np.random.default_rng(0)
    theta, b = rng.normal(size=60), rng.normal(size=40)
    table = simulate(theta, np.ones(40), b, "beta-binomial", phi=5.0, trials=30, rng=rng)
    fit = fit_of(table, theta, np.ones(40), b, trials=30, spec=ItemResponse(likelihood="binomial"), noise=0.01)
    found = diagnose(fit)
    assert found["distribution of answers"].verdict in ("REVIEW", "FAIL")
    assert found["subject fit"].verdict == "FAIL"
    assert found["item fit"].verdict == "FAIL"


def test_a_subject_that_guesses_at_random_is_named():
    rng = np.random.default_rng(2)
    theta, b = rng.normal(size=50), rng.normal(0, 1.5, size=120)
    table = simulate(theta, np.full(120, 1.5), b, rng=rng)
    table[7] = rng.random(120) < 0.5
    theta[7] = 0.0
    fit = fit_of(table, theta, np.full(120, 1.5), b)
    check = person_check(fit.responses.subjects.index, replicate(fit))
    assert check.verdict == "REVIEW"
    assert list(check.table.index[check.table["flagged"]]) == ["7"]


def test_subjects_and_items_without_answers_do_no_harm():
    """DATA-06: an empty row and an empty column stay; the checks leave them out."""
    rng = np.random.default_rng(0)
    theta, b = rng.normal(size=30), rng.normal(size=20)
    table = simulate(theta, np.ones(20), b, rng=rng).astype(float)
    table[3], table[:, 2] = np.nan, np.nan
    fit = fit_of(table, theta, np.ones(20), b)
    found = diagnose(fit)
    assert "3" not in found["predicted row means"].table.index
    assert "2" not in found["predicted column means"].table.index
    assert np.isnan(found["item fit"].table.loc["2", "p"])
    assert len(subject_table(fit)) == 30
    assert list(item_table(fit).index) == list(fit.responses.items.index)


# --- edges ------------------------------------------------------------------------------------------------------------


def test_beta_02_the_rule_for_exact_0_and_1_is_named_with_its_counts():
    """BETA-02: the rule, its n and the number of answers it decides about are printed."""
    table = np.array([[1, 1, 0.9, 0.4], [0.95, 0.98, 0.3, 0.0], [0.6, 0.5, 0.2, 0.1]])
    theta, b = np.array([1.0, 0.0, -1.0]), np.zeros(4)
    fit = fit_of(table, theta, np.ones(4), b, phi=10.0, spec=ItemResponse(likelihood="beta", squeeze=12))
    check = boundary_check(fit)
    assert check.verdict == "REVIEW"
    assert check.value == 3
    for text in ("1 answers are exactly 0", "2 exactly 1", "of 12", "n = 12"):
        assert text in check.detail
    assert "boundary_sensitivity" in check.remedy
    assert predict.shares(fit)[0] == pytest.approx((1 * 11 + 0.5) / 12)
    assert boundary_check(ordinary_fit(5, 4)).verdict == "PASS"
    assert "no rule was needed" in boundary_check(ordinary_fit(5, 4, likelihood="beta")).detail


@pytest.mark.slow
def test_beta_02_sensitivity_to_the_rule():
    """BETA-02: another squeeze moves the precision beyond its own interval, and the table says so."""
    rng = np.random.default_rng(0)
    theta, b = rng.normal(size=20), rng.normal(-1, 1, size=15)
    table = np.round(simulate(theta, np.ones(15), b, "beta", phi=20.0, rng=rng), 1)
    from bayes_irsl.fitting import fit as run

    fit = run(ItemResponse(likelihood="ordered-beta"), Responses.from_wide(table), draws=200)
    found = boundary_sensitivity(fit, rules=[300, 1_000_000])
    assert list(found.index) == ["ordered-beta", "squeeze, n = 300", "squeeze, n = 1,000,000"]
    mild, harsh = found.loc["squeeze, n = 300"], found.loc["squeeze, n = 1,000,000"]
    assert mild["phi_lower"] > harsh["phi_upper"]
    assert harsh["largest_shift_sd"] > 1
    assert (found["phi_lower"] <= found["phi"]).all()
    assert found.loc["ordered-beta", "largest_shift_sd"] == 0


# --- tables and memory ------------------------------------------------------------------------------------------------


def test_tables_carry_intervals_labels_and_order():
    """AZ-06: labels and order of the input survive, also where ids sort differently."""
    table = pd.DataFrame([[1, 0, 1], [0, 1, 1]], index=["b", "a"], columns=["q3", "q1", "q2"])
    fit = fit_of(table, np.array([0.5, -0.5]), np.ones(3), np.array([1.0, 0.0, -1.0]), c=0.2)
    subjects, items = subject_table(fit), item_table(fit)
    assert list(subjects.index) == ["b", "a"]
    assert list(items.index) == ["q3", "q1", "q2"]
    assert subjects.attrs["interval"] == "equal-tailed, 90%"
    assert (subjects["lower"] < subjects["ability"]).all()
    assert (items["b_lower"] < items["b"]).all()
    assert np.allclose(items[["c", "c_lower", "c_upper"]], 0.2)
    values = fit.tree["posterior"]["theta"].sel(subject="a").values
    assert subjects.loc["a", "upper"] == pytest.approx(np.quantile(values, 0.95))
    with pytest.raises(InputError, match="mass"):
        subject_table(fit, mass=90)


def test_abilities_by_category_are_checked_and_tabled():
    rng = np.random.default_rng(0)
    theta, b = rng.normal(size=(120, 2)), rng.normal(size=20)
    category = np.repeat(["reading", "sums"], 10)
    mean = sigmoid(theta[:, (category == "sums").astype(int)] - b)
    table = (rng.random(mean.shape) < mean).astype(float)
    fit = fit_of(table, theta[:, 0], np.ones(20), b, items={"category": category})
    spec = ItemResponse(abilities="category").resolve(fit.responses)
    posterior = fit.tree["posterior"].to_dataset().drop_vars("theta")
    draws = theta + 0.02 * rng.normal(size=(4, 25, 120, 2))
    posterior["theta"] = (("chain", "draw", "subject", "dimension"), draws)
    posterior = posterior.assign_coords(dimension=["reading", "sums"])
    constant = xr.Dataset({"item_dimension": ("item", category)})
    parts = {name: node.to_dataset() for name, node in fit.tree.children.items()}
    tree = xr.DataTree.from_dict({**parts, "posterior": posterior, "constant_data": constant})
    tree.attrs = fit.tree.attrs
    fit = type(fit)(spec, fit.responses, tree)
    found = diagnose(fit)
    assert found["predicted row means"].verdict == "PASS"
    assert found["item fit"].verdict == "PASS"
    assert len(subject_table(fit)) == 240
    for plot in (plots.ability_forest, plots.item_curves, plots.wright_map, plots.heat_map):
        plot(fit).figure.draw_without_rendering()
    assert "one per category" in asked(fit)
    # one ability for both categories cannot be right
    wrong = fit_of(table, theta[:, 0], np.ones(20), b)
    assert diagnose(wrong)["item fit"].verdict == "FAIL"


def test_eng_04_memory_stays_far_below_cells_times_draws():
    """ENG-04: 300 x 1,000 cells and 1,000 draws would be 2.4 GB; the checks need a small part of that."""
    import tracemalloc

    fit = ordinary_fit(300, 1000, draws=250)
    tracemalloc.start()
    residuals(fit)
    replicate(fit)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 150e6
