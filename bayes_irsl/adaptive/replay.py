"""Policies on recorded answers: subjects left out of the calibration are tested as if they were new."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import xarray as xr
from tqdm.auto import tqdm

from bayes_irsl._options import check_seed
from bayes_irsl.adaptive.departures import TYPICAL, departures
from bayes_irsl.adaptive.session import AdaptiveTest
from bayes_irsl.adaptive.stopping import Stop
from bayes_irsl.adaptive.targets import Accuracy
from bayes_irsl.bank import ItemBank
from bayes_irsl.errors import InputError
from bayes_irsl.fitting import fit
from bayes_irsl.responses import Responses
from bayes_irsl.spec import ItemResponse

Floats = npt.NDArray[np.floating]

AT = (5, 10, 20, 50, 100)


def replay(
    responses: Responses,
    spec: ItemResponse | None = None,
    *,
    bank: ItemBank | None = None,
    policies: Sequence[str] = ("variance", "fisher", "random"),
    at: Sequence[int] = AT,
    folds: int = 5,
    repeats: int = 3,
    seed: int = 0,
    progress: bool = True,
    learn: bool = True,
    **options: Any,
) -> xr.Dataset:
    """Test recorded subjects with several policies, all with the same estimator, and see how far each is off.

    The target is the accuracy on all questions that a subject has answers to, which is known here.

    Parameters
    ----------
    responses : Responses
    spec : ItemResponse, optional
        Calibration without the subjects of each fold; the default model where it is not given.
    bank : ItemBank, optional
        A bank that none of the subjects helped to calibrate, in the place of ``spec``.
    policies : of :class:`AdaptiveTest`
    at : numbers of questions after which the estimates are noted
    folds : int
    repeats : int
        Sessions a subject of the policy "random", with seeds of their own; their estimates are all returned.
    seed : int
    progress : bool
    learn : bool
        Whether departures are learned from each calibration; otherwise, and with ``bank``, what is typical is taken.
    **options
        Of :class:`AdaptiveTest`: by, cost, explore, departures and so on.

    Returns
    -------
    Dataset
        estimate, sd, lower, upper, cost with dims (policy, subject, repeat, asked); truth (subject). Where a subject
        has fewer questions the numbers are missing. See :func:`replay_summary`.
    """
    if not isinstance(responses, Responses):
        raise InputError(f"replay needs Responses; got {type(responses).__name__}")
    if bank is not None and spec is not None:
        raise InputError("pass a bank, or a spec with which one is calibrated fold by fold; not both")
    if repeats < 1 or not list(at) or min(at) < 1:
        raise InputError(f"repeats = {repeats}, at = {tuple(at)}: expected numbers of at least 1")
    if bank is None and not 2 <= folds <= responses.n_subjects:
        raise InputError(f"folds = {folds}: expected 2 to {responses.n_subjects}, the number of subjects")
    check_seed(seed)
    at = sorted({int(n) for n in at})
    shape = (len(policies), responses.n_subjects, repeats, len(at))
    found = {name: np.full(shape, np.nan) for name in ("estimate", "sd", "lower", "upper", "cost")}
    truth = np.full(responses.n_subjects, np.nan)
    parts = [np.arange(responses.n_subjects)]
    if bank is None:
        parts = np.array_split(np.random.default_rng([seed, 43]).permutation(responses.n_subjects), folds)
    with tqdm(total=responses.n_subjects, disable=not progress, desc="replay", unit="subject") as bar:
        for left in parts:
            own, spread = (
                (bank, TYPICAL) if bank is not None else _calibrated(responses, spec, left, seed, learn, options)
            )
            for s in left:
                _one(
                    own, responses, int(s), policies, at, repeats, seed, {"departures": spread, **options}, found, truth
                )
                bar.update()
    dims = ("policy", "subject", "repeat", "asked")
    coords = {
        "policy": [p if isinstance(p, str) else f"list {i}" for i, p in enumerate(policies)],
        "subject": np.asarray(responses.subjects.index, dtype=str),
        "asked": at,
    }
    variables: dict[str, Any] = {name: (dims, value) for name, value in found.items()}
    attrs = {"interval": "equal-tailed", "mass": 0.9, "seed": seed, "target": "accuracy on all answered questions"}
    return xr.Dataset({**variables, "truth": ("subject", truth)}, coords, attrs)


def _calibrated(
    responses: Responses, spec: ItemResponse | None, left: np.ndarray, seed: int, learn: bool, options: dict[str, Any]
) -> tuple[ItemBank, Any]:
    kept = np.ones(responses.n_subjects, bool)
    kept[left] = False
    model = fit(spec or ItemResponse(), responses.select(subjects=kept), seed=seed, progress=False)
    bank = ItemBank.from_fit(model, seed=seed)
    if not learn:
        return bank, TYPICAL
    return bank, departures(model, bank, by=options.get("by"), seed=seed, progress=False)


def _one(
    bank: ItemBank,
    responses: Responses,
    subject: int,
    policies: Sequence[Any],
    at: Sequence[int],
    repeats: int,
    seed: int,
    options: dict[str, Any],
    found: dict[str, Floats],
    truth: Floats,
) -> None:
    """Sessions of one subject, written into the arrays."""
    order, starts = responses.by_subject()
    rows = order[starts[subject] : starts[subject + 1]]
    labels = responses.items.index[responses.item_index[rows]]
    known = labels.isin(bank.items.index)
    rows, labels = rows[known], labels[known]
    if not len(rows):
        return
    own = _of(bank, labels)
    trials = np.ones(len(rows)) if responses.trials is None else responses.trials[rows]
    answers = dict(zip(labels, zip(responses.answer[rows].tolist(), trials.tolist(), strict=True), strict=True))
    truth[subject] = float((responses.answer[rows] / trials).mean())
    test = AdaptiveTest(own, **{"target": Accuracy(), "stop": Stop(max_items=max(at)), **options})
    for p, policy in enumerate(policies):
        one = replace(test, policy=policy)
        for r in range(repeats if policy == "random" else 1):
            state = one.start(seed=int(np.random.default_rng([seed, subject, r]).integers(2**31)))
            for n in range(1, max(at) + 1):
                item = one.next(state)
                if item is None:
                    break
                value, samples = answers[item]
                state = one.answer(state, item, value, None if responses.trials is None else int(samples))
                if n in at:
                    result = one.result(state)
                    place = (p, subject, r, at.index(n))
                    for name, key in (("estimate", "mean"), ("sd", "sd"), ("lower", "lower"), ("upper", "upper")):
                        found[name][place] = float(result[key])
                    found["cost"][place] = float(result["cost"])


def _of(bank: ItemBank, labels: pd.Index) -> ItemBank:
    """The bank's questions that a subject has answers to, under one benchmark; kept, as most subjects share them."""
    inside = bank.items.index.isin(labels)
    key = ("replayed", inside.tobytes())
    if key not in bank.memo:
        part = bank.select(inside)
        bank.memo[key] = replace(part, items=part.items.assign(benchmark="all"))
    return bank.memo[key]


def replay_summary(found: xr.Dataset) -> pd.DataFrame:
    """By policy and number of questions: root mean squared error over subjects with its standard error, mean sd, share
    of intervals that hold the truth, mean width, number of subjects.

    Standard errors are over subjects; a subject's repeats are averaged first.
    """
    error = found["estimate"] - found["truth"]
    inside = ((found["lower"] <= found["truth"]) & (found["truth"] <= found["upper"])).where(error.notnull())
    square = (error**2).mean("repeat")
    n = square.notnull().sum("subject")
    rmse = np.sqrt(square.mean("subject"))
    table = xr.Dataset(
        {
            "rmse": rmse,
            "rmse_se": square.std("subject", ddof=1) / np.sqrt(n) / (2 * rmse),
            "sd": found["sd"].mean(("subject", "repeat")),
            "coverage": inside.mean("repeat").mean("subject"),
            "coverage_se": inside.mean("repeat").std("subject", ddof=1) / np.sqrt(n),
            "width": (found["upper"] - found["lower"]).mean(("subject", "repeat")),
            "cost": found["cost"].mean(("subject", "repeat")),
            "subjects": n,
        }
    )
    return table.to_dataframe().reset_index().sort_values(["asked", "policy"]).reset_index(drop=True)
