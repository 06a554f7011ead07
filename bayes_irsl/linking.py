"""Links between two scales of ability, theta_a = A theta_b + B, through common items or common subjects."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from bayes_irsl import _validate as check
from bayes_irsl.bank import STANDARD_SCALE, ItemBank
from bayes_irsl.errors import InputError

ADVISED = 5  # common items or subjects from which a link is worth its name
_OFF = 3.0  # sd from the link at which a common item is called misfitting


@dataclass(frozen=True, eq=False, repr=False)
class Link:
    """A linear map between scales with its uncertainty: theta_a = A theta_b + B.

    Attributes
    ----------
    slope, shift : (draw,)
        Draws of A > 0 and B.
    common : DataFrame
        The common items or subjects, their weight and how far each is off the link, in sd.
    method : str
    prior, scale, scale_id
        Of the scale that is linked to.
    notes : tuple of str
        What a reader should know before trusting the link.
    """

    slope: np.ndarray
    shift: np.ndarray
    common: pd.DataFrame
    method: str
    prior: tuple[float, float] = (0.0, 1.0)
    scale: str = STANDARD_SCALE
    scale_id: str = "given"
    notes: tuple[str, ...] = field(default=())

    @property
    def slope_mean(self) -> float:
        """Geometric mean of the draws of A."""
        return float(np.exp(np.log(self.slope).mean()))

    @property
    def shift_mean(self) -> float:
        """Mean of the draws of B."""
        return float(self.shift.mean())

    def apply_mean(self, theta: Any) -> np.ndarray:
        """Abilities of scale b on scale a by the mean link."""
        return self.slope_mean * np.asarray(theta, float) + self.shift_mean

    def resampled(self, n: int) -> tuple[np.ndarray, np.ndarray]:
        """n draws of (A, B), in their own order where there are n."""
        pick = np.resize(np.arange(len(self.slope)), n)
        if n != len(self.slope):
            pick = np.random.default_rng(0).permutation(pick)
        return self.slope[pick], self.shift[pick]

    def apply(self, theta: Any) -> np.ndarray:
        """Abilities (...,) of scale b on scale a, for every draw of the link: (draw, ...)."""
        theta = np.asarray(theta, float)
        shape = (-1, *[1] * theta.ndim)
        return self.slope.reshape(shape) * theta + self.shift.reshape(shape)

    def summary(self, mass: float = 0.9) -> pd.DataFrame:
        """Mean, sd and equal-tailed interval of A and B."""
        tail = 100 * (1 - mass) / 2
        draws = np.stack([self.slope, self.shift])
        lower, upper = np.percentile(draws, [tail, 100 - tail], axis=1)
        table = {"mean": draws.mean(1), "sd": draws.std(1), "lower": lower, "upper": upper}
        return pd.DataFrame(table, index=pd.Index(["A", "B"], name=f"equal-tailed {mass:.0%}"))

    def __repr__(self) -> str:
        lines = [f"Link by {self.method} through {len(self.common)} in common: theta_a = A theta_b + B"]
        return "\n".join([*lines, self.summary().to_string(float_format="{:.3f}".format), *self.notes])


def link(bank_a: ItemBank, bank_b: ItemBank, method: str = "slope-intercept") -> Link:
    """The map from the scale of bank b to that of bank a, through the items that both hold.

    With intercepts i = -a b of the logit a link is linear: a_b = A a_a and i_b = i_a + B a_a. Log A and B are
    estimated by least squares, items weighted by their posterior precision in both banks, once for every pair
    of draws. Where the items disagree by more than their posteriors allow, the spread of the link is widened
    by the root mean square of the disagreement.

    Parameters
    ----------
    bank_a, bank_b : ItemBank
        On one ability each.
    method : "slope-intercept" | "mean-sigma"
        Or the textbook method: A and B from weighted means and sds of the difficulties, draw by draw.

    Returns
    -------
    Link
        ``bank_b.rescale(link(bank_a, bank_b))`` is on the scale of bank a.

    Raises
    ------
    InputError
        Fewer than 2 common items (5 and more are advised), banks of several abilities, an unknown method.

    Notes
    -----
    Kolen and Brennan (2014), Test Equating, Scaling, and Linking, chapter 6, for mean-sigma.
    """
    methods: dict[str, Callable[..., tuple[np.ndarray, np.ndarray, pd.DataFrame]]] = {
        "slope-intercept": _slope_intercept,
        "mean-sigma": _mean_sigma,
    }
    if method not in methods:
        raise InputError(f"method = {method!r}: expected one of {list(methods)}")
    for name, bank in (("a", bank_a), ("b", bank_b)):
        if len(bank.dimensions) > 1:
            raise InputError(f"bank {name} has {len(bank.dimensions)} abilities; select the items of one of them first")
    common = [item for item in bank_a.items.index if item in set(bank_b.items.index)]
    _enough(len(common), "item")
    first, second = bank_a.select(common), bank_b.select(common)
    slope, shift, table = methods[method](first, second)
    table.index = pd.Index(common, name="item")
    return Link(slope, shift, table, method, bank_a.prior, bank_a.scale, bank_a.scale_id, _notes(table, "item"))


def link_subjects(theta_a: Any, theta_b: Any, *, bank_a: ItemBank | None = None) -> Link:
    """The map theta_a = A theta_b + B through subjects whose abilities are known on both scales.

    A is the ratio of the weighted sds of the abilities and B aligns their weighted means, draw by draw;
    subjects are weighted by their posterior precision on both scales.

    Parameters
    ----------
    theta_a, theta_b : (draw, subject) array, or DataArray with a dim "subject"
        Posterior draws of the same subjects; DataArrays with labels are matched by label.
    bank_a : ItemBank, optional
        The bank whose scale theta_a is on, so that a rescaled bank knows where it is.

    Returns
    -------
    Link
    """
    first, second, labels = _abilities(theta_a, theta_b)
    _enough(first.shape[1], "subject")
    slope, shift, table = _moments(*_met(first, second))
    table.index = pd.Index(labels, name="subject")
    found = Link(slope, shift, table, "mean-sigma of abilities", notes=_notes(table, "subject"))
    if bank_a is None:
        return found
    return replace(found, prior=bank_a.prior, scale=bank_a.scale, scale_id=bank_a.scale_id)


def _enough(n: int, what: str) -> None:
    if n < 2:
        raise InputError(
            f"{n} common {what}s: a link needs at least 2, better {ADVISED} or more; add {what}s to one side"
        )


def _notes(table: pd.DataFrame, what: str) -> tuple[str, ...]:
    notes = []
    if len(table) < ADVISED:
        notes.append(f"only {len(table)} {what}s in common: {ADVISED} or more are advised")
    off = table.index[table["off"].abs() > _OFF]
    if len(off):
        notes.append(f"{what} {check.some(off)} lies more than {_OFF:g} sd off the link: is it the same on both sides?")
    return tuple(notes)


def _met(draws_a: np.ndarray, draws_b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Draws of both sides in pairs: those of b in their order, so that each moves by its own link."""
    n = len(draws_b) if len(draws_b) > 1 else len(draws_a)
    order = np.random.default_rng(0).permutation(np.resize(np.arange(len(draws_a)), n))
    return draws_a[order], draws_b[np.resize(np.arange(len(draws_b)), n)]


def _logits(bank: ItemBank) -> np.ndarray:
    """Log slopes and intercepts side by side: (draw, 2 items)."""
    return np.concatenate([np.log(bank.a), -bank.a * bank.b], axis=1).astype(float)


def _slope_intercept(bank_a: ItemBank, bank_b: ItemBank) -> tuple[np.ndarray, np.ndarray, pd.DataFrame]:
    pair_a, pair_b = _met(_logits(bank_a), _logits(bank_b))
    (slope_a, level_a), (slope_b, level_b) = (np.split(pair, 2, axis=1) for pair in (pair_a, pair_b))
    ratio = slope_b - slope_a
    weight = _precision(ratio)
    log_slope = ratio @ weight / weight.sum()
    precision_a, precision_b = _precision(slope_a), _precision(slope_b)
    pooled = slope_a.mean(0) * precision_a + (slope_b.mean(0) - log_slope.mean()) * precision_b
    slopes = np.exp(pooled / (precision_a + precision_b))
    shift = 0.0
    for _ in range(10):
        rest = level_b - level_a - shift * np.exp(slope_a)
        gain = _precision(rest) * slopes
        step = rest @ gain / (gain @ slopes)
        shift = shift + step.mean()
    off_slope = (ratio.mean(0) - log_slope.mean()) * np.sqrt(weight)
    off_level = rest.mean(0) * np.sqrt(_precision(rest))
    table = pd.DataFrame({"weight": gain * slopes / (gain @ slopes), "off_slope": off_slope, "off_level": off_level})
    table["off"] = np.where(np.abs(off_slope) > np.abs(off_level), off_slope, off_level)
    return np.exp(_widened(log_slope, off_slope)), _widened(shift + step - step.mean(), off_level), table


def _mean_sigma(bank_a: ItemBank, bank_b: ItemBank) -> tuple[np.ndarray, np.ndarray, pd.DataFrame]:
    return _moments(*_met(bank_a.b.astype(float), bank_b.b.astype(float)))


def _moments(place_a: np.ndarray, place_b: np.ndarray) -> tuple[np.ndarray, np.ndarray, pd.DataFrame]:
    """A and B from weighted means and sds of the same things' places (draw, thing) on both scales."""
    if min(place_a.std(1).min(), place_b.std(1).min()) < 1e-9:
        raise InputError("all that the scales have in common lies at one place, which says nothing about their units")
    slope = np.array([1.0])
    for _ in range(5):
        weight = 1 / (1 / _precision(place_a) + slope.mean() ** 2 / _precision(place_b))
        weight /= weight.sum()
        mean_a, mean_b = place_a @ weight, place_b @ weight
        sd_a, sd_b = (np.sqrt((p - m[:, None]) ** 2 @ weight) for p, m in ((place_a, mean_a), (place_b, mean_b)))
        slope = sd_a / sd_b
    shift = mean_a - slope * mean_b
    rest = place_a - slope.mean() * place_b - shift.mean()
    off = rest.mean(0) * np.sqrt(_precision(rest))
    table = pd.DataFrame({"weight": weight, "off": off})
    return np.exp(_widened(np.log(slope), off)), _widened(shift, off), table


def _precision(draws: np.ndarray) -> np.ndarray:
    """Inverse posterior variance of every column; equal where all are known."""
    return 1 / np.maximum(draws.var(0), 1e-12)


def _widened(draws: np.ndarray, off: np.ndarray) -> np.ndarray:
    """Draws spread out by the root mean square disagreement of what is in common, where it is above 1."""
    if np.ptp(draws) == 0:
        return draws
    excess = np.sqrt(max(1.0, float((off**2).sum() / max(1, len(off) - 1))))
    return draws.mean() + excess * (draws - draws.mean())


def _abilities(theta_a: Any, theta_b: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draws (draw, subject) of the subjects that both sides know, and their labels."""
    if isinstance(theta_a, xr.DataArray) and isinstance(theta_b, xr.DataArray):
        in_b = set(theta_b["subject"].values.tolist())
        labels = np.array([s for s in theta_a["subject"].values.tolist() if s in in_b], dtype=str)
        if len(labels) == 0:
            _enough(0, "subject")
        rows = [t.sel(subject=labels).transpose(..., "subject").to_numpy() for t in (theta_a, theta_b)]
        first, second = (r.reshape(-1, len(labels)).astype(float) for r in rows)
    else:
        first, second = (np.atleast_2d(np.asarray(t, float)) for t in (theta_a, theta_b))
        if first.ndim != 2 or second.ndim != 2 or first.shape[1] != second.shape[1]:
            shapes = f"{first.shape} and {second.shape}"
            raise InputError(f"abilities of shapes {shapes}: expected (draw, subject) of the same subjects")
        labels = np.arange(first.shape[1]).astype(str)
    if not (np.isfinite(first).all() and np.isfinite(second).all()):
        raise InputError("abilities must be finite; drop the subjects without a value")
    return first, second, labels
