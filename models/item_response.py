"""Item response models: abilities of subjects meet properties of items.

Every model is ``item_response`` with one choice from each of three groups of short functions: whose abilities
(``one_ability``, ``correlated_abilities``, ``testlet_abilities``), which response curve (``one_pl``, ``two_pl``,
``three_pl``), which answers (``plain_answers``, ``dispersed_answers``, ...).

While fitting, abilities sum to zero and so do log discriminations: that fixes location, scale and, with a > 0, sign.
Cells are items by places, see :class:`bayes_irsl.cells.Cells`.
"""

import jax
import jax.numpy as jnp
import numpyro
from numpyro import distributions as dist

from bayes_irsl.answers import LIKELIHOODS
from bayes_irsl.curves import with_guessing
from bayes_irsl.distributions import AnswerDistribution
from bayes_irsl.priors import ItemPriors, Prior


def item_response(cells, data=None, *, abilities, curve, likelihood, precision="global", priors=None):
    """Logit of the mean = a * theta + intercept; answers scatter around the mean."""
    priors = priors or ItemPriors()
    theta = abilities(cells, priors)
    eta = curve(theta, cells, priors)
    parameters = answer_parameters(likelihood, precision, cells, priors)
    observed = None if data is None else jax.tree.leaves(data)[0]
    numpyro.sample("answer", AnswerDistribution(likelihood, eta, parameters, cells, data), obs=observed)


def one_ability(cells, priors):
    """theta_s ~ Normal(0, sd_theta), summing to zero."""
    return numpyro.sample("theta", dist.ZeroSumNormal(hyper("sd_theta", priors.sd_theta), (cells.n_subjects,)))


def correlated_abilities(cells, priors):
    """theta_s ~ Normal(0, diag(sd) Omega diag(sd)) with Omega ~ LKJ; each dimension sums to zero over subjects."""
    tril = numpyro.sample("correlation_tril", dist.LKJCholesky(cells.n_dimensions, priors.lkj))
    with numpyro.plate("dimension", cells.n_dimensions):
        sd = hyper("sd_theta", priors.sd_theta)
    return zero_sum_rows(cells, sd[:, None] * tril)


def testlet_abilities(cells, priors):
    """theta_sk = sd_k (common_s + sd_testlet * own_sk) / sqrt(1 + sd_testlet^2), each dimension summing to zero."""
    with numpyro.plate("dimension", cells.n_dimensions):
        sd = hyper("sd_theta", priors.sd_theta)
    sd_testlet = numpyro.sample("sd_testlet", dist.HalfNormal(1.0))
    correlation = (1 + sd_testlet**2 * jnp.eye(cells.n_dimensions)) / (1 + sd_testlet**2)
    return zero_sum_rows(cells, sd[:, None] * jnp.linalg.cholesky(correlation))


def one_pl(theta, cells, priors):
    """Same discrimination for all items; its size is the spread of the abilities."""
    return cells.take(theta) + intercepts(cells, priors)[:, None]


def two_pl(theta, cells, priors):
    """Every item its own discrimination a > 0."""
    return jnp.exp(log_discriminations(cells, priors))[:, None] * cells.take(theta) + intercepts(cells, priors)[:, None]


def three_pl(theta, cells, priors):
    """Two-parameter curve above a guessing floor c: mean = c + (1 - c) sigmoid(a theta + intercept)."""
    eta = two_pl(theta, cells, priors)
    with numpyro.plate("item", cells.dimension.size):
        deviation = numpyro.sample("guessing_deviation", dist.Normal(0, 1))
    logit_c = cells.logit_centre + cells.guessing_free * priors.sd_logit_guessing * deviation
    return with_guessing(eta, logit_c[:, None])


def intercepts(cells, priors):
    """intercept_j ~ Normal(mean, sd) of its benchmark."""
    with numpyro.plate("benchmark", cells.n_benchmarks):
        mean = hyper("mean_intercept", priors.mean_intercept)
        sd = hyper("sd_intercept", priors.sd_intercept)
    with numpyro.plate("item", cells.dimension.size):
        return numpyro.sample("intercept", dist.Normal(mean[cells.benchmark], sd[cells.benchmark]))


def log_discriminations(cells, priors):
    """log a_j ~ Normal(mean of its benchmark, sd_log_a), summing to zero over all items."""
    sd = hyper("sd_log_a", priors.sd_log_a)
    deviation = numpyro.sample("log_a_deviation", dist.ZeroSumNormal(sd, (cells.dimension.size,)))
    if cells.n_benchmarks == 1:
        return deviation
    mean = numpyro.sample("mean_log_a", dist.ZeroSumNormal(priors.sd_mean_log_a, (cells.n_benchmarks,)))
    return deviation + mean[cells.benchmark]


def answer_parameters(likelihood, precision, cells, priors):
    """Precision and edge parameters of the answers; with precision="item" every item its own log phi."""
    parameters = {
        name: hyper(name, getattr(priors, PRIOR_OF.get(name, name))) for name in LIKELIHOODS[likelihood].parameters
    }
    if precision == "item" and "log_phi" in parameters:
        sd = hyper("sd_log_phi", priors.sd_log_phi)
        with numpyro.plate("item", cells.dimension.size):
            parameters["log_phi"] = numpyro.sample("log_phi_item", dist.Normal(parameters["log_phi"], sd))[:, None]
    return tuple(parameters.values())


PRIOR_OF = {"cut_zero": "cut", "cut_one": "cut"}


def hyper(name, prior):
    """A hyperparameter with its prior, or fixed where a number stands in the prior's place."""
    if isinstance(prior, Prior):
        return numpyro.sample(name, prior.distribution())
    return numpyro.deterministic(name, jnp.asarray(prior))


def zero_sum_rows(cells, scale_tril):
    """Subjects' ability vectors ~ Normal(0, L L'), conditioned on every dimension summing to zero over subjects."""
    free = dist.MultivariateNormal(jnp.zeros(cells.n_dimensions), scale_tril=scale_tril).expand([cells.n_subjects - 1])
    rows = numpyro.sample("theta_free", free.to_event(1))
    return numpyro.deterministic("theta", dist.transforms.ZeroSumTransform(1)(rows.T).T)
