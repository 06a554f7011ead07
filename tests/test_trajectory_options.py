"""What a trajectory may have besides compute: other covariates, losses, falling abilities, outliers, a bank's items."""

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from bayes_irsl.models.trajectory import trajectory
from numpyro import handlers
from scipy import stats
from scipy.special import expit

import bayes_irsl as bi
from bayes_irsl import kernels
from bayes_irsl.covariates import layout, numbers
from bayes_irsl.errors import InputError
from bayes_irsl.forecasts.places import places


def scores(eta, facts, trials=2000, seed=0):
    """One benchmark of counts around logits (S,), or one a column of (S, B)."""
    rng = np.random.default_rng(seed)
    eta = np.asarray(eta, float).reshape(len(facts), -1)
    names = [f"bench {k}" for k in range(eta.shape[1])]
    n = np.broadcast_to(trials, len(facts))
    rows = [
        {"subject": s, "item": b, "k": rng.binomial(n[i], expit(eta[i, k])), "n": n[i]}
        for i, s in enumerate(facts.index)
        for k, b in enumerate(names)
    ]
    items = pd.DataFrame({"benchmark": names}, index=pd.Index(names, name="item"))
    return bi.Responses.from_long(pd.DataFrame(rows), successes="k", trials="n", subjects=facts, items=items)


def subjects(n, **columns):
    return pd.DataFrame(columns, index=pd.Index([f"m{i}" for i in range(n)], name="subject"))


def dated(seed=0):
    """24 models: half a decade of compute is worth as much as a year."""
    rng = np.random.default_rng(seed)
    compute, days = 10 ** rng.uniform(21, 24, 24), rng.integers(0, 1200, 24)
    date = pd.Timestamp("2022-01-01") + pd.to_timedelta(days, unit="D")
    facts = subjects(24, compute=compute, date=date.strftime("%Y-%m-%d"))
    return scores(0.8 * (np.log10(compute) - 22.5 + 0.5 * (days / 365.2425 - 1.6)), facts)


def test_dates_count_in_years():
    np.testing.assert_allclose(numbers(["2000-01-01", None, "2001-12-31"], "date"), [2000, np.nan, 2002], atol=0.002)
    assert numbers([1.5, 2.5], "x").tolist() == [1.5, 2.5]
    with pytest.raises(InputError, match=r"date = 'soon': expected numbers or dates such as"):
        numbers(["2026-11-30", "soon"], "date")


def test_other_covariates_enter_the_trend_in_decades():
    """trend = level + slope (pull . bent + effect . standardised covariate), by hand."""
    place = layout(bi.AbilityTrajectory(extra=("date",)), dated().subjects)
    points, _ = place.points(1)
    h = {k: jnp.array([v]) for k, v in {"level": 0.3, "slope": 2.0, "pull": 1.0, "bend": 0.0, "effect": 0.7}.items()}
    years = numbers(dated().subjects["date"], "date")
    expected = 0.3 + 2 * (place.coordinates[:, 0] + 0.7 * (years - years.mean()) / years.std())
    with jax.enable_x64(True):
        np.testing.assert_allclose(kernels.trend(h, points), expected, rtol=1e-6)
        fallen = kernels.trend(h | {"direction": jnp.array([-0.5])}, points)
        np.testing.assert_allclose(fallen, 0.3 - 0.5 * (expected - 0.3), rtol=1e-6)


def test_what_a_year_is_worth_is_recovered_and_carried_forward():
    responses = dated()
    fit = bi.fit(bi.AbilityTrajectory(extra=("date",)), responses, seed=0, draws=400)
    effect = fit.tree.posterior["effect"].sel(extra="date")
    per_year = effect / numbers(responses.subjects["date"], "date").std()
    low, high = np.quantile(per_year, [0.02, 0.98])
    assert low < 0.5 < high
    assert high - low < 0.2
    found = bi.forecast(fit, compute=1e23, extra={"date": "2026-01-01"})
    truth = expit(0.8 * (0.5 + 0.5 * (4 - 1.6)))
    assert found["accuracy_lower"].item() < truth < found["accuracy_upper"].item()
    assert found["beyond_date"].item() == pytest.approx(
        2026 - numbers(responses.subjects["date"], "date").max(), abs=0.01
    )
    assert found["beyond"].item() == 0
    page = fit.report().html
    assert "What other covariates are worth" in page
    assert f'<td>date</td><td class="number">{per_year.mean().item():.2f} [' in page


@pytest.mark.parametrize(
    ("extra", "says"),
    [
        (None, r"extra = \[\]: this fit has \['date'\]"),
        ({"date": "2026", "size": 3}, r"extra = \['date', 'size'\]: this fit has \['date'\]"),
        ({"date": ["2026-01-01", "2026-02-01"]}, "expected one finite value, or one for each of 1"),
    ],
)
def test_covariates_of_a_forecast_are_those_of_the_fit(extra, says):
    place = layout(bi.AbilityTrajectory(extra=("date",)), dated().subjects)
    with pytest.raises(InputError, match=says):
        places(place, compute=1e23, extra=extra)


def test_covariates_that_are_not_there_or_do_not_vary():
    table = dated().subjects
    with pytest.raises(InputError, match="extra='when': no such subject column"):
        layout(bi.AbilityTrajectory(extra=("when",)), table)
    with pytest.raises(InputError, match="all subjects have the same 'date'"):
        layout(bi.AbilityTrajectory(extra=("date",)), table.assign(date="2024-01-01"))
    assert len(layout(bi.AbilityTrajectory(extra=("date",)), table.assign(date=[None, *table["date"][1:]])).used) == 23


def test_abilities_that_fall_with_compute():
    """Inverse scaling: a positive slope cannot say it, slopes="any" can."""
    compute = np.logspace(20, 23, 12)
    responses = scores(0.5 - 0.6 * (np.log10(compute) - 21.5), subjects(12, compute=compute))
    truth = expit(0.5 - 0.6 * 2.5)
    found = {
        slopes: bi.forecast(bi.fit(bi.AbilityTrajectory(slopes=slopes), responses, seed=0, draws=400), compute=1e24)
        for slopes in ("positive", "any")
    }
    error = {k: abs(v["accuracy_mean"].item() - truth) for k, v in found.items()}
    assert error["any"] < 0.05 < error["positive"]


def test_losses_tell_of_benchmarks_that_were_not_run():
    """Half the recipes lack the benchmark; their losses, which go with it, say how they would do."""
    rng = np.random.default_rng(1)
    n = 40
    compute = 10 ** rng.uniform(19, 22, n)
    place = np.log10(compute) - 20.5 + 0.5 * rng.standard_normal(n)
    loss = 1.8 + np.exp(-0.35 * place)
    facts = subjects(n, compute=compute, loss=loss)
    # One question says next to nothing.
    few = np.arange(n) % 2 == 1
    responses = scores(0.9 * place, facts, trials=np.where(few, 1, 2000))
    errors = {}
    for name, losses in (("without", ()), ("with", ("loss",))):
        fit = bi.fit(bi.AbilityTrajectory(losses=losses), responses, seed=0, draws=400)
        theta = fit.tree.posterior["theta"].sel(dimension="bench 0").mean(("chain", "draw")).to_series()
        errors[name] = np.abs(theta[facts.index].to_numpy() - 0.9 * place)[few].mean()
    assert errors["with"] < 0.5 * errors["without"]
    ahead = bi.forecast(fit, compute=1e22, kind="loss")
    truth = 1.8 + np.exp(-0.35 * 1.5)
    assert ahead["loss_lower"].item() < truth < ahead["loss_upper"].item()
    assert ahead["loss_mean"].item() == pytest.approx(truth, rel=0.1)


@pytest.mark.parametrize(
    ("loss", "says"),
    [
        ([2.0, -1.0, 2.0, 2.1, 2.2], "loss 'loss' of 'm1' is -1: expected a positive number"),
        ([2.0] * 5, "fewer than three subjects with compute, or does not vary"),
    ],
)
def test_losses_that_are_none(loss, says):
    responses = scores(np.zeros(5), subjects(5, compute=np.logspace(20, 22, 5), loss=loss))
    with pytest.raises(InputError, match=says):
        bi.fit(bi.AbilityTrajectory(losses=("loss",)), responses)
    with pytest.raises(InputError, match="loss 'c4': no such subject column"):
        bi.fit(bi.AbilityTrajectory(losses=("c4",)), responses)


def test_the_scatter_of_a_subject_is_a_students():
    """Normal with inverse-gamma variances is a Student: quantiles of the program's prior draws."""
    spec = bi.AbilityTrajectory(
        scatter="student", priors=bi.TrajectoryPriors(slope=1.0, sd_own=0.5, df=3.0, sd_drift=0.0, bend=0.0, level=0.0)
    )
    place = layout(spec, subjects(3, compute=[1e20, 1e21, 1e22]))
    with jax.enable_x64(True):
        points, subject = place.points(1)
        nothing = jnp.zeros((3, 3))

        def first(key):
            program = handlers.seed(trajectory, key)
            sampled = handlers.trace(program).get_trace(points, subject, jnp.ones(3), nothing, priors=spec.priors)
            return sampled["estimate"]["value"][0] + 1.0  # the trend is one decade below the reference

        z = np.asarray(jax.vmap(first)(jax.random.split(jax.random.key(0), 20_000))) / 0.5
    assert stats.kstest(z, stats.t(3).cdf).pvalue > 1e-3
    assert stats.kstest(z, stats.norm.cdf).pvalue < 1e-3


def test_students_scatter_is_for_few_abilities_by_the_staged_method():
    compute = np.logspace(20, 22, 6)
    responses = scores(np.zeros(6), subjects(6, compute=compute))
    spec = bi.AbilityTrajectory(scatter="student")
    with pytest.raises(InputError, match="scatter=\"student\" with 6 abilities by method='laplace'"):
        bi.fit(spec, responses, method="laplace")


def answers(theta, a, b, rng, first=0):
    table = (rng.uniform(size=(len(theta), len(a))) < expit(a * (theta[:, None] - b))).astype(float)
    names = [f"m{first + i}" for i in range(len(theta))]
    return pd.DataFrame(table, columns=[f"q{j}" for j in range(len(a))], index=pd.Index(names, name="subject"))


def test_a_trajectory_on_a_banks_scale():
    """Items calibrated on other subjects: few new ones suffice, and abilities are on the bank's scale."""
    rng = np.random.default_rng(3)
    a, b = np.exp(0.3 * rng.standard_normal(60)), rng.normal(0, 1, 60)
    old = rng.standard_normal(150)
    bank = bi.ItemBank.from_fit(bi.fit(bi.ItemResponse(), bi.Responses.from_wide(answers(old, a, b, rng)), draws=400))
    compute = np.logspace(20, 23, 10)
    theta = -1.2 + 0.7 * (np.log10(compute) - 21.5)
    facts = pd.DataFrame({"compute": compute}, index=pd.Index([f"m{200 + i}" for i in range(10)], name="subject"))
    new = bi.Responses.from_wide(answers(theta, a, b, rng, 200), subjects=facts)
    fit = bi.fit(bi.AbilityTrajectory(), new, anchor=bank, draws=400)
    level, gain = (fit.tree.posterior[v].to_numpy().ravel() for v in ("level", "slope"))
    true_level, true_gain = (-1.2 - old.mean()) / old.std(), 0.7 / old.std()
    for draws, truth in ((level, true_level), (gain, true_gain)):
        assert np.quantile(draws, 0.01) < truth < np.quantile(draws, 0.99)
    truth = expit(a * (-1.2 + 0.7 * 2 - b)).mean()
    found = bi.forecast(fit, compute=10**23.5, mass=0.98)
    assert found["accuracy_lower"].item() < truth < found["accuracy_upper"].item()
    with pytest.raises(InputError, match="anchor goes with answers to items"):
        bi.fit(bi.AbilityTrajectory(), new, anchor=bank, method="nuts")


def test_specs_with_options_survive_a_file(tmp_path):
    spec = bi.AbilityTrajectory(extra=["date"], slopes="any", losses=[])
    assert bi.AbilityTrajectory.from_dict(spec.to_dict()) == spec
    with pytest.raises(InputError, match="extra = 'date': expected names of subject columns"):
        bi.AbilityTrajectory(extra="date")


def test_the_log_prior_is_in_the_tree():
    fit = bi.fit(bi.AbilityTrajectory(), dated(), seed=0, draws=40)
    slope = fit.tree.posterior["slope"].to_numpy()[..., 0]
    expected = stats.lognorm(1.0, scale=0.6).logpdf(slope)
    np.testing.assert_allclose(fit.tree["log_prior"]["slope"], expected, rtol=1e-4, atol=1e-4)
