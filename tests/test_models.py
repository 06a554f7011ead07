"""The NumPyro program and the structure that Laplace uses are the same model."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
from numpyro.infer.util import log_density

import bayes_irsl as bi
from bayes_irsl.cells import problem
from bayes_irsl.inference.nuts import from_sites, model_of, to_sites
from bayes_irsl.inference.scale import RawDraws
from bayes_irsl.inference.structure import Item, structure
from bayes_irsl.inference.svi import log_joint

SPECS = {
    "bernoulli-1pl": ("bernoulli", bi.ItemResponse(curve="1pl")),
    "bernoulli-2pl": ("bernoulli", bi.ItemResponse()),
    "bernoulli-3pl": ("bernoulli", bi.ItemResponse(curve="3pl")),
    "binomial": ("binomial", bi.ItemResponse("binomial")),
    "beta-binomial": ("beta-binomial", bi.ItemResponse()),
    "beta": ("beta", bi.ItemResponse()),
    "beta-item": ("beta", bi.ItemResponse(precision="item")),
    "ordered-beta": ("ordered-beta", bi.ItemResponse()),
    "zero-one-beta": ("zero-one-beta", bi.ItemResponse("zero-one-beta")),
    "by-benchmark": ("bernoulli", bi.ItemResponse(abilities="benchmark")),
    "testlet": ("bernoulli", bi.ItemResponse(abilities="benchmark", dependence="testlet")),
}


def task_of(name, missing=0.0, seed=0):
    likelihood, spec = SPECS[name]
    responses, _ = bi.simulate_responses(
        6,
        9,
        likelihood=likelihood,
        n_benchmarks=3 if spec.abilities != "one" else 1,
        missing=missing,
        seed=seed,
    )
    return problem(spec, responses)


def raw_draw(task, seed=1, n=1):
    """A random point that obeys the NumPyro model's conventions."""
    s = structure(task)
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=(n, s.n_dimensions, task.n_subjects))
    theta -= theta.mean(-1, keepdims=True)
    x = 0.3 * rng.normal(size=(n, task.n_items, s.n_item))
    h = s.start() + 0.1 * rng.normal(size=(n, s.n_hyper))
    raw = RawDraws.from_vectors(s, theta, h, x)
    if "log_a" in raw.items:
        raw.items["log_a"] -= raw.items["log_a"].mean(1, keepdims=True)
    return s, raw


@pytest.mark.parametrize(
    ("name", "missing"),
    [*((name, 0.0) for name in SPECS), ("bernoulli-2pl", 0.3), ("ordered-beta", 0.3), ("by-benchmark", 0.3)],
)
def test_likelihood_of_program_equals_sum_over_items(name, missing):
    task = task_of(name, missing)
    s, raw = raw_draw(task)
    cells, data = task.cells()
    sites = {k: v[0] for k, v in to_sites(task, s, raw).items()}
    model = model_of(task.spec, s.n_dimensions)
    trace = numpyro.handlers.trace(numpyro.handlers.substitute(model, sites)).get_trace(cells, data)
    program = float(trace["answer"]["fn"].log_prob(trace["answer"]["value"]).sum())
    x = jnp.stack([jnp.asarray(raw.items[n][0], jnp.float32) for n in s.item_names], -1)
    h = jnp.asarray(raw._free(s)[0], jnp.float32)
    theta = jnp.asarray(raw.theta[0], jnp.float32)
    places = jnp.broadcast_to(cells.take(theta[0] if s.n_dimensions == 1 else theta.T), (task.n_items, task.width(6)))
    answer_h = h[s.n_hyper - s.n_answer :]
    item = Item.batch(cells, data)
    ours = float(jax.vmap(lambda x, t, i: s.log_likelihood_item(x, t, answer_h, i))(x, places, item).sum())
    assert program == pytest.approx(ours, rel=2e-5, abs=2e-4)


def test_prior_of_program_differs_from_structure_by_a_constant():
    """The two conventions of scale differ in normalisation only, at points where both hold."""
    task = task_of("beta")
    s, raw = raw_draw(task, n=5)
    cells, data = task.cells()
    sites = to_sites(task, s, raw)
    model = model_of(task.spec, s.n_dimensions)
    h = jnp.asarray(raw._free(s), jnp.float32)
    x = jnp.stack([jnp.asarray(raw.items[n], jnp.float32) for n in s.item_names], -1)
    differences = []
    for i in range(5):
        program = log_density(model, (cells, data), {}, {k: v[i] for k, v in sites.items()})[0]
        theta = jnp.asarray(raw.theta[i], jnp.float32)
        ours = log_joint(s, theta, h[i], x[i], cells, Item.batch(cells, data), task.n_subjects)
        free_jacobian = sum(h[i, k] for k, (_, _, prior) in enumerate(s.free) if prior.positive)
        sd_log_a = float(raw.hypers["sd_log_a"][i, 0])
        # Ours has one more free direction of log a: its density at zero is that of the mean of J deviations.
        gauge = -0.5 * np.log(2 * np.pi) - np.log(sd_log_a)
        differences.append(float(program) - (float(ours) - float(free_jacobian) - gauge))
    assert np.ptp(differences) < 2e-3


@pytest.mark.parametrize("name", ["bernoulli-1pl", "bernoulli-3pl", "beta-item", "by-benchmark", "testlet"])
def test_sites_and_raw_draws_are_inverse(name):
    task = task_of(name)
    s, raw = raw_draw(task, n=3)
    sites = to_sites(task, s, raw)
    if s.n_dimensions > 1:
        from numpyro.distributions.transforms import ZeroSumTransform

        sites["theta"] = ZeroSumTransform(1)(sites["theta_free"].swapaxes(1, 2)).swapaxes(1, 2)
    back = from_sites(task, s, sites)
    np.testing.assert_allclose(back.theta, raw.theta, atol=2e-5)
    for key, value in raw.items.items():
        if key != "log_a" or "mean_log_a" not in raw.hypers:
            np.testing.assert_allclose(back.items[key], value, atol=2e-5)


@pytest.mark.parametrize("name", ["bernoulli-2pl", "beta-binomial", "ordered-beta"])
def test_program_simulates_when_no_data_are_given(name):
    task = task_of(name)
    s = structure(task)
    cells, _ = task.cells()
    draw = numpyro.infer.Predictive(model_of(task.spec, s.n_dimensions), num_samples=50)(jax.random.key(0), cells)
    answer = np.asarray(draw["answer"])
    assert answer.shape == (50, 9, 6)
    assert np.isfinite(answer).all()
    assert (answer >= 0).all()
    assert (answer <= np.asarray(cells.trials)).all()
    assert 0.2 < (answer / np.asarray(cells.trials)).mean() < 0.8
    np.testing.assert_allclose(np.asarray(draw["theta"]).sum(1), 0, atol=1e-4)


def test_sparse_and_dense_layouts_hold_the_same_answers():
    task = task_of("bernoulli-2pl", missing=0.6)
    s, raw = raw_draw(task)
    theta = jnp.asarray(raw.theta[0, 0], jnp.float32)
    x = jnp.stack([jnp.asarray(raw.items[n][0], jnp.float32) for n in s.item_names], -1)
    totals = []
    for width in (6, int(task.counts.max())):
        cells, data = task.cells(width=width)
        assert (cells.subject is None) == (width == 6)
        places = jnp.broadcast_to(cells.take(theta), (task.n_items, width))
        item = Item.batch(cells, data)
        totals.append(
            float(jax.vmap(lambda x, t, i: s.log_likelihood_item(x, t, jnp.zeros(0), i))(x, places, item).sum())
        )
    assert totals[0] == pytest.approx(totals[1], rel=1e-5)
