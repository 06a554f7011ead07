"""Linking two scales: known maps come back, intervals cover, and the error of a link is not averaged away."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy.special import expit

from bayes_irsl.bank import ItemBank
from bayes_irsl.errors import InputError
from bayes_irsl.linking import Link, link, link_subjects
from bayes_irsl.responses import Responses
from bayes_irsl.scoring import score

A, B = 1.4, -0.6
N_DRAWS = 200


def calibrated(rng, intercept, log_a, theta, labels, scale_id):
    """Bank from the answers' information about known items: truth and draws are alike under the posterior."""
    p = expit(intercept[:, None] + np.exp(log_a)[:, None] * theta)
    jacobian = np.stack([np.ones_like(p), np.exp(log_a)[:, None] * theta], -1)
    fisher = np.einsum("js,jsk,jsl->jkl", p * (1 - p), jacobian, jacobian) + 0.1 * np.eye(2)
    tril = np.linalg.cholesky(np.linalg.inv(fisher))
    noise = rng.normal(size=(N_DRAWS + 1, len(log_a), 2))
    noise[1:] += noise[0]
    draws = np.stack([intercept, log_a], -1) + np.einsum("jkl,djl->djk", tril, noise[1:])
    a = np.exp(draws[..., 1])
    bank = ItemBank.from_parameters(a, -draws[..., 0] / a, items=labels, scale_id=scale_id)
    return bank


def two_banks(rng, n_common=20, n_own=10, n_subjects=150):
    """Banks of the same items on two scales, theta_a = A theta_b + B, and some items of their own."""
    n = n_common + 2 * n_own
    log_a, b = 0.3 * rng.normal(size=n), rng.normal(size=n)
    labels = np.array([f"i{k}" for k in range(n)])
    in_a, in_b = (
        np.arange(n) < n_common + n_own,
        (np.arange(n) < n_common) | (np.arange(n) >= n_common + n_own),
    )
    theta = rng.normal(size=n_subjects)
    bank_a = calibrated(rng, (-np.exp(log_a) * b)[in_a], log_a[in_a], theta, labels[in_a], "a")
    log_a_b, b_b = log_a + np.log(A), (b - B) / A
    bank_b = calibrated(rng, (-np.exp(log_a_b) * b_b)[in_b], log_a_b[in_b], (theta - B) / A, labels[in_b], "b")
    return bank_a, bank_b


@pytest.mark.parametrize("method", ["slope-intercept", "mean-sigma"])
def test_known_items_give_the_map_exactly(method):
    rng = np.random.default_rng(0)
    a, b = np.exp(0.3 * rng.normal(size=6)), rng.normal(size=6)
    bank_a = ItemBank.from_parameters(a, b)
    bank_b = ItemBank.from_parameters(a * A, (b - B) / A, scale_id="b")
    found = link(bank_a, bank_b, method=method)
    np.testing.assert_allclose([found.slope_mean, found.shift_mean], [A, B], atol=1e-9)
    moved = bank_b.rescale(found)
    np.testing.assert_allclose(moved.a, bank_a.a)
    np.testing.assert_allclose(moved.b, bank_a.b, atol=1e-9)
    assert (moved.scale_id, moved.prior) == (bank_a.scale_id, bank_a.prior)


@pytest.mark.parametrize("method", ["slope-intercept", "mean-sigma"])
def test_intervals_of_the_map_cover(method):
    rng = np.random.default_rng(1)
    inside, error, width = [], [], []
    for _ in range(150):
        found = link(*two_banks(rng, n_own=1), method=method)
        table = found.summary()
        inside.append((table["lower"] <= [A, B]) & (table["upper"] >= [A, B]))
        error.append(table["mean"] - [A, B])
        width.append(table["sd"])
    error, width = np.array(error), np.array(width)
    if method == "slope-intercept":
        assert (np.abs(np.mean(inside, 0) - 0.9) < 0.07).all()
        assert (np.abs(error.mean(0)) < 0.4 * error.std(0)).all()
    assert (error.std(0) < 1.2 * width.mean(0)).all()
    assert (error.std(0) < 0.15).all()


def test_weighting_beats_the_textbook_method_where_items_are_loose():
    rng = np.random.default_rng(2)
    errors = {name: [] for name in ("slope-intercept", "mean-sigma")}
    for _ in range(60):
        banks = two_banks(rng, n_subjects=60, n_own=1)
        for name, values in errors.items():
            found = link(*banks, method=name)
            values.append([np.log(found.slope_mean / A), found.shift_mean - B])
    rms = {name: np.sqrt(np.mean(np.square(values), axis=0)) for name, values in errors.items()}
    assert (rms["slope-intercept"] < rms["mean-sigma"]).all()


def test_scores_move_with_the_scale():
    """With a known map, scoring on the moved bank is scoring on the old one and moving the ability."""
    rng = np.random.default_rng(3)
    bank = ItemBank.from_parameters(np.exp(0.3 * rng.normal(size=20)), rng.normal(size=20), scale_id="b")
    known = Link(np.array([A]), np.array([B]), pd.DataFrame({"off": [0.0]}), "by hand", scale_id="a")
    responses = Responses.from_wide((rng.random((5, 20)) < 0.6).astype(float))
    moved = score(bank.rescale(known), responses, prior=(A * 0.2 + B, A * 1.5))
    still = score(bank, responses, prior=(0.2, 1.5))
    np.testing.assert_allclose(moved["ability_mean"], A * still["ability_mean"] + B, atol=1e-4)
    np.testing.assert_allclose(moved["ability_sd"], A * still["ability_sd"], atol=1e-4)


def test_more_answers_do_not_average_the_error_of_a_link_away():
    rng = np.random.default_rng(4)
    n = 3000
    a, b = np.exp(0.3 * rng.normal(size=n)), rng.normal(size=n)
    shift = 0.15 * rng.normal(size=400)
    loose = Link(np.exp(0.05 * rng.normal(size=400)), shift - shift.mean(), pd.DataFrame({"off": [0.0]}), "by hand")
    bank = ItemBank.from_parameters(a, b)
    moved = bank.rescale(loose)
    answer = (rng.random((1, n)) < expit(a * (0.8 - b))).astype(float)
    table = np.where(np.arange(n) < 2800, answer, np.nan)
    responses = Responses.from_wide(table, kind="binary")
    own, linked = score(bank, responses), score(moved, responses, prior=(0.0, 50.0))
    error = np.std(loose.shift + loose.slope * own["ability_mean"].item())
    expected = np.hypot(error, own["ability_sd"].item())
    assert linked["ability_sd"].item() == pytest.approx(expected, rel=0.03)
    assert linked["ability_mean"].item() == pytest.approx(own["ability_mean"].item(), abs=0.02)
    assert own["ability_sd"].item() < 0.4 * expected  # else the test would show nothing
    for name in ("score_mean", "score_sd"):
        assert linked[name].item() == pytest.approx(own[name].item(), rel=0.03)


def test_extended_bank_weighs_own_and_linked_items():
    """Many linked items with a loose link count for no more than the link; own items still count in full."""
    rng = np.random.default_rng(5)
    own = ItemBank.from_parameters(np.ones((400, 40)), 0.0, items=[f"own{k}" for k in range(40)])
    other = ItemBank.from_parameters(
        np.ones(2000), np.zeros(2000), items=[f"new{k}" for k in range(2000)], scale_id="b"
    )
    shift = 0.5 * rng.normal(size=400)
    loose = Link(np.ones(400), shift - shift.mean(), pd.DataFrame({"off": [0.0]}), "by hand")
    bank = own.extend(other.rescale(loose))
    right = np.concatenate([np.arange(40) < 20, np.arange(2000) < 1200]).astype(float)
    out = score(bank, Responses.from_wide(right[None], items=list(bank.items.index)), benchmarks=False)
    at_own, at_other = 0.0, np.log(0.6 / 0.4)
    precision = np.array([1.0, 40 / 4, 1 / (shift.var() + 1 / (2000 * 0.24))])
    mean = precision @ [0.0, at_own, at_other] / precision.sum()
    assert out["ability_mean"].item() == pytest.approx(mean, abs=0.02)
    assert out["ability_sd"].item() == pytest.approx(1 / np.sqrt(precision.sum()), rel=0.05)


def test_rescaling_twice_is_rescaling_by_the_product():
    rng = np.random.default_rng(6)
    table = pd.DataFrame({"off": [0.0]})
    first = Link(np.exp(0.1 * rng.normal(size=300)), 0.1 * rng.normal(size=300), table, "by hand")
    second = Link(1.5 * np.exp(0.1 * rng.normal(size=300)), 1 + 0.1 * rng.normal(size=300), table, "by hand")
    both = Link(second.slope * first.slope, second.slope * first.shift + second.shift, table, "by hand")
    bank = ItemBank.from_parameters(np.ones((300, 8)), np.linspace(-1, 1, 8))
    twice, once = bank.rescale(first).rescale(second), bank.rescale(both)
    np.testing.assert_allclose(twice.b, once.b)
    assert len(twice.links) == 2
    assert (twice.items["link"] == 1).all()
    responses = Responses.from_wide(np.array([[1.0, 0, 1, 1, 0, 1, 0, 1]]))
    got, wanted = (score(x, responses, benchmarks=False) for x in (twice, once))
    np.testing.assert_allclose(got["ability_mean"], wanted["ability_mean"], atol=0.01)
    np.testing.assert_allclose(got["ability_sd"], wanted["ability_sd"], rtol=0.02)


def test_items_that_drifted_are_named_and_widen_the_link():
    rng = np.random.default_rng(7)
    bank_a, bank_b = two_banks(rng, n_own=1)
    b = bank_b.b.copy()
    b[:, 3] += 3 / bank_b.a[:, 3]
    drifted = ItemBank.from_parameters(bank_b.a, b, items=list(bank_b.items.index), scale_id="b")
    clean, found = link(bank_a, bank_b), link(bank_a, drifted)
    assert any("i3" in note for note in found.notes)
    assert not any("off the link" in note for note in clean.notes)
    assert found.summary()["sd"]["B"] > 1.5 * clean.summary()["sd"]["B"]
    assert "i3" in repr(found)


def test_too_few_common_items():
    bank = ItemBank.from_parameters(1.0, [0.0, 1.0, 2.0], items=["x", "y", "z"])
    for labels, n in ((["u", "v"], 0), (["x", "v"], 1)):
        with pytest.raises(InputError, match=f"{n} common items"):
            link(bank, ItemBank.from_parameters(1.0, [0.0, 1.0], items=labels))
    found = link(bank, ItemBank.from_parameters(1.0, [0.0, 1.0], items=["x", "y"]))
    assert "only 2 items in common" in found.notes[0]


def test_links_that_make_no_sense_are_refused():
    bank = ItemBank.from_parameters(1.0, [0.0, 0.0, 0.0])
    with pytest.raises(InputError, match="at one place"):
        link(bank, bank, method="mean-sigma")
    with pytest.raises(InputError, match="method = 'stocking-lord'"):
        link(bank, bank, method="stocking-lord")
    frame = pd.DataFrame({"dimension": ["p", "q", "q"]}, index=["0", "1", "2"])
    with pytest.raises(InputError, match="2 abilities"):
        link(bank, ItemBank.from_parameters(1.0, [0.0, 1.0, 2.0], items=frame))
    with pytest.raises(InputError, match="same subjects"):
        link_subjects(np.zeros((5, 3)), np.zeros((5, 4)))
    with pytest.raises(InputError, match="finite"):
        link_subjects(np.full((5, 3), np.nan), np.ones((5, 3)))
    with pytest.raises(InputError, match="1 common subjects"):
        link_subjects(np.zeros((5, 1)), np.zeros((5, 1)))


def test_common_subjects_give_the_map_and_cover():
    rng = np.random.default_rng(8)
    inside = []
    for _ in range(300):
        theta = rng.normal(size=25)
        sides = []
        for place in (theta, (theta - B) / A):
            spread = place.std()
            # posterior of a Normal mean under the right prior: truth and draws are exchangeable
            noise = 0.3 * spread * np.exp(0.4 * rng.normal(size=25))
            seen = place + noise * rng.normal(size=25)
            gain = spread**2 / (spread**2 + noise**2)
            centre = place.mean() + gain * (seen - place.mean())
            sides.append(centre + np.sqrt(gain) * noise * rng.normal(size=(N_DRAWS, 25)))
        table = link_subjects(*sides).summary()
        inside.append((table["lower"] <= [A, B]) & (table["upper"] >= [A, B]))
    assert (np.abs(np.mean(inside, 0) - 0.9) < 0.08).all()


def test_labelled_abilities_are_matched_by_label():
    theta = xr.DataArray([[0.0, 1.0, 3.0]], dims=("draw", "subject"), coords={"subject": ["p", "q", "r"]})
    other = xr.DataArray([[5.0, 1.5, 0.0, 0.5]], dims=("draw", "subject"), coords={"subject": ["x", "r", "p", "q"]})
    found = link_subjects(theta, other)
    assert list(found.common.index) == ["p", "q", "r"]
    np.testing.assert_allclose([found.slope_mean, found.shift_mean], [2.0, 0.0], atol=1e-12)
    np.testing.assert_allclose(found.apply([1.0, 2.0]), [[2.0, 4.0]])
