"""A Normal likelihood for answers in [0, 1]: what people take who have no Beta; point estimates, no posterior.

y_ij ~ Normal(sigmoid(a_j s_i + t_j), sd_j), with the penalties of weak priors: s ~ N(0, 1), log a ~ N(0, 0.5),
t ~ N(0, 2), log sd_j ~ N(m, 0.5) around a common m.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, log_ndtr, ndtri

from bayes_irsl.baselines.answers import SMALLEST, interval
from bayes_irsl.errors import InputError
from bayes_irsl.responses import Responses

SD_LOG_SLOPE, SD_ITEM, SD_LOG_SD = 0.5, 2.0, 0.5


@dataclass(frozen=True)
class NormalTable:
    """Predicts answers by Normal(sigmoid(slope_j subject_i + item_j), sd_j).

    Attributes
    ----------
    subject : (S,) logits.
    slope, item, sd : (J,) discrimination, intercept (logits), and standard deviation of the answers.
    """

    subject: np.ndarray
    slope: np.ndarray
    item: np.ndarray
    sd: np.ndarray

    def mean(self, responses: Responses) -> np.ndarray:
        """Predicted mean of each answer, (n_obs,)."""
        i, j = responses.subject_index, responses.item_index
        return expit(self.slope[j] * self.subject[i] + self.item[j])

    def log_score(self, responses: Responses, width: float = 0.01) -> np.ndarray:
        """Log probability of the interval of ``width`` that each answer falls in, (n_obs,).

        What the Normal puts below 0 or above 1 counts for the first and the last interval, which favours it.
        """
        low, high = interval(responses.answer, width)
        mean, sd = self.mean(responses), self.sd[responses.item_index]
        low, high = np.where(low <= 0, -np.inf, low), np.where(high >= 1, np.inf, high)
        # from the tail that is nearer, where differences keep their digits
        flip = mean < low
        upper = np.where(flip, mean - low, high - mean) / sd
        lower = np.where(flip, mean - high, low - mean) / sd
        mass = np.exp(log_ndtr(upper)) - np.exp(log_ndtr(lower))
        return np.log(np.maximum(mass, SMALLEST))

    def interval(self, responses: Responses, mass: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """Ends of the central interval of each answer, cut to [0, 1]."""
        half = ndtri((1 + mass) / 2) * self.sd[responses.item_index]
        mean = self.mean(responses)
        return np.clip(mean - half, 0, 1), np.clip(mean + half, 0, 1)


def normal_table(responses: Responses) -> NormalTable:
    """Fit by penalised maximum likelihood (L-BFGS); InputError where the answers are not probabilities."""
    if responses.kind != "probability":
        raise InputError(f"a Normal describes probabilities, not {responses.kind} answers; use additive_logit")
    s, j = responses.n_subjects, responses.n_items
    share = np.bincount(responses.item_index, responses.answer, j) + 0.5
    share = share / (np.bincount(responses.item_index, minlength=j) + 1)
    start = np.concatenate([np.zeros(s), np.zeros(j), np.log(share / (1 - share)), np.full(j + 1, np.log(0.2))])
    found = minimize(_objective, start, (responses,), "L-BFGS-B", jac=True, options={"maxiter": 2000})
    subject, log_slope, item, log_sd = np.split(found.x[:-1], [s, s + j, s + 2 * j])
    return NormalTable(subject, np.exp(log_slope), item, np.exp(log_sd))


def _objective(x: np.ndarray, responses: Responses) -> tuple[float, np.ndarray]:
    """Penalised minus log likelihood and its gradient; x is subjects, log slopes, items, log sds, their mean."""
    s, n_items = responses.n_subjects, responses.n_items
    subject, log_slope, item, log_sd = np.split(x[:-1], [s, s + n_items, s + 2 * n_items])
    i, j = responses.subject_index, responses.item_index
    slope, sd = np.exp(log_slope)[j], np.exp(log_sd)[j]
    mean = expit(slope * subject[i] + item[j])
    z = (responses.answer - mean) / sd
    value = np.sum(np.log(sd) + 0.5 * z**2)
    d_eta = -z / sd * mean * (1 - mean)
    gradient = np.concatenate(
        [
            np.bincount(i, d_eta * slope, s),
            np.bincount(j, d_eta * slope * subject[i], n_items),
            np.bincount(j, d_eta, n_items),
            np.bincount(j, 1 - z**2, n_items),
            [0.0],
        ]
    )
    scale = np.concatenate([np.ones(s), np.full(n_items, SD_LOG_SLOPE), np.full(n_items, SD_ITEM)])
    pulled = x[: scale.size] / scale
    around = (log_sd - x[-1]) / SD_LOG_SD
    gradient[: scale.size] += pulled / scale
    gradient[scale.size : -1] += around / SD_LOG_SD
    gradient[-1] -= around.sum() / SD_LOG_SD
    return float(value + 0.5 * (pulled @ pulled + around @ around)), gradient
