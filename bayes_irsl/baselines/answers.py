"""Point predictions of single answers: a table of logits and one fitted dispersion, no posterior.

mean_ij = sigmoid(slope_j subject_i + item_j); 0/1 answers are Bernoulli, counts beta-binomial, probabilities
Beta, the last two with one phi (concentration alpha + beta) for all cells. Written in NumPy and SciPy alone,
so that nothing is shared with the models that these are compared with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse
from scipy.optimize import minimize_scalar
from scipy.special import betainc, betaincc, betaln, digamma, expit, gammaln, logit, polygamma

from bayes_irsl.errors import InputError
from bayes_irsl.responses import Responses

LOG_PHI_RANGE = (-4.0, 12.0)
SMALLEST = 1e-300
SUBJECT_RIDGE = 1e-3


@dataclass(frozen=True)
class LogitTable:
    """Predicts answers by mean_ij = sigmoid(slope_j subject_i + item_j) and one precision.

    Attributes
    ----------
    subject : (S,) logits.
    item : (J,) logits.
    slope : (J,) or one number.
    log_phi : log concentration of beta-binomial counts or Beta probabilities; None for 0/1 answers.
    """

    subject: np.ndarray
    item: np.ndarray
    slope: np.ndarray | float = 1.0
    log_phi: float | None = None

    def logit(self, responses: Responses) -> np.ndarray:
        """Logit of the predicted mean of each answer, (n_obs,)."""
        slope = np.broadcast_to(self.slope, self.item.shape)
        i, j = responses.subject_index, responses.item_index
        return slope[j] * self.subject[i] + self.item[j]

    def log_score(self, responses: Responses, width: float = 0.01) -> np.ndarray:
        """Log predictive probability of each answer, (n_obs,); probabilities as intervals of ``width``."""
        return log_score(responses, self.logit(responses), self.log_phi, width)

    def with_dispersion(self, responses: Responses) -> LogitTable:
        """The same means with the precision that is most likely for these answers."""
        if responses.kind == "binary":
            return self
        eta = self.logit(responses)
        best = minimize_scalar(lambda v: -log_score(responses, eta, v).mean(), bounds=LOG_PHI_RANGE, method="bounded")
        return replace(self, log_phi=float(best.x))


def log_score(
    responses: Responses, eta: np.ndarray, log_phi: float | np.ndarray | None, width: float = 0.01
) -> np.ndarray:
    """Log probability of each answer given the logit of its mean.

    Bernoulli; beta-binomial of the trials; for probabilities the Beta mass of the interval of ``width`` that
    the answer falls in ([0, w), [w, 2w), ..., [1 - w, 1]: a proper distribution over 1 / width outcomes).

    Parameters
    ----------
    responses : answers, (n_obs,).
    eta : logits, broadcastable to (..., n_obs).
    log_phi : log concentration, likewise; not used for 0/1 answers.
    width : width of the intervals, 1 / width a whole number.

    Returns
    -------
    array (..., n_obs)
    """
    y = responses.answer.astype(float)
    if responses.kind == "binary":
        return -np.logaddexp(0, np.where(y > 0.5, -eta, eta))
    if log_phi is None:
        raise InputError(f"log_phi = None: {responses.kind} answers need a precision to be scored")
    phi = np.exp(log_phi)
    alpha, beta = phi * expit(eta), phi * expit(-eta)
    if responses.trials is not None:
        return _log_choose(responses) + betaln(y + alpha, responses.trials - y + beta) - betaln(alpha, beta)
    low, high = interval(y, width)
    below = betainc(alpha, beta, high) - betainc(alpha, beta, low)
    above = betaincc(alpha, beta, low) - betaincc(alpha, beta, high)
    return np.log(np.maximum(np.where(expit(eta) < low, above, below), SMALLEST))


def interval(answer: np.ndarray, width: float = 0.01) -> tuple[np.ndarray, np.ndarray]:
    """Ends of the interval of ``width`` that each answer in [0, 1] falls in; 1 belongs to the last one."""
    n = round(1 / width)
    k = np.minimum(np.floor(np.asarray(answer, float) * n), n - 1)
    return k / n, (k + 1) / n


def item_mean(responses: Responses, strength: float = 1.0, centre: float | None = 0.5) -> LogitTable:
    """Every subject does as well as the average: mean_j = (sum_i y_ij + strength centre) / (n_j + strength).

    Parameters
    ----------
    responses : answers; for counts the sums run over successes and trials.
    strength, centre : pseudo-answers and their mean; (1, 0.5) is add-half smoothing, None the mean of all.
    """
    n = np.ones(responses.n_obs) if responses.trials is None else responses.trials.astype(float)
    y = responses.answer.astype(float)
    centre = y.sum() / n.sum() if centre is None else centre
    total, trials = (np.bincount(responses.item_index, v, responses.n_items) for v in (y, n))
    item = logit((total + strength * centre) / (trials + strength))
    return LogitTable(np.zeros(responses.n_subjects), item).with_dispersion(responses)


def additive_logit(responses: Responses, ridge: float = 1e-3) -> LogitTable:
    """Row x column additive logit by maximum likelihood: logit mean_ij = s_i + t_j, precision fitted along.

    Items that are all right or all wrong have no finite maximum, so ``ridge`` / 2 sum t^2 is subtracted from
    the log likelihood (and 1e-3 / 2 sum s^2 for subjects). 1e-3 leaves the other items alone; :func:`tuned`
    finds a ridge that predicts well.

    Returns
    -------
    LogitTable

    Raises
    ------
    InputError
        If probabilities contain exact 0 or 1, where the Beta density has no value.
    """
    y = responses.answer
    if responses.kind == "probability" and np.any((y == 0) | (y == 1)):
        raise InputError("answers of exactly 0 or 1 have no Beta density; move them inside (0, 1) or give counts")
    table = LogitTable(np.zeros(responses.n_subjects), np.zeros(responses.n_items))
    if responses.kind == "binary":
        return _fit_logits(responses, table, ridge)
    log_phi = 2.0
    for _ in range(50):
        table = _fit_logits(responses, replace(table, log_phi=log_phi), ridge)
        before, eta = log_phi, table.logit(responses)
        near = (max(before - 1, LOG_PHI_RANGE[0]), min(before + 1, LOG_PHI_RANGE[1]))
        best = minimize_scalar(
            lambda v, eta=eta: -_log_density(responses, eta, v).sum(),
            bounds=near,
            method="bounded",
            options={"xatol": 1e-3},
        )
        log_phi = float(best.x)
        if abs(log_phi - before) < 2e-3:
            break
    return replace(table, log_phi=log_phi)


def _fit_logits(responses: Responses, table: LogitTable, ridge: float) -> LogitTable:
    """Fisher scoring for s and t together, halving steps that go down; the items are eliminated first."""
    i, j = responses.subject_index, responses.item_index
    n_subjects, n_items = responses.n_subjects, responses.n_items

    def penalised(s: np.ndarray, t: np.ndarray) -> float:
        value = _log_density(responses, s[i] + t[j], table.log_phi).sum()
        return value - 0.5 * (SUBJECT_RIDGE * (s @ s) + ridge * (t @ t))

    s, t = table.subject, table.item
    value = penalised(s, t)
    for _ in range(200):
        slope, weight = _slope_and_information(responses, s[i] + t[j], table.log_phi)
        cross = sparse.csr_array((weight, (i, j)), shape=(n_subjects, n_items))
        of_item = cross.sum(0) + ridge
        d_s = np.bincount(i, slope, n_subjects) - SUBJECT_RIDGE * s
        d_t = np.bincount(j, slope, n_items) - ridge * t
        over = cross / of_item
        left = np.diag(cross.sum(1) + SUBJECT_RIDGE) - (over @ cross.T).toarray()
        step_s = np.linalg.solve(left, d_s - over @ d_t)
        step_t = (d_t - cross.T @ step_s) / of_item
        size = 1.0
        while (new := penalised(s + size * step_s, t + size * step_t)) < value and size > 1e-4:
            size /= 2
        gained = new - value
        if gained <= 0:
            break
        s, t, value = s + size * step_s, t + size * step_t, new
        if gained < 1e-6 * responses.n_obs:
            break
    return replace(table, subject=s, item=t)


def tuned(
    fit: Callable[[Responses, float], LogitTable],
    responses: Responses,
    values: Iterable[float],
    seed: int = 0,
) -> LogitTable:
    """``fit(responses, value)`` with the value and the precision that predict a tenth of the answers best.

    Nothing outside ``responses`` is looked at; the table returned is refitted to all of them.
    """
    rest, aside = responses.holdout(0.1, seed)
    tried = [(fit(rest, value).with_dispersion(aside), value) for value in values]
    table, value = max(tried, key=lambda pair: pair[0].log_score(aside).mean())
    return replace(fit(responses, value), log_phi=table.log_phi)


def _log_density(responses: Responses, eta: np.ndarray, log_phi: float | None) -> np.ndarray:
    """Log density of each answer; for probabilities that of the value itself, not of an interval about it."""
    if responses.kind != "probability" or log_phi is None:
        return log_score(responses, eta, log_phi)
    y, phi = responses.answer.astype(float), np.exp(log_phi)
    alpha, beta = phi * expit(eta), phi * expit(-eta)
    return (alpha - 1) * np.log(y) + (beta - 1) * np.log1p(-y) - betaln(alpha, beta)


def _slope_and_information(
    responses: Responses, eta: np.ndarray, log_phi: float | None
) -> tuple[np.ndarray, np.ndarray]:
    """Derivative of the log density in every eta, and the Fisher information of every eta."""
    y = responses.answer.astype(float)
    spread = expit(eta) * expit(-eta)
    if log_phi is None:
        return y - expit(eta), spread
    phi = np.exp(log_phi)
    alpha, beta = phi * expit(eta), phi * expit(-eta)
    if responses.trials is not None:
        n = responses.trials
        slope = digamma(y + alpha) - digamma(alpha) - digamma(n - y + beta) + digamma(beta)
        information = n * spread * (phi + 1) / (phi + n)  # quasi-likelihood, exact for phi = 0 and infinity
    else:
        slope = np.log(y) - digamma(alpha) - np.log1p(-y) + digamma(beta)
        information = (phi * spread) ** 2 * (polygamma(1, alpha) + polygamma(1, beta))
    return phi * spread * slope, information


def _log_choose(responses: Responses) -> np.ndarray:
    y, n = responses.answer.astype(float), np.asarray(responses.trials, float)
    return gammaln(n + 1) - gammaln(y + 1) - gammaln(n - y + 1)
