"""Items that work differently for a family of subjects: easier or harder for it than for others of equal ability."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from bayes_irsl.diagnostics.predict import take_draws
from bayes_irsl.diagnostics.tails import false_discovery, two_sided
from bayes_irsl.diagnostics.verdicts import Check, some, worst

if TYPE_CHECKING:
    from bayes_irsl.diagnostics.items import Residuals

FEWEST_IN_FAMILY = 5
# Shifts below this are negligible by the ETS rule (1 on the delta scale).
NOTABLE_SHIFT = 0.43


class Side(NamedTuple):
    """One side of the comparison, per item: answers, score for a shift of the logit, its information, third moment."""

    n: np.ndarray
    score: np.ndarray
    information: np.ndarray
    third: np.ndarray


def family_codes(responses: Any) -> tuple[np.ndarray, tuple[str, ...]]:
    """Family of each subject as a number, -1 where unknown; families with fewer than five subjects stand together."""
    if "family" not in responses.subjects.columns:
        return np.full(responses.n_subjects, -1), ()
    family = responses.subjects["family"]
    known = family.notna().to_numpy()
    text = np.where(known, family.astype(str), "")
    sizes = pd.Series(text[known]).value_counts(sort=False)
    large = [str(name) for name in sizes.index[sizes >= FEWEST_IN_FAMILY]]
    names = [*large, ""] if known.sum() > sizes[large].sum() else large
    if not large or len(names) < 2:
        return np.full(responses.n_subjects, -1), ()
    lookup = {name: k for k, name in enumerate(large)}
    codes = np.array([lookup.get(name, len(large)) if k else -1 for name, k in zip(text, known, strict=True)])
    return codes, tuple(names)


def family_check(fit: Any, found: Residuals) -> Check:
    """Items that are harder or easier for a family than for other subjects of the same ability."""
    table = family_table(fit, found)
    flagged = table[table["flagged"]]
    items = list(dict.fromkeys(str(label) for label in flagged["item"]))
    share = len(items) / max(1, table["item"].nunique())
    names = f": {some([f'{r.item} for {r.family} ({r.shift:+.2f})' for r in flagged.head(5).itertuples()])}"
    return Check(
        "items across families",
        worst(share, 0.0, 0.2),
        len(items),
        f"{len(items):,} of {table['item'].nunique():,} items are easier (+) or harder (-) for a family at equal "
        f"ability, in logits (false discovery rate 5 %, {NOTABLE_SHIFT:g} or more){names if items else ''}.",
        "Read these items for contamination or formatting; leave them out when families are compared.",
        table,
    )


def family_table(fit: Any, found: Residuals) -> pd.DataFrame:
    """Per item and family: shift of the logit against all others, its 90 % interval, p, q, flagged; worst first.

    shift = score / information in the family minus the same in the rest, each less the family's mean over items: what
    is common to all items is ability.
    """
    a = fit.tree["posterior"].dataset["a"].mean(("chain", "draw")).to_numpy().astype(float)
    dimension = take_draws(fit, 1).dimension
    labels = np.asarray(fit.responses.items.index, str)
    tables = []
    # of two families the first is compared with the second: the reverse says the same
    for k, family in enumerate(found.families[: 1 if len(found.families) == 2 else None]):
        if family == "":
            continue
        inside, outside = _side(found, [k]), _side(found, np.delete(np.arange(len(found.families)), k))
        tested = np.ones(len(a), bool)
        for side in (inside, outside):
            tested &= (side.n >= FEWEST_IN_FAMILY) & (side.information >= 1)
        if not tested.any():
            continue
        shift, sd, skew = _shift(inside, outside, a, dimension, tested)
        part = {
            "item": labels,
            "family": family,
            "n_family": inside.n.round().astype(int),
            "shift": shift,
            "lower": shift - 1.645 * sd,
            "upper": shift + 1.645 * sd,
            "p": two_sided(shift / sd, skew),
        }
        tables.append(pd.DataFrame(part)[tested])
    columns = ["item", "family", "n_family", "shift", "lower", "upper", "p"]
    table = pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=columns)
    table["q"] = false_discovery(table["p"])
    table["flagged"] = (table["q"] <= 0.05) & (table["shift"].abs() >= NOTABLE_SHIFT)
    return table.sort_values("p", kind="stable", ignore_index=True)


def _side(found: Residuals, families: Any) -> Side:
    parts = (found.family_n, found.score, found.information, found.score_third)
    return Side(*(part[:, families].sum(1) for part in parts))


def _shift(
    inside: Side, outside: Side, a: np.ndarray, dimension: np.ndarray, tested: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Shift, its standard deviation and skewness per item.

    Items far out in a first round are left out of the mean over items in the second: biased items must not pass as
    ability.
    """
    kept = tested
    for _ in range(2):
        shift, variance, third = np.zeros(len(a)), np.full(len(a), 1e-12), np.zeros(len(a))
        for side, sign in ((inside, 1.0), (outside, -1.0)):
            information = np.where(tested, side.information, 1.0)
            common, own_share = _common(side, a, dimension, kept)
            shift += sign * (side.score / information - common * a)
            variance += (1 - np.where(kept, own_share, 0.0)) / information
            third += sign * side.third / information**3
        kept = tested & (np.abs(shift) < 3 * np.sqrt(variance))
    return shift, np.sqrt(variance), third / variance**1.5


def _common(side: Side, a: np.ndarray, dimension: np.ndarray, kept: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Shift of ability that is common to the kept items of a dimension, and each item's share in its information."""
    score, information = np.where(kept, a * side.score, 0.0), np.where(kept, a**2 * side.information, 0.0)
    total = np.maximum(np.bincount(dimension, information), 1e-12)
    return (np.bincount(dimension, score) / total)[dimension], np.minimum(information / total[dimension], 0.9)
