"""Answers as a Dataset that NetCDF can hold, and back."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import xarray as xr

from bayes_irsl import _validate

if TYPE_CHECKING:
    from bayes_irsl.responses import Responses


def dataset_of(responses: Responses) -> xr.Dataset:
    """Over obs_id, subject and item; missing text becomes ""."""
    data = {
        "answer": ("obs_id", responses.answer),
        "subject_index": ("obs_id", responses.subject_index),
        "item_index": ("obs_id", responses.item_index),
    }
    if responses.trials is not None:
        data["trials"] = ("obs_id", responses.trials)
    coords: dict[str, Any] = {}
    for dim, table in (("subject", responses.subjects), ("item", responses.items)):
        coords[dim] = (dim, np.asarray(table.index, dtype=str))
        for name in table.columns:
            coords[_coord_name(name, dim, coords)] = (dim, _plain(table[name]), {"column": name})
    return xr.Dataset(data, coords, {"kind": responses.kind, "notes": json.dumps(responses.notes)})


def fields_of(dataset: xr.Dataset) -> dict[str, Any]:
    """Arguments of the Responses that :func:`dataset_of` wrote."""
    tables = {}
    for dim in ("subject", "item"):
        along = {
            c.attrs.get("column", k): c.to_numpy() for k, c in dataset.coords.items() if c.dims == (dim,) and k != dim
        }
        index = pd.Index(np.asarray(dataset[dim], dtype=str), name=dim)
        table = pd.DataFrame(along, index=index)
        for name in table.columns:
            if table[name].dtype.kind not in "fiubM":
                table[name] = table[name].astype(object).where(table[name] != "", None)
        tables[dim] = _validate.describe(table, dim)
    return {
        "subject_index": dataset["subject_index"].to_numpy().astype(np.int32),
        "item_index": dataset["item_index"].to_numpy().astype(np.int32),
        "answer": dataset["answer"].to_numpy(),
        "trials": dataset["trials"].to_numpy().astype(np.int32) if "trials" in dataset else None,
        "kind": str(dataset.attrs["kind"]),
        "subjects": tables["subject"],
        "items": tables["item"],
        "notes": tuple(json.loads(dataset.attrs["notes"])),
    }


def _plain(column: pd.Series) -> np.ndarray:
    """A column that NetCDF can hold."""
    if column.dtype.kind in "fiubM" and isinstance(column.dtype, np.dtype):
        return column.to_numpy()
    return np.asarray(column.astype(object).where(column.notna(), ""), dtype=str)


def _coord_name(name: str, dim: str, taken: dict[str, Any]) -> str:
    """The column's own name, or one with the dim before it where that name is taken."""
    reserved = {"subject", "item", "obs_id", "answer", "trials", "subject_index", "item_index"}
    return f"{dim}_{name}" if name in taken or name in reserved else name
