"""Mean and covariance functions of trajectories: identities and values by hand."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayes_irsl import kernels
from bayes_irsl.kernels import Points


@pytest.fixture(autouse=True)
def in_float64():
    with jax.enable_x64(True):
        yield


def points(coordinates, run, group=None, dimension=None, along_run=True, grouped=False):
    x = np.asarray(coordinates, float)
    n = len(x)
    dimension = np.zeros(n, int) if dimension is None else np.asarray(dimension)
    return Points(
        coordinates=jnp.asarray(x),
        group=jnp.asarray(np.zeros(n, int) if group is None else group),
        run=jnp.asarray(run),
        dimension=jnp.asarray(dimension),
        compute_sd=jnp.zeros(n),
        n_dimensions=int(dimension.max()) + 1,
        grouped=grouped,
        along_run=along_run,
    )


H = {
    "level": jnp.array([0.5]), "slope": jnp.array([2.0]), "pull": jnp.array([1.2, 0.8]), "bend": jnp.array([0.3, 0.1]),
    "sd_drift": 0.4, "length_drift": 0.9, "sd_curve": 0.2, "length_curve": 1.1, "sd_product": 0.15, "sd_own": 0.05,
    "sd_run": 0.1, "sd_residual": 0.3, "length_residual": 0.5,
    "sd_group_level": 0.25, "sd_group_slope": 0.1, "fan_group": 0.0, "sd_group_walk": 0.2,
}  # fmt: skip


def test_bend_is_the_identity_at_rate_zero_and_a_power_law_otherwise():
    x = jnp.linspace(-2, 3, 11)
    np.testing.assert_allclose(kernels.bend(x, 0.0), x)
    np.testing.assert_allclose(kernels.bend(x, 1e-5), x, atol=1e-4)
    rate = 0.7
    exponent = rate / np.log(10)
    np.testing.assert_allclose(kernels.bend(x, rate), (1 - (10.0**x) ** -exponent) / rate, rtol=1e-9, atol=1e-12)


def test_bend_has_slope_one_at_the_reference_and_falls_by_its_rate():
    slope = jax.vmap(jax.grad(kernels.bend, 0), (0, None))(jnp.array([0.0, 1.0]), 0.4)
    np.testing.assert_allclose(slope, [1.0, np.exp(-0.4)], rtol=1e-9)


def test_bend_is_differentiable_in_a_rate_of_zero():
    found = jax.grad(kernels.bend, 1)(1.5, 0.0)
    np.testing.assert_allclose(found, -(1.5**2) / 2, rtol=1e-6)


def test_walks_and_curves_by_hand():
    x, y = jnp.array([0.0, 1.0]), jnp.array([2.0])
    np.testing.assert_allclose(kernels.brownian(x, y, -3.0), [[3.0], [4.0]])
    np.testing.assert_allclose(kernels.ornstein_uhlenbeck(x, y, 2.0), np.exp([[-1.0], [-0.5]]))
    np.testing.assert_allclose(kernels.squared_exponential(x, y, 2.0), np.exp([[-0.5], [-0.125]]))


def test_trend_by_hand():
    p = points([[0.0, 0.0], [1.0, -1.0]], [0, 1])
    pull = 1.2 * (1 - np.exp(-0.3)) / 0.3 + 0.8 * (1 - np.exp(0.1)) / 0.1
    np.testing.assert_allclose(kernels.trend(H, p), [0.5, 0.5 + 2 * pull])


def test_parts_by_hand_for_two_checkpoints_of_one_run():
    h = H | {"bend": jnp.zeros(2)}
    p = points([[0.0, 0.0], [0.0, 1.0]], [7, 7], grouped=True)
    found = kernels.parts(h, p, p)
    between = {
        "trend": 0.4**2 * 3 * np.exp(-0.5 / 0.9**2) + 0.2**2 * np.exp(-0.5 / 1.1**2),
        "group": 0.25**2 + 0.2**2 * 3 * 2.0,
        "run": 0.1**2 + 0.3**2 * np.exp(-1 / 0.5),
    }
    for name, value in between.items():
        np.testing.assert_allclose(found[name][0, 1], 4 * value, err_msg=name)
    np.testing.assert_allclose(kernels.covariance(h, p, p), sum(found.values()))


def test_other_runs_and_groups_share_the_trend_only():
    p = points([[0.0, 0.0], [0.3, 1.0]], [0, 1], group=[0, 1], grouped=True)
    found = kernels.parts(H, p, p)
    assert found["run"][0, 1] == found["group"][0, 1] == 0
    assert found["trend"][0, 1] > 0


@pytest.mark.parametrize("grouped", [False, True])
def test_covariance_of_many_places_is_positive_definite(grouped):
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (60, 2))
    run = rng.integers(0, 8, 60)
    p = points(np.r_[x, x], np.r_[run, run], np.r_[run % 3, run % 3], np.repeat([0, 1], 60), grouped=grouped)
    h = H | {"slope": jnp.array([2.0, 0.7]), "level": jnp.zeros(2), "correlation": jnp.array([[1, 0.6], [0.6, 1]])}
    found = kernels.prior_covariance(h, p, jnp.asarray(np.r_[np.arange(60), np.arange(60)]))
    np.testing.assert_allclose(found, found.T)
    assert np.linalg.eigvalsh(found).min() > 0


def test_dimensions_of_a_subject_are_correlated_as_stated():
    p = points([[0.0, 0.0]] * 2, [0, 0], dimension=[0, 1])
    h = H | {"slope": jnp.array([2.0, 0.5]), "level": jnp.zeros(2), "correlation": jnp.array([[1, 0.6], [0.6, 1]])}
    found = kernels.prior_covariance(h, p, jnp.array([0, 0]))
    np.testing.assert_allclose(found[0, 1] / np.sqrt(found[0, 0] * found[1, 1]), 0.6)
    np.testing.assert_allclose(found[0, 0] / found[1, 1], 16.0)


def test_uncertain_compute_is_worth_its_slope():
    p = points([[0.0]], [0])
    h = {k: v for k, v in H.items()} | {"pull": jnp.ones(1), "bend": jnp.zeros(1)}
    more = replace(p, compute_sd=jnp.array([0.2]))
    difference = kernels.prior_covariance(h, more, jnp.zeros(1)) - kernels.prior_covariance(h, p, jnp.zeros(1))
    np.testing.assert_allclose(difference, [[(2.0 * 0.2) ** 2]])


def test_padding_is_independent_of_everything():
    full = jnp.array([[2.0, 0.5, 0.1], [0.5, 1.0, 0.2], [0.1, 0.2, 3.0]])
    np.testing.assert_allclose(kernels.masked(full, jnp.array([1.0, 1.0, 0.0])), [[2, 0.5, 0], [0.5, 1, 0], [0, 0, 1]])


def test_groups_fan_out():
    """The spread of levels grows by exp(fan) a decade; slopes have a spread of their own."""
    h = H | {"fan_group": 0.7}
    x = jnp.array([[0.0, 0.0], [0.5, -0.2], [1.5, 0.3]])
    found = kernels.group_loadings(h, x)
    decades = x @ h["pull"]
    np.testing.assert_allclose(found, jnp.stack([0.25 * jnp.exp(0.7 * decades), 0.1 * decades], 1), rtol=1e-6)
    assert np.isfinite(kernels.group_loadings(h, 1e4 * x)).all()


def test_groups_walk_along_their_course():
    """Brownian motion in decades of pull from the origin, its steps fanned like the levels, by hand."""
    h = H | {"fan_group": 0.7, "bend": jnp.zeros(2)}
    x = jnp.array([[0.0, 0.0], [0.5, -0.2]])
    walk = kernels.group_covariance(h, x, x) - kernels.group_loadings(h, x) @ kernels.group_loadings(h, x).T
    decades = 0.5 * 1.2 - 0.2 * 0.8
    origin = -3 * (1.2 + 0.8)
    size = 0.2 * np.exp(0.7 * np.array([0, decades]))
    np.testing.assert_allclose(walk, np.outer(size, size) * (np.array([[0, 0], [0, decades]]) - origin), rtol=1e-6)
