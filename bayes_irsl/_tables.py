"""Long and wide tables of answers, as people have them, to cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from bayes_irsl import _validate as check
from bayes_irsl._ingest import Cells, Described, Options, align, finish, given_frame
from bayes_irsl.errors import InputError

_BLOCK_CELLS = 1_000_000
_COLUMNS = {"subject": check.SUBJECT_COLUMNS, "item": check.ITEM_COLUMNS}


def long_table(
    frame: pd.DataFrame,
    subject: str | Sequence[str],
    item: str | Sequence[str],
    answer: str | None,
    successes: str | None,
    trials: str | int | None,
    subjects: Described,
    items: Described,
    options: Options,
    columns: Mapping[str, str | None],
) -> dict[str, Any]:
    """Arguments of Responses from a table with one row an answer."""
    frame = check.as_frame(frame, "the table of answers")
    if frame.empty:
        raise InputError("the table of answers has no rows; one row an answer is expected.")
    if (trials is None) != (successes is None):
        raise InputError("counts need both successes='<column>' and trials=; got only one of them.")
    if successes is not None and answer is not None:
        raise InputError("give either answer= or successes= with trials=, not both.")
    _known_columns(columns)
    who, subject_codes = _label_codes(frame, subject, "subject")
    what, item_codes = _label_codes(frame, item, "item")

    def locate_in(name: str) -> check.Locate:
        return lambda i: (
            f"row {frame.index[i]!s}, column {name!r} "
            f"(subject {str(who[subject_codes[i]])!r}, item {str(what[item_codes[i]])!r})"
        )

    name = successes or answer or "answer"
    raw = check.column(frame, name, "successes" if successes else "answer")
    values = check.numbers(raw, locate_in(name), "answers", options.codes)
    counts = None
    if isinstance(trials, str):
        counts = check.numbers(check.column(frame, trials, "trials"), locate_in(trials), "trials")
    elif trials is not None:
        counts = np.full(len(frame), _trials_number(trials))
    values, absent = options.settle(values, counts)
    notes = options.missing_notes(absent, len(values))

    subject_known, subject_notes = _constant_columns(frame, subject_codes, who, columns, "subject")
    item_known, item_notes = _constant_columns(frame, item_codes, what, columns, "item")
    subject_frame, subject_rows = align(who, subjects, subject_known, "subject")
    item_frame, item_rows = align(what, items, item_known, "item")

    kept = np.flatnonzero(~np.isnan(values))
    values = check.narrow(values[kept])
    locate = locate_in(name)
    cells = Cells(
        subject_rows[subject_codes[kept]],
        item_rows[item_codes[kept]],
        values,
        None if counts is None else counts[kept],
        lambda i: locate(int(kept[i])),
        lambda first, second: _unlike(frame.drop(columns=[name]), kept[first], kept[second]),
    )
    notes += subject_notes + item_notes
    return finish(cells, subject_frame, item_frame, options, notes)


def _unlike(frame: pd.DataFrame, first: np.ndarray, second: np.ndarray) -> list[str]:
    """Columns in which the first thousand pairs of rows differ."""
    # as text: a cell may hold a list or an array
    left, right = (frame.iloc[rows[:1000]].reset_index(drop=True).astype(str) for rows in (first, second))
    differ = left.ne(right)
    return [str(name) for name in frame.columns[differ.any().to_numpy()]]


def wide_table(
    table: pd.DataFrame | np.ndarray | xr.DataArray,
    trials: Any,
    subjects: Described,
    items: Described,
    options: Options,
) -> dict[str, Any]:
    """Arguments of Responses from a table with a row a subject and a column an item."""
    values, (rows, row_known), (cols, col_known) = _wide_parts(table, options.codes)
    who = _wide_labels(rows, subjects, values.shape[0], "subject")
    what = _wide_labels(cols, items, values.shape[1], "item")
    subject_frame, subject_rows = align(who, subjects, row_known, "subject")
    item_frame, item_rows = align(what, items, col_known, "item")
    counts = None if trials is None else _wide_trials(trials, values.shape, who, what)

    cells, absent = _unroll(values, counts, subject_rows, item_rows, options)
    cells.locate = lambda i: (
        f"row {str(subject_frame.index[cells.subject[i]])!r}, column {str(item_frame.index[cells.item[i]])!r}"
    )
    notes = options.missing_notes(absent, values.size)
    return finish(cells, subject_frame, item_frame, options, notes)


def _known_columns(columns: Mapping[str, str | None]) -> None:
    valid = (*check.SUBJECT_COLUMNS, *check.ITEM_COLUMNS)
    for name in columns:
        if name not in valid:
            raise InputError(
                f"unknown argument {name!r}; columns can be named for {', '.join(valid)}. "
                "Anything else about subjects or items goes in subjects= or items= as a DataFrame."
            )


def _label_codes(frame: pd.DataFrame, spec: str | Sequence[str], role: str) -> tuple[np.ndarray, np.ndarray]:
    """Labels in order of appearance and the label each row carries; several columns are joined by '/'."""
    names = list(spec) if isinstance(spec, (list, tuple)) else [spec]
    if not names:
        raise InputError(f"{role}= names no column; give one, or a list of columns to join.")
    parts = []
    for name in names:
        try:
            codes, uniques = pd.factorize(check.column(frame, name, role))
        except TypeError:
            raise InputError(f"column {name!r} holds objects that cannot be labels of a {role}.") from None
        if (codes < 0).any():
            row = frame.index[int(np.flatnonzero(codes < 0)[0])]
            raise InputError(f"row {row!s}, column {name!r}: the {role} label is missing; every row needs one.")
        parts.append((check.check_labels(pd.Index(uniques), role), codes))
    if len(parts) == 1 and not pd.Index(parts[0][0]).duplicated().any():
        return parts[0][0], parts[0][1].astype(np.int32)
    text = pd.Series(parts[0][0][parts[0][1]], dtype=object)
    for labels, codes in parts[1:]:
        text = text + "/" + pd.Series(labels[codes], dtype=object)
    codes, uniques = pd.factorize(text)
    return np.asarray(uniques, dtype=str), codes.astype(np.int32)


def _constant_columns(
    frame: pd.DataFrame, codes: np.ndarray, labels: np.ndarray, columns: Mapping[str, str | None], role: str
) -> tuple[pd.DataFrame, list[str]]:
    """What the long table says of each subject or item, where it says one thing only."""
    out, notes = pd.DataFrame(index=range(len(labels))), []
    for name in _COLUMNS[role]:
        asked = columns.get(name)
        if asked is None and name not in frame:
            continue
        series = check.column(frame, asked or name, name)
        try:
            value_codes, values = pd.factorize(series)
        except TypeError:
            raise InputError(f"column {asked or name!r} holds objects that cannot be read as {name}.") from None
        filled = np.flatnonzero(value_codes >= 0)
        first = np.full(len(labels), -1)
        first[codes[filled[::-1]]] = value_codes[filled[::-1]]
        other = filled[value_codes[filled] != first[codes[filled]]]
        if other.size and (asked is not None or name == "benchmark"):
            i = int(other[0])
            label, value, before = (str(x) for x in (labels[codes[i]], series.iloc[i], values[first[codes[i]]]))
            raise InputError(
                f"row {frame.index[i]!s}, column {asked or name!r}: {value!r}, but {role} {label!r} had "
                f"{before!r} before. One {role} has one {name}; where labels are distinct only within it, "
                f"join columns: {role}=['{asked or name}', '<column>']."
            )
        if other.size:
            label = str(labels[codes[other[0]]])
            notes.append(f"column {name!r} varies within {role} {label!r} and was left out; pass {name}= to use it.")
            continue
        out[name] = pd.Series(values).reindex(first).to_numpy()
    return out, notes


def _wide_parts(table: object, codes: Sequence[object]) -> tuple[np.ndarray, tuple, tuple]:
    """Values, and labels with what is known of rows and of columns (None where the table says nothing)."""
    rows = cols = row_known = col_known = None
    if isinstance(table, xr.DataArray):
        if table.ndim != 2:
            raise InputError(f"a wide table has two dims, subject and item; got {table.dims}.")
        if set(table.dims) == {"subject", "item"}:
            table = table.transpose("subject", "item")
        row_dim, col_dim = table.dims
        rows, row_known = _dim_parts(table, row_dim)
        cols, col_known = _dim_parts(table, col_dim)
        values: Any = table.to_numpy()
    elif isinstance(table, pd.DataFrame):
        rows, cols = table.index, table.columns
        values = _frame_values(table, codes)
    elif isinstance(table, np.ma.MaskedArray):
        values = np.ma.filled(table.astype(np.float64), np.nan)
    else:
        try:
            values = np.asarray(table)
        except (TypeError, ValueError):
            raise InputError("the wide table has rows of unequal length; every row needs every column.") from None
    if values.ndim != 2 or not values.size:
        raise InputError(f"a wide table has a row a subject and a column an item; got shape {values.shape}.")
    if values.dtype.kind not in "fiub":
        values = _frame_values(pd.DataFrame(values, index=rows, columns=cols), codes)
    return values, (rows, row_known), (cols, col_known)


def _dim_parts(table: xr.DataArray, dim: Any) -> tuple[pd.Index | None, pd.DataFrame]:
    along = {str(k): c.to_numpy() for k, c in table.coords.items() if c.dims == (dim,) and k != dim}
    labels = table.indexes.get(dim)
    return labels, pd.DataFrame(along, index=range(table.sizes[dim]))


def _frame_values(table: pd.DataFrame, codes: Sequence[object]) -> np.ndarray:
    dtypes = list(dict.fromkeys(table.dtypes))
    if len(dtypes) == 1 and isinstance(dtypes[0], np.dtype) and dtypes[0].kind in "fiub":
        return table.to_numpy()
    out = np.empty(table.shape)
    for j, name in enumerate(table.columns):
        out[:, j] = check.numbers(table.iloc[:, j], _wide_locate(table.index, name), "answers", codes)
    return out


def _wide_locate(index: pd.Index, name: object) -> check.Locate:
    return lambda i: f"row {str(index[i])!r}, column {str(name)!r}"


def _wide_labels(labels: pd.Index | None, given: Described, size: int, role: str) -> np.ndarray:
    if labels is None:
        labels = pd.RangeIndex(size) if given is None else given_frame(given, role).index
        if len(labels) != size:
            raise InputError(f"{role}s= has {len(labels):,} labels but the table has {size:,} {role}s.")
    out = check.check_labels(labels, role)
    check.check_unique(out, role)
    return out


def _trials_number(trials: object) -> float:
    got = check.number(trials)
    if got is None:
        raise InputError(f"trials= is a whole number, or says where the numbers are; got {trials!r}.")
    return got


def _wide_trials(trials: Any, shape: tuple[int, int], who: np.ndarray, what: np.ndarray) -> np.ndarray:
    """Trials of every cell, as a view that takes no memory where one number serves many cells."""
    if isinstance(trials, xr.DataArray):
        if set(trials.dims) == {"subject", "item"}:
            trials = trials.transpose("subject", "item")
        trials = trials.to_numpy() if trials.ndim != 2 else trials.to_pandas()
    if isinstance(trials, (pd.DataFrame, pd.Series)):
        trials = _reindexed(trials, -1, what, "item")
        trials = _reindexed(trials, 0, who, "subject") if trials.ndim == 2 else trials
        columns = trials.to_frame() if trials.ndim == 1 else trials
        array = _frame_values(columns, ()).reshape(trials.shape)
    else:
        array = np.asarray(_trials_number(trials) if np.ndim(trials) == 0 else trials)
    if array.dtype.kind not in "fiub" or array.shape not in ((), (shape[1],), shape):
        raise InputError(
            f"trials is one number, one an item ({shape[1]:,}), or a table of shape {shape}; "
            f"got shape {array.shape} of {array.dtype}."
        )
    return np.broadcast_to(array, shape)


def _reindexed(table: Any, axis: int, labels: np.ndarray, role: str) -> Any:
    own = check.check_labels(table.axes[axis], role)
    check.check_unique(own, role)
    table = table.set_axis(pd.Index(own), axis=table.ndim - 1 if axis == -1 else axis)
    absent = ~pd.Index(labels).isin(own)
    if absent.any():
        raise InputError(f"trials= has no {role} {check.some(labels[absent])}.")
    return table.loc[labels] if table.ndim == 1 or axis == 0 else table.loc[:, labels]


def _unroll(
    values: np.ndarray,
    counts: np.ndarray | None,
    subject_rows: np.ndarray,
    item_rows: np.ndarray,
    options: Options,
) -> tuple[Cells, int]:
    """Present cells in row order, a block of rows at a time so that no second full table arises."""
    step = max(1, _BLOCK_CELLS // values.shape[1])
    parts: dict[str, list[np.ndarray]] = {"subject": [], "item": [], "answer": [], "trials": []}
    absent = 0
    for start in range(0, values.shape[0], step):
        rows = slice(start, start + step)
        block_counts = None if counts is None else counts[rows].astype(np.float64)
        block, without = options.settle(values[rows].astype(np.float64), block_counts)
        present = ~np.isnan(block)
        absent += without
        parts["subject"].append(np.repeat(subject_rows[rows], present.sum(axis=1)))
        parts["item"].append(np.broadcast_to(item_rows, block.shape)[present])
        parts["answer"].append(check.narrow(block[present]))
        if block_counts is not None:
            parts["trials"].append(block_counts[present])

    def whole(name: str) -> np.ndarray:
        return np.concatenate(parts.pop(name))

    trials = whole("trials") if counts is not None else None
    return Cells(whole("subject"), whole("item"), whole("answer"), trials, str), absent
