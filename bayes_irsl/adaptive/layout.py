"""A test laid out on its bank: tables, facets, prior and target, worked out once; and what a state's answers say."""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from bayes_irsl.adaptive import beliefs
from bayes_irsl.adaptive.facets import Facets, Spread, facets, prior_of
from bayes_irsl.adaptive.gains import Believed, Candidates, believed, several_believed
from bayes_irsl.adaptive.state import Answer
from bayes_irsl.adaptive.tables import Tables, answer_curve, grid, tables
from bayes_irsl.adaptive.targets import Measured, Target
from bayes_irsl.bank import ItemBank
from bayes_irsl.benchmark_scores import sampled

Floats = npt.NDArray[np.floating]

# Above so many questions one answer is too small a part of a mean to be worth counting when the next is chosen.
_ANSWER_COUNTS = 3000
_DRAWS = 2000


class Layout(NamedTuple):
    """What a test works with.

    Attributes
    ----------
    bank, prior
    table : Tables
        Of the bank, with its own numbers of trials.
    facet : Facets
    target : Measured
    noise : (F, G)
        Variance of the target's own answers given the abilities, summed by facet.
    order : (J,)
        Questions sorted by facet.
    options : tuple of Candidates
        The sorted questions, once for each number of samples that may be asked for.
    """

    bank: ItemBank
    prior: beliefs.Prior
    table: Tables
    facet: Facets
    target: Measured
    noise: Floats
    order: np.ndarray
    options: tuple[Candidates, ...]


class Known(NamedTuple):
    """What the answers say: posterior, target without answered questions (values, constant), belief, variance of the
    answers still to come, positions of the answered."""

    posterior: beliefs.Posterior
    values: Floats
    constant: float
    belief: Believed
    noise: float
    answered: np.ndarray

    @property
    def mean(self) -> float:
        """Posterior mean of the target."""
        return self.constant + self.belief.mean

    @property
    def sd(self) -> float:
        """Posterior sd of the target."""
        return float(np.sqrt(max(self.belief.variance, 0.0) + self.noise))


def lay_out(
    bank: ItemBank,
    target: Target,
    prior: tuple[float, float],
    by: str | None,
    spread: Spread,
    samples: tuple[int, ...] | None,
) -> Layout:
    """Work out what a test needs."""
    nodes = grid(*prior)
    table = tables(bank, nodes, residual=spread.residual)
    facet = facets(bank, table, by, whole=not any(spread[:3]))
    measured = target.on(bank, table, facet)
    noise = np.zeros((len(facet.names), len(nodes)))
    if measured.item is not None:
        for k in range(len(facet.names)):
            rows = facet.of_item == k
            noise[k] = measured.member[rows] ** 2 @ table.variance[rows]
    each = [table] if samples is None else [tables(bank, nodes, n, spread.residual) for n in samples]
    questions = [sorted_questions(bank, facet, t) for t in each]
    options = tuple(candidates for _, candidates in questions)
    return Layout(bank, prior_of(facet, bank, prior, spread), table, facet, measured, noise, questions[0][0], options)


def sorted_questions(bank: ItemBank, facet: Facets, table: Tables) -> tuple[np.ndarray, Candidates]:
    """Questions in order of their facets: positions (J,), and their curves."""
    order = np.argsort(facet.of_item, kind="stable")
    starts = np.searchsorted(facet.of_item[order], np.arange(len(facet.names) + 1))
    mean = table.mean[order]
    # The square of a 0/1 answer is the answer.
    square = mean if bank.likelihood == "bernoulli" else table.variance[order] + mean**2
    return order, Candidates(mean, square, starts)


def known(layout: Layout, answers: tuple[Answer, ...], expected: tuple[int, ...] = ()) -> Known:
    """What answers say, in whichever order they came.

    ``expected``: positions of questions that are out, taken as answered the way that tells most likely nothing new
    about the mean, so that the next question does not ask the same.
    """
    likelihood, values, noise, constant, answered = _told(layout, answers)
    with jax.enable_x64(True):
        found = beliefs.posterior(layout.prior, layout.table.nodes, likelihood)
        for j in expected:
            k = int(layout.facet.of_item[j])
            curves = layout.table.mean[j], layout.table.variance[j]
            likelihood[k] += beliefs.as_expected(found, layout.table.nodes, k, *curves)
            found = beliefs.posterior(layout.prior, layout.table.nodes, likelihood)
        belief = believed(found, layout.table.nodes, values)
    left = float(np.maximum((noise * belief.weight).sum(), 0.0))
    return Known(found, values, constant, belief, left, answered)


def positions(bank: ItemBank) -> dict[str, int]:
    """Where in the bank each item is."""
    if "place" not in bank.memo:
        bank.memo["place"] = {str(label): j for j, label in enumerate(bank.items.index)}
    return bank.memo["place"]


def all_known(layout: Layout, every: list[tuple[Answer, ...]]) -> list[Known]:
    """What the answers of several subjects say, worked out together."""
    told = [_told(layout, answers) for answers in every]
    with jax.enable_x64(True):
        found = beliefs.posteriors(layout.prior, layout.table.nodes, np.stack([t[0] for t in told]))
        believed_ = several_believed(found, layout.table.nodes, np.stack([t[1] for t in told]))
        each = [jax.tree.map(lambda x: x[i], jax.device_get(found)) for i in range(len(every))]  # noqa: B023
    return [
        Known(p, values, constant, b, float(np.maximum((noise * b.weight).sum(), 0.0)), answered)
        for p, b, (_, values, noise, constant, answered) in zip(each, believed_, told, strict=True)
    ]


def _told(layout: Layout, answers: tuple[Answer, ...]) -> tuple[Floats, Floats, Floats, float, np.ndarray]:
    """Log likelihood by facet; the target's values, the answers' variance and the sum of answers that make it up,
    without and with what is answered; positions of the answered."""
    table, facet, target = layout.table, layout.facet, layout.target
    likelihood = np.zeros((len(facet.names), len(table.nodes)))
    values, noise, constant = target.values.copy(), layout.noise.copy(), 0.0
    there = [a for a in answers if a.value is not None]
    position = positions(layout.bank)
    place = np.array([position[a.item] for a in there], int)
    # By position, so that the sums do not depend on the order in which answers came.
    for j, a in sorted(zip(place.tolist(), there, strict=True), key=lambda p: p[0]):
        k, share = facet.of_item[j], float(a.value or 0.0) / (a.trials or 1)
        likelihood[k] += answer_curve(layout.bank, table, j, share, a.trials)
        if target.item is not None:
            values[k] -= target.member[j] * target.item[j]
            noise[k] -= target.member[j] ** 2 * table.variance[j]
            constant += float(target.member[j]) * share
    return likelihood, values, noise, constant, np.sort(place)


def draws(layout: Layout, found: Known, seed: int, n: int = _DRAWS) -> tuple[Floats, Floats]:
    """Draws of the target (n,) and of the general abilities (n, D).

    Abilities hang together as in the normal, each with its own marginal; answers still to come scatter.
    """
    rng = np.random.default_rng([seed, 37])
    posterior = found.posterior
    q = np.exp(np.asarray(posterior.log_weight))
    of = np.searchsorted(np.cumsum(q), (np.arange(n) + rng.random()) / n)
    of = np.minimum(of, len(q) - 1)
    f, c = len(layout.facet.names), posterior.mean.shape[1]
    abilities = np.zeros((n, c))
    for m in range(len(q)):
        rows = np.flatnonzero(of == m)
        if not rows.size:
            continue
        covariance = np.asarray(posterior.covariance[m])
        sd = np.sqrt(np.diag(covariance))
        value, vector = np.linalg.eigh(covariance / np.outer(sd, sd))
        z = rng.standard_normal((rows.size, c)) * np.sqrt(np.maximum(value, 0)) @ vector.T
        for k in range(c):
            w, at = np.asarray(posterior.weight[m, k]), np.asarray(posterior.at[m, k])
            middle = np.cumsum(w) - w / 2
            abilities[rows, k] = np.interp(z[:, k], ndtri(np.clip(middle, 1e-15, 1 - 1e-15)), at)
    nodes = layout.table.nodes
    total = sum(np.interp(abilities[:, k], nodes, found.values[k]) for k in range(c))
    if layout.target.item is not None:
        total = _with_scatter(layout, found, abilities[:, :f], np.asarray(total), rng)
    return np.asarray(total) + found.constant, abilities[:, f:]


def _with_scatter(layout: Layout, found: Known, abilities: Floats, total: Floats, rng: np.random.Generator) -> Floats:
    """The sum of the answers still to come, drawn around its mean ``total``."""
    member = layout.target.member.copy()
    member[found.answered] = 0.0
    n_left, each = int((member > 0).sum()), float(layout.target.member.max())
    if not n_left:
        return np.zeros_like(total)
    noise = np.zeros(len(total))
    for k in range(abilities.shape[1]):
        rows = np.flatnonzero((layout.facet.of_item == k) & (member > 0))
        if rows.size:
            noise += np.interp(abilities[:, k], layout.table.nodes, member[rows] ** 2 @ layout.table.variance[rows])
    trials = None
    if layout.bank.likelihood in ("bernoulli", "binomial", "beta-binomial"):
        trials = round(float(layout.bank.items["trials"].to_numpy()[member > 0].mean()))
    return sampled(np.maximum(total, 0.0) / each, noise / each**2, n_left, trials, rng) * each
