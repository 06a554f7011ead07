"""Anchored fits: the same density in both programs, the common error told from the items' own, recovery, bad input."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.infer.util import log_density

import bayes_irsl as bi
from bayes_irsl.anchoring import _decomposed, anchored
from bayes_irsl.cells import Anchor, problem
from bayes_irsl.errors import InputError
from bayes_irsl.inference.nuts import from_sites, model_of, to_sites
from bayes_irsl.inference.scale import RawDraws
from bayes_irsl.inference.structure import Item, structure
from bayes_irsl.inference.svi import log_joint
from bayes_irsl.simulate import to_calibration_scale

SPEC = bi.ItemResponse("bernoulli")


def two_groups(seed, n_first=60, n_second=40, likelihood="bernoulli"):
    """A calibration group, and a stronger, closer group that shares 20 of its 40 questions."""
    theta = np.random.default_rng(seed).standard_normal(n_first + n_second)
    theta[n_first:] = 1 + 0.6 * theta[n_first:]
    responses, truth = bi.simulate_responses(n_first + n_second, 60, likelihood=likelihood, theta=theta, seed=seed)
    who, what = responses.subjects.index, responses.items.index
    first = responses.select(subjects=who[:n_first], items=what[:40])
    second = responses.select(subjects=who[n_first:], items=what[20:])
    return first, second, to_calibration_scale(truth, subjects=list(who[:n_first]))


@pytest.fixture(scope="module")
def groups():
    first, second, truth = two_groups(4)
    bank = bi.ItemBank.from_fit(bi.fit(SPEC, first), draws=1000)
    return bank, second, truth


@pytest.mark.parametrize(
    "spec", [SPEC, bi.ItemResponse("bernoulli", curve="3pl"), bi.ItemResponse("beta", precision="item")]
)
def test_program_and_structure_are_one_density(spec):
    """The NumPyro program and Laplace's structure, in their unconstrained coordinates, differ by a constant."""
    first, second, _ = two_groups(5, 20, 10, spec.likelihood)
    task = anchored(problem(spec, second), bi.ItemBank.from_fit(bi.fit(spec, first, draws=300)))
    s, rng, n = structure(task), np.random.default_rng(0), 4
    theta = rng.standard_normal((n, 1, task.n_subjects)).astype(np.float32)
    h = (s.start() + 0.3 * rng.standard_normal((n, s.n_hyper))).astype(np.float32)
    x = (0.4 * rng.standard_normal((n, task.n_items, s.n_item))).astype(np.float32)
    raw = RawDraws.from_vectors(s, theta, h, x)
    sites = to_sites(task, s, raw)
    cells, data = task.cells()
    differences = []
    for k in range(n):
        values = {name: v[k] for name, v in sites.items()}
        program, _ = log_density(model_of(task.spec, 1, True), (cells, data), {}, values)
        # log_density is on the constrained scale: add the Jacobian of every log.
        program += h[k][s.is_log_scale].sum()
        unknowns = (jnp.asarray(v) for v in (theta[k], h[k], x[k]))
        joint = log_joint(s, *unknowns, cells, Item.batch(cells, data), task.n_subjects)
        differences.append(float(program - joint))
    # float32 sums of thousands of terms: 5e-3, or 2e-6 of densities in the ten thousands.
    assert np.ptp(differences) < max(5e-3, 2e-6 * abs(float(joint)))
    back = from_sites(task, s, sites)
    np.testing.assert_allclose(back.theta, theta, atol=1e-6)
    np.testing.assert_allclose(back.items["log_a"], x[..., 0], atol=1e-6)


def test_common_error_is_told_from_the_items_own():
    """Draws made of a shared stretch (sd 0.2), a shared shift (0.3) and own errors (0.1): the three come back."""
    rng, n, items = np.random.default_rng(1), 4000, 60
    a, c = np.exp(0.3 * rng.standard_normal(items)), rng.standard_normal(items)
    stretch, shift = 0.2 * rng.standard_normal((n, 1)), 0.3 * rng.standard_normal((n, 1))
    log_a = np.log(a) - stretch + 0.1 * rng.standard_normal((n, items))
    intercept = c - a * shift + 0.1 * rng.standard_normal((n, items))
    mean, common, own = _decomposed(np.stack([log_a, intercept], -1), ("log_a", "intercept"))
    shared = common @ common.swapaxes(1, 2)
    np.testing.assert_allclose(np.sqrt(shared[:, 0, 0]), 0.2, rtol=0.06)
    np.testing.assert_allclose(np.sqrt(shared[:, 1, 1]) / a, 0.3, rtol=0.06)
    np.testing.assert_allclose(np.sqrt(own[:, [0, 1], [0, 1]]), 0.1, rtol=0.35)
    np.testing.assert_allclose(mean, np.stack([log_a.mean(0), intercept.mean(0)], -1))
    independent = np.stack([log_a + stretch, intercept + a * shift], -1)
    assert np.abs(_decomposed(independent, ("log_a", "intercept"))[1]).max() < 0.02


def test_conditional_of_an_anchor_by_hand():
    """Third parameter given the first two, against the formula for a normal's conditional."""
    tril = np.array([[[0.5, 0, 0], [0.2, 0.7, 0], [-0.3, 0.4, 0.9]]])
    mean, x = np.array([[1.0, 2.0, 3.0]]), np.array([1.3, 1.1])
    cov = tril[0] @ tril[0].T
    weight = np.linalg.solve(cov[:2, :2], cov[:2, 2])
    anchor = Anchor(np.ones(1, bool), mean, np.zeros((1, 3, 2)), tril)
    got_mean, got_sd = anchor.conditional(2, [np.array([v]) for v in x])
    assert got_mean[0] == pytest.approx(3 + weight @ (x - mean[0, :2]))
    assert got_sd[0] == pytest.approx(np.sqrt(cov[2, 2] - weight @ cov[:2, 2]))


@pytest.mark.parametrize("method", ["laplace", "nuts", "svi"])
def test_new_subjects_and_items_come_out_on_the_banks_scale(groups, method):
    bank, second, truth = groups
    fit = bi.fit(SPEC, second, anchor=bank, method=method, seed=1)
    p = fit.tree.posterior
    theta = p["theta"].mean(("chain", "draw"))
    true = truth["theta"].sel(subject=second.subjects.index.tolist())
    # Not standardised: the group is about one sd above the bank's and half as wide.
    assert abs(float(theta.mean() - true.mean())) < 0.35
    assert 0.3 < float(theta.std()) < 0.9
    z = (theta - true) / p["theta"].std(("chain", "draw"))
    assert float(np.sqrt((z**2).mean())) < 1.5
    b, new = p["b"], second.items.index[20:].tolist()
    low, high = b.sel(item=new).quantile([0.05, 0.95], ("chain", "draw"))
    inside = (low <= truth["b"].sel(item=new)) & (truth["b"].sel(item=new) <= high)
    assert float(inside.mean()) >= 0.7  # 14 of 20: P < 0.003 if they cover 0.9 independently


def test_known_items_are_learned_further_and_new_bank_is_on_the_scale(groups):
    bank, second, _ = groups
    fit = bi.fit(SPEC, second, anchor=bank)
    common = [i for i in second.items.index if i in bank.items.index]
    before = bank.b[:, bank.items.index.get_indexer(common)].std(0)
    after = fit.tree.posterior["b"].sel(item=common).std(("chain", "draw")).values
    assert 0.6 < np.median(after / before) < 1.0
    extended = bi.ItemBank.from_fit(fit, anchor=bank)
    assert extended.scale_id == bank.scale_id
    with pytest.raises(InputError, match="anchored on the bank of scale"):
        bi.ItemBank.from_fit(fit)
    with pytest.raises(InputError, match="not anchored"):
        bi.ItemBank.from_fit(bi.fit(SPEC, second, draws=100), anchor=bank)


def test_refusals(groups):
    bank, second, _ = groups
    with pytest.raises(InputError, match=r"no item with answers is in the anchoring bank.*'item-40'"):
        bi.fit(SPEC, second.select(items=second.items.index[20:]), anchor=bank)
    with pytest.raises(InputError, match="curve"):
        bi.fit(bi.ItemResponse("bernoulli", curve="3pl"), second, anchor=bank)
    with pytest.raises(InputError, match="1pl banks with"):
        bi.fit(bi.ItemResponse("bernoulli", curve="1pl"), second, anchor=bank)
    with pytest.raises(InputError, match="one ability"):
        bi.fit(bi.ItemResponse("bernoulli", abilities="benchmark"), second, anchor=bank)


def test_same_seed_same_numbers(groups):
    bank, second, _ = groups
    one, two = (bi.fit(SPEC, second, anchor=bank, draws=100, seed=3).tree.posterior for _ in range(2))
    assert jax.tree.all(jax.tree.map(np.array_equal, dict(one), dict(two)))
