"""Checks of raw answers, labels and descriptions, all before anything is traced."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd

from bayes_irsl.errors import InputError

SUBJECT_COLUMNS = ("family", "compute", "date", "run", "params", "tokens")
ITEM_COLUMNS = ("benchmark", "category", "chance", "n_options")
_POSITIVE = ("compute", "params", "tokens", "n_options")
_TEXT = ("family", "run", "benchmark", "category")
MAX_TRIALS = 2**24  # beyond it float32 cannot count one by one

Locate = Callable[[int], str]


def some(labels: Iterable[object], limit: int = 3) -> str:
    """Quote the first few labels and say how many more there are."""
    labels = list(labels)
    text = ", ".join(repr(str(x)) for x in labels[:limit])
    return text if len(labels) <= limit else f"{text} and {len(labels) - limit:,} more"


def as_frame(table: object, what: str) -> pd.DataFrame:
    """The table itself, once it is known to be a DataFrame with plain, distinct column names."""
    if not isinstance(table, pd.DataFrame):
        raise InputError(f"{what} must be a pandas DataFrame; got {type(table).__name__}.")
    if isinstance(table.columns, pd.MultiIndex):
        raise InputError(f"{what} has column names of {table.columns.nlevels} levels; join them into one.")
    twice = table.columns[table.columns.duplicated()].unique()
    if len(twice):
        raise InputError(f"{what} has the column {some(twice)} more than once; keep one or rename.")
    return table


def column(frame: pd.DataFrame, name: Hashable, role: str) -> pd.Series:
    """One column of a long table, or an error that names the columns there are."""
    try:
        return frame[name]
    except (KeyError, TypeError, ValueError):
        near = difflib.get_close_matches(str(name), [str(c) for c in frame.columns], 1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise InputError(
            f"the table has no column {name!r} for {role}.{hint} Its columns are {some(frame.columns, 12)}; "
            f"pass {role}='<column>'."
        ) from None


def number(value: object) -> float | None:
    """A Python object as a float, NaN where it is missing, None where it is no number."""
    if value is None or value is pd.NA or value is pd.NaT:
        return math.nan
    if isinstance(value, (bool, int, float, np.bool_, np.integer, np.floating, Decimal)):
        try:
            return float(value)
        except (OverflowError, ValueError):
            return None
    return None


def numbers(values: Any, locate: Locate, what: str, codes: Sequence[object] = ()) -> np.ndarray:
    """A column as float64 with NaN where it is missing; text and other objects are refused by name.

    `codes` are the values that stand for a missing answer.
    """
    series = pd.Series(values)
    if isinstance(series.dtype, pd.SparseDtype):
        series = series.sparse.to_dense()
    numeric = pd.api.types.is_numeric_dtype(series.dtype) and not pd.api.types.is_complex_dtype(series.dtype)
    if numeric:
        out = series.to_numpy(dtype=np.float64, na_value=np.nan)
    else:
        out = _parse(series.astype(object).array, locate, what, {c for c in codes if isinstance(c, str)})
    return blank_codes(out, codes)


def _parse(values: Any, locate: Locate, what: str, codes: set[str]) -> np.ndarray:
    out = np.empty(len(values))
    odd: int | None = None
    for i, value in enumerate(values):
        got = math.nan if isinstance(value, str) and value in codes else number(value)
        if got is not None:
            out[i] = got
        elif odd is None or (_is_numeric_text(values[odd]) and not _is_numeric_text(value)):
            odd = i
    if odd is not None:
        # one word turns a whole column of a text file into text: the word is what to mend, not its neighbours
        raise InputError(_no_number(values[odd], locate(odd), what))
    return out


def _is_numeric_text(value: object) -> bool:
    if not isinstance(value, str):
        return False
    try:
        float(value)
    except ValueError:
        return False
    return True


def _no_number(value: object, where: str, what: str) -> str:
    if not isinstance(value, str):
        return f"{where}: {value!r} ({type(value).__name__}) is no number; {what} must be numeric."
    hint = "It is a number written as text: convert the column with .astype(float)."
    if not _is_numeric_text(value):
        hint = (
            "Keep only numbers there: name label columns or set them as index, and if "
            f"{value!r} marks a missing answer pass missing_codes=[{value!r}]."
        )
    return f"{where}: {value!r} is text; {what} must be numeric. {hint}"


def blank_codes(values: np.ndarray, codes: Sequence[object]) -> np.ndarray:
    """Put NaN where one of the numeric `codes` stands; the input itself is left as it was."""
    numeric = [float(c) for c in codes if not isinstance(c, str)]  # type: ignore[arg-type]
    hit = np.isin(values, numeric) if numeric else np.zeros(0, dtype=bool)
    return np.where(hit, np.nan, values) if hit.any() else values


def check_codes(codes: object) -> tuple[object, ...]:
    """`missing_codes` as a tuple of numbers and texts."""
    listed = (codes,) if isinstance(codes, str) or not isinstance(codes, Iterable) else tuple(codes)
    for code in listed:
        if not isinstance(code, str) and number(code) is None:
            raise InputError(f"missing_codes takes numbers or texts, such as (-1, 'timeout'); got {code!r}.")
    return listed


def narrow(values: np.ndarray) -> np.ndarray:
    """float32 where that loses nothing (0/1, counts), else float64: 1 - 1e-12 is no 1."""
    with np.errstate(over="ignore", under="ignore"):
        out = values.astype(np.float32)
    return out if np.array_equal(out, values, equal_nan=True) else values.astype(np.float64)


def check_labels(labels: Any, what: str) -> np.ndarray:
    """Labels as text, whole floats without their '.0'; missing ones are refused by position."""
    index = pd.Index(labels) if not isinstance(labels, pd.Index) else labels
    if isinstance(index, pd.MultiIndex):
        raise InputError(f"{what} labels have {index.nlevels} levels; join them into one text each.")
    missing = np.flatnonzero(np.asarray(index.isna(), dtype=bool))
    if missing.size:
        raise InputError(f"the {what} label in row {missing[0]} is missing; every row needs one.")
    if pd.api.types.is_float_dtype(index.dtype):
        whole = np.asarray(index, dtype=np.float64)
        if np.isfinite(whole).all() and (whole == np.rint(whole)).all() and (np.abs(whole) < 2**53).all():
            return whole.astype(np.int64).astype(str)
    return np.array([str(x) for x in index], dtype=object).astype(str) if len(index) else np.zeros(0, dtype=str)


def check_unique(labels: np.ndarray, what: str) -> None:
    """Refuse a label that stands twice."""
    twice = pd.Index(labels).duplicated()
    if twice.any():
        raise InputError(
            f"{what} labels must be distinct; {some(dict.fromkeys(labels[twice]))} stands more than once. "
            "Rename or merge them (repeats of one question belong in a long table with duplicates='sum')."
        )


def unknown(asked: Iterable[str], known: Iterable[str], what: str) -> InputError:
    """The error for labels that are not there, with the nearest that are."""
    asked, known = list(asked), list(known)
    near = difflib.get_close_matches(asked[0], known[:5000], 3)
    hint = f"the nearest are {some(near)}" if near else f"there are {some(known)}"
    return InputError(f"no {what} {some(asked)}; {hint}.")


def describe(frame: pd.DataFrame, what: str) -> pd.DataFrame:
    """Check the known columns of a table of subjects or items and give them one dtype each."""
    out = as_frame(frame, f"the table of {what}s").copy()
    out.columns = [str(c) for c in out.columns]

    def locate_in(name: str) -> Locate:
        return lambda i: f"{what} {str(out.index[i])!r}, column {name!r}"

    for name in out.columns:
        locate = locate_in(name)
        if name in _POSITIVE:
            known = _bounded(numbers(out[name], locate, name), locate, name, low=0.0, high=np.inf)
            whole = name == "n_options" and bool((known == np.rint(known)).all())
            out[name] = known.astype(np.int64) if whole else known
        elif name == "chance":
            out[name] = _bounded(numbers(out[name], locate, name), locate, name, low=-1e-300, high=1.0)
        elif name == "date":
            out[name] = dates(out[name], locate)
        elif name in _TEXT:
            text = [None if missing else str(x) for x, missing in zip(out[name], out[name].isna(), strict=True)]
            out[name] = pd.Series(text, index=out.index, dtype=object)
    if "benchmark" in out and out["benchmark"].isna().any():
        where = out.index[out["benchmark"].isna()]
        raise InputError(f"{what} {some(where)} has no benchmark; give every item one.")
    return out


def _bounded(values: np.ndarray, locate: Locate, name: str, low: float, high: float) -> np.ndarray:
    bad = np.flatnonzero(~np.isnan(values) & ~((values > low) & (values < high)))
    if bad.size:
        expected = "in [0, 1)" if name == "chance" else "positive and finite (NaN where it is not known)"
        raise InputError(f"{locate(bad[0])}: {values[bad[0]]:g}; {name} must be {expected}.")
    return values


def dates(values: pd.Series, locate: Locate) -> pd.Series:
    """Dates as datetime64[s]; only dates and ISO 8601 text, so that no day is taken for a month."""
    missing = np.asarray(values.isna(), dtype=bool)
    text = pd.Series(pd.NaT, index=values.index, dtype=object)
    for i, value in enumerate(values.astype(object).array):
        if missing[i]:
            continue
        if not isinstance(value, (str, date, np.datetime64)):
            raise InputError(f"{locate(i)}: {value!r}; a date must be text such as '2024-05-17', or a datetime.")
        text.iloc[i] = str(value)
    try:
        parsed = pd.to_datetime(text, format="ISO8601", errors="coerce", utc=True)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{locate(0)}: dates must be text such as '2024-05-17', or datetimes.") from None
    bad = np.flatnonzero(~missing & np.asarray(parsed.isna(), dtype=bool))
    if bad.size:
        raise InputError(f"{locate(bad[0])}: {values.iloc[bad[0]]!r} is no date; write it as '2024-05-17'.")
    return parsed.dt.tz_localize(None).astype("datetime64[s]")


def check_answers(
    answer: np.ndarray, trials: np.ndarray | None, kind: str | None, locate: Locate, scale: Callable[[], str]
) -> str:
    """Check answers that are all present, and say which kind they are.

    `scale` explains, only when asked, which columns stay within [0, 1] and which do not.
    """
    if trials is not None:
        if kind not in (None, "count"):
            raise InputError(f"trials are given, so the answers are counts; got kind={kind!r}. Drop one of the two.")
        _check_counts(answer, trials, locate)
        return "count"
    if kind == "count":
        raise InputError("kind='count' needs the number of trials behind each answer: pass trials=.")
    low, high = (answer.min(), answer.max()) if answer.size else (0.0, 0.0)
    if not (low >= 0 and high <= 1):
        raise InputError(_off_scale(answer, locate, scale))
    binary = bool(((answer == 0) | (answer == 1)).all())
    if kind == "binary" and not binary:
        i = int(np.flatnonzero((answer != 0) & (answer != 1))[0])
        raise InputError(f"{locate(i)}: {answer[i]:g}; with kind='binary' every answer is 0 or 1.")
    return kind or ("binary" if binary else "probability")


def _off_scale(answer: np.ndarray, locate: Locate, scale: Callable[[], str]) -> str:
    bad = np.flatnonzero(~((answer >= 0) & (answer <= 1)))
    cells = "; ".join(f"{locate(i)}: {answer[i]:g}" for i in bad[:3])
    more = f" ({bad.size:,} such answers)" if bad.size > 3 else ""
    values = np.unique(answer[bad])
    advice = []
    suspects = values if values.size <= 2 else values[values < 0][:3]
    if suspects.size:
        codes = ", ".join(f"{v:g}" for v in suspects)
        advice.append(f"if {codes} stands for a missing answer, pass missing_codes=[{codes}]")
    if 1.5 < values[-1] <= 100 and values[0] >= 0:
        advice.append("if these are percent, divide by 100")
    if values[0] > 0 and (values == np.rint(values)).all():
        advice.append("if these are numbers of right answers, pass trials=")
    if not advice:
        advice.append("rescale them to [0, 1]")
    return (
        f"{cells}{more}. An answer is 0 or 1, a probability in [0, 1], or a count with trials. "
        f"{scale() if values[-1] > 1.5 else ''}To mend: {'; or '.join(advice)}."
    )


def mixed_scale(answer: np.ndarray, codes: np.ndarray, labels: np.ndarray, what: str) -> str:
    """Name the columns that stay within [0, 1] and those on another scale, where both are there."""
    top = np.full(len(labels), -np.inf)
    np.maximum.at(top, codes, answer)
    small, large = labels[(top >= 0) & (top <= 1)], labels[top > 1.5]
    if not (len(small) and len(large)):
        return ""
    return f"Scales are mixed: {what} {some(large)} go above 1.5 while {some(small)} stay within [0, 1]. "


def _check_counts(successes: np.ndarray, trials: np.ndarray, locate: Locate) -> None:
    def refuse(wrong: np.ndarray, expected: str) -> None:
        bad = np.flatnonzero(wrong)
        if bad.size:
            i = int(bad[0])
            raise InputError(f"{locate(i)}: {successes[i]:g} successes of {trials[i]:g} trials; {expected}.")

    refuse(np.isnan(trials), "give the number of trials behind every answer")
    refuse(~((trials >= 1) & (trials == np.rint(trials))), "trials must be whole numbers of at least 1")
    refuse(trials > MAX_TRIALS, f"at most {MAX_TRIALS:,} trials can be held exactly")
    refuse(
        successes != np.rint(successes),
        "successes must be whole numbers; for a share s of n trials pass round(s * n), or leave trials out",
    )
    refuse(~((successes >= 0) & (successes <= trials)), "successes lie between 0 and trials")


def common_denominator(answer: np.ndarray, largest: int = 100) -> int | None:
    """Smallest n up to `largest` for which every probability is a multiple of 1/n, where there is one."""
    sample = np.unique(answer[:: max(1, answer.size // 2000)]).astype(np.float64)
    for n in range(2, largest + 1):
        if _multiples(sample, n):
            return n if _multiples(answer.astype(np.float64), n) else None
    return None


def item_denominators(answer: np.ndarray, item: np.ndarray, n_items: int, largest: int = 100) -> np.ndarray:
    """Smallest n up to `largest` of each item, 0 where there is none or under three values tell: (n_items,)."""
    step = max(1, answer.size // 200_000)
    pairs = np.unique(np.stack([item[::step], answer[::step]]).astype(np.float64), axis=1)
    item, value = pairs[0].astype(int), pairs[1]
    inner = np.bincount(item, (value > 0) & (value < 1), n_items)
    found = np.zeros(n_items, int)
    for n in range(largest, 1, -1):
        found[np.bincount(item, _off(value, n), n_items) == 0] = n
    return np.where(inner >= 3, found, 0)


def _multiples(values: np.ndarray, n: int) -> bool:
    return not _off(values, n).any()


def _off(values: np.ndarray, n: int) -> np.ndarray:
    """Whether a value is no multiple of 1/n."""
    scaled = values * n
    return np.abs(scaled - np.rint(scaled)) > 2e-7 * n
