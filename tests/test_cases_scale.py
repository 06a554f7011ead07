"""Cases SCALE of what users complain about: floors, ceilings, undertuned runs, and models stronger than any seen."""

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

import bayes_irsl as bi


def curve(compute, ceiling=0.6, trials=4000, seed=0):
    """Counts of one benchmark whose accuracy approaches a ceiling."""
    rng = np.random.default_rng(seed)
    t = np.log10(compute) - 20
    p = 0.02 + (ceiling - 0.02) * expit(1.8 * t)
    names = [f"m{i}" for i in range(len(compute))]
    subjects = pd.DataFrame({"compute": compute}, index=pd.Index(names, name="subject"))
    long = pd.DataFrame({"subject": names, "item": "bench", "k": rng.binomial(trials, p), "n": trials})
    items = pd.DataFrame({"benchmark": ["bench"]}, index=pd.Index(["bench"], name="item"))
    return bi.Responses.from_long(long, successes="k", trials="n", subjects=subjects, items=items), p


def seven_models():
    """A test of four options, of which the best model is at .6, and the truth at 1e24."""
    compute = np.logspace(19, 22, 7)
    truth = 0.25 + 0.55 * expit(1.1 * (np.log10([*compute, 1e24]) - 21.5))
    facts = pd.DataFrame({"compute": compute}, index=pd.Index([f"m{i}" for i in range(7)], name="subject"))
    long = pd.DataFrame({"subject": facts.index, "item": "mc", "k": np.round(2000 * truth[:7]).astype(int), "n": 2000})
    items = pd.DataFrame({"benchmark": ["mc"], "chance": [0.25]}, index=pd.Index(["mc"], name="item"))
    return bi.Responses.from_long(long, successes="k", trials="n", subjects=facts, items=items), truth[-1]


def test_scale_05_chance_level_is_an_input_and_its_effect_is_shown():
    """What lies beyond depends on the floor; a table says by how much, in units of the interval too."""
    responses, truth = seven_models()
    specs = {"floor 0": bi.AbilityTrajectory(), "floor at chance": bi.AbilityTrajectory(chance="floor")}
    table = bi.sensitivity(specs, responses, settings={"draws": 400}, compute=1e24).set_index("spec")
    plain, right = table.loc["floor 0"], table.loc["floor at chance"]
    assert plain["shift"] == 0
    assert abs(right["shift"]) > 0.02
    assert right["shift"] == pytest.approx(right["mean"] - plain["mean"])
    assert right["shift_in_widths"] == pytest.approx(right["shift"] / (plain["upper"] - plain["lower"]))
    assert right["lower"] < truth < right["upper"]
    fit = bi.fit(specs["floor at chance"], responses, draws=400)
    assert bi.forecast(fit, compute=1e12)["accuracy_lower"].item() >= 0.25


@pytest.mark.slow
def test_scale_07_undertuned_runs_pull_a_robust_curve_less():
    """Sixty models, a fifth of them too low by .10: the plain curve is low by some .02, Student's scatter is not."""
    errors = {"normal": [], "student": []}
    for seed in range(3):
        rng = np.random.default_rng(seed)
        compute = np.sort(10 ** rng.uniform(20, 24, 60))
        low = rng.permutation(60) < 12
        facts = pd.DataFrame({"compute": compute}, index=pd.Index([f"m{i}" for i in range(60)], name="subject"))
        share = np.clip(expit(0.9 * (np.log10(compute) - 22)) - 0.1 * low, 0.005, 1)
        long = pd.DataFrame({"subject": facts.index, "item": "b", "k": rng.binomial(20_000, share), "n": 20_000})
        items = pd.DataFrame({"benchmark": ["b"]}, index=pd.Index(["b"], name="item"))
        responses = bi.Responses.from_long(long, successes="k", trials="n", subjects=facts, items=items)
        at = np.logspace(21, 23.5, 6)
        for scatter, found in errors.items():
            fit = bi.fit(bi.AbilityTrajectory(scatter=scatter), responses, seed=seed, draws=200, warmup=200)
            middle = np.median(bi.forecast(fit, compute=at)["accuracy"].squeeze(), axis=0)
            found.append(np.mean(middle - expit(0.9 * (np.log10(at) - 22))))
    assert np.mean(errors["normal"]) < -0.012
    assert abs(np.mean(errors["student"])) < 0.02
    assert abs(np.mean(errors["student"])) < 0.6 * abs(np.mean(errors["normal"]))


def test_scale_06_saturation_is_known_only_after_the_bend():
    """Before the bend the rate at which gains fall is the prior's, and the report says so; past it, it is learned."""
    checks = {}
    for name, top in (("before", 19.3), ("past", 23.0)):
        responses, _ = curve(np.logspace(17.5, top, 16))
        checks[name] = bi.fit(bi.AbilityTrajectory(), responses, seed=0, draws=400).report().diagnostics["saturation"]
    assert checks["past"].value < 0.75 * checks["before"].value
    assert checks["past"].verdict == "PASS"


def test_scale_06_a_forecast_from_before_the_bend_knows_its_doubt():
    """Four decades beyond the data: the interval is wide, and holds what the ceiling allows."""
    responses, _ = curve(np.logspace(17.5, 19.3, 16))
    fit = bi.fit(bi.AbilityTrajectory(), responses, seed=0, draws=1000)
    far, near = (bi.forecast(fit, compute=c) for c in (1e23, 10**19.4))
    width = [float((f["accuracy_upper"] - f["accuracy_lower"]).squeeze()) for f in (far, near)]
    assert width[0] > 0.4
    assert width[0] > 10 * width[1]
    assert float(far["accuracy_lower"].squeeze()) < 0.6
    assert float(far["beyond"][0]) == pytest.approx(23 - 19.3)


def test_scale_08_models_stronger_than_any_seen():
    """Calibrated on abilities in [-2, 1], asked about 2 from fifty questions: flagged, and with a wide prior they hold.

    Under the calibration's own prior such a model is three sd out, and the intervals are drawn towards what was seen.
    """
    rng = np.random.default_rng(8)
    a, b = np.exp(0.3 * rng.standard_normal(300)), rng.normal(0, 1, 300)

    def answers(theta):
        return (rng.uniform(size=(len(theta), 300)) < expit(a * (theta[:, None] - b))).astype(float)

    old = pd.DataFrame(answers(rng.uniform(-2, 1, 80)), columns=[f"q{j}" for j in range(300)])
    bank = bi.ItemBank.from_fit(bi.fit(bi.ItemResponse(), bi.Responses.from_wide(old), seed=0, draws=400))
    full = answers(np.full(40, 2.0))
    asked = np.array([rng.permutation(300) < 50 for _ in range(40)])
    new = pd.DataFrame(np.where(asked, full, np.nan), columns=old.columns, index=[f"new {i}" for i in range(40)])
    assert bi.score(bank, bi.Responses.from_wide(new))["beyond_calibration_range"].mean() > 0.9
    found = bi.score(bank, bi.Responses.from_wide(new), prior=(0.0, 3.0))
    truth = full.mean(1)
    low, high = found["score_lower"].to_numpy().ravel(), found["score_upper"].to_numpy().ravel()
    inside = np.mean((low <= truth) & (truth <= high))
    assert inside >= 0.8  # 0.9 less two standard errors of forty
    ours = np.abs(found["score_mean"].to_numpy().ravel() - truth).mean()
    plain = np.abs(np.array([f[k].mean() for f, k in zip(full, asked, strict=True)]) - truth).mean()
    assert ours < plain
