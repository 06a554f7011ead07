"""Tail probabilities of sums with a known variance and third moment, and control of false discoveries."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy import special, stats


def sum_tails(z: ArrayLike, skewness: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """(P(Z <= z), P(Z >= z)) of a standardised sum of independent terms.

    Z is taken as a shifted gamma variable (Pearson type III) with the given skewness, which holds far into the tails of
    binomial and Poisson-like sums where the normal is wrong by orders of magnitude.
    """
    z, skew = np.broadcast_arrays(np.asarray(z, float), np.asarray(skewness, float))
    size = np.maximum(np.abs(skew), 1e-3)
    shape = 4 / size**2
    towards = np.where(skew < 0, -z, z)
    x = np.maximum(shape + towards * np.sqrt(shape), 0.0)
    near, far = special.gammainc(shape, x), special.gammaincc(shape, x)
    plain = np.abs(skew) < 1e-3
    lower = np.where(plain, special.ndtr(z), np.where(skew < 0, far, near))
    upper = np.where(plain, special.ndtr(-z), np.where(skew < 0, near, far))
    return lower, upper


def two_sided(z: ArrayLike, skewness: ArrayLike) -> np.ndarray:
    """Twice the smaller tail probability, at most 1."""
    lower, upper = sum_tails(z, skewness)
    return np.clip(2 * np.minimum(lower, upper), 1e-300, 1.0)


def normal_score(z: ArrayLike, skewness: ArrayLike) -> np.ndarray:
    """The standard normal quantile with the same tail probability as a skewed, standardised sum."""
    lower, upper = sum_tails(z, skewness)
    return np.where(lower < upper, special.ndtri(np.maximum(lower, 1e-300)), -special.ndtri(np.maximum(upper, 1e-300)))


def chi_square_p(statistic: ArrayLike, freedom: ArrayLike) -> np.ndarray:
    """Upper tail of chi-square; 1 where there is no degree of freedom."""
    freedom = np.asarray(freedom, float)
    return np.where(freedom > 0, stats.chi2.sf(statistic, np.maximum(freedom, 1)), 1.0)


def false_discovery(p: ArrayLike) -> np.ndarray:
    """Benjamini-Hochberg q values: flagging q <= 0.05 keeps the expected share of false flags at 5 %.

    NaN (not tested) stays NaN and does not count as a test.
    """
    p = np.asarray(p, float)
    q = np.full(p.shape, np.nan)
    tested = np.isfinite(p)
    if tested.any():
        q[tested] = stats.false_discovery_control(p[tested])
    return q
