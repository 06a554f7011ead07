"""fit(): all three methods, the tree that they share, saving, and answers that cannot carry a model."""

import json
from dataclasses import replace

import arviz as az
import numpy as np
import pandas as pd
import pytest

import bayes_irsl as bi
from bayes_irsl.errors import InputError
from bayes_irsl.simulate import to_calibration_scale

GROUPS = {"posterior", "sample_stats", "log_prior", "observed_data", "constant_data"}


@pytest.fixture(scope="module")
def answers():
    """30 x 40 right/wrong answers; first row all right, second all wrong (BIN-01)."""
    responses, truth = bi.simulate_responses(30, 40, sd_log_a=0.3, seed=4)
    y = responses.dense()[0].copy()
    y[0], y[1] = 1.0, 0.0
    return bi.Responses.from_wide(y), truth


@pytest.fixture(scope="module")
def laplace(answers):
    return bi.fit(bi.ItemResponse(), answers[0], method="laplace", seed=0, draws=2000)


@pytest.fixture(scope="module")
def nuts(answers):
    return bi.fit(bi.ItemResponse(), answers[0], method="nuts", seed=0, draws=500)


@pytest.fixture(scope="module")
def svi(answers):
    return bi.fit(bi.ItemResponse(), answers[0], method="svi", seed=0, draws=2000)


def stacked(fit, name):
    values = fit.tree.posterior[name].values
    return values.reshape(-1, *values.shape[2:])


@pytest.mark.parametrize("method", ["laplace", "nuts", "svi"])
def test_all_methods_give_the_same_kind_of_tree(method, request):
    fit = request.getfixturevalue(method)
    assert set(fit.tree.children) - {"guide"} == GROUPS  # SVI keeps what it takes to train on
    assert fit.method == method
    p = fit.tree.posterior
    assert p["theta"].dims == ("chain", "draw", "subject")
    assert p["b"].dims == p["a"].dims == ("chain", "draw", "item")
    assert p.sizes["chain"] == 4
    assert list(p["subject"].values) == list(fit.responses.subjects.index)
    np.testing.assert_allclose(p["theta"].mean("subject"), 0, atol=1e-4)
    np.testing.assert_allclose(p["theta"].std("subject"), 1, atol=1e-4)
    assert (p["a"] > 0).all()
    assert set(fit.tree["log_prior"].data_vars) == {"theta", "items", "hypers"}
    assert np.isfinite(fit.tree["log_prior"].to_dataset().to_array()).all()
    assert (
        "chain" in az.summary(fit.tree, var_names=["sd_log_a"]).columns
        or len(az.summary(fit.tree, var_names=["sd_log_a"])) == 1
    )


def test_laplace_and_svi_agree_with_nuts(laplace, nuts, svi):
    assert float(az.rhat(nuts.tree)["theta"].max()) < 1.02
    assert int(nuts.tree.sample_stats.diverging.sum()) == 0
    for approximation in (laplace, svi):
        for name in ("theta", "b"):
            exact = stacked(nuts, name)
            apart = np.abs(np.median(stacked(approximation, name), 0) - np.median(exact, 0)) / exact.std(0)
            assert np.quantile(apart, 0.9) < 0.35, (approximation.method, name)
            ratio = stacked(approximation, name).std(0) / exact.std(0)
            assert 0.85 < np.median(ratio) < 1.15, (approximation.method, name)


def test_scale_does_not_flip(nuts, answers):
    """BIN-01: in every chain ability follows the row totals; all right is highest, all wrong lowest."""
    totals = np.nanmean(answers[0].dense()[0], 1)
    for chain in nuts.tree.posterior["theta"].mean("draw").values:
        assert np.corrcoef(chain, totals)[0, 1] > 0.95
        assert chain.argmax() == 0
        assert chain.argmin() == 1


def test_difficulty_falls_with_pass_rate():
    """BIN-02."""
    rng = np.random.default_rng(0)
    y = (rng.random((200, 3)) < [0.95, 0.5, 0.05]).astype(float)
    fit = bi.fit(bi.ItemResponse(curve="1pl"), bi.Responses.from_wide(y), seed=0, draws=400)
    assert (np.diff(fit.tree.posterior["b"].mean(("chain", "draw")).values) > 0).all()
    a = fit.tree.posterior["a"].values
    np.testing.assert_allclose(a, a[..., :1].repeat(3, -1), rtol=1e-5)


def test_same_seed_same_numbers(answers, laplace):
    again = bi.fit(bi.ItemResponse(), answers[0], method="laplace", seed=0, draws=2000)
    other = bi.fit(bi.ItemResponse(), answers[0], method="laplace", seed=1, draws=2000)
    assert again.tree.posterior.identical(laplace.tree.posterior)
    assert not other.tree.posterior.identical(laplace.tree.posterior)


def test_empty_rows_and_columns_keep_their_place_and_prior(answers):
    """DATA-06."""
    y = answers[0].dense()[0].copy()
    y[2], y[:, 1] = np.nan, np.nan
    fit = bi.fit(bi.ItemResponse(), bi.Responses.from_wide(y), seed=0, draws=4000)
    p = fit.tree.posterior
    assert (p.sizes["subject"], p.sizes["item"]) == (30, 40)
    empty = stacked(fit, "theta")[:, 2]
    assert abs(empty.mean()) < 4 / np.sqrt(4000)
    assert abs(empty.std() - 1) < 0.05
    assert stacked(fit, "b")[:, 1].std() > 2 * np.median(stacked(fit, "b").std(0))


def test_missing_cells_equal_dropped_cells(answers):
    """A sparse long table and the same wide table with NaN are one fit."""
    y = answers[0].dense()[0].copy()
    y[np.random.default_rng(0).random(y.shape) < 0.7] = np.nan
    wide = bi.Responses.from_wide(y)
    frame = wide.to_xarray()
    long = bi.Responses.from_long(
        pd.DataFrame(
            {
                "subject": frame["subject"].values[frame["subject_index"].values],
                "item": frame["item"].values[frame["item_index"].values],
                "answer": frame["answer"].values,
            }
        ).sample(frac=1, random_state=0),
        answer="answer",
    ).select(subjects=list(wide.subjects.index), items=list(wide.items.index))
    first, second = (bi.fit(bi.ItemResponse(), r, seed=0, draws=200) for r in (wide, long))
    np.testing.assert_allclose(stacked(first, "theta"), stacked(second, "theta"), atol=1e-5)


def test_fixed_guessing_stays_fixed():
    """BIN-16: items with a known chance level keep exactly that, the others learn theirs."""
    responses, _ = bi.simulate_responses(60, 10, curve="3pl", guessing=0.25, seed=2)
    chance = pd.DataFrame({"chance": [0.25] * 5 + [np.nan] * 5}, index=responses.items.index)
    fit = bi.fit(bi.ItemResponse(curve="3pl", guessing="fixed"), responses.annotate(items=chance), seed=0, draws=400)
    c = stacked(fit, "c")
    assert (c[:, :5] == np.float32(0.25)).all()
    assert (c[:, 5:].std(0) > 0.01).all()


def test_fixed_hyperparameters_are_used_and_named():
    responses, _ = bi.simulate_responses(20, 15, seed=0)
    priors = bi.ItemPriors(sd_log_a=0.3, mean_intercept=0.0)
    fit = bi.fit(bi.ItemResponse(priors=priors), responses, seed=0, draws=200)
    assert (stacked(fit, "sd_log_a") == np.float32(0.3)).all()
    assert set(json.loads(fit.tree.attrs["fixed"])) == {"sd_log_a", "mean_intercept"}


def test_save_and_load(laplace, tmp_path):
    path = laplace.save(tmp_path / "fit.nc")
    back = bi.load(path)
    assert back.spec == laplace.spec
    assert back.seed == laplace.seed
    assert back.responses.data_hash == laplace.responses.data_hash
    for group in GROUPS - {"observed_data"}:
        assert back.tree[group].to_dataset().equals(laplace.tree[group].to_dataset()), group
    assert [f.name for f in tmp_path.iterdir()] == ["fit.nc"]
    (tmp_path / "broken.nc").write_bytes(b"not a file of ours")
    with pytest.raises(bi.InputError, match=r"broken\.nc is not a file written by"):
        bi.load(tmp_path / "broken.nc")
    with pytest.raises(bi.InputError, match="there is no file"):
        bi.load(tmp_path / "absent.nc")
    with pytest.raises(bi.InputError, match="there is no folder"):
        laplace.save(tmp_path / "absent" / "fit.nc")


def test_coverage_of_known_truth_at_moderate_size():
    responses, truth = bi.simulate_responses(80, 120, likelihood="beta", phi=20.0, seed=7)
    truth = to_calibration_scale(truth)
    fit = bi.fit(bi.ItemResponse(), responses, seed=0, draws=1000)
    for name in ("theta", "a", "b"):
        low, high = np.quantile(stacked(fit, name), [0.05, 0.95], axis=0)
        inside = np.mean((low <= truth[name].values) & (truth[name].values <= high))
        assert 0.8 < inside < 0.98, (name, inside)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"likelihood": "beta"}, "does not describe binary answers"),
        ({"abilities": "topic"}, "no such item column"),
    ],
)
def test_spec_that_does_not_fit_the_answers(answers, change, message):
    with pytest.raises(bi.InputError, match=message):
        bi.fit(replace(bi.ItemResponse(), **change), answers[0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"likelihood": "normal"}, "expected one of"),
        ({"squeeze": 1}, "whole number"),
        ({"priors": 3}, "ItemPriors"),
    ],
)
def test_spec_refuses_nonsense(options, message):
    with pytest.raises(bi.InputError, match=message):
        bi.ItemResponse(**options)


@pytest.mark.parametrize(
    "options", [{"sd_theta": -1.0}, {"lkj": "x"}, {"sd_log_a": bi.Normal(0, 1)}, {"cut": float("nan")}]
)
def test_priors_refuse_nonsense(options):
    with pytest.raises(bi.InputError):
        bi.ItemPriors(**options)


def test_spec_survives_json():
    spec = bi.ItemResponse("beta", squeeze=50, priors=bi.ItemPriors(sd_log_a=0.3))
    assert bi.ItemResponse.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec


def test_boundary_answers_need_a_rule():
    """BETA-02: Beta refuses exact 0 and 1 unless a rule is named; auto takes the ordered beta."""
    responses = bi.Responses.from_wide(np.array([[0.0, 0.5, 0.7], [0.2, 1.0, 0.9]]))
    with pytest.raises(bi.InputError, match="2 of 6 answers are exactly 0 or 1"):
        bi.ItemResponse("beta").resolve(responses)
    assert bi.ItemResponse().resolve(responses).likelihood == "ordered-beta"
    assert bi.ItemResponse("beta", squeeze=50).resolve(responses).squeeze == 50


@pytest.mark.parametrize("shape", [(1, 5), (5, 1)])
def test_one_subject_or_one_item_has_no_scale(shape):
    y = np.random.default_rng(0).integers(0, 2, shape).astype(float)
    with pytest.raises(bi.InputError, match="at least 2 are needed to set a scale"):
        bi.fit(bi.ItemResponse(), bi.Responses.from_wide(y))


@pytest.mark.parametrize("options", [{"draws": 0}, {"chains": True}, {"seed": -1}, {"method": "gibbs"}])
def test_fit_refuses_nonsense(answers, options):
    with pytest.raises(bi.InputError):
        bi.fit(bi.ItemResponse(), answers[0], **options)


def test_svi_stops_at_its_limit_and_goes_on_from_there(answers, tmp_path):
    spec = bi.ItemResponse()
    short = bi.fit(spec, answers[0], method="svi", max_steps=100, draws=100)
    assert short.diagnostics["stopped"] == "100 steps done"
    assert not short.diagnostics["converged"]
    loaded = bi.load(short.save(tmp_path / "short.nc"))
    longer = bi.fit(spec, answers[0], method="svi", start=loaded, draws=100)
    assert longer.diagnostics["converged"]
    # It goes on where the other stopped: 100 more steps end nearer to the result than the first 100 did.
    more = bi.fit(spec, answers[0], method="svi", start=loaded, max_steps=100, draws=100)
    scale = [f.tree["guide"]["scale"].values for f in (short, more, longer)]
    assert np.abs(scale[1] - scale[2]).mean() < np.abs(scale[0] - scale[2]).mean()
    with pytest.raises(InputError, match="another spec or of other answers"):
        bi.fit(bi.ItemResponse(curve="1pl"), answers[0], method="svi", start=short)
    with pytest.raises(InputError, match="method='svi'"):
        bi.fit(spec, answers[0], start=short)
    with pytest.raises(InputError, match="fit by 'laplace'"):
        bi.fit(spec, answers[0], method="svi", start=bi.fit(spec, answers[0], draws=50))
