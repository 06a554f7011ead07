"""Scores of a subject on the benchmarks of a bank: answered items as observed, the others predicted."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from bayes_irsl.answers import LIKELIHOODS
from bayes_irsl.bank import ItemBank
from bayes_irsl.grids import quantiles
from bayes_irsl.quadrature import CHUNK, Curves, bucket, column, device_curves, logits
from bayes_irsl.spec import LIKELIHOODS as KINDS

Array = Any

SAMPLES = 1000  # abilities that a score is made of
TABLE_NODES = 241
_DIRECT = 256  # up to this many unanswered items of a group are evaluated one by one
_MANY = 100.0
_TABLE_REACH = 12.0  # in sd of the prior, on either side


class Groups(NamedTuple):
    """Items of a bank that share benchmark, ability and link: of every item, and of every group."""

    of_item: np.ndarray
    size: np.ndarray
    benchmark: np.ndarray
    dimension: np.ndarray
    link: np.ndarray


class Predicted(NamedTuple):
    """One subject: abilities (dimension, draw); scores (benchmark, draw) with their mean, sd and interval."""

    ability: np.ndarray
    score: np.ndarray
    mean: np.ndarray
    sd: np.ndarray
    interval: np.ndarray
    n_answered: np.ndarray


def groups(bank: ItemBank) -> Groups:
    """The groups of a bank's items, worked out once."""
    if "groups" not in bank.memo:
        benchmark = pd.Index(bank.benchmarks).get_indexer(bank.items["benchmark"].astype(str))
        dimension = pd.Index(bank.dimensions).get_indexer(bank.items["dimension"].astype(str))
        keys = np.column_stack([benchmark, dimension, column(bank, "link")])
        distinct, of_item = np.unique(keys, axis=0, return_inverse=True)
        of_item = of_item.reshape(-1)
        bank.memo["groups"] = Groups(of_item, np.bincount(of_item), *distinct.T)
    return bank.memo["groups"]


@partial(jax.jit, static_argnames=("name",))
def _sums(
    curves: Curves,
    item: Array,
    filled: Array,
    group: Array,
    trials: Array,
    count: Array,
    theta: Array,
    name: str,
) -> tuple[Array, ...]:
    """Sums over items of mean, variance and squared mean, each (group, place, draw) as theta is."""
    mean, variance = LIKELIHOODS[name].mean, LIKELIHOODS[name].variance

    def add(i: Array, total: tuple[Array, ...]) -> tuple[Array, ...]:
        piece = jax.tree.map(lambda x: x[item[i]], curves)
        eta, rest = logits(piece, theta[group[i]]), tuple(p[:, None] for p in piece.parameters)
        n = trials[i][:, None, None]
        m, v = mean(eta, n, *rest), variance(eta, n, *rest)
        member = jax.nn.one_hot(group[i], theta.shape[0], axis=0) * filled[i]
        return tuple(t + jnp.tensordot(member, x, 1) for t, x in zip(total, (m, v, m * m), strict=True))

    return jax.lax.fori_loop(0, count, add, (jnp.zeros(theta.shape, jnp.float32),) * 3)


def item_sums(bank: ItemBank, items: np.ndarray, group: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """Sums of mean, variance and squared mean of the answers (as shares) to some items.

    Parameters
    ----------
    bank : ItemBank
    items : int (n,)
        Positions in the bank.
    group : int (n,)
        Group that each item is added to.
    theta : (group, place, draw)
        Abilities: some places for every draw of the bank.

    Returns
    -------
    (3, group, place, draw)
    """
    rows = -(-len(items) // CHUNK)
    shape = (bucket(rows, 4, least=4), CHUNK)

    def lay(values: np.ndarray, dtype: type) -> np.ndarray:
        flat: np.ndarray = np.zeros(shape[0] * CHUNK, dtype)
        flat[: len(values)] = values
        return flat.reshape(shape)

    filled, trials = np.ones(len(items)), column(bank, "trials")[items]
    arrays = (lay(items, np.int32), lay(filled, np.float32), lay(group, np.int32))
    trials = np.maximum(lay(trials, np.float32), 1)
    theta = np.asarray(theta, np.float32)
    out = _sums(device_curves(bank), *arrays, trials, np.int32(rows), theta, name=bank.likelihood)
    return np.stack([np.asarray(x, float) for x in out])


def all_items(bank: ItemBank, group: int, theta: np.ndarray) -> np.ndarray:
    """The same sums (3, place, draw) over all items of a large group, from a table kept with the bank.

    Cubic interpolation on TABLE_NODES abilities in mean +- 12 sd of the bank's prior; constant beyond.
    """
    mean, sd = bank.prior
    start, step = mean - _TABLE_REACH * sd, 2 * _TABLE_REACH * sd / (TABLE_NODES - 1)
    key = ("sums", int(group))
    if key not in bank.memo:
        members = np.flatnonzero(groups(bank).of_item == group)
        nodes = start + step * np.arange(TABLE_NODES)[:, None]
        nodes = np.broadcast_to(nodes, (1, TABLE_NODES, bank.n_draws))
        bank.memo[key] = item_sums(bank, members, np.zeros(len(members), int), nodes).reshape(3, -1)
    table = bank.memo[key]
    place = np.clip((theta - start) / step, 1, TABLE_NODES - 2.001)
    base = place.astype(int)
    t = place - base
    first = (base - 1) * bank.n_draws + np.arange(bank.n_draws)
    weights = (
        -t * (t - 1) * (t - 2) / 6,
        (t + 1) * (t - 1) * (t - 2) / 2,
        -(t + 1) * t * (t - 2) / 2,
        (t + 1) * t * (t - 1) / 6,
    )
    parts = [w * table.take(first + k * bank.n_draws, axis=1) for k, w in enumerate(weights)]
    return np.sum(parts, axis=0)


def predict(
    bank: ItemBank,
    answered: np.ndarray,
    share: np.ndarray,
    theta: np.ndarray,
    height: np.ndarray,
    rng: np.random.Generator,
    *,
    levels: np.ndarray,
    n_samples: int = SAMPLES,
    population: bool = False,
) -> Predicted:
    """Score of one subject on every benchmark.

    Parameters
    ----------
    bank : ItemBank
    answered : int (n,)
        Positions of the answered items.
    share : float (n,)
        Their answers, as shares.
    theta, height : (dimension, node), (link, dimension, node)
        Log posterior of each ability, as the items of each link see it.
    rng : Generator
    levels : (2,)
        Levels of the quantiles that bound the interval.
    n_samples : int
    population : bool
        Whether to predict the long-run score on new items instead.

    Returns
    -------
    Predicted
    """
    layout, n_benchmarks = groups(bank), len(bank.benchmarks)
    places = -(-n_samples // bank.n_draws)
    n = places * bank.n_draws
    u = np.stack([(rng.permutation(n) + rng.random(n)) / n for _ in theta])
    seen = {k: quantiles(theta, height[k], u) for k in {0, *layout.link.tolist()}}
    at = np.stack([seen[k][d] for k, d in zip(layout.link.tolist(), layout.dimension, strict=True)])
    asked = np.zeros(0, int) if population else answered
    sums = _sums_to_predict(bank, asked, at.reshape(-1, places, bank.n_draws))
    member = (np.arange(n_benchmarks)[:, None] == layout.benchmark).astype(float)
    mean, variance, square = member @ sums.reshape(3, -1, n)
    size = (member @ layout.size)[:, None]
    of_answer = layout.benchmark[layout.of_item[answered]]
    n_answered = np.bincount(of_answer, minlength=n_benchmarks)
    if population:
        observed = np.zeros_like(size)
        variance = np.maximum(square - mean**2 / size, 0.0)
        values = _long_run(mean, variance, size, rng)
    else:
        observed = np.bincount(of_answer, share, n_benchmarks)[:, None]
        n_left = size[:, 0].astype(int) - n_answered
        parts = zip(mean, variance, n_left, _trials(bank), strict=True)
        values = observed + np.stack([sampled(*part, rng) for part in parts])
    return Predicted(
        ability=seen[0],
        score=values / size,
        mean=((observed + mean) / size).mean(1),
        sd=np.sqrt(mean.var(1) + variance.mean(1)) / size[:, 0],
        interval=_quantiles(values, levels) / size,
        n_answered=n_answered,
    )


def _quantiles(values: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Quantiles (row, level) of the values in each row."""
    ordered = np.sort(values, axis=1)
    place = np.arange(ordered.shape[1]) / (ordered.shape[1] - 1)
    return np.stack([np.interp(levels, place, row) for row in ordered])


def _trials(bank: ItemBank) -> list[int | None]:
    """Trials behind an answer in each benchmark, the mean where they differ; None for probabilities."""
    if "probability" in KINDS[bank.likelihood]:
        return [None] * len(bank.benchmarks)
    if "trials of benchmarks" not in bank.memo:
        layout = groups(bank)
        of_item = layout.benchmark[layout.of_item]
        means = np.bincount(of_item, column(bank, "trials")) / np.bincount(of_item)
        bank.memo["trials of benchmarks"] = np.rint(means).astype(int).tolist()
    return bank.memo["trials of benchmarks"]


def _sums_to_predict(bank: ItemBank, answered: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """Sums (3, group, place, draw) over the items without an answer, by the way that touches fewer items."""
    layout = groups(bank)
    n_answered = np.bincount(layout.of_item[answered], minlength=len(layout.size))
    direct = layout.size - n_answered <= np.maximum(n_answered, _DIRECT)
    touched = direct[layout.of_item]
    touched[answered] = ~touched[answered]
    items = np.flatnonzero(touched)
    sums = item_sums(bank, items, layout.of_item[items], theta)
    for group in np.flatnonzero(~direct).tolist():
        sums[:, group] = np.maximum(all_items(bank, group, theta[group]) - sums[:, group], 0.0)
    return sums


def sampled(mean: np.ndarray, variance: np.ndarray, n: int, trials: int | None, rng: np.random.Generator) -> np.ndarray:
    """Sums of n answers (as shares) with given means and variances of the sums.

    Without trials: n times a Beta. With them: successes over trials, the successes Binomial with as many
    trials as give this variance (exact for one item and for equal ones), or beta-binomial where it is larger;
    where the variance is above _MANY a rounded Normal is as good.
    """
    if n == 0:
        return np.zeros_like(mean)
    if trials is None:
        share = np.clip(mean / n, 1e-9, 1 - 1e-9)
        total = np.clip(share * (1 - share) * n**2 / np.maximum(variance, 1e-300) - 1, 1e-3, 1e9)
        return n * rng.beta(share * total, (1 - share) * total)
    most = n * trials
    mean = np.clip(mean * trials, 1e-9, most * (1 - 1e-9))
    variance = variance * trials**2
    if variance.min() > _MANY:
        values = np.rint(mean + np.sqrt(variance) * rng.standard_normal(len(mean)))
        return np.clip(values, 0, most) / trials
    ratio = variance / (mean * (1 - mean / most))
    size = np.rint(mean / np.maximum(1 - variance / mean, mean / most))
    size = np.where(ratio < 1, np.clip(size, np.ceil(mean), most), most).astype(np.int64)
    rate = mean / size
    wide = ratio > 1 + 1e-6 if most > 1 else np.zeros(len(rate), bool)
    total = np.clip((most - 1) / (ratio[wide] - 1) - 1, 1e-3, 1e9)
    rate[wide] = rng.beta(rate[wide] * total, (1 - rate[wide]) * total)
    return rng.binomial(size, rate) / trials


def _long_run(mean: np.ndarray, variance: np.ndarray, size: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Sums over items as if the bank's, of which there are ``size``, were a sample of endlessly many."""
    return np.clip(mean + np.sqrt(variance) * rng.standard_normal(mean.shape), 0.0, size)
