"""Response curves, their information, and pass@k: hand values, identities, both ends."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from bayes_irsl import curves
from bayes_irsl import likelihoods as lik
from bayes_irsl.errors import InputError


def test_response_curve_by_hand():
    assert float(curves.response_curve(1.0, 2.0, 1.0)) == 0.5
    assert float(curves.response_curve(np.log(3.0), 1.0, 0.0)) == pytest.approx(0.75, rel=1e-6)
    assert float(curves.mean_logit(2.0, 3.0, 0.5)) == 4.5


def test_bin_03_guessing():
    """BIN-03: P = c + (1 - c) sigmoid, a lower asymptote."""
    found = curves.response_curve(np.array([0.0, -30.0]), 1.0, 0.0, 0.25)
    assert found == pytest.approx([0.625, 0.25], abs=1e-6)


def test_bin_02_intercept_and_difficulty():
    """BIN-02: the converter, there and back; harder items have larger b."""
    assert float(curves.difficulty_from_intercept(5.742, -2.248)) == pytest.approx(0.3915, abs=5e-5)
    b = np.array([-1.5, 0.0, 2.0])
    back = curves.difficulty_from_intercept(1.7, curves.intercept_from_difficulty(1.7, b))
    assert back == pytest.approx(b, rel=1e-6)
    assert (np.diff(curves.response_curve(0.3, 1.0, b)) < 0).all()


# Guessing on the logit scale


def test_with_guessing_is_the_logit_of_the_curve():
    eta = np.linspace(-8, 8, 33)
    for c in (0.0, 0.05, 0.25, 0.9):
        with np.errstate(divide="ignore"):
            logit_c = np.log(c) - np.log1p(-c)
        found = jax.nn.sigmoid(curves.with_guessing(eta, logit_c))
        assert found == pytest.approx(np.asarray(curves.response_curve(eta, 1.0, 0.0, c)), abs=2e-7)


def test_with_guessing_at_both_ends():
    logit_c = special.logit(0.25)
    low, high = curves.with_guessing(np.array([-1e4, 1e4]), logit_c)
    assert float(low) == pytest.approx(logit_c, rel=1e-6)
    assert float(high) == pytest.approx(1e4 - np.log(0.75), rel=1e-6)
    # Without guessing nothing changes, however small the rate.
    assert float(curves.with_guessing(-50.0, -np.inf)) == -50
    assert float(curves.with_guessing(-5.0, -60.0)) == pytest.approx(-5, rel=1e-6)
    # Where guessing alone answers, the chance of failing keeps its digits.
    assert float(curves.with_guessing(0.0, 40.0)) == pytest.approx(40 + np.log(2), rel=1e-6)


def test_gradient_of_guessing_at_both_ends():
    """d zeta / d eta = sigmoid(eta - log c): the share of successes that are known, not guessed."""
    slope = jax.jit(jax.vmap(jax.grad(curves.with_guessing, (0, 1)), (0, None)))
    eta = np.array([-1e4, -3.0, 0.0, 3.0, 1e4])
    in_eta, in_logit_c = slope(eta, special.logit(0.25))
    share = special.expit(eta - np.log(0.25))
    assert in_eta == pytest.approx(share, abs=1e-6)
    assert in_logit_c == pytest.approx((1 - share) + 0.25 * share, abs=1e-6)
    in_eta, in_logit_c = slope(eta, -np.inf)
    assert in_eta == pytest.approx(np.ones(5))
    assert in_logit_c == pytest.approx(np.zeros(5))


def test_guessing_is_twice_differentiable():
    bend = jax.jit(jax.vmap(jax.hessian(curves.with_guessing, (0, 1)), (0, None)))
    eta = np.array([-1e4, -2.0, 0.5, 1e4])
    for logit_c in (-np.inf, -1.0, 3.0):
        (in_eta, _), (_, in_c) = bend(eta, logit_c)
        assert np.isfinite(in_c).all()
        share = special.expit(eta - np.log(special.expit(logit_c))) if np.isfinite(logit_c) else np.ones(4)
        assert in_eta == pytest.approx(share * (1 - share), abs=1e-6)


# Information


def test_cat_04_information_with_guessing():
    """CAT-04: the best item is easier than the subject is able."""
    found = curves.information(0.0, 1.2, np.array([-0.26, 0.0, 0.26]), 0.25)
    assert found == pytest.approx([0.22277, 0.21600, 0.19644], abs=1e-5)
    peak = curves.information_peak(1.2, 0.0, 0.25)
    assert float(peak) == pytest.approx(0.25992, abs=1e-5)
    assert float(curves.information(peak, 1.2, 0.0, 0.25)) == pytest.approx(0.22277, abs=1e-5)


@pytest.mark.parametrize("c", [0.0, 0.1, 0.5])
def test_information_peaks_where_it_says(c):
    theta = np.linspace(-6, 6, 4801)
    best = theta[np.argmax(curves.information(theta, 0.8, 0.7, c))]
    assert best == pytest.approx(float(curves.information_peak(0.8, 0.7, c)), abs=0.02)


@pytest.mark.parametrize("likelihood", ["bernoulli", "binomial", "beta-binomial", "beta"])
def test_information_is_the_expected_square_of_the_score(likelihood):
    """E (d log p / d theta)^2, by enumeration or quadrature."""
    n, a, b = 7, 1.4, 0.3
    y = special.expit(np.linspace(-34, 34, 4001))
    with jax.enable_x64(True):
        counts, shares = lik.binomial_data(np.arange(n + 1), n), lik.beta_data(y)
        density, answers, weights, trials, phi = {
            "bernoulli": (lik.bernoulli, np.array([0.0, 1.0]), 1, 1, None),
            "binomial": (lambda d, e: lik.binomial(d, None, e), counts, 1, n, None),
            "beta-binomial": (lambda d, e: lik.beta_binomial(d, None, e, np.log(3)), counts, 1, n, 3),
            "beta": (lambda d, e: lik.beta(d, e, np.log(100)), shares, 68 / 4000 * y * (1 - y), 1, 100),
        }[likelihood]
        size = len(jax.tree.leaves(answers)[0])

        @jax.jit
        def with_score(theta, c):
            def log_p(theta):
                eta = curves.with_guessing(curves.mean_logit(theta, a, b), jnp.log(c) - jnp.log1p(-c))
                return density(answers, jnp.full(size, eta))

            return jax.jvp(log_p, (theta,), (jnp.ones_like(theta),))

        for theta in (-2.5, 0.4, 3.0):
            for c in (0.0, 0.2):
                log_p, score = with_score(theta, c)
                true = np.sum(weights * np.exp(log_p) * np.asarray(score) ** 2)
                found = curves.information(theta, a, b, c, likelihood, phi, trials)
                assert float(found) == pytest.approx(true, rel=1e-7)


def test_information_in_float32_at_both_ends():
    theta = np.array([-1e4, -50.0, 0.0, 50.0, 1e4])
    for likelihood in ("bernoulli", "binomial", "beta", "beta-binomial"):
        for c in (0.0, 0.25):
            found = np.asarray(curves.information(theta, 1.0, 0.0, c, likelihood, phi=5.0, trials=3))
            assert np.isfinite(found).all()
            assert (found >= 0).all()
            assert found[2] > 0.01
    # A Beta answer's score is bounded below any ability: log y has standard deviation 1 / alpha.
    assert float(curves.information(-30.0, 1.0, 0.0, 0.0, "beta", phi=5.0)) == pytest.approx(1, rel=1e-5)


def test_information_grows_with_trials_and_precision():
    single = curves.information(0.2, 1.0, 0.0, 0.0, "binomial", trials=1)
    many = curves.information(0.2, 1.0, 0.0, 0.0, "binomial", trials=np.array([1, 10]))
    assert many == pytest.approx(np.array([1, 10]) * float(single), rel=1e-6)
    spread = curves.information(0.2, 1.0, 0.0, 0.0, "beta-binomial", phi=np.array([1.0, 10, 1e6]), trials=10)
    assert (np.diff(spread) > 0).all()
    assert float(spread[-1]) == pytest.approx(10 * float(single), rel=1e-4)
    ragged = curves.information(0.2, 1.0, 0.0, 0.0, "beta-binomial", phi=2.0, trials=np.array([1, 4]))
    assert float(ragged[0]) == pytest.approx(float(single), rel=1e-5)
    alone = curves.information(0.2, 1.0, 0.0, 0.0, "beta-binomial", phi=2.0, trials=4)
    assert float(ragged[1]) == pytest.approx(float(alone), rel=1e-5)


def test_information_refuses_what_it_cannot_know():
    with pytest.raises(InputError, match="'poisson' is not known; choose one of bernoulli"):
        curves.information(0.0, 1.0, 0.0, likelihood="poisson")
    with pytest.raises(InputError, match="'beta' needs phi"):
        curves.information(0.0, 1.0, 0.0, likelihood="beta")


# Expected score


def test_bin_12_expected_score():
    """BIN-12: strictly increasing for positive slopes; negative ones are named."""
    a, b = np.linspace(0.2, 2, 10), np.zeros(10)
    score = curves.expected_score(np.linspace(-4, 4, 41), a, b)
    assert score.shape == (41,)
    assert (np.diff(score) > 0).all()
    assert float(curves.expected_score(0.0, a, b, 0.5)) == pytest.approx(0.75, rel=1e-6)
    mixed = np.linspace(-2, 2, 10)
    with pytest.raises(InputError, match=r"negative for 5 of them \(0, 1, 2, 3, 4\)"):
        curves.expected_score(0.0, mixed, b)
    with pytest.raises(InputError, match=r"negative for 1 of them \(q3\)"):
        curves.expected_score(0.0, [1.0, 1.0, -0.1], np.zeros(3), items=["q1", "q2", "q3"])


def test_expected_score_while_tracing():
    slope = jax.jit(jax.grad(lambda theta, a: curves.expected_score(theta, a, jnp.zeros(3)), 0))
    assert float(slope(0.0, jnp.ones(3))) == pytest.approx(0.25)


# pass@k


def test_passk_01_more_samples_than_were_taken():
    """PASSK-01."""
    for n, c, k in ((2, 0, 5), (99, 0, 100), (10, 1, 100)):
        with pytest.raises(InputError, match=f"k must not exceed n.*n={n}, c={c}, k={k}"):
            curves.pass_at_k_unbiased(n, c, k)
    assert curves.pass_at_k_unbiased(10, 1, 10) == 1
    assert curves.pass_at_k_unbiased(10, 0, 10) == 0


def test_passk_02_one_sample_a_problem():
    """PASSK-02: 50 of 164 solved with one sample each."""
    solved = np.arange(164) < 50
    assert curves.pass_at_k_unbiased(1, solved, 1).mean() == pytest.approx(0.304878, abs=1e-6)
    with pytest.raises(InputError, match="164 of 164 break this"):
        curves.pass_at_k_unbiased(1, solved, 10)


def test_passk_03_a_share_stays_a_share():
    """PASSK-03."""
    found = curves.pass_at_k_unbiased(np.full(100, 200), 1, 1)
    assert found == pytest.approx(np.full(100, 0.005), rel=1e-12)


def test_passk_04_neither_overflow_nor_cancellation():
    """PASSK-04, in one call with ragged n, c and k."""
    found = curves.pass_at_k_unbiased(
        [2000, 10_000, 10_000, 100_000, 1_000_000], [3, 1, 5, 2, 3], [1000, 10, 100, 50, 100]
    )
    true = [0.875187593797, 0.001, 0.049019558909, 0.000999754998, 0.000299970301]
    assert found.dtype == np.float64
    assert found == pytest.approx(true, rel=1e-6)


def test_passk_05_problems_are_not_pooled():
    """PASSK-05."""
    assert curves.pass_at_k_unbiased(10, [10, 0], 2).mean() == 0.5
    assert curves.pass_at_k_unbiased(20, 10, 2) == pytest.approx(0.763158, abs=1e-6)


def test_passk_06_problems_with_too_few_samples_are_listed():
    """PASSK-06."""
    with pytest.raises(InputError, match=r"2 of 4 break this \(position 1: n=5, c=1, k=8; position 3: n=7"):
        curves.pass_at_k_unbiased([10, 5, 9, 7], 1, 8)


def test_passk_07_unbiased_against_plug_in():
    """PASSK-07, and the definition: the average over all samples of the problem is the power formula."""
    assert curves.pass_at_k_unbiased(10, 1, [5, 10]) == pytest.approx([0.5, 1.0], rel=1e-12)
    n, p, k = 12, 0.3, 5
    c = np.arange(n + 1)
    chance = special.comb(n, c) * p**c * (1 - p) ** (n - c)
    assert chance @ curves.pass_at_k_unbiased(n, c, k) == pytest.approx(1 - (1 - p) ** k, rel=1e-12)


def test_pass_at_k_against_binomial_coefficients():
    n = np.arange(1, 31)[:, None, None]
    c, k = np.minimum(np.arange(31)[:, None], n), np.minimum(np.arange(1, 31), n)
    true = 1 - special.comb(n - c, k, exact=False) / special.comb(n, k, exact=False)
    assert curves.pass_at_k_unbiased(n, c, k) == pytest.approx(true, abs=1e-12)


def test_pass_at_k_with_very_many_samples():
    assert curves.pass_at_k_unbiased(10**7, 10**6, 10**6) == 1
    assert curves.pass_at_k_unbiased(10**7, 3, 10**6) == pytest.approx(1 - 0.9**3, rel=1e-6)


@pytest.mark.parametrize(
    ("n", "c", "k", "rule"),
    [
        (10, 11, 1, "c .successes. must be whole and lie in 0..n"),
        (10, -1, 1, "c .successes."),
        (10, 0.5, 1, "c .successes."),
        (10, np.nan, 1, "c .successes."),
        (0, 0, 1, "n .samples. must be whole and at least 1"),
        (10.5, 1, 1, "n .samples."),
        (10, 1, 0, "k must be whole and at least 1"),
        (10, 1, 1.5, "k must be whole"),
    ],
)
def test_pass_at_k_refuses_impossible_counts(n, c, k, rule):
    with pytest.raises(InputError, match=rule):
        curves.pass_at_k_unbiased(n, c, k)
