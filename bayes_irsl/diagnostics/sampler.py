"""Checks of the computation: have the chains converged, or the approximation?"""

from __future__ import annotations

import json
from typing import Any

import arviz as az
import numpy as np
import pandas as pd
import xarray as xr

from bayes_irsl.diagnostics.verdicts import Check, some, worst
from bayes_irsl.priors import Prior

MOST_PARAMETERS = 600
INDEPENDENT = ("laplace", "svi")


def sampler_checks(fit: Any) -> tuple[list[Check], dict[str, str]]:
    """All checks that the method of the fit allows, and those it does not."""
    draws, labels = free_draws(fit)
    checks = [constants_check(fit, draws, labels)]
    moving = np.ptp(draws, axis=1).min(0) > 0
    moving &= np.isfinite(draws).all((0, 1))
    if fit.method in INDEPENDENT:
        checks += approximation_checks(fit)
        return checks, {"R-hat, ESS": f"draws of method {fit.method!r} are independent of one another"}
    if moving.any():
        checks += chain_checks(draws[:, :, moving], labels[moving])
    checks += energy_checks(fit)
    return checks, {}


def free_draws(fit: Any) -> tuple[np.ndarray, np.ndarray]:
    """Draws (chain, draw, parameter) of all that was not declared fixed, and names such as ``b[item 7]``."""
    posterior = fit.tree["posterior"].dataset
    fixed = declared_fixed(fit)
    arrays, labels = [], []
    for name, array in posterior.data_vars.items():
        values = array.transpose("chain", "draw", ...).to_numpy()
        values = values.reshape(*values.shape[:2], -1)
        places = _places(array)
        held = fixed.get(str(name), set())
        free = np.array([held is not None and place not in held for place in places])
        if name == "correlation":
            free &= np.triu(np.ones(array.shape[2:], bool), 1).ravel()
        named = np.array([f"{name}[{place}]" if place else name for place in places], dtype=object)
        arrays.append(values[:, :, free])
        labels.append(named[free])
    return np.concatenate(arrays, 2), np.concatenate(labels)


def declared_fixed(fit: Any) -> dict[str, set[str] | None]:
    """What the fit holds constant on purpose: variable -> labels, or None for all of it.

    Numbers in the place of priors, guessing floors at a known chance level, and what the tree lists as "fixed": names,
    or names with labels.
    """
    fixed: dict[str, set[str] | None] = {}
    for name in fit.spec.priors.__dataclass_fields__:
        if not isinstance(getattr(fit.spec.priors, name), Prior):
            fixed[name] = None
    items = fit.responses.items
    if fit.spec.curve == "3pl" and fit.spec.guessing == "fixed" and "chance" in items.columns:
        chance = items["chance"].to_numpy(float)
        fixed["c"] = {str(label) for label in items.index[np.isfinite(chance) & (chance > 0)]}
    listed = json.loads(fit.tree.attrs.get("fixed", "[]"))
    for name in listed:
        labels = listed[name] if isinstance(listed, dict) else None
        fixed[name] = None if labels is None else {str(label) for label in labels}
    return fixed


def notes_of(fit: Any) -> dict[str, Any]:
    """The diagnostics that the method itself has left in the tree."""
    return json.loads(fit.tree.attrs.get("diagnostics", "{}"))


def _places(array: xr.DataArray) -> list[str]:
    dims = [d for d in array.dims if d not in ("chain", "draw")]
    if not dims:
        return [""]
    labels = [[str(v) for v in array[d].to_numpy()] for d in dims]
    index = pd.MultiIndex.from_product(labels) if len(labels) > 1 else pd.Index(labels[0])
    return [", ".join(place) if isinstance(place, tuple) else place for place in index]


def constants_check(fit: Any, draws: np.ndarray, labels: np.ndarray) -> Check:
    """Parameters that stand still although nothing declares them fixed, stuck chains, and values not finite."""
    posterior = fit.tree["posterior"].dataset
    fixed = [
        name if where is None else f"{name} of {some(sorted(where), 3)}"
        for name, where in declared_fixed(fit).items()
        if name in posterior and (where is None or where)
    ]
    named = f" Declared fixed and left out of all checks of chains: {some(fixed)}." if fixed else ""
    broken = ~np.isfinite(draws).all((0, 1))
    stuck = (np.ptp(draws, axis=1) == 0).any(0) & ~broken
    if not broken.any() and not stuck.any():
        return Check("moving parameters", "PASS", 0, f"All {len(labels):,} free parameters move and are finite.{named}")
    if broken.any():
        text = f"{broken.sum():,} parameters hold values that are not finite: {some(list(labels[broken]))}."
    else:
        text = (
            f"{stuck.sum():,} parameters are constant in at least one chain and not declared fixed: "
            f"{some(list(labels[stuck]))}."
        )
    return Check(
        "moving parameters",
        "FAIL",
        int(broken.sum() + stuck.sum()),
        text + named,
        "Do not use this fit: run it again with another seed, or declare the parameter fixed by a number as its prior.",
    )


def chain_checks(draws: np.ndarray, labels: np.ndarray) -> list[Check]:
    """R-hat and effective sample sizes (rank-normalised; Vehtari et al. 2021) of the parameters that look worst."""
    chosen, by_screen = _screen(draws)
    data = xr.Dataset({"x": (("chain", "draw", "parameter"), draws[:, :, chosen].astype(float))})
    table = pd.DataFrame(
        {
            "r_hat": az.rhat(data)["x"].to_numpy(),
            "ess_bulk": az.ess(data, method="bulk")["x"].to_numpy(),
            "ess_tail": az.ess(data, method="tail")["x"].to_numpy(),
        },
        index=pd.Index(labels[chosen], name="parameter"),
    )
    among = f"of {len(labels):,} free parameters"
    if by_screen:
        among = f"of the {len(chosen):,} that a quick screen ranked worst {among}"
    checks = []
    top = table.sort_values("r_hat", ascending=False)
    value = float(top["r_hat"].iloc[0])
    checks.append(
        Check(
            "R-hat",
            worst(value, 1.01, 1.05),
            value,
            f"Largest R-hat {among}: {value:.3f} ({top.index[0]}).",
            "Run longer (draws, warmup); if it stays, the chains disagree: look at rank plots of the parameters named.",
            top,
        )
    )
    good = 100.0 * draws.shape[0]
    for name, column in (("bulk ESS", "ess_bulk"), ("tail ESS", "ess_tail")):
        top = table.sort_values(column)
        value = float(top[column].iloc[0])
        checks.append(
            Check(
                name,
                worst(value, good, good / 4),
                value,
                f"Smallest {name} {among}: {value:,.0f} effective draws ({top.index[0]}).",
                f"Run longer: at least {good:,.0f} are wanted for intervals that do not move from run to run.",
                top,
            )
        )
    return checks


def _screen(draws: np.ndarray) -> tuple[np.ndarray, bool]:
    """Indices of at most MOST_PARAMETERS parameters with the largest plain split R-hat and the slowest batch means."""
    chains, length, count = draws.shape
    if count <= MOST_PARAMETERS:
        return np.arange(count), False
    half = length // 2
    halves = draws[:, : 2 * half].reshape(chains * 2, half, count)
    within = halves.var(1, ddof=1).mean(0)
    between = halves.mean(1).var(0, ddof=1) / within
    size = max(1, int(np.sqrt(length)))
    batches = draws[:, : length // size * size].reshape(chains, -1, size, count).mean(2)
    slow = batches.var(1, ddof=1).mean(0) / within
    each = MOST_PARAMETERS // 2
    return np.union1d(np.argsort(-between)[:each], np.argsort(-slow)[:each]), True


def energy_checks(fit: Any) -> list[Check]:
    """Divergences, E-BFMI and saturated trees, as far as the sampler has recorded them."""
    stats = fit.tree["sample_stats"].dataset if "sample_stats" in fit.tree.children else xr.Dataset()
    checks = []
    if "diverging" in stats:
        share = float(stats["diverging"].mean())
        count = int(stats["diverging"].sum())
        checks.append(
            Check(
                "divergences",
                worst(share, 0.0, 0.01),
                count,
                f"{count:,} of {stats['diverging'].size:,} draws diverged ({share:.2%}).",
                "Raise target_accept (0.95, then 0.99); if they stay, give the spread near zero a tighter prior.",
            )
        )
    if "energy" in stats:
        value = float(np.min(az.bfmi(xr.DataTree.from_dict({"sample_stats": stats[["energy"]]}))["energy"]))
        checks.append(
            Check(
                "E-BFMI",
                worst(value, 0.3, 0.2),
                value,
                f"Smallest fraction of energy explored in a chain: {value:.2f} (0.3 or more is good).",
                "Tails are explored slowly: run a longer warm-up, or give spreads tighter priors.",
            )
        )
    if "tree_depth" in stats:
        limit = int(notes_of(fit).get("max_tree_depth", 10))
        share = float((stats["tree_depth"] >= limit).mean())
        checks.append(
            Check(
                "tree depth",
                worst(share, 0.01, 1.0),
                share,
                f"{share:.1%} of the draws used the deepest tree allowed ({limit}).",
                "Slow, not wrong: allow deeper trees, or a longer warm-up for a better metric.",
            )
        )
    return checks


def approximation_checks(fit: Any) -> list[Check]:
    """What a Laplace or variational fit has noted about itself."""
    notes = notes_of(fit)
    checks = []
    if "converged" in notes:
        done, left = bool(notes["converged"]), notes.get("newton_decrement")
        steps = f" after {int(notes['n_iterations']):,} iterations" if "n_iterations" in notes else ""
        decrement = "" if left is None else f"; the last Newton step would have gained {left:.1e} in log density"
        checks.append(
            Check(
                "optimiser",
                "PASS" if done else "FAIL",
                "converged" if done else "not converged",
                f"The optimiser {'converged' if done else 'stopped before it converged'}{steps}{decrement}.",
                "Allow more iterations, or use method='nuts'.",
            )
        )
    if "share_resampled" in notes:
        share = float(notes["share_resampled"])
        checks.append(
            Check(
                "item posteriors",
                "PASS",
                share,
                f"{share:.1%} of the items have a posterior that is not Gaussian; their draws follow its shape.",
            )
        )
    return checks
