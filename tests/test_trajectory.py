"""Trajectories: the program's density, the conditional normals, and one small fit through to its forecasts."""

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from bayes_irsl.models.trajectory import hyperparameter_priors, trajectory
from numpyro.infer.util import log_density
from scipy import stats
from scipy.special import expit

import bayes_irsl as bi
from bayes_irsl import kernels
from bayes_irsl.covariates import layout
from bayes_irsl.errors import InputError
from bayes_irsl.forecasts.extrapolate import new_abilities
from bayes_irsl.forecasts.places import places
from bayes_irsl.inference import dense

SIZES, TOKENS = [1e8, 3e8, 1e9, 3e9], [1e10, 3e10, 1e11, 3e11]


def facts():
    size, seen = (v.ravel() for v in np.meshgrid(SIZES, TOKENS, indexing="ij"))
    table = pd.DataFrame({"params": size, "tokens": seen, "run": [f"{s:.0e}" for s in size]})
    return table.set_index(pd.Index([f"{s:.0e}/{d:.0e}" for s, d in zip(size, seen, strict=True)], name="subject"))


def ability(table):
    return -0.5 + 0.9 * (np.log10(table["params"]) - 9) + 0.6 * (np.log10(table["tokens"]) - 11)


def scores(trials=2000, seed=0, shift=(0.0, -1.0)):
    """Two benchmarks that measure the same ability, the second harder."""
    table, rng = facts(), np.random.default_rng(seed)
    run = dict(zip(table["run"].unique(), 0.1 * rng.standard_normal(len(SIZES)), strict=True))
    eta = ability(table) + table["run"].map(run)
    rows = [
        {"subject": s, "item": f"bench {k}", "k": rng.binomial(trials, expit(e + d)), "n": trials}
        for k, d in enumerate(shift)
        for s, e in eta.items()
    ]
    items = pd.DataFrame({"benchmark": ["bench 0", "bench 1"]}, index=pd.Index(["bench 0", "bench 1"], name="item"))
    return bi.Responses.from_long(pd.DataFrame(rows), successes="k", trials="n", subjects=table, items=items)


@pytest.fixture(scope="module")
def fitted():
    return bi.fit(bi.AbilityTrajectory(), scores(), seed=0, draws=200, warmup=100)


def draw_hypers(points, rng):
    return {
        name: np.full(() if size is None else (size,), np.exp(prior.centre) if prior.positive else prior.centre)
        * np.exp(0.2 * rng.standard_normal())
        if isinstance(prior, bi.Prior)
        else np.full(() if size is None else (size,), prior)
        for name, prior, size in hyperparameter_priors(points, bi.TrajectoryPriors())
    }


def test_the_program_is_the_stated_normal():
    """Density of the NumPyro program = priors + multivariate normal by SciPy, padding without effect."""
    place = layout(bi.AbilityTrajectory(), facts())
    points, subject = place.points(1)
    priors, rng = bi.TrajectoryPriors(), np.random.default_rng(0)
    error, y = np.diag(rng.uniform(0.01, 0.1, 16)), rng.normal(size=16)
    with jax.enable_x64(True):
        h = {k: jnp.asarray(v) for k, v in draw_hypers(points, rng).items()}
        rows = dense.padded_rows(16)
        data = (jax.tree.map(rows.grow, points), rows.grow(subject), rows.mask, rows.grow_square(error), rows.grow(y))
        found = float(log_density(trajectory, data, {"priors": priors}, h)[0])
        covariance = np.asarray(kernels.prior_covariance(h, points, subject)) + error
        mean = np.asarray(kernels.trend(h, points))
        prior = sum(
            float(p.distribution().log_prob(h[name]).sum())
            for name, p, _ in hyperparameter_priors(points, priors)
            if isinstance(p, bi.Prior)
        )
    extra = -0.5 * (rows.padded - 16) * np.log(2 * np.pi)
    assert found == pytest.approx(prior + stats.multivariate_normal(mean, covariance).logpdf(y) + extra, rel=1e-9)


def test_matheron_draws_have_the_conditional_mean_and_covariance():
    """Abilities given hyperparameters: against the closed form."""
    place = layout(bi.AbilityTrajectory(), facts())
    points, subject = place.points(1)
    rng, n = np.random.default_rng(0), 20_000
    error, y = np.diag(rng.uniform(0.05, 0.2, 16)), rng.normal(size=16)
    with jax.enable_x64(True):
        h = {k: jnp.asarray(v) for k, v in draw_hypers(points, rng).items()}
        prior = np.asarray(kernels.prior_covariance(h, points, subject))
        mean = np.asarray(kernels.trend(h, points))
        first = y + rng.standard_normal((n, 16)) @ np.sqrt(error)
        data = jax.tree.map(jnp.asarray, (points, subject, jnp.ones(16), error, y))
        keys = jax.random.split(jax.random.key(0), n)
        found = np.asarray(jax.vmap(lambda f, k: dense.conditional_draw(h, data, f, k))(jnp.asarray(first), keys))
    gain = prior @ np.linalg.inv(prior + error)
    covariance = prior - gain @ prior
    np.testing.assert_allclose(
        found.mean(0), mean + gain @ (y - mean), atol=5 * np.sqrt(covariance.diagonal().max() / n)
    )
    np.testing.assert_allclose(np.cov(found.T), covariance, atol=0.05 * covariance.diagonal().max())


def posterior_of(theta, h):
    """A posterior of identical draws, to check arithmetic that is done draw by draw."""
    n = len(theta)
    variables = {"theta": (("sample", "subject"), theta)}
    for name, value in h.items():
        value = np.asarray(value)
        dims = {0: (), 1: ({"pull": "covariate", "bend": "covariate"}.get(name, "dimension"),)}[value.ndim]
        variables[name] = (("sample", *dims), np.broadcast_to(value, (n, *value.shape)))
    return xr.Dataset(variables)


def test_new_abilities_are_the_conditional_normal():
    """Mean and variance at a new size, and a known run continued, against the closed form."""
    place = layout(bi.AbilityTrajectory(), facts())
    points, subject = place.points(1)
    rng, n = np.random.default_rng(1), 6000
    h = draw_hypers(points, rng)
    y = ability(facts()).to_numpy() + 0.05 * rng.standard_normal(16)
    where = places(place, params=[1e10, 3e9], tokens=[1e11, 1e12], run=[None, place.runs[-1]])
    found, parts = new_abilities(
        posterior_of(np.broadcast_to(y, (n, 16)), h), place, where, bi.TrajectoryPriors(), seed=0
    )
    with jax.enable_x64(True):
        h = {k: jnp.asarray(v) for k, v in h.items()}
        new, new_subject = where.points(place, 1)
        old = np.asarray(kernels.prior_covariance(h, points, subject))
        between = np.asarray(kernels.covariance(h, points, new))
        within = np.asarray(kernels.prior_covariance(h, new, new_subject))
        means = [np.asarray(kernels.trend(h, p)) for p in (points, new)]
    gain = np.linalg.solve(old, between).T
    mean, covariance = means[1] + gain @ (y - means[0]), within - gain @ between
    sd = np.sqrt(covariance.diagonal())
    np.testing.assert_allclose(found[:, 0, 0].mean(0), mean, atol=4 * sd.max() / np.sqrt(n))
    np.testing.assert_allclose(found[:, 0, 0].std(0), sd, rtol=0.05)
    assert set(parts) == {"trend", "group", "subject"}
    assert (parts["group"] == 0).all()


def test_a_fit_has_one_tree_that_arviz_reads_and_a_file_keeps(fitted, tmp_path):
    posterior = fitted.tree.posterior
    assert posterior["theta"].dims == ("chain", "draw", "subject", "dimension")
    assert posterior["pull"].dims == ("chain", "draw", "covariate")
    assert (posterior["slope"] > 0).all()
    loaded = bi.load(fitted.save(tmp_path / "trend.nc"))
    assert loaded.spec == fitted.spec
    xr.testing.assert_identical(loaded.tree.posterior.to_dataset(), posterior.to_dataset())


def test_the_plane_is_recovered(fitted):
    """Gains per decade 0.9 and 0.6 at the reference, benchmarks that measure the same thing."""
    p = fitted.tree.posterior
    gain = (p["slope"] * p["pull"]).mean("dimension").stack(sample=("chain", "draw"))
    low, high = np.quantile(gain, [0.01, 0.99], axis=-1)
    assert low[0] < 0.9 < high[0]
    assert low[1] < 0.6 < high[1]
    assert float(p["correlation"][..., 0, 1].quantile(0.95)) > 0.7


def test_abilities_shrink_towards_the_trend(fitted):
    """Posterior abilities lie near the truth, with a smaller error than the scores' own."""
    truth = ability(facts()).to_numpy()
    found = fitted.tree.posterior["theta"].mean(("chain", "draw")).to_numpy()[:, 0]
    assert np.abs(found - truth).max() < 0.35


def test_forecasts_hold_the_next_size(fitted):
    found = bi.forecast(fitted, params=1e10, tokens=[1e11, 3e11], measured=True)
    assert found["accuracy"].dims == ("draw", "pool", "compute", "benchmark")
    true = expit(np.array([0.4, 0.4 + 0.6 * np.log10(3)])[:, None] + np.array([0.0, -1.0]))
    assert (found["accuracy_lower"][0] < true).all()
    assert (found["accuracy_upper"][0] > true).all()
    assert (found["accuracy_upper"] - found["accuracy_lower"]).max() < 0.4
    np.testing.assert_allclose(found["variance_share"].sum("part"), 1)
    np.testing.assert_allclose(found["beyond"], np.log10(1e10 / 3e9), rtol=1e-6)
    again = bi.forecast(fitted, params=1e10, tokens=[1e11, 3e11], measured=True)
    xr.testing.assert_identical(found, again)


def test_intervals_grow_with_the_distance(fitted):
    found = bi.forecast(fitted, params=[3e9, 3e10, 3e11], tokens=1e11, kind="ability")
    width = (found["ability_upper"] - found["ability_lower"])[0, :, 0].to_numpy()
    assert width[0] < width[1] < width[2]


def test_a_known_run_is_surer_than_a_new_one(fitted):
    known, new = (
        bi.forecast(fitted, params=3e9, tokens=6e11, kind="ability", run=run)["ability"].std("draw").max()
        for run in (facts()["run"].iloc[-1], None)
    )
    assert known < new


def test_forecasts_refuse_what_they_do_not_know(fitted):
    with pytest.raises(InputError, match=r"benchmark 'gsm8k' is not in the fit; there are \['bench 0', 'bench 1'\]"):
        bi.forecast(fitted, params=1e10, tokens=1e11, benchmark="gsm8k")
    with pytest.raises(InputError, match="kind='score'"):
        bi.forecast(fitted, params=1e10, tokens=1e11, kind="score")
    with pytest.raises(InputError, match="population=True needs answers to items"):
        bi.forecast(fitted, params=1e10, tokens=1e11, population=True)
    with pytest.raises(InputError, match=r"expected one of .'staged', 'laplace', 'nuts'. for an AbilityTrajectory"):
        bi.fit(bi.AbilityTrajectory(), scores(), method="svi")


ITEM_RNG = np.random.default_rng(3)
ITEM_B, ITEM_A = ITEM_RNG.normal(0, 0.7, 30), np.exp(0.2 * ITEM_RNG.normal(size=30))


def item_answers():
    """16 checkpoints, 30 questions of 20 trials."""
    table = facts()
    p = expit(ITEM_A * (ability(table).to_numpy()[:, None] - ITEM_B))
    counts = np.random.default_rng(3).binomial(20, p)
    answers = pd.DataFrame(counts, index=table.index, columns=[f"q{j}" for j in range(30)])
    return bi.Responses.from_wide(answers, trials=20, subjects=table)


def test_items_carry_through_to_accuracies():
    """Answers to items: accuracy of the given items, of single items, and of new items of the kind."""
    responses = item_answers()
    fit = bi.fit(bi.AbilityTrajectory(bi.ItemResponse("binomial")), responses, seed=1, draws=200, warmup=150)
    assert fit.tree.posterior["theta"].dims == ("chain", "draw", "subject")
    place = {"params": 6e9, "tokens": 3e11}
    given = bi.forecast(fit, **place)["accuracy"].squeeze()
    items = bi.forecast(fit, **place, kind="item")["probability"].squeeze()
    assert items.shape == (200, 30)
    np.testing.assert_allclose(items.mean("item").mean(), given.mean(), rtol=0.02)
    truth = expit(ITEM_A * (-0.5 + 0.9 * np.log10(6) + 0.6 * np.log10(3) - ITEM_B)).mean()
    assert float(given.quantile(0.02)) < truth < float(given.quantile(0.98))
    population = bi.forecast(fit, **place, population=True)["accuracy"].squeeze()
    assert population.std() > 0.9 * given.std()


def test_means_are_integrated_out_and_come_back():
    """Deviations from the mean and the mean given them: together the abilities' own normal, on two dimensions."""
    from bayes_irsl.models.trajectory import zero_sum_basis

    from bayes_irsl.inference.joint import _means

    table = facts().iloc[:6]
    points, subject = layout(bi.AbilityTrajectory(), table).points(2)
    rng, n = np.random.default_rng(0), 30_000
    with jax.enable_x64(True):
        h = {k: jnp.asarray(v) for k, v in draw_hypers(points, rng).items()}
        h |= {"level": jnp.zeros(2), "correlation": jnp.array([[1, 0.5], [0.5, 1]])}
        covariance = np.asarray(kernels.prior_covariance(h, points, subject))
        mean = np.asarray(kernels.trend(h, points))
        basis = zero_sum_basis(6, 2).astype(float)
        np.testing.assert_allclose(basis.T @ basis, np.eye(10), atol=1e-6)
        free = rng.multivariate_normal(basis.T @ mean, basis.T @ covariance @ basis, n)
        many = {k: jnp.broadcast_to(v, (n, *v.shape)) for k, v in h.items()}
        keys = jax.random.split(jax.random.key(0), n)
        means = np.asarray(_means(many, jnp.asarray(free), jax.tree.map(jnp.asarray, points), subject, keys))
    whole = free @ basis.T + np.repeat(means, 6, axis=1)
    sd = covariance.diagonal().max() ** 0.5
    np.testing.assert_allclose(whole.mean(0), mean, atol=5 * sd / n**0.5)
    np.testing.assert_allclose(np.cov(whole.T), covariance, atol=0.05 * sd**2)


@pytest.mark.slow
def test_joint_and_staged_agree():
    """The same answers both ways: forecasts within half their sd, widths within a fifth; the sampler has converged."""
    import arviz as az

    responses, spec = item_answers(), bi.AbilityTrajectory(bi.ItemResponse("binomial"))
    staged = bi.fit(spec, responses, seed=1, draws=1000)
    joint = bi.fit(spec, responses, seed=1, method="nuts", draws=1000)
    r_hat = az.rhat(joint.tree.posterior.dataset)
    assert max(float(v.max()) for v in r_hat.data_vars.values()) < 1.02
    found = [bi.forecast(f, params=[6e9, 2e10], tokens=3e11)["accuracy"] for f in (staged, joint)]
    means, sds = ([f.reduce(how, "draw") for f in found] for how in (np.mean, np.std))
    assert (abs(means[0] - means[1]) < 0.5 * sds[1]).all()
    np.testing.assert_allclose(sds[0] / sds[1], 1, atol=0.2)


def test_joint_fits_say_what_they_need():
    with pytest.raises(InputError, match="scores of whole benchmarks have no items to fit jointly"):
        bi.fit(bi.AbilityTrajectory(), scores(), method="nuts")
    without = item_answers()
    table = without.subjects.copy()
    table.loc[table.index[0], "params"] = np.nan
    with pytest.raises(InputError, match="15 of 16 subjects with answers have params and tokens: a joint fit needs it"):
        bi.fit(bi.AbilityTrajectory(covariates=("params", "tokens")), without.annotate(subjects=table), method="nuts")


def test_the_report_says_what_to_trust(fitted, tmp_path):
    report = fitted.report()
    names = [check.name for check in report.diagnostics]
    assert {"Pareto k", "slope", "saturation", "jumps", "independent runs"} <= set(names)
    # four runs are few, and the check says so
    assert report.diagnostics["independent runs"].verdict == "REVIEW"
    assert report.diagnostics["jumps"].verdict == "PASS"
    page = report.save(tmp_path / "trend.html").read_text(encoding="utf-8")
    assert page.count("<img") == 3
    for text in ("What a decade is worth", "Forecast of bench 1", "params and tokens"):
        assert text in page


def test_a_jump_is_named():
    """One checkpoint far off the trend must be the first of the residuals, and flagged."""
    responses = scores()
    frame = responses.to_xarray()
    row = np.flatnonzero((frame["subject_index"] == 9) & (frame["item_index"] == 0))[0]
    answer = frame["answer"].to_numpy().copy()
    answer[row] = min(answer[row] + 900, 1990)
    odd = bi.Responses.from_xarray(frame.assign(answer=("obs_id", answer)))
    table = bi.fit(bi.AbilityTrajectory(), odd, seed=0, draws=200, warmup=100).report().diagnostics["jumps"].table
    assert table["subject"][0] == odd.subjects.index[9]
    assert abs(table["z"][0]) > 2 * abs(table["z"][1]) or abs(table["z"][0]) > 4
