"""Posteriors of scale hyperparameters that are not normal: skewed marginals, joined by the Gaussian copula.

With few answers the log of a standard deviation has a long left tail and a mean away from its mode. Along the line on
which the Gaussian approximation would move abilities and the other hyperparameters with it, the marginal posterior
p(theta*(h), h, y) |H_theta(h)|^(-1/2) is evaluated at a few points (items integrated out, abilities optimised again)
and interpolated. Source: Rue, Martino & Chopin (2009), section 3.2; copula: Chiuchiolo, van Niekerk & Rue (2023).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.interpolate import CubicSpline
from scipy.linalg import cho_solve
from scipy.special import ndtr

# Logs of scales known better than this are taken as normal.
KNOWN = 0.15
SIDE = (1.0, 2.0, 4.0)
_GRID = np.linspace(-12, 6, 1801)


class Marginal(NamedTuple):
    """Distribution of one hyperparameter in standard units of the Gaussian approximation: cdf on a grid."""

    position: int
    sd: float
    grid: np.ndarray
    cdf: np.ndarray

    def quantile(self, z: np.ndarray) -> np.ndarray:
        """Standard normal values as values of this distribution at the same level."""
        return np.interp(ndtr(z), self.cdf, self.grid)


def uncertain_scales(positive: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """Indices of the hyperparameters that are logs of scales and known badly."""
    return np.flatnonzero(positive & (np.sqrt(np.diag(covariance)) > KNOWN))


def marginals(
    profile: Callable[[np.ndarray, Any], tuple[float, Any]], h: np.ndarray, chosen: np.ndarray, covariance: np.ndarray
) -> list[Marginal]:
    """Marginals of the ``chosen`` hyperparameters.

    ``profile(h, start)`` returns the log marginal posterior at h and where it stopped, from which a point further out
    starts; ``covariance`` (n_hyper, n_hyper) is the Gaussian's.
    """
    out = []
    centre, at_mode = profile(h, None)
    for i in chosen:
        sd = float(np.sqrt(covariance[i, i]))
        line = covariance[:, i] / sd
        values = {0.0: centre}
        for sign in (-1, 1):
            start = at_mode
            for step in SIDE:
                value, start = profile(h + sign * step * line, start)
                if not np.isfinite(value):
                    break
                values[sign * step] = value
        out.append(_interpolated(int(i), sd, values))
    return out


def _interpolated(index: int, sd: float, values: dict[float, float]) -> Marginal:
    z = np.array(sorted(values))
    spline = CubicSpline(z, [values[k] for k in z])
    inside = np.clip(_GRID, z[0], z[-1])
    # Straight on beyond the last points, and never up: left of them is little more than the prior of a scale.
    slope = np.where(z[0] > _GRID, max(spline(z[0], 1), 0.3), min(spline(z[-1], 1), -1.0))
    log_density = spline(inside) + slope * (_GRID - inside)
    density = np.exp(log_density - log_density.max())
    cdf = np.cumsum(density)
    return Marginal(index, sd, _GRID, (cdf - 0.5 * density) / cdf[-1])


def moved(delta: np.ndarray, cholesky: np.ndarray, n_theta: int, skewed: list[Marginal]) -> np.ndarray:
    """Gaussian draws (n, free) of (theta, h) with the skewed marginals put in: h moves, theta follows by regression."""
    delta = delta.copy()
    change = np.zeros_like(delta[:, n_theta:])
    for marginal in skewed:
        z = delta[:, n_theta + marginal.position] / marginal.sd
        change[:, marginal.position] = marginal.sd * (marginal.quantile(z) - z)
    lower, cross = cholesky[:n_theta, :n_theta], cholesky[n_theta:, :n_theta]
    follow = -cho_solve((lower, True), lower @ cross.T)
    delta[:, :n_theta] += change @ follow.T
    delta[:, n_theta:] += change
    return delta
