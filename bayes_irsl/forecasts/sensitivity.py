"""How much a forecast owes to what was assumed: the same answers under several specs, side by side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from bayes_irsl.errors import InputError
from bayes_irsl.fitting import fit
from bayes_irsl.forecasts.forecasting import forecast
from bayes_irsl.responses import Responses
from bayes_irsl.spec import AbilityTrajectory

KEYS = ["pool", "compute", "benchmark"]


def sensitivity(
    specs: Mapping[str, AbilityTrajectory],
    responses: Responses,
    *,
    settings: Mapping[str, Any] | None = None,
    **place: Any,
) -> pd.DataFrame:
    """Fit every spec to the same answers and forecast the same places.

    Parameters
    ----------
    specs
        By name; the first is what the others are compared with. Such as ``{"floor 0": AbilityTrajectory(), "floor at
        chance": AbilityTrajectory(chance="floor"), "straight": AbilityTrajectory(priors=TrajectoryPriors(bend=0.0))}``.
    responses
        Answers, or scores of benchmarks.
    settings
        Of :func:`bayes_irsl.fit`: seed, draws, method.
    **place
        As in :func:`bayes_irsl.forecast`: compute, or params and tokens, pool, benchmark, mass.

    Returns
    -------
    DataFrame
        One row a spec, pool, compute and benchmark: mean, lower, upper of the accuracy, ``shift`` of the mean from that
        of the first spec, ``shift_in_widths`` of the first spec's interval: where it is not small, the assumption
        matters as much as the data do. Which one forecasts better is for :func:`bayes_irsl.forward_validation`.
    """
    if not specs:
        raise InputError("specs is empty: expected a dict of name to AbilityTrajectory")
    parts = []
    for name, spec in specs.items():
        if not isinstance(spec, AbilityTrajectory):
            raise InputError(f"specs[{name!r}] is a {type(spec).__name__}: expected an AbilityTrajectory")
        fitted = fit(spec, responses, progress=False, **(settings or {}))
        found = forecast(fitted, kind="accuracy", **place)
        columns = {k: found[f"accuracy_{k}"] for k in ("mean", "lower", "upper")}
        table = pd.concat([v.to_series().rename(k) for k, v in columns.items()], axis=1).reset_index()
        parts.append(table.assign(spec=name))
    out = pd.concat(parts, ignore_index=True)
    first = out[out["spec"] == next(iter(specs))].set_index(KEYS)
    of = first.loc[pd.MultiIndex.from_frame(out[KEYS])]
    out["shift"] = out["mean"].to_numpy() - of["mean"].to_numpy()
    out["shift_in_widths"] = out["shift"] / (of["upper"] - of["lower"]).to_numpy()
    return out[["spec", *KEYS, "mean", "lower", "upper", "shift", "shift_in_widths"]]
