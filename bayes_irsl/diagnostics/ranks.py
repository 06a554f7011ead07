"""Are ranks uniform? The empirical distribution of ranks against a band that holds it whole with known probability."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pandas as pd
import xarray as xr
from scipy import stats

from bayes_irsl.diagnostics.verdicts import Check

NULL_SIMULATIONS = 4000


def rank_p_values(ranks: np.ndarray, draws: int) -> np.ndarray:
    """p-value of uniformity on 0..draws of each column of ranks (simulation, quantity).

    The statistic is the smallest pointwise two-sided binomial probability of the empirical distribution function, its
    null distribution is simulated. Source: Saeilynoja, Buerkner & Vehtari (2022), sections 2.1-2.2.
    """
    null = _null(len(ranks), draws)
    return (1 + np.searchsorted(null, _statistic(ranks, draws), side="right")) / (len(null) + 1)


def calibration_check(ranks: xr.Dataset, level: float = 0.05) -> Check:
    """One verdict for all quantities of a calibration run; FAIL where one leaves its band, Bonferroni-corrected.

    Parameters
    ----------
    ranks : Dataset
        Of :func:`bayes_irsl.simulation_based_calibration`.
    level : float
        Chance that a right sampler fails.
    """
    draws = int(ranks.attrs["draws"])
    p = rank_p_values(ranks["rank"].values, draws)
    table = pd.DataFrame(
        {
            "p": p,
            # 0.5 if right; below it where the posterior sits too high.
            "mean_rank": ranks["rank"].values.mean(0) / draws,
            # 1 if right; above it where the posterior is too narrow.
            "spread": ranks["rank"].values.var(0) / ((draws + 1) ** 2 - 1) * 12,
        },
        index=pd.Index(ranks["quantity"].values, name="quantity"),
    ).sort_values("p")
    worst = min(float(p.min()) * len(p), 1.0)
    bad = table.index[table["p"] * len(p) < level].tolist()
    detail = f"{len(p)} quantities over {len(ranks['rank'])} simulated data sets; smallest corrected p = {worst:.2g}"
    if not bad:
        return Check("simulation-based calibration", "PASS", worst, f"{detail}.", table=table)
    return Check(
        "simulation-based calibration",
        "FAIL",
        worst,
        f"{detail}; outside the band: {', '.join(bad[:5])}{' ...' if len(bad) > 5 else ''}.",
        "Look at mean_rank and spread in the table: thin more first, then doubt the model or the sampler.",
        table,
    )


def _statistic(ranks: np.ndarray, draws: int) -> np.ndarray:
    n, points = len(ranks), np.arange(1, draws + 1)
    at_most = np.stack([(ranks < point).sum(0) for point in points])
    chance = (points / (draws + 1)).reshape(-1, *[1] * (ranks.ndim - 1))
    low = stats.binom.cdf(np.arange(n + 1), n, (points / (draws + 1))[:, None])
    high = stats.binom.sf(np.arange(n + 1) - 1, n, (points / (draws + 1))[:, None])
    rows = np.arange(draws).reshape(chance.shape)
    return 2 * np.minimum(low[rows, at_most], high[rows, at_most]).min(0)


@lru_cache(maxsize=8)
def _null(n: int, draws: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    return np.sort(_statistic(rng.integers(0, draws + 1, (n, NULL_SIMULATIONS)), draws))
