"""Special functions that keep their digits in float32: the pieces from which the likelihoods are built.

Log-gamma grows like ``x log x``; in a difference of several the growth cancels and takes the digits along.
Here the growth is removed by hand, so nothing large is ever subtracted. The float32 forms are minimax fits
(largest error beside each table); in float64 the same functions are evaluated by recurrence and Stirling's
series.

Each float32 form ends in its only division: XLA on a CPU stores the result of a division that is used twice
and recomputes everything cheaper, so the place of the division decides what is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

_LOG_2 = 0.6931471805599453
_HALF_LOG_2PI = 0.9189385332046727

# log1p(-s) / -s on [0, 1/2], relative 2e-8.
_TAIL_TOP = (0.999999981, -1.13280627, 0.25657067)
_TAIL_BOTTOM = (1.0, -1.63280825, 0.739675561, -0.0757727379)
# F(x) = log x / 2 + (p log x + top) / bottom, and R(x) = (p x log x + top) / bottom, for all x > 0, 1e-7.
_F_LOG = 0.00042154996
_F_TOP = (
    -3.72533875e-10,
    -0.000362444478,
    -0.001624434,
    -0.0585993017,
    -0.483916767,
    -1.18713405,
    -0.918938432,
)
_F_BOTTOM = (0.000843099964, -0.00168459876, 0.00404476528, 0.0284341972, 0.417777038, 1.20116094, 1.0)
_R_LOG = 0.000757310325
_R_TOP = (0.000757824498, 0.000734268506, 0.0171570892, 0.222268176, 0.678836265, 0.863970025, 0.499999925)
_R_BOTTOM = (0.000757824555, 0.000300920664, 0.019768977, 0.27664773, 1.09771474, 1.56125797, 1.0)
# Beyond this the fits have reached their limits; it keeps x^6 inside float32.
_FIT_END = 1e6
# digamma(1 + x) + x trigamma(1 + x) on [0, 1], 3e-7; x Q(x) in powers of 1 / x^2 beyond 1, relative 5e-6.
_Q_NEAR = (
    -0.577215411, 3.28981253, -3.60415656, 4.30065638, -4.97320433,
    5.17199132, -4.38432374, 2.68924067, -1.02219179, 0.17710959,
)  # fmt: skip
_Q_FAR = (
    -0.0833329523, 0.0249518386, -0.0188148682, 0.0200124552, -0.0186767026, 0.0109384715, -0.00279702563
)  # fmt: skip
# For |t| < 3/4: (expm1(t) - t) / t^2, relative 3e-7; and (w - log1p(w)) / w^2 for |w| <= |expm1(t)| / 2,
# relative 6e-7.
NEAR = 0.75
_EXPM1 = (0.500000139, 0.166666759, 0.0416622097, 0.00833229119, 0.00140996798, 0.000201530799)
_LOG1P_TOP = (0.499999776, 0.325264834, 0.0047714326)
_LOG1P_BOTTOM = (1.0, 1.31719186, 0.38762985)

# Stirling's series and its argument shift, for float64.
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156, -3617 / 122400)
_SHIFT = 8

# Chebyshev points of the gap in `below`; an interpolant in powers of (gap - log(2) / 2) has coefficients
# _BELOW_WEIGHTS @ values. Error 2e-7.
_BELOW_GAPS = _LOG_2 / 2 * (1 - np.cos(np.pi * (np.arange(5) + 0.5) / 5))
_BELOW_WEIGHTS = np.linalg.inv(np.vander(_BELOW_GAPS - _LOG_2 / 2, increasing=True))


def result_dtype() -> np.dtype[Any]:
    """The float type JAX computes in at this moment: float32, or float64 under ``enable_x64``."""
    return np.dtype(jnp.result_type(float))


def namespace(*arrays: ArrayLike) -> tuple[Any, Any]:
    """NumPy in float64 for values at hand, jax.numpy for values being traced."""
    if any(isinstance(array, jax.core.Tracer) for array in arrays):
        return jnp, result_dtype()
    return np, np.dtype(np.float64)


def high_low(x: Any) -> tuple[Any, Any]:
    """x as the sum of two numbers of the float type JAX computes in."""
    high = x.astype(result_dtype())
    return high, (x - high).astype(result_dtype())


def _is_double(x: Array) -> bool:
    return x.dtype == np.float64


def _polynomial(x: Array, coefficients: Sequence[Any]) -> Array:
    """Sum of coefficients[k] x^k."""
    total = coefficients[-1]
    for coefficient in coefficients[-2::-1]:
        total = total * x + coefficient
    return total


class Fold(NamedTuple):
    """A logit folded at zero: `small` is the probability of the less likely side.

    sign = +1 for eta >= 0, else -1; size = |eta|; small = sigmoid(-size); tail = -log(1 - small).
    """

    sign: Array
    size: Array
    small: Array
    tail: Array

    @property
    def mean(self) -> Array:
        return jnp.where(self.sign > 0, 1 - self.small, self.small)

    @property
    def rest(self) -> Array:
        return jnp.where(self.sign > 0, self.small, 1 - self.small)

    @property
    def log_mean(self) -> Array:
        return jnp.where(self.sign > 0, 0, -self.size) - self.tail

    @property
    def log_rest(self) -> Array:
        return jnp.where(self.sign > 0, -self.size, 0) - self.tail


@jax.custom_jvp
def fold(eta: Array) -> Fold:
    """Sign, size, small side and tail of a logit; smooth pieces of it stay differentiable at eta = 0."""
    size = jnp.abs(eta)
    small = 1 / (1 + jnp.exp(size))
    if _is_double(eta):
        tail = -jnp.log1p(-small)
    else:
        tail = small * _polynomial(small, _TAIL_TOP) / _polynomial(small, _TAIL_BOTTOM)
    return Fold(jnp.where(eta >= 0, 1.0, -1.0).astype(eta.dtype), size, small, tail)


@fold.defjvp
def _fold_jvp(primals, tangents):
    out = fold(*primals)
    outwards = out.sign * tangents[0]
    inwards = -out.small * outwards
    return out, Fold(jnp.zeros_like(out.sign), outwards, inwards * (1 - out.small), inwards)


def _far_series(x: Array, power: int) -> Array:
    """Stirling's series of log-gamma with term k multiplied by (2 k + 1)^power."""
    terms = [(2 * k + 1) ** power * c for k, c in enumerate(_STIRLING)]
    return _polynomial(1 / (x * x), terms) / x


def _shifted(x: Array) -> tuple[Array, Array, Array]:
    """Is x small, x where it is (else 1), and x raised to where Stirling's series is exact."""
    near = x < _SHIFT
    return near, jnp.where(near, x, 1), jnp.where(near, x + _SHIFT, x)


def stirling(log_x: Array, x: Array) -> Array:
    """F(x) = x log x - x - log Gamma(x), between log x (small x) and log(x) / 2 (large x)."""
    if not _is_double(x):
        x = jnp.minimum(x, _FIT_END)
        return 0.5 * log_x + (_F_LOG * log_x + _polynomial(x, _F_TOP)) / _polynomial(x, _F_BOTTOM)
    near, x_near, above = _shifted(x)
    far = 0.5 * jnp.log(above) - _HALF_LOG_2PI - _far_series(above, 0)
    product = x_near
    for k in range(1, _SHIFT):
        product = product * (x_near + k)
    log_gamma = above * jnp.log(above) - above - far - jnp.log(product)
    return jnp.where(near, x_near * log_x - x_near - log_gamma, far)


@jax.custom_jvp
def stirling_slope(log_x: Array, x: Array) -> Array:
    """R(x) = x F'(x) = x (log x - digamma(x)), falling from 1 to 1/2. Differentiates along log_x."""
    if not _is_double(x):
        x = jnp.minimum(x, _FIT_END)
        return (_R_LOG * log_x * x + _polynomial(x, _R_TOP)) / _polynomial(x, _R_BOTTOM)
    near, x_near, above = _shifted(x)
    far = 0.5 + _far_series(above, 1)
    digamma = jnp.log(above) - far / above
    for k in range(_SHIFT):
        digamma = digamma - 1 / (x_near + k)
    return jnp.where(near, x_near * (log_x - digamma), far)


@stirling_slope.defjvp
def _stirling_slope_jvp(primals, tangents):
    return stirling_slope(*primals), stirling_curvature(*primals) * tangents[0]


def stirling_curvature(log_x: Array, x: Array) -> Array:
    """Q(x) = x R'(x) = R(x) + x - x^2 trigamma(x), negative, vanishing at both ends."""
    if not _is_double(x):
        inside, inverse = jnp.minimum(x, 1), 1 / jnp.maximum(x, 1)
        close = inside * (log_x + 1 - _polynomial(inside, _Q_NEAR))
        return jnp.where(x < 1, close, inverse * _polynomial(inverse * inverse, _Q_FAR))
    near, x_near, above = _shifted(x)
    far = -_far_series(above, 2)
    trigamma = (0.5 + _far_series(above, 1) + above - far) / (above * above)
    for k in range(_SHIFT):
        trigamma = trigamma + 1 / (x_near + k) ** 2
    return jnp.where(near, stirling_slope(log_x, x_near) + x_near - x_near * x_near * trigamma, far)


def below(function: Callable[[Array, Array], Array], log_x: Array, gap: Array, x_below: Array) -> Array:
    """function(log_x - gap, x_below) for 0 <= gap <= log 2, cheap when one log_x serves many gaps.

    A quartic in the gap, its coefficients computed once per log_x. x_below = exp(log_x - gap).
    """
    if _is_double(gap) or 4 * log_x.size > gap.size:
        return function(log_x - gap, x_below)
    gaps = jnp.asarray(_BELOW_GAPS, log_x.dtype).reshape(-1, *[1] * log_x.ndim)
    values = function(log_x - gaps, jnp.exp(log_x) * jnp.exp(-gaps))
    # The line through the end points goes first: what is left is small, and so is its rounding error.
    slope = (values[-1] - values[0]) / (gaps[-1] - gaps[0])
    bend = values - values[0] - slope * (gaps - gaps[0])
    coefficients = [sum(float(w) * b for w, b in zip(row, bend, strict=True)) for row in _BELOW_WEIGHTS]
    coefficients[0] = coefficients[0] + values[0] + slope * (_LOG_2 / 2 - gaps[0])
    coefficients[1] = coefficients[1] + slope
    return _polynomial(gap - _LOG_2 / 2, coefficients)


def _expm1(step: Array) -> tuple[Array, Array]:
    """expm1(step) and expm1(step) - step, for steps below 3/4 in size."""
    if _is_double(step):
        raised = jnp.expm1(jnp.clip(step, -1, 1))
        return raised, raised - step
    bend = step * step * _polynomial(step, _EXPM1)
    return step + bend, bend


def shift(small: Array, step: Array) -> Array:
    """Change of a probability `small` when its logit moves by `step`, for steps below 3/4 in size."""
    raised, _ = _expm1(step)
    return small * (1 - small) * raised / (1 + small * raised)


@jax.custom_jvp
def divergence(base: Fold, step: Array, far_tail: Array) -> Array:
    """KL divergence of two coins, the first with logit -base.size, the second with logit -base.size + step.

    KL = softplus(-size + step) - softplus(-size) - small step, without cancellation for close coins.
    far_tail = softplus(-size + step), which the callers have; it is not differentiated by itself.
    """
    far = far_tail - base.tail - base.small * step
    near = jnp.abs(step) < NEAR
    raised, bend = _expm1(step)
    w = base.small * raised
    if _is_double(step):
        return jnp.where(near, jnp.log1p(w) - base.small * step, far)
    bottom = _polynomial(w, _LOG1P_BOTTOM)
    close = base.small * bend * bottom - w * w * _polynomial(w, _LOG1P_TOP)
    return jnp.where(near, close, far) / jnp.where(near, bottom, 1)


@divergence.defjvp
def _divergence_jvp(primals, tangents):
    base, step, far_tail = primals
    move = tangents[1] - tangents[0].size
    near = jnp.abs(step) < NEAR
    second_minus_first = jnp.where(near, shift(base.small, step), -jnp.expm1(-far_tail) - base.small)
    along_first = base.small * (1 - base.small) * step * tangents[0].size
    return divergence(*primals), along_first + second_minus_first * move
