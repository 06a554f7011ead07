"""Specifications: frozen statements of what is fitted."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from bayes_irsl.errors import InputError
from bayes_irsl.priors import ItemPriors
from bayes_irsl.responses import Responses

LIKELIHOODS = {
    "bernoulli": ("binary",),
    "binomial": ("binary", "count"),
    "beta-binomial": ("count",),
    "beta": ("probability",),
    "ordered-beta": ("probability",),
    "zero-one-beta": ("probability",),
}
CURVES = ("1pl", "2pl", "3pl")


@dataclass(frozen=True)
class ItemResponse:
    """An item response model: logit of the mean = a (theta - b), with an optional guessing floor c.

    mean = c + (1 - c) sigmoid(a (theta - b)); a > 0 always.

    Parameters
    ----------
    likelihood
        "bernoulli" (0/1), "binomial", "beta-binomial" (counts; overdispersion learned), "beta" (probabilities;
        precision learned), "ordered-beta", "zero-one-beta" (probabilities with exact 0 or 1), or "auto": Bernoulli for
        0/1, beta-binomial for counts, Beta for probabilities, ordered beta where they contain exact 0 or 1.
    curve
        "1pl" (one discrimination for all items), "2pl", "3pl" (2pl and a guessing floor).
    guessing
        Used by "3pl". "learned": every item's c has a prior centred on its chance level where that is known.
        "fixed": items with a known chance level keep exactly that, the others learn theirs.
    precision
        "global" or "item": one phi for all items, or one an item around a common value.
    squeeze
        Only for "beta" with exact 0 or 1 among the answers: y becomes (y (n - 1) + 0.5) / n with this n. None refuses.
    abilities
        "one", or the name of an item column ("benchmark", "category", ...): one ability per value, correlated.
    dependence
        How those abilities hang together: "correlated" (LKJ prior) or "testlet" (a common ability and an independent
        deviation per value, of one learned size).
    priors
        :class:`ItemPriors`.
    """

    likelihood: str = "auto"
    curve: str = "2pl"
    guessing: str = "learned"
    precision: str = "global"
    squeeze: int | None = None
    abilities: str = "one"
    dependence: str = "correlated"
    priors: ItemPriors = field(default_factory=ItemPriors)

    def __post_init__(self) -> None:
        _one_of("likelihood", self.likelihood, ("auto", *LIKELIHOODS))
        _one_of("curve", self.curve, CURVES)
        _one_of("guessing", self.guessing, ("learned", "fixed"))
        _one_of("precision", self.precision, ("global", "item"))
        _one_of("dependence", self.dependence, ("correlated", "testlet"))
        if self.squeeze is not None and (not isinstance(self.squeeze, int) or self.squeeze < 2):
            raise InputError(
                f"squeeze = {self.squeeze!r}: expected the n of (y (n - 1) + 0.5) / n, a whole number >= 2"
            )
        if not isinstance(self.priors, ItemPriors):
            raise InputError(f"priors = {self.priors!r}: expected an ItemPriors")

    def resolve(self, responses: Responses) -> ItemResponse:
        """The spec with "auto" replaced, checked against the answers; raises InputError where they do not fit."""
        edge = responses.kind == "probability" and bool(np.any((responses.answer == 0) | (responses.answer == 1)))
        likelihood = self.likelihood
        if likelihood == "auto":
            probability = "beta" if not edge or self.squeeze else "ordered-beta"
            likelihood = {"binary": "bernoulli", "count": "beta-binomial", "probability": probability}[responses.kind]
        if responses.kind not in LIKELIHOODS[likelihood]:
            fitting = [name for name, kinds in LIKELIHOODS.items() if responses.kind in kinds]
            raise InputError(
                f"likelihood {likelihood!r} does not describe {responses.kind} answers; choose one of {fitting}"
            )
        if likelihood == "beta" and edge and self.squeeze is None:
            n = int(np.sum((responses.answer == 0) | (responses.answer == 1)))
            raise InputError(
                f"{n} of {responses.n_obs} answers are exactly 0 or 1, where a Beta density has no value: use "
                'likelihood="ordered-beta" (or "zero-one-beta"), pass squeeze=n, or give the counts and trials'
            )
        if self.abilities != "one" and self.abilities not in responses.items.columns:
            raise InputError(
                f"abilities={self.abilities!r}: no such item column; there are {list(responses.items.columns)}"
            )
        return replace(self, likelihood=likelihood)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            **{k: getattr(self, k) for k in self.__dataclass_fields__ if k != "priors"},
            "priors": self.priors.to_dict(),
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> ItemResponse:
        """Inverse of :meth:`to_dict`."""
        return cls(**{**values, "priors": ItemPriors.from_dict(values["priors"])})


def _one_of(name: str, value: Any, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise InputError(f"{name} = {value!r}: expected one of {list(choices)}")
