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
        numbers = {"sd_mean_log_a", "logit_guessing", "sd_logit_guessing", "lkj"}
        positive = {"sd_intercept", "sd_log_a", "sd_theta", "sd_log_phi", "cut"}
        for f in fields(self):
            value = getattr(self, f.name)
            if isinstance(value, Prior) and f.name not in numbers:
                if f.name in positive and not value.positive:
                    raise InputError(
                        f"prior {f.name} = {value} must live on positive values: use HalfNormal or LogNormal"
                    )
                continue
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
                kind = "a number" if f.name in numbers else "a Prior or a number"
                raise InputError(f"prior {f.name} = {value!r}: expected {kind}")
            if (f.name in positive or f.name in ("sd_mean_log_a", "sd_logit_guessing", "lkj")) and value <= 0:
                raise InputError(f"prior {f.name} = {value!r}: expected a positive number")

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> ItemPriors:
        """Inverse of :meth:`to_dict`."""
        read: dict[str, Any] = {
            name: Prior(value["family"], tuple(value["parameters"])) if isinstance(value, dict) else value
            for name, value in values.items()
        }
        return cls(**read)
