"""pass@k as it is extrapolated today: point estimates from counts of one subject on J items, or of several.

Every estimator takes successes and trials (S, J), with 0 trials where there are none, and numbers of samples (K,), and
returns the mean pass@k over items (S, K).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.optimize import minimize
from scipy.special import betaln, expit

from bayes_irsl.curves import pass_at_k_unbiased, passing
from bayes_irsl.errors import InputError
from bayes_irsl.item_fit import Run, fit_items
from bayes_irsl.responses import Responses
from bayes_irsl.spec import ItemResponse

Floats = npt.NDArray[np.floating]
Estimator = Callable[[Floats, Floats, Floats], Floats]

# Points of a power law's regression, log-spaced up to the samples taken.
POINTS = 12
# Bounds of log alpha and log beta.
BOUNDS = [(-7.0, 7.0), (-7.0, 14.0)]


def plug_in(successes: Floats, trials: Floats, k: Floats) -> Floats:
    """Mean of 1 - (1 - c/n)^k: biased down for k near n, and 0 for ever where nothing succeeded."""
    return _by_subject(lambda c, n: passing(c / n, k).mean(0), successes, trials)


def unbiased_cut(successes: Floats, trials: Floats, k: Floats) -> Floats:
    """The unbiased estimate up to the fewest samples taken of an item, and its last value beyond."""
    return _by_subject(lambda c, n: _unbiased(c, n, np.minimum(k, n.min())), successes, trials)


def beta_binomial(successes: Floats, trials: Floats, k: Floats) -> Floats:
    """A Beta over the items of each subject by maximum likelihood, items then given their own counts.

    1 - pass@k falls like k^-alpha: the "power law from the tail" of Schaeffer (2025) and Kazdan et al. (2025).
    """

    def one(c: Floats, n: Floats) -> Floats:
        alpha, beta = beta_over_items(c, n)
        a, b = alpha + c[:, None], beta + (n - c)[:, None]
        return -np.expm1(betaln(a, b + k) - betaln(a, b)).mean(0)

    return _by_subject(one, successes, trials)


def beta_over_items(c: Floats, n: Floats) -> tuple[float, float]:
    """alpha and beta of a beta-binomial of counts (J,) by maximum likelihood, from three starts."""

    def loss(z: Floats) -> float:
        a, b = np.exp(z)
        return -float((betaln(a + c, b + n - c) - betaln(a, b)).sum())

    mean = (c.sum() + 0.5) / (n.sum() + 1)
    starts = [np.log(np.array([a, a * (1 - mean) / mean])) for a in (0.1, 0.5, 2.0)]
    found = [minimize(loss, np.clip(z, *np.array(BOUNDS).T), method="L-BFGS-B", bounds=BOUNDS) for z in starts]
    a, b = np.exp(min(found, key=lambda f: f.fun).x)
    return float(a), float(b)


def power_law(successes: Floats, trials: Floats, k: Floats) -> Floats:
    """-log pass@k = A k^-B, least squares of logs of the unbiased estimates up to the samples taken."""

    def one(c: Floats, n: Floats) -> Floats:
        seen = np.unique(np.round(np.logspace(0, np.log10(n.min()), POINTS)))
        values = _unbiased(c, n, seen)
        good = (values > 0) & (values < 1)
        if good.sum() < 2:
            return np.full(len(k), values[-1])
        slope, level = np.polyfit(np.log(seen[good]), np.log(-np.log(values[good])), 1)
        return np.exp(-np.exp(level + slope * np.log(k)))

    return _by_subject(one, successes, trials)


def irsl_plug_in(successes: Floats, trials: Floats, k: Floats) -> Floats:
    """Item Response Scaling Laws: a binomial 2PL of all subjects, point rates p_ij put into 1 - (1 - p)^k."""
    names = [f"s{i}" for i in range(len(successes))]
    i, j = np.nonzero(trials > 0)
    long = pd.DataFrame({"subject": np.array(names)[i], "item": j.astype(str), "c": successes[i, j], "n": trials[i, j]})
    responses = Responses.from_long(long.astype({"c": int, "n": int}), successes="c", trials="n")
    run = Run("laplace", 0, 200, 1, 0, 0.8, 10, 0, False)
    _, tree = fit_items(ItemResponse("binomial"), responses, run)
    point = {name: tree.posterior[name].mean(("chain", "draw")) for name in ("theta", "a", "b")}
    theta = point["theta"].sel(subject=names).to_numpy()
    p = expit(point["a"].to_numpy() * (theta[:, None] - point["b"].to_numpy()))
    return passing(p, k).mean(1)


ESTIMATORS: dict[str, Estimator] = {
    "plug-in": plug_in,
    "unbiased, cut": unbiased_cut,
    "beta-binomial ML": beta_binomial,
    "power law": power_law,
    "IRSL plug-in": irsl_plug_in,
}


def _unbiased(c: Floats, n: Floats, k: Floats) -> Floats:
    return pass_at_k_unbiased(n[:, None], c[:, None], np.floor(k)[None]).mean(0)


def _by_subject(one: Callable[[Floats, Floats], Floats], successes: Floats, trials: Floats) -> Floats:
    out = []
    for c, n in zip(np.asarray(successes, float), np.asarray(trials, float), strict=True):
        if not (n > 0).any():
            raise InputError("a subject has no samples: leave it out")
        out.append(one(c[n > 0], n[n > 0]))
    return np.stack(out)
