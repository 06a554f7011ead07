"""Log densities: hand values, identities, peers, float32 accuracy, both ends, answers that are no answers."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize, special, stats

from bayes_irsl import likelihoods as lik
from bayes_irsl.errors import InputError

LOG_10 = float(np.log(10))


def error(found, true):
    """Largest error over 1 + |value|."""
    found, true = np.asarray(found, dtype=np.float64), np.asarray(true, dtype=np.float64)
    assert np.isfinite(found).all()
    return np.max(np.abs(found - true) / (1 + np.abs(true)))


def compiled(function):
    """Compile function(density, data, *parameters) once for all rows of up to 48 cells, by padding."""
    jitted = jax.jit(function, static_argnums=0)

    def call(density, *inputs):
        leaves, tree = jax.tree.flatten(inputs)
        leaves = np.broadcast_arrays(*leaves)
        shape, size = leaves[0].shape, leaves[0].size
        if len(shape) > 1 or size > 48:
            return jitted(density, *inputs)
        found = jitted(density, *jax.tree.unflatten(tree, [np.resize(leaf, 48) for leaf in leaves]))
        return jax.tree.map(lambda field: np.asarray(field)[:size].reshape(shape), found)

    return call


@compiled
def evaluate(density, data, *parameters):
    """Density of (data, *parameters), cell by cell."""
    return density(data, *parameters)


@compiled
def with_derivatives(density, data, *parameters):
    """Density, and its derivative in every parameter, cell by cell."""
    value, along = jax.linearize(partial(density, data), *parameters)
    rows = range(len(parameters))
    return [value, *(along(*(jnp.full_like(p, i == j) for j, p in enumerate(parameters))) for i in rows)]


@compiled
def second_derivatives(density, data, first, second):
    """d2 / (first, first), (first, second), (second, second) of a density of two parameters."""
    slopes = [jax.grad(lambda *p: density(data, *p).sum(), i) for i in range(2)]
    ones, none = jnp.ones_like(first), jnp.zeros_like(first)
    upper = [jax.jvp(slopes[0], (first, second), unit)[1] for unit in ((ones, none), (none, ones))]
    return [*upper, jax.jvp(slopes[1], (first, second), (none, ones))[1]]


@compiled
def curvature(density, data, eta, *others):
    """d2 / d eta^2, cell by cell."""
    slope = jax.grad(lambda e: density(data, e, *others).sum())
    return jax.jvp(slope, [eta], [jnp.ones_like(eta)])[1]


@compiled
def third_derivative(density, data, eta, *others):
    """d3 / d eta^3, cell by cell."""
    slope = jax.grad(lambda e: density(data, e, *others).sum())
    ones = [jnp.ones_like(eta)]
    return jax.jvp(lambda e: jax.jvp(slope, [e], ones)[1], [eta], ones)[1]


def counted(data, eta, log_phi):
    return lik.beta_binomial(data, None, eta, log_phi)


def drawn(data, eta):
    return lik.binomial(data, None, eta)


def floats(*arrays):
    return [np.asarray(array, dtype=np.float32) for array in arrays]


# Hand values


def test_single_answers_by_hand():
    found = lik.bernoulli([1, 0, 1, 0.25], [0, 0, np.log(3), np.log(3)])
    assert error(found, [-np.log(2), -np.log(2), np.log(0.75), 0.25 * np.log(0.75) + 0.75 * np.log(0.25)]) < 1e-7


def test_counts_by_hand():
    data = lik.binomial_data([3, 0, 2, 0], [10, 2, 2, 0])
    eta = floats([0, np.log(3), np.log(3), 1.7])[0]
    assert error(evaluate(drawn, data, eta), [np.log(120 / 1024), np.log(1 / 16), np.log(9 / 16), 0]) < 1e-6
    # Uniform over 0..n for alpha = beta = 1; one draw is a Bernoulli; no draw says nothing.
    data = lik.binomial_data([0, 7, 1, 0], [7, 7, 1, 0])
    eta, log_phi = floats([0, 0, 1.3, 1.3], [np.log(2), np.log(2), -2, -2])
    true = [-np.log(8), -np.log(8), np.log(special.expit(1.3)), 0]
    assert error(evaluate(counted, data, eta, log_phi), true) < 1e-6


def test_shares_by_hand():
    eta, log_phi = floats([0, 0, 0], np.log([2, 2, 4]))
    found = evaluate(lik.beta, lik.beta_data([0.2, 0.9, 0.3]), eta, log_phi)
    assert error(found, [0, 0, np.log(6 * 0.3 * 0.7)]) < 1e-6
    data, others = lik.beta_data([0, 1, 0.3]), floats(special.logit(0.2), special.logit(0.7))
    found = evaluate(lik.zero_one_beta, data, *floats([0, 0, 0], np.full(3, np.log(4))), *others)
    assert error(found, np.log([0.2 * 0.3, 0.2 * 0.7, 0.8 * 6 * 0.3 * 0.7])) < 1e-6


def test_beta_07_large_precision_in_float32():
    """BETA-07."""
    density = lik.beta(0.7, special.logit(0.7), np.log([1e3, 1e4, 1e5, 1e6]))
    assert density.dtype == jnp.float32
    assert np.max(np.abs(np.asarray(density) - [3.31495, 4.46652, 5.61784, 6.76914])) < 1e-4


def test_beta_04_ordered_beta():
    """BETA-04."""
    others = floats(np.full(3, 0.4), np.full(3, LOG_10), -2.0, 2.5)
    density = evaluate(lik.ordered_beta, lik.beta_data([0, 1, 0.6]), *others)
    assert error(density, [-2.486836, -2.215520, 0.706594]) < 3e-6


def test_beta_02_the_squeeze_rule_decides():
    """BETA-02: maximum likelihood with our density and gradient moves the precision 20-fold with the rule."""
    y = np.array([1, 1, 1, 0.98, 0.95, 0.90])
    target = jax.jit(jax.value_and_grad(lambda p, data: -lik.beta(data, p[0], p[1]).sum()))
    eps = float(np.finfo(np.float32).eps)
    for squeezed, mean, precision in (
        ((y * 5 + 0.5) / 6, 0.893, 115.5),
        (np.minimum(y, 1 - 1e-3), 0.971, 15.4),
        (np.minimum(y, 1 - 1e-6), 0.973, 5.8),
        (np.minimum(y, 1 - eps), 0.974, 5.0),
    ):
        data = lik.beta_data(squeezed)

        def loss(p, data=data):
            return tuple(np.float64(part) for part in target(np.float32(p), data))

        found = optimize.minimize(loss, [2.0, 2.0], jac=True, method="L-BFGS-B").x
        assert special.expit(found[0]) == pytest.approx(mean, abs=6e-4)
        assert np.exp(found[1]) == pytest.approx(precision, rel=0.01)


# Values from arbitrary-precision arithmetic: value, d eta, d log phi, d2 eta, d2 mixed, d2 log phi


COUNTS_TO_THE_DIGIT = [
    (5000, 10000, 0.0, 11.512925148010254,
     -4.87864187, 0, 0.04545499244, -2272.770596, 0, -0.04132313431),
    (4900, 10000, 0.125, 11.512925148010254,
     -35.79876782, -374.4681671, -2.770428656, -2260.507351, -34.18355315, 2.261170958),
    (3, 1000, -6.0, -3.0,
     -10.10143545, 0.9943298867, 0.9991330723, -0.005654342887, -0.0007155422297, -0.0008488260351),
    (0, 10000, -4.0, 2.0,
     -0.9688364823, -0.9526829488, -0.8265460516, -0.9209274835, -0.8128621766, -0.6942479706),
    (1000, 1000, 5.0, 11.5,
     -6.681483765, 6.658986964, -0.033637291, -6.614194237, 0.03363577528, 0.03318585871),
    (7, 10, 1.0, -2.5,
     -4.918465719, -0.4477272915, 0.9519547977, -0.4005407745, 0.01350153374, -0.04434151211),
    (1, 2, 10.0, 11.0,
     -9.306960319, -0.9999092043, 1.670142185e-05, -9.079161547e-05, 0, -1.670114291e-05),
]  # fmt: skip
BETAS_TO_THE_DIGIT = [
    (0.699999988079071, 0.8472978472709656, 13.815510749816895,
     6.769140382, -0.2091666766, 0.5000003133, -210000.2477, -0.009166361908, -3.13692061e-07),
    (0.25, -1.0, 11.5,
     -87.23076574, -1913.705126, -92.42253506, -20293.35794, -1913.936189, -92.92254196),
    (1.0000000031710769e-30, -13.0, -2.9000000953674316,
     53.17753959, 0.999986899, 0.99999143, -1.310095152e-05, -8.569937647e-06, -8.549912107e-06),
    (0.5, 13.0, 11.0,
     -41500.65358, -2.539325231, -41498.91785, 1.514221528, -1.649566798, -41499.80761),
    (0.9999999403953552, 0.0, 2.0,
     -40.34902366, 30.7302203, -55.8052031, -2.119505167, 30.7302203, -56.37169336),
]  # fmt: skip


def test_beta_binomial_to_the_digit():
    y, n, eta, log_phi, *true = np.transpose(COUNTS_TO_THE_DIGIT)
    data, parameters = lik.binomial_data(y, n), floats(eta, log_phi)
    assert error(with_derivatives(counted, data, *parameters), true[:3]) < 3e-6
    assert error(second_derivatives(counted, data, *parameters), true[3:]) < 1e-4


def test_beta_to_the_digit():
    y, eta, log_phi, *true = np.transpose(BETAS_TO_THE_DIGIT)
    data, parameters = lik.beta_data(y), floats(eta, log_phi)
    assert error(with_derivatives(lik.beta, data, *parameters), true[:3]) < 3e-6
    assert error(second_derivatives(lik.beta, data, *parameters), true[3:]) < 1e-4


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
    found = with_derivatives(lik.beta, lik.beta_data(y), eta, log_phi)
    true = beta_in_float64(y, eta, log_phi)
    assert error(found[0], true[0]) < 1e-5
    assert error(found[1], true[1]) < 2e-6
    assert error(found[2], true[2]) < 1e-5


def test_beta_accuracy_check_rejects_the_textbook_formula():
    """Negative control: the same check, the same cells, the formula as it stands in books."""
    y, eta, log_phi = hard_cells()
    y = np.maximum(y, np.float32(1e-30))

    def textbook(y, eta, log_phi):
        lgamma, phi = jax.scipy.special.gammaln, jnp.exp(log_phi)
        alpha, beta = phi * jax.nn.sigmoid(eta), phi * jax.nn.sigmoid(-eta)
        powers = (alpha - 1) * jnp.log(y) + (beta - 1) * jnp.log1p(-y)
        return lgamma(phi) - lgamma(alpha) - lgamma(beta) + powers

    assert error(evaluate(textbook, y, eta, log_phi), beta_in_float64(y, eta, log_phi)[0]) > 1e-3


def test_the_low_part_of_the_logit_matters():
    """Negative control: with the logit of y in one float32 the derivatives at large precisions are off."""
    y, eta, log_phi = hard_cells()
    data = lik.beta_data(y)
    rough = data._replace(logit_low=np.zeros_like(data.logit_low))
    true = beta_in_float64(y, eta, log_phi)[1]
    assert error(with_derivatives(lik.beta, rough, eta, log_phi)[1], true) > 1e-5


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
    found = with_derivatives(counted, lik.binomial_data(y, n), eta, log_phi)
    assert max(error(*pair) for pair in zip(found, (density, in_eta, in_log_phi), strict=True)) < 1e-5


def test_binomial_is_accurate_for_many_trials():
    rng = np.random.default_rng(2)
    p = special.expit(rng.normal(0, 2, 2000))
    n = np.floor(np.exp(rng.uniform(0, np.log(1e4), p.size)))
    y = rng.binomial(n.astype(int), p)
    eta = special.logit(p).astype(np.float32)
    found = with_derivatives(drawn, lik.binomial_data(y, n), eta)
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
        y, share = (
            rng.binomial(n, mean),
            np.float64(np.clip(rng.beta(alpha, beta), 1e-6, 1 - 1e-6).astype(dtype)),
        )
        parameters, counts = [p.astype(dtype) for p in (eta, log_phi)], lik.binomial_data(y, n)
        shares = lik.beta_data(share)
        pairs = [
            (evaluate(lik.bernoulli, right, parameters[0]), stats.bernoulli.logpmf(right, mean)),
            (evaluate(drawn, counts, parameters[0]), stats.binom.logpmf(y, n, mean)),
            (evaluate(counted, counts, *parameters), stats.betabinom.logpmf(y, n, alpha, beta)),
            (evaluate(lik.beta, shares, *parameters), stats.beta.logpdf(share, alpha, beta)),
        ]
        for found, true in pairs:
            assert found.dtype == dtype
            assert error(found, true) < tolerance


COUNTS, SHARES = ([0, 3, 10], [10, 10, 10]), [0.0, 0.4, 1.0]
DENSITIES = {
    "bernoulli": (lik.bernoulli, np.array, [0.0, 1.0, 1.0], 1),
    "binomial": (drawn, lambda y: lik.binomial_data(*y), COUNTS, 1),
    "beta_binomial": (counted, lambda y: lik.binomial_data(*y), COUNTS, 2),
    "beta": (lik.beta, lik.beta_data, [0.02, 0.5, 0.9], 2),
    "ordered_beta": (lik.ordered_beta, lik.beta_data, SHARES, 4),
    "zero_one_beta": (lik.zero_one_beta, lik.beta_data, SHARES, 4),
}
# The middle cell starts at eta = 0, where |eta| has its kink and the densities have none.
PARAMETERS = np.array([[-0.7, 0.0, 1.9], [-1.0, 0.8, 4.0], [-1.5, -1.5, -0.5], [2.0, 1.0, 1.0]])


@pytest.mark.parametrize("name", DENSITIES)
def test_derivatives_are_derivatives(name):
    """First and second derivatives against differences in float64, and float32 against float64."""
    density, prepare, y, count = DENSITIES[name]
    step, at = 1e-4, PARAMETERS[:count]
    with jax.enable_x64(True):
        data = prepare(y)
        first = with_derivatives(density, data, *at)
        bent = curvature(density, data, *at)
        for i in range(count):
            move = step * np.eye(count)[i][:, None]
            up, down = (with_derivatives(density, data, *(at + m)) for m in (move, -move))
            assert error(first[1 + i], (up[0] - down[0]) / (2 * step)) < 1e-7
            if i == 0:
                assert error(bent, (up[1] - down[1]) / (2 * step)) < 1e-7
    single, data = floats(*at), prepare(y)
    assert error(with_derivatives(density, data, *single), first) < 3e-6
    assert error(curvature(density, data, *single), bent) < 1e-5


@pytest.mark.parametrize("name", ["beta", "beta_binomial"])
def test_third_derivatives_are_there(name):
    """A Laplace-integrated likelihood needs the slope of the curvature."""
    density, prepare, y, _ = DENSITIES[name]
    step = 1e-4
    with jax.enable_x64(True):
        data, (eta, log_phi) = prepare(y), PARAMETERS[:2]
        slope = third_derivative(density, data, eta, log_phi)
        ends = [curvature(density, data, eta + sign * step, log_phi) for sign in (1, -1)]
        assert error(slope, np.subtract(*ends) / (2 * step)) < 1e-5


@pytest.mark.parametrize("log_phi", [-2.0, 1.0, 8.0])
def test_probabilities_sum_to_one(log_phi):
    data = lik.binomial_data(np.arange(31), 30)
    for eta in (-4.0, 0.3, 6.0):
        for density in (evaluate(drawn, data, eta), evaluate(counted, data, eta, log_phi)):
            assert np.exp(density).sum() == pytest.approx(1, abs=2e-5)


@pytest.mark.parametrize(
    ("density", "others"),
    [(lik.beta, ()), (lik.ordered_beta, (-1.0, 1.2)), (lik.zero_one_beta, (-1.0, 0.6))],
)
def test_densities_integrate_to_one(density, others):
    logit, weight = np.polynomial.legendre.leggauss(400)
    y = special.expit(30 * logit)
    with jax.enable_x64(True):
        data = lik.beta_data(np.concatenate([y, [0.0, 1.0]]))
        height = np.exp(evaluate(density, data, 0.4, 1.5, *others))
    whole = np.sum(30 * weight * y * (1 - y) * height[:-2]) + (height[-2:].sum() if others else 0)
    assert whole == pytest.approx(1, abs=1e-9)


def test_identities():
    y, eta = floats([0.125, 0.5, 0.75], [-2.0, 0.3, 5.0])
    two = np.float32(2)
    same = evaluate(lik.beta, lik.beta_data(1 - y), -eta, two)
    assert error(evaluate(lik.beta, lik.beta_data(y), eta, two), same) < 1e-6
    data, mirrored = lik.binomial_data([0, 4, 9], 9), lik.binomial_data([9, 5, 0], 9)
    assert error(evaluate(counted, data, eta, two), evaluate(counted, mirrored, -eta, two)) < 1e-6
    # One trial has no room for overdispersion.
    once, right = lik.binomial_data([0, 1, 1], 1), evaluate(lik.bernoulli, np.array([0, 1, 1]), eta)
    assert error(evaluate(counted, once, eta, two), right) < 1e-6
    assert error(evaluate(drawn, once, eta), right) < 1e-6


def test_without_overdispersion_the_binomial_is_left():
    n, eta = np.array([5, 200, 10_000]), floats([-2.0, 0.3, 5.0])[0]
    data = lik.binomial_data(n // 3, n)
    found = with_derivatives(counted, data, eta, np.full_like(eta, 30))
    assert error(found[:2], with_derivatives(drawn, data, eta)) < 3e-6
    assert error(found[2], 0) < 1e-3


def test_the_score_has_mean_zero():
    """E d log p / d parameter = 0 under the density itself: the derivatives checked without a peer."""
    data = lik.binomial_data(np.arange(13), 12)
    value, *slopes = with_derivatives(counted, data, *floats(np.full(13, 0.8), np.full(13, 1.1)))
    assert np.abs(np.exp(value) @ np.transpose(slopes)).max() < 1e-5


# Both ends


@pytest.mark.parametrize("eta", [-1e4, -200.0, -61.0, -29.0, 29.0, 61.0, 200.0, 1e4])
def test_extreme_logits_are_finite_and_right(eta):
    expected, surprise = float(eta > 0), float(eta < 0)
    logits, ones = floats(np.full(3, eta), np.zeros(3))
    for density, data, scale in (
        (lik.bernoulli, np.array([expected, surprise, surprise]), 1),
        (drawn, lik.binomial_data([5 * expected, 5 * surprise, 5 * surprise], 5), 5),
    ):
        value, slope = with_derivatives(density, data, logits)
        assert error(value, [0, -scale * abs(eta), -scale * abs(eta)]) < 1e-6
        assert error(slope, [0, -scale * np.sign(eta), -scale * np.sign(eta)]) < 1e-6
    data = lik.binomial_data([5 * expected, 5 * surprise, 2], 5)
    value, in_eta, in_log_phi = with_derivatives(counted, data, logits, ones)
    # With phi = 1 and alpha near 0, p = alpha / (successes of the unlikely side).
    assert error(value, [0, *(-abs(eta) - np.log([5, 2 if eta < 0 else 3]))]) < 1e-6
    assert error(in_eta, [0, -np.sign(eta), -np.sign(eta)]) < 1e-6
    assert np.isfinite(in_log_phi).all()
    assert np.isfinite(second_derivatives(counted, data, logits, ones)).all()


@pytest.mark.parametrize("log_phi", [-10.0, -3.0, 2.0, 11.5])
def test_extreme_cells_are_finite(log_phi):
    eta = floats([-1e4, -100, -31, -20, 0, 20, 31, 100, 1e4])[0]
    counts = lik.binomial_data([0, 0, 3, 10_000, 1], [0, 10_000, 10_000, 10_000, 1])
    shares = lik.beta_data(np.float32([1e-30, 1e-6, 0.5, 1 - 1e-6, 1 - 2**-24]))
    grid = floats(np.repeat(eta, 5), np.full(45, log_phi))
    counts, shares = (jax.tree.map(lambda field: np.tile(field, 9), data) for data in (counts, shares))
    for density, data in ((counted, counts), (lik.beta, shares)):
        assert np.isfinite(with_derivatives(density, data, *grid)).all()
        assert np.isfinite(second_derivatives(density, data, *grid)).all()


def test_no_successes_and_no_failures():
    """y = 0 and y = n: finite, and the slope of a Bernoulli seen n times."""
    data, (eta, log_phi) = lik.binomial_data([0, 50], 50), floats([0, 0], [20, 20])
    for value, slope in (
        with_derivatives(drawn, data, eta),
        with_derivatives(counted, data, eta, log_phi)[:2],
    ):
        assert error(value, [-50 * np.log(2)] * 2) < 1e-5
        assert error(slope, [-25, 25]) < 1e-5


def test_curvature_at_zero_by_hand():
    """Where every fit starts: -1/4, and -psi1(1)/2 for a uniform answer."""
    zero = floats([0.0])[0]
    assert curvature(lik.bernoulli, np.ones(1), zero) == -0.25
    true = -special.polygamma(1, 1) / 2
    assert error(curvature(lik.beta, lik.beta_data([0.5]), zero, np.float32(np.log(2))), true) < 1e-6


# Answers that are no answers


def ordered(data, eta, log_phi):
    return lik.ordered_beta(data, eta, log_phi, -2.0, 2.0)


def bernoulli(data, eta, _):
    return lik.bernoulli(data, eta)


def binomial(data, eta, _):
    return lik.binomial(data, None, eta)


@partial(jax.jit, static_argnums=0)
def up_to_second_order(density, data, weight, eta, log_phi):
    """Sum of the cells whose weight is not 0, its gradient, and its Hessian times (1, 1)."""

    def total(eta, log_phi):
        return jnp.where(weight > 0, density(data, eta, log_phi), 0).sum()

    at = (eta, log_phi)
    return total(*at), *jax.jvp(jax.grad(total, (0, 1)), at, tuple(map(jnp.ones_like, at)))


def masked_and_dropped(density, data, kept):
    """The same sum with all cells but the first `kept` masked, and with good answers in their place."""
    weight = (np.arange(5) < kept).astype(np.float32)
    clean = jax.tree.map(lambda field: np.where(weight > 0, field, field[0]), data)
    at = floats(0.1, LOG_10)
    return [np.hstack(jax.tree.leaves(up_to_second_order(density, d, weight, *at))) for d in (data, clean)]


@pytest.mark.parametrize("filler", [0.5, -1.0, 0.0, 1.0, np.nan])
def test_beta_06_masked_cells_do_not_poison(filler):
    """BETA-06: value, gradient and curvature as if the masked cells were not there, whatever fills them."""
    data = lik.beta_data([0.2, 0.3, 0.25, filler, filler])
    for density in (lik.beta, ordered):
        assert error(*masked_and_dropped(density, data, 3)) < 1e-6


def test_masked_counts_do_not_poison():
    data = lik.binomial_data([1, -1, 5, np.nan, 1], [4, 4, 4, 4, np.nan])
    right = np.array([1.0, -3.0, 2.0, np.nan, np.inf], dtype=np.float32)
    for density, answers in ((binomial, data), (counted, data), (bernoulli, right)):
        assert np.isnan(evaluate(density, answers, *floats(0.3, 1.0))[1:]).all()
        assert error(*masked_and_dropped(density, answers, 1)) < 1e-6


def test_answers_outside_the_range_have_no_density():
    outside = lik.beta_data([-0.1, 1.1, np.nan, 0.0, 1.0])
    assert np.isnan(evaluate(lik.beta, outside, *floats(0, 1))).all()
    assert (np.isnan(evaluate(ordered, outside, *floats(0, 1))) == [True, True, True, False, False]).all()
    assert np.isnan(evaluate(drawn, lik.binomial_data([-1, 4], 3), *floats(0))).all()


def test_counts_without_trials_are_refused():
    with pytest.raises(InputError, match="n: got None"):
        lik.binomial(3, None, 0.0)


def test_an_answer_just_inside_is_not_the_boundary():
    """1 - 1e-12 rounds to 1 in float32; it is no exact 1 for the densities that know exact 1s."""
    data = lik.beta_data(np.array([1 - 1e-12, 1.0, 1e-50, 0.0]))
    assert (np.isfinite(evaluate(lik.beta, data, *floats(0, 1))) == [True, False, True, False]).all()
    inside = evaluate(ordered, data, *floats(0, 1))
    assert np.abs(inside[[0, 2]] - inside[[1, 3]]).min() > 0.1


# Shapes, tracing, prepared data


def test_precision_by_fit_by_item_and_by_cell_agree():
    y, eta, _ = (array.reshape(60, 20) for array in hard_cells(1200, seed=4))
    data, log_phi = lik.beta_data(y), np.linspace(-2, 11, 20, dtype=np.float32)
    by_item = evaluate(lik.beta, data, eta, log_phi)
    assert by_item.shape == (60, 20)
    assert error(by_item, evaluate(lik.beta, data, eta, np.tile(log_phi, (60, 1)))) < 5e-6
    for j in (0, 19):
        column = jax.tree.map(lambda field, j=j: field[:, j], data)
        assert error(by_item[:, j], evaluate(lik.beta, column, eta[:, j], log_phi[j])) < 5e-6
    assert evaluate(lik.beta, data, eta[0], log_phi[0]).shape == (60, 20)


def test_transformations_agree():
    y, eta, log_phi = hard_cells(64, seed=5)
    data = lik.beta_data(y)
    direct = lik.beta(data, eta, log_phi)
    assert error(evaluate(lik.beta, data, eta, log_phi), direct) < 2e-6
    assert error(jax.jit(jax.vmap(lik.beta))(data, eta, log_phi), direct) < 2e-6
    gathered = jax.tree.map(lambda field: field[::-1], data)
    assert error(evaluate(lik.beta, gathered, eta[::-1], log_phi[::-1]), np.asarray(direct)[::-1]) < 2e-6


def test_answers_prepared_while_tracing():
    """Plain answers inside jit are prepared in float32: good enough up to precisions of 1e4."""
    y = np.array([0.001, 0.3, 0.7, 0.9999], dtype=np.float32)
    eta, log_phi = floats(special.logit(np.float64(y)), np.log(1e4))
    assert error(evaluate(lik.beta, y, eta, log_phi), evaluate(lik.beta, lik.beta_data(y), eta, log_phi)) < 1e-5
    counts = np.array([0, 3, 500, 1000])
    traced = jax.jit(lambda y: lik.beta_binomial(y, 1000, eta, 3.0))(counts)
    assert error(traced, evaluate(counted, lik.binomial_data(counts, 1000), eta, np.float32(3))) < 1e-5


def test_plain_answers_are_prepared_on_the_host():
    y, eta = np.array([0.3, 0.6]), floats([0.2, 0.5])[0]
    assert error(lik.beta(y, eta, 9.0), evaluate(lik.beta, lik.beta_data(y), eta, np.float32(9))) < 1e-6


def test_double_precision_is_double():
    with jax.enable_x64(True):
        data = lik.beta_data(np.array([0.3, 0.6]))
        assert {np.asarray(field).dtype for field in data} == {np.dtype(np.float64)}
        found = with_derivatives(lik.beta, data, np.array([0.2, 0.5]), np.log([3e4, 0.1]))
    assert error(found, beta_in_float64([0.3, 0.6], [0.2, 0.5], np.log([3e4, 0.1]))) < 1e-11


def test_mean_of_the_ordered_beta():
    """BETA-04: the mean is not sigmoid(eta)."""
    logit, weight = np.polynomial.legendre.leggauss(400)
    y = special.expit(30 * logit)
    with jax.enable_x64(True):
        data = lik.beta_data(np.append(y, 1.0))
        height = np.exp(evaluate(lik.ordered_beta, data, 0.4, LOG_10, -2.0, 2.5))
    mean = np.sum(30 * weight * y**2 * (1 - y) * height[:-1]) + height[-1]
    assert mean == pytest.approx(0.592675, abs=1e-6)
