"""Answers with known truth: (responses, truth) pairs for tests, checks of methods and notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from scipy.special import expit

from bayes_irsl import _validate
from bayes_irsl._like import LIKE
from bayes_irsl.errors import InputError
from bayes_irsl.responses import Responses

KINDS = {
    "bernoulli": "binary",
    "binomial": "count",
    "beta-binomial": "count",
    "beta": "probability",
    "ordered-beta": "probability",
    "zero-one-beta": "probability",
}
CURVES = ("1pl", "2pl", "3pl")
_BLOCK_CELLS = 1_000_000
_LEAST_SHAPE = 1e-30
_INSIDE = (1e-300, np.nextafter(1.0, 0.0))  # where a Beta draw underflows, it is still no exact 0 or 1


def simulate_responses(
    n_subjects: int,
    n_items: int,
    *,
    likelihood: str = "bernoulli",
    curve: str = "2pl",
    n_benchmarks: int = 1,
    trials: Any = None,
    phi: Any = 20.0,
    sd_log_phi: float = 0.0,
    theta: Any = None,
    sd_theta: float = 1.0,
    sd_log_a: float = 0.4,
    intercept: Any = None,
    mean_intercept: float | Sequence[float] = 0.0,
    sd_intercept: float = 1.2,
    guessing: Any = 0.2,
    cuts: tuple[float, float] = (-3.0, 3.0),
    logit_boundary: float = -2.0,
    logit_one: float = 0.0,
    missing: float = 0.0,
    seed: int = 0,
) -> tuple[Responses, xr.Dataset]:
    """Answers drawn from an item response model, and the parameters they were drawn with.

    mean = c + (1 - c) sigmoid(a theta + intercept), with theta ~ Normal(0, sd_theta),
    log a ~ Normal(0, sd_log_a), intercept ~ Normal(mean_intercept, sd_intercept) and b = -intercept / a.

    Parameters
    ----------
    n_subjects, n_items : int
    likelihood : "bernoulli" | "binomial" | "beta-binomial" | "beta" | "ordered-beta" | "zero-one-beta"
    curve : "1pl" (a = 1) | "2pl" | "3pl" (2pl with a guessing floor)
    n_benchmarks : int
        Items are split evenly over benchmarks "benchmark 1", "benchmark 2", ...
    trials : int or array that broadcasts to (n_subjects, n_items)
        For counts; 10 where it is not given.
    phi : float or array (n_items,)
        Precision of the Beta distributions, spread over items by ``exp(sd_log_phi * z)``.
    theta : array (n_subjects,), optional
        Abilities, where they are not to be drawn.
    intercept : array (n_items,), optional
        Intercepts, where they are not to be drawn.
    mean_intercept : float or one number a benchmark
    guessing : float or array (n_items,)
        Floor c of the 3pl; also the items' chance level.
    cuts : (low, high)
        Cutpoints of the ordered beta, on the logit scale of the mean.
    logit_boundary, logit_one : float
        Zero-one beta: logit of an answer being exactly 0 or 1, and of it then being 1.
    missing : float in [0, 1)
        Share of answers left out, completely at random.
    seed : int
        The same seed gives the same answers.

    Returns
    -------
    responses : Responses
    truth : Dataset
        theta (subject); a, b, intercept, c, phi (item); the hyperparameters; n_answers (subject), on the
        scale of the simulation. :func:`to_calibration_scale` maps it to the scale of a bank.

    Raises
    ------
    InputError
        A size, share or name that cannot be.
    """
    _check(n_subjects, n_items, likelihood, curve, n_benchmarks, missing, cuts)
    for name, scale in (("sd_theta", sd_theta), ("sd_log_a", sd_log_a), ("sd_intercept", sd_intercept)):
        if not (np.isfinite(scale) and scale >= 0):
            raise InputError(f"{name} is a standard deviation, finite and not negative; got {scale!r}.")
    for_parameters, for_answers, for_missing = (np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(3))
    normal = for_parameters.standard_normal
    benchmark = np.arange(n_items) * n_benchmarks // n_items
    centre = _vector(mean_intercept, n_benchmarks, "mean_intercept")
    drawn_theta = sd_theta * normal(n_subjects)
    log_a = (0.0 if curve == "1pl" else sd_log_a) * normal(n_items)
    drawn_intercept = centre[benchmark] + sd_intercept * normal(n_items)
    log_spread = sd_log_phi * normal(n_items)
    item = {
        "a": np.exp(log_a),
        "intercept": drawn_intercept if intercept is None else _vector(intercept, n_items, "intercept"),
        "c": _vector(guessing if curve == "3pl" else 0.0, n_items, "guessing"),
        "phi": _vector(phi, n_items, "phi") * np.exp(log_spread),
    }
    if not (item["phi"] > 0).all() or not ((item["c"] >= 0) & (item["c"] < 1)).all():
        raise InputError("phi is positive and guessing lies in [0, 1).")
    ability = drawn_theta if theta is None else _vector(theta, n_subjects, "theta")
    counts = _trials(trials, likelihood, (n_subjects, n_items))
    extra = {
        "cut_low": cuts[0],
        "cut_high": cuts[1],
        "logit_boundary": logit_boundary,
        "logit_one": logit_one,
    }

    cells, nudged = _draw(likelihood, ability, item, counts, extra, missing, for_answers, for_missing)
    names = np.array([f"benchmark {k + 1}" for k in range(n_benchmarks)])
    items = pd.DataFrame({"benchmark": names[benchmark].astype(object)}, index=_labels("item", n_items))
    if curve == "3pl":
        items["chance"] = item["c"]
    notes = [f"simulated: {likelihood}, {curve}, seed {seed}.", *_nudge_note(nudged)]
    responses = Responses(
        **cells,
        kind=KINDS[likelihood],
        subjects=pd.DataFrame(index=_labels("subject", n_subjects)),
        items=items,
        notes=tuple(notes),
    )

    hyper: dict[str, Any] = {
        "mean_intercept": ("benchmark", centre),
        "sd_intercept": ("benchmark", np.full(n_benchmarks, float(sd_intercept))),
        "mean_log_a": 0.0,
        "sd_log_a": 0.0 if curve == "1pl" else float(sd_log_a),
        "sd_theta": float(sd_theta),
    }
    used = {"ordered-beta": ("cut_low", "cut_high"), "zero-one-beta": ("logit_boundary", "logit_one")}
    hyper |= {name: float(extra[name]) for name in used.get(likelihood, ())}
    kept = ["a", "intercept"] + ["c"] * (curve == "3pl") + ["phi"] * ("beta" in likelihood)
    truth = xr.Dataset(
        {
            "theta": ("subject", ability),
            "b": ("item", -item["intercept"] / item["a"]),
            **{name: ("item", item[name]) for name in kept},
            **hyper,
            "n_answers": ("subject", np.diff(responses.by_subject()[1])),
        },
        {
            "subject": np.asarray(responses.subjects.index, dtype=str),
            "item": np.asarray(items.index, dtype=str),
            "benchmark": names,
            "item_benchmark": ("item", names[benchmark]),
        },
        {"likelihood": likelihood, "curve": curve, "seed": seed, "scale": "simulation"},
    )
    return responses, truth


def to_calibration_scale(truth: xr.Dataset, subjects: Any = None) -> xr.Dataset:
    """Truth on the scale of a bank, where the calibration subjects have mean 0 and sd 1.

    With m and s the mean and population sd (ddof 0) of theta over those subjects:
    theta' = (theta - m) / s, a' = a s, b' = (b - m) / s, intercept' = intercept + a m.

    Parameters
    ----------
    truth : Dataset
        Of :func:`simulate_responses`.
    subjects : list of labels or boolean mask, optional
        The calibration subjects; those with answers where not given.

    Returns
    -------
    Dataset
        The same variables; `mean_intercept` and `sd_intercept` are those of the shifted intercepts.

    Raises
    ------
    InputError
        Fewer than two subjects, or subjects of equal ability.
    """
    chosen = truth["n_answers"].to_numpy() > 0 if subjects is None else np.asarray(subjects)
    if chosen.dtype != bool:
        unknown = [str(x) for x in chosen if str(x) not in truth.indexes["subject"]]
        if unknown:
            raise _validate.unknown(unknown, truth["subject"].to_numpy(), "subject")
        chosen = truth.indexes["subject"].isin([str(x) for x in chosen])
    theta = truth["theta"].to_numpy()[chosen]
    spread = float(theta.std()) if theta.size else 0.0
    if not spread > 0:
        raise InputError(f"a scale needs two or more subjects of different ability; got {theta.size}.")
    mean = float(theta.mean())
    # the mean and variance of a log-normal a carry the shift of intercepts into their population
    mean_a = np.exp(truth["mean_log_a"] + truth["sd_log_a"] ** 2 / 2)
    var_a = mean_a**2 * np.expm1(truth["sd_log_a"] ** 2)
    out = truth.assign(
        theta=(truth["theta"] - mean) / spread,
        a=truth["a"] * spread,
        b=(truth["b"] - mean) / spread,
        intercept=truth["intercept"] + truth["a"] * mean,
        mean_intercept=truth["mean_intercept"] + mean * mean_a,
        sd_intercept=np.sqrt(truth["sd_intercept"] ** 2 + mean**2 * var_a),
        mean_log_a=truth["mean_log_a"] + np.log(spread),
        sd_theta=truth["sd_theta"] / spread,
    )
    return out.assign_attrs(scale="calibration")


def simulate_like(name: str, seed: int = 0) -> tuple[Responses, xr.Dataset]:
    """A simulated stand-in for a real set that cannot be shipped: same shape and spreads, invented answers.

    Parameters
    ----------
    name : str
        "lm-task-demands-like": 22 subjects in 5 families with compute, 1,216 eight-way items of 32 types,
        p(correct).
        "livecodebench-like": 37 subjects x 479 items, right answers of 10 samples, more spread than binomial.
        "monkeys-math-like": 7 sizes of one family with compute x 128 hard items, right answers of 10,000
        samples.
    seed : int

    Returns
    -------
    responses, truth
        As from :func:`simulate_responses`; every label starts with "simulated".

    Raises
    ------
    InputError
        An unknown name.
    """
    if name not in LIKE:
        raise InputError(f"no simulated set {name!r}; there are {', '.join(LIKE)}.")
    subjects, items, model = LIKE[name](np.random.default_rng([seed, len(name)]))
    responses, truth = simulate_responses(len(subjects), len(items), seed=seed, **model)
    items.insert(0, "benchmark", f"simulated {name}")
    items.index = pd.Index([f"simulated-item-{j}" for j in range(len(items))], name="item")
    note = f"simulated: {name} has the shape and spreads of the real set and none of its answers."
    responses = replace(
        responses,
        subjects=_validate.describe(subjects, "subject"),
        items=_validate.describe(items, "item"),
        notes=(note,),
    )
    coords = {
        "subject": np.asarray(subjects.index, dtype=str),
        "item": np.asarray(items.index, dtype=str),
        "benchmark": [f"simulated {name}"],
        "item_benchmark": ("item", np.asarray(items["benchmark"], dtype=str)),
    }
    return responses, truth.assign_coords(coords).assign_attrs(like=name)


def _check(
    n_subjects: int, n_items: int, likelihood: str, curve: str, n_benchmarks: int, missing: float, cuts: Any
) -> None:
    for name, size in (("n_subjects", n_subjects), ("n_items", n_items), ("n_benchmarks", n_benchmarks)):
        if not isinstance(size, (int, np.integer)) or isinstance(size, bool) or size < 1:
            raise InputError(f"{name} is a whole number of at least 1; got {size!r}.")
    if n_benchmarks > n_items:
        raise InputError(f"{n_benchmarks} benchmarks need as many items; got {n_items}.")
    for name, value, valid in (("likelihood", likelihood, tuple(KINDS)), ("curve", curve, CURVES)):
        if value not in valid:
            raise InputError(f"{name} is one of {', '.join(valid)}; got {value!r}.")
    if not 0 <= missing < 1:
        raise InputError(f"missing is a share in [0, 1); got {missing!r}.")
    if not cuts[0] < cuts[1]:
        raise InputError(f"cuts are (low, high) with low < high; got {cuts!r}.")


def _vector(value: Any, size: int, name: str) -> np.ndarray:
    try:
        array = np.asarray(value, dtype=np.float64)
        out = np.broadcast_to(array, (size,)).copy()
    except (TypeError, ValueError):
        raise InputError(f"{name} is one number or {size:,} of them; got {value!r}.") from None
    if not np.isfinite(out).all():
        raise InputError(f"{name} must be finite.")
    return out


def _trials(trials: Any, likelihood: str, shape: tuple[int, int]) -> np.ndarray | None:
    if KINDS[likelihood] != "count":
        if trials is not None:
            raise InputError(f"trials go with counts; likelihood={likelihood!r} has none.")
        return None
    try:
        counts = np.broadcast_to(np.asarray(10 if trials is None else trials, dtype=np.float64), shape)
    except (TypeError, ValueError):
        raise InputError(f"trials is one whole number or an array that broadcasts to {shape}.") from None
    if not ((counts >= 1) & (counts == np.rint(counts)) & (counts <= _validate.MAX_TRIALS)).all():
        raise InputError(f"trials are whole numbers from 1 to {_validate.MAX_TRIALS:,}.")
    return counts


def _labels(role: str, size: int) -> pd.Index:
    return pd.Index([f"{role}-{k}" for k in range(size)], name=role)


def _draw(
    likelihood: str,
    theta: np.ndarray,
    item: dict[str, np.ndarray],
    counts: np.ndarray | None,
    extra: dict[str, float],
    missing: float,
    rng: np.random.Generator,
    rng_missing: np.random.Generator,
) -> tuple[dict[str, Any], int]:
    """Cells of Responses, a block of subjects at a time so that memory goes with the answers; and how many
    probabilities stand at the last number before 0 or 1, where their draws underflowed."""
    n_items = item["a"].size
    step = max(1, _BLOCK_CELLS // n_items)
    parts: dict[str, list[np.ndarray]] = {"subject_index": [], "item_index": [], "answer": [], "trials": []}
    nudged = 0
    for start in range(0, theta.size, step):
        stop = min(start + step, theta.size)
        if missing:
            row, col = np.nonzero(rng_missing.random((stop - start, n_items)) >= missing)
        else:
            row, col = np.divmod(np.arange((stop - start) * n_items), n_items)
        row = row + start
        eta = item["a"][col] * theta[row] + item["intercept"][col]
        floor = item["c"][col]
        mean, rest = floor + (1 - floor) * expit(eta), (1 - floor) * expit(-eta)
        trials = None if counts is None else counts[row, col].astype(np.int32)
        answer = _answers(likelihood, rng, mean, rest, item["phi"][col], trials, extra)
        nudged += int(np.isin(answer, _INSIDE).sum())
        parts["subject_index"].append(row.astype(np.int32))
        parts["item_index"].append(col.astype(np.int32))
        parts["answer"].append(_validate.narrow(answer))
        if trials is not None:
            parts["trials"].append(trials)
    cells: dict[str, Any] = {name: np.concatenate(parts.pop(name)) for name in list(parts)[:3]}
    return {**cells, "trials": np.concatenate(parts["trials"]) if counts is not None else None}, nudged


def _nudge_note(nudged: int) -> list[str]:
    if not nudged:
        return []
    return [f"{nudged:,} probabilities nearer to 0 or 1 than float64 can tell stand at the nearest number inside."]


def _answers(
    likelihood: str,
    rng: np.random.Generator,
    mean: np.ndarray,
    rest: np.ndarray,
    phi: np.ndarray,
    trials: np.ndarray | None,
    extra: dict[str, float],
) -> np.ndarray:
    if likelihood == "bernoulli":
        return (rng.random(mean.size) < mean).astype(np.float64)
    share = np.minimum(mean, 1.0)
    if likelihood != "binomial":
        share = rng.beta(np.maximum(mean * phi, _LEAST_SHAPE), np.maximum(rest * phi, _LEAST_SHAPE))
    if trials is not None:
        return rng.binomial(trials, share).astype(np.float64)
    share = np.clip(share, *_INSIDE)
    if likelihood == "ordered-beta":
        logit = np.log(mean) - np.log(rest)
        u = rng.random(mean.size)
        share[u < expit(extra["cut_low"] - logit)] = 0
        share[u > expit(extra["cut_high"] - logit)] = 1
    if likelihood == "zero-one-beta":
        edge = rng.random(mean.size) < expit(extra["logit_boundary"])
        share[edge] = rng.random(int(edge.sum())) < expit(extra["logit_one"])
    return share
