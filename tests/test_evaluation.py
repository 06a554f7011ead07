"""Proper scores, clustered errors, splits and the laws of today."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.special import expit, logit

import bayes_irsl as bi
from bayes_irsl.baselines import scaling
from bayes_irsl.baselines.irsl import IrslLine
from bayes_irsl.errors import InputError
from bayes_irsl.forecasts.evaluation import forward_splits, forward_validation, summarise
from bayes_irsl.forecasts.score_table import score_table
from bayes_irsl.forecasts.scores import clustered_error, crps, log_score, score_draws

SUBJECTS = [f"m{i}" for i in range(12)]


def runs(noise=0.0, seed=0):
    """Four sizes, three checkpoints each: logit accuracy = -1 + 0.5 log N + 0.3 log D - 0.1 (products), in decades."""
    size = np.repeat([1e8, 1e9, 1e10, 1e11], 3)
    tokens = np.tile([1e10, 1e11, 1e12], 4)
    n, d = np.log10(size) - 9.5, np.log10(tokens) - 11
    eta = -1 + 0.5 * n + 0.3 * d - 0.1 * n * d + noise * np.random.default_rng(seed).normal(size=12)
    return pd.DataFrame(
        {"subject": SUBJECTS, "benchmark": "x", "score": expit(eta), "answers": np.nan, "chance": 0.0, "params": size,
         "tokens": tokens, "compute": 6 * size * tokens, "run": np.repeat(list("abcd"), 3)}
    )  # fmt: skip


def test_crps_of_a_normal():
    """Closed form (Gneiting and Raftery 2007, equation 21)."""
    draws = stats.norm.ppf((np.arange(4000) + 0.5) / 4000)[:, None]
    for y in (0.0, 1.3, -2.0):
        exact = y * (2 * stats.norm.cdf(y) - 1) + 2 * stats.norm.pdf(y) - 1 / np.sqrt(np.pi)
        assert crps(draws, np.array([y]))[0] == pytest.approx(exact, abs=2e-3)


def test_crps_of_one_value_is_the_absolute_error_and_of_two_by_hand():
    assert crps(np.array([[0.2]]), np.array([0.5]))[0] == pytest.approx(0.3)
    # E|X - y| = (0.2 + 0.4) / 2, E|X - X'| = 0.6 / 2
    assert crps(np.array([[0.0], [0.6]]), np.array([0.2]))[0] == pytest.approx(0.3 - 0.15)


def test_log_score_of_a_normal():
    draws = np.random.default_rng(0).normal(size=(4000, 1))
    assert log_score(draws, np.array([0.5]))[0] == pytest.approx(stats.norm.logpdf(0.5), abs=0.05)


def test_scores_prefer_the_truth():
    """A forecast that is too narrow or too wide loses in both scores on average."""
    rng = np.random.default_rng(0)
    y = rng.normal(size=400)
    z = rng.normal(size=(500, 400))
    means = {s: {k: v.mean() for k, v in score_draws(s * z, y).items()} for s in (0.3, 1.0, 3.0)}
    assert means[1.0]["crps"] < min(means[0.3]["crps"], means[3.0]["crps"])
    assert means[1.0]["log_score"] > max(means[0.3]["log_score"], means[3.0]["log_score"])
    assert abs(means[1.0]["inside_90"] - 0.9) < 0.05
    assert means[0.3]["inside_90"] < 0.5


def test_clustered_error_by_hand():
    """Two clusters with sums +1 and -1 of four centred values: sqrt(2 * 2 / 1) / 4 = 0.5."""
    assert clustered_error(np.array([1.0, 0.0, -1.0, 0.0]), np.array(list("aabb"))) == pytest.approx(0.5)
    assert np.isnan(clustered_error(np.array([1.0, 2.0]), np.array(["a", "a"])))


@pytest.mark.parametrize("law", ["params x tokens"])
def test_the_plane_with_its_product_is_recovered(law):
    table = runs()
    train, test = table[table["params"] < 1e11], table[table["params"] >= 1e11]
    found = scaling.LAWS[law](train, test, np.random.default_rng(0), 50)
    np.testing.assert_allclose(found, np.broadcast_to(test["score"], found.shape), atol=2e-4)


def test_the_line_in_compute_is_recovered():
    table = runs()
    table["score"] = expit(-2 + 0.4 * (np.log10(table["compute"]) - 20))
    found = scaling.logistic_compute(table[:9], table[9:], np.random.default_rng(0), 20)
    # half an answer of 2,000 is added to each side
    np.testing.assert_allclose(found, np.broadcast_to(table["score"][9:], found.shape), atol=5e-4)


def test_the_power_law_is_recovered_up_to_its_ceiling():
    table = runs()
    x = np.log10(table["compute"].to_numpy())
    table["score"] = 0.8 * -np.expm1(-(10 ** (0.3 * (x - 20.5))))
    found = scaling.power_law(table[:9], table[9:], np.random.default_rng(0), 20)
    np.testing.assert_allclose(found.mean(0), table["score"][9:], atol=0.02)


def test_same_step_carries_the_largest_size_on():
    table = runs()
    table["score"] = expit(np.tile([-1.0, 0.0, 1.0], 4))
    found = scaling.same_step(table[:9], table[9:], np.random.default_rng(0), 30)
    np.testing.assert_allclose(found, np.broadcast_to(expit([-1.0, 0.0, 1.0]), found.shape), atol=1e-3)


def test_last_value_is_the_own_runs_last():
    table = runs()
    later = table.iloc[[2]].assign(tokens=1e13, compute=6e22)
    found = scaling.last_value(table, later, np.random.default_rng(0), 400)
    steps = np.concatenate([np.diff(logit(part)) for part in table["score"].to_numpy().reshape(4, 3)])
    gained = logit(found[:, 0]) - logit(table["score"][2])
    assert steps.min() - 0.01 < gained.min() <= gained.max() < steps.max() + 0.01


def test_spread_of_the_regressions_covers():
    """90 % intervals of the bootstrap for new noisy points, many tables: near 90 %, neither 100 nor 70."""
    inside = []
    for seed in range(40):
        table = runs(noise=0.2, seed=seed)
        fresh = runs(noise=0.2, seed=1000 + seed)
        found = scaling.params_tokens(table, fresh, np.random.default_rng(seed), 400)
        low, high = np.quantile(found, [0.05, 0.95], axis=0)
        inside.append(((fresh["score"] > low) & (fresh["score"] < high)).mean())
    assert 0.8 < np.mean(inside) < 0.97


def responses():
    table = runs(noise=0.02)
    answers = pd.DataFrame(
        {"subject": table["subject"], "item": "x", "k": np.round(table["score"] * 500).astype(int), "n": 500}
    )
    return bi.Responses.from_long(
        answers, successes="k", trials="n",
        subjects=table.set_index("subject")[["params", "tokens", "compute", "run"]],
    )  # fmt: skip


def test_forward_splits_fit_the_small_and_forecast_the_large():
    found = forward_splits(responses(), least=2)
    assert [name for name, _, _ in found] == ["params <= 1e+09", "params <= 1e+10"]
    for _, train, test in found:
        assert train.subjects["params"].max() < test.subjects["params"].min()
        assert train.n_subjects + test.n_subjects == 12
    with pytest.raises(InputError, match="4 distinct values of 'params': expected more than least=4"):
        forward_splits(responses(), least=4)
    with pytest.raises(InputError, match="no such subject column"):
        forward_splits(responses(), by="layers")


def test_laws_side_by_side_in_one_tidy_table():
    table = forward_validation(forward_splits(responses()), scaling.LAWS, draws=200)
    # the two-step law needs losses, which there are none of
    assert set(table["arm"]) == set(scaling.LAWS) - {"two-step"}
    assert len(table) == 3 * (len(scaling.LAWS) - 1)
    found = summarise(table).set_index("arm")
    assert (found["forecasts"] == 3).all()
    assert found["crps"].notna().all()
    assert found.loc["params x tokens", "crps"] < found.loc["same step", "crps"]


def test_a_law_that_lacks_its_covariate_is_left_out():
    bare = responses()
    bare = bi.Responses.from_xarray(bare.to_xarray().drop_vars("tokens"))
    table = forward_validation(forward_splits(bare), scaling.LAWS, draws=50)
    assert "params x tokens" not in set(table["arm"])
    assert "logistic in compute" in set(table["arm"])


def test_decision_accuracy_is_of_pairs_of_one_split():
    split, cluster = ["s", "s", "s", "t"], list("abcd")
    table = pd.DataFrame({"arm": "x", "split": split, "benchmark": "b", "cluster": cluster})
    table = table.assign(observed=[1.0, 2, 3, 0], mean=[1.0, 3, 2, 9])
    scores = ("crps", "log_score", "inside_50", "inside_90", "width_50", "width_90", "error")
    found = summarise(table.assign(**dict.fromkeys(scores, 0.0)))
    assert found["decision_accuracy"].item() == pytest.approx(2 / 3)


def test_irsl_line_by_its_own_recipe():
    """On abilities that are straight in log compute it forecasts the next models; scores without items are not its."""
    rng = np.random.default_rng(4)
    compute = np.logspace(19, 22, 60)
    theta, b = 0.8 * (np.log10(compute) - 20.5), rng.normal(size=80)
    table = (rng.uniform(size=(60, 80)) < expit(1.2 * (theta[:, None] - b))).astype(float)
    names = [f"m{i}" for i in range(60)]
    facts = pd.DataFrame({"compute": compute, "family": ["p", "q"] * 30}, index=pd.Index(names, name="subject"))
    answers = bi.Responses.from_wide(pd.DataFrame(table, index=names).add_prefix("q"), subjects=facts)
    train, test = answers.select(subjects=compute < 1e21), answers.select(subjects=compute >= 1e21)
    ahead = score_table(test)
    truth = expit(1.2 * (theta[compute >= 1e21, None] - b)).mean(1)
    for arm in (IrslLine(), IrslLine(group="family")):
        draws = arm.predict(train, ahead, 0)[ahead["benchmark"].iloc[0]]
        assert draws.shape == (1000, len(truth))
        np.testing.assert_allclose(draws.mean(0), truth, atol=0.09)
        assert draws.std(0).min() > 0.001
    with pytest.raises(InputError, match="scores of whole benchmarks have no items"):
        IrslLine().predict(responses(), ahead, 0)
