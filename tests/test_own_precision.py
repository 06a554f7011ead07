"""A subject's own scatter about the item curves: by hand, recovered where it is, absent where it is not."""

import numpy as np
from scipy.special import expit
from scipy.stats import betabinom

from bayes_irsl.forecasts.own_precision import LOG_FACTORS, SPREADS, log_factors


def made(v, *, items=150, trials=8, phi=2.0, draws=400, seed=0):
    """(curves, phi, successes, trials) with every draw of the curves at the truth."""
    rng = np.random.default_rng(seed)
    mu = expit(rng.normal(0, 1.5, (len(v), items)))
    rate = rng.beta(mu * phi * np.exp(v)[:, None], (1 - mu) * phi * np.exp(v)[:, None])
    n = np.full(mu.shape, float(trials))
    return (lambda s, at: np.tile(mu[s], (len(at), 1))), np.full((draws, 1), phi), rng.binomial(trials, rate), n


def test_the_likelihood_is_the_beta_binomials():
    mu, phi, n = np.array([0.2, 0.7, 0.5]), 3.0, np.array([5, 9, 0])
    c = np.array([1, 9, 0])
    curves = lambda s, at: np.tile(mu, (len(at), 1))  # noqa: E731
    found = log_factors(curves, np.full((40_000, 1), phi), c[None], n[None].astype(float), np.random.default_rng(0))
    scale = phi * np.exp(LOG_FACTORS)
    likelihood = np.prod([betabinom.pmf(c[i], n[i], mu[i] * scale, (1 - mu[i]) * scale) for i in (0, 1)], 0)
    prior = np.exp(-0.5 * (LOG_FACTORS / SPREADS[:, None]) ** 2)
    prior /= prior.sum(1, keepdims=True)
    # tau ~ HalfNormal(1) on a grid of its logarithm
    weight = (likelihood * prior) * (np.exp(-0.5 * SPREADS**2) * SPREADS)[:, None]
    expected = weight.sum(0) / weight.sum()
    share = np.array([(found[:, 0] == v).mean() for v in LOG_FACTORS])
    np.testing.assert_allclose(share, expected, atol=0.01)


def test_scatter_is_recovered_with_coverage():
    truth = np.random.default_rng(1).normal(0, 1.0, 40)
    found = log_factors(*made(truth), np.random.default_rng(0))
    low, high = np.quantile(found, [0.05, 0.95], axis=0)
    inside = ((low <= truth) & (truth <= high)).mean()
    # 40 subjects: a binomial of .9 has a standard error of .047
    assert inside >= 0.78
    assert np.corrcoef(found.mean(0), truth)[0, 1] > 0.9


def test_subjects_alike_stay_alike():
    """Where all scatter the same, what is learned of one is that it is like the others."""
    few = log_factors(*made(np.zeros(30), seed=2), np.random.default_rng(0))
    assert few.std() < 0.25
    apart = log_factors(*made(np.linspace(-1.5, 1.5, 30), seed=2), np.random.default_rng(0))
    assert apart.std() > 0.7


def test_a_subject_without_answers_has_what_the_others_teach():
    curves, phi, c, n = made(np.r_[np.linspace(-1, 1, 20), 0.0])
    n[-1] = 0
    found = log_factors(curves, phi, c * (n > 0), n, np.random.default_rng(0))
    assert 0.3 < found[:, -1].std() < 1.2
