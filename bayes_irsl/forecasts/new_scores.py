"""From abilities of new subjects to accuracies, by draws of item curves or by the curve of a whole benchmark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import xarray as xr
from scipy.special import expit

from bayes_irsl.errors import InputError
from bayes_irsl.spec import ItemResponse

if TYPE_CHECKING:
    from bayes_irsl.fitting import Fit

Floats = npt.NDArray[np.floating]

# New items per draw that stand for a population of items.
NEW_ITEMS = 200
# Draws x places x items worked on at a time.
CHUNK = 10_000_000


@dataclass(frozen=True)
class ItemDraws:
    """Curves of J items, n draws; for scores of whole benchmarks one curve each, which is the ability's own.

    Attributes
    ----------
    labels : of the items.
    a, b, c : float (n, J) or (1, J).
    dimension, benchmark : int (J,), ability drawn on, position in ``benchmarks``.
    benchmarks : names.
    trials : int (J,), answers behind a measured value; 0 where a measurement adds nothing.
    spread : float (n, J) or (1, J), variance of a measured value over mu (1 - mu).
    """

    labels: list[str]
    a: Floats
    b: Floats
    c: Floats
    dimension: npt.NDArray[np.intp]
    benchmark: npt.NDArray[np.intp]
    benchmarks: list[str]
    trials: npt.NDArray[np.intp]
    spread: Floats

    @property
    def dimension_of_benchmark(self) -> npt.NDArray[np.intp]:
        """Dimension (B,) that (the first item of) each benchmark draws on."""
        return self.dimension[[int(np.flatnonzero(self.benchmark == k)[0]) for k in range(len(self.benchmarks))]]

    def probabilities(self, theta: Floats) -> Floats:
        """Of a right answer (n, G, T, J) at abilities (n, D, G, T)."""
        eta = self.a[:, None, None] * (np.moveaxis(theta[:, self.dimension], 1, -1) - self.b[:, None, None])
        c = self.c[:, None, None]
        return c + (1 - c) * expit(eta)

    def accuracies(self, theta: Floats) -> Floats:
        """Means over the items of each benchmark (n, G, T, B)."""
        return self._by_benchmark(theta, lambda mu, _: mu)

    def measured(self, theta: Floats, rng: np.random.Generator) -> Floats:
        """Means of answers to the items, with their scatter (n, G, T, B)."""
        if len(self.labels) == len(self.benchmarks) and (self.trials > 0).all():
            mu = self.probabilities(theta)
            return rng.binomial(self.trials, mu) / self.trials
        mean = self.accuracies(theta)
        scatter = self._by_benchmark(theta, lambda mu, spread: spread[:, None, None] * mu * (1 - mu))
        size = np.bincount(self.benchmark)
        # Mean of many independent answers: a Beta with the right mean and variance keeps it inside (0, 1).
        variance = np.minimum(scatter / size, 0.25 * mean * (1 - mean)) + 1e-300
        precision = mean * (1 - mean) / variance - 1
        return np.where(scatter > 0, rng.beta(mean * precision + 1e-12, (1 - mean) * precision + 1e-12), mean)

    def _by_benchmark(self, theta: Floats, value: Any) -> Floats:
        n, _, g, t = theta.shape
        out = np.empty((n, g, t, len(self.benchmarks)))
        step = max(1, CHUNK // (g * t * len(self.labels)))
        for at in range(0, n, step):
            part = slice(at, at + step)
            here = self._draws(part)
            values = value(here.probabilities(theta[part]), here.spread)
            for k in range(len(self.benchmarks)):
                out[part, ..., k] = values[..., self.benchmark == k].mean(-1)
        return out

    def _draws(self, part: slice) -> ItemDraws:
        def cut(v: Floats) -> Floats:
            return v if len(v) == 1 else v[part]

        return ItemDraws(
            self.labels, cut(self.a), cut(self.b), cut(self.c), self.dimension, self.benchmark, self.benchmarks,
            self.trials, cut(self.spread),
        )  # fmt: skip


def dimensions(fit: Fit) -> list[str]:
    """Names of the fit's abilities."""
    theta = fit.tree.posterior["theta"]
    return theta["dimension"].to_numpy().astype(str).tolist() if "dimension" in theta.dims else ["ability"]


def chosen(fit: Fit, benchmark: str | Sequence[str] | None) -> list[str]:
    """Benchmarks asked for, all by default; raises InputError for one that the fit does not know."""
    known = list(dict.fromkeys(fit.tree["constant_data"]["item_benchmark"].to_numpy().astype(str).tolist()))
    if benchmark is None:
        return known
    wanted = [benchmark] if isinstance(benchmark, str) else list(benchmark) if isinstance(benchmark, Iterable) else []
    if not wanted or len(set(wanted)) < len(wanted):
        raise InputError(f"benchmark = {benchmark!r}: expected some of {known}, each once, or nothing for all of them")
    for name in wanted:
        if name not in known:
            raise InputError(f"benchmark {name!r} is not in the fit; there are {known}")
    return wanted


def item_draws(
    fit: Fit, posterior: xr.Dataset, benchmarks: list[str], rng: np.random.Generator | None = None
) -> ItemDraws:
    """Curves of the items of some benchmarks; with ``rng`` new items from the benchmarks' populations instead."""
    constant = fit.tree["constant_data"].to_dataset()
    of_item = constant["item_benchmark"].to_numpy().astype(str)
    kept = np.flatnonzero(np.isin(of_item, benchmarks))
    names = dimensions(fit)
    of_dimension = constant["item_dimension"].to_numpy().astype(str)[kept]
    dimension = np.array([names.index(v) for v in of_dimension], np.intp)
    benchmark = np.array([benchmarks.index(v) for v in of_item[kept]], np.intp)
    labels = constant["item"].to_numpy().astype(str)[kept].tolist()
    trials, spread = _scatter(fit, posterior, kept)
    if "a" not in posterior:
        if rng is not None:
            raise InputError("population=True needs answers to items; these are scores of whole benchmarks")
        one = np.ones((1, len(kept)))
        c = constant["item_floor"].to_numpy()[None, kept]
        return ItemDraws(labels, one, 0 * one, c, dimension, benchmark, benchmarks, trials, spread)
    a, b = posterior["a"].to_numpy()[:, kept], posterior["b"].to_numpy()[:, kept]
    c = posterior["c"].to_numpy()[:, kept] if "c" in posterior else np.zeros((1, len(kept)))
    if rng is not None:
        return _new_items(posterior, benchmarks, benchmark, dimension, c, rng)
    return ItemDraws(labels, a, b, c, dimension, benchmark, benchmarks, trials, spread)


def _new_items(
    posterior: xr.Dataset,
    benchmarks: list[str],
    benchmark: npt.NDArray[np.intp],
    dimension: npt.NDArray[np.intp],
    c: Floats,
    rng: np.random.Generator,
) -> ItemDraws:
    """Items from the populations, guessing and abilities as some given item's."""
    of = np.repeat(np.arange(len(benchmarks)), NEW_ITEMS)
    like = np.concatenate([rng.choice(np.flatnonzero(benchmark == k), NEW_ITEMS) for k in range(len(benchmarks))])

    def of_benchmark(name: str) -> Floats:
        return posterior[name].sel(benchmark=benchmarks).to_numpy()[:, of]

    n = posterior.sizes["sample"]
    z = rng.standard_normal((2, n, len(of)))
    intercept = of_benchmark("mean_intercept") + of_benchmark("sd_intercept") * z[0]
    log_a = of_benchmark("mean_log_a")
    if "sd_log_a" in posterior:
        spread = posterior["sd_log_a"]
        log_a = log_a + (of_benchmark("sd_log_a") if "benchmark" in spread.dims else spread.to_numpy()[:, None]) * z[1]
    a = np.exp(log_a)
    none = np.zeros(len(of), np.intp)
    return ItemDraws(
        [f"new {i}" for i in range(len(of))], a, -intercept / a, c[:, like], dimension[like], of, benchmarks,
        none, np.zeros((1, len(of))),
    )  # fmt: skip


def _scatter(fit: Fit, posterior: xr.Dataset, kept: npt.NDArray[np.intp]) -> tuple[npt.NDArray[np.intp], Floats]:
    """Trials of a measurement (median over subjects), and its variance over mu (1 - mu), of some items."""
    r = fit.responses
    items = fit.spec if isinstance(fit.spec, ItemResponse) else fit.spec.items
    if r.trials is not None:
        table = pd.Series(r.trials).groupby(r.item_index).median()
        trials = np.maximum(table.reindex(kept).fillna(1).to_numpy().round(), 1).astype(np.intp)
        inflation: Any = 1.0
        if "phi" in posterior and items.resolve(r).likelihood == "beta-binomial":
            inflation = 1 + (trials - 1) / (_columns(posterior["phi"].to_numpy(), kept) + 1)
        return trials, np.atleast_2d(inflation / trials)
    if r.kind == "binary":
        return np.ones(len(kept), np.intp), np.ones((1, len(kept)))
    none = np.zeros(len(kept), np.intp)
    return none, 1 / (1 + _columns(posterior["phi"].to_numpy(), kept)) if "phi" in posterior else np.zeros(
        (1, len(kept))
    )


def _columns(phi: Floats, kept: npt.NDArray[np.intp]) -> Floats:
    return phi[:, kept] if phi.ndim == 2 else phi[:, None]
