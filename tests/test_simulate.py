"""Simulated answers: they follow the model they name, and carry the truth along."""

import time
import tracemalloc

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit, logit

from bayes_irsl.errors import InputError
from bayes_irsl.simulate import KINDS, simulate_like, simulate_responses, to_calibration_scale


def means(truth):
    """Mean of every answer, subjects x items."""
    eta = truth["a"].to_numpy() * truth["theta"].to_numpy()[:, None] + truth["intercept"].to_numpy()
    c = truth["c"].to_numpy() if "c" in truth else 0.0
    return c + (1 - c) * expit(eta)


@pytest.mark.parametrize("likelihood", list(KINDS))
def test_same_seed_same_answers(likelihood):
    first, truth = simulate_responses(30, 20, likelihood=likelihood, seed=4, missing=0.3)
    again, same = simulate_responses(30, 20, likelihood=likelihood, seed=4, missing=0.3)
    other, _ = simulate_responses(30, 20, likelihood=likelihood, seed=5, missing=0.3)
    assert first.data_hash == again.data_hash != other.data_hash
    assert truth.equals(same)
    assert first.kind == KINDS[likelihood]
    assert first.notes[0].startswith("simulated")


def test_blocks_do_not_change_the_answers(monkeypatch):
    whole, _ = simulate_responses(40, 30, likelihood="beta", missing=0.2)
    monkeypatch.setattr("bayes_irsl.simulate._BLOCK_CELLS", 70)
    pieces, _ = simulate_responses(40, 30, likelihood="beta", missing=0.2)
    assert whole.data_hash == pieces.data_hash


@pytest.mark.parametrize("curve", ["1pl", "2pl", "3pl"])
@pytest.mark.parametrize("likelihood", ["bernoulli", "binomial", "beta-binomial", "beta"])
def test_answers_have_the_mean_and_variance_of_their_model(likelihood, curve):
    trials = 7 if KINDS[likelihood] == "count" else None
    responses, truth = simulate_responses(
        400, 300, likelihood=likelihood, curve=curve, trials=trials, phi=4.0, sd_log_phi=0.3, seed=1
    )
    mean = means(truth).ravel()
    phi = np.tile(truth["phi"].to_numpy(), 400) if "phi" in truth else None
    unit = mean * (1 - mean)
    variance = {
        "bernoulli": lambda: unit,
        "binomial": lambda: unit / 7,
        "beta-binomial": lambda: unit / 7 * (1 + 6 / (phi + 1)),
        "beta": lambda: unit / (1 + phi),
    }[likelihood]()
    residual = responses.rate - mean
    z = residual.sum() / np.sqrt(variance.sum())
    assert abs(z) < 4
    assert (residual**2).sum() / variance.sum() == pytest.approx(1, abs=0.02)
    assert ("c" in truth) == (curve == "3pl")
    assert bool((truth["a"] == 1).all()) == (curve == "1pl")


def test_ordered_beta_has_its_boundary_shares():
    """BETA-04: eta = 0.4, cutpoints -2 and 2.5."""
    responses, _ = simulate_responses(
        1,
        200_000,
        likelihood="ordered-beta",
        curve="1pl",
        theta=0.0,
        intercept=0.4,
        cuts=(-2.0, 2.5),
        phi=10.0,
    )
    answer = responses.answer.astype(float)
    assert (answer == 0).mean() == pytest.approx(np.exp(-2.486836), abs=0.002)
    assert (answer == 1).mean() == pytest.approx(np.exp(-2.215520), abs=0.002)
    assert answer.mean() == pytest.approx(0.592675, abs=0.003)


def test_zero_one_beta_has_its_boundary_shares():
    responses, _ = simulate_responses(
        1,
        100_000,
        likelihood="zero-one-beta",
        curve="1pl",
        theta=0.0,
        intercept=0.4,
        logit_boundary=-1.0,
        logit_one=1.0,
    )
    answer = responses.answer.astype(float)
    inside = (answer > 0) & (answer < 1)
    assert inside.mean() == pytest.approx(1 - expit(-1), abs=0.006)
    assert (answer == 1).sum() / (~inside).sum() == pytest.approx(expit(1), abs=0.01)
    assert answer[inside].mean() == pytest.approx(expit(0.4), abs=0.003)


def test_beta_answers_never_touch_the_boundary():
    """BETA-02: also where the precision is so low that draws underflow; how many is said."""
    responses, _ = simulate_responses(50, 50, likelihood="beta", phi=0.01, mean_intercept=3.0)
    assert ((responses.answer > 0) & (responses.answer < 1)).all()
    assert "nearer to 0 or 1 than float64" in responses.notes[1]


def test_truth_spreads_and_benchmarks():
    responses, truth = simulate_responses(
        4_000,
        3_000,
        n_benchmarks=3,
        mean_intercept=[-1.0, 0.0, 1.5],
        sd_intercept=0.5,
        sd_theta=0.8,
        missing=0.99,
    )
    assert truth["theta"].std().item() == pytest.approx(0.8, rel=0.05)
    assert np.log(truth["a"]).std().item() == pytest.approx(0.4, rel=0.05)
    by_benchmark = truth["intercept"].groupby("item_benchmark")
    np.testing.assert_allclose(by_benchmark.mean(), [-1.0, 0.0, 1.5], atol=0.06)
    np.testing.assert_allclose(by_benchmark.std(), 0.5, rtol=0.07)
    np.testing.assert_allclose(truth["b"], -truth["intercept"] / truth["a"])
    assert responses.items["benchmark"].tolist() == truth["item_benchmark"].to_numpy().tolist()
    assert responses.density == pytest.approx(0.01, rel=0.02)
    np.testing.assert_array_equal(truth["n_answers"], np.bincount(responses.subject_index, minlength=4_000))


def test_given_abilities_intercepts_trials_and_guessing():
    theta, intercept = [-1.0, 0.0, 2.0], [0.5, -0.5]
    responses, truth = simulate_responses(
        3,
        2,
        likelihood="binomial",
        curve="3pl",
        theta=theta,
        intercept=intercept,
        trials=[4, 9],
        guessing=[0.1, 0.25],
    )
    np.testing.assert_array_equal(truth["theta"], theta)
    np.testing.assert_array_equal(truth["intercept"], intercept)
    assert responses.trials.tolist() == [4, 9] * 3
    assert responses.items["chance"].tolist() == truth["c"].to_numpy().tolist() == [0.1, 0.25]


@pytest.mark.parametrize("seed", range(3))
def test_calibration_scale(seed):
    _, truth = simulate_responses(
        25, 40, curve="3pl", likelihood="beta", mean_intercept=1.0, sd_theta=2.5, missing=0.5, seed=seed
    )
    scaled = to_calibration_scale(truth)
    assert scaled["theta"].mean().item() == pytest.approx(0, abs=1e-12)
    assert scaled["theta"].std(ddof=0).item() == pytest.approx(1)
    np.testing.assert_allclose(means(scaled), means(truth))
    np.testing.assert_allclose(scaled["b"], -scaled["intercept"] / scaled["a"])
    m, s = truth["theta"].mean().item(), truth["theta"].std(ddof=0).item()
    np.testing.assert_allclose(scaled["b"], (truth["b"] - m) / s)
    np.testing.assert_allclose(scaled["a"], truth["a"] * s)
    np.testing.assert_allclose(scaled["sd_theta"], truth["sd_theta"] / s)
    assert scaled.attrs["scale"] == "calibration"
    some = to_calibration_scale(truth, subjects=["subject-3", "subject-7", "subject-9"])
    assert some["theta"].to_numpy()[[3, 7, 9]].std() == pytest.approx(1)
    mask = np.arange(25) % 2 == 0
    assert to_calibration_scale(truth, subjects=mask)["theta"].to_numpy()[mask].mean() == pytest.approx(0, abs=1e-12)


def test_calibration_scale_leaves_out_subjects_without_answers_and_carries_hyperparameters():
    theta = np.concatenate([np.full(100, 9.0), np.linspace(-1, 3, 100)])
    _, truth = simulate_responses(200, 20_000, theta=theta, mean_intercept=0.7, missing=0.99)
    truth["n_answers"][:100] = 0
    scaled = to_calibration_scale(truth)
    assert scaled["theta"].to_numpy()[100:].mean() == pytest.approx(0, abs=1e-12)
    assert scaled["mean_intercept"].item() == pytest.approx(scaled["intercept"].mean().item(), abs=0.03)
    assert scaled["sd_intercept"].item() == pytest.approx(scaled["intercept"].std().item(), rel=0.02)
    assert scaled["mean_log_a"].item() == pytest.approx(np.log(scaled["a"]).mean().item(), abs=0.01)


def test_calibration_scale_needs_two_subjects():
    _, truth = simulate_responses(1, 5)
    with pytest.raises(InputError, match="two or more subjects"):
        to_calibration_scale(truth)
    _, truth = simulate_responses(3, 5)
    with pytest.raises(InputError, match="no subject 'x'"):
        to_calibration_scale(truth, subjects=["x"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_subjects": 0}, "n_subjects is a whole number"),
        ({"n_items": 2.5}, "n_items is a whole number"),
        ({"likelihood": "normal"}, "likelihood is one of"),
        ({"curve": "4pl"}, "curve is one of"),
        ({"missing": 1.0}, "missing is a share"),
        ({"n_benchmarks": 9}, "9 benchmarks need"),
        ({"cuts": (1, 1)}, "low < high"),
        ({"trials": 4}, "trials go with counts"),
        ({"likelihood": "binomial", "trials": 0}, "trials are whole numbers"),
        ({"likelihood": "binomial", "trials": [1, 2]}, "broadcasts to"),
        ({"likelihood": "beta", "phi": -1.0}, "phi is positive"),
        ({"curve": "3pl", "guessing": 1.0}, "guessing lies in"),
        ({"theta": [1.0]}, None),
        ({"theta": [1.0, 2.0]}, "theta is one number or 4"),
        ({"theta": np.nan}, "theta must be finite"),
        ({"sd_theta": -1.0}, "sd_theta is a standard deviation"),
    ],
)
def test_impossible_requests(options, message):
    arguments = {"n_subjects": 4, "n_items": 5} | options
    if message is None:
        assert simulate_responses(**arguments)[0].n_obs == 20
        return
    with pytest.raises(InputError, match=message):
        simulate_responses(**arguments)


@pytest.mark.parametrize(
    ("name", "size", "kind"),
    [
        ("lm-task-demands-like", (22, 1_216), "probability"),
        ("livecodebench-like", (37, 479), "count"),
        ("monkeys-math-like", (7, 128), "count"),
    ],
)
def test_stand_ins_say_that_they_are_simulated(name, size, kind):
    responses, truth = simulate_like(name)
    assert (responses.n_subjects, responses.n_items) == size
    assert responses.is_complete
    assert responses.kind == kind
    for labels in (responses.subjects.index, responses.items.index, responses.items["benchmark"]):
        assert all(str(label).startswith("simulated") for label in labels)
    assert responses.notes[0].startswith("simulated")
    assert truth["subject"].to_numpy().tolist() == list(responses.subjects.index)
    assert truth["item"].to_numpy().tolist() == list(responses.items.index)
    assert responses.data_hash == simulate_like(name)[0].data_hash != simulate_like(name, seed=1)[0].data_hash


def test_unknown_stand_in():
    with pytest.raises(InputError, match="no simulated set 'mmlu'; there are lm-task-demands-like"):
        simulate_like("mmlu")


def test_stand_in_resembles_the_real_set(shared):
    """Mean and spreads of the logits of p(correct), real and simulated."""
    rows = pd.read_parquet(shared / "data" / "lm_task_demands" / "digit_mat.parquet")
    real = logit(rows.pivot(index="model", columns="problem_id", values="p_correct").clip(1e-6, 1 - 1e-6).to_numpy())
    like = logit(simulate_like("lm-task-demands-like")[0].dense()[0].astype(float).clip(1e-6, 1 - 1e-6))
    assert like.mean() == pytest.approx(real.mean(), abs=0.7)
    assert like.mean(axis=0).std() == pytest.approx(real.mean(axis=0).std(), rel=0.25)
    assert like.mean(axis=1).std() == pytest.approx(real.mean(axis=1).std(), rel=0.35)


def test_memory_goes_with_the_answers():
    tracemalloc.start()
    responses, _ = simulate_responses(400, 5_000, likelihood="beta")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    kept = sum(x.nbytes for x in (responses.answer, responses.subject_index, responses.item_index))
    assert peak < 2 * kept + 150e6


@pytest.mark.slow
def test_forty_million_answers():
    """2,000 x 20,000 Beta answers, under 60 s and 1.5 GB."""
    tracemalloc.start()
    start = time.perf_counter()
    responses, _ = simulate_responses(2_000, 20_000, likelihood="beta")
    seconds = time.perf_counter() - start
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert responses.n_obs == 40_000_000
    assert seconds < 60
    assert peak < 1.5e9
