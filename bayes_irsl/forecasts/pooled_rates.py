"""Success rates of several fits to the same answers as one posterior, for when no model is known to be right.

Forecasts far beyond the samples differ more between models than within them, and a mixture's interval says so. Source:
linear pools and stacking, Yao et al. (2018), "Using stacking to average Bayesian predictive distributions".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bayes_irsl._options import reals
from bayes_irsl.errors import InputError
from bayes_irsl.forecasts.rates import Rates, Sampled, Subject

Floats = npt.NDArray[np.floating]


@dataclass(frozen=True)
class Mixed:
    """One subject's rates by several fits: ``rows`` are the draws taken of each, out of ``totals``."""

    parts: tuple[Subject, ...]
    rows: tuple[npt.NDArray[np.intp], ...]
    totals: tuple[int, ...]

    def passes(self, benchmark: int, k: Floats) -> Floats:
        found = (part.passes(benchmark, k)[rows] for part, rows in zip(self.parts, self.rows, strict=True))
        return np.concatenate(list(found))

    def passes_each(self, benchmark: int, k: Floats) -> Floats:
        found, at = [], 0
        for part, rows, total in zip(self.parts, self.rows, self.totals, strict=True):
            whole = np.ones(total)
            whole[rows] = k[at : at + len(rows)]
            found.append(part.passes_each(benchmark, whole)[rows])
            at += len(rows)
        return np.concatenate(found)


def pooled(rates: Sequence[Rates], weights: Sequence[float] | None) -> Rates:
    """One posterior of the same subjects and items, each fit with draws in proportion to its weight (equal ones)."""
    share = np.ones(len(rates)) if weights is None else reals("weights", weights, "one number a fit")
    share = share / max(share.max(), 1e-300)
    if share.shape != (len(rates),) or not np.isfinite(share).all() or (share < 0).any() or not share.any():
        raise InputError(f"weights={weights!r}: expected {len(rates)} numbers of at least 0, one a fit, not all 0")
    first = rates[0]
    for other in rates[1:]:
        same = all(list(first.coords[k]) == list(other.coords.get(k, ())) for k in first.coords)
        if not same or other.items != first.items or other.benchmarks != first.benchmarks:
            raise InputError("fits to pool need the same subjects and items; fit them to the same responses")
    share = share / share.sum()
    total = min(r.n / s for r, s in zip(rates, share, strict=True) if s > 0)
    # Spread over all draws, which chains follow one another in.
    rows = tuple(
        np.linspace(0, r.n - 1, round(total * s)).round().astype(np.intp) for r, s in zip(rates, share, strict=True)
    )

    def subject(s: int) -> Subject:
        parts = [r.subject(s) for r in rates]
        sampled = [part for part in parts if isinstance(part, Sampled)]
        if len(sampled) == len(parts) and all(np.array_equal(p.benchmark, sampled[0].benchmark) for p in sampled):
            taken = [part.p[at] for part, at in zip(sampled, rows, strict=True)]
            return Sampled(np.concatenate(taken), sampled[0].benchmark)
        return Mixed(tuple(parts), rows, tuple(r.n for r in rates))

    return Rates(sum(len(at) for at in rows), first.coords, first.benchmarks, first.items, subject)
