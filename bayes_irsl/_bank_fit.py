"""From a fit to a bank: draws of the items, and what the calibration knew of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import xarray as xr

from bayes_irsl.answers import LIKELIHOODS
from bayes_irsl.errors import InputError
from bayes_irsl.responses import Responses

if TYPE_CHECKING:
    from bayes_irsl.fitting import Fit

# An item is called prior-led where its intercept keeps more than this share of its prior sd, and more than this many
# logits. One answer leaves 0.83 of a prior sd of 2, five like answers leave 0.64. Under a prior that many like items
# have made narrow, an item may keep most of the prior sd and still be known well.
PRIOR_LED, LOOSE = 0.75, 0.5
PRIOR_LED_MEANS = f"posterior sd above {PRIOR_LED:g} of prior sd, and above {LOOSE:g} logits"


def arguments(fit: Fit, draws: int, seed: int) -> dict[str, Any]:
    """Arguments of the bank of a fit, except for its scale."""
    if isinstance(draws, bool) or not isinstance(draws, int | np.integer) or draws < 1:
        raise InputError(f"draws = {draws!r}: expected a whole number of at least 1")
    posterior = fit.tree["posterior"].to_dataset().stack(sample=("chain", "draw"))
    n = posterior.sizes["sample"]
    thin = posterior.isel(sample=np.sort(np.random.default_rng(seed).choice(n, min(draws, n), replace=False)))
    return from_draws(fit, thin, posterior)


def from_draws(fit: Fit, thin: xr.Dataset, posterior: xr.Dataset) -> dict[str, Any]:
    """The same with the draws of ``thin``, dim "sample", out of the fit's whole posterior."""

    def column(name: str) -> np.ndarray | None:
        if name not in thin:
            return None
        value = thin[name].transpose("sample", ...).to_numpy()
        return value if value.ndim == 2 else value[:, None]

    parameters = LIKELIHOODS[fit.spec.likelihood].parameters
    return {
        "a": column("a"),
        "b": column("b"),
        "c": column("c"),
        "phi": column("phi"),
        "edges": {name: column(name) for name in parameters if name != "log_phi"},
        "items": item_facts(fit, posterior),
        "likelihood": fit.spec.likelihood,
        "squeeze": fit.spec.squeeze if fit.spec.likelihood == "beta" else None,
        "theta_range": _ability_range(fit.responses, posterior),
    }


def item_facts(fit: Fit, posterior: xr.Dataset | None = None) -> pd.DataFrame:
    """Items in the order of the fit, and what the calibration knew of each; ``posterior`` has one dim "sample"."""
    if posterior is None:
        posterior = fit.tree["posterior"].to_dataset().stack(sample=("chain", "draw"))
    labels = np.asarray(posterior["item"].values, dtype=str)
    items = fit.responses.items.loc[labels].copy()
    if fit.spec.abilities != "one":
        items["dimension"] = np.asarray(fit.tree["constant_data"]["item_dimension"].values, dtype=str)
    items["curve"] = fit.spec.curve
    return items.join(_calibration(fit.responses, posterior, labels))


def _calibration(responses: Responses, posterior: xr.Dataset, labels: np.ndarray) -> pd.DataFrame:
    """Answers behind each item, whether they vary, and how far they moved the prior."""
    counts = np.bincount(responses.item_index, minlength=responses.n_items)
    out = pd.DataFrame({"n_answers": counts}, index=responses.items.index).loc[labels]
    out["no_variation"] = out.index.isin(responses.constant_items())
    if responses.trials is not None:
        trials = pd.Series(responses.trials).groupby(responses.item_index).median()
        trials = trials.reindex(np.arange(responses.n_items), fill_value=trials.median())
        trials.index = responses.items.index
        out["trials"] = trials.loc[labels].round().astype(int)
    if {"mean_intercept", "sd_intercept"} <= set(posterior):
        prior = (posterior["sd_intercept"] ** 2).mean("sample") + posterior["mean_intercept"].var("sample")
        of_item = np.asarray(responses.items.loc[labels, "benchmark"], dtype=str)
        prior_sd = np.sqrt(prior.to_series().reindex(of_item).to_numpy())
        sd = (posterior["a"] * posterior["b"]).std("sample").to_numpy()
        out["sd_ratio"] = sd / prior_sd
        out["prior_led"] = ~(out["sd_ratio"] <= PRIOR_LED) & ~(sd <= LOOSE)
    return out


def _ability_range(responses: Responses, posterior: xr.Dataset) -> dict[str, tuple[float, float]]:
    """Lowest and highest posterior mean ability of the subjects with answers, by dimension."""
    answered = np.bincount(responses.subject_index, minlength=responses.n_subjects) > 0
    labels = np.asarray(responses.subjects.index[answered], dtype=str)
    theta = posterior["theta"].mean("sample").sel(subject=labels)
    if "dimension" not in theta.dims:
        return {"ability": (float(theta.min()), float(theta.max()))}
    ends = zip(theta["dimension"].values, theta.min("subject").values, theta.max("subject").values, strict=True)
    return {str(name): (float(lo), float(hi)) for name, lo, hi in ends}
