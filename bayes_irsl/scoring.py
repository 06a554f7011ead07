"""Scores of new subjects on a calibrated bank: abilities by quadrature, benchmark scores with intervals."""

from __future__ import annotations

import zlib
from typing import NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from xarray.indexes import PandasIndex

from bayes_irsl import _validate as check
from bayes_irsl._options import check_mass, check_seed
from bayes_irsl.bank import ItemBank
from bayes_irsl.benchmark_scores import SAMPLES, Predicted, groups, predict
from bayes_irsl.errors import InputError
from bayes_irsl.grids import moments, quantiles
from bayes_irsl.quadrature import Answers, Grid, posteriors
from bayes_irsl.responses import Responses
from bayes_irsl.spec import LIKELIHOODS as KINDS

_BATCH = 1024  # subjects whose grids are held at once


def score(
    bank: ItemBank,
    responses: Responses,
    *,
    mass: float = 0.9,
    draws: int = 0,
    seed: int = 0,
    prior: tuple[float, float] | None = None,
    benchmarks: bool = True,
    population: bool = False,
) -> xr.Dataset:
    """Posterior of new subjects' abilities, and of their scores on every benchmark of the bank; no sampler.

    p(theta | y) ~ Normal(theta; prior) prod_j mean_d p(y_j | theta, item draw d), by quadrature: exact where
    the items of the bank are independent a posteriori and each is answered once. A subject's score on a
    benchmark is the mean over the benchmark's items in the bank, answered ones as observed, the others
    predicted from the ability, the item draws and the chance of single answers.

    Parameters
    ----------
    bank : ItemBank
    responses : Responses
        Answers of the kind that the bank was calibrated on; a missing answer says nothing.
    mass : float
        Mass of the equal-tailed intervals.
    draws : int
        Number of posterior draws of ability and score to return as well.
    seed : int
        Of the draws and of the intervals of scores; a subject's numbers do not depend on its company.
    prior : (mean, sd), optional
        Ability before any answer; the bank's where it is not given. For subjects that may be stronger than
        all of the calibration give a wide one, such as (0, 3).
    benchmarks : bool
        Whether to predict benchmark scores too.
    population : bool
        Predict, instead, the long-run score on endlessly many new items of which the bank's are a sample.

    Returns
    -------
    Dataset
        Over subject: ability_mean, ability_sd, ability_lower, ability_upper, beyond_calibration_range,
        n_answers. Where the bank has several abilities they are scored one by one, over subject and
        dimension. Over subject and benchmark: score_mean, score_sd, score_lower, score_upper, n_answered.
        With draws: ability, score.

    Raises
    ------
    InputError
        Items that are not in the bank, answers of another kind, options that cannot be used.
    """
    _check_options(bank, responses, mass, draws, seed, prior)
    prior = bank.prior if prior is None else (float(prior[0]), float(prior[1]))
    matched = _matched(bank, responses)
    names, n_dimensions = np.asarray(responses.subjects.index, dtype=str), len(bank.dimensions)
    levels = np.array([(1 - mass) / 2, (1 + mass) / 2])
    abilities: list[np.ndarray] = []
    predicted: list[Predicted] = []
    for start in range(0, responses.n_subjects, _BATCH):
        subjects = np.arange(start, min(start + _BATCH, responses.n_subjects))
        grid = _posteriors(bank, matched, subjects, prior)
        mean, sd = moments(grid.theta, grid.height[0])
        table = np.column_stack([mean, sd, quantiles(grid.theta, grid.height[0], levels)])
        abilities.append(table.reshape(len(subjects), n_dimensions, 4))
        for i, subject in enumerate(subjects if benchmarks or draws else []):
            rows = slice(i * n_dimensions, (i + 1) * n_dimensions)
            rng = np.random.default_rng([seed, zlib.crc32(names[subject].encode())])
            one = predict(
                bank,
                *matched.of(int(subject)),
                grid.theta[rows],
                grid.height[:, rows],
                rng,
                levels=levels,
                n_samples=max(draws, SAMPLES),
                population=population,
            )
            predicted.append(one._replace(ability=one.ability[:, :draws], score=one.score[:, :draws]))
    variables = _abilities(bank, responses, np.concatenate(abilities))
    if benchmarks:
        variables |= _scores(predicted)
    if draws:
        variables |= _draws(bank, predicted, benchmarks)
    attrs = {
        "interval": "equal-tailed",
        "mass": mass,
        "seed": seed,
        "prior": f"Normal({prior[0]:g}, {prior[1]:g})",
        "scale": bank.scale,
        "score": "long-run mean over new items of the kind" if population else "mean over the bank's items",
    }
    dims = [name for name, used in (("dimension", n_dimensions > 1), ("benchmark", benchmarks)) if used]
    coords = [_coordinate("subject", names), *(_own_coordinate(bank, dim) for dim in dims)]
    return xr.Dataset(variables, coords=_joined(coords), attrs=attrs)


class _Matched(NamedTuple):
    """Answers by subject: position of the item, answer as the likelihood takes it, trials, share right."""

    starts: np.ndarray
    item: np.ndarray
    answer: np.ndarray
    trials: np.ndarray | None
    share: np.ndarray

    def of(self, subject: int) -> tuple[np.ndarray, np.ndarray]:
        """Items that a subject answered, and the share of each that was right."""
        rows = slice(self.starts[subject], self.starts[subject + 1])
        return self.item[rows], self.share[rows]


def _check_options(
    bank: ItemBank, responses: Responses, mass: float, draws: int, seed: int, prior: tuple[float, float] | None
) -> None:
    if not isinstance(bank, ItemBank):
        raise InputError(f"score needs an ItemBank; got {type(bank).__name__}. Build one with ItemBank.from_fit(fit)")
    if not isinstance(responses, Responses):
        raise InputError(f"score needs Responses; got {type(responses).__name__}. Build them with Responses.from_wide")
    check_mass(mass)
    check_seed(seed)
    if not isinstance(draws, int | np.integer) or draws < 0:
        raise InputError(f"draws = {draws!r}: expected a whole number of at least 0")
    if prior is not None and not (len(prior) == 2 and np.isfinite(prior).all() and prior[1] > 0):
        raise InputError(f"prior = {prior!r}: expected (mean, sd) with a positive sd")


def _matched(bank: ItemBank, responses: Responses) -> _Matched:
    """The answers beside the bank's items, once they are known to fit."""
    where = _positions(bank, responses.items.index)
    unknown = np.flatnonzero(where < 0)
    unknown = unknown[np.isin(unknown, responses.item_index)] if unknown.size else unknown
    if unknown.size:
        raise check.unknown(responses.items.index[unknown], bank.items.index, "item of the bank is called")
    kinds = KINDS[bank.likelihood] if bank.likelihood == "bernoulli" else (*KINDS[bank.likelihood], "binary")
    if responses.n_obs and responses.kind not in kinds:
        raise InputError(
            f"the bank holds {bank.likelihood!r} items, which take {' or '.join(dict.fromkeys(kinds))} "
            f"answers, not {responses.kind}; pass them in the form that the bank was calibrated on"
        )
    answer = responses.answer.astype(float)
    if bank.likelihood == "beta":
        answer = _off_the_edges(bank, responses, answer)
    order, starts = responses.by_subject()
    trials = None if responses.trials is None else responses.trials[order]
    share = responses.answer[order] / (1 if trials is None else trials)
    return _Matched(starts, where[responses.item_index[order]], answer[order], trials, share)


def _positions(bank: ItemBank, labels: pd.Index) -> np.ndarray:
    """Position in the bank of every label, -1 where there is none; kept for the next table that shares them."""
    asked, where = bank.memo.get("positions", (None, None))
    if asked is not labels:
        where = bank.items.index.get_indexer(labels)
        bank.memo["positions"] = (labels, where)
    return where


def _off_the_edges(bank: ItemBank, responses: Responses, answer: np.ndarray) -> np.ndarray:
    """Answers after the squeeze of the bank's calibration; without one, exact 0 and 1 are refused."""
    if bank.squeeze is not None:
        return (answer * (bank.squeeze - 1) + 0.5) / bank.squeeze
    edge = np.flatnonzero((answer == 0) | (answer == 1))
    if edge.size:
        row, column = responses.subject_index[edge[0]], responses.item_index[edge[0]]
        where = f"subject {responses.subjects.index[row]!r}, item {responses.items.index[column]!r}"
        raise InputError(
            f"{where}: {answer[edge[0]]:g}; a Beta density has no value there. "
            'Calibrate with likelihood="ordered-beta" or with squeeze=n'
        )
    return answer


def _posteriors(bank: ItemBank, matched: _Matched, subjects: np.ndarray, prior: tuple[float, float]) -> Grid:
    """Posteriors of some subjects; a unit is one ability of one subject."""
    n_dimensions = len(bank.dimensions)
    rows = slice(matched.starts[subjects[0]], matched.starts[subjects[-1] + 1])
    counts = np.diff(matched.starts)[subjects]
    unit = np.repeat(np.arange(len(subjects)), counts) * n_dimensions + _dimension(bank, matched.item[rows])
    order = np.argsort(unit, kind="stable")
    trials = None if matched.trials is None else matched.trials[rows][order]
    answers = Answers(unit[order], matched.item[rows][order], matched.answer[rows][order], trials)
    return posteriors(bank, answers, len(subjects) * n_dimensions, prior)


def _dimension(bank: ItemBank, items: np.ndarray) -> np.ndarray:
    layout = groups(bank)
    return layout.dimension[layout.of_item[items]]


def _abilities(bank: ItemBank, responses: Responses, table: np.ndarray) -> dict[str, tuple]:
    """Variables of the abilities from (subject, dimension, [mean, sd, lower, upper])."""
    ends = np.array([bank.theta_range.get(name, (-np.inf, np.inf)) for name in bank.dimensions])
    beyond = (table[..., 0] < ends[:, 0]) | (table[..., 0] > ends[:, 1])
    several = len(bank.dimensions) > 1
    dims = ("subject", "dimension") if several else ("subject",)
    values = {f"ability_{name}": table[..., i] for i, name in enumerate(("mean", "sd", "lower", "upper"))}
    values["beyond_calibration_range"] = beyond
    out: dict[str, tuple] = {name: (dims, value if several else value[:, 0]) for name, value in values.items()}
    out["n_answers"] = ("subject", np.bincount(responses.subject_index, minlength=responses.n_subjects))
    return out


def _scores(predicted: list[Predicted]) -> dict[str, tuple]:
    interval = np.stack([p.interval for p in predicted])
    values = {
        "score_mean": np.stack([p.mean for p in predicted]),
        "score_sd": np.stack([p.sd for p in predicted]),
        "score_lower": interval[..., 0],
        "score_upper": interval[..., 1],
        "n_answered": np.stack([p.n_answered for p in predicted]),
    }
    return {name: (("subject", "benchmark"), value) for name, value in values.items()}


def _draws(bank: ItemBank, predicted: list[Predicted], benchmarks: bool) -> dict[str, tuple]:
    ability = np.stack([p.ability for p in predicted])
    several = len(bank.dimensions) > 1
    out = {"ability": (("subject", "dimension", "draw"), ability) if several else (("subject", "draw"), ability[:, 0])}
    if benchmarks:
        out["score"] = (("subject", "benchmark", "draw"), np.stack([p.score for p in predicted]))
    return out


def _coordinate(dim: str, text: np.ndarray) -> PandasIndex:
    return PandasIndex(pd.Index(text, dtype=object), dim, coord_dtype=text.dtype)


def _own_coordinate(bank: ItemBank, dim: str) -> PandasIndex:
    """Coordinate of the bank's benchmarks or dimensions, built once."""
    if ("coordinate", dim) not in bank.memo:
        names = bank.benchmarks if dim == "benchmark" else bank.dimensions
        bank.memo["coordinate", dim] = _coordinate(dim, np.asarray(names, dtype=str))
    return bank.memo["coordinate", dim]


def _joined(coordinates: list[PandasIndex]) -> xr.Coordinates:
    """Coordinates of a dataset; built by hand, as inferring them costs more than a subject's posterior."""
    variables = {index.dim: index.create_variables()[index.dim] for index in coordinates}
    return xr.Coordinates(variables, indexes={index.dim: index for index in coordinates})
