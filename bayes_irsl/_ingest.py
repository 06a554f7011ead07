"""What long and wide tables share on their way to :class:`bayes_irsl.responses.Responses`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from bayes_irsl import _validate as check
from bayes_irsl.errors import InputError

KINDS = ("binary", "count", "probability")
DUPLICATES = ("raise", "first", "last", "mean", "sum")
MISSING_AS = ("missing", "wrong")

type Described = pd.DataFrame | Sequence[str] | None


@dataclass(frozen=True)
class Options:
    """How to read missing and repeated answers."""

    codes: tuple[object, ...]
    missing_as: str
    duplicates: str
    kind: str | None

    @classmethod
    def checked(cls, codes: object, missing_as: str, duplicates: str, kind: str | None) -> Options:
        for name, value, valid in (
            ("missing_as", missing_as, MISSING_AS),
            ("duplicates", duplicates, DUPLICATES),
            ("kind", kind, (None, *KINDS)),
        ):
            if value not in valid:
                raise InputError(f"{name} is one of {', '.join(repr(v) for v in valid)}; got {value!r}.")
        return cls(check.check_codes(codes), missing_as, duplicates, kind)

    def settle(self, values: np.ndarray, trials: np.ndarray | None) -> tuple[np.ndarray, int]:
        """Answers with NaN where there is none, after the rule for missing ones; and how many had none."""
        values = check.blank_codes(values, self.codes)
        absent = np.isnan(values)
        if self.missing_as == "wrong":
            values = np.where(absent, 0.0, values)
        if trials is not None:
            values = np.where((trials == 0) & (values == 0), np.nan, values)
        return values, int(absent.sum())

    def missing_notes(self, absent: int, total: int) -> list[str]:
        if not absent:
            return []
        codes = f" (NaN or {', '.join(repr(c) for c in self.codes)})" if self.codes else ""
        if self.missing_as == "wrong":
            return [f"{absent:,} of {total:,} answers are missing{codes} and count as wrong: missing_as='wrong'."]
        return [f"{absent:,} of {total:,} answers are missing{codes} and left out, not counted as wrong."]


@dataclass
class Cells:
    """Answers that are present, before they are sorted.

    `locate` finds the i-th in the user's table; `unlike` names the columns in which pairs of them differ.
    """

    subject: np.ndarray
    item: np.ndarray
    answer: np.ndarray
    trials: np.ndarray | None
    locate: check.Locate
    unlike: Callable[[np.ndarray, np.ndarray], list[str]] = lambda first, second: []


def finish(
    cells: Cells, subjects: pd.DataFrame, items: pd.DataFrame, options: Options, notes: list[str]
) -> dict[str, Any]:
    if not cells.answer.size:
        raise InputError(
            f"all answers of {len(subjects):,} subjects to {len(items):,} items are missing; at least one is needed."
        )

    def scale() -> str:
        codes, labels = pd.factorize(items["benchmark"])
        if len(labels) > 1 and (text := check.mixed_scale(cells.answer, codes[cells.item], labels, "benchmarks")):
            return text
        return check.mixed_scale(cells.answer, cells.item, items.index.to_numpy(), "items")

    kind = check.check_answers(cells.answer, cells.trials, options.kind, cells.locate, scale)
    subject, item, answer, trials, kind, repeat_notes = _sort(cells, len(items), kind, options.duplicates)
    notes = [*notes, *repeat_notes]
    if kind == "probability":
        notes += _shares_of_counts(answer, item, items)
    if "compute" in subjects and subjects["compute"].max() < 1e12:
        notes.append("the largest compute is below 1e12: it is read as FLOP; rescale it if it is in another unit.")
    return {
        "subject_index": subject.astype(np.int32, copy=False),
        "item_index": item.astype(np.int32, copy=False),
        "answer": answer,
        "trials": None if trials is None else trials.astype(np.int32),
        "kind": kind,
        "subjects": subjects,
        "items": items,
        "notes": tuple(notes),
    }


def _shares_of_counts(answer: np.ndarray, item: np.ndarray, items: pd.DataFrame) -> list[str]:
    """A note where probabilities look like shares of few trials, for all items or for some."""
    if n := check.common_denominator(answer):
        return [
            f"every answer is a multiple of 1/{n}: if these are shares of {n} trials, "
            f"pass counts (successes and trials={n}), which say how sure each share is."
        ]
    denominators = check.item_denominators(answer, item, len(items))
    alike = np.flatnonzero(denominators)
    if not alike.size:
        return []
    return [
        f"answers to {alike.size:,} of {len(items):,} items are multiples of a fraction, as those to "
        f"{str(items.index[alike[0]])!r} of 1/{denominators[alike[0]]}: if they are shares of trials, pass counts "
        "(successes and trials=), or at least take precision='item'."
    ]


def _sort(cells: Cells, n_items: int, kind: str, policy: str) -> tuple[Any, ...]:
    """Cells by subject and item, repeats resolved by `policy`."""
    subject, item, answer, trials = cells.subject, cells.item, cells.answer, cells.trials
    later = (subject[1:] > subject[:-1]) | ((subject[1:] == subject[:-1]) & (item[1:] > item[:-1]))
    if later.all():
        return subject, item, answer, trials, kind, []
    key = subject.astype(np.int64) * n_items + item
    order = np.argsort(key, kind="stable")
    key = key[order]
    starts = np.flatnonzero(np.concatenate([[True], np.diff(key) > 0]))
    repeats = key.size - starts.size
    kept, notes = order, []
    if repeats:
        second = np.flatnonzero(np.diff(key) == 0) + 1
        differ = _difference(cells.unlike(order[second - 1], order[second]))
        if policy == "raise":
            raise InputError(
                f"{cells.locate(order[second[0]])} repeats {cells.locate(order[second[0] - 1])}; repeats in all: "
                f"{repeats:,}{differ}. If they are no repeats of one question, keep the rows that you mean first; else "
                "choose what to do: duplicates='sum' (counts), 'mean', 'first' or 'last'."
            )
        kept = order[np.concatenate([starts[1:], [key.size]]) - 1] if policy == "last" else order[starts]
        notes = [f"{repeats:,} repeated answers resolved by duplicates={policy!r}{differ}."]
    subject, item = subject[kept], item[kept]
    if repeats and policy in ("sum", "mean"):
        answer, trials, kind = _pool(answer[order], trials, order, starts, kind, policy)
    else:
        answer, trials = answer[kept], None if trials is None else trials[kept]
    return subject, item, answer, trials, kind, notes


def _difference(columns: list[str]) -> str:
    return f"; they differ in column {check.some(columns)}" if columns else ""


def _pool(
    answer: np.ndarray,
    trials: np.ndarray | None,
    order: np.ndarray,
    starts: np.ndarray,
    kind: str,
    policy: str,
) -> tuple[np.ndarray, np.ndarray | None, str]:
    total = np.add.reduceat(answer.astype(np.float64), starts)
    size = np.diff(np.append(starts, order.size))
    if policy == "mean":
        if kind == "count":
            raise InputError("duplicates='mean' is for probabilities; counts add up: duplicates='sum'.")
        mean = check.narrow(total / size)
        return mean, None, "binary" if kind == "binary" and np.isin(mean, (0, 1)).all() else "probability"
    if kind == "probability":
        raise InputError("duplicates='sum' is for counts and 0/1 answers; for probabilities say duplicates='mean'.")
    trials = size if trials is None else np.add.reduceat(trials[order], starts)
    if trials.max() > check.MAX_TRIALS:
        raise InputError(f"repeats add up to {trials.max():g} trials; at most {check.MAX_TRIALS:,} can be held.")
    return total.astype(np.float32), trials, "count"


def align(
    labels: np.ndarray, given: Described, known: pd.DataFrame | None, role: str
) -> tuple[pd.DataFrame, np.ndarray]:
    """The table of all subjects or items, and the row of it for each of `labels`."""
    known = pd.DataFrame(index=range(len(labels))) if known is None else known
    known = known.set_axis(pd.Index(labels, name=role))
    table = known
    if given is not None:
        table = given_frame(given, role)
        extra = known.loc[:, [c for c in known.columns if c not in table.columns]]
        table = table.join(extra) if len(extra.columns) else table
    rows = table.index.get_indexer(pd.Index(labels))
    if (rows < 0).any():
        raise check.unknown(labels[rows < 0], table.index, f"{role} in {role}s= for")
    table = check.describe(table, role)
    if role == "item" and "benchmark" not in table:
        table.insert(0, "benchmark", pd.Series("benchmark", index=table.index, dtype=object))
    return table, rows.astype(np.int32)


def given_frame(given: pd.DataFrame | Sequence[str], role: str) -> pd.DataFrame:
    if isinstance(given, pd.DataFrame):
        table = check.as_frame(given, f"{role}s=")
        table = table.set_index(role) if role in table else table
    elif isinstance(given, (str, bytes, Mapping)) or not isinstance(given, (Iterable, pd.Index)):
        raise InputError(f"{role}s= takes a DataFrame or a list of labels; got {type(given).__name__}.")
    else:
        table = pd.DataFrame(index=pd.Index(list(given)))
    labels = check.check_labels(table.index, role)
    check.check_unique(labels, role)
    return table.set_axis(pd.Index(labels, name=role))
