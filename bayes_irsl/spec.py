"""Specifications: frozen statements of what is fitted."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from bayes_irsl.errors import InputError
from bayes_irsl.priors import ItemPriors, Normal, SamplingPriors, TrajectoryPriors
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
TAIL_NAMES = ("beta", "logit-normal", "logit-logistic", "logit-student")


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


@dataclass(frozen=True)
class RepeatedSampling:
    """Counts of successes among repeated samples: every subject solves items at rates with a tail of its own.

    successes ~ Binomial(trials, p), p over the items of a benchmark from the subject's tail; tails of subjects are
    partially pooled, benchmark by benchmark. Trials may differ from cell to cell, also where more samples were taken
    because few had succeeded: what was decided by the counts alone adds nothing to the likelihood.

    Parameters
    ----------
    tail
        "beta" (1 - pass@k falls as a power of k), "logit-normal", "logit-logistic" or "logit-student"
        (:mod:`bayes_irsl.tails`).
    never
        Whether a share of the items, each subject's own, is never solved, however many samples are taken.
    priors
        :class:`SamplingPriors`; by default those that suit the tail.
    """

    tail: str = "beta"
    never: bool = False
    priors: SamplingPriors | None = None

    def __post_init__(self) -> None:
        _one_of("tail", self.tail, TAIL_NAMES)
        _one_of("never", self.never, (True, False))
        if self.priors is None:
            # Of logit tails the shape is a log sd, which there is no reason to tie to the location.
            logit = {"mean_shape": Normal(0.5, 0.7), "tie": Normal(0.0, 0.2)}
            object.__setattr__(self, "priors", SamplingPriors(**({} if self.tail == "beta" else logit)))
        if not isinstance(self.priors, SamplingPriors):
            raise InputError(f"priors = {self.priors!r}: expected a SamplingPriors")

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        assert self.priors is not None
        return {"tail": self.tail, "never": self.never, "priors": self.priors.to_dict()}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> RepeatedSampling:
        """Inverse of :meth:`to_dict`."""
        return cls(**{**values, "priors": SamplingPriors.from_dict(values["priors"])})


@dataclass(frozen=True)
class AbilityTrajectory:
    """Abilities that grow with compute: a bending trend in log10 compute and correlated deviations from it.

    ability = level + slope (pull of bent coordinates + product + common curve + drift + group + run + residual); see
    :mod:`bayes_irsl.kernels`. The forecasts of :func:`bayes_irsl.forecast` follow from it.

    Parameters
    ----------
    items
        The item response model of the answers, or a :class:`RepeatedSampling` of counts, whose location and shape are
        then what grows with compute (:func:`bayes_irsl.pass_at_k` forecasts from it). Not used where every benchmark
        is a single item, that is for scores of whole benchmarks: the ability is then the logit of the accuracy, and
        scores scatter around it as counts of their trials do (or by ``sd_own`` alone where no trials are known).
    pool
        Subject column that names groups (family, recipe) with levels and slopes of their own, partially pooled.
    run
        Subject column that names training runs; residuals of one run's checkpoints are correlated. None, or a column
        that is not there: every subject is a run.
    extra
        Other numeric or date subject columns that the trend is linear in, such as ("date",): their effects are in
        decades of compute. Dates count in years.
    losses
        Subject columns with losses, modelled beside the abilities as minus log loss, with their correlation: what a
        run's loss says of its benchmarks is learned. Subjects may lack them. For the staged methods.
    covariates
        "auto": parameters and tokens where all subjects with compute have them and both vary, otherwise compute.
        "compute", or ("params", "tokens"), to choose.
    chance
        Of scores of whole benchmarks. "ignore": the ability is the logit of the raw accuracy. "floor": of the accuracy
        above the items' chance level. Near chance the second stretches noise into large differences of ability, and
        on the sets of ``make bench NAME=forecast_forward`` it forecasts worse; far above chance they agree.
    residual
        "run": a level of every run and deviations that fade along it. "iid": every checkpoint by itself.
    slopes
        "positive": more compute is better. "any": abilities may fall with compute (inverse scaling).
    scatter
        Of subjects by themselves: "normal", or "student", which single undertuned or broken runs pull less (by NUTS,
        for up to some 190 abilities). Either way the trend tracks the average subject, not the best one.
    questions
        What the abilities of groups are: on the "given" questions, or on the "population" that they are a sample of.
        The second needs answers to questions and ``pool``, and allows for questions that a group favours at every size
        (:mod:`bayes_irsl.question_error`): for a choice between groups that is to hold on other questions.
    priors
        :class:`TrajectoryPriors`; ``TrajectoryPriors(bend=0.0)`` is a straight line in log compute.
    """

    items: ItemResponse | RepeatedSampling = field(default_factory=ItemResponse)
    pool: str | None = None
    run: str | None = "run"
    covariates: str | tuple[str, ...] = "auto"
    extra: tuple[str, ...] = ()
    losses: tuple[str, ...] = ()
    chance: str = "ignore"
    residual: str = "run"
    slopes: str = "positive"
    scatter: str = "normal"
    questions: str = "given"
    priors: TrajectoryPriors = field(default_factory=TrajectoryPriors)

    def __post_init__(self) -> None:
        if not isinstance(self.items, ItemResponse | RepeatedSampling):
            raise InputError(f"items = {self.items!r}: expected an ItemResponse, or a RepeatedSampling for pass@k")
        if not isinstance(self.priors, TrajectoryPriors):
            raise InputError(f"priors = {self.priors!r}: expected a TrajectoryPriors")
        for name in ("covariates", "extra", "losses"):
            if isinstance(getattr(self, name), list):
                object.__setattr__(self, name, tuple(getattr(self, name)))
        for name in ("extra", "losses"):
            value = getattr(self, name)
            if not isinstance(value, tuple) or not all(isinstance(v, str) for v in value):
                raise InputError(f'{name} = {value!r}: expected names of subject columns, such as ("date",)')
        _one_of("covariates", self.covariates, ("auto", "compute", ("params", "tokens")))
        _one_of("chance", self.chance, ("ignore", "floor"))
        _one_of("residual", self.residual, ("run", "iid"))
        _one_of("slopes", self.slopes, ("positive", "any"))
        _one_of("scatter", self.scatter, ("normal", "student"))
        _one_of("questions", self.questions, ("given", "population"))
        if self.questions == "population" and self.pool is None:
            raise InputError('questions="population" is about groups of subjects: name their column with pool=')
        for name in ("pool", "run"):
            if getattr(self, name) is not None and not isinstance(getattr(self, name), str):
                raise InputError(f"{name} = {getattr(self, name)!r}: expected the name of a subject column, or None")

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            **{k: getattr(self, k) for k in self.__dataclass_fields__ if k not in ("items", "priors")},
            "items": {"kind": type(self.items).__name__, **self.items.to_dict()},
            "priors": self.priors.to_dict(),
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> AbilityTrajectory:
        """Inverse of :meth:`to_dict`."""
        items = dict(values["items"])
        kinds: dict[str, Any] = {"ItemResponse": ItemResponse, "RepeatedSampling": RepeatedSampling}
        kind = kinds[items.pop("kind", "ItemResponse")]
        return cls(
            **{
                **values,
                "items": kind.from_dict(items),
                "priors": TrajectoryPriors.from_dict(values["priors"]),
            }
        )


def _one_of(name: str, value: Any, choices: tuple[Any, ...]) -> None:
    if value not in choices:
        raise InputError(f"{name} = {value!r}: expected one of {list(choices)}")
