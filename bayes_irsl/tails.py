"""How success rates are spread over the items of a benchmark: what decides pass@k at large k is the left tail.

A tail has two parameters a subject. Beta: location = logit of the mean rate, shape = log alpha, the exponent of the
tail, density ~ p^(alpha - 1) near 0, so that 1 - pass@k falls like k^(-alpha) (Schaeffer 2025, arXiv 2502.17578).
Logit tails: logit p = location + exp(shape) z with z normal, logistic or Student; location = median logit. All in
float64, counts integrated exactly (Beta) or on nodes laid where the count's likelihood is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from scipy import stats
from scipy.special import betaln, expit, gammaln, logsumexp

Floats = npt.NDArray[np.floating]

# Nodes under the likelihood of a count, and how many sd (or, for none or all, e-folds) they reach.
NODES, REACH = 161, 8.0
SURE_LOW, SURE_HIGH = 1e-8, 50.0
# Nodes under the mean pass@k, from so many units below the centre to where every sample succeeds (a logit).
PASS_NODES, WIDE, ALWAYS = 301, 9.0, 20.0
DEGREES = 4.0
NARROW, SMALLEST = 1.2, 1e-300


class Tail(Protocol):
    """A two-parameter distribution of success rates over items."""

    @property
    def cavity(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """Centre and sd of wide normals over location and shape, under which a likelihood is summarised."""

    def log_likelihood(self, location: Floats, shape: Floats, successes: Floats, trials: Floats) -> Floats:
        """Log probability (G, U) of counts (U,) given parameters (G,), binomial coefficient included."""

    def draw(
        self, location: Floats, shape: Floats, successes: Floats, trials: Floats, rng: np.random.Generator
    ) -> Floats:
        """One rate for each of broadcast parameters and counts, given the counts."""

    def log_failure(self, location: Floats, shape: Floats, k: Floats) -> Floats:
        """log E(1 - p)^k (..., K) at parameters (...,) and numbers of samples (K,)."""

    def passes(self, location: Floats, shape: Floats, k: Floats) -> Floats:
        """E[1 - (1 - p)^k] (G, K) at parameters (G,), to a relative error also where it is small."""


@dataclass(frozen=True)
class BetaTail:
    """p ~ Beta(alpha, alpha (1 - m) / m), m = sigmoid(location), alpha = exp(shape)."""

    cavity: tuple[tuple[float, float], tuple[float, float]] = ((-3.0, 4.0), (-0.7, 1.5))

    @staticmethod
    def parameters(location: Any, shape: Any) -> tuple[Any, Any]:
        """alpha and beta."""
        alpha = np.exp(shape)
        return alpha, alpha * np.exp(-np.asarray(location))

    def log_likelihood(self, location: Floats, shape: Floats, successes: Floats, trials: Floats) -> Floats:
        alpha, beta = (v[:, None] for v in self.parameters(location, shape))
        seen = betaln(alpha + successes, beta + (trials - successes)) - betaln(alpha, beta)
        return log_choose(trials, successes) + seen

    def draw(
        self, location: Floats, shape: Floats, successes: Floats, trials: Floats, rng: np.random.Generator
    ) -> Floats:
        alpha, beta = self.parameters(location, shape)
        return rng.beta(alpha + successes, beta + (trials - successes))

    def log_failure(self, location: Floats, shape: Floats, k: Floats) -> Floats:
        alpha, beta = (v[..., None] for v in self.parameters(location, shape))
        return betaln(alpha, beta + k) - betaln(alpha, beta)

    def passes(self, location: Floats, shape: Floats, k: Floats) -> Floats:
        return -np.expm1(self.log_failure(location, shape, k))


@dataclass(frozen=True)
class LogitTail:
    """logit p = location + exp(shape) z; ``log_density`` is that of z, written out, since tables take it often."""

    z: Any
    log_density: Callable[[Floats], Floats]
    cavity: tuple[tuple[float, float], tuple[float, float]] = ((-3.0, 4.0), (0.4, 0.8))

    def log_likelihood(self, location: Floats, shape: Floats, successes: Floats, trials: Floats) -> Floats:
        table = np.zeros((len(location), len(trials)))
        for u in np.flatnonzero(np.asarray(trials) > 0):
            table[:, u] = logsumexp(self._nodes(location, shape, successes[u], trials[u])[1], axis=1)
        return table + log_choose(trials, successes)

    def draw(
        self, location: Floats, shape: Floats, successes: Floats, trials: Floats, rng: np.random.Generator
    ) -> Floats:
        location, shape, successes, trials = np.broadcast_arrays(location, shape, successes, trials)
        out = np.empty(location.shape)
        for count in set(zip(successes.ravel().tolist(), trials.ravel().tolist(), strict=True)):
            here = (successes == count[0]) & (trials == count[1])
            out[here] = self._draw_given(location[here], shape[here], *count, rng)
        return out

    def log_failure(self, location: Floats, shape: Floats, k: Floats) -> Floats:
        flat = self.log_likelihood(np.ravel(location), np.ravel(shape), np.zeros(len(k)), np.asarray(k, float))
        return flat.reshape(*np.shape(location), len(k))

    def passes(self, location: Floats, shape: Floats, k: Floats) -> Floats:
        # From where nobody succeeds to where everybody does: the rest of the mass always passes.
        scale = np.exp(shape)
        last = np.maximum((ALWAYS - location) / scale, WIDE)
        step = (last + WIDE) / PASS_NODES
        u = -WIDE + step[:, None] * (np.arange(PASS_NODES) + 0.5)
        mass = step[:, None] * np.exp(self.log_density(u))
        log_missed = -np.logaddexp(0, location[:, None] + scale[:, None] * u)
        found = np.stack([(mass * -np.expm1(v * log_missed)).sum(1) for v in k], 1)
        return np.minimum(found + self.z.sf(last)[:, None], 1.0)

    def _nodes(self, location: Floats, shape: Floats, c: float, n: float) -> tuple[Floats, Floats]:
        """Logits (Q,) and log masses (G, Q) of rate and count together; the ends hold all beyond for none and all."""
        if 0 < c < n:
            x = np.log(c / (n - c)) + np.sqrt(1 / c + 1 / (n - c)) * np.linspace(-REACH, REACH, NODES)
        else:
            # (1 + e^x)^-n needs more room where n is small.
            x = np.linspace(np.log(SURE_LOW / n), np.log(SURE_HIGH / n) + 20 / n, NODES)
            x = x if c == 0 else -x[::-1]
        step, scale = x[1] - x[0], np.exp(shape)[:, None]
        u = (x - location[:, None]) / scale
        # log sigmoid(x) = -log(1 + e^-x)
        density = self.log_density(u) + np.log(step / scale)
        # A density narrower than the nodes are apart is taken as its mass between them.
        narrow = np.flatnonzero(scale[:, 0] < NARROW * step)
        edges = (np.append(x, x[-1] + step) - 0.5 * step - location[narrow, None]) / scale[narrow]
        density[narrow] = np.log(np.maximum(np.diff(self.z.cdf(edges), axis=1), SMALLEST))
        mass = density - c * np.logaddexp(0, -x) - (n - c) * np.logaddexp(0, x)
        half = 0.5 * step / scale[:, 0]
        if c == 0:
            mass[:, 0] = self.z.logcdf(u[:, 0] + half)
        if c == n:
            mass[:, -1] = self.z.logsf(u[:, -1] - half)
        return x, mass

    def _draw_given(self, location: Floats, shape: Floats, c: float, n: float, rng: np.random.Generator) -> Floats:
        if n == 0:
            return expit(location + np.exp(shape) * self.z.rvs(size=len(location), random_state=rng))
        x, mass = self._nodes(location, shape, c, n)
        share = np.exp(mass - logsumexp(mass, axis=1)[:, None]).cumsum(1)
        node = np.minimum((share < rng.uniform(size=(len(location), 1))).sum(1), NODES - 1)
        step = x[1] - x[0]
        logit = x[node] + step * (rng.uniform(size=len(node)) - 0.5)
        for beyond, edge, low in ((c == 0, 0, True), (c == n, NODES - 1, False)):
            at = np.flatnonzero(node == edge) if beyond else np.zeros(0, int)
            if at.size:
                scale = np.exp(shape[at])
                bound = (x[edge] + (0.5 if low else -0.5) * step - location[at]) / scale
                u = rng.uniform(size=at.size) * (self.z.cdf(bound) if low else self.z.sf(bound))
                logit[at] = location[at] + scale * (self.z.ppf(u) if low else self.z.isf(u))
        return expit(logit)


def _normal(u: Floats) -> Floats:
    return -0.5 * u * u - 0.5 * np.log(2 * np.pi)


def _logistic(u: Floats) -> Floats:
    u = np.abs(u)
    return -u - 2 * np.log1p(np.exp(-u))


def _student(u: Floats) -> Floats:
    top = gammaln((DEGREES + 1) / 2) - gammaln(DEGREES / 2) - 0.5 * np.log(DEGREES * np.pi)
    return top - (DEGREES + 1) / 2 * np.log1p(u * u / DEGREES)


TAILS: Mapping[str, Tail] = {
    "beta": BetaTail(),
    "logit-normal": LogitTail(stats.norm, _normal),
    "logit-logistic": LogitTail(stats.logistic, _logistic),
    "logit-student": LogitTail(stats.t(DEGREES), _student),
}


def log_choose(trials: Any, successes: Any) -> Floats:
    """log C(n, c)."""
    trials, successes = (np.asarray(v, float) for v in (trials, successes))
    return gammaln(trials + 1) - gammaln(successes + 1) - gammaln(trials - successes + 1)


def with_never(log_likelihood: Floats, never: Floats, successes: Floats) -> Floats:
    """Log probability (G, U) where a share sigmoid(never) (G,) of items is never solved."""
    never = np.asarray(never, float)[:, None]
    solvable = log_likelihood - np.logaddexp(0, never)
    none = np.where(np.asarray(successes) == 0, -np.logaddexp(0, -never), -np.inf)
    return np.logaddexp(none, solvable)
