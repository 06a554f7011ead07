"""The one container of answers: long form, labelled, checked before anything is traced."""

from __future__ import annotations

import hashlib
import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from scipy import sparse

from bayes_irsl import _ingest, _responses_xarray, _tables, _validate
from bayes_irsl.errors import InputError


@dataclass(frozen=True, eq=False, repr=False)
class Responses:
    """Answers of subjects to items, one row (`obs_id`) an answer, sorted by subject and then item.

    Build it with :meth:`from_long` or :meth:`from_wide`; a missing answer has no row.

    Parameters
    ----------
    subject_index, item_index : int32 (n_obs,)
        Row of `subjects` and of `items` that each answer belongs to.
    answer : float32 (n_obs,), or float64 where float32 would round
        0 or 1 ("binary"), number of successes ("count"), or a value in [0, 1] ("probability").
    trials : int32 (n_obs,) or None
        Trials behind each count; None for the other kinds.
    kind : "binary" | "count" | "probability"
    subjects : DataFrame, index "subject"
        One row a subject in input order, also those without answers. Optional columns: family,
        compute (FLOP), date, run, params, tokens, and any other.
    items : DataFrame, index "item"
        One row an item. Columns: benchmark, optionally category, chance, n_options, and any other.
    notes : tuple of str
        What was dropped or decided on the way in, and why.
    """

    subject_index: np.ndarray
    item_index: np.ndarray
    answer: np.ndarray
    trials: np.ndarray | None
    kind: str
    subjects: pd.DataFrame
    items: pd.DataFrame
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("subject_index", "item_index", "answer", "trials"):
            array = getattr(self, name)
            if array is not None:
                array = array.view()
                array.flags.writeable = False
                object.__setattr__(self, name, array)

    @classmethod
    def from_long(
        cls,
        frame: pd.DataFrame,
        *,
        subject: str | Sequence[str] = "subject",
        item: str | Sequence[str] = "item",
        answer: str | None = None,
        successes: str | None = None,
        trials: str | int | None = None,
        subjects: pd.DataFrame | Sequence[str] | None = None,
        items: pd.DataFrame | Sequence[str] | None = None,
        missing_codes: Iterable[object] = (),
        missing_as: str = "missing",
        duplicates: str = "raise",
        kind: str | None = None,
        **columns: str | None,
    ) -> Responses:
        """Answers from a table with one row an answer.

        Parameters
        ----------
        frame : DataFrame
        subject, item : str or list of str
            Columns that name who answered what; several are joined by "/".
        answer : str, optional
            Column of answers in [0, 1]; "answer" where neither it nor `successes` is given.
        successes, trials : str, optional
            Columns of counts; `trials` may be one number for all rows.
        subjects, items : DataFrame or list of labels, optional
            All subjects or items in the order wanted, also those without rows, with what is known of them.
        missing_codes : values that stand for a missing answer, such as (-1, "timeout")
        missing_as : "missing" | "wrong"
            A missing answer has no row, or counts as wrong.
        duplicates : "raise" | "first" | "last" | "mean" | "sum"
            What to do where a subject answers an item twice. "sum" adds up counts and turns repeated 0/1
            answers into counts; "mean" averages probabilities. Missing answers are no repeats.
        kind : "binary" | "count" | "probability", optional
            Taken from the values where it is not given.
        **columns : str
            Columns with family, compute, date, run, params, tokens of the subject and benchmark, category,
            chance, n_options of the item; those of the same name are found without: ``compute="flops"``.

        Returns
        -------
        Responses

        Raises
        ------
        InputError
            The first thing that cannot be used, by row, column and value.
        """
        options = _ingest.Options.checked(missing_codes, missing_as, duplicates, kind)
        return cls(
            **_tables.long_table(frame, subject, item, answer, successes, trials, subjects, items, options, columns)
        )

    @classmethod
    def from_wide(
        cls,
        table: pd.DataFrame | np.ndarray | xr.DataArray,
        *,
        trials: Any = None,
        subjects: pd.DataFrame | Sequence[str] | None = None,
        items: pd.DataFrame | Sequence[str] | None = None,
        missing_codes: Iterable[object] = (),
        missing_as: str = "missing",
        kind: str | None = None,
    ) -> Responses:
        """Answers from a table with a row a subject and a column an item; NaN is missing.

        Parameters
        ----------
        table : DataFrame, array or DataArray (subjects, items)
            Answers in [0, 1], or numbers of successes where `trials` is given. Labels come from the DataFrame
            or the DataArray (dims "subject" and "item" may stand in either order), else from `subjects` and
            `items`, else they are "0", "1", ...
        trials : int, one number an item, or a table of the same shape, optional
        subjects, items, missing_codes, missing_as, kind
            As in :meth:`from_long`.

        Returns
        -------
        Responses

        Raises
        ------
        InputError
            The first thing that cannot be used, by row, column and value.
        """
        options = _ingest.Options.checked(missing_codes, missing_as, "raise", kind)
        return cls(**_tables.wide_table(table, trials, subjects, items, options))

    @property
    def n_subjects(self) -> int:
        return len(self.subjects)

    @property
    def n_items(self) -> int:
        return len(self.items)

    @property
    def n_obs(self) -> int:
        return self.answer.size

    @property
    def density(self) -> float:
        """Share of the subject-by-item table that is answered."""
        return self.n_obs / max(1, self.n_subjects * self.n_items)

    @property
    def is_complete(self) -> bool:
        """Whether every subject has answered every item."""
        return self.n_obs == self.n_subjects * self.n_items

    @property
    def rate(self) -> np.ndarray:
        """Answers as shares in [0, 1], (n_obs,)."""
        return self.answer if self.trials is None else self.answer / self.trials.astype(np.float32)

    def select(self, subjects: Any = None, items: Any = None) -> Responses:
        """The answers of some subjects to some items, in the order asked for.

        Parameters
        ----------
        subjects, items : label, list of labels, or boolean mask, optional
            All where not given. Those without answers stay.

        Raises
        ------
        InputError
            A label that is not there or stands twice, or a mask of the wrong length.
        """
        rows = _positions(subjects, self.subjects.index, "subject")
        cols = _positions(items, self.items.index, "item")
        subject = _renumber(rows, self.n_subjects)[self.subject_index]
        item = _renumber(cols, self.n_items)[self.item_index]
        kept = np.flatnonzero((subject >= 0) & (item >= 0))
        key = subject[kept].astype(np.int64) * len(cols) + item[kept]
        if (np.diff(key) < 0).any():
            kept = kept[np.argsort(key, kind="stable")]
        return replace(
            self._cells(kept),
            subject_index=subject[kept],
            item_index=item[kept],
            subjects=self.subjects.iloc[rows],
            items=self.items.iloc[cols],
        )

    def holdout(self, fraction: float, seed: int) -> tuple[Responses, Responses]:
        """Split the answers at random into (train, test), with all subjects and items in both.

        Parameters
        ----------
        fraction : float in (0, 1)
            Share of answers that go to the test part; at least one answer goes to either part.
        seed : int

        Raises
        ------
        InputError
            `fraction` outside (0, 1), or fewer than two answers.
        """
        if not 0 < fraction < 1:
            raise InputError(f"fraction is a share between 0 and 1, such as 0.1; got {fraction!r}.")
        if self.n_obs < 2:
            raise InputError(f"a split needs at least two answers; there are {self.n_obs}.")
        size = min(max(1, round(fraction * self.n_obs)), self.n_obs - 1)
        test = np.zeros(self.n_obs, dtype=bool)
        test[np.random.default_rng(seed).choice(self.n_obs, size, replace=False, shuffle=False)] = True
        return self._cells(np.flatnonzero(~test)), self._cells(np.flatnonzero(test))

    def _cells(self, kept: np.ndarray) -> Responses:
        return replace(
            self,
            subject_index=self.subject_index[kept],
            item_index=self.item_index[kept],
            answer=self.answer[kept],
            trials=None if self.trials is None else self.trials[kept],
        )

    def annotate(self, subjects: pd.DataFrame | None = None, items: pd.DataFrame | None = None) -> Responses:
        """The same answers with columns added to, or replaced in, the tables of subjects or items.

        Parameters
        ----------
        subjects, items : DataFrame
            Indexed by label (or with a column "subject" or "item"); rows may be fewer than those here.

        Raises
        ------
        InputError
            A label that is not here, or a value that cannot be (negative compute, no date, ...).
        """
        return replace(
            self,
            subjects=_annotated(self.subjects, subjects, "subject"),
            items=_annotated(self.items, items, "item"),
        )

    def by_subject(self) -> tuple[np.ndarray, np.ndarray]:
        """(order, starts): answers of subject s are ``order[starts[s]:starts[s + 1]]``, by item."""
        return self._by_subject

    def by_item(self) -> tuple[np.ndarray, np.ndarray]:
        """(order, starts): answers to item j are ``order[starts[j]:starts[j + 1]]``, by subject."""
        return self._by_item

    @cached_property
    def _by_subject(self) -> tuple[np.ndarray, np.ndarray]:
        counts = np.bincount(self.subject_index, minlength=self.n_subjects)
        return _frozen(np.arange(self.n_obs, dtype=np.int32)), _frozen(np.append(0, np.cumsum(counts)))

    @cached_property
    def _by_item(self) -> tuple[np.ndarray, np.ndarray]:
        order, starts = self._by_subject
        if self.is_complete:
            order = order.reshape(self.n_subjects, self.n_items).T.reshape(-1)
            return _frozen(order), _frozen(np.arange(self.n_items + 1) * self.n_subjects)
        shape = (self.n_subjects, self.n_items)
        columns = sparse.csr_array((order, self.item_index, starts), shape=shape).tocsc()
        return _frozen(columns.data), _frozen(columns.indptr.astype(np.int64))

    def dense(self) -> tuple[np.ndarray, np.ndarray | None]:
        """Answers (subjects, items) with NaN where there is none, and trials (0 there) or None."""
        shape = (self.n_subjects, self.n_items)
        if self.is_complete:
            return self.answer.reshape(shape), None if self.trials is None else self.trials.reshape(shape)
        answer = np.full(shape, np.nan, dtype=self.answer.dtype)
        answer[self.subject_index, self.item_index] = self.answer
        if self.trials is None:
            return answer, None
        trials = np.zeros(shape, dtype=np.int32)
        trials[self.subject_index, self.item_index] = self.trials
        return answer, trials

    def constant_items(self) -> list[str]:
        """Labels of the items that two or more subjects answered, all alike: they tell subjects not apart."""
        order, starts = self.by_item()
        answered = np.flatnonzero(np.diff(starts) > 1)
        if not answered.size:
            return []
        filled = np.flatnonzero(np.diff(starts) > 0)
        rate = self.rate[order]
        spread = np.zeros(self.n_items)
        spread[filled] = np.maximum.reduceat(rate, starts[filled]) - np.minimum.reduceat(rate, starts[filled])
        return [str(x) for x in self.items.index[answered[spread[answered] == 0]]]

    @cached_property
    def data_hash(self) -> str:
        """SHA-256 of answers, labels and descriptions; two tables with the same contents share it."""
        digest = hashlib.sha256(self.kind.encode())
        for array in (self.subject_index, self.item_index, self.answer, self.trials):
            digest.update(b"none" if array is None else np.ascontiguousarray(array).data)
        for table in (self.subjects, self.items):
            digest.update(table.to_csv().encode())
        return digest.hexdigest()

    def to_xarray(self) -> xr.Dataset:
        """A Dataset over obs_id, subject and item that can be written to NetCDF; see :meth:`from_xarray`.

        Missing text becomes "". Attributes: kind, and notes as JSON.
        """
        return _responses_xarray.dataset_of(self)

    @classmethod
    def from_xarray(cls, dataset: xr.Dataset) -> Responses:
        """The responses that :meth:`to_xarray` wrote."""
        return cls(**_responses_xarray.fields_of(dataset))

    def summary(self) -> pd.DataFrame:
        """One row a benchmark: items, subjects, answers, density, and how the answers lie in [0, 1]."""
        codes, names = pd.factorize(self.items["benchmark"])
        constant = pd.Index(self.constant_items())
        rows = []
        for k in range(len(names)):
            cells = slice(None) if len(names) == 1 else codes[self.item_index] == k
            rate = self.rate[cells]
            who = np.unique(self.subject_index[cells]).size
            n_items = int((codes == k).sum())
            rows.append(
                {
                    "items": n_items,
                    "subjects": who,
                    "answers": rate.size,
                    "density": rate.size / max(1, self.n_subjects * n_items),
                    "mean": rate.mean(dtype=np.float64) if rate.size else np.nan,
                    "share_0": (rate == 0).mean() if rate.size else np.nan,
                    "share_1": (rate == 1).mean() if rate.size else np.nan,
                    "constant_items": int(self.items.index[codes == k].isin(constant).sum()),
                }
            )
        return pd.DataFrame(rows, index=pd.Index(names, name="benchmark"))

    def __repr__(self) -> str:
        return "\n".join([self._headline(), *(f"  note: {text}" for text in self.notes)])

    def _repr_html_(self) -> str:
        notes = "".join(f"<li>{html.escape(text)}</li>" for text in self.notes)
        return f"<p>{html.escape(self._headline())}</p>{self.summary().to_html()}<ul>{notes}</ul>"

    def _headline(self) -> str:
        trials = ""
        if self.trials is not None and self.n_obs:
            low, high = int(self.trials.min()), int(self.trials.max())
            trials = f" of {low:,} trials" if low == high else f" of {low:,} to {high:,} trials"
        return (
            f"<Responses: {self.n_subjects:,} subjects x {self.n_items:,} items, "
            f"{self.n_obs:,} {self.kind} answers{trials} ({self.density:.1%} filled)>"
        )


def _frozen(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


def _positions(asked: Any, index: pd.Index, role: str) -> np.ndarray:
    if asked is None:
        return np.arange(len(index))
    array = np.asarray([asked] if isinstance(asked, str) else asked)
    if array.ndim == 1 and pd.api.types.infer_dtype(array) == "boolean":
        array = array.astype(bool)
        if array.shape != (len(index),):
            raise InputError(f"the mask of {role}s has shape {array.shape}; {(len(index),)} is expected.")
        return np.flatnonzero(array)
    if array.ndim != 1:
        raise InputError(f"{role}s= takes labels or a boolean mask; got an array of shape {array.shape}.")
    labels = _validate.check_labels(pd.Index(array), role)
    _validate.check_unique(labels, role)
    rows = index.get_indexer(pd.Index(labels))
    if (rows < 0).any():
        raise _validate.unknown(labels[rows < 0], index, role)
    return rows


def _renumber(positions: np.ndarray, size: int) -> np.ndarray:
    out = np.full(size, -1, dtype=np.int32)
    out[positions] = np.arange(len(positions), dtype=np.int32)
    return out


def _annotated(table: pd.DataFrame, extra: pd.DataFrame | None, role: str) -> pd.DataFrame:
    if extra is None:
        return table
    extra = _ingest.given_frame(extra, role)
    rows = table.index.get_indexer(extra.index)
    if (rows < 0).any():
        raise _validate.unknown(extra.index[rows < 0], table.index, role)
    merged = table.copy()
    for name in extra.columns:
        new = extra[name].reindex(table.index)
        merged[name] = new.where(table.index.isin(extra.index), table[name]) if name in table else new
    return _validate.describe(merged, role)
