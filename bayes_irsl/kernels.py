"""How abilities of different subjects hang together over compute: mean and covariance functions, pure arithmetic.

An ability is a function of one or two coordinates (compute, or parameters and tokens; log10, relative to a stated
reference), plus what belongs to its group and its training run:

    theta = level + s (pull of the bent coordinates + effect of other covariates + product + common curve + drift
                       + group + run + residual)

with s the ability gained per decade. Everything but the level is in units of s, so that one set of priors serves
benchmarks that move fast and ones that move slowly. Where abilities may fall with compute, what pulls is multiplied by
a direction of either sign, and s is the scale of the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

Array = Any

# Added to every variance (in units of s^2), so that a covariance of many near subjects can be factored in float32.
JITTER = 1e-5
# Groups fan out or in by at most the exponential of this.
MOST_FAN = 12.0


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["coordinates", "group", "run", "dimension", "compute_sd", "extra"],
    meta_fields=["n_dimensions", "grouped", "along_run", "signed", "scattered"],
)
@dataclass(frozen=True)
class Points:
    """Places at which abilities are wanted, one row an ability (a subject on one dimension).

    Attributes
    ----------
    coordinates : float (P, C), decades from the reference: C = 1 (compute) or 2 (parameters, tokens).
    group, run, dimension : int32 (P,). Different numbers are independent groups and runs; a new one is a number that
        no other point has.
    compute_sd : float (P,), standard deviation of the coordinates, decades.
    n_dimensions : number of dimensions (benchmarks that have abilities of their own).
    grouped : whether groups have levels and slopes of their own.
    along_run : whether residuals are correlated along a run.
    extra : float (P, E), other covariates in units of their sd, or None.
    signed : whether every dimension has a direction.
    scattered : number of subjects whose own scatter has a size of its own, 0 for one size of all.
    """

    coordinates: Array
    group: Array
    run: Array
    dimension: Array
    compute_sd: Array
    n_dimensions: int
    grouped: bool
    along_run: bool
    extra: Array | None = None
    signed: bool = False
    scattered: int = 0

    @property
    def size(self) -> int:
        return self.coordinates.shape[0]

    @property
    def n_coordinates(self) -> int:
        return self.coordinates.shape[1]

    @property
    def n_extra(self) -> int:
        return 0 if self.extra is None else self.extra.shape[1]

    @property
    def position(self) -> Array:
        """Where along its run a point lies: its last coordinate (tokens, or compute), (P,)."""
        return self.coordinates[:, -1]


def bend(x: Array, rate: Array) -> Array:
    """Coordinate that saturates: (1 - exp(-rate x)) / rate, the identity at rate 0.

    Slope 1 at the reference, falling by exp(-rate) with every decade: the power law approach to a limit,
    A (1 - C^(-rate / ln 10)), whose exponent scaling laws fit.
    """
    small = jnp.abs(rate) < 1e-4
    safe = jnp.where(small, 1.0, rate)
    return jnp.where(small, x - rate * x**2 / 2, -jnp.expm1(-safe * x) / safe)


def squared_exponential(x: Array, y: Array, length: Array) -> Array:
    """exp(-(x - y)^2 / (2 length^2)), (P, Q): smooth curves."""
    return jnp.exp(-0.5 * ((x[:, None] - y[None, :]) / length) ** 2)


def brownian(x: Array, y: Array, origin: Array) -> Array:
    """Covariance of a random walk begun at ``origin``, (P, Q): min(x, y) - origin."""
    return jnp.maximum(jnp.minimum(x[:, None], y[None, :]) - origin, 0.0)


def ornstein_uhlenbeck(x: Array, y: Array, length: Array) -> Array:
    """exp(-|x - y| / length), (P, Q): rough deviations that fade."""
    return jnp.exp(-jnp.abs(x[:, None] - y[None, :]) / length)


def bent(h: dict[str, Array], coordinates: Array) -> Array:
    """Coordinates after bending, (P, C)."""
    return bend(coordinates, h["bend"][None, :])


def trend(h: dict[str, Array], points: Points) -> Array:
    """Expected ability (P,): level + s direction (sum_c pull_c bent_c + sum_e effect_e extra_e)."""
    worth = decades_worth(h, points.coordinates, points.extra)
    return h["level"][points.dimension] + steepness(h)[points.dimension] * worth


def decades_worth(h: dict[str, Array], coordinates: Array, extra: Array | None) -> Array:
    """What coordinates (..., C) and other covariates (..., E) are worth, in decades at the reference, (...)."""
    worth = (bend(coordinates, h["bend"]) * h["pull"]).sum(-1)
    return worth if extra is None else worth + extra @ h["effect"]


def steepness(h: dict[str, Array]) -> Array:
    """Ability (D,) that a decade is worth, falling ones negative."""
    return h["slope"] * h["direction"] if "direction" in h else h["slope"]


def parts(h: dict[str, Array], a: Points, b: Points) -> dict[str, Array]:
    """Covariances (P, Q) of abilities around the trend at two sets of points, by what they come from.

    "trend": drift, common curve and product, which all subjects share; "group"; "run": a run's level and what fades
    along it. What a subject has for itself alone is not among them. Across dimensions each is multiplied by their
    correlation.
    """
    x, y = bent(h, a.coordinates), bent(h, b.coordinates)
    common = smooth(h, x, y)
    if x.shape[1] == 2:
        common = common + h["sd_product"] ** 2 * x.prod(1)[:, None] * y.prod(1)[None, :]
    found = {"trend": common}
    if a.grouped:
        same_group = a.group[:, None] == b.group[None, :]
        found["group"] = same_group * group_covariance(h, x, y)
    if a.along_run:
        found["run"] = (a.run[:, None] == b.run[None, :]) * along_run(h, a.position, b.position)
    between = _between(h, a, b)
    return {name: value * between for name, value in found.items()}


def smooth(h: dict[str, Array], x: Array, y: Array) -> Array:
    """Covariance (P, Q) of what all subjects share, but for the product, at bent coordinates (P, C) and (Q, C)."""
    drift = h["sd_drift"] ** 2 * brownian(x[:, 0], y[:, 0], bend(ORIGIN, h["bend"][0]))
    if x.shape[1] == 1:
        return drift
    curve = h["sd_curve"] ** 2 * squared_exponential(x[:, 1], y[:, 1], h["length_curve"])
    return drift * squared_exponential(x[:, 1], y[:, 1], h["length_drift"]) + curve


def group_loadings(h: dict[str, Array], x: Array) -> Array:
    """What a group's standard normal effects, of level and slope, do at bent coordinates (..., C): (..., 2)."""
    return jnp.stack([h["sd_group_level"] * fan(h, x), h["sd_group_slope"] * along_group(h, x)], -1)


def along_group(h: dict[str, Array], x: Array) -> Array:
    """Where on its group's course a subject at bent coordinates (..., C) is, decades: (...,)."""
    return (x * h["pull"]).sum(-1)


def fan(h: dict[str, Array], x: Array) -> Array:
    """How far groups are apart at bent coordinates (..., C), relative to the reference: exp(fan) a decade.

    Groups that are all at chance when small and apart when large fan out.
    """
    return jnp.exp(jnp.clip(h["fan_group"] * along_group(h, x), -MOST_FAN, MOST_FAN))


def group_walk(h: dict[str, Array], x: Array, y: Array) -> Array:
    """Covariance (P, Q) of a group's random walk at bent coordinates (P, C) and (Q, C), in units of its fanned sd."""
    origin = (bend(jnp.full(x.shape[-1], ORIGIN), h["bend"]) * h["pull"]).sum()
    return brownian(along_group(h, x), along_group(h, y), origin)


def group_covariance(h: dict[str, Array], x: Array, y: Array) -> Array:
    """Covariance (P, Q) of two subjects of one group at bent coordinates (P, C) and (Q, C): level, slope and walk."""
    walk = h["sd_group_walk"] ** 2 * fan(h, x)[:, None] * fan(h, y)[None, :] * group_walk(h, x, y)
    return group_loadings(h, x) @ group_loadings(h, y).T + walk


def along_run(h: dict[str, Array], x: Array, y: Array) -> Array:
    """Covariance (P, Q) of two positions (P,), (Q,) along one run: its level and what fades along it."""
    return h["sd_run"] ** 2 + h["sd_residual"] ** 2 * ornstein_uhlenbeck(x, y, h["length_residual"])


def covariance(h: dict[str, Array], a: Points, b: Points) -> Array:
    """Sum of :func:`parts`: what abilities at different subjects share."""
    return sum(parts(h, a, b).values(), jnp.zeros(()))


def own_variance(h: dict[str, Array], compute_sd: Array, subject: Array | None = None) -> Array:
    """What every subject has for itself, on every dimension: scatter and the uncertainty (decades) of its compute.

    Where subjects' scatters differ, h["scatter"] (S,) are their variances over ``sd_own``'s.
    """
    size = h["scatter"][subject] if "scatter" in h else 1.0
    return size * h["sd_own"] ** 2 + JITTER + (jnp.sum(h["pull"] ** 2) * compute_sd**2)


def prior_covariance(h: dict[str, Array], points: Points, subject: Array) -> Array:
    """Covariance (P, P) of abilities at fitted points; ``subject`` (P,) says which rows are one subject's."""
    return covariance(h, points, points) + own_covariance(h, points, subject)


def masked(covariance: Array, mask: Array) -> Array:
    """Covariance (P, P) in which rows where ``mask`` (P,) is 0 are padding: unit variance, independent of all."""
    return jnp.outer(mask, mask) * covariance + jnp.diag(1 - mask)


def own_covariance(h: dict[str, Array], points: Points, subject: Array) -> Array:
    """Covariance (P, P) of what every subject has for itself."""
    same = subject[:, None] == subject[None, :]
    return same * own_variance(h, points.compute_sd, subject)[:, None] * _between(h, points, points)


def _between(h: dict[str, Array], a: Points, b: Points) -> Array:
    slope = h["slope"][a.dimension][:, None] * h["slope"][b.dimension][None, :]
    if a.n_dimensions == 1:
        return slope
    return slope * h["correlation"][a.dimension][:, b.dimension]


# Where drift begins, decades below the reference: before all data that one would fit together.
ORIGIN = -3.0
