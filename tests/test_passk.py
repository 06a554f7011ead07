"""pass@k from fits: identities, cases PASSK, its inverse and its price, subjects nobody has sampled."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from sampled_counts import counts
from scipy import stats
from scipy.special import betaln, expit

import bayes_irsl as bi
from bayes_irsl import plots
from bayes_irsl.baselines import passk as baselines
from bayes_irsl.curves import pass_at_k_unbiased, passing
from bayes_irsl.diagnostics.rates import rate_checks
from bayes_irsl.errors import InputError
from bayes_irsl.forecasts.tails import halves, log_predictive

K = [1, 10, 100, 1000]


@pytest.fixture(scope="module")
def fitted():
    responses, p, _, _ = counts(n_subjects=5, n_items=60, trials=50, seed=2)
    return bi.fit(bi.RepeatedSampling(), responses, seed=0), p


def test_passing_is_exact_for_the_smallest_rates():
    np.testing.assert_allclose(
        passing(np.array([1e-12, 0.5, 1.0, 0.0]), np.array([1e6])).ravel(), [1e-6, 1, 1, 0], rtol=1e-6
    )


def test_intervals_hold_the_truth_far_beyond_the_samples(fitted):
    """The same items, k to a thousand from fifty samples: five subjects at four k, two of twenty outside on average."""
    fit, p = fitted
    found = bi.pass_at_k(fit, K)
    truth = passing(p, np.array(K, float)).mean(1)
    inside = (found["pass_at_k_lower"].squeeze() <= truth) & (truth <= found["pass_at_k_upper"].squeeze())
    assert inside.to_numpy().mean() >= 0.7
    assert found["pass_at_k"].dims == ("draw", "subject", "benchmark", "k")
    assert (np.diff(found["pass_at_k"], axis=-1) >= 0).all()
    assert found.attrs == {"interval": "equal-tailed", "mass": 0.9, "population": 0}


def test_given_items_are_surer_than_new_ones(fitted):
    fit, _ = fitted
    given, new = (bi.pass_at_k(fit, [1], population=v) for v in (False, True))
    width = [float((v["pass_at_k_upper"] - v["pass_at_k_lower"]).mean()) for v in (given, new)]
    assert width[0] < width[1]


def test_a_population_is_the_expectation_over_its_tail(fitted):
    fit, _ = fitted
    found = bi.pass_at_k(fit, [1000], population=True)["pass_at_k"].to_numpy()[:, :, 0, 0]
    posterior = fit.tree.posterior.to_dataset().stack(sample=("chain", "draw"))
    alpha = np.exp(posterior["shape"].to_numpy()[0])
    beta = alpha * np.exp(-posterior["location"].to_numpy()[0])
    np.testing.assert_allclose(found.T, 1 - np.exp(betaln(alpha, beta + 1000) - betaln(alpha, beta)), rtol=1e-9)


def test_items_one_by_one_and_chosen_ones(fitted):
    fit, _ = fitted
    each = bi.pass_at_k(fit, K, kind="item")
    assert each["pass_at_k"].dims == ("draw", "subject", "item", "k")
    some = bi.pass_at_k(fit, K, items=["q3", "q0"], subjects=["m4"])
    expected = each["pass_at_k"].sel(item=["q3", "q0"], subject=["m4"]).mean("item")
    # The same seed draws other numbers for other items; moments agree.
    np.testing.assert_allclose(some["pass_at_k"].mean("draw").squeeze(), expected.mean("draw").squeeze(), atol=0.02)


@pytest.fixture(scope="module")
def normal_tail(fitted):
    return bi.fit(bi.RepeatedSampling("logit-normal"), fitted[0].responses, seed=1, draws=500, progress=False)


@pytest.mark.parametrize("population", [False, True])
def test_fits_are_pooled_in_proportion_to_their_weights(fitted, normal_tail, population):
    """The mixture's mean is the weighted mean of means, however many draws; a weight of 0 leaves a fit out."""
    fits = [fitted[0], normal_tail]
    one, two = (bi.pass_at_k(fit, K, population=population) for fit in fits)
    assert one.sizes["draw"] != two.sizes["draw"]
    for weights, share in ((None, 0.5), ([3, 1], 0.75), ([1, 0], 1.0)):
        both = bi.pass_at_k(fits, K, population=population, weights=weights)
        expected = share * one["pass_at_k_mean"] + (1 - share) * two["pass_at_k_mean"]
        np.testing.assert_allclose(both["pass_at_k_mean"], expected, rtol=0.02)
    lower, upper = (xr.concat([v[f"pass_at_k_{end}"] for v in (one, two)], "fit") for end in ("lower", "upper"))
    pooled = bi.pass_at_k(fits, K, population=population)
    assert (pooled["pass_at_k_lower"] >= lower.min("fit") - 0.02).all()
    assert (pooled["pass_at_k_upper"] <= upper.max("fit") + 0.02).all()


@pytest.mark.parametrize("population", [False, True])
def test_samples_needed_of_a_mixture_undo_its_pass_at_k(fitted, normal_tail, population):
    fits = [fitted[0], normal_tail]
    subject = list(fitted[0].responses.subjects.index[:1])
    needed = bi.samples_needed(fits, 0.6, subjects=subject, population=population, weights=[2, 1])
    k = float(needed["samples_median"].squeeze())
    below, above = (
        (bi.pass_at_k(fits, v, subjects=subject, population=population, weights=[2, 1])["pass_at_k"] >= 0.6).mean()
        for v in (k - 1, k)
    )
    assert below <= 0.5 + 0.01
    assert above >= 0.5 - 0.01


def test_what_cannot_be_pooled_is_refused(fitted, normal_tail):
    fits = [fitted[0], normal_tail]
    with pytest.raises(InputError, match="expected 2 numbers of at least 0, one a fit, not all 0"):
        bi.pass_at_k(fits, 1, weights=[1, -1])
    with pytest.raises(InputError, match="fit is of type Responses"):
        bi.pass_at_k(fits[0].responses, 1)
    with pytest.raises(InputError, match="mass = -1"):
        bi.samples_needed(fits[0], 0.5, mass=-1)
    with pytest.raises(InputError, match="no cell has three samples"):
        bi.compare_tails(counts(n_subjects=2, n_items=20, trials=2, seed=1)[0])
    with pytest.raises(InputError, match="weights= is for several fits"):
        bi.pass_at_k(fits[0], 1, weights=[1])
    with pytest.raises(InputError, match="fit is an empty list: expected a fit, or a list of fits"):
        bi.pass_at_k([], 1)
    names = np.arange(fitted[0].responses.n_items) < 50
    fewer = bi.fit(bi.RepeatedSampling(), fitted[0].responses.select(items=names), seed=0, draws=100, progress=False)
    with pytest.raises(InputError, match="fit 2 of the list is of other responses than fit 1"):
        bi.pass_at_k([fits[0], fewer], 1)


def test_samples_needed_undo_pass_at_k(fitted):
    fit, _ = fitted
    needed = bi.samples_needed(fit, [0.2, 0.5], subjects=["m0", "m1"])
    k = needed["samples"].isel(draw=7, benchmark=0).sel(subject="m0", target=0.5).item()
    at, before = (
        bi.pass_at_k(fit, [v], subjects=["m0", "m1"])["pass_at_k"]
        .isel(draw=7, benchmark=0, k=0)
        .sel(subject="m0")
        .item()
        for v in (k, k - 1)
    )
    assert before < 0.5 <= at
    assert (needed["samples"].sel(target=0.2) <= needed["samples"].sel(target=0.5)).all()
    new = bi.samples_needed(fit, 0.5, subjects=["m0"], population=True)["samples"].isel(draw=7).item()
    found = (
        bi.pass_at_k(fit, [new, new - 1], subjects=["m0"], population=True)["pass_at_k"].isel(draw=7).to_numpy().ravel()
    )
    assert found[1] < 0.5 <= found[0]


def test_a_budget_buys_more_samples_of_a_cheaper_subject(fitted):
    fit, _ = fitted
    cost = {f"m{i}": 1e9 * (1 + 9 * (i == 0)) for i in range(5)}
    found = bi.pass_at_k(fit, budget=[1e9, 1e11], flops_per_sample=cost)
    assert found["pass_at_k"].dims == ("draw", "subject", "benchmark", "budget")
    assert found["pass_at_k_mean"].sel(subject="m0", budget=1e9).item() == 0  # not one sample
    plain = bi.pass_at_k(fit, [10])["pass_at_k_mean"].sel(subject="m0").item()
    assert found["pass_at_k_mean"].sel(subject="m0", budget=1e11).item() == pytest.approx(plain)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"k": [0]}, "k = 0.0: expected whole numbers from 1"),
        ({"k": [1.5]}, "k = 1.5: expected whole numbers"),
        ({"subjects": ["nobody"]}, "subjects 'nobody' are not in the fit; there are 'm0', 'm1', 'm2' and 2 more"),
        ({"items": ["q999"]}, "items 'q999' are not in the fit"),
        ({"kind": "all"}, "kind='all'"),
        ({"mass": 2}, "mass = 2"),
        ({"seed": -1}, "seed = -1"),
        ({"k": "many"}, "k = 'many': expected whole numbers"),
        ({"subjects": []}, "subjects is an empty list"),
        ({"items": ["q0", "q0"]}, "'q0' are asked for more than once"),
        ({"items": ["q0"], "population": True}, "leave items out"),
        ({"subject": ["m0"]}, "unknown argument 'subject'"),
        ({"subjects": 0}, "subjects = 0: expected labels"),
        ({"compute": 1e22}, "'compute' goes with a fit of an AbilityTrajectory"),
        ({"budget": 1e9}, "budget= needs flops_per_sample="),
        ({"budget": 1e9, "flops_per_sample": "cost"}, "flops_per_sample='cost': no such subject column"),
        (
            {"budget": 1e9, "flops_per_sample": {"m0": 1.0}},
            "of 'm1', 'm2', 'm3' and 1 more is missing",
        ),
        ({"kind": "item", "population": True}, "kind='item' is about the given items"),
    ],
)
def test_what_is_asked_must_make_sense(fitted, arguments, says):
    with pytest.raises(InputError, match=says):
        bi.pass_at_k(fitted[0], **arguments)


def test_passk_02_one_sample_of_each_says_nothing_of_pass_at_ten():
    solved = (np.arange(164) < 50).astype(float)
    responses = bi.Responses.from_wide(pd.DataFrame([solved, solved]))
    with pytest.raises(InputError, match="pass@k is not pass@1 of the average question"):
        bi.fit(bi.RepeatedSampling(), responses)
    fit = bi.fit(bi.ItemResponse(), responses, draws=40)
    with pytest.raises(InputError, match="every question was sampled once"):
        bi.pass_at_k(fit)


def test_passk_06_items_that_a_subject_did_not_attempt_are_predicted_not_dropped():
    """Half the items are unattempted by one subject: they are averaged over too, with what the tail says of them."""
    responses, _, _, _ = counts(n_subjects=4, n_items=40, trials=30, seed=7)
    kept = ~((responses.subject_index == 0) & (responses.item_index >= 20))
    long = pd.DataFrame(
        {
            "subject": responses.subjects.index[responses.subject_index],
            "item": responses.items.index[responses.item_index],
            "c": responses.answer, "n": responses.trials,
        }
    )[kept]  # fmt: skip
    fit = bi.fit(bi.RepeatedSampling(), bi.Responses.from_long(long, successes="c", trials="n", items=responses.items))
    each = bi.pass_at_k(fit, [10], kind="item", subjects=["m0"])
    width = (each["pass_at_k_upper"] - each["pass_at_k_lower"]).squeeze()
    tried = [f"q{j}" in set(long.loc[long["subject"] == "m0", "item"]) for j in range(40)]
    order = [f"q{j}" for j in range(40)]
    assert width.sel(item=order)[np.array(tried)].mean() < width.sel(item=order)[~np.array(tried)].mean()
    assert each.sizes["item"] == 40


def test_passk_10_some_problems_can_never_be_solved():
    """80 of 100 solvable, fifty samples: with a share that never is, the interval at k = 10,000 holds .80."""
    rng = np.random.default_rng(10)
    p = np.where(np.arange(100) < 20, 0.0, rng.beta(1, 3, (1, 100)))
    table = pd.DataFrame(rng.binomial(50, p))
    responses = bi.Responses.from_wide(table, trials=np.full((1, 100), 50))
    found = {
        never: bi.pass_at_k(bi.fit(bi.RepeatedSampling(never=never), responses, seed=0), [10_000])
        for never in (False, True)
    }
    assert found[True]["pass_at_k_lower"].item() < 0.80 < found[True]["pass_at_k_upper"].item()
    assert found[False]["pass_at_k_mean"].item() > found[True]["pass_at_k_mean"].item()


def test_item_response_fits_speak_of_pass_at_k_too():
    rng = np.random.default_rng(11)
    theta, b = rng.normal(0, 1, 12), rng.normal(1.5, 1.2, 40)
    p = expit(theta[:, None] - b)
    table = pd.DataFrame(rng.binomial(25, p), index=[f"m{i}" for i in range(12)]).add_prefix("q")
    responses = bi.Responses.from_wide(table, trials=np.full(p.shape, 25))
    truth = passing(p, np.array(K, float)).mean(1)
    for likelihood in ("binomial", "beta-binomial"):
        fit = bi.fit(bi.ItemResponse(likelihood), responses, draws=400)
        found = bi.pass_at_k(fit, K)
        np.testing.assert_allclose(found["pass_at_k_mean"].squeeze(), truth, atol=0.08)
        new = bi.pass_at_k(fit, K, population=True)
        assert (np.abs(new["pass_at_k_mean"].squeeze() - truth) < 0.2).all()


def test_a_trajectory_of_rates_forecasts_a_larger_model():
    """Location and exponent grow with compute; a model half a decade beyond is inside the intervals."""
    rng = np.random.default_rng(12)
    compute = np.logspace(19, 22, 9)
    at = np.append(compute, 10**22.5)
    location, shape = -6 + 1.2 * (np.log10(at) - 19), np.log(0.2) + 0.25 * (np.log10(at) - 19)
    alpha = np.exp(shape)[:, None]
    p = rng.beta(alpha, alpha * np.exp(-location)[:, None], (10, 100))
    facts = pd.DataFrame({"compute": compute}, index=pd.Index([f"m{i}" for i in range(9)], name="subject"))
    table = pd.DataFrame(rng.binomial(100, p[:9]), index=facts.index).add_prefix("q")
    responses = bi.Responses.from_wide(table, trials=np.full((9, 100), 100), subjects=facts)
    fit = bi.fit(bi.AbilityTrajectory(bi.RepeatedSampling()), responses, seed=0, draws=400)
    found = bi.pass_at_k(fit, K, compute=10**22.5)
    assert found["pass_at_k"].dims == ("draw", "pool", "compute", "benchmark", "k")
    truth = passing(p[9], np.array(K, float)).mean(0)
    assert ((found["pass_at_k_lower"].squeeze() < truth) & (truth < found["pass_at_k_upper"].squeeze())).sum() >= 3
    assert "pass@k of subjects not yet trained" in fit.report().html
    with pytest.raises(InputError, match="this trajectory is of success rates"):
        bi.forecast(fit, compute=1e22)
    with pytest.raises(InputError, match="subjects= goes with fits of sampled subjects"):
        bi.pass_at_k(fit, subjects=["m0"])


C, N = np.array([[0.0, 1, 3, 10, 2, 0]]), np.full((1, 6), 10.0)


def test_baselines_by_hand():
    k = np.array([1.0, 5, 10, 50])
    share = C[0] / 10
    np.testing.assert_allclose(baselines.plug_in(C, N, k)[0], (1 - (1 - share[:, None]) ** k).mean(0))
    cut = baselines.unbiased_cut(C, N, k)[0]
    np.testing.assert_allclose(cut[:3], pass_at_k_unbiased(10, C[0][:, None], k[:3]).mean(0))
    assert cut[3] == cut[2]
    # PASSK-07: plug-in understates within the samples taken.
    assert baselines.plug_in(np.array([[1.0]]), np.array([[10.0]]), k)[0, 1] == pytest.approx(0.40951)


def test_the_maximum_likelihood_beta_is_recovered():
    rng = np.random.default_rng(0)
    a, b = baselines.beta_over_items(rng.binomial(200, rng.beta(0.4, 4.0, 4000)).astype(float), np.full(4000, 200.0))
    assert a == pytest.approx(0.4, rel=0.05)
    assert b == pytest.approx(4.0, rel=0.07)


@pytest.mark.parametrize("name", baselines.ESTIMATORS)
def test_baselines_grow_with_k_and_stay_shares(name):
    rng = np.random.default_rng(1)
    c = rng.binomial(30, rng.beta(0.5, 4, (5, 40))).astype(float)
    found = baselines.ESTIMATORS[name](c, np.full(c.shape, 30.0), np.array([1.0, 10, 100, 1000]))
    assert found.shape == (5, 4)
    assert (np.diff(found) >= -1e-12).all()
    assert ((found >= 0) & (found <= 1)).all()
    with pytest.raises(InputError, match="a subject has no samples"):
        baselines.plug_in(c[:1], np.zeros((1, 40)), np.array([1.0]))


def test_tails_are_compared_on_samples_held_out():
    """The tail that made the counts is not beaten, one far from it is; scores are of the other half, cell by cell."""
    responses, _, _, _ = counts(n_subjects=3, n_items=60, trials=30, seed=8)
    narrow = bi.SamplingPriors(mean_shape=3.0, sd_shape=0.01, tie=0.0)
    specs = [bi.RepeatedSampling(), bi.RepeatedSampling(priors=narrow)]
    table = bi.compare_tails(responses, specs, k=[1000])
    assert len(table) == 6
    assert (table["gain"].iloc[:3] == 0).all()
    assert (table["gain"].iloc[3:] < 0).all()


def test_a_predictive_score_by_hand():
    """One subject whose parameters are known: P(d of m | c of n) is a beta-binomial with the counts added."""
    responses, _, _, _ = counts(n_subjects=2, n_items=30, trials=12, seed=9)
    first, rest = halves(responses, 0)
    assert (first.trials + rest.trials == 12).all()
    fit = bi.fit(bi.RepeatedSampling(), first, draws=40)
    found = log_predictive(fit, rest)
    posterior = fit.tree.posterior.to_dataset().stack(sample=("chain", "draw"))
    s, j = rest.subject_index[5], rest.item_index[5]
    c = first.answer[(first.subject_index == s) & (first.item_index == j)].item()
    alpha = np.exp(posterior["shape"].to_numpy()[0, s])
    beta = alpha * np.exp(-posterior["location"].to_numpy()[0, s])
    expected = np.log(stats.betabinom(6, alpha + c, beta + 6 - c).pmf(rest.answer[5]).mean())
    assert found[5] == pytest.approx(expected)


def test_the_predictive_score_of_item_curves_by_hand():
    """Binomial: the mean over draws of P(d | mu). Beta-binomial: its probabilities of all outcomes sum to one."""
    responses, _, _, _ = counts(n_subjects=3, n_items=12, trials=6, seed=9)
    first, rest = halves(responses, 0)
    fit = bi.fit(bi.ItemResponse("binomial"), first, draws=40)
    posterior = fit.tree.posterior.to_dataset().stack(sample=("chain", "draw"))
    s, j = rest.subject_index[5], rest.item_index[5]
    a, b = (posterior[v].transpose("item", "sample").to_numpy()[j] for v in "ab")
    mu = expit(a * (posterior["theta"].transpose("subject", "sample").to_numpy()[s] - b))
    expected = np.log(stats.binom(3, mu).pmf(rest.answer[5]).mean())
    assert log_predictive(fit, rest)[5] == pytest.approx(expected, rel=1e-4)
    around = bi.fit(bi.ItemResponse("beta-binomial"), first, draws=40)
    total = 0
    for d in range(4):
        every = pd.DataFrame(np.full((3, 12), d), index=responses.subjects.index, columns=responses.items.index)
        total += np.exp(log_predictive(around, bi.Responses.from_wide(every, trials=np.full((3, 12), 3))))
    np.testing.assert_allclose(total, 1, rtol=1e-6)
    table = bi.compare_tails(responses, [bi.RepeatedSampling(), bi.ItemResponse("beta-binomial")], k=[10])
    assert table["tail"].unique().tolist() == ["beta", "2pl curves, beta-binomial"]
    assert table["gain"].max() == 0
    three = counts(n_subjects=2, n_items=20, trials=3, seed=1)[0]
    assert len(bi.compare_tails(three, [bi.RepeatedSampling()], k=10)) == 2


def test_the_report_shows_what_rests_on_the_tail(fitted, tmp_path):
    report = fitted[0].report()
    assert report.diagnostics["Pareto k"].verdict == "PASS"
    assert report.diagnostics["unsolved"].verdict == "PASS"
    assert report.diagnostics["grids"].verdict == "PASS"
    html = report.save(tmp_path / "rates.html").read_text()
    for text in ("What does sampling k times buy?", "How much rests on the tail", "k = 10,000", "some never solved"):
        assert text in html


def test_a_prior_that_the_counts_contradict_is_named():
    responses, _, _, _ = counts(n_subjects=3, n_items=60, trials=30, seed=8)
    spec = bi.RepeatedSampling(priors=bi.SamplingPriors(mean_shape=3.0, sd_shape=0.01, tie=0.0))
    assert rate_checks(bi.fit(spec, responses, draws=40))["grids"].verdict == "FAIL"


def test_rates_that_no_tail_has_are_named():
    """All or nothing on half of the items each: a logit-normal that must be narrow is told apart."""
    table = pd.DataFrame(np.tile([0, 40], (2, 30)), index=["m0", "m1"])
    responses = bi.Responses.from_wide(table, trials=np.full((2, 60), 40))
    spec = bi.RepeatedSampling("logit-normal", priors=bi.SamplingPriors(mean_shape=-1.0, sd_shape=0.01, tie=0.0))
    checks = rate_checks(bi.fit(spec, responses, draws=40))
    assert checks["spread"].verdict == "FAIL"
    assert "m0 on" in checks["spread"].detail
    few = rate_checks(bi.fit(bi.RepeatedSampling(), bi.Responses.from_wide(table * 0, trials=np.full((2, 60), 40))))
    assert few["solved items"].verdict == "REVIEW"


def test_plots_of_pass_at_k(fitted):
    fit, _ = fitted
    found = bi.pass_at_k(fit, np.unique(np.logspace(0, 4, 9).round()))
    observed = plots.observed_pass_at_k(fit.responses)
    assert set(observed.columns) == {"subject", "benchmark", "k", "pass_at_k", "items", "of"}
    assert observed["k"].max() == 50
    fan, tail = plots.passk_fan(found, observed), plots.tail_plot(found)
    for ax in (fan, tail):
        assert ax.get_xscale() == ax.get_yscale() == "log"
        assert len(ax.get_legend().get_texts()) == 5
    with pytest.raises(InputError, match="a fan needs benchmarks and k"):
        plots.passk_fan(bi.pass_at_k(fit, kind="item"))
