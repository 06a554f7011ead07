"""Results as tables in which every estimate stands beside its interval."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from bayes_irsl._bank_fit import item_facts
from bayes_irsl.errors import InputError


def interval_name(mass: float) -> str:
    """Kind and mass of the intervals, for captions."""
    return f"equal-tailed, {mass:.0%}"


def summarise(draws: xr.DataArray, mass: float = 0.9) -> dict[str, np.ndarray]:
    """Posterior mean and equal-tailed interval over chain and draw: mean, lower, upper."""
    if not 0 < mass < 1:
        raise InputError(f"mass = {mass!r}: expected a share between 0 and 1, such as 0.9")
    values = draws.transpose("chain", "draw", ...).to_numpy()
    values = values.reshape(-1, *values.shape[2:])
    lower, upper = np.quantile(values, [(1 - mass) / 2, (1 + mass) / 2], axis=0)
    return {"mean": values.mean(0), "lower": lower, "upper": upper}


def subject_table(fit: Any, mass: float = 0.9) -> pd.DataFrame:
    """Subjects in input order: answers, mean answer, and ability with its interval (one row an ability)."""
    responses, theta = fit.responses, fit.tree["posterior"].dataset["theta"]
    count = np.bincount(responses.subject_index, minlength=responses.n_subjects)
    with np.errstate(invalid="ignore"):
        mean = np.bincount(responses.subject_index, responses.rate, responses.n_subjects) / count
    plain = pd.DataFrame({"n_answers": count, "mean_answer": mean}, index=responses.subjects.index)
    if "family" in responses.subjects.columns:
        plain.insert(0, "family", responses.subjects["family"])
    tables = []
    for name in theta["dimension"].to_numpy() if "dimension" in theta.dims else [None]:
        ability = summarise(theta if name is None else theta.sel(dimension=name), mass)
        named = {"ability": ability["mean"], "lower": ability["lower"], "upper": ability["upper"]}
        table = plain.assign(**named)
        tables.append(table if name is None else table.assign(dimension=str(name)))
    out = pd.concat(tables)
    out.attrs["interval"] = interval_name(mass)
    return out


def item_table(fit: Any, mass: float = 0.9) -> pd.DataFrame:
    """Items in input order: answers, mean answer, difficulty b, discrimination a and guessing c with intervals.

    ``no_variation`` marks items that all subjects answered alike, ``prior_led`` those whose difficulty is mostly prior.
    """
    responses, posterior = fit.responses, fit.tree["posterior"].dataset
    known = item_facts(fit)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.bincount(responses.item_index, responses.rate, responses.n_items) / known["n_answers"].to_numpy()
    out = known[["benchmark", "n_answers"]].assign(mean_answer=mean)
    for name in ("b", "a", "c"):
        if name in posterior:
            values = summarise(posterior[name], mass)
            out[name], out[f"{name}_lower"], out[f"{name}_upper"] = (
                values["mean"],
                values["lower"],
                values["upper"],
            )
    out["no_variation"] = known["no_variation"]
    out["prior_led"] = known.get("prior_led", False)
    out.attrs["interval"] = interval_name(mass)
    return out


def most_discriminating(table: pd.DataFrame, n: int = 10) -> pd.DataFrame:
    """The items whose discrimination is surely high: by the lower end of its interval.

    By the posterior mean, items with few answers would lead the list by chance. Items without variation, whose
    discrimination is nothing but its prior, and items led by their prior are barred.
    """
    sure = table[~table["no_variation"] & ~table["prior_led"]]
    return sure.sort_values("a_lower", ascending=False, kind="stable").head(n)
