"""How far subjects depart from one ability, learned from the subjects that a bank was calibrated with."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize
from scipy.special import logsumexp

from bayes_irsl import _validate as check
from bayes_irsl.adaptive import beliefs, judging
from bayes_irsl.adaptive.beliefs import Prior
from bayes_irsl.adaptive.facets import Spread, facets, prior_of
from bayes_irsl.adaptive.judging import Judged
from bayes_irsl.adaptive.tables import further, grid, quasi_likelihood, tables
from bayes_irsl.bank import ItemBank
from bayes_irsl.errors import InputError

if TYPE_CHECKING:
    from bayes_irsl.fitting import Fit

Array = Any
Floats = npt.NDArray[np.floating]

SCALES = (0.5, 1.0, 2.0, 4.0)
SCALE_PRIOR = (3.0, 5.0, 2.0, 0.5)  # as of subjects already seen
TYPICAL = Spread(0.3, 0.3, 0.15, (0.05, 0.3), SCALES, tuple(p / sum(SCALE_PRIOR) for p in SCALE_PRIOR))
_CENTRE, _LOOSE = np.log(0.2), 1.0  # of the sds' prior, in logs
_SHARES, _LOGITS = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3), (0.0, 0.2, 0.4, 0.6, 0.8, 1.2, 1.6, 2.0)


def departures(
    fit: Fit,
    bank: ItemBank | None = None,
    *,
    by: str | None = None,
    refits: int = 4,
    seed: int = 0,
    progress: bool = True,
) -> Spread:
    """How far subjects depart from one ability: most probable given the calibration's answers.

    A subject's answers are judged by curves that have not seen them. For 0/1 answers the bank's draws are reweighted;
    for counts and probabilities, where one answer may be most of what is known of an item's precision, the fit is
    repeated without a part of its subjects.

    Parameters
    ----------
    fit : Fit
        Of an ItemResponse: the calibration.
    bank : ItemBank, optional
        The bank made of it.
    by : str, optional
        Column of the items by which abilities may depart too.
    refits : int
        Parts that the subjects are split into for counts and probabilities.
    seed : int
    progress : bool

    Returns
    -------
    Spread
        For ``AdaptiveTest(bank, departures=...)``, with the same ``by``.
    """
    bank = ItemBank.from_fit(fit, seed=seed) if bank is None else bank
    if by is not None and by not in bank.items:
        raise check.unknown([by], bank.items.columns, "column of the bank's items")
    nodes = grid(*bank.prior)
    facet = facets(bank, tables(bank, nodes), by)
    if bank.likelihood == "bernoulli":
        judged = list(judging.by_reweighting(fit, bank, nodes, seed))
    else:
        judged = list(judging.by_refitting(fit, bank, nodes, refits, seed, progress))
    if not judged:
        raise InputError("the fit has no subject with answers: nothing can be learned of departures")
    residual = (0.0, 0.0) if bank.likelihood == "bernoulli" else _residual(judged, nodes, bank.prior)
    known = np.zeros((len(judged), len(facet.names), len(nodes)))
    for one, (where, mean, variance, share) in zip(known, judged, strict=True):
        np.add.at(one, facet.of_item[where], quasi_likelihood(mean, variance + further(mean, residual), share))
    return maximised(known, lambda spread: prior_of(facet, bank, bank.prior, spread), nodes)._replace(residual=residual)


def maximised(known: Floats, prior: Callable[[Spread], Prior], nodes: Floats) -> Spread:
    """The most probable spread given likelihoods (S, F, G)."""
    with jax.enable_x64(True):
        found = beliefs.posteriors(prior(TYPICAL), nodes, known)
        # Normal stand-ins of the likelihoods: the sites under the prior that fits each subject best.
        site = np.asarray(found.site)[np.arange(len(known)), np.asarray(found.log_weight).argmax(1)]

        def evidences(sds: Floats) -> Floats:
            p = prior(TYPICAL._replace(category=sds[0], level=sds[1], facet=sds[2]))
            each = np.asarray(_evidences(p.mean, p.covariance, site)) + p.log_weight
            # Of one scale, over what else the priors differ in.
            return logsumexp(each.reshape(len(site), len(SCALES), -1), axis=2) - np.log(TYPICAL.weights)

        x, weight = np.log(TYPICAL[:3]), np.array(TYPICAL.weights)
        for _ in range(3):
            x = _best_sds(x, weight, evidences)
            weight = _best_weights(evidences(np.exp(x)), weight, np.array(SCALE_PRIOR))
    category, level, alone = np.exp(x).tolist()
    return Spread(category, level, alone, TYPICAL.residual, SCALES, tuple(weight.tolist()))


def _best_sds(x: Floats, weight: Floats, evidences: Callable[[Floats], Floats]) -> Floats:
    def loss(x: Floats) -> float:
        fits = logsumexp(evidences(np.exp(x)) + np.log(weight), axis=1).sum()
        return -fits + 0.5 * (((x - _CENTRE) / _LOOSE) ** 2).sum()

    return minimize(loss, x, method="Nelder-Mead", options={"xatol": 0.02, "fatol": 0.05, "maxfev": 120}).x


def _best_weights(evidence: Floats, weight: Floats, counts: Floats) -> Floats:
    """Weights by expectation and maximisation, their prior worth ``counts`` subjects."""
    for _ in range(50):
        total = evidence + np.log(weight)
        weight = np.exp(total - logsumexp(total, axis=1, keepdims=True)).sum(0) + counts
        weight = weight / weight.sum()
    return weight


@jax.jit
def _evidences(mean: Array, covariance: Array, site: Array) -> Array:
    """Log integrals (S, M) of the priors times the stand-ins."""
    one = jax.vmap(beliefs.log_integral, (0, 0, None))
    return jax.lax.map(lambda s: one(mean, covariance, s), site)


def _residual(judged: list[Judged], nodes: Floats, prior: tuple[float, float]) -> tuple[float, float]:
    """Variance (r, s) of answers beyond the bank's: the best by the normal pseudo-likelihood.

    At every subject's ability given that variance, so that the two are found in turn.
    """
    tried = [(r, s) for r in _SHARES for s in _LOGITS]
    found = tried[1]
    for _ in range(3):
        square, centre, scatter = [], [], []
        for _, mean, variance, share in judged:
            height = quasi_likelihood(mean, variance + further(mean, found), share).sum(0)
            at = int((height - 0.5 * ((nodes - prior[0]) / prior[1]) ** 2).argmax())
            square.append((share - mean[:, at]) ** 2)
            centre.append(mean[:, at])
            scatter.append(variance[:, at])
        r2, mu, v0 = (np.concatenate(x).astype(float) for x in (square, centre, scatter))
        total = [np.maximum(v0 + further(mu, t), 1e-9) for t in tried]
        found = tried[int(np.argmax([-0.5 * (np.log(v) + r2 / v).sum() for v in total]))]
    return found
