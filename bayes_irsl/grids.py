"""Densities on equidistant grids, given by their logarithm: interpolation, blurring, moments, quantiles."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from scipy.interpolate import CubicSpline

FINE = 385  # nodes on which densities are handed on


@lru_cache
def to_fine(n_nodes: int) -> np.ndarray:
    """Matrix (n_nodes, FINE) of cubic spline interpolation from n_nodes equidistant nodes."""
    return CubicSpline(np.linspace(-1, 1, n_nodes), np.eye(n_nodes))(np.linspace(-1, 1, FINE)).T


def blurred(height: np.ndarray, sd: np.ndarray) -> np.ndarray:
    """Log of values (unit, node), given as logs, averaged over a Normal shift; sd (unit,) in nodes."""
    out = height.copy()
    for unit in np.flatnonzero(sd > 0.3):
        reach = int(min(np.ceil(5 * sd[unit]), FINE - 1))
        weights = np.exp(-0.5 * (np.arange(-reach, reach + 1) / sd[unit]) ** 2)
        peak = height[unit].max()
        values = np.exp(np.pad(height[unit] - peak, reach, mode="edge"))
        smooth = np.convolve(values, weights / weights.sum(), mode="valid")
        out[unit] = np.log(np.maximum(smooth, np.finfo(float).tiny)) + peak
    return out


def moments(theta: np.ndarray, height: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and sd (unit,) of densities on nodes theta (unit, node) with logarithm height (unit, node)."""
    density = np.exp(height)
    density /= density.sum(-1, keepdims=True)
    mean = (density * theta).sum(-1)
    return mean, np.sqrt((density * (theta - mean[..., None]) ** 2).sum(-1))


def quantiles(theta: np.ndarray, height: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Quantiles (unit, level) of the same densities; levels (level,) or (unit, level)."""
    density = np.exp(height)
    below = np.cumsum((density[:, 1:] + density[:, :-1]) / 2, axis=1)
    below = np.concatenate([np.zeros((len(below), 1)), below], axis=1) / below[:, -1:]
    levels = np.broadcast_to(levels, (len(theta), np.shape(levels)[-1]))
    return np.stack([np.interp(q, p, t) for q, p, t in zip(levels, below, theta, strict=True)])
