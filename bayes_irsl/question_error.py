"""How far a group's ability on the questions asked is from its ability on all questions of the kind.

A recipe or family favours some questions over others, at every size. Its ability on fifty questions then differs from
that on the population they come from, by the same amount for all its subjects; answers to the fifty cannot mend it, but
they show it: what single questions add to the estimates of two subjects of a group agrees more than chance would have.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import xarray as xr
from scipy.special import expit

from bayes_irsl.covariates import Layout
from bayes_irsl.errors import InputError
from bayes_irsl.responses import Responses

Floats = npt.NDArray[np.floating]

LEAST_OWN = 0.2


def shared_question_error(
    posterior: xr.Dataset, dimension: npt.NDArray[np.intp], r: Responses, place: Layout
) -> Floats:
    """Variance (D,) of the error that the subjects of a group share, on the scale of the abilities.

    The mean over pairs of subjects of one group, from different runs, of sum_j delta_sj delta_tj: delta_sj is what the
    residual on question j moves the estimate of subject s by, w_sj (y_sj - mu_sj) / sum_k w_sk mu'_sk. Pairs of
    different groups, which share nothing, are subtracted (the items' parameters were fitted to the same residuals).
    This is the covariance of estimates clustered by question (Liang and Zeger 1986), averaged over a group.

    Parameters
    ----------
    posterior
        Of an item response fit, with theta, a, b and where the curve has one c.
    dimension : int (J,), the ability that each question measures.
    """
    means = {k: posterior[k].mean(("chain", "draw")).to_numpy().astype(float) for k in "abc" if k in posterior}
    theta = posterior["theta"].mean(("chain", "draw")).to_numpy().astype(float).reshape(r.n_subjects, -1)
    rows, columns = r.subject_index, r.item_index
    c = means["c"][columns] if "c" in means else 0.0
    above = expit(means["a"][columns] * (theta[rows, dimension[columns]] - means["b"][columns]))
    mu, slope = c + (1 - c) * above, (1 - c) * means["a"][columns] * above * (1 - above)
    trials = 1.0 if r.trials is None else r.trials
    weight = trials * slope / np.maximum(mu * (1 - mu), 1e-12)
    out = np.zeros(theta.shape[1])
    for d in range(theta.shape[1]):
        moved = np.zeros((r.n_subjects, r.n_items))
        here = dimension[columns] == d
        information = np.bincount(rows[here], (weight * slope)[here], r.n_subjects)
        np.add.at(moved, (rows[here], columns[here]), (weight * (r.rate - mu))[here])
        moved = (moved / np.maximum(information, 1e-12)[:, None])[place.used]
        out[d] = _within_less_between(moved, place.group, place.run)
    return out


def less_shared(error: Floats, draws: Floats, mean: Floats, shared: Floats) -> tuple[Floats, Floats]:
    """Errors (S, D, D) and draws (n, S, D) of estimates ``mean`` (S, D) without what groups share.

    The item model knows no favour: it takes it for noise of single answers, so that it is in its errors already, once
    for every subject. At least :data:`LEAST_OWN` of every error stays the subject's own.
    """
    lower = np.linalg.cholesky(error)
    whitened = np.linalg.solve(lower, np.linalg.solve(lower, np.diag(shared)[None]).swapaxes(1, 2))
    value, vector = np.linalg.eigh(np.eye(len(shared)) - whitened)
    value = np.maximum(value, LEAST_OWN)
    root = (vector * np.sqrt(value)[:, None]) @ vector.swapaxes(1, 2)
    shrink = lower @ root @ np.linalg.inv(lower)
    own = lower @ (root @ root) @ lower.swapaxes(1, 2)
    return own, mean + np.einsum("sde,nse->nsd", shrink, draws - mean)


def _within_less_between(moved: Floats, group: npt.NDArray[np.int32], run: npt.NDArray[np.int32]) -> float:
    """Mean product (S, J) . (S, J) of pairs of one group and different runs, less that of pairs of different groups."""

    def pairs(codes: npt.NDArray[np.int32]) -> tuple[float, int]:
        """Sum over ordered pairs that share a code, a subject with itself included, and how many there are."""
        sums = np.zeros((int(codes.max()) + 1, moved.shape[1]))
        np.add.at(sums, codes, moved)
        return float((sums**2).sum()), int((np.bincount(codes) ** 2).sum())

    everyone, in_group, in_run = pairs(np.zeros_like(group)), pairs(group), pairs(run)
    if in_group[1] == in_run[1] or everyone[1] == in_group[1]:
        raise InputError(
            'questions="population" needs two groups or more, and one with several runs: what a group favours is seen '
            "in what its runs have in common"
        )
    within = (in_group[0] - in_run[0]) / (in_group[1] - in_run[1])
    between = (everyone[0] - in_group[0]) / (everyone[1] - in_group[1])
    return max(within - between, 0.0)
