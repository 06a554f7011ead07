"""Checks of repeated sampling: did the computation work, do the tails describe the counts, and who says how little?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from bayes_irsl.diagnostics.sampler import chain_checks, notes_of
from bayes_irsl.diagnostics.verdicts import Check, Diagnostics, some, worst
from bayes_irsl.inference.importance import GOOD
from bayes_irsl.repeated_fit import PARAMETERS, counts
from bayes_irsl.tails import TAILS

# A predictive p-value this close to 0 or 1 says that the tail does not describe the counts.
ODD, BAD = 0.02, 0.001
# Replications of the counts, and the fewest solved items that tell a tail.
REPLICATIONS = 400
FEW_SOLVED = 5


def rate_checks(fit: Any) -> Diagnostics:
    """Weights or chains, the share of items that nothing solved and the spread of rates, and subjects who solved few.

    Parameters
    ----------
    fit : Fit of RepeatedSampling
    """
    table = predictive(fit)
    return Diagnostics((*_computed(fit), _fits(table, "unsolved"), _fits(table, "spread"), _few(fit)))


def _computed(fit: Any) -> list[Check]:
    if fit.method == "quadrature":
        notes = notes_of(fit)
        k, rim = float(notes["pareto_k"]), float(notes["at_rim"])
        return [
            Check(
                "grids",
                worst(rim, 0.01, 0.1),
                rim,
                f"Of any subject at most {rim:.1%} of the draws lie at the rim of its grid.",
                'The prior and the counts of a subject are far apart: loosen the prior, or take method="nuts".',
            ),
            Check(
                "Pareto k",
                worst(k, GOOD, 1.0),
                k,
                f"Importance weights of what subjects share are worth {notes['effective_draws']:.0f} equal draws; the "
                f"shape of their tail is {k:.2f}.",
                f'Above {GOOD} draws do not stand for the posterior: compare with method="nuts".',
            ),
        ]
    posterior = fit.tree["posterior"].dataset
    names = [n for n in posterior if n not in PARAMETERS]
    draws = np.concatenate([posterior[n].to_numpy().reshape(*posterior[n].shape[:2], -1) for n in names], -1)
    labels = np.repeat(np.array(names, dtype=str), draws.shape[-1] // len(names))
    return list(chain_checks(draws, labels))


def predictive(fit: Any) -> pd.DataFrame:
    """Posterior predictive p-values of every subject and benchmark, from new items of the same tail.

    Columns subject, benchmark; items, unsolved: share of items without a success; spread: sd over items of the share
    of successes; and of each the probability ``p_`` that a replication has as much or more (half of ties).
    """
    posterior = fit.tree["posterior"].dataset.stack(sample=("chain", "draw")).transpose("sample", ...)
    r, spec, rng = fit.responses, fit.spec, np.random.default_rng([fit.seed, 51])
    c, n = counts(r)
    benchmark = np.asarray(r.items["benchmark"], dtype=str)[r.item_index]
    chosen = rng.integers(0, posterior.sizes["sample"], REPLICATIONS)
    rows = []
    for b, name in enumerate(posterior["benchmark"].to_numpy().astype(str)):
        for s, subject in enumerate(np.asarray(r.subjects.index, dtype=str)):
            here = (benchmark == name) & (r.subject_index == s)
            if not here.any():
                continue
            trials = np.broadcast_to(n[here], (REPLICATIONS, here.sum()))
            location, shape = (
                np.broadcast_to(posterior[v].to_numpy()[chosen, b, s][:, None], trials.shape)
                for v in ("location", "shape")
            )
            none = np.zeros(trials.shape)
            p = TAILS[spec.tail].draw(location, shape, none, none, rng)
            if spec.never:
                gone = 1 / (1 + np.exp(-posterior["never"].to_numpy()[chosen, b, s]))
                p = np.where(rng.uniform(size=p.shape) < gone[:, None], 0.0, p)
            again = rng.binomial(trials.astype(np.int64), p)
            row: dict[str, Any] = {"subject": subject, "benchmark": name, "items": int(here.sum())}
            for label, statistic in STATISTICS.items():
                seen, new = statistic(c[here], n[here]), statistic(again, trials)
                row |= {label: float(seen), f"p_{label}": float(np.mean(new > seen) + 0.5 * np.mean(new == seen))}
            rows.append(row)
    return pd.DataFrame(rows)


STATISTICS = {
    "unsolved": lambda c, n: np.mean(c == 0, -1),
    "spread": lambda c, n: np.std(c / n, -1),
}
MEANINGS = {
    "unsolved": "share of items without any success",
    "spread": "standard deviation of success rates over items",
}


def _fits(table: pd.DataFrame, what: str) -> Check:
    p = table[f"p_{what}"]
    # The most extreme of many p-values is small by chance: what counts is the smallest times their number.
    least = float(np.minimum(1, 2 * np.minimum(p, 1 - p) * len(p)).min())
    odd = table[2 * np.minimum(p, 1 - p) * len(p) < ODD]
    named = some((odd["subject"] + " on " + odd["benchmark"]).tolist())
    return Check(
        what,
        "FAIL" if least < BAD and len(odd) > 0.2 * len(table) else "REVIEW" if least < ODD else "PASS",
        least,
        f"The {MEANINGS[what]} is what the tail predicts"
        + (f", but for {named}." if len(odd) else f" of all {len(table)} subjects and benchmarks."),
        "Another tail, or never=True: bi.compare_tails(responses) scores them on half of the samples.",
        table,
    )


def _few(fit: Any) -> Check:
    r = fit.responses
    c, _ = counts(r)
    solved = np.bincount(r.subject_index, c > 0, r.n_subjects)
    few = [str(v) for v in np.asarray(r.subjects.index)[solved < FEW_SOLVED]]
    return Check(
        "solved items",
        "REVIEW" if few else "PASS",
        int(solved.min()),
        f"{len(few)} of {r.n_subjects} subjects solved fewer than {FEW_SOLVED} items"
        + (f": {some(few)}." if few else "."),
        "Their tail is what the others' tails make of it, and pass@k far out rests on that: draw more samples of them.",
    )
