"""Repeated sampling: quadrature against NUTS and against the truth, and what the fit refuses."""

import jax
import numpy as np
import pandas as pd
import pytest
from bayes_irsl.models.repeated_sampling import log_mass, log_normal_mass
from sampled_counts import counts
from scipy import stats
from scipy.special import expit

import bayes_irsl as bi
from bayes_irsl.errors import InputError
from bayes_irsl.inference.rates import counts_of, grid, log_likelihood
from bayes_irsl.tails import TAILS


@pytest.fixture(scope="module")
def fitted():
    responses, p, location, shape = counts()
    return bi.fit(bi.RepeatedSampling(), responses, seed=0), p, location, shape


def test_a_grid_sums_to_what_a_finer_one_does():
    """Marginal likelihood under a normal prior, from the grid and from one far finer and half as wide again."""
    tail, rng = TAILS["beta"], np.random.default_rng(0)
    known = counts_of(rng.binomial(30, rng.beta(0.4, 6, 60)), np.full(60, 30))
    prior = np.array([[-2.0, 1.5], [-0.7, 0.8]])

    def total(nodes, values):
        return np.logaddexp.reduce(values - 0.5 * (((nodes - prior[:, 0]) / prior[:, 1]) ** 2).sum(1))

    g = grid(tail, False, known)
    low, high = g.nodes.min(0), g.nodes.max(0)
    middle, half = (low + high) / 2, 0.75 * (high - low)
    axes = [np.linspace(m - h, m + h, 241) for m, h in zip(middle, half, strict=True)]
    fine = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 2)
    step = np.log([a[1] - a[0] for a in axes]).sum()
    coarse = total(g.nodes, g.log_likelihood.ravel()) + np.log(g.step).sum()
    assert coarse == pytest.approx(total(fine, log_likelihood(tail, known, fine)) + step, abs=2e-3)


def test_the_mass_of_a_cell_is_that_of_the_normal():
    """Narrow and wide cells, near and far: differences of the distribution function, and the density far out."""
    middle = np.array([0.0, 0.3, -4.0, 2.0, 30.0])
    side = np.array([0.01, 3.0, 1.0, 8.0, 2.0])
    with jax.enable_x64(True):
        found = np.asarray(log_normal_mass(middle, side, 0.5, 1.2))
    z = stats.norm(0.5, 1.2)
    low, high = middle - side / 2, middle + side / 2
    np.testing.assert_allclose(found[:4], np.log((z.cdf(high) - z.cdf(low))[:4]), rtol=1e-3)
    assert found[4] == pytest.approx(z.logsf(29.0), rel=0.1)  # so far out it is the density at the middle


def test_subjects_much_alike_do_not_depend_on_where_cells_lie():
    """A prior far narrower than a cell: shifting the grid by half a cell changes the marginal likelihood by little."""
    tail, rng = TAILS["beta"], np.random.default_rng(1)
    known = counts_of(rng.binomial(4, 0.1, 12), np.full(12, 4))
    g = grid(tail, False, known)
    h = {"mean_location": -2.0, "sd_location": 0.05, "mean_shape": -0.5, "tie": 0.2, "sd_shape": 0.02}
    exact = log_likelihood(tail, known, np.array([[-2.0, -0.5]]))[0]
    for shift in (0.0, 0.25, 0.5):
        axes = tuple(a + shift * side for a, side in zip(g.axes, g.step, strict=True))
        with jax.enable_x64(True):
            weight = np.asarray(log_mass(h, axes, g.step))
        moved = g._replace(axes=axes)
        found = np.logaddexp.reduce(log_likelihood(tail, known, moved.nodes) + weight.ravel())
        assert found == pytest.approx(exact, abs=0.06)


def test_a_subject_without_counts_has_a_grid_as_wide_as_the_cavity():
    g = grid(TAILS["beta"], False, counts_of(np.zeros(0), np.zeros(0)))
    assert np.ptp(g.nodes[:, 0]) > 30


def test_parameters_are_recovered(fitted):
    fit, _, location, shape = fitted
    for name, truth in (("location", location), ("shape", shape)):
        low, high = fit.tree.posterior[name].quantile([0.01, 0.99], ("chain", "draw")).to_numpy()[:, 0]
        assert ((low < truth) & (truth < high)).all(), name
    assert fit.diagnostics["pareto_k"] < 0.7
    assert set(fit.tree.children) == {"posterior", "sample_stats", "log_prior", "observed_data", "constant_data"}


@pytest.mark.slow
def test_the_share_that_is_never_solved_is_recovered():
    """Twelve data sets of four subjects, a quarter of 120 items out of reach: intervals of the four shares cover."""
    inside, middles = [], []
    for seed in range(12):
        responses, _, _, _ = counts(n_subjects=4, n_items=120, trials=200, never=0.25, seed=100 + seed)
        fit = bi.fit(bi.RepeatedSampling(never=True), responses, seed=seed, draws=400)
        share = expit(fit.tree.posterior["never"])
        low, middle, high = share.quantile([0.05, 0.5, 0.95], ("chain", "draw")).to_numpy()[:, 0]
        # What the data show is the share of these items, which scatters around a quarter by 0.04.
        inside += ((low <= 0.25) & (high >= 0.25)).tolist()
        middles += middle.tolist()
    assert 0.78 <= np.mean(inside) <= 1.0
    assert np.mean(middles) == pytest.approx(0.25, abs=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("tail", ["beta", "logit-normal"])
@pytest.mark.parametrize("never", [False, True])
def test_quadrature_agrees_with_nuts(tail, never):
    """Same program, same posterior: means within a fifth of a standard deviation, sds within a quarter."""
    responses, *_ = counts(n_subjects=4, n_items=30, trials=15, never=0.2 * never, seed=3)
    spec = bi.RepeatedSampling(tail=tail, never=never)
    ours = bi.fit(spec, responses, seed=0, draws=4000).tree.posterior
    nuts = bi.fit(spec, responses, method="nuts", seed=0, draws=1000, warmup=1000, target_accept=0.95).tree.posterior
    for name in ours:
        of = ("chain", "draw")
        sd = nuts[name].std(of)
        away = float((abs(ours[name].mean(of) - nuts[name].mean(of)) / sd).max())
        assert away < 0.2, (name, away)
        ratio = (ours[name].std(of) / sd).to_numpy()
        assert 0.75 < ratio.min() <= ratio.max() < 1.33, (name, ratio)


def test_unequal_and_adaptive_numbers_of_samples():
    """Unsolved questions sampled a hundred times more: the same truth, nothing to correct."""
    rng = np.random.default_rng(5)
    first, p, location, _ = counts(trials=10, seed=5)
    c = np.zeros(p.shape)
    n = np.full(p.shape, 10)
    c[first.subject_index, first.item_index] = first.answer
    more = c == 0
    c, n = c + np.where(more, rng.binomial(1000, p), 0), n + 1000 * more
    table = pd.DataFrame(c.astype(int), index=first.subjects.index, columns=first.items.index)
    fit = bi.fit(bi.RepeatedSampling(), bi.Responses.from_wide(table, trials=n, items=first.items), seed=0)
    low, high = fit.tree.posterior["location"].quantile([0.01, 0.99], ("chain", "draw")).to_numpy()[:, 0]
    assert ((low < location) & (location < high)).all()


def test_benchmarks_are_fitted_apart_and_files_keep_them(tmp_path):
    one, _, _, _ = counts(n_items=20, seed=1)
    items = pd.DataFrame({"benchmark": ["A", "B"] * 10}, index=one.items.index)
    table = np.zeros((6, 20), int)
    table[one.subject_index, one.item_index] = one.answer
    frame = pd.DataFrame(table, index=one.subjects.index, columns=items.index)
    responses = bi.Responses.from_wide(frame, trials=np.full((6, 20), 40), items=items)
    fit = bi.fit(bi.RepeatedSampling("logit-student"), responses, seed=0, draws=200)
    assert fit.tree.posterior["location"].dims == ("chain", "draw", "benchmark", "subject")
    assert fit.tree.posterior["benchmark"].to_numpy().tolist() == ["A", "B"]
    again = bi.load(fit.save(tmp_path / "rates.nc"))
    assert again.spec == fit.spec
    np.testing.assert_array_equal(again.tree.posterior["shape"], fit.tree.posterior["shape"])


def test_same_seed_same_numbers():
    responses, *_ = counts(n_items=20)
    a, b = (bi.fit(bi.RepeatedSampling(), responses, seed=4, draws=100).tree.posterior for _ in range(2))
    np.testing.assert_array_equal(a["location"], b["location"])


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: bi.RepeatedSampling(tail="gamma"), "tail = 'gamma': expected one of"),
        (lambda: bi.RepeatedSampling(never=2), "never = 2"),
        (lambda: bi.RepeatedSampling(priors=bi.ItemPriors()), "expected a SamplingPriors"),
        (lambda: bi.SamplingPriors(sd_shape=0.0), "sd_shape = 0.0: expected a positive number"),
    ],
)
def test_specs_say_what_they_expect(make, says):
    with pytest.raises(InputError, match=says):
        make()


def test_answers_that_are_no_counts_of_repeated_samples():
    rng = np.random.default_rng(0)
    once = bi.Responses.from_wide(pd.DataFrame(rng.integers(0, 2, (4, 30))))
    with pytest.raises(InputError, match="every question was sampled once"):
        bi.fit(bi.RepeatedSampling(), once)
    shares = bi.Responses.from_wide(pd.DataFrame(rng.uniform(0.1, 0.9, (4, 30))))
    with pytest.raises(InputError, match="answers are probabilities: repeated sampling needs counts"):
        bi.fit(bi.RepeatedSampling(), shares)
