"""The sampler's loop and partial centring: identities, bookkeeping, and moments of a known target."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
from numpyro import distributions as dist
from numpyro.infer.util import potential_energy

from bayes_irsl.inference.centring import partly_centred, shares_of, unconstrained
from bayes_irsl.inference.chains import Settings, run_chains


def gaussian(z, data):
    """x ~ Normal(mean, sd) with data = (mean, sd), elementwise."""
    mean, sd = data
    return 0.5 * jnp.sum(((z["x"] - mean) / sd) ** 2)


def sample(data, chains=4, draws=400, thin=1, **settings):
    start = {"x": jnp.zeros((chains, 2))}
    return run_chains(
        gaussian, start, jnp.ones(2), data, Settings(100, **settings), key=jax.random.key(3), draws=draws, thin=thin
    )


def test_moments_of_a_gaussian_and_shapes():
    result = sample((jnp.array([1.0, -2.0]), jnp.array([0.5, 3.0])), draws=1000)
    x = result.draws["x"]
    assert x.shape == (4, 1000, 2)
    assert result.stats["num_steps"].shape == (4, 1000)
    # NUTS on a Gaussian is at least as good as independent draws; 5 standard errors of 4,000.
    np.testing.assert_allclose(x.mean((0, 1)), [1, -2], atol=5 * 3 / np.sqrt(4000))
    np.testing.assert_allclose(x.std((0, 1)), [0.5, 3], rtol=0.08)
    assert not result.stats["diverging"].any()


def test_thinning_and_stretches_keep_the_same_draws():
    """Kept draws are those of the unthinned run, whatever the stretch in which they were made."""
    data = (jnp.zeros(2), jnp.ones(2))
    whole = sample(data, draws=90).draws["x"]
    np.testing.assert_array_equal(sample(data, draws=30, thin=3).draws["x"], whole[:, 2::3])
    np.testing.assert_array_equal(sample(data, draws=17).draws["x"], whole[:, :17])


def test_each_chain_may_have_its_own_data():
    means, sds = jnp.array([[0.0, 0.0], [50.0, -50.0]]), jnp.array([[1.0, 1.0], [0.1, 9.0]])
    result = sample((means, sds), chains=2, draws=500, data_per_chain=True, adapt_metric=True)
    np.testing.assert_allclose(result.draws["x"].mean(1), means, atol=2.5)
    np.testing.assert_allclose(result.draws["x"].std(1), sds, rtol=0.25)


def hierarchy(y):
    """Eight groups around a learned mean, and five effects that sum to zero."""
    mean = numpyro.sample("mean", dist.Normal(0, 2))
    sd = numpyro.sample("sd", dist.HalfNormal(1))
    with numpyro.plate("group", 8):
        x = numpyro.sample("x", dist.Normal(mean, sd))
    effect = numpyro.sample("effect", dist.ZeroSumNormal(sd, (5,)))
    numpyro.sample("y", dist.Normal(x[:, None] + effect, 0.5), obs=y)


def draws_of(n=3):
    rng = np.random.default_rng(1)
    effect = rng.standard_normal((n, 5))
    return {
        "mean": jnp.asarray(rng.standard_normal(n)),
        "sd": jnp.asarray(np.exp(0.3 * rng.standard_normal(n))),
        "x": jnp.asarray(rng.standard_normal((n, 8))),
        "effect": jnp.asarray(effect - effect.mean(1, keepdims=True)),
    }


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_partial_centring_changes_coordinates_and_nothing_else(share):
    """-log density in the new coordinates is the old one minus log |dx/dz|; dx/dz = sd^(1 - c), 8 and 4 dimensions."""
    y = (jnp.asarray(np.random.default_rng(0).standard_normal((8, 5))),)
    shares, draws = {"x": jnp.full(8, share), "effect": jnp.asarray(share)}, draws_of()
    z, plain = unconstrained(hierarchy, shares, y, draws), unconstrained(hierarchy, {}, y, draws)
    for k in range(3):
        new = potential_energy(partly_centred(hierarchy, shares), y, {}, {name: v[k] for name, v in z.items()})
        old = potential_energy(hierarchy, y, {}, {name: v[k] for name, v in plain.items()})
        jacobian = (8 + 4) * (1 - share) * np.log(draws["sd"][k])
        assert float(new) == pytest.approx(float(old - jacobian), rel=1e-5)


def test_shares_follow_the_information():
    """x known to 0.01 among groups that spread by 1: centred. Draws as wide as the prior: not centred."""
    rng = np.random.default_rng(2)
    n, y = 4000, (jnp.zeros((8, 5)),)
    wide = rng.standard_normal((n, 5))
    draws = {
        "mean": jnp.zeros(n),
        "sd": jnp.ones(n),
        "x": jnp.asarray(1 + 0.01 * rng.standard_normal((n, 8))),
        "effect": jnp.asarray(wide - wide.mean(1, keepdims=True)),
    }
    shares = shares_of(hierarchy, y, draws)
    assert set(shares) == {"x", "effect"}
    assert (np.asarray(shares["x"]) > 0.999).all()
    assert float(shares["effect"]) < 0.03
