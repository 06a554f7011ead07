"""The file of an item bank: NetCDF with plain variables, so that other programs can read it too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import xarray as xr

from bayes_irsl._files import replacing
from bayes_irsl.errors import InputError

if TYPE_CHECKING:
    from bayes_irsl.bank import ItemBank

FORMAT = "bayes_irsl.ItemBank 1"
_MEANING = {
    "a": "discrimination, positive: slope of the logit in theta",
    "b": "difficulty: theta at which the logit is 0, higher is harder",
    "c": "guessing floor",
    "phi": "precision",
}


def write(bank: ItemBank, path: Path) -> Path:
    """Write the bank, through a second file so that a broken run leaves no half of one."""
    draws = {name: getattr(bank, name) for name in _MEANING if getattr(bank, name) is not None}
    variables: dict[str, Any] = {
        name: (("draw", "item"), np.ascontiguousarray(value), {"long_name": _MEANING[name]})
        for name, value in draws.items()
    }
    variables |= {f"edge_{name}": (("draw", "item"), np.ascontiguousarray(v)) for name, v in bank.edges.items()}
    if bank.links is not None:
        variables["links"] = (("link", "draw", "r_s"), bank.links)
    kinds = {}
    for name in bank.items.columns:
        values, kinds[str(name)] = _plain(bank.items[name])
        variables[f"item_{name}"] = ("item", values)
    attrs = {
        "format": FORMAT,
        "likelihood": bank.likelihood,
        "scale": bank.scale,
        "scale_id": bank.scale_id,
        "prior": json.dumps(bank.prior),
        "squeeze": json.dumps(bank.squeeze),
        "theta_range": json.dumps(dict(bank.theta_range)),
        "columns": json.dumps(kinds),
        "edges": json.dumps(list(bank.edges)),
    }
    dataset = xr.Dataset(variables, coords={"item": np.asarray(bank.items.index, dtype=str)}, attrs=attrs)
    repeated = [name for name in variables if name in ("c", "phi") or name.startswith("edge_")]
    with replacing(path) as part:
        dataset.to_netcdf(part, encoding={name: {"zlib": True, "complevel": 1} for name in repeated})
    return path


def read(path: Path) -> dict[str, Any]:
    """Arguments of the bank in a file; InputError where the file holds none."""
    if not path.is_file():
        raise InputError(f"there is no file {str(path)!r}; a bank is written by bank.save(path)")
    try:
        with xr.open_dataset(path) as opened:
            dataset = opened.load()
    except (OSError, ValueError) as error:
        raise InputError(f"{str(path)!r} is no NetCDF file; a bank is written by bank.save(path)") from error
    if dataset.attrs.get("format") != FORMAT:
        raise InputError(f"{str(path)!r} holds no item bank of this version; a bank is written by bank.save(path)")
    try:
        return _arguments(dataset)
    except (KeyError, TypeError, json.JSONDecodeError) as error:
        raise InputError(f"{str(path)!r} is an item bank with a part missing ({error}); save it again") from error


def _arguments(dataset: xr.Dataset) -> dict[str, Any]:
    attrs = dataset.attrs
    kinds = json.loads(attrs["columns"])
    labels = pd.Index(np.asarray(dataset["item"].values, dtype=str), name="item")
    items = pd.DataFrame(
        {name: _restored(dataset[f"item_{name}"].values, kind) for name, kind in kinds.items()}, index=labels
    )
    return {
        **{name: dataset[name].values for name in _MEANING if name in dataset},
        "edges": {name: dataset[f"edge_{name}"].values for name in json.loads(attrs["edges"])},
        "links": dataset["links"].values if "links" in dataset else None,
        "items": items,
        "likelihood": attrs["likelihood"],
        "scale": attrs["scale"],
        "scale_id": attrs["scale_id"],
        "prior": tuple(json.loads(attrs["prior"])),
        "squeeze": json.loads(attrs["squeeze"]),
        "theta_range": {name: tuple(ends) for name, ends in json.loads(attrs["theta_range"]).items()},
    }


def _plain(column: pd.Series) -> tuple[np.ndarray, str]:
    """A column as numbers or text, and what it was."""
    if column.dtype.kind == "b":
        return column.to_numpy(dtype=np.int8), "bool"
    if column.dtype.kind in "iuf" and isinstance(column.dtype, np.dtype):
        return column.to_numpy(), "number"
    if column.dtype.kind == "M":
        return np.asarray(column.astype(str), dtype=str), "date"
    return np.asarray(column.astype(object).where(column.notna(), ""), dtype=str), "text"


def _restored(values: np.ndarray, kind: str) -> Any:
    if kind == "bool":
        return values.astype(bool)
    if kind == "date":
        return pd.to_datetime(np.asarray(values, dtype=str), errors="coerce")
    if kind == "text":
        return np.array([text or None for text in values.tolist()], dtype=object)
    return values
