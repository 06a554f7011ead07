"""Exact 0 and 1 among probabilities: which rule was used, how many there are, and how much another rule moves."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from bayes_irsl.diagnostics.verdicts import Check
from bayes_irsl.errors import InputError

if TYPE_CHECKING:
    from bayes_irsl.bank import ItemBank

# Up to here the other rules are fitted unasked. Laplace holds a dense matrix over the abilities, hence the second.
MOST_ANSWERS, MOST_ABILITIES = 200_000, 1_000


def boundary_check(fit: Any) -> Check:
    """Names the rule for exact 0 and 1, and the number of answers that it decides about."""
    responses, spec = fit.responses, fit.spec
    if responses.kind != "probability":
        what = "0/1 answers" if responses.kind == "binary" else "counts of known trials"
        return Check("exact 0 and 1", "PASS", 0, f"Answers are {what}: exact 0 and 1 need no rule.")
    zeros, ones = int((responses.answer == 0).sum()), int((responses.answer == 1).sum())
    n = responses.n_obs
    counts = f"{zeros:,} answers are exactly 0 and {ones:,} exactly 1, of {n:,}"
    if zeros + ones == 0:
        return Check("exact 0 and 1", "PASS", 0, f"{counts}: no rule was needed.")
    if spec.likelihood == "beta":
        return Check(
            "exact 0 and 1",
            "REVIEW",
            zeros + ones,
            f"{counts}; all answers were squeezed to (y (n - 1) + 0.5) / n with n = {spec.squeeze:,}.",
            "The squeeze decides about the precision: see the table of other rules, boundary_sensitivity(fit), or "
            "use likelihood='ordered-beta'.",
        )
    text = {
        "ordered-beta": "each end has a cutpoint on the same logit (ordered beta)",
        "zero-one-beta": "each end has its own probability (zero-one-inflated beta)",
    }[spec.likelihood]
    return Check("exact 0 and 1", "PASS", zeros + ones, f"{counts}; {text}, learned from the answers.")


def needs_a_rule(fit: Any) -> bool:
    """Whether there are exact 0 or 1 among probabilities, so that the rule for them matters."""
    return fit.responses.kind == "probability" and bool(np.isin(fit.responses.answer, (0, 1)).any())


def is_anchored(fit: Any) -> bool:
    """Whether a bank set the scale; the fit does not hold it, so that refits must be given it."""
    return bool(json.loads(fit.tree.attrs.get("anchored_on", '""')))


def is_cheap(fit: Any) -> bool:
    """Whether :func:`boundary_sensitivity` needs nothing further and takes no longer than a report may."""
    if is_anchored(fit):
        return False
    abilities = fit.tree["posterior"].dataset["theta"][0, 0].size
    return fit.responses.n_obs <= MOST_ANSWERS and abilities <= MOST_ABILITIES


def boundary_sensitivity(
    fit: Any, rules: Sequence[str | int] | None = None, seed: int = 0, anchor: ItemBank | None = None
) -> pd.DataFrame:
    """How much the fit moves under other rules for exact 0 and 1: each rule is fitted by Laplace.

    Parameters
    ----------
    fit : Fit
        Of probabilities that contain exact 0 or 1.
    rules : list of "ordered-beta", "zero-one-beta" or n of the squeeze, optional
        By default both, and squeezes with n = all answers and n = 1,000.
    seed : int
    anchor : ItemBank, optional
        The bank on which the fit was anchored.

    Returns
    -------
    DataFrame
        One row a rule: answers at an edge, posterior mean of phi and its 90 % equal-tailed interval, largest change
        of a posterior mean ability against the given fit in units of its posterior sd, rank correlation, and whether
        the fit converged.

    Raises
    ------
    InputError
        An anchored fit without its bank, or a rule that the answers do not allow.
    """
    from bayes_irsl.fitting import fit as run

    if is_anchored(fit) and anchor is None:
        raise InputError("the fit is anchored on a bank: pass it, boundary_sensitivity(fit, anchor=bank)")
    responses = fit.responses
    rules = rules if rules is not None else ("ordered-beta", "zero-one-beta", max(2, responses.n_obs), 1000)
    base = _abilities(fit)
    spread = fit.tree["posterior"].dataset["theta"].std(("chain", "draw")).to_numpy().ravel()
    rows = {_name(fit.spec): _row(fit, base, base, spread)}
    for rule in rules:
        if isinstance(rule, str):
            spec = replace(fit.spec, likelihood=rule, squeeze=None)
        else:
            spec = replace(fit.spec, likelihood="beta", squeeze=int(rule))
        if _name(spec) not in rows:
            other = run(spec, responses, method="laplace", seed=seed, anchor=anchor)
            rows[_name(spec)] = _row(other, _abilities(other), base, spread)
    table = pd.DataFrame.from_dict(rows, orient="index").rename_axis("rule")
    table.attrs["interval"] = "equal-tailed, 90%"
    return table


def _name(spec: Any) -> str:
    return f"squeeze, n = {spec.squeeze:,}" if spec.likelihood == "beta" and spec.squeeze else spec.likelihood


def _abilities(fit: Any) -> np.ndarray:
    return fit.tree["posterior"].dataset["theta"].mean(("chain", "draw")).to_numpy().ravel()


def _row(fit: Any, theta: np.ndarray, base: np.ndarray, spread: np.ndarray) -> dict[str, float]:
    phi = fit.tree["posterior"].dataset["phi"].to_numpy()
    phi = phi.reshape(*phi.shape[:2], -1).mean(2)
    low, high = np.quantile(phi, [0.05, 0.95])
    rank = pd.Series(theta).rank().corr(pd.Series(base).rank())
    edge = np.isin(fit.responses.answer, (0, 1)).sum()
    return {
        "edge_answers": int(edge),
        "phi": float(phi.mean()),
        "phi_lower": float(low),
        "phi_upper": float(high),
        "largest_shift_sd": float(np.max(np.abs(theta - base) / spread)),
        "rank_correlation": float(rank),
        "converged": bool(fit.diagnostics.get("converged", True)),
    }
