"""Posterior of an ability by quadrature: curves averaged over a bank's draws, on a grid that checks itself.

With items independent a posteriori and every item answered once, the exact likelihood of an ability is

    L(theta) = prod_j  mean_d  p(y_j | theta, item draw d).
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bayes_irsl.answers import LIKELIHOODS
from bayes_irsl.bank import ItemBank
from bayes_irsl.curves import mean_logit, with_guessing
from bayes_irsl.grids import FINE, blurred, moments, to_fine

Array = Any

CHUNK = 32  # answers worked on at a time; every unit's answers are padded to a multiple
_NODES = (25, 97, FINE)
_SCOUTS, _SCOUT_NODES = 5, 33  # draws and nodes that find where the posterior lies
# Nats below the peak that both ends must reach, and down to which a place counts as inside the posterior.
_EDGE, _INSIDE = 12.0, 16.0
# How far, in sd, every second node may be off; all nodes together are then off by about the square of it.
_TOLERANCE = 0.02
_ROUNDS = 12
_STEPS = np.linspace(-1, 1, FINE)
_FAR_LOGIT = 60.0  # beyond it means are so near 0 or 1 that shapes of Beta densities leave float32


class Curves(NamedTuple):
    """Draws of item parameters on the device, each (item, draw): a, b, logit_c, parameters of the answers."""

    a: Array
    b: Array
    logit_c: Array | None
    parameters: tuple[Array, ...]


class Answers(NamedTuple):
    """Answers to items of a bank, sorted by unit (a subject's answers that draw on one ability).

    ``unit``, ``item``: int (n_obs,); ``answer``: float (n_obs,); ``trials``: int (n_obs,) or None.
    """

    unit: np.ndarray
    item: np.ndarray
    answer: np.ndarray
    trials: np.ndarray | None


class Chunks(NamedTuple):
    """Answers in rows of CHUNK: bank item, whether the place is filled, link, and the likelihood's data."""

    item: Array
    filled: Array
    link: Array
    data: Any


class Grid(NamedTuple):
    """Log posterior (link, unit, node), largest value 0, on FINE nodes theta (unit, node).

    Entry 0 is the ability on the bank's scale, entry k the ability as the items of link k see it.
    """

    theta: np.ndarray
    height: np.ndarray


def column(bank: ItemBank, name: str) -> np.ndarray:
    """A column of the bank's items as an array, taken out once."""
    if name not in bank.memo:
        bank.memo[name] = bank.items[name].to_numpy()
    return bank.memo[name]


def device_curves(bank: ItemBank) -> Curves:
    """The bank's draws on the device, each item on the scale of its own link's mean."""
    if "curves" not in bank.memo:
        a, b = np.asarray(bank.a, float), np.asarray(bank.b, float)
        if bank.links is not None:
            own = np.broadcast_to([1.0, 0.0], (1, bank.n_draws, 2))
            r, s = np.concatenate([own, bank.links])[column(bank, "link")].T
            a, b = a * r, (b - s) / r
        with np.errstate(divide="ignore"):
            logit_c = None if bank.c is None else np.log(bank.c) - np.log1p(-bank.c)
        values = {**bank.edges, **({} if bank.phi is None else {"log_phi": np.log(bank.phi)})}
        size = bucket(bank.n_items, 2, least=64)

        def put(draws: np.ndarray) -> Array:
            return jnp.asarray(np.pad(draws.T, ((0, size - bank.n_items), (0, 0)), mode="edge"), jnp.float32)

        parameters = tuple(put(values[name]) for name in LIKELIHOODS[bank.likelihood].parameters)
        bank.memo["curves"] = Curves(put(a), put(b), None if logit_c is None else put(logit_c), parameters)
    return bank.memo["curves"]


def logits(curves: Curves, theta: Array) -> Array:
    """Logit of the mean (n, node, draw): curves (n, draw), theta broadcastable to (n, node, draw)."""
    eta = mean_logit(theta, curves.a[:, None], curves.b[:, None])
    return eta if curves.logit_c is None else with_guessing(eta, curves.logit_c[:, None])


def _likelihood(
    curves: Curves, chunks: Chunks, first: Array, count: Array, theta: Array, name: str, n_links: int
) -> Array:
    """Log likelihood (link, node) of ``count`` chunks from ``first``, less its value at the middle node."""
    log_density = LIKELIHOODS[name].log_density

    def add(i: Array, total: Array) -> Array:
        piece = jax.tree.map(lambda x: jax.lax.dynamic_index_in_dim(x, first + i, keepdims=False), chunks)
        drawn = jax.tree.map(lambda x: x[piece.item], curves)
        data = jax.tree.map(lambda x: x[:, None, None], piece.data)
        eta = logits(drawn, theta[:, None])
        if name not in ("bernoulli", "binomial"):
            eta = jnp.clip(eta, -_FAR_LOGIT, _FAR_LOGIT)
        terms = log_density(data, eta, *(p[:, None] for p in drawn.parameters))
        peak = terms.max(-1, keepdims=True)
        mean = jnp.log(jnp.exp(terms - peak).mean(-1)) + peak[..., 0]
        # differences stay small where sums would use up the digits of float32
        mean = jnp.where(piece.filled[:, None], mean - mean[:, theta.size // 2, None], 0.0)
        if n_links == 1:
            return total + mean.sum(0)
        return total + jax.nn.one_hot(piece.link, n_links, axis=0) @ mean

    return jax.lax.fori_loop(0, count, add, jnp.zeros((n_links, theta.size), jnp.float32))


@partial(jax.jit, static_argnames=("name", "n_links", "n_nodes"))
def _evaluate(
    curves: Curves,
    chunks: Chunks,
    first: Array,
    count: Array,
    centre: Array,
    half: Array,
    name: str,
    n_links: int,
    n_nodes: int,
) -> Array:
    """Log likelihood (unit, link, node) on n_nodes equidistant nodes in centre +- half of every unit."""
    steps = jnp.linspace(-1, 1, n_nodes)

    def one(unit: tuple[Array, ...]) -> Array:
        first, count, centre, half = unit
        return _likelihood(curves, chunks, first, count, centre + half * steps, name, n_links)

    return jax.lax.map(one, (first, count, centre, half))


@partial(jax.jit, static_argnames=("name", "n_links", "n_nodes"))
def _find(
    curves: Curves,
    scouts: Curves,
    chunks: Chunks,
    links: Array | None,
    first: Array,
    count: Array,
    mean: Array,
    sd: Array,
    name: str,
    n_links: int,
    n_nodes: int,
) -> tuple[Array, Array, Array]:
    """Centre and half width of every unit's posterior, and the log likelihood there as from ``_evaluate``.

    A few draws, the scouts, find the place by zooming in and out; errors of links widen it.
    """
    steps, scout_steps = jnp.linspace(-1, 1, n_nodes), jnp.linspace(-1, 1, _SCOUT_NODES)
    on_one_scale = chunks._replace(link=None)

    def one(unit: tuple[Array, Array]) -> tuple[Array, Array, Array]:
        def zoom(state: tuple[Array, ...]) -> tuple[Array, ...]:
            centre, half, _, i = state
            theta = centre + half * scout_steps
            likelihood = _likelihood(scouts, on_one_scale, *unit, theta, name, 1)[0]
            log_posterior = likelihood - 0.5 * ((theta - mean) / sd) ** 2
            inside = log_posterior > log_posterior.max() - _INSIDE
            spacing = half / (_SCOUT_NODES // 2)
            low = jnp.where(inside, theta, jnp.inf).min() - jnp.where(inside[0], half, spacing)
            high = jnp.where(inside, theta, -jnp.inf).max() + jnp.where(inside[-1], half, spacing)
            settled = ~inside[0] & ~inside[-1] & (inside.sum() > _SCOUT_NODES // 5)
            return (low + high) / 2, (high - low) / 2, settled, i + 1

        start = (mean, 8 * sd, jnp.array(False), 0)
        centre, half, _, _ = jax.lax.while_loop(lambda state: ~state[2] & (state[3] < 30), zoom, start)
        if links is not None:
            error = (links[..., 1] + (links[..., 0] - 1) * centre).std(1).max()
            half = jnp.hypot(half, 6 * error)
        return centre, half, _likelihood(curves, chunks, *unit, centre + half * steps, name, n_links)

    return jax.lax.map(one, (first, count))


def posteriors(bank: ItemBank, answers: Answers, n_units: int, prior: tuple[float, float]) -> Grid:
    """Posterior of every unit's ability, on a grid where it lies.

    The grid is checked: the posterior must have vanished at both ends, fill the window, and give the same
    moments on every second node; units that fail are done again on a better grid.

    Parameters
    ----------
    bank : ItemBank
    answers : Answers
    n_units : int
        Units, those without answers too.
    prior : (mean, sd)

    Returns
    -------
    Grid
    """
    chunks, first, count = _chunked(bank, answers, n_units)
    curves, kind = device_curves(bank), {"name": bank.likelihood, "n_links": n_links(bank)}
    mean, sd = (np.float32(v) for v in prior)
    layout = (*_padded(first, count), mean, sd)
    found = _find(curves, _scouts(bank), chunks, bank.links, *layout, n_nodes=_NODES[0], **kind)
    centre, half, values = (np.asarray(x, float)[:n_units] for x in found)
    centre, half = centre.copy(), half.copy()
    grid = Grid(np.empty((n_units, FINE)), np.empty((n_links(bank), n_units, FINE)))
    last = len(_NODES) - 1
    todo, level = np.arange(n_units), np.zeros(n_units, int)
    for _ in range(_ROUNDS):
        theta = centre[todo, None] + half[todo, None] * _STEPS
        height = _log_posterior(bank, theta, values @ to_fine(values.shape[-1]), prior)
        rough = _log_posterior(bank, theta, values[..., ::2] @ to_fine(values.shape[-1] // 2 + 1), prior)
        grid.theta[todo], grid.height[:, todo] = theta, height
        place, moved = _window(theta, height[0])
        coarse = ~moved & _differ(theta, height[0], rough[0])
        centre[todo[moved]], half[todo[moved]] = place[:, moved]
        level[todo[coarse]] += 1
        again = todo[moved | (coarse & (level[todo] <= last))]
        if not again.size:
            break
        n_nodes = _NODES[min(level[again].max(), last)]
        window = (centre[again].astype(np.float32), half[again].astype(np.float32))
        layout = _padded(first[again], count[again], *window)
        out = _evaluate(curves, chunks, *layout, n_nodes=n_nodes, **kind)
        todo, values = again, np.asarray(out, float)[: len(again)]
    return grid


def _scouts(bank: ItemBank) -> Curves:
    """A few draws of every item."""
    if "scouts" not in bank.memo:
        every = np.round(np.linspace(0, bank.n_draws - 1, min(_SCOUTS, bank.n_draws))).astype(int)
        bank.memo["scouts"] = jax.tree.map(lambda x: x[:, every], device_curves(bank))
    return bank.memo["scouts"]


def n_links(bank: ItemBank) -> int:
    """Number of links, the bank's own scale among them."""
    return 1 if bank.links is None else 1 + len(bank.links)


def _window(theta: np.ndarray, height: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Better (centre, half width) of every unit's window, and whether it is needed."""
    half = (theta[:, -1] - theta[:, 0]) / 2
    inside = height > -_INSIDE
    touches = height[:, [0, -1]] > -_EDGE
    margin = np.where(touches, half[:, None], 0.05 * half[:, None])
    rows = np.arange(len(theta))
    low = theta[rows, inside.argmax(1)] - margin[:, 0]
    high = theta[rows, -1 - inside[:, ::-1].argmax(1)] + margin[:, 1]
    return np.stack([low + high, high - low]) / 2, touches.any(1) | (high - low < 0.7 * half)


def _differ(theta: np.ndarray, height: np.ndarray, rough: np.ndarray) -> np.ndarray:
    """Whether densities have other moments when only every second node is used."""
    (mean, sd), (mean_rough, sd_rough) = moments(theta, height), moments(theta, rough)
    return (np.abs(mean - mean_rough) > _TOLERANCE * sd) | (np.abs(sd_rough / sd - 1) > _TOLERANCE)


def bucket(n: int, factor: int, least: int = 1) -> int:
    """The next of least, least * factor, ...: arrays come in few shapes, so that little is compiled."""
    size = least
    while size < n:
        size *= factor
    return size


def _padded(*arrays: np.ndarray) -> tuple[np.ndarray, ...]:
    """Per-unit arrays repeated at their end up to a bucket; a padding unit has no answers."""
    size = bucket(len(arrays[0]), 8)
    out = [np.concatenate([x, np.repeat(x[-1:], size - len(x))]) for x in arrays]
    out[1][len(arrays[0]) :] = 0
    return tuple(out)


def _chunked(bank: ItemBank, answers: Answers, n_units: int) -> tuple[Chunks, np.ndarray, np.ndarray]:
    """Answers in rows of CHUNK places, with the first row of every unit and its number of rows."""
    n_answers = np.bincount(answers.unit, minlength=n_units)
    count = -(-n_answers // CHUNK)
    first = np.concatenate([[0], np.cumsum(count)[:-1]])
    place = np.arange(len(answers.unit)) - np.repeat(np.cumsum(n_answers) - n_answers, n_answers)
    where = first[answers.unit] * CHUNK + place
    rows = bucket(int(count.sum()), 4, least=4)
    source = np.zeros(rows * CHUNK, int)
    filled = np.zeros(rows * CHUNK, bool)
    source[where], filled[where] = np.arange(len(where)), True
    if not len(where):
        answers = Answers(np.zeros(1, int), np.zeros(1, int), np.full(1, 0.5), np.ones(1, int))
    shape = (rows, CHUNK)
    item = answers.item[source]
    trials = None if answers.trials is None else answers.trials[source].reshape(shape)
    data = LIKELIHOODS[bank.likelihood].prepare(answers.answer[source].reshape(shape), trials)
    link = column(bank, "link")[item].reshape(shape)
    chunks = Chunks(item.astype(np.int32).reshape(shape), filled.reshape(shape), link.astype(np.int32), data)
    return chunks, first.astype(np.int32), count.astype(np.int32)


def link_sd(bank: ItemBank, theta: np.ndarray) -> np.ndarray:
    """Standard deviation (link, unit) of what each link's error does to an ability; 0 for the own scale."""
    own = np.zeros((1, len(theta)))
    if bank.links is None:
        return own
    r, s = bank.links[..., :1], bank.links[..., 1:]
    return np.concatenate([own, (s + (r - 1) * theta).std(1)])


def _log_posterior(
    bank: ItemBank, theta: np.ndarray, log_likelihood: np.ndarray, prior: tuple[float, float]
) -> np.ndarray:
    """Log posterior (link, unit, node) from the log likelihood (unit, link, node) that each link's items give.

    A link's items see theta - delta, delta ~ Normal(0, link_sd^2) common to all of them; the likelihood of theta
    is theirs blurred by it.
    """
    ability = -0.5 * ((theta - prior[0]) / prior[1]) ** 2
    seen = [log_likelihood[:, k] for k in range(log_likelihood.shape[1])]
    sd = link_sd(bank, theta[:, FINE // 2]) / (theta[:, 1] - theta[:, 0])
    told = [seen[0], *(blurred(seen[k], sd[k]) for k in range(1, len(seen)))]
    total = ability + sum(told)
    views = [total, *(seen[k] + blurred(total - told[k], sd[k]) for k in range(1, len(seen)))]
    return np.stack([view - view.max(-1, keepdims=True) for view in views])
