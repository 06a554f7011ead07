"""Log likelihood of every answer under every draw: computed when asked for, a block of answers at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import xarray as xr

from bayes_irsl.answers import LIKELIHOODS
from bayes_irsl.diagnostics.predict import cell_blocks, cell_latents, cell_logits, log_density, shares, take_draws
from bayes_irsl.errors import InputError

LARGEST = 500_000_000


def log_likelihood_blocks(fit: Any, draws: int = 400) -> Iterator[tuple[slice, np.ndarray]]:
    """Blocks of answers in the order of ``fit.responses``: (slice of obs_id, log likelihood (draw, answers in it))."""
    taken, responses, share = take_draws(fit, draws), fit.responses, shares(fit)
    prepare = LIKELIHOODS[taken.likelihood].prepare
    at = 0
    for cells, real in cell_blocks(np.arange(responses.n_obs), taken.size):
        *_, trials, parameters = cell_logits(taken, responses, cells)
        eta = cell_latents(taken, responses, cells)[0]
        data = prepare(share[cells], None) if responses.trials is None else prepare(responses.answer[cells], trials)
        yield slice(at, at + real), np.asarray(log_density(taken.likelihood, data, eta, parameters))[:, :real]
        at += real


def log_likelihood(fit: Any, draws: int = 400) -> xr.DataArray:
    """Log likelihood of every answer, for ``az.loo`` and the like.

    Parameters
    ----------
    fit : Fit
    draws : int
        At most so many posterior draws, evenly spaced; put together as one chain.

    Returns
    -------
    DataArray (chain, draw, obs_id)
        With the subject and the item of each answer as coordinates.

    Raises
    ------
    InputError
        Where it would hold more than 500 million numbers: go through :func:`log_likelihood_blocks` instead.
    """
    n = fit.responses.n_obs
    kept = take_draws(fit, draws).size
    if n * kept > LARGEST:
        raise InputError(
            f"{kept:,} draws x {n:,} answers are {n * kept / 2.5e8:.1f} GB: ask for at most "
            f"{max(LARGEST // n, 1):,} draws, or sum over log_likelihood_blocks(fit), which never holds them all"
        )
    values = np.empty((1, kept, n), np.float32)
    for where, block in log_likelihood_blocks(fit, draws):
        values[0, :, where] = block
    r = fit.responses
    coords = {
        "chain": [0],
        "draw": np.arange(kept),
        "obs_id": np.arange(n),
        "subject": ("obs_id", np.asarray(r.subjects.index, str)[r.subject_index]),
        "item": ("obs_id", np.asarray(r.items.index, str)[r.item_index]),
    }
    return xr.DataArray(values, coords, ("chain", "draw", "obs_id"), name="answer")
