"""From forecasts and answers to choices: which is better, how sure, and what a wrong choice costs."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import signature
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import xarray as xr
from scipy import stats

from bayes_irsl._options import check_mass
from bayes_irsl._validate import some
from bayes_irsl.covariates import layout
from bayes_irsl.errors import InputError
from bayes_irsl.forecasts.forecasting import forecast
from bayes_irsl.forecasts.scores import clustered_error
from bayes_irsl.responses import Responses

if TYPE_CHECKING:
    from bayes_irsl.fitting import Fit

Floats = npt.NDArray[np.floating]


def prob_better(fit: Fit, a: str, b: str, *, mass: float = 0.9, **place: Any) -> xr.Dataset:
    """Probability that group ``a`` scores higher than group ``b`` at the same place.

    Parameters
    ----------
    fit
        Of an :class:`AbilityTrajectory` with ``pool=``.
    a, b
        Groups (families, recipes) of the fit.
    mass
        Of the equal-tailed interval of the difference.
    **place
        compute, or params and tokens, benchmark, population, seed: as in :func:`bayes_irsl.forecast`.

    Returns
    -------
    Dataset
        probability, difference_mean, difference_lower, difference_upper (accuracy of a minus that of b), each with dims
        (compute, benchmark). Both are forecast in the same draws, so what they share cancels.
    """
    check_mass(mass)
    _no_other(place, ("pool", "kind"))
    # In one order, so that the probabilities of the two questions sum to one.
    accuracy = forecast(fit, pool=sorted([a, b], key=str), **place)["accuracy"]
    difference = accuracy.isel(pool=0, drop=True) - accuracy.isel(pool=1, drop=True)
    difference = difference if [a, b] == sorted([a, b], key=str) else -difference
    low, high = (difference.quantile(q, "draw").drop_vars("quantile") for q in ((1 - mass) / 2, (1 + mass) / 2))
    out = xr.Dataset(
        {
            "probability": (difference > 0).mean("draw") + 0.5 * (difference == 0).mean("draw"),
            "difference_mean": difference.mean("draw"),
            "difference_lower": low,
            "difference_upper": high,
        }
    )
    out.attrs = {"a": a, "b": b, "interval": "equal-tailed", "mass": mass}
    return out


def rank_probabilities(fit: Fit, pools: Sequence[str] | None = None, **place: Any) -> xr.DataArray:
    """Probability (pool, rank, compute, benchmark) that each group takes each rank; 1 is the best.

    ``pools`` are all groups of the fit by default; ``**place`` as in :func:`bayes_irsl.forecast`.
    """
    _no_other(place, ("pool", "kind"))
    names = _pools(fit, pools)
    accuracy = forecast(fit, pool=names, **place)["accuracy"]
    values = accuracy.transpose("draw", "compute", "benchmark", "pool").to_numpy()
    rank = len(names) - values.argsort(-1).argsort(-1)
    share = np.stack([(rank == r).mean(0) for r in range(1, len(names) + 1)])
    coords = {
        "pool": names,
        "rank": np.arange(1, len(names) + 1),
        "compute": accuracy["compute"].to_numpy(),
        "benchmark": accuracy["benchmark"].to_numpy(),
    }
    return xr.DataArray(np.moveaxis(share, -1, 0), coords, ("pool", "rank", "compute", "benchmark"), "probability")


def expected_regret(fit: Fit, pools: Sequence[str] | None = None, **place: Any) -> xr.Dataset:
    """What choosing a group now is expected to cost: E[best accuracy] - E[accuracy of the choice].

    Returns
    -------
    Dataset
        regret (pool, compute, benchmark) of every choice, and ``choice`` (compute, benchmark), the group of least
        regret. Its regret is what perfect knowledge would be worth; where it is small, more evaluation is not.
    """
    _no_other(place, ("pool", "kind"))
    accuracy = forecast(fit, pool=_pools(fit, pools), **place)["accuracy"]
    regret = (accuracy.max("pool") - accuracy).mean("draw")
    choice = accuracy["pool"].to_numpy()[regret.argmin("pool").to_numpy()]
    dims = tuple(d for d in regret.dims if d != "pool")
    return xr.Dataset({"regret": regret, "choice": (dims, choice)})


def compare_subjects(
    responses: Responses, a: str, b: str, *, cluster: str | None = None, mass: float = 0.9, power: float = 0.8
) -> pd.Series:
    """Paired comparison of two subjects on the questions that both answered.

    difference = mean over items of (answer of a - answer of b); its standard error is that of paired differences,
    clustered by an item column where questions come in groups (Miller 2024, "Adding error bars to evals").

    Parameters
    ----------
    a, b
        Subjects.
    cluster
        Item column whose values are dependent questions (a passage, a source).
    mass, power
        Of the interval, and of the smallest detectable difference.

    Returns
    -------
    Series
        items, clusters, difference, se, lower, upper, p (two-sided, difference 0), smallest_difference: what would be
        found significant at level 1 - mass with probability ``power`` with as many such questions.
    """
    if not isinstance(responses, Responses):
        raise InputError(f"a comparison needs Responses; got {type(responses).__name__}")
    check_mass(mass)
    if not 0 < power < 1:
        raise InputError(f"power = {power!r}: expected a number between 0 and 1, such as 0.8")
    a, b = str(a), str(b)
    table = _frame(responses)
    wide = table[table["subject"].isin([a, b])].pivot(index="item", columns="subject", values="rate")
    for name in (a, b):
        if name not in wide:
            raise InputError(f"subject {name!r} has no answers; there are {list(responses.subjects.index[:10])} ...")
    both = wide.dropna()
    if len(both) < 2:
        raise InputError(f"{a!r} and {b!r} have {len(both)} questions in common: a comparison needs two or more")
    difference = (both[a] - both[b]).to_numpy(float)
    if cluster is not None and cluster not in responses.items:
        raise InputError(f"cluster={cluster!r}: no such item column; there are {list(responses.items.columns)}")
    unit = both.index.to_numpy() if cluster is None else responses.items.loc[both.index, cluster].to_numpy()
    codes, names = pd.factorize(unit)
    g = len(names)
    if g < 2:
        raise InputError(f"all questions in common are of one {cluster}: a clustered error needs two or more")
    se = clustered_error(difference, codes)
    t = stats.t.ppf((1 + mass) / 2, g - 1)
    mean = float(difference.mean())
    p = float(2 * stats.t.sf(abs(mean) / se, g - 1)) if se > 0 else float(mean == 0)
    return pd.Series(
        {
            "items": len(difference),
            "clusters": g,
            "difference": mean,
            "se": se,
            "lower": mean - t * se,
            "upper": mean + t * se,
            "p": p,
            "smallest_difference": float(se * (t + stats.t.ppf(power, g - 1))),
        },
        name=f"{a} - {b}",
    )


def _pools(fit: Fit, pools: Sequence[str] | None) -> list[str]:
    place = layout(fit.spec, fit.responses.subjects)
    if not place.grouped:
        raise InputError("this fit has no groups to choose among; fit AbilityTrajectory(pool='family')")
    if pools is None:
        return list(place.groups)
    names = [pools] if isinstance(pools, str) else list(pools)
    if len(names) < 2:
        raise InputError(f"pools = {pools!r}: expected two groups or more to choose among, of {list(place.groups)}")
    return names


def _no_other(place: dict[str, Any], names: tuple[str, ...]) -> None:
    """Refuse what is decided here, and what a forecast does not know."""
    known = sorted(set(signature(forecast).parameters) - {"fit", *names})
    strange = sorted(set(place) - set(known))
    if strange:
        raise InputError(f"unknown argument {some(strange)}: a place is named by some of {known}")


def _frame(responses: Responses) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "subject": np.asarray(responses.subjects.index, dtype=str)[responses.subject_index],
            "item": np.asarray(responses.items.index)[responses.item_index],
            "rate": np.asarray(responses.rate, float),
        }
    )
