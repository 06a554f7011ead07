"""Tables people have, in files or in memory, to responses."""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import xarray as xr

from bayes_irsl import _validate
from bayes_irsl.errors import InputError
from bayes_irsl.responses import Responses

_SEPARATORS = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
_JSON_LINES = (".jsonl", ".ndjson")
_PARQUET = (".parquet", ".pq")
_COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".zip")
_UNREADABLE = (ValueError, KeyError, TypeError, OSError, EOFError, zlib.error, pd.errors.ParserWarning)


def read_table(
    source: str | Path | pd.DataFrame | xr.DataArray,
    *,
    layout: str | None = None,
    subject: str | Sequence[str] = "subject",
    item: str | Sequence[str] = "item",
    answer: str | None = None,
    successes: str | None = None,
    trials: Any = None,
    subjects: pd.DataFrame | Sequence[str] | None = None,
    items: pd.DataFrame | Sequence[str] | None = None,
    missing_codes: Iterable[object] = (),
    missing_as: str = "missing",
    duplicates: str = "raise",
    kind: str | None = None,
    **columns: Any,
) -> Responses:
    """Responses from a CSV, TSV, Parquet or JSON Lines file, a DataFrame, or a 2-d DataArray.

    Parameters
    ----------
    source : path, DataFrame or DataArray
        Files are told apart by their ending: .csv, .tsv, .parquet, .jsonl, text also compressed (.csv.gz).
    layout : "long" | "wide", optional
        One row an answer, or a row a subject and a column an item. Long where the columns `subject` and
        `item` are there; it is never guessed from the values.
    subject, item, answer, successes : str
        Columns of a long table, see :meth:`Responses.from_long`. In a wide one only `subject`: the column
        with the labels of the rows (a DataFrame without it uses its index).
    trials : str, int or table
        Column of trials (long); one number, one an item, or a table (wide).
    subjects, items, missing_codes, missing_as, duplicates, kind
        See :meth:`Responses.from_long`.
    **columns : str
        Columns that describe subjects or, in a long table, items: ``compute="flops"``.

    Returns
    -------
    Responses

    Raises
    ------
    InputError
        No such file, an empty one, one that is no table, an unknown layout, or an answer that cannot be used.
    """
    if layout not in (None, "long", "wide"):
        raise InputError(f"layout is 'long' or 'wide'; got {layout!r}.")
    codes = _validate.check_codes(missing_codes)
    common: dict[str, Any] = {
        "subjects": subjects,
        "items": items,
        "missing_codes": codes,
        "missing_as": missing_as,
        "kind": kind,
    }
    if isinstance(source, xr.DataArray):
        _only_long(layout == "long", answer, successes, columns, duplicates)
        return Responses.from_wide(source, trials=trials, **common)
    names = [*_listed(subject), *_listed(item)]
    if isinstance(source, (str, Path)):
        frame, in_file = _read(Path(source), [str(n) for n in names], codes), True
    else:
        frame, in_file = _validate.as_frame(source, "the table"), False
    if any(n in frame.index.names for n in names if n not in frame.columns):
        frame = frame.reset_index()
    if layout is None:
        absent = [n for n in names if n not in frame.columns]
        if absent:
            raise InputError(
                f"the table has no column {_validate.some(absent)}; its columns are "
                f"{_validate.some(frame.columns, 12)}. Name them (subject=, item=), or say layout='wide' "
                "if it has a row a subject and a column an item."
            )
    if layout != "wide":
        return Responses.from_long(
            frame,
            subject=subject,
            item=item,
            answer=answer,
            successes=successes,
            trials=trials,
            duplicates=duplicates,
            **common,
            **columns,
        )
    _only_long(False, answer, successes, {k: v for k, v in columns.items() if k not in _SUBJECT}, duplicates)
    return _wide(frame, subject, trials, {k: v for k, v in columns.items() if v is not None}, in_file, common)


_SUBJECT = _validate.SUBJECT_COLUMNS


def _listed(spec: str | Sequence[str]) -> list[str]:
    return list(spec) if isinstance(spec, (list, tuple)) else [spec]  # type: ignore[list-item]


def _only_long(asked_long: bool, answer: Any, successes: Any, columns: dict[str, Any], duplicates: str) -> None:
    """Refuse what a wide table has no place for."""
    given = {"answer": answer, "successes": successes, **columns}
    extra = [k for k, v in given.items() if v is not None] + (["duplicates"] if duplicates != "raise" else [])
    if asked_long or extra:
        what = "layout='long'" if asked_long else _validate.some(extra)
        raise InputError(
            f"{what} goes with a table that has one row an answer; in a wide one the items are the columns. "
            "Describe items by items= (a DataFrame)."
        )


def _wide(
    frame: pd.DataFrame,
    subject: str | Sequence[str],
    trials: Any,
    columns: dict[str, str],
    in_file: bool,
    common: dict[str, Any],
) -> Responses:
    names = _listed(subject)
    if in_file or any(n in frame.columns for n in names):
        labels = [_validate.column(frame, n, "subject") for n in names]
        gone = pd.concat(labels, axis=1).isna().any(axis=1)
        if gone.any():
            raise InputError(f"row {gone.idxmax()!s}, column {names[0]!r}: the subject label is missing.")
        joined = pd.concat(labels, axis=1).astype(str).agg("/".join, axis=1) if len(names) > 1 else labels[0]
        frame = frame.drop(columns=names).set_axis(pd.Index(joined, name="subject"))
    if columns:
        told = {k: _validate.column(frame, v, k) for k, v in columns.items()}
        frame = frame.drop(columns=list(columns.values()))
        own = pd.DataFrame(told).set_axis(frame.index)
        if common["subjects"] is not None:
            raise InputError("describe subjects either by columns of the table or by subjects=, not by both.")
        common = {**common, "subjects": own}
    return Responses.from_wide(frame, trials=trials, **common)


def _read(path: Path, labels: list[str], codes: Sequence[object]) -> pd.DataFrame:
    if not path.is_file():
        raise InputError(f"there is no file {str(path)!r}." if not path.exists() else f"{str(path)!r} is no file.")
    if path.stat().st_size == 0:
        raise InputError(f"{path.name} is empty.")
    endings = [s.lower() for s in path.suffixes]
    ending = endings[-2] if len(endings) > 1 and endings[-1] in _COMPRESSED else "".join(endings[-1:])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            if ending in _SEPARATORS:
                return _read_text(path, _SEPARATORS[ending], labels, codes)
            if ending in _JSON_LINES:
                return pd.read_json(path, lines=True, dtype=False)
            if ending in _PARQUET:
                return pd.read_parquet(path)
    except InputError:
        raise
    except _UNREADABLE as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{path.name} cannot be read as a {ending[1:]} table: {reason}") from None
    raise InputError(
        f"{path.name}: unknown ending {ending!r}; a table is .csv, .tsv, .jsonl (also .gz) or .parquet. "
        "Anything else: read it into a DataFrame and pass that."
    )


def _read_text(path: Path, separator: str, labels: list[str], codes: Sequence[object]) -> pd.DataFrame:
    # labels stay text ("007"); the header is read by itself, for pandas renames columns that stand twice
    header = pd.read_csv(path, sep=separator, header=None, nrows=1, dtype=str).iloc[0].dropna()
    twice = header[header.duplicated()]
    if len(twice):
        raise InputError(f"{path.name} has the column {_validate.some(twice.unique())} more than once; rename one.")
    return pd.read_csv(
        path,
        sep=separator,
        index_col=False,
        low_memory=False,
        dtype=dict.fromkeys(labels, str),
        na_values=[c for c in codes if isinstance(c, str)],
    )
