"""How far a subject's success rates scatter about the item curves, which is its own.

Calibration has one precision phi for all. A model sampled nearly deterministically solves a question every time or
never, and its pass@k grows less than curves with the common phi say. Here log phi_s = log phi + v_s with
v_s ~ Normal(0, tau), given draws of curves and abilities as they are; tau is learned over all subjects of the fit.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from scipy.special import betaln, logsumexp

Floats = npt.NDArray[np.floating]

# Values of v that are weighed, of tau with tau ~ HalfNormal(1), and draws of curves at which that is done.
LOG_FACTORS = np.linspace(-4.0, 4.0, 33)
SPREADS = np.geomspace(0.02, 2.5, 25)
DRAWS, WORK = 64, 30_000_000


def log_factors(
    curves: Callable[[int, npt.NDArray[np.intp]], Floats],
    phi: Floats,
    successes: Floats,
    trials: Floats,
    rng: np.random.Generator,
) -> Floats:
    """Draws of v (n, S) for draws of phi (n, J) or (n, 1).

    Parameters
    ----------
    curves
        Rates (m, J) that the curves give a subject, at draws (m,).
    successes, trials
        Counts (S, J); cells without trials say nothing.
    """
    n, (s, j) = len(phi), successes.shape
    m = int(np.clip(WORK // (len(LOG_FACTORS) * max(s * j, 1)), 4, min(DRAWS, n)))
    chosen = np.linspace(0, n - 1, m).round().astype(np.intp)
    likelihood = np.stack(
        [_log_likelihood(curves(i, chosen), phi[chosen], successes[i], trials[i]) for i in range(s)], 1
    )
    prior = -0.5 * (LOG_FACTORS / SPREADS[:, None]) ** 2
    prior -= logsumexp(prior, axis=1, keepdims=True)
    of_spread = logsumexp(likelihood[:, :, None] + prior, axis=3).sum(1) - 0.5 * SPREADS**2 + np.log(SPREADS)
    # A draw takes the answer of one of those weighed: v depends on the data far more than on the draw of the curves.
    at = rng.integers(m, size=n)
    spread = _drawn(of_spread[at], rng)
    return np.stack([LOG_FACTORS[_drawn(likelihood[at, i] + prior[spread], rng)] for i in range(s)], 1)


def _log_likelihood(mu: Floats, phi: Floats, c: Floats, n: Floats) -> Floats:
    """log P(counts of a subject | v) but for a constant, (m, V)."""
    seen = n > 0
    mu, c, n = np.clip(mu[:, seen], 1e-9, 1 - 1e-9), c[seen], n[seen]
    phi = phi[:, seen] if phi.shape[1] > 1 else phi
    out = np.empty((len(mu), len(LOG_FACTORS)))
    for k, v in enumerate(LOG_FACTORS):
        alpha, beta = mu * phi * np.exp(v), (1 - mu) * phi * np.exp(v)
        out[:, k] = (betaln(alpha + c, beta + n - c) - betaln(alpha, beta)).sum(1)
    return out


def _drawn(log_weight: Floats, rng: np.random.Generator) -> npt.NDArray[np.intp]:
    """An index per row (n, K), with probability in proportion to its weight."""
    weight = np.exp(log_weight - log_weight.max(1, keepdims=True)).cumsum(1)
    return (weight < rng.uniform(size=(len(weight), 1)) * weight[:, -1:]).sum(1)
