"""First stage and large fits: benchmarks' items fitted apart come together again, and many subjects go through."""

import json

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy.special import expit

import bayes_irsl as bi
from bayes_irsl.inference.staged import DENSE_ROWS, REPEATS, once


def two_benchmarks(seed=0, checkpoints=18, questions=12, trials=20):
    """Counts on two benchmarks whose questions stand mixed in the table."""
    rng = np.random.default_rng(seed)
    compute = np.geomspace(1e19, 1e22, checkpoints)
    theta = 0.8 * np.log10(compute / 10**20.5)
    subjects = pd.DataFrame({"compute": compute}, index=pd.Index([f"m{i}" for i in range(checkpoints)], name="subject"))
    b, a = rng.normal(0, 0.7, 2 * questions), np.exp(0.3 * rng.standard_normal(2 * questions))
    names = [f"q{j:02d}" for j in rng.permutation(2 * questions)]
    items = pd.DataFrame({"benchmark": ["easy", "hard"] * questions}, index=pd.Index(names, name="item"))
    shift = np.where(items["benchmark"] == "hard", -1.0, 0.0)
    counts = rng.binomial(trials, expit(a * (theta[:, None] - b) + shift))
    table = pd.DataFrame(counts, index=subjects.index, columns=names)
    return bi.Responses.from_wide(table, trials=trials, subjects=subjects, items=items), expit(
        a * (0.8 * 2 - b) + shift
    )


@pytest.fixture(scope="module")
def fitted():
    responses, truth = two_benchmarks()
    spec = bi.AbilityTrajectory(bi.ItemResponse("beta-binomial", abilities="benchmark"))
    return bi.fit(spec, responses, seed=0, draws=400), truth


def test_items_come_back_in_their_order(fitted):
    fit, _ = fitted
    posterior, constant = fit.tree.posterior, fit.tree["constant_data"]
    assert posterior["a"].dims == ("chain", "draw", "item")
    assert posterior["item"].to_numpy().tolist() == fit.responses.items.index.tolist()
    assert constant["item_benchmark"].to_numpy().tolist() == fit.responses.items["benchmark"].tolist()
    assert constant["item_dimension"].to_numpy().tolist() == fit.responses.items["benchmark"].tolist()
    assert posterior["theta"].dims == ("chain", "draw", "subject", "dimension")
    assert posterior["phi"].dims == ("chain", "draw", "item")
    assert posterior["sd_log_a"].dims == ("chain", "draw", "benchmark")
    assert json.loads(fit.tree.attrs["diagnostics"])["items_converged"]


def test_each_benchmark_has_the_items_of_its_own_fit(fitted):
    """The draws of a benchmark fitted by itself are those in the whole."""
    fit, _ = fitted
    hard = fit.responses.select(items=(fit.responses.items["benchmark"] == "hard").to_numpy())
    alone = bi.fit(bi.ItemResponse("beta-binomial"), hard, method="laplace", seed=0, draws=400)
    xr.testing.assert_allclose(
        fit.tree.posterior["b"].sel(item=hard.items.index.tolist()).drop_vars("item"),
        alone.tree.posterior["b"].drop_vars("item"),
    )


def test_forecasts_of_both_kinds_follow(fitted):
    fit, truth = fitted
    for settings in ({}, {"population": True}, {"measured": True}):
        found = bi.forecast(fit, compute=10**22.5, **settings)
        for name in ("easy", "hard"):
            expected = truth[(fit.responses.items["benchmark"] == name).to_numpy()].mean()
            one = found.sel(benchmark=name)
            margin = 0.1 if "population" in settings else 0.02
            assert (
                float(one["accuracy_lower"].squeeze()) - margin
                < expected
                < float(one["accuracy_upper"].squeeze()) + margin
            )


def many_scores(n_groups=5, n_sizes=5, n_checkpoints=9, seed=0):
    """225 checkpoints of 25 runs in five recipes that differ, one benchmark of 400 questions."""
    rng = np.random.default_rng(seed)
    rows = [
        (f"r{g}", f"r{g}/{s:.0e}", s, s * t)
        for g in range(n_groups)
        for s in np.geomspace(1e7, 1e9, n_sizes)
        for t in np.geomspace(5, 100, n_checkpoints)
    ]
    table = pd.DataFrame(rows, columns=["family", "run", "params", "tokens"])
    table.index = pd.Index([f"s{i}" for i in range(len(table))], name="subject")
    recipe = np.linspace(-0.4, 0.4, n_groups)[table["family"].str[1:].astype(int)]
    theta = 0.5 * (np.log10(table["params"] / 1e8) + np.log10(table["tokens"] / 1e10)) + recipe
    run = 0.05 * rng.standard_normal(n_groups * n_sizes).repeat(n_checkpoints)
    theta = theta + run + 0.05 * rng.standard_normal(len(theta))
    counts = rng.binomial(400, expit(theta))
    long = pd.DataFrame({"subject": table.index, "item": "bench", "k": counts, "n": 400})
    items = pd.DataFrame({"benchmark": ["bench"]}, index=pd.Index(["bench"], name="item"))
    return bi.Responses.from_long(long, successes="k", trials="n", subjects=table, items=items), theta.to_numpy()


def test_many_subjects_go_through_in_blocks(tmp_path):
    responses, theta = many_scores()
    assert responses.n_subjects > DENSE_ROWS
    fit = bi.fit(bi.AbilityTrajectory(pool="family"), responses, seed=0, draws=400)
    hypers = {k: fit.tree.posterior[k].to_numpy().reshape(400, -1) for k in ("slope", "sd_own")}
    assert len(once(hypers)["slope"]) == 400 // REPEATS
    low, high = fit.tree.posterior["theta"].quantile([0.05, 0.95], ("chain", "draw")).to_numpy()[..., 0]
    inside = np.mean((low < theta) & (theta < high))
    assert 0.8 < inside < 0.98
    ahead = bi.forecast(fit, params=3e9, tokens=3e11, pool=["r0", "r4"], kind="ability")
    expected = 0.5 * (np.log10(30) + np.log10(30)) + np.array([-0.4, 0.4])
    assert (ahead["ability_lower"].to_numpy()[:, 0, 0] < expected).all()
    assert (ahead["ability_upper"].to_numpy()[:, 0, 0] > expected).all()
    assert float(bi.prob_better(fit, "r4", "r0", params=3e9, tokens=3e11)["probability"].squeeze()) > 0.95
    report = fit.report()
    assert report.diagnostics["Pareto k"].verdict == "PASS"
    assert report.diagnostics["jumps"].verdict == "PASS"
    assert report.save(tmp_path / "large.html").is_file()


def test_laplace_is_near_importance_sampling():
    """The same scores both ways: forecasts within half an sd, and the report says that nothing has checked it."""
    responses, _ = many_scores(n_groups=3, n_sizes=4, n_checkpoints=2)
    fits = [bi.fit(bi.AbilityTrajectory(pool="family"), responses, method=m, seed=0) for m in ("staged", "laplace")]
    found = [bi.forecast(f, params=3e9, tokens=3e11, pool=["r0", "r2"], kind="ability")["ability"] for f in fits]
    sd = found[0].std("draw")
    assert (abs(found[0].mean("draw") - found[1].mean("draw")) < 0.5 * sd).all()
    np.testing.assert_allclose(found[1].std("draw") / sd, 1, atol=0.35)
    assert fits[1].report().diagnostics["hyperparameters"].verdict == "REVIEW"
