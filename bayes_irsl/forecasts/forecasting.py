"""Forecasts of subjects that nobody has evaluated: ability, item probabilities, accuracy, with draws and intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import xarray as xr
from numpy.typing import ArrayLike

from bayes_irsl._options import check_mass, check_seed
from bayes_irsl.covariates import layout
from bayes_irsl.errors import InputError
from bayes_irsl.forecasts.extrapolate import new_abilities
from bayes_irsl.forecasts.new_scores import ItemDraws, chosen, dimensions, item_draws
from bayes_irsl.forecasts.places import places
from bayes_irsl.spec import AbilityTrajectory, RepeatedSampling

if TYPE_CHECKING:
    from bayes_irsl.fitting import Fit

Floats = npt.NDArray[np.floating]

KINDS = ("accuracy", "ability", "item", "loss")
PARTS = ("trend", "group", "subject", "items", "measuring")


def forecast(
    fit: Fit,
    *,
    compute: ArrayLike | None = None,
    params: ArrayLike | None = None,
    tokens: ArrayLike | None = None,
    tokens_per_param: float | None = None,
    pool: str | Sequence[str | None] | None = None,
    run: str | Sequence[str | None] | None = None,
    extra: Mapping[str, Any] | None = None,
    kind: str = "accuracy",
    benchmark: str | Sequence[str] | None = None,
    population: bool = False,
    measured: bool = False,
    mass: float = 0.9,
    seed: int = 0,
) -> xr.Dataset:
    """What subjects at a given compute will score, given everything the fit knows and does not know.

    Parameters
    ----------
    fit
        Of an :class:`AbilityTrajectory`.
    compute, params, tokens, tokens_per_param
        The places: training FLOP, or parameters and tokens, one number or several. A fit over parameters and tokens
        takes compute together with ``tokens_per_param``.
    pool
        Group (family, recipe), or several; None is a group that the fit has not seen.
    run
        Training run that the subject is a checkpoint of, for all places or one each; None is a new run.
    extra
        Values of the fit's other covariates, by name: one, or one for each place. Dates as text or in years.
    kind
        "accuracy": mean probability of a right answer over a benchmark's items. "item": of every item. "ability".
        "loss": of the fit's losses.
    benchmark
        Which benchmarks; all by default.
    population
        Accuracy on new items of the kind instead of the given ones.
    measured
        The accuracy that an evaluation would show, with the scatter of its answers, instead of the expected one.
    mass
        Mass of the equal-tailed intervals.
    seed
        Of the random numbers.

    Returns
    -------
    Dataset
        "accuracy", "ability", "loss" or (of items) "probability", with dims (draw, pool, compute, and benchmark,
        dimension, loss_name or item); its ``_mean``, ``_lower``, ``_upper``; for accuracies ``variance_share`` (part,
        ...): how much of the variance comes from the trend, the group, the run and subject itself, the items, and
        measuring; and ``beyond`` (compute): decades outside the fitted range, 0 inside; ``beyond_<covariate>`` the
        same of other covariates.

    Raises
    ------
    InputError
        A place, group, run or benchmark that the fit cannot speak of; the message says what there is.
    """
    if not hasattr(fit, "spec"):
        raise InputError(f"forecasts need a fit; this is a {type(fit).__name__}")
    if not isinstance(fit.spec, AbilityTrajectory):
        raise InputError(f"forecasts need a fit of an AbilityTrajectory; this is one of an {type(fit.spec).__name__}")
    if isinstance(fit.spec.items, RepeatedSampling) and kind not in ("ability", "loss"):
        raise InputError("this trajectory is of success rates: bi.pass_at_k(fit, k=1, compute=...) is its accuracy")
    if kind not in KINDS:
        raise InputError(f"kind={kind!r}: expected one of {list(KINDS)}")
    check_mass(mass)
    check_seed(seed)
    if population and measured:
        raise InputError("measured=True is the score on the given items: leave out population=True, or measured")
    place = layout(fit.spec, fit.responses.subjects)
    where = places(
        place, compute=compute, params=params, tokens=tokens, tokens_per_param=tokens_per_param, pool=pool, run=run,
        extra=extra,
    )  # fmt: skip
    posterior = fit.tree.posterior.to_dataset().stack(sample=("chain", "draw")).transpose("sample", ...)
    theta, shares = new_abilities(posterior, place, where, fit.spec.priors, seed)
    coords: dict[str, Any] = {
        "draw": np.arange(len(theta)),
        "pool": list(where.pools),
        "compute": where.covariates["compute"],
        **{k: ("compute", v) for k, v in where.covariates.items() if k != "compute"},
    }
    rng = np.random.default_rng([seed, 11])
    variables: dict[str, Any] = {}
    if kind != "accuracy" and (measured or population):
        raise InputError("measured and population go with kind='accuracy'")
    if kind == "ability":
        values, last, labels = np.moveaxis(theta, 1, -1), "dimension", dimensions(fit)
    elif kind == "loss":
        values, last, labels = _losses(fit, theta), "loss_name", list(fit.spec.losses)
    elif kind == "item":
        items = item_draws(fit, posterior, chosen(fit, benchmark))
        values, last, labels = items.probabilities(theta), "item", items.labels
    else:
        labels = chosen(fit, benchmark)
        items = item_draws(fit, posterior, labels, rng if population else None)
        expected = items.accuracies(theta)
        values = items.measured(theta, rng) if measured else expected
        last = "benchmark"
        variables["variance_share"] = (
            ("part", "pool", "compute", "benchmark"),
            variance_shares(values, expected, items, theta, shares),
        )
        coords["part"] = list(PARTS)
    coords[last] = list(labels)
    dims = ("draw", "pool", "compute", last)
    name = "probability" if kind == "item" else kind
    tails = [(1 - mass) / 2, (1 + mass) / 2]
    lower, upper = np.quantile(values, tails, axis=0)
    variables |= {
        name: (dims, values),
        f"{name}_mean": (dims[1:], values.mean(0)),
        f"{name}_lower": (dims[1:], lower),
        f"{name}_upper": (dims[1:], upper),
        "beyond": ("compute", where.beyond),
        **{f"beyond_{k}": ("compute", v) for k, v in where.beyond_extra.items()},
    }
    out = xr.Dataset(variables, coords)
    out.attrs = {"interval": "equal-tailed", "mass": mass, "population": int(population), "measured": int(measured)}
    return out


def _losses(fit: Fit, theta: Floats) -> Floats:
    """Losses (n, G, T, L) from abilities (n, D, G, T)."""
    if not fit.spec.losses:
        raise InputError("this fit has no losses: fit AbilityTrajectory(losses=('loss',)) with that subject column")
    scale = fit.tree["constant_data"].dataset
    standardised = np.moveaxis(theta[:, -len(fit.spec.losses) :], 1, -1)
    return np.exp(-(scale["loss_mean"].to_numpy() + scale["loss_sd"].to_numpy() * standardised))


def variance_shares(
    values: Floats, expected: Floats, items: ItemDraws, theta: Floats, shares: dict[str, Floats]
) -> Floats:
    """Shares (part, pool, compute, benchmark) of the variance of accuracies by where it comes from.

    Items: what is left with abilities at their means. Measuring: what the scatter of answers adds. The rest is the
    abilities', split as their own variances are; covariances between parts go to them in proportion.
    """
    total = np.maximum(values.var(0), 1e-300)
    measuring = np.clip(1 - expected.var(0) / total, 0, 1)
    fixed = items.accuracies(np.broadcast_to(theta.mean(0), theta.shape))
    of_items = np.minimum(fixed.var(0) / total, 1 - measuring)
    left = 1 - measuring - of_items
    own = np.stack([shares[name] for name in PARTS[:3]])
    own = own / np.maximum(own.sum(0), 1e-300)
    by_benchmark = np.moveaxis(own[:, items.dimension_of_benchmark], 1, -1)
    return np.concatenate([by_benchmark * left, of_items[None], measuring[None]])
