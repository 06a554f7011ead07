"""Arms of the decisions benchmark: predicted accuracies at the target, by recipe; point laws and ours."""

from __future__ import annotations

import _decide_simulators as sim
import numpy as np
import pandas as pd
from scipy.optimize import least_squares, minimize
from scipy.special import expit, logit

import bayes_irsl as bi

SPEC = bi.AbilityTrajectory(
    bi.ItemResponse("beta"), pool="family", run=None, covariates="compute", questions="population"
)

# Checkpoints that stand for the end of training: their mean scatters less than the last one.
LAST = 3

# Of (a, L0, k, b).
BOUNDS = ([-1, 0, 0, 0], [0, np.inf, np.inf, 1])
# Starting points of the second step, in the order in which they are tried.
STARTS = (
    (-0.99, 0.9, 3.0, 0.99), (-0.5, 1.0, 5.0, 0.5), (-0.8, 1.2, 2.0, 0.9), (-0.3, 0.8, 10.0, 0.5),
    (-0.9, 1.5, 1.0, 0.95), (-0.6, 0.7, 8.0, 0.8), (-0.2, 1.0, 20.0, 0.4), (-0.9, 2.0, 4.0, 0.9),
)  # fmt: skip


def two_step(compute: np.ndarray, loss: np.ndarray, score: np.ndarray, target: float) -> float:
    """Loss of final checkpoints over compute, then the score of all checkpoints over loss; (K, T) each.

    As Item Response Scaling Laws fit it: L = exp(A) / C^alpha + E by a summed Huber loss of the logs, and a sigmoid by
    least squares from the first of eight starts that converges.
    """
    x, log_loss = np.log(compute[:, -1]), np.log(loss[:, -1])

    def huber(p: np.ndarray) -> float:
        r = np.logaddexp(p[0] - p[1] * x, np.log(p[2])) - log_loss
        return float(np.where(np.abs(r) <= 1e-3, 0.5 * r**2, 1e-3 * (np.abs(r) - 5e-4)).sum())

    law = minimize(huber, (10.0, 0.4, 0.5), method="L-BFGS-B", bounds=[(0, None), (0, 1), (1e-6, None)]).x
    ahead = np.exp(law[0]) / target ** law[1] + law[2]

    at, y = loss.ravel(), score.ravel()
    for start in STARTS:
        found = least_squares(
            lambda p: _sigmoid(p, at)[0] - y, start, lambda p: _sigmoid(p, at)[1], BOUNDS, max_nfev=200
        )
        if found.status > 0:
            break
    return float(_sigmoid(found.x, np.array([ahead]))[0][0])


def _sigmoid(p: np.ndarray, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """a / (1 + exp(-k (L - L0))) + b at losses (n,), and its derivatives (n, 4) in (a, L0, k, b)."""
    a, middle, k, b = p
    s = expit(k * (at - middle))
    slope = a * s * (1 - s)
    return a * s + b, np.stack([s, -k * slope, (at - middle) * slope, np.ones_like(s)], 1)


def all_arms(suite: sim.Suite, n_sizes: int, seed: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """What every arm says of the 20 test recipes at the target (20,), and ours of each pair: P(first is better)."""
    compute, target = sim.compute(), sim.compute()[-1, -1]
    test = range(sim.TRAINING, sim.RECIPES)
    scores = {"accuracy": suite.right.mean(-1), "p(correct)": suite.p.mean(-1)}
    found = {
        f"two-step on {name}": np.array(
            [two_step(compute[:n_sizes], suite.loss[r, :n_sizes], score[r, :n_sizes], target) for r in test]
        )
        for name, score in scores.items()
    }
    found["largest"] = scores["p(correct)"][sim.TRAINING :, n_sizes - 1, -1]
    responses = answers(suite, n_sizes)
    found["IRSL line"] = irsl_line(responses, n_sizes)
    fit = bi.fit(SPEC, responses, seed=seed, draws=800, progress=False)
    pools = [f"recipe {r}" for r in test]
    ahead = bi.forecast(
        fit, params=sim.SIZES[-1], tokens=sim.SIZES[-1] * sim.TOKENS_PER_PARAM, pool=pools, kind="ability"
    )
    draws = ahead["ability"].to_numpy()[:, :, 0, 0]
    found["ours"] = draws.mean(0)
    first, second = np.triu_indices(len(pools), 1)
    return found, (draws[:, first] > draws[:, second]).mean(0)


def answers(suite: sim.Suite, n_sizes: int) -> bi.Responses:
    """p(correct) at the end of training (mean logit of the last checkpoints), training recipes at all sizes."""
    recipe, size = np.meshgrid(np.arange(sim.RECIPES), np.arange(len(sim.SIZES)), indexing="ij")
    seen = (recipe < sim.TRAINING) | (size < n_sizes)
    recipe, size = recipe[seen], size[seen]
    subjects = pd.DataFrame(
        {
            "family": [f"recipe {r}" for r in recipe],
            "params": sim.SIZES[size],
            "tokens": sim.TOKENS_PER_PARAM * sim.SIZES[size],
            "compute": sim.compute()[size, -1],
        },
        index=pd.Index([f"recipe {r} size {k}" for r, k in zip(recipe, size, strict=True)], name="subject"),
    )
    end = expit(logit(suite.p[recipe, size, -LAST:]).mean(1))
    table = pd.DataFrame(end, index=subjects.index).add_prefix("question ")
    return bi.Responses.from_wide(table, subjects=subjects)


def irsl_line(responses: bi.Responses, n_sizes: int) -> np.ndarray:
    """Item Response Scaling Laws: point abilities and a straight line in log compute, recipe by recipe."""
    theta = bi.fit(bi.ItemResponse("beta"), responses, draws=200, progress=False).tree.posterior["theta"]
    point = theta.mean(("chain", "draw")).to_series()
    x, target = np.log10(sim.compute()[:, -1]), np.log10(sim.compute()[-1, -1])
    lines = [
        np.polyfit(x[:n_sizes], [point[f"recipe {r} size {k}"] for k in range(n_sizes)], 1)
        for r in range(sim.TRAINING, sim.RECIPES)
    ]
    return np.array([np.polyval(line, target) for line in lines])
