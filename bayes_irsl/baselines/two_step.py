"""The two-step law: loss from compute, then accuracy from loss; point estimates with a residual bootstrap.

Step 1, Hoffmann et al. (2022): log L = logsumexp(e, a - alpha x) over compute, or with a second term for tokens, fitted
by L-BFGS from many starts to the *sum* of Huber losses of log residuals (the mean is so small that optimisers stop
early). Step 2: accuracy = floor + (ceiling - floor) / (1 + exp(k (L - L0))).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.optimize import least_squares, minimize
from scipy.special import expit, logsumexp

from bayes_irsl.errors import InputError

Floats = npt.NDArray[np.floating]

DELTA = 1e-3
# Starts whose objective is lowest before any step are optimised; the best two must agree to this relative difference.
REFINED = 48
AGREEMENT = 0.02
REFITS = 40


@dataclass(frozen=True)
class LossLaw:
    """L(x) = exp(e) + sum_c exp(a_c) 10^(-rate_c x_c), x in log10.

    Attributes
    ----------
    e : log of the irreducible loss.
    a, rate : (C,) log amplitudes and exponents of compute, or of parameters and tokens.
    objective : sum of Huber losses reached.
    agreed : whether the two best starts ended within 2 % of each other.
    """

    e: float
    a: Floats
    rate: Floats
    objective: float
    agreed: bool

    def __call__(self, x: Floats) -> Floats:
        """Loss at log10 covariates (n, C)."""
        return np.exp(_log_loss(np.r_[self.e, self.a, self.rate], x)[0])


def fit_loss_law(x: Floats, loss: Floats, delta: float = DELTA) -> LossLaw:
    """Fit step 1.

    Parameters
    ----------
    x : float (n, C)
        log10 of compute (C = 1), or of parameters and tokens (C = 2).
    loss : float (n,)
        Positive.
    delta
        Of the Huber loss of log residuals.

    Raises
    ------
    InputError
        Fewer points than parameters, or a loss that is not positive.
    """
    n, c = x.shape
    if n < 2 * c + 1:
        raise InputError(f"{n} losses for {2 * c + 1} parameters: the law needs at least as many")
    if not (np.isfinite(loss) & (loss > 0)).all():
        raise InputError("losses must be positive and finite")
    log_loss, centre = np.log(loss), x.mean(0)
    z = x - centre

    def objective(p: Floats) -> tuple[float, Floats]:
        value, jacobian = _log_loss(p, z)
        r = value - log_loss
        small = np.abs(r) <= delta
        huber = np.where(small, 0.5 * r**2, delta * (np.abs(r) - 0.5 * delta))
        return float(huber.sum()), jacobian.T @ np.where(small, r, delta * np.sign(r))

    low = log_loss.min()
    # Irreducible share of the least loss, share of the rest by covariate, and exponents.
    starts = []
    for share, *rates in product((0.2, 0.5, 0.8, 0.95), *[(0.1, 0.3, 0.5, 0.8)] * c):
        for part in (0.2, 0.5, 0.8) if c == 2 else (1.0,):
            rest = np.exp(log_loss.mean()) - share * np.exp(low)
            parts = np.log(rest * (np.array([part, 1 - part]) if c == 2 else np.ones(1)))
            starts.append(np.r_[low + np.log(share), parts, rates])
    starts.sort(key=lambda p: objective(p)[0])
    bounds = [(-10, low + 1.0)] + [(-30, 30)] * c + [(0.0, 3.0)] * c
    found = [
        minimize(
            objective,
            p,
            jac=True,
            method="L-BFGS-B",
            bounds=bounds,
            options={"maxiter": 2000, "ftol": 1e-13, "gtol": 1e-9},
        )
        for p in starts[:REFINED]
    ]
    found.sort(key=lambda r: r.fun)
    p = found[0].x
    agreed = found[1].fun <= found[0].fun * (1 + AGREEMENT) + 1e-12
    return LossLaw(p[0], p[1 : 1 + c] + np.log(10) * p[1 + c :] * centre, p[1 + c :], float(found[0].fun), bool(agreed))


def _log_loss(p: Floats, x: Floats) -> tuple[Floats, Floats]:
    """log L (n,) and its derivatives (n, 1 + 2 C) in (e, a, rate)."""
    c = x.shape[1]
    terms = np.c_[np.full(len(x), p[0]), p[1 : 1 + c] - np.log(10) * p[1 + c :] * x]
    value = logsumexp(terms, axis=1)
    weight = np.exp(terms - value[:, None])
    return value, np.c_[weight, -np.log(10) * weight[:, 1:] * x]


def two_step(train: pd.DataFrame, test: pd.DataFrame, rng: np.random.Generator, n: int) -> Floats:
    """Both steps; the table needs columns compute and loss. Draws of scores (n, T)."""
    if "loss" not in train or train["loss"].isna().any():
        raise InputError("column 'loss' is missing or has gaps: the two-step law needs the loss of every subject")
    x, new = (np.log10(t[["compute"]].to_numpy(float)) for t in (train, test))
    loss, score = train["loss"].to_numpy(float), train["score"].to_numpy(float)
    law, curve = fit_loss_law(x, loss), _accuracy_of_loss(loss, score, None)
    off_loss, off_score = np.log(loss / law(x)), score - _curve(curve, loss)
    inflate = np.sqrt(len(score) / max(len(score) - 4, 1))
    out = np.empty((n, len(test)))
    for i in range(n):
        if i % max(n // REFITS, 1) == 0:
            drawn = law(x) * np.exp(rng.choice(off_loss, len(loss)))
            refit = fit_loss_law(x, drawn)
            again = _accuracy_of_loss(loss, _curve(curve, loss) + rng.choice(off_score, len(score)), curve)
        ahead = refit(new) * np.exp(rng.choice(off_loss, len(test)))
        out[i] = _curve(again, ahead) + inflate * rng.choice(off_score, len(test))
    return np.clip(out, 0, 1)


def _curve(p: Floats, loss: Floats) -> Floats:
    floor, ceiling, k, middle = p
    return floor + (ceiling - floor) * expit(-k * (loss - middle))


def _accuracy_of_loss(loss: Floats, score: Floats, start: Floats | None) -> Floats:
    """Least squares of (floor, ceiling, k, middle), from several starts unless one is given."""
    span = max(float(np.ptp(loss)), 1e-3)
    bounds = ([0.0, 0.0, 0.01 / span, loss.min() - 5 * span], [1.0, 1.0, 100 / span, loss.max() + 5 * span])
    low, high = float(score.min()), float(score.max())
    starts = (
        [start]
        if start is not None
        else [
            np.array([low, min(high + up, 1.0), k / span, loss.mean() + shift * span])
            for up, k, shift in product((0.0, 0.3), (2, 6, 20), (-0.5, 0.0, 0.5))
        ]
    )
    found = [
        least_squares(lambda p: _curve(p, loss) - score, np.clip(s, *np.array(bounds)), bounds=bounds) for s in starts
    ]
    return min(found, key=lambda r: r.cost).x
