"""Facets of a bank: questions for which a subject's ability may depart from its general one.

Subjects do not follow one ability exactly: some do better on what is easy, or on what tells subjects apart sharply,
than on the rest. A test that asks only what tells most takes that part for the whole. So abilities depart by facet,
a cell of difficulty and sharpness (and category where asked for), and the target counts what was not asked.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from bayes_irsl.adaptive.beliefs import Prior
from bayes_irsl.adaptive.tables import Tables
from bayes_irsl.bank import ItemBank
from bayes_irsl.quadrature import column

Floats = npt.NDArray[np.floating]

# Quantiles that part questions by how sharply they tell, the sharpest finest as they are asked most; by difficulty.
SHARPNESS, DIFFICULTY = (0.5, 0.8, 0.95), (1 / 3, 2 / 3)
_A_FACET, _MOST_FACETS = 8, 120  # questions that a facet should have; facets
_CENTRAL = 1.5  # sd of the prior within which questions are compared
_STRETCH = (0.25, 4.0)
NEIGHBOURS = 0.6  # correlation of departures one step apart in sharpness or difficulty


class Facets(NamedTuple):
    """F facets: of every item (J,); per facet (F,) its dimension, category, steps of difficulty and sharpness, link.

    ``stretch`` (F,): departures in logits are this much larger where the facet's curves are flatter than the average,
    so that they are alike in probability.
    """

    of_item: np.ndarray
    dimension: np.ndarray
    category: np.ndarray
    difficulty: np.ndarray
    sharpness: np.ndarray
    link: np.ndarray
    stretch: Floats
    names: list[str]


class Spread(NamedTuple):
    """Departures of a subject's abilities from its general one, in logits.

    ``category``, ``level``, ``facet``: sd by category, by cell of difficulty and sharpness (neighbours alike), and of
    every facet alone; a subject's own are these times one of ``scales``, with probability ``weights``. ``residual``:
    (r, s), variance r m + s^2 m^2, m = mu (1 - mu), of single answers beyond the bank's (s: sd of a question's own
    departure, in logits); of counts and probabilities only. ``unusual``: share of subjects whose general ability comes
    from a prior so many times as wide, as newcomers may lie far from what a bank was calibrated with.
    """

    category: float
    level: float
    facet: float
    residual: tuple[float, float]
    scales: tuple[float, ...]
    weights: tuple[float, ...]
    unusual: tuple[float, float] = (0.1, 2.5)


NONE = Spread(0.0, 0.0, 0.0, (0.0, 0.0), (1.0,), (1.0,), (0.0, 1.0))


def facets(bank: ItemBank, table: Tables, by: str | None, whole: bool = False) -> Facets:
    """Facets by dimension, link, a column of the bank's items, and cells of difficulty and sharpness.

    ``whole``: by dimension and link alone, for subjects that do not depart.
    """
    mean, sd = bank.prior
    near = np.abs(table.nodes - mean) <= _CENTRAL * sd
    height = table.mean[:, near].mean(1)
    slope = np.abs(np.diff(table.mean[:, near], axis=1)).max(1)
    # Samples that an answer is worth: 1 for 0/1 answers.
    worth = table.mean[:, near] * (1 - table.mean[:, near]) / np.maximum(table.variance[:, near], 1e-9)
    dimension = np.asarray(bank.items["dimension"].astype(str))
    labels = np.asarray(bank.items[by].astype(str)) if by else np.full(bank.n_items, "")
    groups = pd.Series(labels).groupby(dimension).nunique().sum()
    cells = [(SHARPNESS, DIFFICULTY), (SHARPNESS, ()), ((0.5,), ()), ((), ())][-1 if whole else 0 :]
    fits = [(len(s) + 1) * (len(d) + 1) * groups for s, d in cells]
    sharp, hard = cells[next((i for i, n in enumerate(fits) if n <= min(_MOST_FACETS, bank.n_items / _A_FACET)), -1)]
    keys = pd.DataFrame(
        {
            "dimension": dimension,
            "category": labels,
            "difficulty": _steps(-height, hard, dimension),
            "sharpness": _steps(slope * np.sqrt(worth.mean(1)), sharp, dimension),
            "link": column(bank, "link").astype(int),
        }
    )
    of_item, distinct = pd.factorize(pd.MultiIndex.from_frame(keys))
    d, c, h, s, link = (np.asarray(distinct.get_level_values(i)) for i in range(5))
    each = np.bincount(of_item, slope) / np.bincount(of_item)
    stretch = np.clip(slope.mean() / np.maximum(each, 1e-12), *_STRETCH)
    names = [
        " ".join(map(str, (x, y, f"difficulty {z + 1} sharpness {w + 1}")))
        for x, y, z, w in zip(d, c, h, s, strict=True)
    ]
    return Facets(of_item, d, c, h, s, link, stretch, names)


def _steps(values: Floats, quantiles: tuple[float, ...], dimension: np.ndarray) -> np.ndarray:
    """Between which quantiles of its dimension each value lies."""
    out = np.zeros(len(values), int)
    for name in np.unique(dimension) if quantiles else []:
        own = dimension == name
        out[own] = np.searchsorted(np.quantile(values[own], quantiles), values[own])
    return out


def prior_of(facet: Facets, bank: ItemBank, prior: tuple[float, float], spread: Spread) -> Prior:
    """Normal priors, one a scale, of the F facets' abilities, then of one general ability a dimension.

    Each comes twice, the second time with the wider general ability of unusual subjects.
    """
    dims = np.asarray(bank.dimensions)
    of_dim = np.concatenate([facet.dimension, dims])
    n, f = len(of_dim), len(facet.names)
    general = prior[1] ** 2 * (of_dim[:, None] == of_dim)
    links, own = np.zeros((n, n)), np.zeros((n, n))
    links[:f, :f] = _links(facet, bank, prior)
    own[:f, :f] = covariance_of_departures(facet, spread)
    share, wider = spread.unusual
    kinds = [
        (w * p, scale, times)
        for scale, w in zip(spread.scales, spread.weights, strict=True)
        for p, times in ((1 - share, 1.0), (share, wider))
        if p > 0
    ]
    weight, scale, times = np.array(kinds).T
    covariance = times[:, None, None] ** 2 * general + links + scale[:, None, None] ** 2 * own
    return Prior(np.log(weight), np.full((len(scale), n), prior[0]), covariance)


def covariance_of_departures(facet: Facets, spread: Spread) -> Floats:
    """Covariance (F, F) of the departures at scale 1."""

    def alike(values: np.ndarray) -> Floats:
        return (values[:, None] == values).astype(float)

    steps = np.abs(facet.difficulty[:, None] - facet.difficulty) + np.abs(facet.sharpness[:, None] - facet.sharpness)
    own = (
        spread.category**2 * alike(facet.category)
        + spread.level**2 * NEIGHBOURS**steps
        + spread.facet**2 * np.eye(len(facet.names))
    )
    return facet.stretch[:, None] * facet.stretch * alike(facet.dimension) * own


def _links(facet: Facets, bank: ItemBank, prior: tuple[float, float]) -> Floats:
    """Error of links (F, F), common to the items of a link."""
    if bank.links is None:
        return np.zeros((len(facet.names),) * 2)
    r, s = bank.links[..., 0], bank.links[..., 1]
    variance = np.concatenate([[0.0], (s + (r - 1) * prior[0]).var(1) + r.var(1) * prior[1] ** 2])
    return (facet.link[:, None] == facet.link) * variance[facet.link][:, None]
