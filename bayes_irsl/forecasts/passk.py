"""pass@k from a posterior of success rates: for samples that nobody has drawn, with an interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from inspect import signature
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import xarray as xr
from numpy.typing import ArrayLike

from bayes_irsl._options import check_mass, check_seed, reals
from bayes_irsl._validate import some
from bayes_irsl.curves import passing
from bayes_irsl.errors import InputError
from bayes_irsl.forecasts.places import places
from bayes_irsl.forecasts.pooled_rates import pooled
from bayes_irsl.forecasts.rates import Rates, Sampled, Subject, given_rates, new_rates
from bayes_irsl.spec import AbilityTrajectory

if TYPE_CHECKING:
    from bayes_irsl.fitting import Fit

Floats = npt.NDArray[np.floating]

# Arguments by which a place is named, and others that may be meant.
PLACE_NAMES = tuple(n for n in signature(places).parameters if n != "place")
OWN_NAMES = ("subjects", "items", "population", "weights", "mass", "seed")
# Samples beyond which a target counts as out of reach, and steps of the bisection in log k.
MOST_SAMPLES, STEPS = 1e12, 50


def pass_at_k(
    fit: Fit | Sequence[Fit],
    k: ArrayLike = (1, 10, 100, 1000, 10_000),
    *,
    subjects: Sequence[str] | None = None,
    items: Any = None,
    population: bool = False,
    kind: str = "benchmark",
    weights: Sequence[float] | None = None,
    budget: ArrayLike | None = None,
    flops_per_sample: str | Mapping[str, float] | None = None,
    mass: float = 0.9,
    seed: int = 0,
    **place: Any,
) -> xr.Dataset:
    """Chance that at least one of k fresh samples succeeds, mean over the items of each benchmark.

    pass@k = mean over items of 1 - (1 - p)^k, with p drawn from its posterior: no plug-in, no bias. For k up to the
    samples taken :func:`bayes_irsl.curves.pass_at_k_unbiased` needs no model; beyond them a model is needed.

    Parameters
    ----------
    fit
        Of :class:`bayes_irsl.RepeatedSampling`; of an ItemResponse with likelihood "binomial" (rates on the curve) or
        "beta-binomial" (Beta around it, as wide as each subject's own counts say); or of an AbilityTrajectory of such
        answers, for a subject that nobody has sampled: pass its place (compute, or params and tokens, pool) as for
        :func:`bayes_irsl.forecast`. Several fits to the same responses are pooled into one posterior: far beyond the
        samples models differ, and a mixture of them errs less and says how much they do.
    k
        Numbers of samples, 1 to 1e12.
    subjects
        Which; all by default.
    items
        Labels of the items to average over; all by default.
    population
        For new items of the kind instead of the given ones: endlessly many by a fit of RepeatedSampling, as many as
        the fit has by one of an ItemResponse.
    kind
        "benchmark", or "item" for every item by itself.
    weights
        Of the fits where there are several; equal by default. Predictive scores are what to choose them by.
    budget, flops_per_sample
        FLOP instead of k: every subject draws budget / flops_per_sample samples, its cost being a subject column's
        name or a mapping. Fewer than one sample is no pass.
    mass
        Of the equal-tailed intervals.
    seed
        Of the random numbers.

    Returns
    -------
    Dataset
        pass_at_k (draw, subject, benchmark, k), or with item or budget in the place of benchmark or k, and
        pass_at_k_mean, _lower, _upper. For a trajectory, pool and compute in the place of subject.

    Raises
    ------
    InputError
        Answers that are no counts, unknown subjects or items, k below 1.
    """
    if kind not in ("benchmark", "item"):
        raise InputError(f"kind={kind!r}: expected 'benchmark' or 'item'")
    check_mass(mass)
    if kind == "item" and population:
        raise InputError("kind='item' is about the given items: leave population out")
    fits = _fits(fit)
    rates = _rates(fits, weights, subjects, items, population, seed, place)
    wanted, label = _samples(fits[0], rates, k, budget, flops_per_sample)
    values = _means(rates, wanted) if kind == "benchmark" else _by_item(rates, wanted)
    last = "benchmark" if kind == "benchmark" else "item"
    coords: dict[str, Any] = {"draw": np.arange(len(values)), **rates.coords}
    coords[last] = list(rates.benchmarks) if kind == "benchmark" else list(rates.items)
    coords[label] = np.asarray(k if budget is None else budget, float).reshape(-1)
    dims = ("draw", *rates.coords, last, label)
    values = values.reshape(tuple(len(coords[d]) for d in dims))
    lower, upper = np.quantile(values, [(1 - mass) / 2, (1 + mass) / 2], axis=0)
    out = xr.Dataset(
        {
            "pass_at_k": (dims, values),
            "pass_at_k_mean": (dims[1:], values.mean(0)),
            "pass_at_k_lower": (dims[1:], lower),
            "pass_at_k_upper": (dims[1:], upper),
        },
        coords,
    )
    out.attrs = {"interval": "equal-tailed", "mass": mass, "population": int(population)}
    return out


def samples_needed(
    fit: Fit | Sequence[Fit],
    target: ArrayLike,
    *,
    subjects: Sequence[str] | None = None,
    items: Any = None,
    population: bool = False,
    weights: Sequence[float] | None = None,
    mass: float = 0.9,
    seed: int = 0,
    **place: Any,
) -> xr.Dataset:
    """Fewest samples k with which the mean pass@k of a benchmark reaches a target: the inverse of :func:`pass_at_k`.

    Parameters
    ----------
    target
        pass@k to reach, between 0 and 1, one or several.
    fit, subjects, items, population, weights, mass, seed, **place
        As of :func:`pass_at_k`.

    Returns
    -------
    Dataset
        samples (draw, subject, benchmark, target), infinite where 1e12 are not enough; samples_median, _lower, _upper;
        and ``reachable`` (subject, benchmark, target), the probability that any number is enough.
    """
    check_mass(mass)
    goal = reals("target", target, "numbers between 0 and 1")
    if not ((goal > 0) & (goal < 1)).all():
        raise InputError(f"target={target!r}: expected numbers between 0 and 1")
    rates = _rates(_fits(fit), weights, subjects, items, population, seed, place)
    n = rates.n
    out = np.empty((n, rates.n_subjects, len(rates.benchmarks), len(goal)))
    for s in range(rates.n_subjects):
        subject = rates.subject(s)
        for b in range(len(rates.benchmarks)):
            for t, wanted in enumerate(goal):
                out[:, s, b, t] = _fewest(subject, b, n, wanted)
    coords = {"draw": np.arange(n), **rates.coords, "benchmark": list(rates.benchmarks), "target": goal}
    dims = ("draw", *rates.coords, "benchmark", "target")
    values = out.reshape(tuple(len(coords[d]) for d in dims))
    tails = [(1 - mass) / 2, 0.5, (1 + mass) / 2]
    # Of infinite numbers there is no interpolating.
    lower, median, upper = np.quantile(values, tails, axis=0, method="closest_observation")
    found = xr.Dataset(
        {
            "samples": (dims, values),
            "samples_median": (dims[1:], median),
            "samples_lower": (dims[1:], lower),
            "samples_upper": (dims[1:], upper),
            "reachable": (dims[1:], np.isfinite(values).mean(0)),
        },
        coords,
    )
    found.attrs = {"interval": "equal-tailed", "mass": mass, "population": int(population)}
    return found


def _fits(fit: Fit | Sequence[Fit]) -> tuple[Fit, ...]:
    from bayes_irsl.fitting import Fit

    fits = tuple(fit) if isinstance(fit, list | tuple) else (fit,)
    wrong = [type(one).__name__ for one in fits if not isinstance(one, Fit)]
    if not fits or wrong:
        got = "an empty list" if not fits else f"of type {wrong[0]}"
        raise InputError(f"fit is {got}: expected a fit, or a list of fits to the same responses")
    for i, one in enumerate(fits[1:], 2):
        if one.responses.data_hash != fits[0].responses.data_hash:
            raise InputError(
                f"fit {i} of the list is of other responses than fit 1: to pool them fit all to the same Responses"
            )
    return fits


def _rates(
    fits: Sequence[Fit],
    weights: Sequence[float] | None,
    subjects: Sequence[str] | None,
    items: Any,
    population: bool,
    seed: int,
    place: Mapping[str, Any],
) -> Rates:
    if len(fits) == 1:
        if weights is not None:
            raise InputError("weights= is for several fits: pass them as a list")
        return _rates_of(fits[0], subjects, items, population, seed, place)
    return pooled([_rates_of(fit, subjects, items, population, seed, place) for fit in fits], weights)


def _rates_of(
    fit: Fit, subjects: Sequence[str] | None, items: Any, population: bool, seed: int, place: Mapping[str, Any]
) -> Rates:
    check_seed(seed)
    if not isinstance(population, bool | np.bool_):
        raise InputError(f"population = {population!r}: expected True or False")
    strange = sorted(set(place) - set(PLACE_NAMES))
    if strange:
        raise InputError(f"unknown argument {some(strange)}: expected one of {sorted([*OWN_NAMES, *PLACE_NAMES])}")
    if isinstance(fit.spec, AbilityTrajectory):
        for name, value in (("subjects", subjects), ("items", items)):
            if value is not None:
                raise InputError(
                    f"{name}= goes with fits of sampled subjects: a trajectory forecasts subjects that nobody has "
                    "sampled on all of its items; pass compute= instead"
                )
        return new_rates(fit, population, seed, place)
    if place:
        raise InputError(
            f"{some(sorted(place))} goes with a fit of an AbilityTrajectory; this one is of {type(fit.spec).__name__}"
        )
    if population and items is not None:
        raise InputError("population=True is about new items of every benchmark: leave items out")
    return given_rates(fit, subjects, items, population, seed)


def _samples(
    fit: Fit, rates: Rates, k: ArrayLike, budget: ArrayLike | None, cost: str | Mapping[str, float] | None
) -> tuple[Floats, str]:
    """Numbers of samples (S, K), and what the last coordinate counts."""
    if budget is None:
        if cost is not None:
            raise InputError("flops_per_sample goes with budget=: FLOP to spend")
        expected = f"whole numbers from 1 to {MOST_SAMPLES:.0e}"
        samples = reals("k", k, expected)
        bad = ~((samples >= 1) & (samples <= MOST_SAMPLES) & (samples == np.floor(samples)))
        if bad.any():
            raise InputError(f"k = {samples[bad][0]}: expected {expected}")
        return np.broadcast_to(samples, (rates.n_subjects, len(samples))), "k"
    spend = reals("budget", budget, "positive FLOP")
    if not (np.isfinite(spend) & (spend > 0)).all():
        raise InputError(f"budget={budget!r}: expected positive FLOP")
    if "subject" not in rates.coords:
        raise InputError("budget= is for subjects whose cost per sample is known; a forecast takes k=")
    names = list(rates.coords["subject"])
    if isinstance(cost, str):
        if cost not in fit.responses.subjects:
            raise InputError(
                f"flops_per_sample={cost!r}: no such subject column; there are {list(fit.responses.subjects.columns)}"
            )
        cost = {str(i): float(v) for i, v in fit.responses.subjects[cost].items()}
    if not isinstance(cost, Mapping):
        raise InputError("budget= needs flops_per_sample=: a subject column, or {subject: FLOP of one sample}")
    unknown = [name for name in names if not (np.isfinite(cost.get(name, np.nan)) and cost[name] > 0)]
    if unknown:
        raise InputError(f"flops_per_sample of {some(unknown)} is missing or not positive")
    return np.floor(spend / np.array([cost[name] for name in names])[:, None] + 1e-9), "budget"


def _means(rates: Rates, k: Floats) -> Floats:
    """Mean pass@k (n, S, B, K) over the items of each benchmark, subject by subject."""
    out = np.empty((rates.n, rates.n_subjects, len(rates.benchmarks), k.shape[1]))
    for s in range(rates.n_subjects):
        subject = rates.subject(s)
        for b in range(len(rates.benchmarks)):
            out[:, s, b] = subject.passes(b, k[s])
    return out


def _by_item(rates: Rates, k: Floats) -> Floats:
    """pass@k (n, S, J, K) of every item."""
    out = []
    for s in range(rates.n_subjects):
        subject = rates.subject(s)
        if not isinstance(subject, Sampled):
            raise InputError("kind='item' is about given items, and this forecast has none")
        out.append(passing(subject.p, k[s]))
    return np.stack(out, 1)


def _fewest(subject: Subject, benchmark: int, n: int, wanted: float) -> Floats:
    """Fewest samples (n,) with which every draw's mean pass@k reaches ``wanted``; infinite beyond the most."""
    low, high = np.zeros(n), np.full(n, np.log(MOST_SAMPLES))
    reached = subject.passes_each(benchmark, np.exp(high)) >= wanted
    for _ in range(STEPS):
        middle = (low + high) / 2
        enough = subject.passes_each(benchmark, np.exp(middle)) >= wanted
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    # The real crossing, rounded up unless it is a whole number within rounding.
    return np.where(reached, np.ceil(np.exp(high) * (1 - 1e-9)), np.inf)
