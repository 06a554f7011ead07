"""Tails of success rates: probabilities that sum to one, integrals by another rule, draws against rejection."""

import numpy as np
import pytest
from scipy import integrate, stats
from scipy.special import betaln

from bayes_irsl.tails import TAILS, log_choose, with_never

PLACES = [(-3.0, 0.2), (-6.0, 0.8), (0.0, -0.5)]


@pytest.mark.parametrize("name", TAILS)
@pytest.mark.parametrize("trials", [1, 5, 20])
def test_probabilities_of_all_counts_sum_to_one(name, trials):
    location, shape = np.array(PLACES).T
    counts = np.arange(trials + 1.0)
    table = TAILS[name].log_likelihood(location, shape, counts, np.full(trials + 1, float(trials)))
    np.testing.assert_allclose(np.exp(table).sum(1), 1, atol=2e-4)


@pytest.mark.parametrize("name", ["logit-normal", "logit-logistic", "logit-student"])
@pytest.mark.parametrize(("c", "n"), [(0, 50), (1, 50), (50, 50), (30, 50), (0, 10**6), (3, 10**6)])
def test_logit_tails_are_the_integral(name, c, n):
    z = TAILS[name].z

    def value(x):
        log_rate = -c * np.logaddexp(0, -x) - (n - c) * np.logaddexp(0, x)
        return np.exp(z.logpdf((x + 6) / 2) - np.log(2) + log_rate + log_choose(n, c))

    parts = [
        integrate.quad(value, a, b, limit=500)[0] for a, b in zip(range(-80, 40, 4), range(-76, 44, 4), strict=True)
    ]
    found = TAILS[name].log_likelihood(
        np.array([-6.0]), np.array([np.log(2)]), np.array([float(c)]), np.array([float(n)])
    )
    # Where all succeed the rates lie in the far tail, whose mass beyond the last node is taken at once.
    assert np.exp(found.item()) == pytest.approx(sum(parts), rel=4e-3)


def test_passk_09_the_power_law_of_a_beta_tail():
    """p ~ Beta(0.3, 5): values and slopes of log(-log pass@k); the first decade's slope is not the limit's."""
    location, shape = np.log(0.3 / 5), np.log(0.3)
    k = np.array([1, 10, 100, 1000, 1e4, 1e5])
    found = -np.expm1(TAILS["beta"].log_failure(np.array(location), np.array(shape), k))
    np.testing.assert_allclose(found, [0.056604, 0.290931, 0.606866, 0.800539, 0.899907, 0.949829], atol=1e-6)
    slope = np.diff(np.log(-np.log(found))) / np.diff(np.log(k))
    assert slope[0] == pytest.approx(-0.367, abs=1e-3)
    assert (np.log(-np.log(found[-1])) - np.log(-np.log(found[3]))) / np.log(100) == pytest.approx(-0.318, abs=1e-3)


@pytest.mark.parametrize("name", [name for name in TAILS if name != "beta"])
@pytest.mark.parametrize(("location", "shape"), [(-12.0, 0.0), (-9.2, -1.2), (-8.0, -1.0), (-2.0, 1.0), (1.0, -0.5)])
def test_pass_at_k_of_logit_tails_is_right_where_it_is_small(name, location, shape):
    """Against adaptive quadrature, k by k: positive and increasing from rates of one in a million on."""
    tail, k, scale = TAILS[name], np.array([1.0, 2, 3, 100, 1e6]), np.exp(shape)
    found = tail.passes(np.array([location]), np.array([shape]), k)[0]

    def value(u, k):
        return tail.z.pdf(u) * -np.expm1(-k * np.logaddexp(0, location + scale * u))

    for one, samples in zip(found, k, strict=True):
        parts = [integrate.quad(value, a, a + 3, args=(samples,))[0] for a in np.arange(-60.0, 150.0, 3.0)]
        assert one == pytest.approx(sum(parts) + tail.z.sf(150), rel=2e-3)
    assert (np.diff(found) > 0).all()


def test_the_failure_of_a_beta_is_exact_for_a_million_samples():
    exact = betaln(0.2, 30 + 1e6) - betaln(0.2, 30)
    found = TAILS["beta"].log_failure(np.array([np.log(0.2 / 30)]), np.array([np.log(0.2)]), np.array([1e6]))
    assert found.item() == pytest.approx(exact, rel=1e-12)


@pytest.mark.parametrize("name", TAILS)
@pytest.mark.parametrize(("c", "n"), [(0, 50), (1, 50), (0, 0)])
def test_draws_given_counts_are_those_of_rejection(name, c, n):
    tail, rng, size = TAILS[name], np.random.default_rng(0), 20_000
    location, shape = np.full(size, -5.0), np.full(size, -0.5 if name == "beta" else 0.6)
    found = tail.draw(location, shape, np.full(size, float(c)), np.full(size, float(n)), rng)
    free = tail.draw(
        np.full(40 * size, -5.0), np.full(40 * size, shape[0]), np.zeros(40 * size), np.zeros(40 * size), rng
    )
    kept = free[rng.binomial(n, free) == c] if n else free
    assert stats.ks_2samp(np.log(found), np.log(np.maximum(kept[: 4 * size], 1e-300))).pvalue > 1e-3


def test_a_share_that_is_never_solved_by_hand():
    plain = np.log(np.array([[0.5, 0.2]]))
    found = np.exp(with_never(plain, np.array([np.log(0.25 / 0.75)]), np.array([0, 3])))
    np.testing.assert_allclose(found, [[0.25 + 0.75 * 0.5, 0.75 * 0.2]])


def test_beta_draws_have_the_conjugate_mean():
    rng = np.random.default_rng(1)
    p = TAILS["beta"].draw(np.full(50_000, 0.0), np.full(50_000, np.log(2.0)), 3.0, 10.0, rng)
    assert p.mean() == pytest.approx((2 + 3) / (4 + 10), abs=0.002)


@pytest.mark.parametrize("name", ["logit-normal", "logit-logistic", "logit-student"])
def test_a_narrow_tail_is_a_binomial(name):
    """A spread far below the distance of nodes: probabilities of one rate, and never more than one in all."""
    counts, trials = np.arange(26.0), np.full(26, 25.0)
    found = TAILS[name].log_likelihood(np.array([-1.0]), np.array([-6.0]), counts, trials)
    np.testing.assert_allclose(np.exp(found[0]), stats.binom.pmf(counts, 25, 1 / (1 + np.exp(1.0))), atol=0.012)
    assert np.exp(found).sum() < 1.05
