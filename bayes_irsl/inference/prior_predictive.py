"""What the priors say about answers before any is seen: mean scores of subjects and items under the prior."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from numpyro import handlers

from bayes_irsl.cells import problem
from bayes_irsl.errors import InputError
from bayes_irsl.inference.nuts import model_of
from bayes_irsl.responses import Responses
from bayes_irsl.spec import ItemResponse

Array = Any


def from_prior(model: Any, cells: Any, key: Array) -> tuple[dict[str, Array], Array]:
    """One draw of all sites of a program by name, and of the answers in the cells."""
    trace = handlers.trace(handlers.seed(model, key)).get_trace(cells)
    sites = {name: site["value"] for name, site in trace.items() if site["type"] == "sample"}
    return sites, sites.pop("answer")


def prior_predictive(spec: ItemResponse, responses: Responses, *, draws: int = 500, seed: int = 0) -> xr.Dataset:
    """Answers that the priors expect in the cells of ``responses``, and what was seen there.

    A prior is too narrow where what was seen lies outside what it expects, and too wide where it expects next to
    nothing but subjects and items at 0 or 1.

    Parameters
    ----------
    spec : ItemResponse
    responses : Responses
        Who answered what; the answers themselves are only summarised.
    draws : int
        Parameters drawn from the prior, each with one table of answers.
    seed : int

    Returns
    -------
    Dataset
        mean (draw,), subject_mean (draw, subject), item_mean (draw, item) as shares, for subjects and items with
        answers; seen_mean, seen_subject_mean, seen_item_mean. ``attrs["summary"]`` says in words how they compare.

    Raises
    ------
    InputError
        Where spec and answers do not fit together, or fewer than 20 draws are asked for.
    """
    if draws < 20:
        raise InputError(f"draws = {draws}: expected at least 20")
    task = problem(spec, responses)
    cells, _ = task.cells()
    keys = jax.random.split(jax.random.key(seed), draws)
    mean, by_subject, by_item = (np.asarray(v, float) for v in _summaries(task.spec, len(task.dimensions), cells, keys))
    rate = responses.rate
    seen = [
        np.bincount(index, rate, size)[kept] / np.bincount(index, minlength=size)[kept]
        for index, size, kept in (
            (responses.subject_index, responses.n_subjects, task.kept_subjects),
            (responses.item_index, responses.n_items, task.kept_items),
        )
    ]
    out = xr.Dataset(
        {
            "mean": ("draw", mean),
            "subject_mean": (("draw", "subject"), by_subject),
            "item_mean": (("draw", "item"), by_item),
            "seen_mean": ((), rate.mean()),
            "seen_subject_mean": ("subject", seen[0]),
            "seen_item_mean": ("item", seen[1]),
        },
        {
            "subject": np.asarray(responses.subjects.index, str)[task.kept_subjects],
            "item": np.asarray(responses.items.index, str)[task.kept_items],
        },
    )
    return out.assign_attrs(summary=_in_words(out))


def _in_words(out: xr.Dataset) -> str:
    lines = []
    for what, expected, seen in (
        ("mean of all answers", out["mean"].values, float(out["seen_mean"])),
        ("sd of subjects' means", out["subject_mean"].values.std(1), float(out["seen_subject_mean"].std())),
        ("sd of items' means", out["item_mean"].values.std(1), float(out["seen_item_mean"].std())),
    ):
        low, high = np.quantile(expected, [0.05, 0.95])
        verdict = "inside" if low <= seen <= high else "OUTSIDE"
        lines.append(f"{what}: the prior expects {low:.2f} to {high:.2f} (90 %), seen {seen:.2f}, {verdict}")
    edge = float(((out["item_mean"] < 0.01) | (out["item_mean"] > 0.99)).mean())
    lines.append(f"items below 0.01 or above 0.99 under the prior: {edge:.0%}")
    return "\n".join(lines)


@partial(jax.jit, static_argnames=("spec", "n_dimensions"))
def _summaries(spec: ItemResponse, n_dimensions: int, cells: Any, keys: Array) -> tuple[Array, Array, Array]:
    model = model_of(spec, n_dimensions)

    def one(key: Array) -> tuple[Array, Array, Array]:
        _, answer = from_prior(model, cells, key)
        share = answer / cells.trials
        mask = jnp.ones(share.shape) if cells.mask is None else cells.mask.astype(share.dtype)
        total = (share * mask).sum(1)
        if cells.subject is None:
            right, count = (share * mask).sum(0), mask.sum(0)
        else:
            zero = jnp.zeros(cells.n_subjects)
            right, count = (zero.at[cells.subject].add(v) for v in (share * mask, mask))
        return total.sum() / mask.sum(), right / count, total / mask.sum(1)

    return jax.lax.map(one, keys)
