"""Success rates of subjects on items, draw by draw: what pass@k is made of, from every kind of fit that has counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pandas as pd
import xarray as xr
from scipy.special import expit

from bayes_irsl._validate import some
from bayes_irsl.abilities import is_aggregate
from bayes_irsl.covariates import layout
from bayes_irsl.curves import passing
from bayes_irsl.errors import InputError
from bayes_irsl.forecasts.curve_rates import concentration, count_table, curve_rates
from bayes_irsl.forecasts.extrapolate import new_abilities
from bayes_irsl.forecasts.new_scores import chosen, dimensions, item_draws
from bayes_irsl.forecasts.places import places
from bayes_irsl.repeated_fit import RATE_DIMENSIONS, counts
from bayes_irsl.spec import ItemResponse, RepeatedSampling
from bayes_irsl.tails import TAILS, Tail

if TYPE_CHECKING:
    from bayes_irsl.fitting import Fit

Floats = npt.NDArray[np.floating]

# Draws x items x values of k worked on at a time.
CHUNK = 20_000_000
# Numbers of samples between which a population's pass@k is interpolated.
GRID = np.logspace(0, 12, 481)


class Subject(Protocol):
    """Rates of one subject."""

    def passes(self, benchmark: int, k: Floats) -> Floats:
        """Mean pass@k (n, K) over the items of a benchmark at numbers of samples (K,)."""

    def passes_each(self, benchmark: int, k: Floats) -> Floats:
        """The same (n,) at a number of samples for every draw (n,)."""


@dataclass(frozen=True)
class Sampled:
    """Rates (n, J) of the items, and the benchmark (J,) of each."""

    p: Floats
    benchmark: npt.NDArray[np.intp]

    def passes(self, benchmark: int, k: Floats) -> Floats:
        p = self.p[:, self.benchmark == benchmark]
        out = np.empty((len(p), len(k)))
        step = max(1, CHUNK // max(p.size, 1))
        for at in range(0, len(k), step):
            out[:, at : at + step] = passing(p, k[at : at + step]).mean(1)
        return out

    def passes_each(self, benchmark: int, k: Floats) -> Floats:
        p = self.p[:, self.benchmark == benchmark]
        return -np.expm1(np.log1p(-np.minimum(p, 1 - 1e-16)) * k[:, None]).mean(1)


@dataclass(frozen=True)
class Population:
    """A tail with its parameters (n, B) of one subject: all items of the kind."""

    tail: Tail
    location: Floats
    shape: Floats
    never: Floats | None = None
    memo: dict[int, Floats] = field(default_factory=dict)

    def passes(self, benchmark: int, k: Floats) -> Floats:
        found = self.tail.passes(self.location[:, benchmark], self.shape[:, benchmark], k)
        solvable = 1.0 if self.never is None else expit(-self.never[:, [benchmark]])
        return solvable * found

    def passes_each(self, benchmark: int, k: Floats) -> Floats:
        if benchmark not in self.memo:
            self.memo[benchmark] = self.passes(benchmark, GRID)
        table, at = self.memo[benchmark], np.interp(np.log(k), np.log(GRID), np.arange(len(GRID)))
        low = np.minimum(at.astype(int), len(GRID) - 2)
        rows = np.arange(len(k))
        return table[rows, low] + (at - low) * (table[rows, low + 1] - table[rows, low])


@dataclass(frozen=True)
class Rates:
    """Rates of subjects, one after another.

    Attributes
    ----------
    n : draws.
    coords : what subjects are: {"subject": names}, or the pools and compute of a forecast.
    benchmarks, items : names.
    subject : rates of the s-th, drawn when asked for.
    """

    n: int
    coords: dict[str, Any]
    benchmarks: tuple[str, ...]
    items: tuple[str, ...]
    subject: Callable[[int], Subject]

    @property
    def n_subjects(self) -> int:
        return int(np.prod([len(v) for v in self.coords.values()]))


class Asked(NamedTuple):
    """What is wanted of a fit: rows of S subjects, columns and benchmark codes of J items, their counts (S, J)."""

    benchmarks: tuple[str, ...]
    rows: npt.NDArray[np.intp]
    columns: npt.NDArray[np.intp]
    code: npt.NDArray[np.intp]
    successes: Floats
    trials: Floats
    population: bool
    seed: int


def given_rates(fit: Fit, subjects: Sequence[str] | None, items: Any, population: bool, seed: int) -> Rates:
    """Of the subjects of a fit, given their counts."""
    r = fit.responses
    rows = _positions(subjects, r.subjects.index, "subject")
    columns = _positions(items, r.items.index, "item")
    of_item = np.asarray(r.items["benchmark"], dtype=str)[columns]
    benchmarks = tuple(dict.fromkeys(of_item.tolist()))
    code = np.array([benchmarks.index(v) for v in of_item], np.intp)
    posterior = fit.tree.posterior.to_dataset().stack(sample=("chain", "draw")).transpose("sample", ...)
    asked = Asked(benchmarks, rows, columns, code, *count_table(r, rows, columns), population, seed)
    if isinstance(fit.spec, RepeatedSampling):
        subject = _repeated(fit.spec, posterior, asked)
    elif isinstance(fit.spec, ItemResponse):
        subject = _on_curves(fit, posterior, asked)
    else:
        raise InputError(f"pass@k needs a fit of RepeatedSampling, ItemResponse or AbilityTrajectory; got {fit.spec!r}")
    names = np.asarray(r.subjects.index, dtype=str)[rows].tolist()
    labels = tuple(np.asarray(r.items.index, dtype=str)[columns].tolist())
    return Rates(posterior.sizes["sample"], {"subject": names}, benchmarks, labels, subject)


def new_rates(fit: Fit, population: bool, seed: int, place: Mapping[str, Any]) -> Rates:
    """Of subjects that nobody has sampled, at the places of a trajectory: pools by compute."""
    spec, r = fit.spec.items, fit.responses
    if is_aggregate(r):
        raise InputError("scores of whole benchmarks say nothing of single questions: pass@k needs counts of each")
    facts = layout(fit.spec, r.subjects)
    where = places(facts, **place)
    posterior = fit.tree.posterior.to_dataset().stack(sample=("chain", "draw")).transpose("sample", ...)
    theta, _ = new_abilities(posterior, facts, where, fit.spec.priors, seed)
    n, _, g, t = theta.shape
    names = dimensions(fit)
    benchmarks = tuple(chosen(fit, None))
    of_item = fit.tree["constant_data"]["item_benchmark"].to_numpy().astype(str)
    code = np.array([benchmarks.index(v) for v in of_item], np.intp)
    flat = theta.reshape(n, -1, g * t)
    rng = np.random.default_rng([seed, 34])
    if isinstance(spec, RepeatedSampling):
        tail = TAILS[spec.tail]
        at = [[names.index(f"{b} {what}") for b in benchmarks] for what in RATE_DIMENSIONS]

        def subject(s: int) -> Subject:
            location, shape = (flat[:, index, s] for index in at)
            if population:
                return Population(tail, location, shape)
            none = np.zeros(len(code))
            return Sampled(tail.draw(location[:, code], shape[:, code], none, none, rng), code)

    else:
        likelihood = spec.resolve(r).likelihood
        counts(r)
        draws = item_draws(fit, posterior, list(benchmarks), rng if population else None)
        phi = concentration(posterior, likelihood)

        def subject(s: int) -> Subject:
            mu = draws.probabilities(flat[:, :, s][:, :, None, None])[:, 0, 0]
            if phi is None:
                return Sampled(mu, draws.benchmark)
            precision = phi if phi.shape[1] == mu.shape[1] else phi.mean(1, keepdims=True)
            return Sampled(_beta(mu, precision, 0.0, 0.0, rng), draws.benchmark)

    labels = tuple(fit.tree["constant_data"]["item"].to_numpy().astype(str).tolist())
    coords = {"pool": list(where.pools), "compute": where.covariates["compute"]}
    return Rates(n, coords, benchmarks, labels, subject)


def _repeated(spec: RepeatedSampling, posterior: xr.Dataset, asked: Asked) -> Callable[[int], Subject]:
    tail, code = TAILS[spec.tail], asked.code
    chosen = posterior.sel(benchmark=list(asked.benchmarks))
    parameters = [chosen[name].transpose("sample", "subject", "benchmark").to_numpy() for name in ("location", "shape")]
    never = chosen["never"].transpose("sample", "subject", "benchmark").to_numpy() if spec.never else None

    def subject(s: int) -> Subject:
        row, c, n = asked.rows[s], asked.successes[s], asked.trials[s]
        location, shape = (v[:, row] for v in parameters)
        if asked.population:
            return Population(tail, location, shape, None if never is None else never[:, row])
        rng = np.random.default_rng([asked.seed, 31, int(row)])
        p = tail.draw(location[:, code], shape[:, code], c, n, rng)
        if never is not None:
            p = np.where(_never_solved(tail, location, shape, never[:, row], c, n, code, rng), 0.0, p)
        return Sampled(p, code)

    return subject


def _never_solved(
    tail: Tail,
    location: Floats,
    shape: Floats,
    never: Floats,
    successes: Floats,
    trials: Floats,
    code: npt.NDArray[np.intp],
    rng: np.random.Generator,
) -> npt.NDArray[np.bool_]:
    """Draws (n, J) of whether an item is one that the subject never solves: none that it has solved is."""
    out = np.zeros((len(location), len(code)), bool)
    for b in np.unique(code):
        here = np.flatnonzero((code == b) & (successes == 0))
        distinct, which = np.unique(trials[here], return_inverse=True)
        # Odds: never, against solvable and missed every time.
        log_missed = tail.log_failure(location[:, b], shape[:, b], distinct)
        odds = never[:, [b]] - log_missed
        out[:, here] = rng.uniform(size=(len(location), len(here))) < expit(odds)[:, which]
    return out


def _on_curves(fit: Fit, posterior: xr.Dataset, asked: Asked) -> Callable[[int], Subject]:
    """Rates on item curves, or Beta around them."""
    curves = curve_rates(fit, posterior, asked.benchmarks, asked.columns, asked.population, asked.seed)
    of_item = curves.benchmark if asked.population else asked.code

    def subject(s: int) -> Subject:
        row = int(asked.rows[s])
        if curves.phi is None:
            return Sampled(curves.mu(row), of_item)
        c, n = (0.0, 0.0) if asked.population else (asked.successes[s], asked.trials[s])
        rng = np.random.default_rng([asked.seed, 33, row])
        return Sampled(_beta(curves.mu(row), curves.phi(row), c, n, rng), of_item)

    return subject


def _beta(mu: Floats, phi: Floats, c: Any, n: Any, rng: np.random.Generator) -> Floats:
    """Rates ~ Beta(mu phi + c, (1 - mu) phi + n - c)."""
    mu = np.clip(mu, 1e-12, 1 - 1e-12)
    return rng.beta(mu * phi + c, (1 - mu) * phi + (n - c))


def _positions(asked: Any, index: pd.Index, role: str) -> npt.NDArray[np.intp]:
    labels = np.asarray(index, dtype=str)
    if asked is None:
        return np.arange(len(labels))
    if not isinstance(asked, str | Sequence | np.ndarray | pd.Index | pd.Series):
        raise InputError(f"{role}s = {asked!r}: expected labels, such as {some(labels)}")
    wanted = [asked] if isinstance(asked, str) else [str(v) for v in asked]
    if not wanted:
        raise InputError(f"{role}s is an empty list: expected labels, or nothing for all of them")
    lookup = {label: i for i, label in enumerate(labels.tolist())}
    strange = [v for v in wanted if v not in lookup]
    if strange:
        raise InputError(f"{role}s {some(strange)} are not in the fit; there are {some(labels)}")
    twice = [v for v in dict.fromkeys(wanted) if wanted.count(v) > 1]
    if twice:
        raise InputError(f"{role}s {some(twice)} are asked for more than once")
    return np.array([lookup[v] for v in wanted], np.intp)
