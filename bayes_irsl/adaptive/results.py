"""What a session knows: the target with its interval, after every answer, and what the next questions promise."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import xarray as xr
from scipy.special import ndtr

from bayes_irsl._options import check_mass
from bayes_irsl.adaptive import policies
from bayes_irsl.adaptive.layout import draws
from bayes_irsl.adaptive.state import State
from bayes_irsl.adaptive.targets import Better

if TYPE_CHECKING:
    from bayes_irsl.adaptive.session import AdaptiveTest

Floats = npt.NDArray[np.floating]


def probability_better(target: Any, values: Floats) -> float | None:
    """Probability that the subject, of whose accuracy these are draws, is better than the other; None without one."""
    if not isinstance(target, Better):
        return None
    return float(ndtr((values - target.mean) / max(target.sd, 1e-12)).mean())


def result(test: AdaptiveTest, state: State, mass: float) -> xr.Dataset:
    """The target and the general abilities with equal-tailed intervals."""
    mass, layout = check_mass(mass), test.layout
    found = test.known(state)
    values, ability = draws(layout, found, state.seed)
    mean, sd = found.mean, found.sd
    out: dict[str, Any] = {}
    if isinstance(test.target, Better):
        other = test.target
        out["probability_better"] = probability_better(other, values)
        noise = np.random.default_rng([state.seed, 41]).standard_normal(len(values))
        values = values - other.mean - other.sd * noise
        mean, sd = mean - other.mean, float(np.hypot(sd, other.sd))
    levels = [(1 - mass) / 2, (1 + mass) / 2]
    low, high = np.quantile(values, levels)
    ends = np.quantile(ability, levels, axis=0)
    out |= {"mean": mean, "sd": sd, "lower": low, "upper": high}
    parts = {"mean": ability.mean(0), "sd": ability.std(0), "lower": ends[0], "upper": ends[1]}
    out |= {f"ability_{name}": ("dimension", value) for name, value in parts.items()}
    answered = sum(a.value is not None for a in state.answers)
    out |= {"n_asked": len(state.asked), "n_answered": answered, "cost": test.spent(state)}
    attrs = {
        "target": layout.target.label,
        "interval": "equal-tailed",
        "mass": mass,
        "reason": test.reason(state) or "not stopped",
        "scale": test.bank.scale,
    }
    return xr.Dataset(out, coords={"dimension": list(test.bank.dimensions)}, attrs=attrs)


def trace(test: AdaptiveTest, state: State, mass: float) -> pd.DataFrame:
    """The target after every answer."""
    rows = []
    for i in range(len(state.answers) + 1):
        found = result(test, replace(state, answers=state.answers[:i], waiting=()), mass)
        last = state.answers[i - 1] if i else None
        row = {"item": last.item if last else None, "answer": last.value if last else None}
        rows.append({**row, **{name: float(found[name]) for name in ("mean", "sd", "lower", "upper", "cost")}})
    return pd.DataFrame(rows, index=pd.Index(range(len(rows)), name="answers"))


def candidates(test: AdaptiveTest, state: State, n: int) -> pd.DataFrame:
    """The n questions that promise most per cost."""
    found = test.known(state)
    share = policies.expected_gains(test.layout, found) / max(found.sd**2, 1e-300)
    share = np.where(test.allowed(state)[:, None], share, -np.inf)
    best = np.argsort(-(share / test.prices), axis=None, kind="stable")[:n]
    item, option = np.unravel_index(best, share.shape)
    kept = np.isfinite(share[item, option])
    item, option = item[kept], option[kept]
    out = {"item": test.bank.items.index[item], "gain": share[item, option], "cost": test.prices[item, option]}
    if test.samples is not None:
        out["samples"] = np.asarray(test.samples)[option]
    return pd.DataFrame(out)
