"""Checks of the items: do their curves fit, do they work alike for all families, and do they tell anything?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy import special

from bayes_irsl._bank_fit import PRIOR_LED_MEANS, item_facts
from bayes_irsl.diagnostics.families import FEWEST_IN_FAMILY, family_check, family_codes
from bayes_irsl.diagnostics.predict import Draws, cell_moments, item_blocks, shares, take_draws
from bayes_irsl.diagnostics.tails import chi_square_p, false_discovery, normal_score
from bayes_irsl.diagnostics.verdicts import Check, some, worst

MOST_MOMENTS = 40_000_000
FLAG = 0.05
# A misfit is named when it is beyond chance and larger than this root mean square difference.
NOTABLE_DIFFERENCE = 0.05
NOTABLE_CORRELATION = 0.1


@dataclass(frozen=True)
class Residuals:
    """Answers minus predictions, summed over groups of cells.

    If the fit is right, such a sum U has mean 0 and a known variance V in every draw, and its average over draws has
    variance V - Var(U | answers): the law of total variance.

    Attributes
    ----------
    group_* (J, G)
        Per item and group of ability (the ability in the draw: grouping by the answers themselves would bias U):
        answers, U, V and third moment, averaged over draws, and the covariance (J, G, G) of U over draws.
    family_n, score, information, score_third (J, F)
        Per item and family: answers, score for a shift of the logit, its information and third moment.
    infit, outfit (J,)
        Mean squared residual weighted by information, and plain over its variance; 1 where the fit is right.
    """

    group_n: np.ndarray
    group_difference: np.ndarray
    group_variance: np.ndarray
    group_third: np.ndarray
    group_covariance: np.ndarray
    families: tuple[str, ...]
    family_n: np.ndarray
    score: np.ndarray
    information: np.ndarray
    score_third: np.ndarray
    infit: np.ndarray
    outfit: np.ndarray


def residuals(fit: Any) -> Residuals:
    """One pass over the answers, in blocks of items."""
    responses = fit.responses
    draws = take_draws(fit, int(np.clip(MOST_MOMENTS // max(1, responses.n_obs), 25, 100)))
    share, j, d = shares(fit), responses.n_items, draws.size
    cuts = ability_cuts(draws, responses)
    family, families = family_codes(responses)
    g, f = cuts.shape[1] + 1, len(families)
    groups, covariance = np.zeros((4, j, g)), np.zeros((j, g, g))
    scores, squared = np.zeros((4, j * f)), np.zeros((3, j))
    for block, real, items in item_blocks(responses, d):
        cells = block[:real]
        subject, item = responses.subject_index[cells], responses.item_index[cells]
        mean, variance, third, slope = (m[:, :real] for m in cell_moments(draws, responses, block))
        variance = np.maximum(variance, 1e-12)
        rest = share[cells] - mean
        size = items.stop - items.start
        place = (item - items.start) * g + _groups(draws, cuts, subject, item) + np.arange(d)[:, None] * size * g
        for k, weight in enumerate((np.ones_like(rest), rest, variance, third)):
            sums = np.bincount(place.ravel(), weight.ravel(), d * size * g).reshape(d, size, g)
            groups[k, items] = sums.mean(0)
            if weight is rest:
                around = sums - sums.mean(0)
                covariance[items] = np.einsum("djg,djh->jgh", around, around) / max(1, d - 1)
        squared += [np.bincount(item, v.mean(0), j) for v in (rest**2, variance, rest**2 / variance)]
        if f:
            known = family[subject] >= 0
            place = (item * f + family[subject])[known]
            weight = slope / variance
            parts = (np.ones_like(rest), weight * rest, weight * slope, weight**3 * third)
            scores += [np.bincount(place, v[:, known].mean(0), j * f) for v in parts]
    count = np.bincount(responses.item_index, minlength=j)
    with np.errstate(invalid="ignore", divide="ignore"):
        infit, outfit = squared[0] / squared[1], squared[2] / count
    n, difference, variance, third = groups
    family_n, score, information, score_third = scores.reshape(4, j, f)
    return Residuals(
        n, difference, variance, third, covariance, families, family_n, score, information, score_third, infit, outfit
    )


def ability_cuts(draws: Draws, responses: Any) -> np.ndarray:
    """Cuts between groups of about equal size, per ability: (K, G - 1), 3 to 5 groups."""
    answered = np.bincount(responses.subject_index, minlength=responses.n_subjects) > 0
    n_groups = int(np.clip(answered.sum() // 10, 3, 5))
    levels = np.arange(1, n_groups) / n_groups
    return np.quantile(draws.theta[:, answered].mean(0), levels, axis=0).T


def _groups(draws: Draws, cuts: np.ndarray, subject: np.ndarray, item: np.ndarray) -> np.ndarray:
    theta, cut = draws.ability(subject, item), cuts[draws.dimension[item]]
    group = np.zeros(theta.shape, np.int64)
    for k in range(cut.shape[1]):
        group += theta > cut[:, k]
    return group


def item_checks(fit: Any, found: Residuals) -> tuple[list[Check], dict[str, str]]:
    """Fit of the curves, items that work differently for a family, and items that tell little."""
    checks = [item_fit_check(fit, found)]
    skipped = {}
    if found.families:
        checks.append(family_check(fit, found))
    else:
        skipped["items across families"] = (
            f"needs a subject column 'family' with a family of {FEWEST_IN_FAMILY} or more subjects, and other subjects"
        )
    return [*checks, direction_check(fit), *information_checks(fit)], skipped


def item_fit_check(fit: Any, found: Residuals) -> Check:
    """Observed against predicted means in groups of ability: chi-square over the groups of an item."""
    table = item_fit_table(fit, found)
    flagged = [str(label) for label in table.index[table["flagged"]]]
    share = len(flagged) / max(1, int(table["p"].notna().sum()))
    names = f": {some(flagged)}" if flagged else ""
    return Check(
        "item fit",
        worst(share, 0.02, 0.2),
        len(flagged),
        f"{len(flagged):,} of {len(table):,} items ({share:.1%}) do not follow their curve (false discovery rate 5 %, "
        f"difference above {NOTABLE_DIFFERENCE:g}){names}.",
        "Read these items; if they are many, use a richer curve (2pl, 3pl) or one ability per category.",
        table,
    )


def item_chi_square(found: Residuals) -> tuple[np.ndarray, np.ndarray]:
    """Squared length of an item's standardised differences, and degrees of freedom (J,).

    In units of sqrt(V) the averaged differences have covariance I - C. Directions in which C is near 1 are those that
    the item's own parameters have absorbed: they hold no evidence and are left out.
    """
    root = np.sqrt(np.where(found.group_variance > 0, found.group_variance, 1.0))
    skewness = found.group_third / root**3
    # beyond this a group holds so few answers of the rarer kind that its tail probabilities mean little
    used = (found.group_variance > 0) & (np.abs(skewness) <= 1.4) & (found.group_n >= 3)
    z = np.where(used, normal_score(found.group_difference / root, np.where(used, skewness, 0.0)), 0.0)
    absorbed = found.group_covariance / (root[:, :, None] * root[:, None, :])
    absorbed = np.where(used[:, :, None] & used[:, None, :], absorbed, np.eye(used.shape[1]))
    share, direction = np.linalg.eigh(absorbed)
    open_share = 1 - share
    tested = open_share > 0.3
    along = np.einsum("jgk,jg->jk", direction, z)
    return np.where(tested, along**2 / np.where(tested, open_share, 1.0), 0.0).sum(1), tested.sum(1)


def item_fit_table(fit: Any, found: Residuals) -> pd.DataFrame:
    """Per item: answers, infit, outfit, root mean square difference over ability groups, p, q, flagged; worst first."""
    statistic, freedom = item_chi_square(found)
    p = np.where(freedom > 0, chi_square_p(statistic, freedom), np.nan)
    count = found.group_n.sum(1)
    with np.errstate(invalid="ignore", divide="ignore"):
        squares = np.where(found.group_n > 0, found.group_difference**2 / found.group_n, 0.0).sum(1)
        difference = np.sqrt(squares / count)
    table = pd.DataFrame(
        {
            "n_answers": np.round(count).astype(int),
            "infit": found.infit,
            "outfit": found.outfit,
            "difference": difference,
            "p": p,
            "q": false_discovery(p),
        },
        index=fit.responses.items.index,
    )
    table["flagged"] = (table["q"] <= FLAG) & (table["difference"] >= NOTABLE_DIFFERENCE)
    return table.sort_values(["p", "difference"], ascending=[True, False], kind="stable")


def direction_check(fit: Any) -> Check:
    """Items that abler subjects do worse on: with a > 0 their curves come out flat, and the answers disagree."""
    table = direction_table(fit)
    flagged = [str(label) for label in table.index[table["flagged"]]]
    names = f": {some(flagged)}" if flagged else ""
    return Check(
        "direction of items",
        worst(len(flagged) / max(1, len(table)), 0.0, 0.2),
        len(flagged),
        f"{len(flagged):,} of {len(table):,} items are answered worse by abler subjects (correlation below "
        f"{-NOTABLE_CORRELATION:g}, false discovery rate 5 %){names}.",
        "Discriminations are positive in this model, so that such items look flat: look for wrong keys, recode them "
        "(1 - answer), or drop them.",
        table,
    )


def direction_table(fit: Any) -> pd.DataFrame:
    """Per item: answers, correlation of the answers with ability, one-sided p that it is negative, q, flagged."""
    responses, draws = fit.responses, take_draws(fit, 100)
    item, n_items = responses.item_index, responses.n_items
    x = draws.theta.mean(0)[responses.subject_index, draws.dimension[item]].astype(float)
    y = responses.rate.astype(float)
    count = np.bincount(item, minlength=n_items)
    with np.errstate(invalid="ignore", divide="ignore"):
        x, y = (v - (np.bincount(item, v, n_items) / count)[item] for v in (x, y))
        xy, xx, yy = (np.bincount(item, v, n_items) for v in (x * y, x * x, y * y))
        correlation = np.where((yy > 0) & (count > 2), xy / np.sqrt(xx * yy), np.nan)
    # r sqrt(n - 1) is the score test of no slope
    p = special.ndtr(correlation * np.sqrt(np.maximum(count - 1, 0)))
    table = pd.DataFrame(
        {"n_answers": count, "correlation": correlation, "p": p, "q": false_discovery(p)}, index=responses.items.index
    )
    table["flagged"] = (table["q"] <= FLAG) & (table["correlation"] <= -NOTABLE_CORRELATION)
    return table.sort_values("p", kind="stable")


def information_checks(fit: Any) -> list[Check]:
    """Items that all subjects answered alike, and items whose difficulty is still mostly its prior."""
    items = item_facts(fit)
    return [no_variation_check(items), prior_led_check(items)]


def no_variation_check(items: pd.DataFrame) -> Check:
    """Items answered alike by all: difficulties finite thanks to their prior, discriminations no more than theirs."""
    labels = [str(label) for label in items.index[items["no_variation"]]]
    return Check(
        "items without variation",
        "REVIEW" if labels else "PASS",
        len(labels),
        f"{len(labels):,} of {len(items):,} items were answered alike by all "
        f"subjects{f': {some(labels)}' if labels else ''}.",
        "They stay in the bank with difficulties led by the prior, and out of every list of discriminating items; ask "
        "abler or weaker subjects to learn about them.",
        items.loc[items["no_variation"], ["benchmark", "n_answers"]],
    )


def prior_led_check(items: pd.DataFrame) -> Check:
    """Items whose intercept the answers have hardly moved from its prior; see ``PRIOR_LED``."""
    if "prior_led" not in items:
        items = items.assign(prior_led=False, sd_ratio=np.nan)
    table = items[["benchmark", "n_answers", "sd_ratio", "prior_led"]].sort_values("sd_ratio", ascending=False)
    labels = [str(label) for label in table.index[table["prior_led"]]]
    return Check(
        "prior-led items",
        "REVIEW" if labels else "PASS",
        len(labels),
        f"{len(labels):,} of {len(items):,} items are led by the prior of their difficulty "
        f"({PRIOR_LED_MEANS}){f': {some(labels)}' if labels else ''}.",
        "More subjects must answer them before anything is said about these items one by one.",
        table,
    )
