"""Where subjects stand: compute, or parameters and tokens; their groups and runs; all as points of a trajectory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from bayes_irsl._validate import some
from bayes_irsl.errors import InputError
from bayes_irsl.kernels import Points
from bayes_irsl.spec import AbilityTrajectory

Floats = npt.NDArray[np.floating]


@dataclass(frozen=True)
class Layout:
    """The subjects of a fit on the plane of a trajectory.

    Attributes
    ----------
    covariates : names of the coordinates, ("compute",) or ("params", "tokens").
    reference : float (C,), log10 of the covariates at which coordinates are 0: the mean over subjects.
    used : int (S,), rows of the subject table that have all covariates; the others inform items only.
    coordinates : float (S, C), decades from the reference.
    compute_sd : float (S,), decades.
    groups, runs : names, and group, run : int (S,) codes into them.
    extras : names of other covariates; extra_reference, extra_sd : float (E,), their mean and sd over subjects (dates
        in years); extra : float (S, E), standardised by them, or None.
    signed : whether abilities may fall with compute.
    scattered : whether the subjects' own scatter is a Student's.
    """

    covariates: tuple[str, ...]
    reference: Floats
    used: npt.NDArray[np.intp]
    coordinates: Floats
    compute_sd: Floats
    groups: tuple[str, ...]
    group: npt.NDArray[np.int32]
    runs: tuple[str, ...]
    run: npt.NDArray[np.int32]
    grouped: bool
    along_run: bool
    extras: tuple[str, ...]
    extra_reference: Floats
    extra_sd: Floats
    extra: Floats | None
    signed: bool
    scattered: bool

    def points(
        self,
        n_dimensions: int,
        coordinates: Floats | None = None,
        group: npt.NDArray[np.int32] | None = None,
        run: npt.NDArray[np.int32] | None = None,
        extra: Floats | None = None,
    ) -> tuple[Points, npt.NDArray[np.int32]]:
        """Points of all subjects on all dimensions (dimension by dimension), and the subject of each.

        By default those of the fit; with ``coordinates`` (T, C), ``group`` and ``run`` (T,) and ``extra`` (T, E) new
        ones, which are subjects of their own.
        """
        new = coordinates is not None
        x = self.coordinates if coordinates is None else coordinates
        n = len(x)
        subject = np.arange(n, dtype=np.int32) + (len(self.used) if new else 0)

        def spread(v: Any) -> Any:
            return np.tile(v, (n_dimensions,) + (1,) * (np.ndim(v) - 1))

        points = Points(
            coordinates=spread(x),
            group=spread(self.group if group is None else group),
            run=spread(self.run if run is None else run),
            dimension=np.repeat(np.arange(n_dimensions, dtype=np.int32), n),
            compute_sd=spread(np.zeros(n) if new else self.compute_sd),
            n_dimensions=n_dimensions,
            grouped=self.grouped,
            along_run=self.along_run,
            extra=None if self.extra is None else spread(extra if new else self.extra),
            signed=self.signed,
            scattered=len(self.used) if self.scattered else 0,
        )
        return points, spread(subject)

    def relative(self, values: dict[str, Floats]) -> Floats:
        """Coordinates (T, C) of covariates on their natural scale, (T,) each."""
        return np.stack([np.log10(values[name]) for name in self.covariates], 1) - self.reference

    def code(self, name: str, label: str) -> int:
        """Number of a known group ("pool") or "run"."""
        names = self.groups if name == "pool" else self.runs
        if label not in names:
            raise InputError(f"{name} {label!r} is not in the fit; there are {list(names)} (None for a new one)")
        return names.index(label)


def layout(spec: AbilityTrajectory, subjects: pd.DataFrame) -> Layout:
    """Read covariates, groups and runs from a table of subjects; raises InputError where they carry no trajectory."""
    table = subjects.copy()
    if "compute" not in table and {"params", "tokens"} <= set(table.columns):
        table["compute"] = 6.0 * table["params"] * table["tokens"]
    names = _chosen(spec, table)
    values = table[list(names)].to_numpy(float)
    others = np.stack([_numbers(table, name) for name in spec.extra], 1) if spec.extra else None
    known = np.isfinite(values).all(1) & (True if others is None else np.isfinite(others).all(1))
    used = np.flatnonzero(known)
    if len(used) < 3:
        raise InputError(
            f"{len(used)} of {len(table)} subjects have {' and '.join((*names, *spec.extra))}: a trajectory needs "
            "three or more. Add the column to the subjects: responses.annotate(subjects=table with compute)."
        )
    logs = np.log10(values[used])
    if (np.ptp(logs, axis=0) < 1e-6).all():
        raise InputError(
            f"all {len(used)} subjects have the same {' and '.join(names)}: the slope would be the prior's alone"
        )
    reference = logs.mean(0)
    centre: Floats = np.zeros(0)
    spread: Floats = np.zeros(0)
    if others is not None:
        centre, spread = others[used].mean(0), others[used].std(0)
        if (spread == 0).any():
            name = spec.extra[int(np.argmin(spread))]
            raise InputError(f"all subjects have the same {name!r}, which says nothing of its effect: leave it out")
        others = (others[used] - centre) / spread
    groups, group = _coded(table, spec.pool, used, "pool", [""] * len(used))
    runs, run = _coded(table, spec.run if spec.run in table else None, used, "run", list(range(len(used))))
    sd = numbers(table["compute_sd"], "compute_sd")[used] if "compute_sd" in table else np.zeros(len(used))
    if (sd < 0).any():
        first = table.index[used[np.flatnonzero(sd < 0)[0]]]
        raise InputError(f"compute_sd of {first!r} is {sd[sd < 0][0]:g}: expected decades of compute, at least 0")
    return Layout(
        covariates=names,
        reference=reference,
        used=used,
        coordinates=logs - reference,
        compute_sd=np.nan_to_num(sd),
        groups=groups,
        group=group,
        runs=runs,
        run=run,
        grouped=spec.pool is not None,
        along_run=spec.residual == "run" and len(runs) < len(used),
        extras=spec.extra,
        extra_reference=centre,
        extra_sd=spread,
        extra=others,
        signed=spec.slopes == "any",
        scattered=spec.scatter == "student",
    )


def numbers(values: Any, name: str) -> Floats:
    """Numbers as they are, dates (or texts that are dates) in years; NaN where missing; raises InputError otherwise."""
    column = pd.Series(values)
    if pd.api.types.is_numeric_dtype(column):
        return column.to_numpy(float, na_value=np.nan)
    dates = pd.to_datetime(column, errors="coerce", utc=True, format=None if column.empty else "mixed")
    bad = column[dates.isna() & column.notna()]
    if len(bad):
        raise InputError(f"{name} = {some(bad)}: expected numbers or dates such as 2026-11-30")
    days = (dates - pd.Timestamp("2000-01-01", tz="UTC")) / pd.Timedelta(days=1)
    return 2000 + days.to_numpy(float) / 365.2425


def _numbers(table: pd.DataFrame, name: str) -> Floats:
    if name not in table:
        raise InputError(f"extra={name!r}: no such subject column; there are {list(table.columns)}")
    return numbers(table[name], name)


def _chosen(spec: AbilityTrajectory, table: pd.DataFrame) -> tuple[str, ...]:
    both = ("params", "tokens")
    if spec.covariates == "auto":
        if set(both) <= set(table.columns):
            values = table[list(both)].to_numpy(float)
            known = np.isfinite(values).all(1)
            with_compute = np.isfinite(table["compute"].to_numpy(float))
            if (
                known.sum() >= 3
                and not (with_compute & ~known).any()
                and (np.ptp(np.log(values[known]), 0) > 0.1).all()
            ):
                return both
        names: tuple[str, ...] = ("compute",)
    else:
        names = (spec.covariates,) if isinstance(spec.covariates, str) else spec.covariates
    absent = [name for name in names if name not in table]
    if absent:
        raise InputError(
            f"the subjects have no column {absent[0]!r}; there are {list(table.columns)}. "
            "Name it when reading (compute='flops'), or add it with responses.annotate(subjects=...)."
        )
    return names


def _coded(
    table: pd.DataFrame, column: str | None, used: npt.NDArray[np.intp], what: str, default: Sequence[Any]
) -> tuple[tuple[str, ...], npt.NDArray[np.int32]]:
    """Names and codes of a column of labels; a missing label is a group of its own."""
    if column is None:
        labels = [str(v) for v in default]
    elif column not in table:
        raise InputError(f"{what}={column!r}: no such subject column; there are {list(table.columns)}")
    else:
        values, index = table[column], table.index
        labels = [str(values.iloc[i]) if pd.notna(values.iloc[i]) else f"{what} of {index[i]}" for i in used]
    names = tuple(dict.fromkeys(labels))
    lookup = {name: i for i, name in enumerate(names)}
    return names, np.array([lookup[label] for label in labels], np.int32)
