"""Choices between groups and between subjects."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.special import expit

import bayes_irsl as bi
from bayes_irsl.errors import InputError

COMPUTE = [1e20, 1e21, 1e22, 1e23]
PLACE = {"compute": 1e24}


@pytest.fixture(scope="module")
def fit():
    """Three recipes; the first is ahead by a decade of compute, the others are level."""
    rows, rng = [], np.random.default_rng(0)
    for name, ahead in (("good", 1.0), ("plain", 0.0), ("other", 0.0)):
        for c in COMPUTE:
            k = rng.binomial(3000, expit(-1 + 0.6 * (np.log10(c) - 21 + ahead)))
            rows.append({"subject": f"{name} {c:.0e}", "item": "m", "k": k, "n": 3000, "recipe": name, "compute": c})
    table = pd.DataFrame(rows)
    responses = bi.Responses.from_long(
        table[["subject", "item", "k", "n"]], successes="k", trials="n",
        subjects=table.set_index("subject")[["recipe", "compute"]],
    )  # fmt: skip
    return bi.fit(bi.AbilityTrajectory(pool="recipe"), responses, seed=0, draws=200, warmup=150)


def test_the_recipe_that_is_ahead_is_better(fit):
    found = bi.prob_better(fit, "good", "plain", **PLACE)
    assert found["probability"].item() > 0.95
    assert found["difference_lower"].item() > 0
    back = bi.prob_better(fit, "plain", "good", **PLACE)
    assert found["probability"].item() + back["probability"].item() == pytest.approx(1, abs=1e-12)
    assert found["difference_mean"].item() == pytest.approx(-back["difference_mean"].item())


def test_two_that_are_level_are_undecided(fit):
    found = bi.prob_better(fit, "plain", "other", **PLACE)
    assert 0.1 < found["probability"].item() < 0.9
    assert found["difference_lower"].item() < 0 < found["difference_upper"].item()


def test_ranks_are_a_distribution(fit):
    found = bi.rank_probabilities(fit, **PLACE)
    np.testing.assert_allclose(found.sum("rank"), 1)
    np.testing.assert_allclose(found.sum("pool"), 1)
    assert found.sel(pool="good", rank=1).item() > 0.9


def test_regret_is_least_for_the_best_and_never_negative(fit):
    found = bi.expected_regret(fit, **PLACE)
    assert (found["regret"] >= 0).all()
    assert found["choice"].item() == "good"
    assert found["regret"].sel(pool="good").item() < 0.01 < found["regret"].sel(pool="plain").item()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"mass": 5}, "mass = 5: expected a number between 0 and 1"),
        ({"flops": 1e24}, "unknown argument 'flops'"),
        ({"kind": "ability"}, "unknown argument 'kind'"),
        ({"seed": -1}, "seed = -1: expected a whole number"),
        ({"benchmark": []}, "expected some of"),
        ({"benchmark": ["m", "m"]}, "each once"),
        ({"compute": "1e24 FLOP"}, "compute = '1e24 FLOP': expected one or more finite positive numbers"),
        ({"extra": 3}, "extra = 3"),
    ],
)
def test_what_is_asked_of_a_choice_must_make_sense(fit, arguments, says):
    with pytest.raises(InputError, match=says):
        bi.prob_better(fit, "good", "plain", **(PLACE | arguments))


def test_one_group_is_no_choice(fit):
    for ask in (bi.rank_probabilities, bi.expected_regret):
        with pytest.raises(InputError, match="expected two groups or more"):
            ask(fit, "good", **PLACE)
    with pytest.raises(InputError, match="expected a name, None for a new one"):
        bi.forecast(fit, pool=[], **PLACE)
    with pytest.raises(InputError, match="leave out population=True, or measured"):
        bi.forecast(fit, population=True, measured=True, **PLACE)
    with pytest.raises(InputError, match="forecasts need a fit; this is a str"):
        bi.forecast("fit", **PLACE)
    with pytest.raises(InputError, match="a comparison needs Responses"):
        bi.compare_subjects(pd.DataFrame(), "a", "b")


def test_a_group_that_is_not_there(fit):
    with pytest.raises(InputError, match=r"pool 'best' is not in the fit; there are \['good', 'plain', 'other'\]"):
        bi.prob_better(fit, "best", "plain", **PLACE)


def test_a_new_group_is_less_certain_than_a_known_one(fit):
    known, new = (
        bi.forecast(fit, **PLACE, pool=pool, kind="ability")["ability"].std("draw").item() for pool in ("plain", None)
    )
    assert known < new


def paired():
    answers = pd.DataFrame({"q1": [1, 0], "q2": [1, 1], "q3": [1, 0], "q4": [0, 1]}, index=["a", "b"])
    items = pd.DataFrame({"passage": ["p", "p", "r", "r"]}, index=pd.Index(answers.columns, name="item"))
    return bi.Responses.from_wide(answers.astype(float), items=items.assign(benchmark="x"))


def test_paired_comparison_by_hand():
    """Differences 1, 0, 1, -1: mean 0.25, sd of the paired differences over sqrt(4)."""
    found = bi.compare_subjects(paired(), "a", "b")
    d = np.array([1, 0, 1, -1.0])
    assert found["difference"] == 0.25
    assert found["se"] == pytest.approx(d.std(ddof=1) / 2)
    assert found["p"] == pytest.approx(stats.ttest_1samp(d, 0).pvalue)
    low, high = stats.ttest_1samp(d, 0).confidence_interval(0.9)
    assert (found["lower"], found["upper"]) == pytest.approx((low, high))
    t = stats.t(3)
    assert found["smallest_difference"] == pytest.approx(found["se"] * (t.ppf(0.95) + t.ppf(0.8)))


def test_clusters_of_questions_widen_the_error_by_hand():
    """Cluster sums of centred differences: 0.5 and -0.5; sqrt(2 * 0.5) / 4."""
    found = bi.compare_subjects(paired(), "a", "b", cluster="passage")
    assert found["clusters"] == 2
    assert found["se"] == pytest.approx(np.sqrt(2 * 0.5) / 4)


def test_comparisons_that_cannot_be_made():
    with pytest.raises(InputError, match="subject 'c' has no answers"):
        bi.compare_subjects(paired(), "a", "c")
    with pytest.raises(InputError, match="cluster='source': no such item column"):
        bi.compare_subjects(paired(), "a", "b", cluster="source")


def test_decision_accuracy_by_hand():
    assert bi.decision_accuracy([1, 2, 3], [10, 20, 30]) == 1
    assert bi.decision_accuracy([1, 2, 3], [10, 30, 20]) == pytest.approx(2 / 3)
    assert bi.decision_accuracy([1, 1], [1, 2]) == 0.5
    with pytest.raises(InputError, match="two arrays of one length"):
        bi.decision_accuracy([1, 2], [1, 2, 3])
