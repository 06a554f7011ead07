"""Forecasts against what came: forward validation over compute or any other cut, every arm side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pandas as pd

from bayes_irsl.baselines.irsl import IrslLine
from bayes_irsl.baselines.scaling import LAWS, Law
from bayes_irsl.errors import InputError
from bayes_irsl.fitting import fit
from bayes_irsl.forecasts.forecasting import forecast
from bayes_irsl.forecasts.score_table import score_table
from bayes_irsl.forecasts.scores import Transform, clustered_error, decision_accuracy, score_draws
from bayes_irsl.responses import Responses
from bayes_irsl.spec import AbilityTrajectory

Floats = npt.NDArray[np.floating]


@runtime_checkable
class Arm(Protocol):
    """What takes part in a comparison and needs the answers, not only a table of scores as a law does."""

    def predict(self, train: Responses, test: pd.DataFrame, seed: int) -> dict[str, Floats]:
        """Draws (n, T) of measured accuracies of the test subjects, by benchmark, in the order of ``test``."""


@dataclass(frozen=True)
class Trajectory:
    """A trajectory fitted to the training answers; ``settings`` are those of ``fit``."""

    spec: AbilityTrajectory = field(default_factory=AbilityTrajectory)
    settings: Mapping[str, Any] = field(default_factory=dict)

    def predict(self, train: Responses, test: pd.DataFrame, seed: int) -> dict[str, Floats]:
        """Draws (n, T) of measured accuracies of the test subjects, by benchmark."""
        fitted = fit(self.spec, train, seed=seed, progress=False, **self.settings)
        first = test.drop_duplicates("subject")
        names = ("params", "tokens") if "params" in fitted.tree.posterior["covariate"].values else ("compute",)
        where: dict[str, Any] = {name: first[name].to_numpy(float) for name in names}
        if self.spec.extra:
            where["extra"] = {name: first[name].to_numpy() for name in self.spec.extra}
        run = None
        if self.spec.run in first and self.spec.run in train.subjects:
            known = set(train.subjects[self.spec.run].dropna().astype(str))
            run = [r if r in known else None for r in first[self.spec.run].astype(str)]
        pools: list[Any] = [None]
        if self.spec.pool is not None:
            known = set(train.subjects[self.spec.pool].dropna().astype(str))
            pools = [p if p in known else None for p in first[self.spec.pool].astype(str)]
        wanted = list(dict.fromkeys(pools))
        out = forecast(fitted, **where, run=run, pool=wanted if self.spec.pool else None, measured=True, seed=seed)
        rows = np.array([wanted.index(p) for p in pools]) if self.spec.pool else np.zeros(len(first), int)
        values = out["accuracy"].to_numpy()[:, rows, np.arange(len(first))]
        subject = first["subject"].to_numpy()
        draws: dict[str, Floats] = {}
        for k, name in enumerate(out["benchmark"].to_numpy().astype(str)):
            asked = test.loc[test["benchmark"] == name, "subject"].to_numpy()
            draws[name] = values[:, [int(np.flatnonzero(subject == s)[0]) for s in asked], k]
        return draws


def forward_splits(responses: Responses, by: str = "params", least: int = 3) -> list[tuple[str, Responses, Responses]]:
    """Cuts of a subject column: fit up to a value, forecast beyond it; ``least`` distinct values at least to fit.

    Returns
    -------
    list of (name, answers to fit, answers to forecast)
    """
    if by not in responses.subjects.columns:
        raise InputError(f"by={by!r}: no such subject column; there are {list(responses.subjects.columns)}")
    values = responses.subjects[by].to_numpy()
    known = pd.notna(values)
    distinct = np.sort(np.unique(values[known]))
    if least < 1:
        raise InputError(f"least = {least!r}: expected a whole number of at least 1")
    if len(distinct) <= least:
        raise InputError(f"{len(distinct)} distinct values of {by!r}: expected more than least={least}")
    out = []
    for cut in distinct[least - 1 : -1]:
        seen = known & (values <= cut)
        out.append((f"{by} <= {cut:.3g}", responses.select(subjects=seen), responses.select(subjects=known & ~seen)))
    return out


def forward_validation(
    splits: Sequence[tuple[str, Responses, Responses]],
    arms: Mapping[str, Arm | Law] | None = None,
    *,
    cluster: str = "run",
    transform: Transform | None = None,
    draws: int = 1000,
    seed: int = 0,
) -> pd.DataFrame:
    """Fit every arm to the training side of every split and score its forecasts of the other side.

    Parameters
    ----------
    splits
        From :func:`forward_splits`, or any (name, train, test).
    arms
        By name: :class:`Trajectory`, a law of :mod:`bayes_irsl.baselines.scaling`, or
        :class:`bayes_irsl.baselines.irsl.IrslLine`. All of them by default; baselines that lack a covariate or answers
        to items are left out.
    cluster
        Subject column that makes forecasts dependent (a training run).
    transform
        Of scores before they are scored, such as ``np.log10``; accuracy by default.

    Returns
    -------
    DataFrame
        One row a split, arm, subject and benchmark: observed, mean, crps, log_score, inside_50, inside_90, width_90,
        error (of the mean), cluster.
    """
    arms = {"trajectory": Trajectory(), "IRSL line": IrslLine(), **LAWS} if arms is None else arms
    wrong = [name for name, arm in arms.items() if isinstance(arm, AbilityTrajectory)]
    if wrong:
        raise InputError(f"arm {wrong[0]!r} is a spec: wrap it in bayes_irsl.forecasts.evaluation.Trajectory(spec)")
    if not splits:
        raise InputError("splits is empty: expected (name, train, test), as forward_splits gives them")
    rows: list[pd.DataFrame] = []
    for name, train, test in splits:
        seen, ahead = score_table(train), score_table(test)
        for arm, method in arms.items():
            try:
                found = _predict(method, train, seen, ahead, draws, seed)
            except InputError:
                if isinstance(method, Trajectory):
                    raise
                continue
            for benchmark, values in found.items():
                part = ahead[ahead["benchmark"] == benchmark]
                scores = score_draws(values, part["score"].to_numpy(float), transform)
                unit = part[cluster] if cluster in part else part["subject"]
                facts = {"split": name, "arm": arm, "benchmark": benchmark}
                rows.append(
                    pd.DataFrame({**facts, "subject": part["subject"].to_numpy(), "cluster": unit.to_numpy(), **scores})
                )
    return pd.concat(rows, ignore_index=True)


def _predict(
    method: Arm | Law, train: Responses, seen: pd.DataFrame, ahead: pd.DataFrame, draws: int, seed: int
) -> dict[str, Floats]:
    if isinstance(method, Arm):
        return method.predict(train, ahead, seed)
    rng = np.random.default_rng([seed, 5])
    names = [b for b in dict.fromkeys(ahead["benchmark"]) if (seen["benchmark"] == b).sum() >= 3]
    return {b: method(seen[seen["benchmark"] == b], ahead[ahead["benchmark"] == b], rng, draws) for b in names}


def summarise(table: pd.DataFrame, by: Sequence[str] = ("arm",)) -> pd.DataFrame:
    """Means of the scores by arm, with the number of clusters and clustered standard errors (``_se``).

    ``decision_accuracy``: share of pairs of subjects of one split and benchmark that mean forecasts order as they came
    (:func:`bayes_irsl.forecasts.scores.decision_accuracy`), NaN where no split has two.
    """
    rows = []
    for key, part in table.groupby(list(by), sort=False):
        row: dict[str, Any] = dict(zip(by, key, strict=True))
        row |= {"forecasts": len(part), "clusters": part["cluster"].nunique()}
        pairs = [
            decision_accuracy(s["mean"], s["observed"]) for _, s in part.groupby(["split", "benchmark"]) if len(s) > 1
        ]
        row["decision_accuracy"] = float(np.mean(pairs)) if pairs else float("nan")
        for name in ("crps", "log_score", "inside_50", "inside_90", "width_50", "width_90", "error"):
            row[name] = part[name].mean()
            row[f"{name}_se"] = clustered_error(part[name].to_numpy(float), part["cluster"].to_numpy())
        rows.append(row)
    return pd.DataFrame(rows)
