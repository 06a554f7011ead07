"""Importance sampling of a few parameters: known posteriors come out, hard ones are owned up to."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from bayes_irsl.inference.importance import GOOD, _smoothed, importance_sample


@pytest.fixture(autouse=True)
def in_float64():
    with jax.enable_x64(True):
        yield


def sample(potential, start, draws=4000, data=None, seed=0):
    begin = jax.tree.map(lambda v: jnp.asarray(v, float)[None], start)
    return importance_sample(potential, begin, data, draws=draws, seed=seed)


def normal(z, data):
    mean, precision = data
    away = z["x"] - mean
    return 0.5 * away @ precision @ away


def test_a_normal_comes_back():
    rng = np.random.default_rng(0)
    square = rng.standard_normal((6, 8))
    covariance, mean = square @ square.T, rng.normal(size=6)
    found = sample(normal, {"x": np.zeros(6)}, data=(jnp.asarray(mean), jnp.asarray(np.linalg.inv(covariance))))
    sd = np.sqrt(covariance.diagonal())
    x = np.asarray(found.draws["x"])
    assert found.pareto_k < GOOD
    assert found.effective >= 400
    np.testing.assert_allclose((x.mean(0) - mean) / sd, 0, atol=5 / np.sqrt(found.effective))
    np.testing.assert_allclose(np.cov(x.T) / np.outer(sd, sd), covariance / np.outer(sd, sd), atol=0.25)


def log_gammas(z, data):
    return -(data * z["a"] - jnp.exp(z["a"])).sum() + 0.5 * (z["b"] ** 2).sum()


def test_skewed_posteriors_have_the_right_quantiles():
    """Logs of gammas, shapes 0.7 to 3: the left tail is long, as of a scale that data only bound from above."""
    shape = np.array([0.7, 1.0, 2.0, 3.0])
    found = sample(log_gammas, {"a": np.zeros(4), "b": np.zeros(3)}, data=jnp.asarray(shape))
    assert found.pareto_k < GOOD
    u = stats.gamma.cdf(np.exp(found.draws["a"]), shape)
    for p in (0.05, 0.5, 0.95):
        np.testing.assert_allclose((u < p).mean(0), p, atol=4.5 * np.sqrt(p * (1 - p) / found.effective))


def funnel(z, data):
    """Neal (2003): nine normals whose common scale is uncertain over many orders of magnitude."""
    v, x = z["v"], z["x"]
    return 0.5 * (v / 3) ** 2 + 0.5 * (x**2).sum() * jnp.exp(-v) + 4.5 * v


def test_what_cannot_be_sampled_is_owned_up_to():
    assert sample(funnel, {"v": 0.0, "x": np.zeros(9)}, draws=100).pareto_k > GOOD


def walled(z, data):
    return jnp.where(z["x"][0] > 0.5, jnp.nan, 0.5 * (z["x"] ** 2).sum())


def test_places_without_a_density_get_no_weight():
    found = sample(walled, {"x": np.zeros(2)})
    x = np.asarray(found.draws["x"])
    assert (x[:, 0] <= 0.5).all()
    expected = stats.truncnorm(-np.inf, 0.5).mean()
    assert x[:, 0].mean() == pytest.approx(expected, abs=5 / np.sqrt(found.effective))


def two_modes(z, data):
    x = z["x"][0]
    return -jnp.logaddexp(-0.5 * (x + 4) ** 2 / 0.25, 3.0 - 0.5 * (x - 4) ** 2 / 0.25)


def test_the_better_of_two_modes_is_taken():
    begin = {"x": jnp.array([[-4.5], [4.5]])}
    found = importance_sample(two_modes, begin, None, draws=500, seed=0)
    assert (np.asarray(found.draws["x"]) > 0).mean() > 0.9


def test_weights_grow_with_their_ratios():
    ratio = np.r_[np.random.default_rng(0).normal(size=200), -np.inf]
    weight, _ = _smoothed(ratio)
    assert weight.sum() == pytest.approx(1)
    assert (np.diff(weight[np.argsort(ratio)]) >= 0).all()
    assert weight[-1] < 1e-200


def test_the_same_seed_gives_the_same_draws():
    run = partial(sample, log_gammas, {"a": np.zeros(2), "b": np.zeros(1)}, draws=50, data=jnp.ones(2))
    np.testing.assert_array_equal(run().draws["a"], run().draws["a"])
    assert (run().draws["a"] != run(seed=1).draws["a"]).any()


def test_no_density_anywhere_is_owned_up_to():
    weight, k = _smoothed(np.full(50, -np.inf))
    assert k > GOOD
    assert weight.sum() == pytest.approx(1)
