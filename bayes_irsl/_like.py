"""Recipes of simulated stand-ins for real sets that cannot be shipped: shapes and spreads, no answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd


def _family(
    name: str, params: Sequence[float], tokens: Sequence[float] | np.ndarray, run: str | None = None
) -> pd.DataFrame:
    """Subjects of one family; checkpoints of one training run where `run` is given."""
    size, seen = np.broadcast_arrays(np.asarray(params, dtype=np.float64), np.asarray(tokens, dtype=np.float64))
    label = [f"simulated-{name}-{k}" for k in range(size.size)]
    table = {
        "family": f"simulated-{name}",
        "run": label if run is None else f"simulated-{name}-{run}",
        "params": size,
        "tokens": seen,
        "compute": 6 * size * seen,
    }
    return pd.DataFrame(table, index=pd.Index(label, name="subject"))


def _ability(subjects: pd.DataFrame, slope: float, rng: np.random.Generator) -> np.ndarray:
    """Ability that rises with log10 compute, with families ahead or behind and some noise."""
    log_compute = np.log10(subjects["compute"].to_numpy())
    family = pd.factorize(subjects["family"])[0]
    theta = slope * (log_compute - log_compute.mean()) + 0.3 * rng.standard_normal(family.max() + 1)[family]
    return theta + 0.2 * rng.standard_normal(len(subjects))


def _like_task_demands(rng: np.random.Generator) -> tuple[pd.DataFrame, pd.DataFrame, dict[str, Any]]:
    checkpoints = np.geomspace(4e10, 2.4e12, 9)
    subjects = pd.concat(
        [
            _family("a", [1.0e9, 1.4e9, 2.8e9, 6.9e9, 1.2e10], [3e11]),
            _family("b", [6.9e9], checkpoints, run="long"),
            _family("c", [7e9, 1.3e10, 7e10], [2e12]),
            _family("d", [2.5e9, 8.5e9], [3e12, 6e12]),
            _family("e", [1.2e9, 3e9, 7e9], [3e12]),
        ]
    )
    kind = np.repeat(np.arange(32), 38)
    intercept = 0.8 + 2.2 * rng.standard_normal(32)[kind] + 1.2 * rng.standard_normal(kind.size)
    items = pd.DataFrame({"category": [f"type-{k}" for k in kind], "chance": 1 / 8, "n_options": 8})
    model = {
        "likelihood": "beta",
        "phi": 30.0,
        "sd_log_phi": 0.5,
        "theta": _ability(subjects, 0.8, rng),
        "sd_log_a": 0.5,
        "intercept": intercept,
    }
    return subjects, items, model


def _like_livecodebench(rng: np.random.Generator) -> tuple[pd.DataFrame, pd.DataFrame, dict[str, Any]]:
    index = pd.Index([f"simulated-{k}" for k in range(37)], name="subject")
    model = {
        "likelihood": "beta-binomial",
        "trials": 10,
        "phi": 0.3,
        "sd_theta": 0.7,
        "mean_intercept": -0.5,
        "sd_intercept": 1.8,
    }
    return pd.DataFrame(index=index), pd.DataFrame(index=range(479)), model


def _like_monkeys(rng: np.random.Generator) -> tuple[pd.DataFrame, pd.DataFrame, dict[str, Any]]:
    subjects = _family("m", [7e7, 1.6e8, 4.1e8, 1e9, 2.8e9, 6.9e9, 1.2e10], [3e11])
    model = {
        "likelihood": "beta-binomial",
        "trials": 10_000,
        "phi": 200.0,
        "theta": _ability(subjects, 1.2, rng),
        "mean_intercept": -6.3,
        "sd_intercept": 2.0,
    }
    return subjects, pd.DataFrame(index=range(128)), model


LIKE: dict[str, Callable[[np.random.Generator], tuple[pd.DataFrame, pd.DataFrame, dict[str, Any]]]] = {
    "lm-task-demands-like": _like_task_demands,
    "livecodebench-like": _like_livecodebench,
    "monkeys-math-like": _like_monkeys,
}
