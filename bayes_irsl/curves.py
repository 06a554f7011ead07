"""Response curves, their information, pass@k and correction for chance: pure functions of arrays.

`theta` is an ability, `b` a difficulty and `c` a guessing rate; `a` > 0 is a discrimination. All of them
broadcast.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from bayes_irsl._special import fold, stirling_curvature, stirling_slope
from bayes_irsl.errors import InputError

_LIKELIHOODS = ("bernoulli", "binomial", "beta", "beta-binomial")


def mean_logit(theta: ArrayLike, a: ArrayLike, b: ArrayLike) -> Array:
    """Logit of the success rate without guessing: eta = a (theta - b)."""
    return jnp.asarray(a) * (jnp.asarray(theta) - b)


def with_guessing(eta: ArrayLike, logit_c: ArrayLike) -> Array:
    """Logit of a success rate that starts from guessing.

    zeta = logit(c + (1 - c) sigmoid(eta)) = log(c/(1-c) + exp(eta)/(1-c)). Exact at both ends and twice
    differentiable.

    Parameters
    ----------
    eta
        Logit without guessing.
    logit_c
        Logit of the guessing rate c; -inf for c = 0, which returns eta.

    Notes
    -----
    The three-parameter model of A. Birnbaum (1968), in F. M. Lord and M. R. Novick, Statistical Theories of
    Mental Test Scores, ch. 17; c is the lower asymptote.
    """
    logit_c = jnp.asarray(logit_c)
    return jnp.logaddexp(logit_c, jnp.asarray(eta) + jnp.logaddexp(logit_c, 0.0))


def response_curve(theta: ArrayLike, a: ArrayLike, b: ArrayLike, c: ArrayLike = 0.0) -> Array:
    """Success rate mu = c + (1 - c) sigmoid(a (theta - b))."""
    c = jnp.asarray(c)
    return c + (1 - c) * jax.nn.sigmoid(mean_logit(theta, a, b))


def difficulty_from_intercept(a: ArrayLike, intercept: ArrayLike) -> Array:
    """Difficulty b = -intercept / a of an item written eta = a theta + intercept."""
    return -jnp.asarray(intercept) / a


def intercept_from_difficulty(a: ArrayLike, b: ArrayLike) -> Array:
    """Intercept -a b, for writing eta = a (theta - b) as a theta + intercept."""
    return -jnp.asarray(a) * b


def information(
    theta: ArrayLike,
    a: ArrayLike,
    b: ArrayLike,
    c: ArrayLike = 0.0,
    likelihood: str = "bernoulli",
    phi: ArrayLike | None = None,
    trials: ArrayLike = 1,
) -> Array:
    """Fisher information about theta in one answer.

    (d zeta / d theta)^2 J(zeta), with zeta the logit of mu and J the information about zeta: bernoulli mu
    (1 - mu); binomial n mu (1 - mu); beta (1-mu)^2 (alpha^2 psi1(alpha)) + mu^2 (beta^2 psi1(beta));
    beta-binomial the same difference between the parameters before and after the counts, averaged over the
    counts.

    Parameters
    ----------
    theta, a, b, c
        Ability and item parameters.
    likelihood
        "bernoulli", "binomial", "beta" or "beta-binomial".
    phi
        Precision (beta) or concentration (beta-binomial), alpha + beta.
    trials
        Trials per answer (binomial, beta-binomial; known numbers for the latter, whose cost grows with them).

    Returns
    -------
    Array
        Information in 1 / theta^2, of the broadcast shape.

    Raises
    ------
    InputError
        For an unknown likelihood, or one that needs phi and got none.
    """
    if likelihood not in _LIKELIHOODS:
        raise InputError(f"likelihood={likelihood!r} is not known; choose one of {', '.join(_LIKELIHOODS)}")
    if likelihood.startswith("beta") and phi is None:
        raise InputError(f"likelihood={likelihood!r} needs phi, the precision of the answers; got None")
    parts, c = fold(mean_logit(theta, a, b) * 1.0), jnp.asarray(c)
    # sigmoid(eta) / mu: the share of the successes that are not guessed.
    share = 1 / (1 - c + c / jnp.maximum(parts.mean, jnp.finfo(parts.mean.dtype).tiny))
    mu, miss = jnp.where(c > 0, c + (1 - c) * parts.mean, parts.mean), (1 - c) * parts.rest
    if likelihood in ("bernoulli", "binomial"):
        in_logit = mu * miss * jnp.asarray(trials)
    elif likelihood == "beta":
        alpha, beta = mu * jnp.asarray(phi), miss * jnp.asarray(phi)
        in_logit = miss**2 * _square_trigamma(alpha) + mu**2 * _square_trigamma(beta)
    else:
        in_logit = _beta_binomial_information(mu, miss, jnp.asarray(phi), np.asarray(trials))
    return (jnp.asarray(a) * share) ** 2 * in_logit


def _square_trigamma(x: Array) -> Array:
    """x^2 trigamma(x), which is 1 at 0 and x + 1/2 for large x."""
    x = jnp.maximum(x, jnp.finfo(x.dtype).tiny)
    return x + stirling_slope(jnp.log(x), x) - stirling_curvature(jnp.log(x), x)


def _beta_binomial_information(mu: Array, miss: Array, phi: Array, trials: np.ndarray) -> Array:
    """Information about the logit of mu: (alpha (1-mu))^2 sum_k P(Y > k) / (alpha + k)^2 plus its mirror."""
    most = int(trials.max(initial=0))
    k = jnp.arange(most)
    tiny = jnp.finfo(mu.dtype).tiny
    alpha, beta = (jnp.maximum(phi * side, tiny)[..., None] for side in (mu, miss))
    n = jnp.asarray(trials)[..., None]
    left = jnp.maximum(n - k - 1, 0)
    steps = jnp.log((left + 1) / (k + 1)) + jnp.log(alpha + k) - jnp.log(beta + left)
    log_p = jnp.cumsum(jnp.where(k < n, steps, -jnp.inf), -1)
    log_p = jnp.concatenate([jnp.zeros_like(log_p[..., :1]), log_p], -1)
    p = jax.nn.softmax(log_p, -1)
    above = jnp.flip(jnp.cumsum(jnp.flip(p[..., 1:], -1), -1), -1)
    below = jnp.cumsum(p[..., :-1], -1)
    # P(n - Y > m) belongs to m = n - 1 - k.
    per_alpha = jnp.where(k < n, above / (1 + k / alpha) ** 2, 0)
    per_beta = jnp.where(k < n, below / (1 + left / beta) ** 2, 0)
    return (miss[..., None] ** 2 * per_alpha + mu[..., None] ** 2 * per_beta).sum(-1)


def information_peak(a: ArrayLike, b: ArrayLike, c: ArrayLike = 0.0) -> Array:
    """Ability at which a right-or-wrong item tells most: b + log((1 + sqrt(1 + 8 c)) / 2) / a.

    Above b once there is guessing: successes of weak subjects say little.

    Notes
    -----
    A. Birnbaum (1968), in F. M. Lord and M. R. Novick, Statistical Theories of Mental Test Scores, ch. 20.
    """
    return jnp.asarray(b) + jnp.log((1 + jnp.sqrt(1 + 8 * jnp.asarray(c))) / 2) / a


def expected_score(
    theta: ArrayLike,
    a: ArrayLike,
    b: ArrayLike,
    c: ArrayLike = 0.0,
    items: Sequence[str] | None = None,
) -> Array:
    """Mean success rate over items, increasing in theta.

    Parameters
    ----------
    theta
        Abilities, any shape.
    a, b, c
        Item parameters, items on the last axis.
    items
        Labels of the items, for the error message.

    Returns
    -------
    Array
        Shape of theta (broadcast against the leading axes of the item parameters).

    Raises
    ------
    InputError
        If a slope is negative: the curve would dip, and the able would be expected to score less. Not
        checked while JAX is tracing.
    """
    if not isinstance(a, jax.core.Tracer):
        negative = np.unique(np.argwhere(np.atleast_1d(np.asarray(a)) < 0)[:, -1])
        if negative.size:
            names = ", ".join(str(items[i] if items is not None else i) for i in negative[:5])
            raise InputError(
                f"a must be positive for every item; it is negative for {negative.size} of them ({names}"
                f"{', ...' if negative.size > 5 else ''}). Recode those items or leave them out."
            )
    return response_curve(jnp.asarray(theta)[..., None], a, b, c).mean(-1)


def passing(p: ArrayLike, k: ArrayLike) -> np.ndarray:
    """Chance 1 - (1 - p)^k (..., K) of a success in k samples, at rates (...,) and numbers of samples (K,).

    In float64, exact for the smallest rates.
    """
    rate = np.minimum(np.asarray(p, dtype=np.float64), 1 - 1e-16)
    return -np.expm1(np.log1p(-rate)[..., None] * np.asarray(k, dtype=np.float64))


def pass_at_k_unbiased(n: ArrayLike, c: ArrayLike, k: ArrayLike) -> np.ndarray:
    """Unbiased estimate of the chance that k fresh samples contain a success.

    1 - C(n - c, k) / C(n, k) = 1 - prod_{i=0}^{m-1} (1 - M / (n - i)), m = min(c, k), M = max(c, k); in
    float64 by log1p, without binomial coefficients.

    Parameters
    ----------
    n
        Samples taken of each problem.
    c
        Successes among them.
    k
        Samples allowed, k <= n: more cannot be estimated without a model.

    Returns
    -------
    numpy.ndarray
        One estimate a problem (float64, the broadcast shape). Averaging over problems is the caller's step:
        pooling samples of different problems first is another quantity.

    Raises
    ------
    InputError
        If k > n, k < 1, c outside 0..n, or a number is not whole.

    Notes
    -----
    M. Chen et al. (2021), Evaluating Large Language Models Trained on Code, eq. 1.
    """
    n, c, k = np.broadcast_arrays(*(np.asarray(value, dtype=np.float64) for value in (n, c, k)))
    _refuse(~((n >= 1) & (n == np.floor(n))), "n (samples) must be whole and at least 1", n, c, k)
    _refuse(~((c >= 0) & (c <= n) & (c == np.floor(c))), "c (successes) must be whole and lie in 0..n", n, c, k)
    _refuse(~((k >= 1) & (k == np.floor(k))), "k must be whole and at least 1", n, c, k)
    _refuse(k > n, "k must not exceed n: use a forecast for more samples than were taken", n, c, k)
    fewer, more = np.minimum(c, k), np.maximum(c, k)
    sure = c + k > n
    log_fail = np.zeros(n.shape)
    step = 0
    # Below exp(-50) the estimate is 1 in float64, so the loop takes at most sqrt(50 n) steps.
    while np.any(open_ := (step < fewer) & ~sure & (log_fail > -50)):
        log_fail = log_fail + np.log1p(-np.where(open_, more, 0) / (n - np.where(open_, step, 0)))
        step += 1
    return np.where(sure, 1.0, -np.expm1(log_fail))


def _refuse(bad: np.ndarray, rule: str, n: np.ndarray, c: np.ndarray, k: np.ndarray) -> None:
    if not bad.any():
        return
    places = np.argwhere(bad)
    shown = "; ".join(
        (f"position {', '.join(map(str, at))}: " if at else "") + f"n={n[at]:g}, c={c[at]:g}, k={k[at]:g}"
        for at in map(tuple, places[:5])
    )
    raise InputError(f"{rule}; {len(places)} of {n.size} break this ({shown}{'; ...' if len(places) > 5 else ''})")


def chance_corrected(raw: ArrayLike, chance: ArrayLike) -> np.ndarray:
    """Accuracy above chance, per subtask: (raw - chance) / (1 - chance).

    Correct each subtask with its own chance level first and average afterwards; the mean of subtasks has no
    one chance level. Below chance the result is negative and stays so: clip it yourself, and say so.

    Parameters
    ----------
    raw : float or array, accuracy in [0, 1]
    chance : float or array that broadcasts against it, in [0, 1): 1 / number of options

    Returns
    -------
    float64 array (0-d for a number)

    Raises
    ------
    InputError
        Percent, or a chance level outside [0, 1).
    """
    try:
        score, level = np.asarray(raw, dtype=np.float64), np.asarray(chance, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError("raw and chance must be numbers.") from None
    if not ((level >= 0) & (level < 1)).all():
        raise InputError(f"chance is a share in [0, 1), such as 1/4 for four options; got {chance!r}.")
    if ((score < 0) | (score > 1)).any():
        raise InputError(f"raw is an accuracy in [0, 1] (percent divided by 100); got {raw!r}.")
    return (score - level) / (1 - level)
