"""Covariances in blocks: the same numbers as whole ones, where every distinct coordinate is an inducing point."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from bayes_irsl.models.trajectory import hyperparameter_priors
from scipy import stats

import bayes_irsl as bi
from bayes_irsl import block_layout, kernels
from bayes_irsl import blocks as algebra
from bayes_irsl.covariates import layout
from bayes_irsl.errors import InputError
from bayes_irsl.forecasts.places import places
from bayes_irsl.inference import block_draws, dense

CASES = [(pool, d, cols) for pool in (None, "family") for d in (1, 3) for cols in ("auto", "compute")]


@pytest.fixture(autouse=True)
def in_float64():
    with jax.enable_x64(True):
        yield


def subjects(n=25, seed=0):
    """Checkpoints of nine runs in three families, 25 of 36: runs of unequal length."""
    rows = [
        (f"f{g}", f"f{g}-{s:.0e}", s, s * t, 0.02 * t)
        for g in range(3)
        for s in (1e7, 1e8, 1e9)
        for t in (5, 20, 80, 100)
    ]
    table = pd.DataFrame(rows, columns=["family", "run", "params", "tokens", "compute_sd"])
    table["compute"] = 6 * table["params"] * table["tokens"]
    table["compute_sd"] /= 100
    table = table.iloc[np.sort(np.random.default_rng(seed).permutation(len(table))[:n])]
    return table.set_index(pd.Index([f"s{i}" for i in range(n)], name="subject"))


def hypers(points, seed=1):
    rng = np.random.default_rng(seed)

    def value(prior, size):
        shape = () if size is None else (size,)
        if not isinstance(prior, bi.Prior):
            return np.full(shape, prior)
        centre = np.exp(prior.centre) if prior.positive else prior.centre
        return centre * np.exp(0.3 * rng.standard_normal(shape)) + (0 if prior.positive else rng.normal(size=shape))

    h = {name: value(prior, size) for name, prior, size in hyperparameter_priors(points, bi.TrajectoryPriors())}
    d = points.n_dimensions
    if d > 1:
        square = rng.standard_normal((d, d + 2))
        square = square @ square.T
        scale = np.sqrt(np.diag(square))
        h["correlation"] = square / np.outer(scale, scale)
    return {name: jnp.asarray(v) for name, v in h.items()}


class Both:
    """One problem in both forms: estimates (S, D) with full errors (S, D, D)."""

    def __init__(self, pool, d, covariates, **changes):
        self.place = layout(bi.AbilityTrajectory(pool=pool, covariates=covariates, **changes), subjects())
        self.d, self.s = d, len(self.place.used)
        self.b = block_layout.blocks(self.place, d, group_inducing=block_layout.INDUCING)
        points, self.subject = self.place.points(d)
        self.points = jax.tree.map(jnp.asarray, points)
        self.h = hypers(self.points)
        rng = np.random.default_rng(2)
        square = rng.standard_normal((self.s, d, d + 2))
        self.error = 0.05 * square @ square.swapaxes(1, 2)
        self.y = rng.normal(size=(self.s, d))
        self.prior = np.asarray(kernels.prior_covariance(self.h, self.points, self.subject))
        self.mean = np.asarray(kernels.trend(self.h, self.points))
        full, at = np.zeros((d, self.s, d, self.s)), np.arange(self.s)
        full[:, at, :, at] = self.error
        self.full_error = full.reshape(d * self.s, d * self.s)

    def runs(self, values):
        return tuple(r.take(values) for r in self.b.runs)

    def table(self, flat):
        """(D S,) dimension by dimension as (S, D)."""
        return np.asarray(flat).reshape(self.d, self.s).T


@pytest.mark.parametrize(("pool", "d", "covariates"), CASES)
def test_density_is_that_of_the_whole_normal(pool, d, covariates):
    case = Both(pool, d, covariates)
    expected = stats.multivariate_normal(case.mean, case.prior + case.full_error).logpdf(case.y.T.ravel())
    found = algebra.log_density(case.h, case.b, case.runs(case.error), None, case.runs(case.y))
    assert float(found) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(("pool", "d", "covariates"), CASES)
def test_the_inverse_and_its_diagonal_are_right(pool, d, covariates):
    case = Both(pool, d, covariates)
    inverse = algebra.inverse(case.h, case.b, case.runs(case.error))
    expected = np.linalg.inv(case.prior + case.full_error)
    values = tuple(algebra.column(v) for v in case.runs(case.y))
    solved = tuple(
        v.reshape(*r.rows.shape, d) for v, r in zip(algebra.solve(inverse, case.b, values), case.b.runs, strict=True)
    )
    np.testing.assert_allclose(
        block_layout.by_subject(case.b, solved, case.s), case.table(expected @ case.y.T.ravel()), rtol=1e-4, atol=1e-5
    )
    diagonal = tuple(
        v.reshape(*r.rows.shape, d) for v, r in zip(algebra.inverse_diagonal(inverse, case.b), case.b.runs, strict=True)
    )
    np.testing.assert_allclose(
        block_layout.by_subject(case.b, diagonal, case.s), case.table(expected.diagonal()), rtol=1e-5
    )


def test_without_a_run_column_every_subject_is_a_block():
    case = Both("family", 2, "auto", residual="iid")
    assert [r.rows.shape[1] for r in case.b.runs] == [1]
    expected = stats.multivariate_normal(case.mean, case.prior + case.full_error).logpdf(case.y.T.ravel())
    found = algebra.log_density(case.h, case.b, case.runs(case.error), None, case.runs(case.y))
    assert float(found) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("d", [1, 2])
def test_draws_given_estimates_have_the_conditional_moments(d):
    case, n = Both("family", d, "auto"), 8000
    rng = np.random.default_rng(3)
    lower = np.linalg.cholesky(case.error)
    first = case.y + np.einsum("sde,nse->nsd", lower, rng.standard_normal((n, case.s, d)))

    def one(first, key):
        found = block_draws.conditional_draw(case.h, case.b, case.runs(case.error), None, case.runs(first), key)
        return block_layout.by_subject(case.b, found, case.s)

    found = np.asarray(jax.jit(jax.vmap(one))(jnp.asarray(first), jax.random.split(jax.random.key(0), n)))
    gain = case.prior @ np.linalg.inv(case.prior + case.full_error)
    mean = case.mean + gain @ (case.y.T.ravel() - case.mean)
    covariance = case.prior - gain @ case.prior
    flat = found.swapaxes(1, 2).reshape(n, -1)
    sd = np.sqrt(covariance.diagonal())
    np.testing.assert_allclose((flat.mean(0) - mean) / sd, 0, atol=5 / np.sqrt(n))
    np.testing.assert_allclose(np.cov(flat.T) / np.outer(sd, sd), covariance / np.outer(sd, sd), atol=0.08)


@pytest.mark.parametrize(("pool", "d"), [(None, 1), ("family", 1), ("family", 3)])
def test_predictions_are_those_of_whole_covariances(pool, d):
    """Mean, parts of the variance and the draw itself, for a known and a new run, group and size."""
    case = Both(pool, d, "auto")
    where = places(
        case.place, params=[1e9, 1e10], tokens=[3e11, 1e11], run=[case.place.runs[-1], None],
        pool=None if pool is None else ["f2", None],
    )  # fmt: skip
    new = jax.tree.map(jnp.asarray, where.points(case.place, d))
    ability = case.y.T.ravel()
    key, ones = jax.random.key(4), jnp.ones(case.d * case.s)
    fitted = (case.points, jnp.asarray(case.subject))
    whole = dense.predict(case.h, fitted, ones, jnp.asarray(ability), new, jnp.ones(new[1].size), key)
    found = block_draws.predict(case.h, case.b, case.runs(case.y), new, jnp.ones(new[1].size), key)
    for a, b in zip(whole[:2], found[:2], strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-3, atol=1e-4)
    for name, value in whole[2].items():
        np.testing.assert_allclose(found[2][name], value, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("d", [1, 3])
def test_errors_that_groups_share_are_part_of_the_density(d):
    case = Both("family", d, "auto")
    shared = np.linspace(0.1, 0.3, d)
    same = case.place.group[:, None] == case.place.group
    full = case.prior + case.full_error + np.kron(np.diag(shared), same)
    expected = stats.multivariate_normal(case.mean, full).logpdf(case.y.T.ravel())
    found = algebra.log_density(case.h, case.b, case.runs(case.error), jnp.asarray(shared), case.runs(case.y))
    assert float(found) == pytest.approx(expected, abs=1e-4)


def test_draws_are_free_of_errors_that_groups_share():
    case, n = Both("family", 2, "auto"), 8000
    shared, rng = np.array([0.2, 0.05]), np.random.default_rng(5)
    error = case.full_error + np.kron(np.diag(shared), case.place.group[:, None] == case.place.group)
    lower = np.linalg.cholesky(case.error)
    first = case.y + np.einsum("sde,nse->nsd", lower, rng.standard_normal((n, case.s, 2)))

    def one(first, key):
        found = block_draws.conditional_draw(
            case.h, case.b, case.runs(case.error), jnp.asarray(shared), case.runs(first), key
        )
        return block_layout.by_subject(case.b, found, case.s)

    found = np.asarray(jax.jit(jax.vmap(one))(jnp.asarray(first), jax.random.split(jax.random.key(0), n)))
    gain = case.prior @ np.linalg.inv(case.prior + error)
    covariance, flat = case.prior - gain @ case.prior, found.swapaxes(1, 2).reshape(n, -1)
    sd = np.sqrt(covariance.diagonal())
    mean = case.mean + gain @ (case.y.T.ravel() - case.mean)
    np.testing.assert_allclose((flat.mean(0) - mean) / sd, 0, atol=5 / np.sqrt(n))
    np.testing.assert_allclose(np.cov(flat.T) / np.outer(sd, sd), covariance / np.outer(sd, sd), atol=0.08)


def test_densities_beyond_double_precision_are_not_numbers():
    case = Both(None, 1, "auto")
    h = case.h | {"bend": jnp.array([9.0, 9.0]), "sd_product": jnp.asarray(1e6)}
    assert np.isnan(algebra.log_density(h, case.b, case.runs(case.error), None, case.runs(case.y)))


def test_few_inducing_points_keep_every_variance():
    """What they do not carry is each place's own: the marginal variances stay right."""
    case = Both(None, 1, "auto")
    few = block_layout.blocks(case.place, 1, inducing=3)
    z, lacking = algebra.loadings(case.h, few, few.places)
    z_all, lacking_all = algebra.loadings(case.h, case.b, case.b.places)
    np.testing.assert_allclose((z**2).sum(1) + lacking, (z_all**2).sum(1) + lacking_all, rtol=1e-6)
    assert float(lacking.max()) > 0.01 > float(lacking_all.max())


def test_points_are_spread_out():
    grid = np.stack(np.meshgrid(np.linspace(0, 1, 5), np.linspace(0, 1, 5)), -1).reshape(-1, 2)
    corners = {tuple(v) for v in block_layout.spread_out(grid, 4)}
    assert corners == {(0.0, 0.0), (0.0, 1.0), (1.0, 0.0), (1.0, 1.0)}
    assert block_layout.spread_out(grid, 99) is grid


def test_runs_across_groups_and_endless_runs_are_refused():
    place = Both("family", 1, "auto").place
    with pytest.raises(InputError, match="a run has subjects in several groups"):
        block_layout.blocks(replace(place, group=np.arange(len(place.used), dtype=np.int32) % 2), 1)
    many = replace(
        place,
        used=np.arange(600), coordinates=np.linspace(-1, 1, 600)[:, None], compute_sd=np.zeros(600),
        run=np.zeros(600, np.int32), group=np.zeros(600, np.int32), grouped=False,
    )  # fmt: skip
    with pytest.raises(InputError, match=r"run 'f0-1e\+07' has 600 checkpoints: expected at most 512"):
        block_layout.blocks(many, 1)
