"""What a test is to find out: a number of the subject, as a sum of functions of its abilities."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from bayes_irsl import _validate as check
from bayes_irsl.adaptive.facets import Facets
from bayes_irsl.adaptive.tables import Tables
from bayes_irsl.bank import ItemBank
from bayes_irsl.errors import InputError
from bayes_irsl.quadrature import Curves, bucket, device_curves, logits
from bayes_irsl.spec import LIKELIHOODS as KINDS

Array = Any
Floats = npt.NDArray[np.floating]


class Measured(NamedTuple):
    """A target laid out on a bank.

    Attributes
    ----------
    values : (C, G)
        Function of every ability (facets, then general ones) before any answer; the target is their sum.
    item : (J, G) or None
        What each question adds to the values of its facet: taken out again once it is answered.
    member : (J,)
        Weight with which a question's own answer is part of the target; 0 where it is not.
    label : str
    """

    values: Floats
    item: Floats | None
    member: Floats
    label: str


@dataclass(frozen=True)
class Ability:
    """The general ability, on the bank's scale.

    Parameters
    ----------
    dimension : str, optional
        Which, where the bank has several.
    """

    dimension: str | None = None

    def on(self, bank: ItemBank, table: Tables, facet: Facets) -> Measured:
        """Laid out on a bank."""
        which = _one_of(self.dimension, bank.dimensions, "dimension")
        values = np.zeros((len(facet.names) + len(bank.dimensions), len(table.nodes)))
        values[len(facet.names) + which] = table.nodes
        return Measured(values, None, np.zeros(bank.n_items), "ability")


@dataclass(frozen=True)
class Accuracy:
    """Accuracy on a benchmark: the mean over its questions in the bank, answered ones as answered.

    Parameters
    ----------
    benchmark : str, optional
        Which, where the bank has several.
    population : bool
        The long-run mean on new questions of the kind instead.
    """

    benchmark: str | None = None
    population: bool = False

    def on(self, bank: ItemBank, table: Tables, facet: Facets) -> Measured:
        """Laid out on a bank."""
        inside = _members(bank, self.benchmark)
        values = _by_facet(table.mean, inside, facet, len(bank.dimensions))
        label = f"accuracy on {bank.benchmarks[_one_of(self.benchmark, bank.benchmarks, 'benchmark')]}"
        if self.population:
            return Measured(values, None, np.zeros(bank.n_items), f"{label} (new questions)")
        return Measured(values, table.mean, inside, label)


@dataclass(frozen=True)
class Better:
    """Accuracy of this subject less that of another: which of the two is better.

    Parameters
    ----------
    mean, sd : float
        Of the other subject's accuracy: of ``test.result(state)``, or of ``bi.score``.
    benchmark : str, optional
        Which, where the bank has several.
    """

    mean: float
    sd: float
    benchmark: str | None = None

    def __post_init__(self) -> None:
        if not (np.isfinite(self.mean) and np.isfinite(self.sd) and self.sd >= 0):
            raise InputError(f"Better(mean={self.mean!r}, sd={self.sd!r}): expected a number and an sd of at least 0")

    def on(self, bank: ItemBank, table: Tables, facet: Facets) -> Measured:
        """Laid out on a bank: as the accuracy, which alone can change."""
        accuracy = Accuracy(self.benchmark).on(bank, table, facet)
        return accuracy._replace(label=f"{accuracy.label}, less that of the other")


@dataclass(frozen=True)
class PassAtK:
    """pass@k: the mean over a benchmark's questions of the probability that one of k samples is right.

    Parameters
    ----------
    k : int
        Samples.
    benchmark : str, optional
        Which, where the bank has several.
    """

    k: int
    benchmark: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.k, bool) or not isinstance(self.k, int | np.integer) or self.k < 1:
            raise InputError(f"PassAtK(k={self.k!r}): expected a whole number of at least 1")

    def on(self, bank: ItemBank, table: Tables, facet: Facets) -> Measured:
        """Laid out on a bank of counts or of 0/1 answers."""
        if "probability" in KINDS[bank.likelihood]:
            raise InputError(
                f"pass@k is of samples, which are right or wrong; the bank's answers are {bank.likelihood}"
            )
        inside = _members(bank, self.benchmark)
        curves = _passing_curves(bank, table.nodes, int(self.k))
        values = _by_facet(curves, inside, facet, len(bank.dimensions))
        return Measured(values, None, np.zeros(bank.n_items), f"pass@{self.k}")


Target = Ability | Accuracy | Better | PassAtK


def _one_of(name: str | None, known: tuple[str, ...], what: str) -> int:
    """Place of a name among those that the bank has; the only one where none is given."""
    if name is None:
        if len(known) == 1:
            return 0
        raise InputError(f"the bank has {len(known)} {what}s; name one: {check.some(known, 12)}")
    if name not in known:
        raise check.unknown([name], known, what)
    return known.index(name)


def _members(bank: ItemBank, benchmark: str | None) -> Floats:
    """Weight 1 / n of each of the n questions of a benchmark (J,)."""
    which = bank.benchmarks[_one_of(benchmark, bank.benchmarks, "benchmark")]
    inside = np.asarray(bank.items["benchmark"].astype(str)) == which
    return inside / inside.sum()


def _by_facet(curves: Floats, weight: Floats, facet: Facets, n_general: int) -> Floats:
    """Weighted sums of curves (J, G) by facet, then zeros for the general abilities."""
    out = np.zeros((len(facet.names) + n_general, curves.shape[1]))
    for k in range(len(facet.names)):
        rows = facet.of_item == k
        out[k] = weight[rows] @ curves[rows]
    return out


def _passing_curves(bank: ItemBank, nodes: Floats, k: int) -> Floats:
    """pass@k of every question (J, G), averaged over its draws."""
    key = ("pass@k", k, nodes.tobytes())
    if key not in bank.memo:
        size = bucket(bank.n_items, 2, least=64)
        out = _passed(device_curves(bank), jnp.asarray(nodes, jnp.float32), jnp.float32(k), bank.likelihood)
        bank.memo[key] = np.asarray(out).reshape(size, -1)[: bank.n_items]
    return bank.memo[key]


@partial(jax.jit, static_argnames=("name",))
def _passed(curves: Curves, nodes: Array, k: Array, name: str) -> Array:
    def one(drawn: Curves) -> Array:
        eta = logits(drawn, nodes[:, None])
        if name == "beta-binomial":
            phi = jnp.exp(drawn.parameters[0])[:, None]
            wrong = jax.nn.sigmoid(-eta) * phi
            gamma = jax.lax.lgamma
            never = gamma(wrong + k) - gamma(wrong) + gamma(phi) - gamma(phi + k)
            return -jnp.expm1(jnp.minimum(never, 0.0)).mean(-1)
        return -jnp.expm1(-k * jax.nn.softplus(eta)).mean(-1)

    return jax.lax.map(one, jax.tree.map(lambda x: jnp.reshape(x, (-1, 32, x.shape[-1])), curves))
