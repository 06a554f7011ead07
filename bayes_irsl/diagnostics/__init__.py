"""Checks of a fit: PASS, REVIEW or FAIL, each with one sentence on what to do."""

from __future__ import annotations

from typing import Any

from bayes_irsl.diagnostics.boundary import boundary_check, boundary_sensitivity
from bayes_irsl.diagnostics.dependence import dependence_check
from bayes_irsl.diagnostics.held_out import compare_held_out
from bayes_irsl.diagnostics.items import item_checks, residuals
from bayes_irsl.diagnostics.predictive import Predictive, predictive_checks, replicate
from bayes_irsl.diagnostics.sampler import sampler_checks
from bayes_irsl.diagnostics.verdicts import Check, Diagnostics

__all__ = [
    "Check",
    "Diagnostics",
    "Predictive",
    "boundary_sensitivity",
    "compare_held_out",
    "diagnose",
    "replicate",
]


def diagnose(fit: Any, *, seed: int = 0, predictive: Predictive | None = None) -> Diagnostics:
    """Check the computation, the items and the fit to the answers.

    Parameters
    ----------
    fit : Fit
    seed : int
        Of replicated answers and of random parts of large tables.
    predictive : Predictive, optional
        Replicated answers where they have been made already.

    Returns
    -------
    Diagnostics
        Checks in order, ``.verdict`` the worst of them. Memory stays bounded: cells are taken a block at a time,
        with at most 100 draws.
    """
    sampler, skipped = sampler_checks(fit)
    predictive = replicate(fit, seed) if predictive is None else predictive
    items, not_items = item_checks(fit, residuals(fit))
    dependence, not_dependence = dependence_check(fit, seed)
    checks = [*sampler, *predictive_checks(fit, predictive), *items, *dependence, boundary_check(fit)]
    return Diagnostics(tuple(checks), {**skipped, **not_items, **not_dependence})
