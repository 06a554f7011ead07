"""Priors as plain, frozen, printable values: they travel in a spec, in a saved file and in a report."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import jax.numpy as jnp

# ArviZ leaves a lazy numpyro behind; `import numpyro.distributions` would then load that package twice and break it.
from numpyro import distributions as dist

from bayes_irsl.errors import InputError

_FAMILIES = {
    "Normal": (dist.Normal, False),
    "HalfNormal": (dist.HalfNormal, True),
    "LogNormal": (dist.LogNormal, True),
}


@dataclass(frozen=True)
class Prior:
    """A one-dimensional prior: family and parameters, e.g. ``Prior("HalfNormal", (2.0,))``."""

    family: str
    parameters: tuple[float, ...]

    def __post_init__(self) -> None:
        if self.family not in _FAMILIES:
            raise InputError(f"prior family {self.family!r} is unknown; choose one of {sorted(_FAMILIES)}")
        object.__setattr__(self, "parameters", tuple(float(p) for p in self.parameters))
        if not all(math.isfinite(p) for p in self.parameters) or self.parameters[-1] <= 0:
            raise InputError(f"prior {self} needs finite parameters and a positive scale (the last one)")

    @property
    def positive(self) -> bool:
        """Whether the support is the positive half-line."""
        return _FAMILIES[self.family][1]

    def distribution(self) -> dist.Distribution:
        """The prior as a NumPyro distribution."""
        return _FAMILIES[self.family][0](*self.parameters)

    def log_density_free(self, free: jnp.ndarray) -> jnp.ndarray:
        """Log density of the unconstrained value (log of it where the support is positive), Jacobian included."""
        if self.positive:
            return self.distribution().log_prob(jnp.exp(free)) + free
        return self.distribution().log_prob(free)

    @property
    def centre(self) -> float:
        """A central value on the unconstrained scale, where optimisers start."""
        if self.family == "HalfNormal":
            return math.log(0.67 * self.parameters[0])
        return self.parameters[0]

    def __str__(self) -> str:
        return f"{self.family}({', '.join(f'{p:g}' for p in self.parameters)})"


def Normal(loc: float, scale: float) -> Prior:
    """Normal prior with mean ``loc`` and standard deviation ``scale``."""
    return Prior("Normal", (loc, scale))


def HalfNormal(scale: float) -> Prior:
    """Half-normal prior of a standard deviation."""
    return Prior("HalfNormal", (scale,))


def LogNormal(loc: float, scale: float) -> Prior:
    """Log-normal prior: ``log x ~ Normal(loc, scale)``."""
    return Prior("LogNormal", (loc, scale))


@dataclass(frozen=True)
class ItemPriors:
    """Priors of an item response model; a number in the place of a prior fixes that hyperparameter.

    The scale while fitting has abilities with mean 0 and log discriminations with mean 0; ``sd_theta`` is the
    spread of abilities there. Intercepts are logits: the intercept is the log odds of a right answer by an average
    subject, so its priors are statements about pass rates.

    Attributes
    ----------
    mean_intercept, sd_intercept : per benchmark, mean and spread of the item intercepts (logits).
    sd_log_a : spread of the log discriminations around their benchmark's mean.
    sd_mean_log_a : standard deviation of the benchmarks' mean log discriminations around their common mean (a number).
    sd_theta : spread of the abilities of the calibration subjects.
    logit_guessing, sd_logit_guessing : centre (where no chance level is known) and spread of logit(c); numbers.
    log_phi : log precision of Beta answers, log concentration of beta-binomial ones, over all items.
    sd_log_phi : spread of the items' log precisions around it (``precision="item"``).
    cut, logit_boundary, logit_one : cutpoints of the ordered beta (distance from 0 on the logit scale), and the two
        inflation probabilities of the zero-one-inflated beta.
    lkj : concentration of the LKJ prior of the correlations between abilities (a number; 1 is uniform).
    """

    mean_intercept: Prior | float = field(default_factory=lambda: Normal(0.0, 2.0))
    sd_intercept: Prior | float = field(default_factory=lambda: HalfNormal(2.0))
    sd_log_a: Prior | float = field(default_factory=lambda: HalfNormal(0.5))
    sd_mean_log_a: float = 0.5
    sd_theta: Prior | float = field(default_factory=lambda: LogNormal(0.0, 1.0))
    logit_guessing: float = -2.0
    sd_logit_guessing: float = 0.7
    log_phi: Prior | float = field(default_factory=lambda: Normal(3.0, 1.5))
    sd_log_phi: Prior | float = field(default_factory=lambda: HalfNormal(0.5))
    cut: Prior | float = field(default_factory=lambda: LogNormal(1.0, 0.7))
    logit_boundary: Prior | float = field(default_factory=lambda: Normal(-2.0, 1.5))
    logit_one: Prior | float = field(default_factory=lambda: Normal(0.0, 1.5))
    lkj: float = 2.0

    def __post_init__(self) -> None:
        _check_fields(
            self,
            numbers={"sd_mean_log_a", "logit_guessing", "sd_logit_guessing", "lkj"},
            positive={"sd_intercept", "sd_log_a", "sd_theta", "sd_log_phi", "cut"},
            positive_numbers={
                "sd_mean_log_a",
                "sd_logit_guessing",
                "lkj",
                "sd_intercept",
                "sd_log_a",
                "sd_theta",
                "sd_log_phi",
                "cut",
            },
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> ItemPriors:
        """Inverse of :meth:`to_dict`."""
        return cls(**_read_fields(values))


@dataclass(frozen=True)
class TrajectoryPriors:
    """Priors of abilities over compute; a number in the place of a prior fixes that quantity.

    Levels and slopes are on the scale of the abilities (logits of accuracy for scores of whole benchmarks). All
    deviations are in units of the slope: an ``sd_run`` of 0.15 is what 0.15 decades of compute are worth.

    Attributes
    ----------
    level : ability at the reference compute, per dimension.
    slope : ability gained per decade at the reference, per dimension. Positive.
    pull : share in it of each of parameters and tokens, around 1.
    effect : of other covariates, in decades of compute per standard deviation of the covariate.
    direction : what multiplies the gain per decade where it may be negative (``slopes="any"``).
    bend : rate (per decade) at which the gain falls; 0 is a straight line in log compute.
    sd_drift, length_drift : random walk over the first coordinate (per square root of a decade), and over how many
        decades of the other one it is the same.
    sd_curve, length_curve : smooth curve over tokens that all runs share.
    sd_product : interaction of parameters and tokens.
    sd_group_level, sd_group_slope : families or recipes around the common level and (as a share) slope.
    fan_group : rate (per decade) at which the level's spread grows: positive where groups fan out from a common start.
    sd_group_walk : a group's random walk along compute (per square root of a decade): groups may change places.
    sd_run, sd_residual, length_residual : a run's own level, and deviations that fade along it (decades).
    sd_own : scatter of every subject by itself.
    df : degrees of freedom of that scatter (a number), where it is a Student's (``scatter="student"``).
    lkj : concentration of the LKJ prior of the correlations between dimensions (a number; 1 is uniform).
    """

    level: Prior | float = field(default_factory=lambda: Normal(0.0, 3.0))
    slope: Prior | float = field(default_factory=lambda: LogNormal(math.log(0.6), 1.0))
    pull: Prior | float = field(default_factory=lambda: LogNormal(0.0, 0.5))
    effect: Prior | float = field(default_factory=lambda: Normal(0.0, 0.5))
    direction: Prior | float = field(default_factory=lambda: Normal(0.5, 1.0))
    bend: Prior | float = field(default_factory=lambda: LogNormal(math.log(0.25), 1.0))
    sd_drift: Prior | float = field(default_factory=lambda: LogNormal(math.log(0.3), 1.0))
    length_drift: Prior | float = field(default_factory=lambda: LogNormal(0.0, 0.5))
    sd_curve: Prior | float = field(default_factory=lambda: LogNormal(math.log(0.3), 1.0))
    length_curve: Prior | float = field(default_factory=lambda: LogNormal(0.0, 0.5))
    sd_product: Prior | float = field(default_factory=lambda: LogNormal(math.log(0.1), 1.0))
    sd_group_level: Prior | float = field(default_factory=lambda: LogNormal(math.log(0.3), 1.0))
    sd_group_slope: Prior | float = field(default_factory=lambda: LogNormal(math.log(0.25), 0.7))
    fan_group: Prior | float = field(default_factory=lambda: Normal(0.0, 0.5))
    sd_group_walk: Prior | float = field(default_factory=lambda: LogNormal(math.log(0.15), 1.0))
    sd_run: Prior | float = field(default_factory=lambda: LogNormal(math.log(0.15), 1.0))
    sd_residual: Prior | float = field(default_factory=lambda: LogNormal(math.log(0.15), 1.0))
    length_residual: Prior | float = field(default_factory=lambda: LogNormal(math.log(0.3), 0.7))
    sd_own: Prior | float = field(default_factory=lambda: LogNormal(math.log(0.07), 1.0))
    df: float = 3.0
    lkj: float = 2.0

    def __post_init__(self) -> None:
        _check_fields(
            self,
            numbers={"df", "lkj"},
            positive={f.name for f in fields(self)} - {"level", "effect", "direction", "fan_group", "df", "lkj"},
            positive_numbers={"slope", "pull", "length_drift", "length_curve", "length_residual", "df", "lkj"},
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> TrajectoryPriors:
        """Inverse of :meth:`to_dict`."""
        return cls(**_read_fields(values))


@dataclass(frozen=True)
class SamplingPriors:
    """Priors of success rates under repeated sampling; a number in the place of a prior fixes that quantity.

    Attributes
    ----------
    mean_location, sd_location : over subjects, logit of the mean rate (of the median rate for logit tails).
    mean_shape : log exponent of a Beta tail at the mean location, or log sd of a logit tail.
    tie : how the shape moves with the location, per logit: rare successes come with heavy tails.
    sd_shape : spread of shapes around that.
    mean_never, sd_never : logit of the share of items that a subject never solves, over subjects (``never=True``).
    """

    mean_location: Prior | float = field(default_factory=lambda: Normal(-2.0, 2.0))
    sd_location: Prior | float = field(default_factory=lambda: LogNormal(math.log(0.7), 1.0))
    mean_shape: Prior | float = field(default_factory=lambda: Normal(-0.7, 1.0))
    tie: Prior | float = field(default_factory=lambda: Normal(0.2, 0.3))
    sd_shape: Prior | float = field(default_factory=lambda: LogNormal(math.log(0.2), 1.0))
    mean_never: Prior | float = field(default_factory=lambda: Normal(-2.0, 1.5))
    sd_never: Prior | float = field(default_factory=lambda: LogNormal(math.log(0.5), 0.7))

    def __post_init__(self) -> None:
        sds = {"sd_location", "sd_shape", "sd_never"}
        _check_fields(self, numbers=set(), positive=sds, positive_numbers=sds)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> SamplingPriors:
        """Inverse of :meth:`to_dict`."""
        return cls(**_read_fields(values))


def _check_fields(priors: Any, numbers: set[str], positive: set[str], positive_numbers: set[str]) -> None:
    """Raise InputError for a field that is no prior where one belongs, or not positive where it must be.

    A number in the place of a positive prior may be zero unless it is among ``positive_numbers``.
    """
    for f in fields(priors):
        value = getattr(priors, f.name)
        if isinstance(value, Prior) and f.name not in numbers:
            if f.name in positive and not value.positive:
                raise InputError(f"prior {f.name} = {value} must live on positive values: use HalfNormal or LogNormal")
            continue
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            kind = "a number" if f.name in numbers else "a Prior or a number"
            raise InputError(f"prior {f.name} = {value!r}: expected {kind}")
        if f.name in positive_numbers and value <= 0:
            raise InputError(f"prior {f.name} = {value!r}: expected a positive number")
        if f.name in positive and value < 0:
            raise InputError(f"prior {f.name} = {value!r}: expected a number >= 0")


def _read_fields(values: dict[str, Any]) -> dict[str, Any]:
    return {
        name: Prior(value["family"], tuple(value["parameters"])) if isinstance(value, dict) else value
        for name, value in values.items()
    }
