"""Answers laid out for arithmetic: rows are items, columns the subjects that answered them, padded and masked.

A complete table is a dense block (no index, no mask); a sparse one costs memory in proportion to its answers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bayes_irsl.answers import LIKELIHOODS
from bayes_irsl.errors import InputError
from bayes_irsl.responses import Responses
from bayes_irsl.spec import ItemResponse

Array = Any
STANDARD_SCALE = "calibration subjects have mean 0 and sd 1"


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Anchor:
    """What a bank knows of items: parameters x = mean + common e + tril z, in the order of the model's.

    Attributes
    ----------
    known : bool (J,)
    mean : float32 (J, d)
    common : float32 (J, d, 2), what the bank does not know of its scale, shared by all items through one e (2,).
    tril : float32 (J, d, d), lower triangular.
        Where the bank does not know an item, mean and common are 0 and tril is the identity.
    """

    known: Array
    mean: Array
    common: Array
    tril: Array

    def take(self, items: Array) -> Anchor:
        """Of some items."""
        return Anchor(self.known[items], self.mean[items], self.common[items], self.tril[items])

    def given(self, error: Array) -> Anchor:
        """With the common error e known."""
        return replace(self, mean=self.mean + self.common @ error, common=0 * self.common)

    def conditional(self, k: int, earlier: list[Array]) -> tuple[Array, Array]:
        """Mean and standard deviation (J,) of parameter k given the k earlier ones, each (J,)."""
        z: list[Array] = []
        for i, x in enumerate(earlier):
            z.append((x - self.mean[:, i] - sum(self.tril[:, i, j] * z[j] for j in range(i))) / self.tril[:, i, i])
        return self.mean[:, k] + sum(self.tril[:, k, j] * z[j] for j in range(k)), self.tril[:, k, k]


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["subject", "mask", "trials", "dimension", "benchmark", "logit_centre", "guessing_free", "anchor"],
    meta_fields=["n_subjects", "n_dimensions", "n_benchmarks", "benchmarks_share"],
)
@dataclass(frozen=True)
class Cells:
    """Who answered what, J items by M places.

    Attributes
    ----------
    subject : int32 (J, M), the subject in each place; None where column m is subject m (dense block).
    mask : bool (J, M), False in padding; None where every place holds an answer.
    trials : float32 (J, M), 1 unless answers are counts.
    dimension, benchmark : int32 (J,), ability that the item draws on, benchmark that it belongs to.
    logit_centre, guessing_free : float32 (J,), logit of the chance level (or prior centre), and 1 where c is learned.
    anchor : Anchor or None, items that are known from a bank; then the scale is the bank's, and nothing sums to zero.
    benchmarks_share : whether some ability is drawn on by several benchmarks. Otherwise a benchmark's average
        discrimination and its ability's sd would say the same thing twice.
    """

    subject: Array | None
    mask: Array | None
    trials: Array
    dimension: Array
    benchmark: Array
    logit_centre: Array
    guessing_free: Array
    anchor: Anchor | None
    n_subjects: int
    n_dimensions: int
    n_benchmarks: int
    benchmarks_share: bool

    def take(self, theta: Array) -> Array:
        """Abilities in the cells: theta (S,) or (S, D) -> (J, M), or (1, M) where all items share them."""
        if self.subject is None:
            return theta[None, :] if theta.ndim == 1 else theta.T[self.dimension]
        return theta[self.subject] if theta.ndim == 1 else theta[self.subject, self.dimension[:, None]]


@dataclass(frozen=True)
class Problem:
    """Answers and spec made ready for fitting: empty subjects and items set aside, labels replaced by numbers.

    ``kept_subjects`` and ``kept_items`` index into the responses; arrays below are in that reduced order. ``scale``
    says what the abilities' scale is, ``scale_id`` names the bank's where the fit is anchored.
    """

    spec: ItemResponse
    responses: Responses
    kept_subjects: np.ndarray
    kept_items: np.ndarray
    order: np.ndarray
    starts: np.ndarray
    subject: np.ndarray
    dimension: np.ndarray
    dimensions: tuple[str, ...]
    benchmark: np.ndarray
    benchmarks: tuple[str, ...]
    logit_centre: np.ndarray
    guessing_free: np.ndarray
    anchor: Anchor | None = None
    scale: str = STANDARD_SCALE
    scale_id: str = ""

    @property
    def n_subjects(self) -> int:
        return len(self.kept_subjects)

    @property
    def n_items(self) -> int:
        return len(self.kept_items)

    @property
    def benchmarks_share(self) -> bool:
        """Whether some ability is drawn on by items of several benchmarks."""
        pairs = set(zip(self.dimension.tolist(), self.benchmark.tolist(), strict=True))
        return len(pairs) > len({dimension for dimension, _ in pairs})

    @property
    def counts(self) -> np.ndarray:
        """Answers per kept item."""
        return np.diff(self.starts)

    def guessing_of_all(self) -> tuple[np.ndarray, np.ndarray]:
        """Prior centre of logit(c) and whether c is learned, for every item of the responses."""
        return _guessing(self.spec, self.responses.items)

    def width(self, most: int) -> int:
        """Places for items with at most ``most`` answers: a place per subject where that wastes less than half."""
        return self.n_subjects if 2 * most > self.n_subjects else most

    def cells(self, items: np.ndarray | None = None, width: int | None = None) -> tuple[Cells, Any]:
        """Cells and prepared data of some kept items (all by default), padded to ``width`` places."""
        items = np.arange(self.n_items) if items is None else items
        counts = self.counts[items]
        width = width or self.width(int(counts.max()))
        dense = width == self.n_subjects
        place = np.arange(width)
        mask = place < counts[:, None]
        position = np.minimum(self.starts[items][:, None] + place, len(self.order) - 1)
        source = np.where(mask, self.order[position], self.order[self.starts[items]][:, None])
        if dense:
            rows = np.nonzero(mask)[0]
            columns = self.subject[source[mask]]
            at_subject = np.repeat(self.order[self.starts[items]][:, None], width, 1)
            at_subject[rows, columns] = source[mask]
            source, mask = at_subject, np.zeros_like(mask)
            mask[rows, columns] = True
        answer = self.responses.answer[source]
        trials = None if self.responses.trials is None else self.responses.trials[source]
        if self.spec.squeeze is not None and self.spec.likelihood == "beta":
            answer = (answer * (self.spec.squeeze - 1) + 0.5) / self.spec.squeeze
        cells = Cells(
            subject=None if dense else jnp.asarray(self.subject[source]),
            mask=None if mask.all() else jnp.asarray(mask),
            trials=jnp.ones((1, 1), jnp.float32) if trials is None else jnp.asarray(trials, jnp.float32),
            dimension=jnp.asarray(self.dimension[items]),
            benchmark=jnp.asarray(self.benchmark[items]),
            logit_centre=jnp.asarray(self.logit_centre[items], jnp.float32),
            guessing_free=jnp.asarray(self.guessing_free[items], jnp.float32),
            anchor=None if self.anchor is None else jax.tree.map(jnp.asarray, self.anchor.take(items)),
            n_subjects=self.n_subjects,
            n_dimensions=len(self.dimensions),
            n_benchmarks=len(self.benchmarks),
            benchmarks_share=self.benchmarks_share,
        )
        data = LIKELIHOODS[self.spec.likelihood].prepare(answer, trials)
        return cells, jax.tree.map(jnp.asarray, data)


def problem(spec: ItemResponse, responses: Responses) -> Problem:
    """Check that the answers can carry the model, and lay them out; raises InputError where they cannot."""
    spec = spec.resolve(responses)
    by_subject = np.bincount(responses.subject_index, minlength=responses.n_subjects)
    by_item = np.bincount(responses.item_index, minlength=responses.n_items)
    kept_subjects, kept_items = np.flatnonzero(by_subject), np.flatnonzero(by_item)
    for name, kept, other in (
        ("subject", kept_subjects, "score it with an ItemBank"),
        ("item", kept_items, "add items"),
    ):
        if len(kept) < 2:
            raise InputError(f"{len(kept)} {name} with answers: at least 2 are needed to set a scale; {other} instead")
    order, _ = responses.by_item()
    new_subject = np.cumsum(by_subject > 0) - 1
    items = responses.items.iloc[kept_items]
    benchmark, benchmarks = _codes(items["benchmark"])
    dimension, dimensions = (
        (np.zeros(len(items), np.int32), ("ability",)) if spec.abilities == "one" else _codes(items[spec.abilities])
    )
    centre, free = _guessing(spec, items)
    return Problem(
        spec=spec,
        responses=responses,
        kept_subjects=kept_subjects,
        kept_items=kept_items,
        order=np.asarray(order),
        starts=np.concatenate([[0], np.cumsum(by_item[kept_items])]),
        subject=new_subject[responses.subject_index].astype(np.int32),
        dimension=dimension,
        dimensions=dimensions,
        benchmark=benchmark,
        benchmarks=benchmarks,
        logit_centre=centre,
        guessing_free=free,
    )


def _codes(column: Any) -> tuple[np.ndarray, tuple[str, ...]]:
    labels = np.asarray(column, dtype=str)
    names = list(dict.fromkeys(labels.tolist()))
    lookup = {name: i for i, name in enumerate(names)}
    return np.array([lookup[label] for label in labels.tolist()], np.int32), tuple(names)


def _guessing(spec: ItemResponse, items: Any) -> tuple[np.ndarray, np.ndarray]:
    """Prior centre of logit(c) per item, and whether c is learned."""
    chance = np.asarray(items["chance"], float) if "chance" in items.columns else np.full(len(items), np.nan)
    known = np.isfinite(chance) & (chance > 0)
    centre = np.full(len(items), spec.priors.logit_guessing)
    centre[known] = np.log(chance[known]) - np.log1p(-chance[known])
    fixed = known if spec.guessing == "fixed" else np.zeros(len(items), bool)
    return centre, (~fixed).astype(float)
