"""The first stage of a trajectory where there are answers to questions: items by Laplace, benchmark by benchmark.

Abilities of different benchmarks meet in the trajectory only, which learns their correlation; so their items are
fitted apart, in a fraction of the time that one fit with an ability per benchmark takes.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from bayes_irsl.item_fit import Run, fit_items
from bayes_irsl.responses import Responses
from bayes_irsl.spec import ItemResponse

if TYPE_CHECKING:
    from bayes_irsl.bank import ItemBank

# Benchmarks with fewer questions are fitted together with the others: scales of their own would rest on little.
LEAST_ITEMS = 5


def item_stage(
    spec: ItemResponse, responses: Responses, run: Run, anchor: ItemBank | None = None
) -> tuple[xr.Dataset, xr.Dataset, dict[str, Any]]:
    """Posterior, facts about items and subjects, and diagnostics of the item fits by Laplace.

    With ``anchor`` the items that the bank knows have its posterior as prior, and abilities are on its scale.
    """
    run = replace(run, method="laplace")
    if anchor is not None:
        return _parts(fit_items(spec, responses, run, anchor)[1])
    names = responses.items["benchmark"].astype(str)
    counts = names.value_counts()
    if spec.abilities != "benchmark" or len(counts) == 1 or counts.min() < LEAST_ITEMS:
        return _parts(fit_items(spec, responses, run)[1])
    found = {}
    for name in dict.fromkeys(names):
        of_benchmark = responses.select(items=(names == name).to_numpy())
        found[name] = _parts(fit_items(replace(spec, abilities="one"), of_benchmark, run)[1])
    order = np.asarray(responses.items.index, dtype=str)
    posterior = _joined([_own(p, name) for name, (p, _, _) in found.items()])
    constant = _joined([_facts(c, name) for name, (_, c, _) in found.items()])
    each = [d for *_, d in found.values()]
    diagnostics = {"items_converged": all(d["items_converged"] for d in each)}
    diagnostics["items_n_iterations"] = max(d["items_n_iterations"] for d in each)
    return posterior.sel(item=order), constant.sel(item=order), diagnostics


def _parts(tree: xr.DataTree) -> tuple[xr.Dataset, xr.Dataset, dict[str, Any]]:
    diagnostics = {f"items_{k}": v for k, v in json.loads(tree.attrs["diagnostics"]).items()}
    return tree.posterior.to_dataset(), tree["constant_data"].to_dataset(), diagnostics


def _own(posterior: xr.Dataset, name: str) -> xr.Dataset:
    """What one benchmark's fit knows, with the benchmark among the coordinates; one precision an item."""
    out = {}
    for label, value in posterior.data_vars.items():
        key = str(label)
        if key == "theta":
            out[key] = value.expand_dims(dimension=[name], axis=-1)
        elif key == "phi" and "item" not in value.dims:
            out[key] = value.expand_dims(item=posterior["item"], axis=-1)
        elif {"item", "benchmark"} & set(value.dims):
            out[key] = value
        else:
            out[key] = value.expand_dims(benchmark=[name], axis=-1)
    return xr.Dataset(out)


def _facts(constant: xr.Dataset, name: str) -> xr.Dataset:
    of_items = constant.drop_vars([v for v in constant.data_vars if "item" not in constant[v].dims] + ["subject"])
    return of_items.assign(item_dimension=("item", np.full(constant.sizes["item"], name)))


def _joined(parts: list[xr.Dataset]) -> xr.Dataset:
    """Every variable along the coordinate that its benchmarks differ in."""
    out = {}
    for key, first in parts[0].data_vars.items():
        along = next(d for d in ("dimension", "item", "benchmark") if d in first.dims)
        out[str(key)] = xr.concat([p[key] for p in parts], along)
    return xr.Dataset(out)
