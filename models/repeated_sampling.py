"""Repeated sampling: every subject solves items at rates with a tail of its own, and subjects learn from each other.

``repeated_sampling`` sees counts; ``rates_on_grids`` the likelihood of every subject's location and shape on a grid,
with its counts integrated out, and is the same posterior of what subjects have in common.
"""

import jax.numpy as jnp
import numpyro
from bayes_irsl.models.item_response import hyper
from jax.scipy.special import expit, logsumexp
from numpyro import distributions as dist


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


def rates_on_grids(nodes, log_likelihood, *, never, priors):
    """nodes (S, G, 2 or 3): location, shape and, where some items are never solved, its logit; (S, G) their weight."""
    h = hyperparameters(never, priors)
    numpyro.factor("counts", logsumexp(log_likelihood + log_density(h, nodes), axis=1).sum())


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


def log_density(h, nodes):
    """Log density (...,) of a subject's location, shape [and never] (..., 2 or 3)."""
    location, shape = nodes[..., 0], nodes[..., 1]
    found = dist.Normal(h["mean_location"], h["sd_location"]).log_prob(location)
    found = found + dist.Normal(expected_shape(h, location), h["sd_shape"]).log_prob(shape)
    if nodes.shape[-1] == 3:
        found = found + dist.Normal(h["mean_never"], h["sd_never"]).log_prob(nodes[..., 2])
    return found


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
