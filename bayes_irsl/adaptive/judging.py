"""Calibration subjects' answers under curves that have not seen them, in two ways."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from tqdm.auto import tqdm

from bayes_irsl import _bank_fit
from bayes_irsl.adaptive.tables import of_items
from bayes_irsl.answers import LIKELIHOODS
from bayes_irsl.bank import ItemBank
from bayes_irsl.fitting import fit as refit
from bayes_irsl.quadrature import Curves, device_curves, logits

if TYPE_CHECKING:
    from bayes_irsl.fitting import Fit

Array = Any
Floats = npt.NDArray[np.floating]
# Bank positions (n,), means and variances (n, G) of answers, the answers as shares (n,).
Judged = tuple[np.ndarray, Floats, Floats, Floats]

_SUBJECTS, _ITEMS, _DRAWS, _MANY, _PIECE = 64, 6000, 100, 200, 256


def by_reweighting(fit: Fit, bank: ItemBank, nodes: Floats, seed: int) -> Iterator[Judged]:
    """Every item's draws reweighted by 1 / p(answer) at the subject's ability: its posterior without that answer.

    For 0/1 answers, of which none weighs much; a single count or probability may be most of what an item's precision
    is known from, and weights that take it out rest on few draws.
    """
    order, starts, subjects, kept = _looked_at(fit, bank, seed)
    responses, kind = fit.responses, LIKELIHOODS[bank.likelihood]
    posterior = fit.tree["posterior"].to_dataset().stack(sample=("chain", "draw"))
    total = posterior.sizes["sample"]
    thin = posterior.isel(sample=np.linspace(0, total - 1, min(_DRAWS, total)).round().astype(int))
    drawn = ItemBank(**_bank_fit.from_draws(fit, thin, posterior))
    theta = thin["theta"].transpose("subject", ..., "sample")
    abilities, places = theta.to_numpy().astype(np.float32), theta["subject"].to_index()
    dimension = np.array([bank.dimensions.index(str(d)) for d in bank.items["dimension"]])
    where, at = (b.items.index.get_indexer(responses.items.index) for b in (bank, drawn))
    for s in subjects[:_SUBJECTS]:
        rows = order[starts[s] : starts[s + 1]]
        rows = rows[kept[responses.item_index[rows]]]
        j, answer = responses.item_index[rows], responses.answer[rows].astype(float)
        if not len(j):
            continue
        own = abilities[places.get_loc(responses.subjects.index[s])]
        own = own[dimension[where[j]]] if own.ndim == 2 else np.broadcast_to(own, (len(j), own.shape[-1]))
        fill = np.concatenate([np.arange(len(j)), np.zeros(-len(j) % _PIECE, int)])
        pieces = at[j][fill], kind.prepare(answer[fill], None), own[fill]
        mean = _reweighted(device_curves(drawn), *pieces, jnp.asarray(nodes, jnp.float32), bank.likelihood)
        mean = np.asarray(mean)[: len(j)]
        yield where[j], mean, mean * (1 - mean), answer


@partial(jax.jit, static_argnames=("name",))
def _reweighted(curves: Curves, item: Array, data: Any, theta: Array, nodes: Array, name: str) -> Array:
    """Means (n, G) under each item's draws, one answer left out."""

    def one(piece: tuple[Any, ...]) -> Array:
        item, data, theta = piece
        drawn = jax.tree.map(lambda x: x[item], curves)
        own = jnp.clip(logits(drawn, theta[:, None]), -60.0, 60.0)
        at = jax.tree.map(lambda x: x[:, None, None], data)
        weight = jax.nn.softmax(-LIKELIHOODS[name].log_density(at, own), axis=-1)
        return (weight * jax.nn.sigmoid(logits(drawn, nodes[:, None]))).sum(-1)

    pieces = jax.tree.map(lambda x: jnp.reshape(jnp.asarray(x), (-1, 32, *x.shape[1:])), (item, data, theta))
    return jax.lax.map(one, pieces).reshape(item.shape[0], -1)


def by_refitting(fit: Fit, bank: ItemBank, nodes: Floats, refits: int, seed: int, progress: bool) -> Iterator[Judged]:
    """The calibration repeated (by Laplace) without a part of its subjects, as many times as there are parts.

    Where it has more than 200 subjects, or too few for the parts, it is taken as it is.
    """
    order, starts, subjects, kept = _looked_at(fit, bank, seed)
    responses = fit.responses
    as_it_is = len(subjects) > _MANY or len(subjects) < 2 * refits
    parts = [subjects[:_SUBJECTS]] if as_it_is else np.array_split(subjects, refits)
    where = bank.items.index.get_indexer(responses.items.index)
    for part in tqdm(parts, desc="departures", unit="refit", disable=not progress or as_it_is, leave=False):
        judge = bank
        if not as_it_is:
            rest = np.ones(responses.n_subjects, bool)
            rest[part] = False
            again = refit(fit.spec, responses.select(subjects=rest), method="laplace", seed=seed, progress=False)
            judge = ItemBank.from_fit(again, draws=_DRAWS, seed=seed)
        place = judge.items.index.get_indexer(responses.items.index)
        for s in part:
            rows = order[starts[s] : starts[s + 1]]
            rows = rows[(kept & (place >= 0))[responses.item_index[rows]]]
            j = responses.item_index[rows]
            if len(j):
                trials = np.ones(len(j)) if responses.trials is None else responses.trials[rows].astype(float)
                mean, variance = of_items(judge, place[j], trials, nodes)
                yield where[j], mean, variance, responses.answer[rows] / trials


def _looked_at(fit: Fit, bank: ItemBank, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Answers sorted by subject and where each begins; subjects with answers in random order; items (J,) looked at."""
    rng = np.random.default_rng([seed, 29])
    responses = fit.responses
    kept = bank.items.index.get_indexer(responses.items.index) >= 0
    kept[rng.permutation(responses.n_items)[_ITEMS:]] = False
    answered = np.flatnonzero(np.bincount(responses.subject_index, minlength=responses.n_subjects) > 0)
    order, starts = responses.by_subject()
    return order, starts, rng.permutation(answered), kept
