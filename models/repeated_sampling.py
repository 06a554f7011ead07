"""Repeated sampling: every subject solves items at rates with a tail of its own, and subjects learn from each other.

``repeated_sampling`` sees counts; ``rates_on_grids`` the likelihood of every subject's location and shape in the cells
of a grid, with its counts integrated out, and is the same posterior of what subjects have in common.
"""

import jax.numpy as jnp
import numpyro
from bayes_irsl.models.item_response import hyper
from jax import lax
from jax.scipy.special import expit, logsumexp, ndtr
from numpyro import distributions as dist

# Half a side, in sd, up to which a cell's mass is its density times its side; and the least mass told by differences.
NARROW, LEAST = 0.3, 1e-250


def repeated_sampling(subject, trials, successes=None, *, n_subjects, counts, never, priors):
    """successes ~ counts(location, shape of the subject), inflated by zeros where some items are never solved."""
    h = hyperparameters(never, priors)
    with numpyro.plate("subject", n_subjects):
        location = numpyro.sample("location", dist.Normal(h["mean_location"], h["sd_location"]))
        shape = numpyro.sample("shape", dist.Normal(expected_shape(h, location), h["sd_shape"]))
        if never:
            gate = expit(numpyro.sample("never", dist.Normal(h["mean_never"], h["sd_never"])))
    likelihood = counts(location[subject], shape[subject], trials)
    if never:
        likelihood = dist.ZeroInflatedDistribution(likelihood, gate=gate[subject])
    with numpyro.plate("cell", len(trials)):
        numpyro.sample("successes", likelihood, obs=successes)


def rates_on_grids(axes, step, log_likelihood, *, never, priors):
    """Cells of a grid a subject: middles along each axis (S, n_k) and sides (S, 2 or 3).

    The axes are location, shape and, where some items are never solved, the logit of their share; ``log_likelihood``
    (S, n_1, n_2[, n_3]) is that at the middle of a cell.
    """
    h = hyperparameters(never, priors)
    found = log_likelihood + log_mass(h, axes, step)
    numpyro.factor("counts", logsumexp(found.reshape(len(found), -1), axis=1).sum())


def hyperparameters(never, priors):
    """Where subjects' locations and shapes lie, how far apart, and how the two go together."""
    return {name: hyper(name, getattr(priors, name)) for name in hyperparameter_names(never)}


def hyperparameter_names(never):
    """Where every item is solved in the end, there is no share that never is."""
    names = ["mean_location", "sd_location", "mean_shape", "tie", "sd_shape"]
    return names + ["mean_never", "sd_never"] * never


def expected_shape(h, location):
    """mean_shape + tie (location - mean_location)."""
    return h["mean_shape"] + h["tie"] * (location - h["mean_location"])


def log_mass(h, axes, step):
    """Log prior probability (..., n_1, n_2[, n_3]) of cells with middles (..., n_k) and sides (..., 2 or 3).

    A density at the middle would not do: where subjects are much alike, it is narrower than a cell.
    """
    location, shape, *never = axes
    found = log_normal_mass(location, step[..., :1], h["mean_location"], h["sd_location"])[..., None]
    expected = expected_shape(h, location)[..., None]
    found = found + log_normal_mass(shape[..., None, :], step[..., 1, None, None], expected, h["sd_shape"])
    for logit in never:
        share = log_normal_mass(logit, step[..., 2:], h["mean_never"], h["sd_never"])
        found = found[..., None] + share[..., None, None, :]
    return found


def log_normal_mass(middle, side, mean, sd):
    """log P(|x - middle| < side / 2) for x ~ Normal(mean, sd).

    The density times the side where all cells are narrow, which is far quicker, and in the far tails.
    """
    z, half = jnp.abs(middle - mean) / sd, 0.5 * side / sd
    density = dist.Normal(0.0, 1.0).log_prob(z) + jnp.log(2 * half)

    def difference(_):
        mass = ndtr(half - z) - ndtr(-half - z)
        sure = mass > LEAST
        return jnp.where(sure, jnp.log(jnp.where(sure, mass, 1.0)), density)

    return lax.cond(jnp.max(half) < NARROW, lambda _: density, difference, None)


def beta_counts(location, shape, trials):
    """Rates ~ Beta(alpha, alpha (1 - m) / m): alpha = exp(shape), m = sigmoid(location); integrated out."""
    alpha = jnp.exp(shape)
    return dist.BetaBinomial(alpha, alpha * jnp.exp(-location), trials)


def logit_counts(z):
    """Rates sigmoid(location + exp(shape) z), z from a distribution: a latent rate for every cell."""

    def counts(location, shape, trials):
        with numpyro.plate("cell", len(trials)):
            deviation = numpyro.sample("z", z)
        return dist.Binomial(trials, logits=location + jnp.exp(shape) * deviation)

    return counts
