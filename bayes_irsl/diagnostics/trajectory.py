"""Checks of a trajectory: do the chains agree, what do the data say of its shape, and does anything break out of it?"""

from __future__ import annotations

from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import pandas as pd

from bayes_irsl import blocks, kernels
from bayes_irsl.block_layout import blocks as blocks_of
from bayes_irsl.block_layout import by_subject
from bayes_irsl.covariates import Layout, layout
from bayes_irsl.diagnostics.sampler import chain_checks, notes_of
from bayes_irsl.diagnostics.verdicts import Check, Diagnostics, some, worst
from bayes_irsl.forecasts.extrapolate import hyperparameters
from bayes_irsl.inference.importance import GOOD
from bayes_irsl.inference.staged import DENSE_ROWS
from bayes_irsl.priors import Prior

Floats = npt.NDArray[np.floating]

# A posterior sd of more than this share of the prior's has learned nothing worth the name.
UNLEARNED = 0.9
FEW_RUNS = 5
# Standardised leave-one-out residuals beyond this are jumps; of many thousand none is expected.
JUMP = 4.0


def trajectory_checks(fit: Any) -> Diagnostics:
    """Convergence, what is identified, jumps, and how many independent runs there are.

    Parameters
    ----------
    fit : Fit of an AbilityTrajectory
    """
    names, draws = _sampled(fit) if fit.method == "nuts" else _free(fit)
    labels = np.array(names)
    by_chains = "diverging" in fit.tree["sample_stats"].dataset
    computed = [*chain_checks(draws, labels), _divergences(fit)] if by_chains else [_weights(fit)]
    return Diagnostics((*computed, *_items(fit), _identified(fit), *_shape(fit), _jumps(fit), _runs(fit)))


def _free(fit: Any) -> tuple[list[str], Floats]:
    """Names and draws (chain, draw, parameter) of the hyperparameters that have a prior."""
    posterior, priors = fit.tree["posterior"].dataset, fit.spec.priors
    names, columns = [], []
    for name in priors.__dataclass_fields__:
        if name in posterior and isinstance(getattr(priors, name), Prior):
            value = posterior[name]
            flat = value.to_numpy().reshape(*value.shape[:2], -1)
            if np.ptp(flat) > 0:
                coordinate = [value[d].to_numpy() for d in value.dims[2:]]
                labels = coordinate[0].astype(str).tolist() if coordinate else [""]
                names += [f"{name}[{label}]" if label else name for label in labels]
                columns.append(flat)
    return names, np.concatenate(columns, -1)


def _sampled(fit: Any) -> tuple[list[str], Floats]:
    """The same of everything that a joint fit has sampled: abilities and items too."""
    names, columns = [], []
    for name, value in fit.tree["posterior"].dataset.data_vars.items():
        flat = value.to_numpy().reshape(*value.shape[:2], -1)
        moving = np.flatnonzero(np.ptp(flat, axis=(0, 1)) > 0)
        places = list(product(*(value[d].to_numpy().astype(str).tolist() for d in value.dims[2:])))
        names += [f"{name}[{', '.join(places[i])}]" if places[i] else str(name) for i in moving]
        columns.append(flat[..., moving])
    return names, np.concatenate(columns, -1)


def _weights(fit: Any) -> Check:
    notes = notes_of(fit)
    if fit.method == "laplace":
        return Check(
            "hyperparameters",
            "REVIEW",
            np.nan,
            "Hyperparameters are normal around their mode, which nothing has checked.",
            'Fit fewer benchmarks with method="staged" and compare the forecasts.',
        )
    k = float(notes["pareto_k"])
    return Check(
        "Pareto k",
        worst(k, GOOD, 1.0),
        k,
        f"Importance weights of the hyperparameters are worth {notes['effective_draws']:.0f} equal draws; the shape of "
        f"their tail is {k:.2f}.",
        f"Above {GOOD} draws do not stand for the posterior: fewer abilities at a time, or priors that say more.",
    )


def _divergences(fit: Any) -> Check:
    diverging = fit.tree["sample_stats"].dataset["diverging"].to_numpy()
    n, share = int(diverging.sum()), float(diverging.mean())
    return Check(
        "divergences",
        worst(share, 0.0, 0.01),
        n,
        f"{n} of {diverging.size:,} transitions diverged.",
        "Raise target_accept to 0.95; if they stay, a scale near zero cannot be told from zero: fix it in the priors.",
    )


def _items(fit: Any) -> list[Check]:
    """Whether the items' fit has converged; none where scores of whole benchmarks have no items."""
    notes = notes_of(fit)
    if "items_converged" not in notes:
        return []
    good, passes = bool(notes["items_converged"]), int(notes["items_n_iterations"])
    return [
        Check(
            "items",
            "PASS" if good else "REVIEW",
            passes,
            f"The items' fit by Laplace has {'' if good else 'not '}converged after {passes} passes.",
            "Usually a benchmark that next to nobody passes or fails: leave it out, or fit its items by themselves and "
            "read their report.",
        )
    ]


def contraction(fit: Any) -> pd.DataFrame:
    """Posterior over prior sd of every hyperparameter, where its prior is normal (log scale); least learned first."""
    names, draws = _free(fit)
    rows = []
    for k, label in enumerate(names):
        prior = getattr(fit.spec.priors, label.partition("[")[0])
        values = draws[..., k].ravel()
        values = np.log(np.maximum(values, 1e-12)) if prior.positive else values
        # the log of a half-normal has sd 1.11
        scale = 1.11 if prior.family == "HalfNormal" else prior.parameters[1]
        rows.append((label, float(values.std() / scale)))
    return pd.DataFrame(rows, columns=["parameter", "ratio"]).sort_values("ratio", ascending=False, ignore_index=True)


def _identified(fit: Any) -> Check:
    table = contraction(fit)
    slope = table[table["parameter"].str.startswith(("slope", "pull"))]
    value = float(slope["ratio"].max()) if len(slope) else 0.0
    name = slope["parameter"].iloc[0] if len(slope) else "slope"
    return Check(
        "slope",
        worst(value, UNLEARNED, 1.2),
        value,
        f"Posterior over prior sd of what a decade is worth: at most {value:.2f} ({name}).",
        f"Above {UNLEARNED} the slope is the prior's: more sizes, or a prior that you can defend.",
        table,
    )


def _shape(fit: Any) -> list[Check]:
    table = contraction(fit).set_index("parameter")
    bends = table[table.index.str.startswith("bend")]
    if bends.empty:
        return []
    value = float(bends["ratio"].min())
    return [
        Check(
            "saturation",
            "REVIEW" if value > UNLEARNED else "PASS",
            value,
            f"Posterior over prior sd of the rate at which gains fall: {value:.2f} at best. "
            + ("A ceiling is not identified." if value > UNLEARNED else "The data speak of it."),
            "Far forecasts rest on the prior of `bend`: compare with TrajectoryPriors(bend=0.0), a straight line.",
        )
    ]


def residuals(fit: Any) -> pd.DataFrame:
    """Standardised leave-one-out residuals of abilities around what all others say, largest first.

    z_i = (K^-1 r)_i / sqrt((K^-1)_ii) at posterior medians: r the estimates of the first stage less the trend, K the
    covariance of abilities and of the estimates' errors.
    """
    posterior, first = fit.tree["posterior"].dataset, fit.tree["constant_data"].dataset
    place = layout(fit.spec, fit.responses.subjects)
    mean = first["estimate"].to_numpy()[place.used]
    error = first["estimate_error"].to_numpy()[place.used]
    hypers = {name: posterior[name].median(("chain", "draw")).to_numpy() for name in hyperparameters(posterior)}
    if place.scattered:
        hypers["scatter"] = hypers["scatter"][place.used]
    with jax.enable_x64(True):
        h = {name: jnp.asarray(value, float) for name, value in hypers.items()}
        z = (_residuals_in_full if mean.size <= DENSE_ROWS else _residuals_by_run)(h, place, mean, error)
    d = mean.shape[1]
    labels = np.asarray(fit.responses.subjects.index, dtype=str)[place.used]
    names = first["dimension"].to_numpy().astype(str) if d > 1 else [""]
    table = pd.DataFrame({"subject": np.tile(labels, d), "ability": np.repeat(names, len(labels)), "z": z.T.ravel()})
    return table.sort_values("z", key=np.abs, ascending=False, ignore_index=True)


def _residuals_in_full(h: dict[str, Any], place: Layout, mean: Floats, error: Floats) -> Floats:
    """Leave-one-out residuals (S, D) with the whole covariance."""
    points, subject = place.points(mean.shape[1])
    at = np.arange(len(mean))
    errors = np.zeros((mean.shape[1], len(mean)) * 2)
    errors[:, at, :, at] = error
    covariance = np.asarray(kernels.prior_covariance(h, points, subject)) + errors.reshape(mean.size, -1)
    inverse = np.linalg.inv(covariance)
    z = inverse @ (mean.T.ravel() - np.asarray(kernels.trend(h, points))) / np.sqrt(np.diag(inverse))
    return z.reshape(mean.T.shape).T


def _residuals_by_run(h: dict[str, Any], place: Layout, mean: Floats, error: Floats) -> Floats:
    """The same with the covariance in blocks."""
    b = blocks_of(place, mean.shape[1])
    inverse = blocks.inverse(h, b, tuple(r.take(error) for r in b.runs))
    apart = tuple(blocks.column(r.take(mean) - blocks.trend(h, r)) for r in b.runs)
    solved, diagonal = blocks.solve(inverse, b, apart), blocks.inverse_diagonal(inverse, b)
    z = tuple(
        (s[..., 0] / jnp.sqrt(d)).reshape(*r.rows.shape, -1) for s, d, r in zip(solved, diagonal, b.runs, strict=True)
    )
    return np.asarray(by_subject(b, z, len(mean)))


def _jumps(fit: Any) -> Check:
    table = residuals(fit)
    value = float(table["z"].abs().iloc[0])
    out = table[table["z"].abs() > JUMP]
    named = some([f"{s} {a}".strip() for s, a in zip(out["subject"], out["ability"], strict=True)])
    return Check(
        "jumps",
        "REVIEW" if len(out) else "PASS",
        value,
        f"{len(out)} of {len(table):,} abilities lie more than {JUMP:g} sd from what all others say"
        + (f": {named}." if len(out) else f"; the largest residual is {value:.1f} sd."),
        "An ability that emerges, or a subject that is not like the others: forecasts from below such a jump miss it.",
        table,
    )


def _runs(fit: Any) -> Check:
    place = layout(fit.spec, fit.responses.subjects)
    n = len(place.runs)
    return Check(
        "independent runs",
        "REVIEW" if n < FEW_RUNS else "PASS",
        n,
        f"{len(place.used)} subjects with {' and '.join(place.covariates)} come from {n} training runs.",
        f"With fewer than {FEW_RUNS} runs the spread between runs is mostly the prior's: add runs, not checkpoints.",
    )
