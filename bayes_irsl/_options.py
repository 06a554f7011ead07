"""Checks of the options that many functions share; each error says what was got and what is expected."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from bayes_irsl.errors import InputError


def check_mass(mass: Any) -> float:
    """Mass of an interval, between 0 and 1."""
    if isinstance(mass, bool) or not isinstance(mass, int | float | np.number) or not 0 < mass < 1:
        raise InputError(f"mass = {mass!r}: expected a number between 0 and 1, such as 0.9")
    return float(mass)


def check_seed(seed: Any) -> int:
    """Seed of random numbers, a whole number of at least 0."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise InputError(f"seed = {seed!r}: expected a whole number of at least 0")
    return int(seed)


def reals(name: str, value: Any, expected: str) -> npt.NDArray[np.float64]:
    """One or several numbers as an array (n,), n > 0."""
    try:
        found = np.atleast_1d(np.asarray(value, float))
    except (TypeError, ValueError):
        found = np.zeros((0, 0))
    if found.ndim != 1 or not found.size:
        raise InputError(f"{name} = {value!r}: expected {expected}")
    return found
