"""Item response models: abilities of subjects meet properties of items.

Every model is ``item_response`` with one choice from each of three groups of short functions: whose abilities
(``one_ability``, ``anchored_ability``, ``correlated_abilities``, ``testlet_abilities``), which response curve
(``one_pl``, ``two_pl``, ``three_pl``), which answers (the likelihoods of :mod:`bayes_irsl.answers`).

While fitting, abilities sum to zero and so do log discriminations: that fixes location, scale and, with a > 0, sign.
Anchored on a bank, some items are known on its scale, which fixes all three: nothing is made to sum to zero.
Cells are items by places, see :class:`bayes_irsl.cells.Cells`.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpyro
from numpyro import distributions as dist

from bayes_irsl.answers import LIKELIHOODS
from bayes_irsl.curves import with_guessing
from bayes_irsl.distributions import AnswerDistribution
from bayes_irsl.priors import ItemPriors, Normal, Prior

# Average ability of anchored subjects, on a scale on which the bank's calibration subjects have mean 0 and sd 1.
MEAN_THETA = Normal(0.0, 3.0)


def item_response(cells, data=None, *, abilities, curve, likelihood, precision="global", priors=None):
    """Logit of the mean = a * theta + intercept; answers scatter around the mean."""
    priors = priors or ItemPriors()
    if cells.anchor is not None:
        error = numpyro.sample("anchor_error", dist.Normal(0, 1).expand([2]).to_event(1))
        cells = replace(cells, anchor=cells.anchor.given(error))
    theta = abilities(cells, priors)
    eta, items = curve(theta, cells, priors)
    parameters = answer_parameters(likelihood, precision, cells, priors, items)
    observed = None if data is None else jax.tree.leaves(data)[0]
    numpyro.sample("answer", AnswerDistribution(likelihood, eta, parameters, cells, data), obs=observed)


def one_ability(cells, priors):
    """theta_s ~ Normal(0, sd_theta), summing to zero."""
    return numpyro.sample("theta", dist.ZeroSumNormal(hyper("sd_theta", priors.sd_theta), (cells.n_subjects,)))


def anchored_ability(cells, priors):
    """theta_s ~ Normal(mean_theta, sd_theta) on the scale of the bank that the items are anchored on."""
    mean, sd = hyper("mean_theta", MEAN_THETA), hyper("sd_theta", priors.sd_theta)
    with numpyro.plate("subject", cells.n_subjects):
        return numpyro.sample("theta", dist.Normal(mean, sd))


def correlated_abilities(cells, priors):
    """theta_s ~ Normal(0, diag(sd) Omega diag(sd)) with Omega ~ LKJ; each dimension sums to zero over subjects."""
    tril = numpyro.sample("correlation_tril", dist.LKJCholesky(cells.n_dimensions, priors.lkj))
    sd = hyper("sd_theta", priors.sd_theta, cells.n_dimensions)
    return zero_sum_rows(cells, sd[:, None] * tril)


def testlet_abilities(cells, priors):
    """theta_sk = sd_k (common_s + sd_testlet * own_sk) / sqrt(1 + sd_testlet^2), each dimension summing to zero."""
    sd = hyper("sd_theta", priors.sd_theta, cells.n_dimensions)
    sd_testlet = numpyro.sample("sd_testlet", dist.HalfNormal(1.0))
    correlation = (1 + sd_testlet**2 * jnp.eye(cells.n_dimensions)) / (1 + sd_testlet**2)
    return zero_sum_rows(cells, sd[:, None] * jnp.linalg.cholesky(correlation))


def one_pl(theta, cells, priors):
    """Same discrimination for all items; its size is the spread of the abilities.

    Curves return logits (J, M) and the items' parameters in the order in which an anchor knows them.
    """
    intercept = intercepts(cells, priors, [])
    return cells.take(theta) + intercept[:, None], [intercept]


def two_pl(theta, cells, priors):
    """Every item its own discrimination a > 0."""
    log_a = log_discriminations(cells, priors)
    intercept = intercepts(cells, priors, [log_a])
    return jnp.exp(log_a)[:, None] * cells.take(theta) + intercept[:, None], [log_a, intercept]


def three_pl(theta, cells, priors):
    """Two-parameter curve above a guessing floor c: mean = c + (1 - c) sigmoid(a theta + intercept)."""
    eta, items = two_pl(theta, cells, priors)
    deviation = by_item("guessing_deviation", 0.0, 1.0, cells, items)
    logit_c = cells.logit_centre + cells.guessing_free * priors.sd_logit_guessing * deviation
    return with_guessing(eta, logit_c[:, None]), [*items, deviation]


def intercepts(cells, priors, earlier):
    """intercept_j ~ Normal(mean, sd) of its benchmark."""
    mean = hyper("mean_intercept", priors.mean_intercept, cells.n_benchmarks)
    sd = hyper("sd_intercept", priors.sd_intercept, cells.n_benchmarks)
    return by_item("intercept", mean[cells.benchmark], sd[cells.benchmark], cells, earlier)


def log_discriminations(cells, priors):
    """log a_j ~ Normal(mean, sd_log_a), summing to zero over all items unless anchored.

    The mean is the benchmark's where benchmarks share an ability.
    """
    sd = hyper("sd_log_a", priors.sd_log_a)
    if cells.anchor is not None:
        with numpyro.plate("benchmark", cells.n_benchmarks):
            mean = numpyro.sample("mean_log_a", dist.Normal(0.0, priors.sd_mean_log_a))
        return by_item("log_a", mean[cells.benchmark], sd, cells, [])
    deviation = numpyro.sample("log_a_deviation", dist.ZeroSumNormal(sd, (cells.dimension.size,)))
    if not cells.benchmarks_share:
        return deviation
    mean = numpyro.sample("mean_log_a", dist.ZeroSumNormal(priors.sd_mean_log_a, (cells.n_benchmarks,)))
    return deviation + mean[cells.benchmark]


def by_item(name, mean, sd, cells, earlier):
    """Normal(mean, sd) for every item; for items that a bank knows, its distribution given their earlier parameters."""
    if cells.anchor is not None:
        banked_mean, banked_sd = cells.anchor.conditional(len(earlier), earlier)
        mean = jnp.where(cells.anchor.known, banked_mean, mean)
        sd = jnp.where(cells.anchor.known, banked_sd, sd)
    with numpyro.plate("item", cells.dimension.size):
        return numpyro.sample(name, dist.Normal(mean, sd))


def answer_parameters(likelihood, precision, cells, priors, items):
    """Precision and edge parameters of the answers; with precision="item" every item its own log phi."""
    parameters = {
        name: hyper(name, getattr(priors, PRIOR_OF.get(name, name))) for name in LIKELIHOODS[likelihood].parameters
    }
    if precision == "item" and "log_phi" in parameters:
        sd = hyper("sd_log_phi", priors.sd_log_phi)
        parameters["log_phi"] = by_item("log_phi_item", parameters["log_phi"], sd, cells, items)[:, None]
    return tuple(parameters.values())


PRIOR_OF = {"cut_zero": "cut", "cut_one": "cut"}


def hyper(name, prior, size=None):
    """A hyperparameter (one, or ``size`` of them) with its prior, or fixed where a number stands in its place."""
    shape = () if size is None else (size,)
    if isinstance(prior, Prior):
        return numpyro.sample(name, prior.distribution().expand(shape).to_event(len(shape)))
    return numpyro.deterministic(name, jnp.full(shape, prior))


def zero_sum_rows(cells, scale_tril):
    """Subjects' ability vectors ~ Normal(0, L L'), conditioned on every dimension summing to zero over subjects."""
    free = dist.MultivariateNormal(jnp.zeros(cells.n_dimensions), scale_tril=scale_tril).expand([cells.n_subjects - 1])
    rows = numpyro.sample("theta_free", free.to_event(1))
    return numpyro.deterministic("theta", dist.transforms.ZeroSumTransform(1)(rows.T).T)
