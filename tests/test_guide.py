"""The map of joint fits: its determinant, and that it stands on the conditional of abilities given the trajectory."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from bayes_irsl.models import trajectory as models
from jax.flatten_util import ravel_pytree
from numpyro.infer.util import constrain_fn

import bayes_irsl as bi
from bayes_irsl import kernels
from bayes_irsl.covariates import layout
from bayes_irsl.inference.guide import Names, forward, guide, names_of

SUBJECTS, DIMENSIONS, ITEMS = 6, 2, 5
# Sd of the logarithm of the abilities' scale, by dimension.
STRETCH = np.array([0.2, 0.01])


@pytest.fixture(scope="module", autouse=True)
def double():
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="module")
def made():
    """(draws by name, guide, everything else that ``forward`` takes), with made-up draws of a made-up approximation."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"params": np.repeat([1e8, 1e9, 1e10], 2), "tokens": np.tile([1e10, 1e11], 3)})
    table["run"] = [f"run {p:.0e}" for p in table["params"]]
    table.index = [f"m{i}" for i in range(SUBJECTS)]
    spec = bi.AbilityTrajectory(items=bi.ItemResponse("beta-binomial"))
    points, subject = layout(spec, table).points(DIMENSIONS)
    points = jax.tree.map(jnp.asarray, points)
    wanted = {name: size for name, _, size in models.hyperparameter_priors(points, spec.priors) if name != "level"}
    n = 300
    free = {name: 0.2 * rng.standard_normal((n, *([size] if size else []))) - 0.5 for name, size in wanted.items()}
    free["correlation_tril"] = 0.2 * rng.standard_normal((n, 1))
    free["ability_free"] = rng.standard_normal((n, DIMENSIONS * (SUBJECTS - 1)))
    free["intercept_scaled"] = rng.standard_normal((n, ITEMS)) + free["ability_free"][:, :1]
    free["log_a_deviation"] = 0.3 * free["intercept_scaled"][:, 1:] + rng.standard_normal((n, ITEMS - 1))
    free["log_phi"] = rng.standard_normal(n)
    names = names_of(free, points, spec.priors)
    mean = rng.standard_normal((SUBJECTS, DIMENSIONS))
    error = np.array([[0.04, 0.01], [0.01, 0.09]]) * rng.uniform(0.5, 2, (SUBJECTS, 1, 1))
    size = np.exp(STRETCH * rng.standard_normal((n, DIMENSIONS)))
    g = guide(names, free, mean, error, size, np.array([0, 1, 1, 0, 0]))
    g = jax.tree.map(lambda v: jnp.asarray(v, float), g)
    return (
        free,
        g,
        (mean, error, size),
        partial(forward, g=g, names=names, points=points, subject=subject, priors=spec.priors),
    )


def normals(free, seed):
    rng = np.random.default_rng(seed)
    return {name: jnp.asarray(rng.standard_normal(v.shape[1:])) for name, v in free.items()}


def test_every_parameter_has_its_part(made):
    free, _, _, mapped = made
    names = mapped.keywords["names"]
    assert isinstance(names, Names)
    assert names.items == ("intercept_scaled", "log_a_deviation")
    assert names.rest == ("log_phi",)
    assert set(free) == {*names.trend, *names.items, *names.rest, "ability_free"}
    u = normals(free, 0)
    z, _ = mapped(u)
    assert {k: v.shape for k, v in z.items()} == {k: v.shape for k, v in u.items()}


def test_determinant_is_that_of_the_jacobian(made):
    """log |dz/du| by automatic differentiation, between two places (a constant is left out)."""
    free, _, _, mapped = made
    truth, said = [], []
    for seed in (1, 2):
        flat, back = ravel_pytree(normals(free, seed))
        jacobian = jax.jacfwd(lambda v, back=back: ravel_pytree(mapped(back(v))[0])[0])(flat)
        truth.append(np.linalg.slogdet(np.asarray(jacobian))[1])
        said.append(float(mapped(back(flat))[1]))
    assert abs(said[0] - said[1]) > 0.1
    np.testing.assert_allclose(said[0] - said[1], truth[0] - truth[1], rtol=1e-8)


def test_abilities_have_their_conditional_given_the_trend(made):
    """Mean m + K (K + E)^-1 (estimate - m) and covariance (K^-1 + E^-1)^-1, E with what a stretch of all adds."""
    free, _, (mean, error, size), mapped = made
    error, mean = error * size.mean(0)[:, None] * size.mean(0), mean * size.mean(0)
    where = mapped.keywords
    u = normals(free, 3)
    z, _ = mapped(u | {"ability_free": jnp.zeros(free["ability_free"].shape[1])})
    spread = jax.jacfwd(lambda v: mapped(u | {"ability_free": v})[0]["ability_free"])(u["ability_free"])
    program = partial(models.hyperparameters, where["points"], where["priors"], level=False)
    trend = {name: z[name] for name in where["names"].trend}
    h = constrain_fn(program, (), {}, trend, return_deterministic=True) | {"level": jnp.zeros(DIMENSIONS)}
    basis = models.zero_sum_basis(SUBJECTS, DIMENSIONS).astype(float)
    k = basis.T @ np.asarray(kernels.prior_covariance(h, where["points"], where["subject"])) @ basis
    m = basis.T @ np.asarray(kernels.trend(h, where["points"]))
    whole = np.zeros((DIMENSIONS, SUBJECTS, DIMENSIONS, SUBJECTS))
    for s in range(SUBJECTS):
        whole[:, s, :, s] = error[s]
    stretched = [np.r_[mean[:, 0], 0 * mean[:, 1]], np.r_[0 * mean[:, 0], mean[:, 1]]]
    more = np.einsum("di,de,ej->ij", stretched, np.cov(np.log(size).T), stretched)
    e = basis.T @ (whole.reshape(len(more), -1) + more) @ basis
    expected = m + k @ np.linalg.solve(k + e, basis.T @ mean.T.ravel() - m)
    np.testing.assert_allclose(z["ability_free"], expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(spread @ spread.T, np.linalg.inv(np.linalg.inv(k) + np.linalg.inv(e)), atol=2e-5)


def test_items_follow_the_abilities_of_their_own_dimension(made):
    free, g, _, _ = made
    slopes = np.asarray(g.slopes).reshape(ITEMS, 2, -1)
    # intercepts were made as the first ability coordinate, which is of the first dimension, plus noise
    np.testing.assert_allclose(slopes[[0, 3, 4], 0, 0], 1.0, atol=0.25)
    assert (slopes[[1, 2], :, : SUBJECTS - 1] == 0).all()
    assert (slopes[[0, 3, 4], :, SUBJECTS - 1 : 2 * (SUBJECTS - 1)] == 0).all()
    own = np.asarray(g.spread[0] @ g.spread[0].T)
    left = (
        free["intercept_scaled"][:, 0] - free["ability_free"] @ slopes[0, 0, :10] - free["log_phi"] * slopes[0, 0, 10]
    )
    np.testing.assert_allclose(own[0, 0], left.var(), rtol=1e-5)
