"""Log densities: hand values, identities, peers, float32 accuracy, both ends, and answers that are no answers."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads
from scipy import integrate, optimize, special, stats

from bayes_irsl import likelihoods as lik
from bayes_irsl.errors import InputError

LOG_10 = float(np.log(10))


def error(found, true):
    """Largest error over 1 + |value|."""
    found, true = np.asarray(found, dtype=np.float64), np.asarray(true, dtype=np.float64)
    assert np.isfinite(found).all()
    return np.max(np.abs(found - true) / (1 + np.abs(true)))


def with_derivatives(density, *parameters):
    """Density, and its derivative in every parameter, cell by cell."""
    parameters = [jnp.asarray(p) for p in parameters]
    value, along = jax.linearize(density, *parameters)
    units = [[jnp.ones_like(p) if i == j else jnp.zeros_like(p) for j, p in enumerate(parameters)]
             for i in range(len(parameters))]  # fmt: skip
    return [value, *(along(*unit) for unit in units)]


def second_derivatives(density, *parameters):
    """d2 / (first, first), (first, second), (second, second) of a density of two parameters."""
    slopes = [jax.grad(lambda *p: density(*p).sum(), i) for i in range(2)]
    first = with_derivatives(slopes[0], *parameters)[1:]
    return [*first, with_derivatives(slopes[1], *parameters)[2]]


# Hand values


def test_bernoulli_by_hand():
    assert error(lik.bernoulli([1, 0], 0.0), [-np.log(2)] * 2) < 1e-7
    assert error(lik.bernoulli([1, 0], np.log(3.0)), np.log([0.75, 0.25])) < 1e-7
    assert error(lik.bernoulli(0.25, np.log(3.0)), 0.25 * np.log(0.75) + 0.75 * np.log(0.25)) < 1e-7


def test_binomial_by_hand():
    assert error(lik.binomial(3, 10, 0.0), np.log(120 / 1024)) < 1e-6
    assert error(lik.binomial([0, 2], 2, np.log(3.0)), np.log([1 / 16, 9 / 16])) < 1e-6
    assert lik.binomial(0, 0, 1.7) == 0


def test_beta_binomial_by_hand():
    # alpha = beta = 1 is the uniform distribution over 0..n.
    assert error(lik.beta_binomial(np.arange(8), 7, 0.0, np.log(2.0)), np.full(8, -np.log(8))) < 1e-6
    # Polya's urn with one ball of each colour.
    assert error(lik.beta_binomial(1, 1, 1.3, -2.0), np.log(special.expit(1.3))) < 1e-6
    assert abs(float(lik.beta_binomial(0, 0, 1.3, -2.0))) < 1e-6


def test_beta_by_hand():
    assert error(lik.beta([0.2, 0.9], 0.0, np.log(2.0)), [0.0, 0.0]) < 1e-6
    assert error(lik.beta(0.3, 0.0, np.log(4.0)), np.log(6 * 0.3 * 0.7)) < 1e-6


def test_beta_07_large_precision_in_float32():
    """BETA-07."""
    density = lik.beta(0.7, special.logit(0.7), np.log([1e3, 1e4, 1e5, 1e6]))
    assert density.dtype == jnp.float32
    assert np.max(np.abs(density - np.array([3.31495, 4.46652, 5.61784, 6.76914]))) < 1e-4


def test_beta_04_ordered_beta():
    """BETA-04."""
    density = lik.ordered_beta(np.array([0, 1, 0.6]), 0.4, LOG_10, -2.0, 2.5)
    assert error(density, [-2.486836, -2.215520, 0.706594]) < 3e-6


def test_zero_one_beta_by_hand():
    density = lik.zero_one_beta(np.array([0, 1, 0.3]), 0.0, np.log(4.0), special.logit(0.2), special.logit(0.7))
    assert error(density, np.log([0.2 * 0.3, 0.2 * 0.7, 0.8 * 6 * 0.3 * 0.7])) < 1e-6


@pytest.mark.parametrize(
    ("rule", "mean", "precision"),
    [
        (lambda y: (y * 5 + 0.5) / 6, 0.893, 115.5),
        (lambda y: np.minimum(y, 1 - 1e-3), 0.971, 15.4),
        (lambda y: np.minimum(y, 1 - 1e-6), 0.973, 5.8),
        (lambda y: np.minimum(y, 1 - float(np.finfo(np.float32).eps)), 0.974, 5.0),
    ],
)
def test_beta_02_the_squeeze_rule_decides(rule, mean, precision):
    """BETA-02: maximum likelihood with our density and gradient moves the precision 20-fold with the rule."""
    data = lik.beta_data(rule(np.array([1, 1, 1, 0.98, 0.95, 0.90])))
    target = jax.jit(jax.value_and_grad(lambda p: -lik.beta(data, p[0], p[1]).sum()))

    def loss(p):
        value, slope = target(jnp.asarray(p, dtype=jnp.float32))
        return float(value), np.asarray(slope, dtype=np.float64)

    found = optimize.minimize(loss, [2.0, 2.0], jac=True, method="L-BFGS-B").x
    assert special.expit(found[0]) == pytest.approx(mean, abs=6e-4)
    assert np.exp(found[1]) == pytest.approx(precision, rel=0.01)


# Values from arbitrary-precision arithmetic: value, d eta, d log phi, d2 eta, d2 mixed, d2 log phi


@pytest.mark.parametrize(
    ("y", "n", "eta", "log_phi", "true"),
    [
        (5000, 10000, 0.0, 11.512925148010254,
         [-4.87864187, 0, 0.04545499244, -2272.770596, 0, -0.04132313431]),
        (4900, 10000, 0.125, 11.512925148010254,
         [-35.79876782, -374.4681671, -2.770428656, -2260.507351, -34.18355315, 2.261170958]),
        (3, 1000, -6.0, -3.0,
         [-10.10143545, 0.9943298867, 0.9991330723, -0.005654342887, -0.0007155422297, -0.0008488260351]),
        (0, 10000, -4.0, 2.0,
         [-0.9688364823, -0.9526829488, -0.8265460516, -0.9209274835, -0.8128621766, -0.6942479706]),
        (1000, 1000, 5.0, 11.5,
         [-6.681483765, 6.658986964, -0.033637291, -6.614194237, 0.03363577528, 0.03318585871]),
        (7, 10, 1.0, -2.5,
         [-4.918465719, -0.4477272915, 0.9519547977, -0.4005407745, 0.01350153374, -0.04434151211]),
        (1, 2, 10.0, 11.0,
         [-9.306960319, -0.9999092043, 1.670142185e-05, -9.079161547e-05, 0, -1.670114291e-05]),
    ],
)  # fmt: skip
def test_beta_binomial_keeps_its_digits(y, n, eta, log_phi, true):
    density = partial(lik.beta_binomial, lik.binomial_data(y, n), None)
    assert error(with_derivatives(density, eta, log_phi), true[:3]) < 3e-6
    assert error(second_derivatives(density, eta, log_phi), true[3:]) < 1e-4


@pytest.mark.parametrize(
    ("y", "eta", "log_phi", "true"),
    [
        (0.699999988079071, 0.8472978472709656, 13.815510749816895,
         [6.769140382, -0.2091666766, 0.5000003133, -210000.2477, -0.009166361908, -3.13692061e-07]),
        (0.25, -1.0, 11.5,
         [-87.23076574, -1913.705126, -92.42253506, -20293.35794, -1913.936189, -92.92254196]),
        (1.0000000031710769e-30, -13.0, -2.9000000953674316,
         [53.17753959, 0.999986899, 0.99999143, -1.310095152e-05, -8.569937647e-06, -8.549912107e-06]),
        (0.5, 13.0, 11.0,
         [-41500.65358, -2.539325231, -41498.91785, 1.514221528, -1.649566798, -41499.80761]),
        (0.9999999403953552, 0.0, 2.0,
         [-40.34902366, 30.7302203, -55.8052031, -2.119505167, 30.7302203, -56.37169336]),
    ],
)  # fmt: skip
def test_beta_keeps_its_digits(y, eta, log_phi, true):
    density = partial(lik.beta, lik.beta_data(y))
    assert error(with_derivatives(density, eta, log_phi), true[:3]) < 3e-6
    assert error(second_derivatives(density, eta, log_phi), true[3:]) < 1e-4


# Accuracy over the whole range, in float32


def hard_cells(size=20_000, seed=0):
    """Answers, logits and log precisions over means in (1e-6, 1 - 1e-6) and precisions in (0.05, 1e5)."""
    rng = np.random.default_rng(seed)
    eta = rng.uniform(-np.log(1e6), np.log(1e6), size).astype(np.float32)
    log_phi = rng.uniform(np.log(0.05), np.log(1e5), size).astype(np.float32)
    mean, phi = special.expit(np.float64(eta)), np.exp(np.float64(log_phi))
    up, down = rng.gamma(mean * phi), rng.gamma((1 - mean) * phi)
    own = np.where(up + down > 0, up / np.maximum(up + down, 1e-300), 0.5)
    free = np.where(rng.random(size) < 0.5, rng.random(size), special.expit(rng.uniform(-20, 20, size)))
    y = np.where(rng.random(size) < 0.5, own, free).astype(np.float32)
    return np.where((y > 0) & (y < 1), y, np.float32(0.5)), eta, log_phi


def beta_in_float64(y, eta, log_phi):
    y, eta, log_phi = np.float64(y), np.float64(eta), np.float64(log_phi)
    phi = np.exp(log_phi)
    alpha, beta = special.expit(eta) * phi, special.expit(-eta) * phi
    density = stats.beta.logpdf(y, alpha, beta)
    in_alpha = np.log(y) - special.digamma(alpha) + special.digamma(phi)
    in_beta = np.log1p(-y) - special.digamma(beta) + special.digamma(phi)
    return [density, alpha * special.expit(-eta) * (in_alpha - in_beta), alpha * in_alpha + beta * in_beta]


@pytest.mark.parametrize("shared", [False, True], ids=["own precision", "shared precision"])
def test_beta_is_accurate_over_the_whole_range(shared):
    y, eta, log_phi = (array.reshape(200, 100) for array in hard_cells())
    if shared:
        log_phi = log_phi[:1]
    found = jax.jit(lambda e, p: with_derivatives(partial(lik.beta, lik.beta_data(y)), e, p))(eta, log_phi)
    true = beta_in_float64(y, eta, log_phi)
    assert error(found[0], true[0]) < 1e-5
    assert error(found[1], true[1]) < 2e-6
    assert error(found[2], true[2]) < 1e-5


def test_beta_accuracy_check_rejects_the_textbook_formula():
    """Negative control: the same check, the same cells, the formula as it stands in books."""
    y, eta, log_phi = hard_cells()
    y = np.maximum(y, np.float32(1e-30))
    lgamma, phi = jax.scipy.special.gammaln, jnp.exp(log_phi)
    alpha, beta = phi * jax.nn.sigmoid(eta), phi * jax.nn.sigmoid(-eta)
    textbook = lgamma(phi) - lgamma(alpha) - lgamma(beta) + (alpha - 1) * jnp.log(y) + (beta - 1) * jnp.log1p(-y)
    assert error(textbook, beta_in_float64(y, eta, log_phi)[0]) > 1e-3


def test_the_low_part_of_the_logit_matters():
    """Negative control: with the logit of y in one float32 the derivatives at large precisions are off."""
    y, eta, log_phi = hard_cells()
    data = lik.beta_data(y)
    rough = data._replace(logit_low=np.zeros_like(data.logit_low))
    true = beta_in_float64(y, eta, log_phi)[1]
    assert error(with_derivatives(partial(lik.beta, rough), eta, log_phi)[1], true) > 1e-5


def test_beta_binomial_is_accurate_over_the_whole_range():
    rng = np.random.default_rng(1)
    _, eta, log_phi = hard_cells(seed=1)
    n = np.floor(np.exp(rng.uniform(0, np.log(1000), eta.size)))
    y = rng.binomial(n.astype(int), rng.beta(0.4, 0.4, eta.size))
    phi = np.exp(np.float64(log_phi))
    alpha, beta = special.expit(np.float64(eta)) * phi, special.expit(-np.float64(eta)) * phi

    def grown(f, x, by):
        return f(x + by) - f(x)

    choose = special.gammaln(n + 1) - special.gammaln(y + 1) - special.gammaln(n - y + 1)
    psi, lgamma = special.digamma, special.gammaln
    density = choose + grown(lgamma, alpha, y) + grown(lgamma, beta, n - y) - grown(lgamma, phi, n)
    in_alpha, in_beta = grown(psi, alpha, y), grown(psi, beta, n - y)
    in_eta = alpha * special.expit(-np.float64(eta)) * (in_alpha - in_beta)
    in_log_phi = alpha * in_alpha + beta * in_beta - phi * grown(psi, phi, n)
    found = with_derivatives(partial(lik.beta_binomial, lik.binomial_data(y, n), None), eta, log_phi)
    assert max(error(*pair) for pair in zip(found, (density, in_eta, in_log_phi), strict=True)) < 1e-5


def test_binomial_is_accurate_for_many_trials():
    rng = np.random.default_rng(2)
    p = special.expit(rng.normal(0, 2, 2000))
    n = np.floor(np.exp(rng.uniform(0, np.log(1e4), p.size)))
    y = rng.binomial(n.astype(int), p)
    eta = special.logit(p).astype(np.float32)
    found = with_derivatives(partial(lik.binomial, lik.binomial_data(y, n), None), eta)
    mean = special.expit(np.float64(eta))
    assert error(found[0], stats.binom.logpmf(y, n, mean)) < 3e-6
    assert error(found[1], y - n * mean) < 1e-5


# Peers and identities in both precisions


@pytest.mark.parametrize(("double", "tolerance"), [(False, 3e-6), (True, 1e-11)])
def test_densities_agree_with_scipy(double, tolerance):
    rng = np.random.default_rng(3)
    eta, log_phi = rng.normal(0, 1.5, 300), rng.normal(1, 1, 300)
    with jax.enable_x64(double):
        dtype = jnp.result_type(float)
        eta, log_phi = np.float64(dtype.type(eta)), np.float64(dtype.type(log_phi))
        mean, phi = special.expit(eta), np.exp(log_phi)
        alpha, beta = mean * phi, special.expit(-eta) * phi
        right, n = rng.integers(0, 2, 300), rng.integers(1, 200, 300)
        y, share = rng.binomial(n, mean), np.float64(np.clip(rng.beta(alpha, beta), 1e-6, 1 - 1e-6).astype(dtype))
        parameters = [jnp.asarray(p, dtype=dtype) for p in (eta, log_phi)]
        pairs = [
            (lik.bernoulli(right, parameters[0]), stats.bernoulli.logpmf(right, mean)),
            (lik.binomial(y, n, parameters[0]), stats.binom.logpmf(y, n, mean)),
            (lik.beta_binomial(y, n, *parameters), stats.betabinom.logpmf(y, n, alpha, beta)),
            (lik.beta(share, *parameters), stats.beta.logpdf(share, alpha, beta)),
        ]
        for found, true in pairs:
            assert found.dtype == dtype
            assert error(found, true) < tolerance


DENSITIES = {
    "bernoulli": (lambda e: lik.bernoulli(np.array([0.0, 1.0, 1.0]), e), 1),
    "binomial": (lambda e: lik.binomial(np.array([0, 3, 10]), 10, e), 1),
    "beta_binomial": (lambda e, p: lik.beta_binomial(np.array([0, 3, 10]), 10, e, p), 2),
    "beta": (lambda e, p: lik.beta(np.array([0.02, 0.5, 0.9]), e, p), 2),
    "ordered_beta": (lambda e, p, low, high: lik.ordered_beta(np.array([0, 0.4, 1]), e, p, low, high), 4),
    "zero_one_beta": (lambda e, p, edge, one: lik.zero_one_beta(np.array([0, 0.4, 1]), e, p, edge, one), 4),
}
PARAMETERS = (np.array([-0.7, 0.0, 1.9]), np.array([-1.0, 0.8, 4.0]), -1.5, 2.0)


@pytest.mark.parametrize("name", DENSITIES)
def test_derivatives_are_derivatives(name):
    """First and second derivatives against finite differences in float64, at eta = 0 too, both ways."""
    density, count = DENSITIES[name]
    with jax.enable_x64(True):
        arguments = [jnp.asarray(p, dtype=jnp.float64) for p in PARAMETERS[:count]]
        check_grads(density, arguments, order=2, modes=("fwd", "rev"), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", DENSITIES)
def test_float32_and_float64_agree(name):
    density, count = DENSITIES[name]
    single = [jnp.asarray(p, dtype=jnp.float32) for p in PARAMETERS[:count]]
    rough = with_derivatives(density, *single)
    rough_curvature = jax.jvp(jax.grad(lambda e: density(e, *single[1:]).sum()), single[:1], [jnp.ones(3)])[1]
    with jax.enable_x64(True):
        double = [jnp.asarray(np.asarray(p), dtype=jnp.float64) for p in single]
        fine = with_derivatives(density, *double)
        curvature = jax.jvp(jax.grad(lambda e: density(e, *double[1:]).sum()), double[:1], [jnp.ones(3)])[1]
    assert max(error(*pair) for pair in zip(rough, fine, strict=True)) < 3e-6
    assert error(rough_curvature, curvature) < 1e-5


def test_third_derivatives_exist():
    """A Laplace-integrated likelihood needs the slope of the curvature."""
    with jax.enable_x64(True):
        for name in ("beta", "beta_binomial"):
            density = DENSITIES[name][0]
            eta, log_phi = (jnp.asarray(p) for p in PARAMETERS[:2])

            def curvature(e, density=density, log_phi=log_phi):
                return jax.jvp(jax.grad(lambda x: density(x, log_phi).sum()), [e], [jnp.ones(3)])[1]

            step = 1e-4
            slope = jax.jvp(curvature, [eta], [jnp.ones(3)])[1]
            assert error(slope, (curvature(eta + step) - curvature(eta - step)) / (2 * step)) < 1e-5


@pytest.mark.parametrize("log_phi", [-2.0, 1.0, 8.0])
def test_probabilities_sum_to_one(log_phi):
    n = 30
    counts = np.arange(n + 1)
    for eta in (-4.0, 0.3, 6.0):
        assert np.exp(lik.binomial(counts, n, eta)).sum() == pytest.approx(1, abs=2e-5)
        assert np.exp(lik.beta_binomial(counts, n, eta, log_phi)).sum() == pytest.approx(1, abs=2e-5)


@pytest.mark.parametrize(
    ("density", "edges"),
    [
        (lambda y: lik.beta(y, 0.4, 1.5), False),
        (lambda y: lik.ordered_beta(y, 0.4, 1.5, -1.0, 1.2), True),
        (lambda y: lik.zero_one_beta(y, 0.4, 1.5, -1.0, 0.6), True),
    ],
)
def test_densities_integrate_to_one(density, edges):
    with jax.enable_x64(True):
        logit, weight = np.polynomial.legendre.leggauss(400)
        y = special.expit(40 * logit)
        inside = np.sum(40 * weight * y * (1 - y) * np.exp(density(y)))
        assert inside + edges * np.exp(density(np.array([0.0, 1.0]))).sum() == pytest.approx(1, abs=1e-9)


def test_identities():
    y = np.array([0.125, 0.5, 0.75], dtype=np.float32)
    eta = np.array([-2.0, 0.3, 5.0], dtype=np.float32)
    assert error(lik.beta(y, eta, 2.0), lik.beta(1 - y, -eta, 2.0)) < 1e-6
    hits = np.array([0, 4, 9])
    assert error(lik.beta_binomial(hits, 9, eta, 2.0), lik.beta_binomial(9 - hits, 9, -eta, 2.0)) < 1e-6
    # One trial has no room for overdispersion; without it the binomial is left.
    assert error(lik.beta_binomial([0, 1, 1], 1, eta, -1.0), lik.bernoulli([0, 1, 1], eta)) < 1e-6
    assert error(lik.binomial([0, 1, 1], 1, eta), lik.bernoulli([0, 1, 1], eta)) < 1e-6
    n = np.array([5, 200, 10_000])
    data = lik.binomial_data(n // 3, n)
    with_limit = with_derivatives(lambda e: lik.beta_binomial(data, None, e, 30.0), eta)
    assert max(map(error, with_limit, with_derivatives(lambda e: lik.binomial(data, None, e), eta))) < 3e-6


def test_the_score_has_mean_zero():
    """E d log p / d parameter = 0 under the density itself, a check of the derivatives without a peer."""
    n = 12
    value, *slopes = with_derivatives(
        lambda e, p: lik.beta_binomial(np.arange(n + 1), n, e, p), np.full(n + 1, 0.8), np.full(n + 1, 1.1)
    )
    for slope in slopes:
        assert abs(np.sum(np.exp(value) * slope)) < 1e-5


# Both ends


@pytest.mark.parametrize("eta", [-1e4, -200.0, -61.0, 61.0, 200.0, 1e4])
def test_extreme_logits_are_finite_and_right(eta):
    wrong, right = float(eta > 0), float(eta < 0)
    parts = {
        "bernoulli": with_derivatives(lambda e: lik.bernoulli(np.array([wrong, right]), e), np.full(2, eta)),
        "binomial": with_derivatives(
            lambda e: lik.binomial(np.array([5 * wrong, 5 * right]), 5, e), np.full(2, eta)
        ),
    }
    for name, scale in (("bernoulli", 1), ("binomial", 5)):
        value, slope = parts[name]
        assert error(value, [0, -scale * abs(eta)]) < 1e-6
        assert error(slope, [0, -scale * np.sign(eta)]) < 1e-6
    density = partial(lik.beta_binomial, np.array([5 * wrong, 5 * right, 2]), 5)
    value, in_eta, in_log_phi = with_derivatives(density, np.full(3, eta), np.zeros(3))
    # With phi = 1 and alpha near 0, p = alpha / (successes of the unlikely side).
    few = np.array([5, 2 if eta < 0 else 3])
    assert error(value, [0, *(-abs(eta) - np.log(few))]) < 1e-6
    assert error(in_eta, [0, -np.sign(eta), -np.sign(eta)]) < 1e-6
    assert np.isfinite(in_log_phi).all()
    assert all(np.isfinite(d).all() for d in second_derivatives(density, np.full(3, eta), np.zeros(3)))


@pytest.mark.parametrize("log_phi", [-3.0, 2.0, 11.5])
def test_beta_at_extreme_logits_is_finite(log_phi):
    eta = np.array([-1e4, -100, -20, 0, 20, 100, 1e4], dtype=np.float32)[:, None]
    density = partial(lik.beta, np.array([1e-30, 1e-6, 0.5, 1 - 1e-6], dtype=np.float32))
    precision = np.full((7, 4), log_phi)
    for array in (
        *with_derivatives(density, eta + 0 * precision, precision),
        *second_derivatives(density, eta + 0 * precision, precision),
    ):
        assert np.isfinite(array).all()


def test_no_successes_and_no_failures():
    """y = 0 and y = n: finite, and the slope of a Bernoulli seen n times."""
    for density in (lik.binomial, partial(lik.beta_binomial, log_phi=20.0)):
        value, slope = with_derivatives(lambda e, d=density: d(np.array([0, 50]), 50, eta=e), np.zeros(2))
        assert error(value, [-50 * np.log(2)] * 2) < 1e-5
        assert error(slope, [-25, 25]) < 1e-5


def test_curvature_at_zero():
    """|eta| has a kink at 0, the densities have none: where every fit starts from zeros."""
    curvature = jax.grad(jax.grad(lambda e: lik.bernoulli(1.0, e)))
    assert curvature(0.0) == -0.25
    curvature = jax.grad(jax.grad(lambda e: lik.beta(0.5, e, jnp.log(2.0))))
    assert curvature(0.0) == pytest.approx(-float(special.polygamma(1, 1)) / 2, rel=1e-5)


# Answers that are no answers


@pytest.mark.parametrize("filler", [0.5, -1.0, 0.0, 1.0, np.nan])
def test_beta_06_masked_cells_do_not_poison(filler):
    """BETA-06: value, gradient and curvature as if the masked cells were not there, whatever fills them."""
    y = np.array([0.2, 0.3, 0.25, filler, filler])
    mask = np.array([True, True, True, False, False])
    keep = {"beta": lik.beta, "ordered": lambda d, e, p: lik.ordered_beta(d, e, p, -2.0, 2.0)}
    for density in keep.values():
        data = lik.beta_data(y)

        def masked(e, p, density=density, data=data):
            return jnp.where(mask, density(data, e, p), 0).sum()

        def dropped(e, p, density=density):
            return density(y[:3], e, p).sum()

        for f in (lambda g: g, lambda g: jax.grad(g, (0, 1)), lambda g: jax.hessian(g, (0, 1))):
            left, right = (jax.tree.leaves(f(g)(0.1, LOG_10)) for g in (masked, dropped))
            assert max(map(error, left, right)) < 1e-6


@pytest.mark.parametrize("filler", [(-1, 4), (5, 4), (np.nan, 4), (1, np.nan)])
def test_masked_counts_do_not_poison(filler):
    data = lik.binomial_data(np.array([1, filler[0]]), np.array([4, filler[1]]))
    mask = np.array([True, False])
    for density in (
        lambda e: lik.binomial(data, None, e),
        lambda e: lik.beta_binomial(data, None, e, 1.0),
        lambda e: lik.bernoulli(np.array([1.0, -3.0]), e),
        lambda e: lik.bernoulli(np.array([1.0, np.nan]), e),
    ):
        assert np.isnan(density(0.3)[1])
        for f in (lambda g: g, jax.grad, jax.hessian):
            found = f(lambda e, density=density: jnp.where(mask, density(e), 0).sum())(0.3)
            assert error(found, f(lambda e, density=density: density(e)[0])(0.3)) < 1e-6


def test_answers_outside_the_range_have_no_density():
    assert np.isnan(lik.beta(np.array([0.0, 1.0, -0.1, 1.1, np.nan]), 0.0, 1.0)).all()
    assert np.isnan(lik.ordered_beta(np.array([-0.1, 1.1, np.nan]), 0.0, 1.0, -1.0, 1.0)).all()
    assert np.isnan(lik.binomial(np.array([-1, 4]), 3, 0.0)).all()


def test_counts_without_trials_are_refused():
    with pytest.raises(InputError, match="n: got None"):
        lik.binomial(3, None, 0.0)


def test_an_answer_just_inside_is_not_the_boundary():
    """1 - 1e-12 rounds to 1 in float32; it is no exact 1 for the densities that know exact 1s."""
    data = lik.beta_data(np.array([1 - 1e-12, 1.0, 1e-50, 0.0]))
    assert (np.isfinite(lik.beta(data, 0.0, 1.0)) == [True, False, True, False]).all()
    inside = lik.ordered_beta(data, 0.0, 1.0, -1.0, 1.0)
    assert inside[0] != pytest.approx(float(inside[1]))
    assert inside[2] != pytest.approx(float(inside[3]))


# Shapes, tracing, prepared data


def test_broadcasting_and_precision_layouts_agree():
    y, eta, _ = (array[:1200].reshape(60, 20) for array in hard_cells(1200, seed=4))
    log_phi = np.linspace(-2, 11, 20, dtype=np.float32)
    by_item = lik.beta(y, eta, log_phi)
    by_cell = lik.beta(y, eta, np.tile(log_phi, (60, 1)))
    assert by_item.shape == (60, 20)
    assert error(by_item, by_cell) < 5e-6
    whole = jnp.stack([lik.beta(y[:, j], eta[:, j], log_phi[j]) for j in range(20)], 1)
    assert error(by_item, whole) < 5e-6
    assert lik.beta(y, eta[0], log_phi[0]).shape == (60, 20)


def test_transformations_agree():
    y, eta, log_phi = hard_cells(64, seed=5)
    data = lik.beta_data(y)
    direct = lik.beta(data, eta, log_phi)
    assert error(jax.jit(lik.beta)(data, eta, log_phi), direct) < 2e-6
    assert error(jax.vmap(lik.beta)(data, eta, log_phi), direct) < 2e-6
    gathered = jax.tree.map(lambda field: field[::-1], data)
    assert error(lik.beta(gathered, eta[::-1], log_phi[::-1]), direct[::-1]) < 2e-6
    counts = lik.binomial_data(np.arange(8), 7)
    chains = jax.vmap(lambda e: lik.beta_binomial(counts, None, e, 0.3))(np.ones((3, 8)))
    assert error(chains, jnp.stack([lik.beta_binomial(counts, None, 1.0, 0.3)] * 3)) < 1e-6


def test_answers_prepared_while_tracing():
    """Plain answers inside jit are prepared in float32: good enough up to precisions of 1e4."""
    y = np.array([0.001, 0.3, 0.7, 0.9999], dtype=np.float32)
    eta = special.logit(np.float64(y)).astype(np.float32)
    traced = jax.jit(lambda y: lik.beta(y, eta, np.log(1e4)))(y)
    assert error(traced, lik.beta(y, eta, np.log(1e4))) < 1e-5
    counts = np.array([0, 3, 500, 1000])
    traced = jax.jit(lambda y: lik.beta_binomial(y, 1000, eta, 3.0))(counts)
    assert error(traced, lik.beta_binomial(counts, 1000, eta, 3.0)) < 1e-5


def test_double_precision_is_double():
    with jax.enable_x64(True):
        data = lik.beta_data(np.array([0.3, 0.6]))
        assert {np.asarray(field).dtype for field in data} == {np.dtype(np.float64)}
        found = with_derivatives(partial(lik.beta, data), np.array([0.2, 0.5]), np.log([3e4, 0.1]))
        true = beta_in_float64([0.3, 0.6], [0.2, 0.5], np.log([3e4, 0.1]))
        assert max(map(error, found, true)) < 1e-11


def test_mean_of_the_ordered_beta():
    """BETA-04: the mean is not sigmoid(eta)."""
    with jax.enable_x64(True):
        density = partial(lik.ordered_beta, eta=0.4, log_phi=LOG_10, cut_low=-2.0, cut_high=2.5)
        inside = integrate.quad(lambda y: y * np.exp(float(density(np.float64(y)))), 0, 1)[0]
        assert inside + np.exp(float(density(1.0))) == pytest.approx(0.592675, abs=1e-6)
