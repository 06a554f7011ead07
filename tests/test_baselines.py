"""Baselines: hand-computed values, derivatives against differences, fits that recover the truth."""

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit, logit

from bayes_irsl.baselines import answers as base
from bayes_irsl.errors import InputError
from bayes_irsl.responses import Responses


def simulated(kind: str, seed: int = 0, shape: tuple[int, int] = (30, 60), phi: float = 15.0) -> tuple:
    rng = np.random.default_rng(seed)
    eta = rng.normal(size=(shape[0], 1)) + rng.normal(size=shape[1])
    mean = expit(eta)
    if kind == "binary":
        return eta, Responses.from_wide((rng.random(shape) < mean).astype(float))
    p = rng.beta(phi * mean, phi * (1 - mean))
    if kind == "probability":
        return eta, Responses.from_wide(np.clip(p, 1e-4, 1 - 1e-4))
    return eta, Responses.from_wide(rng.binomial(40, p), trials=40)


KINDS = ["binary", "count", "probability"]


def test_intervals_cover_zero_to_one_and_do_not_overlap():
    low, high = base.interval(np.array([0.0, 0.0099, 0.01, 0.5, 0.999, 1.0]))
    np.testing.assert_allclose(low, [0, 0, 0.01, 0.5, 0.99, 0.99])
    np.testing.assert_allclose(high, [0.01, 0.01, 0.02, 0.51, 1, 1])


def test_interval_scores_are_a_distribution():
    answers = Responses.from_wide(np.arange(0.005, 1, 0.01)[None, :])
    for eta, log_phi in [(0.0, 0.5), (-4.0, 3.0), (6.0, -1.0)]:
        total = np.exp(base.log_score(answers, np.full(100, eta), log_phi)).sum()
        assert total == pytest.approx(1, abs=1e-9)


def test_scores_agree_with_scipy():
    counts = Responses.from_wide(np.array([[0.0, 3, 10]]), trials=10)
    eta, phi = np.array([-1.0, 0.3, 2.0]), 7.0
    expected = stats.betabinom.logpmf([0, 3, 10], 10, phi * expit(eta), phi * expit(-eta))
    np.testing.assert_allclose(base.log_score(counts, eta, np.log(phi)), expected, rtol=1e-9)
    binary = Responses.from_wide(np.array([[0.0, 1, 1]]))
    expected = np.log([expit(1.0), expit(0.3), expit(2.0)])
    np.testing.assert_allclose(base.log_score(binary, eta, None), expected)
    share = Responses.from_wide(np.array([[0.203, 0.999, 0.5]]))
    beta = stats.beta(phi * expit(eta), phi * expit(-eta))
    expected = np.log(beta.cdf([0.21, 1, 0.51]) - beta.cdf([0.2, 0.99, 0.5]))
    np.testing.assert_allclose(base.log_score(share, eta, np.log(phi)), expected, rtol=1e-6)


def test_scores_far_in_either_tail_keep_their_digits():
    answers = Responses.from_wide(np.array([[0.995, 0.005]]))
    scores = base.log_score(answers, np.array([-3.0, 3.0]), 4.0)
    assert scores[0] == pytest.approx(scores[1], rel=1e-6)
    assert -400 < scores[0] < -30


def test_item_mean_by_hand():
    table = base.item_mean(Responses.from_wide(np.array([[1.0, 0], [1, 0], [1, np.nan]])))
    np.testing.assert_allclose(expit(table.item), [3.5 / 4, 0.5 / 3])
    counts = Responses.from_wide(np.array([[3.0, 0], [5, 1]]), trials=10)
    np.testing.assert_allclose(expit(base.item_mean(counts).item), [8.5 / 21, 1.5 / 21])
    np.testing.assert_allclose(expit(base.item_mean(counts, 10, None).item), [10.25 / 30, 3.25 / 30])


@pytest.mark.parametrize("kind", KINDS)
def test_derivatives_match_differences(kind):
    eta, responses = simulated(kind, shape=(3, 4))
    eta, log_phi, step = eta.ravel(), None if kind == "binary" else 1.3, 1e-5
    slope, _ = base._slope_and_information(responses, eta, log_phi)
    for k, unit in enumerate(np.eye(eta.size)):
        up, down = (base._log_density(responses, eta + s * unit, log_phi).sum() for s in (step, -step))
        assert (up - down) / (2 * step) == pytest.approx(slope[k], rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_information_is_the_variance_of_the_slope(kind):
    rng, n, eta, log_phi = np.random.default_rng(1), 200_000, 0.7, 1.3
    p = rng.beta(np.exp(log_phi) * expit(eta), np.exp(log_phi) * expit(-eta), n)
    if kind == "count":
        responses = Responses.from_wide(rng.binomial(8, p)[None, :].astype(float), trials=8)
    elif kind == "binary":
        responses = Responses.from_wide((rng.random(n) < expit(eta)).astype(float)[None, :])
    else:
        responses = Responses.from_wide(p[None, :])
    slope, information = base._slope_and_information(responses, np.full(n, eta), None if kind == "binary" else log_phi)
    assert np.var(slope) == pytest.approx(information[0], rel=0.1 if kind == "count" else 0.02)


@pytest.mark.parametrize("kind", KINDS)
def test_additive_logit_recovers_the_logits(kind):
    eta, responses = simulated(kind, shape=(100, 100))
    table = base.additive_logit(responses)
    fitted = table.logit(responses)
    assert np.corrcoef(fitted, eta.ravel())[0, 1] > (0.95 if kind == "binary" else 0.99)
    if kind != "binary":
        assert np.exp(table.log_phi) == pytest.approx(15, rel=0.1)


def test_additive_logit_solves_the_likelihood_equations():
    _, responses = simulated("binary", shape=(60, 40))
    table = base.additive_logit(responses, ridge=1e-8)
    mean = expit(table.logit(responses)).reshape(60, 40)
    observed = responses.dense()[0]
    varied = (observed.mean(0) > 0) & (observed.mean(0) < 1)
    np.testing.assert_allclose(mean.sum(0)[varied], observed.sum(0)[varied], atol=0.05)


def test_additive_logit_stays_finite_for_constant_rows_and_columns():
    table = np.array([[1.0, 1, 1, 1], [1, 0, 0, 1], [1, 0, 1, 0], [0, 0, 0, 0]])
    fitted = base.additive_logit(Responses.from_wide(table))
    assert np.isfinite(fitted.subject).all()
    assert np.isfinite(fitted.item).all()


def test_boundary_probabilities_and_missing_precision_are_refused():
    edge = Responses.from_wide(np.array([[0.0, 0.5], [0.3, 0.2]]))
    with pytest.raises(InputError, match="exactly 0 or 1"):
        base.additive_logit(edge)
    with pytest.raises(InputError, match="precision"):
        base.log_score(edge, np.zeros(4), None)


@pytest.mark.parametrize("kind", KINDS)
def test_tuning_predicts_hidden_answers_at_least_as_well_as_a_poor_ridge(kind):
    _, responses = simulated(kind, shape=(15, 150))
    train, test = responses.holdout(0.2, 3)
    table = base.tuned(base.additive_logit, train, (1e-3, 1.0, 100.0))
    worst = min(base.additive_logit(train, ridge).log_score(test).mean() for ridge in (1e-3, 100.0))
    assert table.log_score(test).mean() > worst
    assert table.log_score(test).mean() > base.item_mean(train).log_score(test).mean()


def test_dispersion_is_the_most_likely_one():
    eta, responses = simulated("count", shape=(50, 50))
    table = base.LogitTable(np.zeros(50), logit(expit(eta).mean(0))).with_dispersion(responses)
    at = [table.log_score(responses).mean()]
    at += [base.log_score(responses, table.logit(responses), table.log_phi + d).mean() for d in (-0.05, 0.05)]
    assert at[0] == max(at)
